#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's rdmacm-utils over our librdmacm: connections, rsockets; what doesn't work says so.

VERBENA_FULL=1 takes more of everything.

usage: rdmacm.py [--wire] [GROUP...] [WORD...]
Runs the groups (see GROUPS; without any: all), and of their cases those whose name has a WORD.
--wire: all messages and data as RoCEv2 packets, in a network namespace of the test's own (needs root).
"""
import errno
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pyverbs
from lib import (BUILD, FULL, LEAST, PORTS, SANITIZE, SANITIZER_RUNTIME, SKIPPED, SLOW, Failure,
                 Stage, Suite, chosen, need_programs, poll_until,
                 port_listened, require, tail)
from network import own_network

PROBE = f"{BUILD}/tests/e2e/cm_probe"

MIB = 1024 * 1024
# What a client says that comes before its server listens; the last is rstream -T n.
REFUSED = re.compile(r"REJECTED|refused|CM event 8|Connection refused|event 8|rpoll: Resource temp|"
                     r"rpoll: Operation now in progress", re.IGNORECASE)


def resting(process):
    """Its threads that wait for a packet on a socket, with how often they have waited so far."""
    found = []
    try:
        for task in os.listdir(f"/proc/{process.pid}/task"):
            base = f"/proc/{process.pid}/task/{task}"
            with open(f"{base}/wchan", encoding="ascii") as file:
                where = file.read()
            with open(f"{base}/status", encoding="ascii") as file:
                switches = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", file.read(), re.MULTILINE)
            if where == "__skb_wait_for_more_packets":
                found.append((task, switches[1]))
    except OSError:
        pass
    return found


def wait_at_rest(process):
    """Waits until a server has been seen at rest: waiting for an event, not for a daemon's reply."""
    calm, before = 0, None
    end = time.monotonic() + LEAST * SLOW
    while calm < 5 and process.running() and time.monotonic() < end:
        time.sleep(0.05)
        now = resting(process)
        calm = calm + 1 if now and now == before else 0
        before = now
    require(calm >= 5,
            f"{process.title()} doesn't wait for a connection\n{tail(process.output())}")


def address(stage):
    """Where the server is. A stage may be two hosts (network.TwoHosts)."""
    return getattr(stage, "address", "127.0.0.1")


def client_of(stage):
    """The Stage that clients start in."""
    return getattr(stage, "client", stage)


def server_of(stage):
    """The Stage that servers start in."""
    return getattr(stage, "server", stage)


# What rping prints when its thread for events comes to the channel after main() has destroyed it.
LATE_READER = re.compile(r"rdma_get_cm_event: Bad file descriptor\s*\Z")


def status_of(process, seconds):
    """A program's exit status. rping destroys its channel as soon as its other thread has
    acknowledged the last event; if that thread asks for the next one afterwards, it is told so, over
    any adapter, and ends the program with 255. That is after all pings, which the caller counts."""
    status = process.wait(seconds)
    if status == 255 and "rping" in process.title() and LATE_READER.search(process.output()):
        return 0
    return status


def pair(stage, server, client, seconds=20, status=0, server_ends=True, rest=False, at=None):
    """A server and its client (`at`: a stage for it). Nothing shows from outside when a server
    listens, and a client that comes too early is refused, at once, or ends without a word: then it
    comes again. `rest`: it
    mustn't come too early."""
    one = server_of(stage).start(*server)
    if rest:
        wait_at_rest(one)
    if at:  # where no daemon is, nobody even refuses
        require(poll_until(lambda: stage.status() is not None, 20 * SLOW), "no daemon")
    end = time.monotonic() + seconds * SLOW
    while True:
        two = (at or client_of(stage)).start(*client)
        got = status_of(two, max(0.1, end - time.monotonic()))
        text = two.output()
        early = got != status and one.running() and (not text or REFUSED.search(text))
        if not early or time.monotonic() > end:
            break
    text = two.output()
    if got != status:
        raise Failure(f"{two.title()} ended with {got}, not {status}\n{tail(text)}\n  its server "
                      f"printed\n{tail(one.output(), 8)}")
    if server_ends:
        got = status_of(one, max(0.1, end - time.monotonic()))
        require(got == 0, f"{one.title()} ended with {got}\n{tail(one.output())}")
    return one, text


# ---------------------------------------------------------------------------- connections

def require_pings(output, who, count):
    found = re.findall(rf"^{who}: rdma-ping-(\d+): (.*)$", output, re.MULTILINE)
    require([int(n) for n, _ in found] == list(range(count)),
            f"not all of {count} pings\n{tail(output)}")


def rping(stage, address, count=20):
    port = PORTS.take()
    one, text = pair(stage, ("rping", "-s", "-v", "-a", address, "-p", port, "-C", count),
                     ("rping", "-c", "-v", "-a", address, "-p", port, "-C", count))
    require_pings(text, "ping data", count)
    require_pings(one.output(), "server ping data", count)


def rping_persistent(stage):
    port = PORTS.take()
    server = ("rping", "-s", "-P", "-a", address(stage), "-p", port)
    client = ("rping", "-c", "-v", "-a", address(stage), "-p", port, "-C", 5)
    one, text = pair(stage, server, client, server_ends=False)
    require_pings(text, "ping data", 5)
    for _ in range(5):
        two = client_of(stage).start(*client)
        got = status_of(two, 20 * SLOW)
        require(got == 0, f"{two.title()} ended with {got}\n{tail(two.output())}")
        require_pings(two.output(), "ping data", 5)
    require(one.running(), f"the persistent server ended\n{tail(one.output())}")
    one.kill()
    one.wait(5)


def channel_ends(stage):
    """A channel is destroyed while a thread waits on it, or just before one does."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "cm_channel_end"), 1000 if FULL else 200,
              seconds=60)


def groups_and_qps(stage):
    """The QP of an id that has joined a group is destroyed and made anew."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "cm_groups"), address(stage), seconds=30)


def reasons_said(stage):
    """What is refused, or fails, is explained at the level that users see."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "says"), address(stage), seconds=120)


def qps_end_meanwhile(stage):
    """QPs are destroyed while another thread handles their ids' events."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "cm_destroy_qp"), address(stage),
              2000 if FULL else 400, seconds=120)


def gids(stage):
    """Addresses of the family AF_IB on Ethernet."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "cm_gids"), address(stage), seconds=30)


def options_and_srqs(stage):
    """Options of identifiers, their SRQs and CQs, right and wrong."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "cm_options"), address(stage), seconds=30)


def simple(stage, program, *options, server_options=None, needle=None):
    port = PORTS.take()
    more = options if server_options is None else server_options
    one, text = pair(stage, (program, "-p", port, *more),
                     (program, "-s", address(stage), "-p", port, *options), seconds=40,
                     rest=True)
    for output in (text, one.output()):
        require(needle is None or needle in output, f"no `{needle}`\n{tail(output)}")


def udaddy(stage, *options):
    """Datagrams. Its port can't be chosen, but each stage has a connection manager of its own."""
    one, text = pair(stage, ("udaddy", *options), ("udaddy", "-s", address(stage), *options),
                     rest=True)
    for output in (text, one.output()):
        require("return status 0" in output, f"no good end\n{tail(output)}")


def server_client(stage):
    port = PORTS.take()
    _, text = pair(stage, ("rdma_server", "-p", port),
                   ("rdma_client", "-s", address(stage), "-p", port))
    require("rdma_client: end 0" in text, f"it didn't say that it succeeded\n{tail(text)}")


def xserver_xclient(stage, kind):
    """One program over RC and over XRC: with XRC a connection has two ids at each end."""
    port = PORTS.take()
    _, text = pair(stage, ("rdma_xserver", "-p", port, "-c", kind),
                   ("rdma_xclient", "-s", address(stage), "-p", port, "-c", kind))
    require("rdma_xclient: end 0" in text, f"it didn't say that it succeeded\n{tail(text)}")


def cmtime_options(stage, count):
    """The server's and the client's, for so many connections. Later releases connect without QPs,
    too, by made-up numbers. On one host both ends' must differ: a number that a device has twice is
    taken for a connection that was left over. Their server waits for as many connections as it was
    told of, or for 100, and their client waits until the server has them all."""
    numbers = client_of(stage).start("cmtime", "-?", plain=True)
    numbers.wait(20 * SLOW)
    base = ("-q", 500000) if "-q base_qpn" in numbers.output() else ()
    return ("-c", count), ("-c", count, *base)


def cmtime(stage, count):
    """Many connections at once, and their end."""
    port = PORTS.take()
    own, other = cmtime_options(stage, count)
    one, text = pair(stage, ("cmtime", "-b", address(stage), "-p", port, *own),
                     ("cmtime", "-s", address(stage), "-p", port, *other), seconds=60,
                     server_ends=False)
    for step in ("resolve addr", "connect", "disconnect"):
        require(re.search(rf"^(?:cm )?{step} *:? +[\d.]+", text, re.MULTILINE),
                f"no figures of `{step}`\n{tail(text)}")
    one.kill()
    one.wait(5)


def nobody(stage):
    """Refused, not after a time-out: rping says which of the two it was."""
    process = stage.start("rping", "-c", "-a", "127.0.0.1", "-p", PORTS.take(), "-C", 1)
    status, text = process.wait(20 * SLOW), process.output()
    require(status != 0 and "REJECTED" in text,
            f"ended with {status}, and not as refused\n{tail(text)}")


def taken(stage):
    """A port that somebody has: EADDRINUSE."""
    port = PORTS.take()
    server = ("rping", "-s", "-P", "-a", "127.0.0.1", "-p", port)
    one, _ = pair(stage, server, ("rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 1),
                  server_ends=False)
    second = stage.start(*server)
    status = second.wait(20 * SLOW)
    text = second.output()
    require(status != 0 and "Address already in use" in text,
            f"the second server ended with {status}\n{tail(text)}")
    one.kill()
    one.wait(5)


def no_device(stage):
    """An address that isn't this host's."""
    text = stage.start("rping", "-s", "-a", "198.51.100.1", "-p", PORTS.take())
    status, output = text.wait(20 * SLOW), text.output()
    require(status != 0 and re.search("assign requested address|No such device", output),
            f"ended with {status}\n{tail(output)}")


def host_address(family):
    """An address of an interface that is up, not loopback's; None if there is none."""
    option = "-4" if family == socket.AF_INET else "-6"
    done = subprocess.run(["ip", "-o", option, "addr", "show", "up", "scope", "global"],
                          capture_output=True, text=True, check=False)
    found = re.search(r"inet6? ([0-9a-f.:]+)/", done.stdout)
    return found[1] if found else None


def loopback_bind(stage):
    """As in Linux: no device until it is used, so that libfabric takes the interfaces' addresses."""
    for address in ("127.0.0.1", "127.1.2.3", "::1"):
        text = stage.run(PROBE, "bind", address)
        require(text.split() == ["bound", "0", "-"], f"{address}: {text}")
    port = PORTS.take()
    server = stage.start(PROBE, "listen", "127.0.0.1", port)
    require(poll_until(lambda: f"listening {port} -" in server.output().splitlines(), 20 * SLOW),
            f"doesn't listen\n{tail(server.output())}")
    client = stage.start(PROBE, "connect", "127.0.0.1", "127.0.0.1", port)
    require(poll_until(lambda: "ESTABLISHED 0 verbena0" in client.output(), 20 * SLOW),
            f"no connection\n{tail(client.output())}\n{tail(server.output())}")
    for process in (client, server):
        process.kill()
        process.wait(5)


def connections(suite, stage):
    suite.case("a bind to loopback", loopback_bind, stage)
    suite.case("rping over IPv4", rping, stage, "127.0.0.1")
    suite.case("rping over IPv6", rping, stage, "::1")
    for family in (socket.AF_INET, socket.AF_INET6):
        address = host_address(family)
        if address:
            suite.case(f"rping to this host's {address}", rping, stage, address)
    suite.case("rping to a persistent server", rping_persistent, stage)
    suite.case("ucmatose", simple, stage, "ucmatose", needle="return status 0")
    suite.case("ucmatose, 50 connections with messages", simple, stage, "ucmatose", "-c", 50, "-C",
               20, "-S", 4096, needle="return status 0")
    suite.case("ucmatose, migrated ids", simple, stage, "ucmatose", "-c", 10, "-m",
               needle="return status 0")
    suite.case("ucmatose in the port space IB", simple, stage, "ucmatose", "-P", "ib",
               needle="return status 0")
    suite.case("ucmatose, ACK timeout and type of service", simple, stage, "ucmatose", "-a", 14, "-t",
               32, needle="return status 0")
    suite.case("udaddy", udaddy, stage)
    suite.case("udaddy, 20 services", udaddy, stage, "-c", 20)
    suite.case("rdma_server, rdma_client", server_client, stage)
    for kind in "rx":
        suite.case(f"rdma_xserver, rdma_xclient -c {kind}", xserver_xclient, stage, kind)
    suite.case("cmtime", cmtime, stage, 500 if FULL else 100)
    suite.case("a connect to nobody", nobody, stage)
    suite.case("a port that is taken", taken, stage)
    suite.case("a channel that ends while it is used", channel_ends, stage)
    suite.case("a group that outlives a QP", groups_and_qps, stage)
    suite.case("reasons of refusals and failures", reasons_said, stage)
    suite.case("QPs that end while their events are handled", qps_end_meanwhile, stage)
    suite.case("GIDs instead of IP addresses", gids, stage)
    suite.case("options and SRQs", options_and_srqs, stage)
    suite.case("an address of nobody's", no_device, stage)


# ---------------------------------------------------------------------------- perftest

def perftest(stage, program, *options):
    """A client of perftest's that is refused hangs or crashes, so it must not come too early: its
    server has to be seen at rest, waiting for an event, and not for a reply of the daemon's."""
    port = PORTS.take()
    words = (program, "-F", "-p", port, *options)
    one = server_of(stage).start(*words)
    wait_at_rest(one)
    stage.finish_pair(one, client_of(stage).start(*words, address(stage)), seconds=30)


def perftests(suite, stage):
    for program in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw",
                    "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat"):
        suite.case(f"{program} -R", perftest, stage, program, "-R", "-n", 200)
    suite.case("ib_send_bw -R over 16 QPs", perftest, stage, "ib_send_bw", "-R", "-q", 16, "-n", 200)
    suite.case("ib_send_lat -R -c UD", perftest, stage, "ib_send_lat", "-R", "-c", "UD", "-n", 200)
    suite.case("ib_send_bw -z", perftest, stage, "ib_send_bw", "-z", "-R", "-n", 200)


# ---------------------------------------------------------------------------- rsockets

def rstream(stage, *options, program="rstream"):
    port = PORTS.take()
    one, text = pair(stage, (program, "-p", port, *options),
                     (program, "-s", address(stage), "-p", port, *options), seconds=60)
    for output in (text, one.output()):
        rows = re.findall(r"^\S+ +\S+ +\d+k? +\d+k? +\S+ +([\d.]+)s", output, re.MULTILINE)
        require(rows, f"no result row\n{tail(output)}")


def rcopy(stage, size):
    port = PORTS.take()
    source = os.path.join(client_of(stage).directory, "source")
    target = os.path.join(server_of(stage).directory, "target")
    digest = hashlib.sha256()
    with open(source, "wb") as file:
        for _ in range(size // MIB):
            part = os.urandom(MIB)
            digest.update(part)
            file.write(part)
    one, _ = pair(stage, ("rcopy", "-p", port),
                  ("rcopy", source, f"{address(stage)}:{target}", "-p", port), seconds=60,
                  server_ends=False)
    copied = hashlib.sha256()
    with open(target, "rb") as file:
        while part := file.read(MIB):
            copied.update(part)
    os.unlink(source)
    os.unlink(target)
    require(copied.digest() == digest.digest(), "the copy isn't the same")
    one.kill()
    one.wait(5)


def rsockets(suite, stage):
    for mode in ("b", "n", "a"):
        for size in (64, 4096, 65536, MIB):
            suite.case(f"rstream -T {mode}, {size} B, verified", rstream, stage, "-T", mode, "-T",
                       "v", "-S", size, "-C", 10, "-I", 10)
    suite.case("rstream, small buffers", rstream, stage, "-B", 8192, "-T", "v", "-S", 65536, "-C",
               10, "-I", 10)
    suite.case("rstream over rdma_getaddrinfo()", rstream, stage, "-T", "r", "-S", 64, "-C", 10,
               "-I", 10)
    if FULL:
        suite.case("rstream, all sizes", rstream, stage)
    suite.case("riostream, verified", rstream, stage, "-T", "v", "-S", 4096, "-C", 10, "-I", 10,
               program="riostream")
    suite.case("rcopy", rcopy, stage, (1024 if FULL else 64) * MIB)


# ---------------------------------------------------------------------------- qperf

QPERF = ("rc_lat", "rc_rdma_read_bw", "ver_rc_compare_swap", "ver_rc_fetch_add")
# It polls its memory until SIGALRM. The thread sanitizer keeps signals back until the program makes
# a call, and that loop makes none.
if SANITIZE != "thread":
    QPERF += ("rc_rdma_write_poll_lat",)
QPERF_MORE = ("rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_write_bw", "rc_rdma_write_lat",
              "rc_compare_swap_mr", "rc_fetch_add_mr")
# They set up their QPs by LIDs, without a global route: no RoCE device's kernel accepts that.
QPERF_REFUSED = ("rc_bw", "rc_rdma_write_lat", "uc_bw", "uc_lat", "uc_rdma_write_bw", "ud_bw",
                 "ud_lat", "ver_rc_fetch_add")


def qperf_server(stage):
    """A server, and the words of its clients."""
    port = PORTS.take()
    server = server_of(stage).start("qperf", "-lp", port)
    require(poll_until(lambda: not server.running() or port_listened(port, server.pid), 20) and
            server.running(), f"no server\n{tail(server.output())}")
    return server, ("qperf", "-lp", port, "-t", 1, "-to", 20 * SLOW)


def qperf(stage, *names):
    """Each measures, and what verifies finds nothing wrong. A server tells its port before it listens
    there, so that a client may be refused: then it comes again."""
    server, words = qperf_server(stage)
    for name in names:
        end = time.monotonic() + LEAST * SLOW
        while True:
            client = client_of(stage).start(*words, "-cm", 1, address(stage), name)
            status, text = client.wait(40 * SLOW), client.output()
            if "Event rejected" not in text or time.monotonic() > end:
                break
        require(status == 0 and re.search(r"(?:bw|latency|msg_rate) += +[\d.]+", text),
                f"{name}: no figure\n{tail(text)}\n{tail(server.output())}")
    server.kill()
    server.wait(5)


def qperf_refused(stage, *names):
    """Without the connection manager: as by the kernel, and the server goes on."""
    server, words = qperf_server(stage)
    for name in names:
        client = client_of(stage).start(*words, address(stage), name)
        status, text = client.wait(20 * SLOW), client.output()
        require(status != 0 and "Invalid argument" in text + server.output(),
                f"{name} ended with {status}\n{tail(text)}")
    server.kill()
    server.wait(5)


def qperfs(suite, stage):
    for name in QPERF + (QPERF_MORE if FULL else ()):
        suite.case(f"qperf -cm 1 {name}", qperf, stage, name)
    suite.case("qperf without the connection manager", qperf_refused, stage, *QPERF_REFUSED)


# ---------------------------------------------------------------------------- at random

def churn(stage, count, rounds, kills):
    """Processes that connect to each other at random, of which some are killed: the others see only
    events that may be, all of their connections end, and the daemon keeps nothing."""
    number = random.randrange(1, 100000)
    port = PORTS.take()
    print(f"      seed {number}", flush=True)
    chance = random.Random(number)
    program = os.path.join(BUILD, "tests", "e2e", "cm_churn")
    processes = [stage.start(program, number, port, count, index, rounds, plain=True)
                 for index in range(count)]
    victims = set(chance.sample(range(count), kills))
    for index in sorted(victims):
        time.sleep(chance.random() * 0.1)
        processes[index].kill()
    total = 0
    for index, process in enumerate(processes):
        status, text = process.wait(120 * SLOW), process.output()
        if index in victims:
            continue
        require(status == 0, f"process {index} ended with {status}\n{tail(text)}")
        total += int(re.search(r"established (\d+)", text)[1])
    require(total > count * rounds // 20, f"only {total} connections were established")
    stage.expect_no_clients()


def daemon_dies(stage):
    """Ids are lost with their daemon: whoever waits for an event is told, and what comes next works."""
    port = PORTS.take()
    one, _ = pair(stage, ("rping", "-s", "-P", "-a", "127.0.0.1", "-p", port),
                  ("rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 1), server_ends=False)
    for pid in stage.daemons():
        os.kill(pid, signal.SIGKILL)
    status, text = one.wait(20 * SLOW), one.output()
    require(status != 0 and "No such device" in text, f"it ended with {status}\n{tail(text)}")
    rping(stage, "127.0.0.1", 3)


def churns(suite, stage):
    suite.case("the daemon is killed", daemon_dies, stage)
    suite.case("connections at random, 50 processes, 15 are killed", churn, stage, 50,
               500 if FULL else 100, 15)


# ---------------------------------------------------------------------------- pyverbs

def interface():
    """An interface with a global IPv4 address, or None."""
    done = subprocess.run(["ip", "-o", "-4", "addr", "show", "up", "scope", "global"],
                          capture_output=True, text=True, check=False)
    found = re.search(r"^\d+: (\S+)", done.stdout)
    return found[1] if found else None


def gid_index(stage):
    """The index of a GID that is an IPv4 address of the interface."""
    text = stage.run("ibv_devinfo", "-v")
    found = re.search(r"GID\[ *(\d+)\]:\s+::ffff:(?!127\.)", text)
    require(found, f"no such GID\n{tail(text)}")
    return found[1]


def pyverbs_suite(stage):
    """Debian's tests of librdmacm."""
    directory = os.path.join(stage.directory, "suite")
    pyverbs.unpack(directory)
    process = stage.start(
        # Warnings would stand between a test's name and its outcome.
        "/usr/bin/python3", "-W", "ignore", os.path.join(directory, "run_tests.py"), "-v", "--dev", "verbena0",
        "--port", 1, "--gid", gid_index(stage), "-k", "*.test_rdmacm.*", cwd=directory)
    process.wait(120 * SLOW)
    text = process.output()
    found = {name.rsplit(".", 1)[1]: outcome for name, outcome in pyverbs.results_of(text).items()}
    require(len(found) >= 10, f"only {len(found)} tests\n{tail(text)}")
    for name, outcome in found.items():
        require(outcome == "ok", f"{name}: {outcome}\n{tail(text, 60)}")


def pyverbs_tests(suite, stage):
    """In a network of its own from here on: what goes to a group leaves the host."""
    if not os.path.isdir(pyverbs.SOURCE) or \
            stage.start("test", "-d", "/sys/class/infiniband").wait(20 * SLOW):
        print("      pyverbs is left out: it needs the package rdma-core, and a mount namespace for "
              "/sys/class/infiniband")
        return
    own_network()
    own = Stage()
    suite.case("pyverbs test_rdmacm", pyverbs_suite, own)
    suite.stage_closed(own)


# ---------------------------------------------------------------------------- preloaded

PRELOAD = os.path.join(BUILD, "lib", "rsocket", "librspreload.so")

CLIENT = """
import select, socket, sys
s = socket.socket()
s.setblocking(False)
try:
    s.connect(("127.0.0.1", int(sys.argv[1])))
except BlockingIOError:
    pass
assert select.select([], [s], [], 20)[1]
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.setblocking(True)
s.sendall(b"GET /source HTTP/1.0\\r\\n\\r\\n")
data = b""
while part := s.recv(65536):
    data += part
s.close()
assert data.split(b"\\r\\n\\r\\n", 1)[1] == open(sys.argv[2], "rb").read()
"""


def preloaded(stage, *command, **options):
    """With the sanitizer's run time, where there is one. The address sanitizer must come first.
    The thread sanitizer must come after librspreload: it looks at no mutex that is taken within
    one of its own wrappers of calls that block."""
    names = [PRELOAD, SANITIZER_RUNTIME] if SANITIZE == "thread" else [SANITIZER_RUNTIME, PRELOAD]
    names = ":".join(filter(None, names + [os.environ.get("LD_PRELOAD")]))
    return stage.start("env", f"LD_PRELOAD={names}", *command, preload=False, **options)


def web(stage):
    """A web server and two clients, none of which knows what it runs on."""
    port = PORTS.take()
    source = os.path.join(stage.directory, "source")
    with open(source, "wb") as file:
        file.write(os.urandom(5 * MIB))
    server = preloaded(stage, "python3", "-m", "http.server", port, "--bind", "127.0.0.1",
                       "--directory", stage.directory)
    end = time.monotonic() + LEAST * SLOW
    while True:
        client = preloaded(stage, "python3", "-c", CLIENT, port, source)
        status = client.wait(20 * SLOW)
        if not status or time.monotonic() > end or not server.running():
            break
    require(not status, f"the client ended with {status}\n{tail(client.output())}\n"
                        f"{tail(server.output())}")
    require(not port_listened(port), "the server listens on a TCP port: it isn't preloaded")
    # Debian's curl with the sanitizer's run time hangs in setlocale(), also without us.
    if shutil.which("curl") and not SANITIZE:
        target = os.path.join(stage.directory, "target")
        preloaded(stage, "curl", "-s", "-S", "-o", target,
                  f"http://127.0.0.1:{port}/source").expect(20 * SLOW)
        with open(target, "rb") as got, open(source, "rb") as sent:
            require(got.read() == sent.read(), "curl got something else")
    server.kill()
    server.wait(5)


def ordinary(stage):
    """Where nobody answers an rsocket, there is still TCP."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        client = preloaded(stage, "python3", "-c", "import socket, sys\n"
                           "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
                           "s.sendall(b'hello')\n", port)
        accepted, _ = listener.accept()
        with accepted:
            require(accepted.recv(5) == b"hello", "the server got something else")
    client.expect(20 * SLOW)


def preloads(suite, stage):
    suite.case("a web server and clients by LD_PRELOAD", web, stage)
    suite.case("an ordinary server, a preloaded client", ordinary, stage)


# ---------------------------------------------------------------------------- what isn't there

# ---------------------------------------------------------------------------- other libibverbs

DEBIANS_VERBS = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
PRIVATE = b"VERBENA_PRIVATE_1"


def beside(stage, verbs):
    """What stands before a command that has our librdmacm.so.1 beside that libibverbs.so.1."""
    directory = os.path.join(stage.directory, f"libraries{stage.serial()}")
    os.mkdir(directory)
    shutil.copy(os.path.join(BUILD, "lib", "librdmacm.so.1"), directory)
    with open(os.path.join(directory, "libibverbs.so.1"), "wb") as file:
        file.write(verbs)
    return ("env", f"LD_LIBRARY_PATH={directory}", "LD_DEBUG=bindings",
            f"VERBENA_DAEMON={os.path.join(BUILD, 'bin', 'verbenad')}")


def our_verbs():
    with open(os.path.join(BUILD, "lib", "libibverbs.so.1"), "rb") as file:
        return file.read()


def beside_verbs(stage, verbs, binds):
    """Connections work; `binds`: with our private symbol, as the dynamic linker reports."""
    over = beside(stage, verbs)
    port = PORTS.take()
    # They leave it to the library to make their CQs.
    server, _ = pair(stage, (*over, "rdma_server", "-p", port),
                     (*over, "rdma_client", "-s", "127.0.0.1", "-p", port))
    bound = re.search(r"librdmacm\.so\S* \[0\] to \S*libibverbs\S* \[0\]: normal symbol "
                      r"`verbena_create_cq_for_qp' \[VERBENA_PRIVATE_1\]", server.output())
    require(bool(bound) == binds, f"the private symbol is {'not ' if binds else ''}bound")


def without_private(stage):
    """A libibverbs with the same devices and without what is only ours."""
    verbs = our_verbs()
    require(PRIVATE in verbs, f"no {PRIVATE} in libibverbs.so.1")
    beside_verbs(stage, verbs.replace(PRIVATE, PRIVATE[:-1] + b"0"), False)


def debians(stage):
    """rdma-core's own libibverbs, which has none of our devices: a clean error."""
    if not os.path.exists(DEBIANS_VERBS):
        return
    with open(DEBIANS_VERBS, "rb") as file:
        over = beside(stage, file.read())
    # The client's identifier gets a device when it is resolved; a server's has none here.
    process = stage.start(*over, "rping", "-c", "-a", "127.0.0.1", "-p", PORTS.take())
    status, output = process.wait(20 * SLOW), process.output()
    require(status > 0 and f"error -{errno.ENODEV}" in output, f"ended with {status}\n{tail(output)}")


def foreign(suite, stage):
    suite.case("our libibverbs", beside_verbs, stage, our_verbs(), True)
    suite.case("a libibverbs without our private symbols", without_private, stage)
    suite.case("rdma-core's libibverbs", debians, stage)


def refused(stage, *command, needle):
    process = stage.start(*command)
    status = process.wait(20 * SLOW)
    text = process.output()
    require(status != 0 and needle in text, f"ended with {status}\n{tail(text)}")


def refusals(suite, stage):
    suite.case("ucmatose: no addresses of InfiniBand", refused, stage, "ucmatose", "-P", "ib", "-f",
               "gid", "-b", "::ffff:127.0.0.1", needle="No such device")


GROUPS = {"connections": connections, "perftest": perftests, "rsockets": rsockets, "qperf": qperfs,
          "refusals": refusals, "churn": churns, "preload": preloads,
          "pyverbs": pyverbs_tests, "foreign": foreign}


def into_namespace(words):
    """Goes on in a network namespace that has nothing but loopback."""
    if os.geteuid():
        print("skipped: a network namespace of one's own needs root")
        sys.exit(SKIPPED)
    os.environ["VERBENA_CARRIER"] = "wire"
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
                          sys.executable, os.path.abspath(__file__), *words])


def main():
    need_programs("rping", "ucmatose", "rstream", "ib_send_bw", "qperf")
    words = sys.argv[1:]
    if "--wire" in words:
        into_namespace([word for word in words if word != "--wire"])
    groups, cases = chosen(GROUPS, words=words)
    suite = Suite("rdmacm", only=cases)
    stage = Stage()
    try:
        for name in groups:
            GROUPS[name](suite, stage)
    finally:
        suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    main()
