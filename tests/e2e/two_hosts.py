#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's programs between two hosts: two network namespaces with a cable, over RoCEv2.

usage: two_hosts.py [GROUP...] [WORD...]
Runs the groups (see GROUPS; without any: all), and of their cases those whose name has a WORD.
VERBENA_FULL=1 takes the whole matrix of sizes, MTUs, options and faults.

The groups `pingpong` and `perftest` run over a veth pair that loses nothing; `faults` and `exact`
(which runs tests of faults.c) over tests/net/relay, which loses, holds back, doubles and damages
RoCEv2 packets; `trouble` takes the cable out, kills a peer, and has no route; `slow` has an interface
slower than the programs.
"""
import os
import re
import signal
import subprocess
import sys
import time

import perftest
from lib import (BUILD, FULL, PORTS, SLOW, Failure, Suite, chosen, need_programs, poll_until,
                 port_listened, require, tail)
from network import TwoHosts
from pingpong import KIB, MIB, exchange, left_alone, words

RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR, as perftest prints it


# Without faults ---------------------------------------------------------------------------------

def pingpong(suite):
    """Every transport, polling and with events, data checked; sizes, path MTUs, kinds of GIDs."""
    hosts = TwoHosts()
    some = [1, 4096, MIB] if not FULL else [1, 2, 255, 256, 257, KIB, 4096, 4097, 64 * KIB, MIB]
    for transport in ("rc", "uc", "ud", "srq"):
        for mode in ((), ("-e",)):
            for size in some if transport != "ud" else [1, 4096]:
                suite.case(f"{transport} {size} B {' '.join(mode) or 'polling'}", exchange, hosts,
                           transport, size, "-c", *mode)
    for mtu in (256, 512, 1024, 2048) if FULL else (256, 1024):
        for transport in ("rc", "uc", "srq"):
            suite.case(f"{transport} path MTU {mtu}", exchange, hosts, transport, 10001, "-c",
                       "-m", mtu)
    for family in ("ipv6", "link"):
        hosts.use(family)
        for transport in ("rc", "uc", "ud", "srq") if FULL else ("rc", "ud"):
            suite.case(f"{transport} with {family} GIDs", exchange, hosts, transport, 4096, "-c")
    suite.stage_closed(hosts)


def matrix():
    """perftest's runs: program, size (None: the program's own), iterations, options."""
    brief = [
        ("ib_send_bw", 64 * KIB, 500), ("ib_send_bw", 4096, 1000, "-q", 16),
        ("ib_send_bw", 4096, 500, "-b", "-e"), ("ib_send_bw", 64, 1000, "--use-srq", "-q", 4),
        ("ib_send_bw", 4096, 500, "-r", 16, "-t", 8), ("ib_send_bw", 64, 500, "-I", 64),
        ("ib_send_bw", 4096, 64, "-c", "UC", "-r", 64),
        ("ib_send_bw", 2048, 100, "-c", "UD", "-r", 100), ("ib_send_lat", 2, 500),
        ("ib_send_lat", 4096, 200, "-e"), ("ib_send_lat", 2, 200, "-c", "UD"),
        ("ib_send_lat", 2, 200, "-c", "UC"), ("ib_write_lat", 2, 500),
        ("ib_write_bw", MIB, 100, "-b"), ("ib_write_bw", 4096, 1000, "-q", 16),
        ("ib_write_bw", 4096, 200, "-c", "UC"), ("ib_read_bw", 64 * KIB, 500, "-q", 4),
        ("ib_read_bw", 4096, 500, "-e"), ("ib_read_lat", 2, 500), ("ib_atomic_lat", None, 500),
        ("ib_atomic_bw", None, 500, "-q", 4),
    ]
    if not FULL:
        return brief
    more = []
    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"):
        for options in (["-b"], ["-q", 16], ["-b", "-q", 16], ["-t", 1], ["-t", 1024],
                        ["-m", 256], ["-m", 1024], ["--use_old_post_send"]):
            size = None if program == "ib_atomic_bw" else 64 * KIB
            more.append((program, size, 1000, *options))
    for program in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
        more += [(program, size, 500) for size in (1, 64, 1024, 4097, 64 * KIB, MIB)]
    more += [("ib_send_lat", 64, 500, "-I", 64), ("ib_write_lat", 64, 500, "-I", 64),
             ("ib_send_lat", 2, 500, "--use-srq"), ("ib_send_lat", 2, 500, "-r", 16),
             ("ib_atomic_lat", None, 500, "-e"), ("ib_atomic_bw", None, 500, "-A", "CMP_AND_SWAP"),
             ("ib_read_bw", 64 * KIB, 500, "-o", 1), ("ib_send_bw", 8 * MIB, 50)]
    return brief + more


def measure(hosts, program, size, count, *options, **more):
    """One run of perftest's matrix."""
    sized = [] if size is None else ["-s", size]
    return perftest.measure(hosts, program, "-n", count, *sized, *options, sizes=[size or 8],
                            **more)


def title(program, size, count, *options):
    """The name of such a case."""
    del count
    return " ".join([program] + ([f"{size} B"] if size else []) + [str(word) for word in options])


def perftests(suite):
    """Every verb and transport, and perftest's options, over both kinds of addresses."""
    hosts = TwoHosts()
    for run in matrix():
        suite.case(title(*run), measure, hosts, *run)
    suite.case("clients from here and from there at once", both_sides, hosts)
    hosts.use("ipv6")
    for run in (("ib_send_bw", 64 * KIB, 500), ("ib_read_lat", 2, 200),
                ("ib_send_bw", 2048, 100, "-c", "UD", "-r", 100)):
        suite.case(title(*run) + " with ipv6 GIDs", measure, hosts, *run)
    suite.stage_closed(hosts)


def both_sides(hosts):
    """Servers on one host, one with a client of the other host, one with one of its own: at the
    same time, and in one process connection each."""
    began = []
    for stage in (hosts.server, hosts.client):
        port = PORTS.take()
        one = ["ib_send_bw", "-F", "-p", port, "-s", 4096, "-n", 5000, "-x", hosts.gid]
        began.append(hosts.server.start_pair(one, one + [hosts.host], port, at=stage))
    for one, two in began:
        for text in hosts.finish_pair(one, two, seconds=60):
            require(perftest.rows(text), f"no result row\n{tail(text)}")


# Faults -----------------------------------------------------------------------------------------

# name, the relay's settings, counters that must have moved
FAULTS = [
    ("loss 0.1%", ["loss 0.1%"], ["lost"]),
    ("loss 1%", ["loss 1%"], ["lost"]),
    ("loss 5%", ["loss 5%"], ["lost"]),
    ("all lost for 3 ms at times", ["burst-for 3ms", "burst 0.1%"], ["lost"]),
    ("delay 10 ms", ["delay 10ms"], []),
    ("jitter 2 ms", ["delay 1ms", "jitter 2ms"], []),
    ("reordering", ["reorder 2%", "reorder-by 300us"], ["reordered"]),
    ("duplication", ["duplicate 5%"], ["duplicated"]),
    ("corruption 1%", ["corrupt 1%"], ["corrupted"]),
    ("100 MB/s, queue of 1 MiB", ["rate 100M", "queue 1M"], []),
    ("loss 1%, delay, reordering, duplication", ["loss 1%", "delay 200us", "reorder 1%",
                                                 "reorder-by 300us", "duplicate 1%"],
     ["lost", "reordered", "duplicated"]),
]
NO_FAULTS = ["loss 0", "burst 0", "burst-for 0", "delay 0", "jitter 0", "reorder 0",
             "duplicate 0", "corrupt 0", "rate 0", "queue 0"]


def faults(suite):
    """RC is exact over whatever a network does; each packet is hit apart (no offloads), then whole
    super-packets."""
    for cable, options in (("packets", ["--no-offloads"]), ("super-packets", [])):
        hosts = TwoHosts(*options, relay=True)
        for name, commands, moved in FAULTS:
            for run in fault_runs(name, cable):
                suite.case(f"{name}, {cable}: {run[0]}", faulty, hosts, commands, moved, *run)
        suite.stage_closed(hosts)
    if not suite.only:
        suite.case("the faults happened", faults_happened)


def fault_runs(name, cable):
    """Which programs run over a fault: title, function, arguments."""
    slow = 0.2 if "delay 10" in name or "5%" in name else 1
    count = int((2000 if FULL else 400) * slow)
    runs = [("rc data checked", exchange, "rc", 16 * KIB, "-c")]
    telling = "loss" in name or "reordering" in name or "MB/s" in name
    if FULL or (cable == "packets" and telling):
        runs += [("send", measure, "ib_send_bw", 64 * KIB, count, "-q", 2),
                 ("read", measure, "ib_read_bw", 64 * KIB, count),
                 ("atomics", measure, "ib_atomic_bw", None, count)]
    if FULL:
        runs += [("write", measure, "ib_write_bw", 64 * KIB, count, "-b"),
                 ("send lists", measure, "ib_send_bw", 4096, 10 * count, "-q", 16, "-b"),
                 ("events", measure, "ib_send_bw", 4096, count, "-e"),
                 ("small", measure, "ib_send_lat", 64, count),
                 ("srq data checked", exchange, "srq", 16 * KIB, "-c", "-e")]
    return runs


def lossy_exchange(hosts, *arguments, **options):
    """exchange() over a network that may lose the last acknowledgement."""
    try:
        exchange(hosts, *arguments, **options)
    except Failure as failure:
        if not left_alone(failure):
            raise


def without_checksums(hosts):
    """Senders of RoCEv2 may leave the UDP checksum out, over IPv6 too; kernel Soft-RoCE does."""
    for family in ("ipv4", "ipv6"):
        hosts.use(family)
        hosts.relay.tell("bare 100%")
        before = hosts.relay.happened("bared")
        for transport in ("rc", "ud"):
            exchange(hosts, transport, 4096, "-c")
        hosts.relay.tell("bare 0")
        bared = hosts.relay.happened("bared") - before
        require(bared > 1000, f"only {bared} packets went without a checksum")
    hosts.use("ipv4")


def faulty(hosts, commands, moved, what, function, *arguments):
    """A run while the cable has faults; afterwards it has none."""
    del what
    before = {name: hosts.relay.happened(name) for name in moved}
    hosts.relay.tell(*commands)
    try:
        if function is exchange:
            lossy_exchange(hosts, *arguments, iterations=300 if FULL else 100)
        else:
            function(hosts, *arguments, seconds=120 if FULL else 60)
    finally:
        hosts.relay.tell(*NO_FAULTS)
    HAPPENED.update((name, HAPPENED.get(name, 0) + hosts.relay.happened(name) - before[name])
                    for name in moved)


HAPPENED = {}  # by all runs: a single short one may miss a rare fault


def faults_happened():
    """The cable did what it was told."""
    for name in ("lost", "reordered", "duplicated", "corrupted"):
        require(HAPPENED.get(name, 0) > 10, f"frames {name}: {HAPPENED.get(name, 0)}")


# What must hold whatever the network does to RC: tests of the rig, with all data checked. Not those
# in which a QP is refused something: when that NAK is lost, the QP that sent it is in error and
# silent, and its peer's oldest request ends with the retry error.
EXACT = ["send_rc", "write_rc", "read_rc", "pieces", "inline_data", "unsignaled", "fence", "order",
         "last_byte", "atomics", "atomics_mixed", "no_blocking",
         "rnr_in_time", "sqd_drains", "reads_in_flight", "srq_shared", "threads", "xrc_messages",
         "xrc_onesided", "xrc_atomics", "xrc_atomic_write", "xrc_flush", "xrc_order_of_srqs"]


def rig(hosts, commands, names):
    """Tests of tests/e2e/faults.c, each end on its own host, while the cable has faults."""
    ends = ",".join(f"/proc/{host.holder.pid}/ns/net,{host.runtime}" for host in hosts.hosts)
    hosts.relay.tell(*commands)
    try:
        hosts.server.run(os.path.join(BUILD, "tests", "e2e", "faults"), "-c", "wire", *names,
                         plain=True, seconds=100, environment={"RIG_HOSTS": ends})
    finally:
        hosts.relay.tell(*NO_FAULTS)


def exact(suite):
    """Every request completes once, in order, with the right data and status, over each fault."""
    hosts = TwoHosts("--no-offloads", relay=True)
    for name, commands, _ in FAULTS:
        if FULL or "," in name or "5%" in name or "corruption" in name:
            suite.case(f"{name}: the rig's tests", rig, hosts, commands, EXACT)
    suite.case("no UDP checksums", without_checksums, hosts)
    suite.stage_closed(hosts)


# Trouble ----------------------------------------------------------------------------------------

def started(hosts, *options, seconds=20):
    """A pair of ib_send_bw in traffic."""
    port = PORTS.take()
    one = ["ib_send_bw", "-F", "-p", port, "-s", 64 * KIB, "-x", hosts.gid, *options]
    pair = hosts.start_pair(one, one + [hosts.host], port, seconds)
    frames = hosts.relay.happened("roce")
    moving = poll_until(lambda: hosts.relay.happened("roce") > frames + 100, seconds)
    require(moving, f"no traffic\n{tail(pair[0].output())}\n{tail(pair[1].output())}")
    return pair


def marked(hosts):
    """A queue on the way marks packets (ECN): the receiver tells the sender, who slows down; nothing
    is lost or sent again. Packets whose traffic class doesn't allow marks have none."""
    hosts.relay.tell("mark 5%", "delay 100us")
    try:
        for tclass, happens in ((2, True), (8, False)):
            before = [host.status()["counters"]["wire"] for host in hosts.hosts]
            measure(hosts, "ib_send_bw", 64 * KIB, 400, f"--tclass={tclass}")
            after = [host.status()["counters"]["wire"] for host in hosts.hosts]
            (got, told, _), (_, _, heard) = (
                [now[name] - then[name] for name in ("congestion_marks", "cnps_out", "cnps_in")]
                for now, then in zip(after, before))
            require((got > 20 and 5 < told <= got and heard == told) if happens else
                    (got, told, heard) == (0, 0, 0),
                    f"traffic class {tclass}: {got} marked, {told} notifications sent, "
                    f"{heard} received")
    finally:
        hosts.relay.tell("mark 0", "delay 0")


def cable_out(hosts, way, seconds):
    """The cable is out in traffic, for less time than the QPs retry: it goes on afterwards."""
    pair = started(hosts, "-n", 20000 if FULL else 6000, "-u", 18, "-q", 2)
    off, on = way
    off()
    time.sleep(seconds)
    # What was under way when it went out proves nothing: only that it is not over yet.
    still = [process.running() for process in pair]
    on()
    require(all(still), "it had ended before the cable was back: take more iterations\n" +
            "\n".join(tail(process.output()) for process in pair))
    for text in hosts.finish_pair(*pair, seconds=60):
        require(perftest.rows(text), f"no result row\n{tail(text)}")


def cable_gone(hosts, way):
    """The cable is out for longer than the QPs retry: the sender's completion says so, and once the
    cable is back all of it can be used again."""
    # Timeout 10: 4 ms, of which the seven retries are over soon.
    server, client = started(hosts, "-n", 1000000, "-u", 10)
    off, on = way
    off()
    try:
        status = client.wait(20 * SLOW)
        text = client.output()
        require(status > 0, f"the client ended with {status}\n{tail(text)}")
        require(re.search(rf"status:? {RETRY_EXCEEDED}\b|Failed status {RETRY_EXCEEDED}", text),
                f"no retry error\n{tail(text)}")
    finally:
        on()
        # The server only receives: nothing tells it, as with an adapter; its program waits for TCP.
        server.kill(signal.SIGTERM)
        server.wait(5 * SLOW)
    exchange(hosts, "rc", 4096, "-c")


def peer_killed(hosts):
    """A peer that is killed: the other's requests end with the retry error, after its time."""
    server, client = started(hosts, "-n", 1000000, "-u", 10)
    server.kill()
    status = client.wait(20 * SLOW)
    text = client.output()
    require(status > 0, f"the client ended with {status}\n{tail(text)}")
    require(re.search(rf"status:? {RETRY_EXCEEDED}\b|Failed status {RETRY_EXCEEDED}", text),
            f"no retry error\n{tail(text)}")
    exchange(hosts, "rc", 4096, "-c")


def no_route(hosts):
    """A host without a route: an error or a retry error, no hang; nothing of it stays."""
    port = PORTS.take()
    one = words("rc", 4096, "-c", port=port, gid=hosts.gid, iterations=10)
    # The programs' own connection is over IPv4, the GIDs are IPv6: only they lose their route.
    server = hosts.server.start(*one)
    poll_until(lambda: port_listened(port, server.pid), 20)
    hosts.client.ip("route del fd09:9::/64 dev eth0")
    try:
        client = hosts.client.start(*one, hosts.host)
        status = client.wait(30 * SLOW)
        text = client.output()
        require(status > 0, f"the client ended with {status}\n{tail(text)}")
    finally:
        hosts.client.ip("route add fd09:9::/64 dev eth0")
        server.kill()
    exchange(hosts, "rc", 4096, "-c")


def slow_interface(hosts, transport, size, count):
    """The program posts faster than its interface sends: the UDP socket is full for longer than any
    patience, nobody is told of losses, and yet each message arrives (the server waits for all)."""
    with hosts.client.inside():
        # Other packets (the programs' own connection, ARP) have the same queue.
        shaped = subprocess.run(["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                                 "50mbit", "burst", "64k", "limit", "64m"], check=False,
                                capture_output=True, text=True)
    if shaped.returncode:
        print(f"# no interface can be slowed down here: {shaped.stderr.strip()}")
        return
    try:
        perftest.measure(hosts, "ib_send_bw", "-c", transport, "-s", size, "-n", count, "-r", count,
                         "-t", count, sizes=[size], seconds=30)
    finally:
        with hosts.client.inside():
            subprocess.run(["tc", "qdisc", "del", "dev", "eth0", "root"], check=False)


def ways(hosts):
    """How a cable goes out and in: name -> (out, in)."""
    relay = hosts.relay

    def link(state):
        return lambda: hosts.client.ip(f"link set eth0 {state}")
    return {"the interface is down": (link("down"), link("up")),
            "the carrier is off": (lambda: relay.tell("down"), lambda: relay.tell("up")),
            "all is lost silently": (lambda: relay.tell("silent"), lambda: relay.tell("heard"))}


def trouble(suite):
    """Cables that go out, peers that die, routes that are missing."""
    hosts = TwoHosts(relay=True)
    for name, way in ways(hosts).items():
        suite.case(f"{name} in traffic, for 1.5 s", cable_out, hosts, way, 1.5)
        suite.case(f"{name} for longer than the retries", cable_gone, hosts, way)
    suite.case("a long queue is told of", marked, hosts)
    suite.case("the peer is killed", peer_killed, hosts)
    hosts.use("ipv6")
    suite.case("no route", no_route, hosts)
    suite.stage_closed(hosts)


def slow(suite):
    """An interface that sends more slowly than programs post."""
    hosts = TwoHosts()
    for transport, size, count in (("UC", 64 * KIB, 150), ("UD", KIB, 4000), ("RC", 64 * KIB, 150)):
        suite.case(f"an interface slower than the program, {transport}", slow_interface, hosts,
                   transport, size, count)
    suite.stage_closed(hosts)


GROUPS = {"pingpong": pingpong, "perftest": perftests, "faults": faults, "exact": exact,
          "trouble": trouble, "slow": slow}


def main():
    """The groups that the command line names, or all."""
    need_programs("ib_send_bw", "ibv_rc_pingpong", "ip")
    groups, cases = chosen(GROUPS)
    suite = Suite("two hosts: " + " ".join(groups), only=cases)
    for group in groups:
        GROUPS[group](suite)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
