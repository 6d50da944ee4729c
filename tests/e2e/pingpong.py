#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's ibv_{rc,uc,ud,srq}_pingpong between two processes, and many pairs at once.

Every transport, polling and sleeping on events, with the programs' own check of the data (-c),
messages of 1 byte to 8 MiB. VERBENA_FULL=1 takes every power of two and more options.
"""
import os
import re
import socket
import sys

from lib import (FULL, PORTS, SLOW, Failure, Stage, Suite, device_mtu, need_programs, poll_until,
                 port_listened, require, tail)

# These programs choose their QPs' timeout themselves: over UDP, a peer that waits for its processor
# for two seconds is dead to them. Where many programs share a processor, such a pair runs again.
ATTEMPTS = 3
KIB, MIB = 1024, 1024 * 1024
TRANSPORTS = ("rc", "uc", "ud", "srq")


def has_large_buffers():
    """Whether sockets of this user's daemon have larger buffers than net.core.rmem_max."""
    so_rcvbufforce = 33
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, so_rcvbufforce, 8 * MIB)
        except PermissionError:
            return False
    return True


def sizes(transport):
    """The message sizes of a transport. UC repeats nothing, and on the wire a long message is more
    than the receiver's socket holds when it is slower for a moment, unless that is large."""
    top = device_mtu() if transport == "ud" else 8 * MIB
    on_wire = os.environ.get("VERBENA_CARRIER") == "wire"
    if transport == "uc" and on_wire and not has_large_buffers():
        top = MIB
    if FULL:
        return [1 << shift for shift in range(24) if 1 << shift <= top]
    if transport == "ud":
        return [1, 64, device_mtu() // 2, device_mtu()]
    return [size for size in (1, 4096, 64 * KIB, MIB, 8 * MIB) if size <= top]


def words(transport, size, *options, port, gid=0, iterations=None):
    """The command of one end, without the host."""
    if iterations is None:
        budget = {True: 64 * MIB, False: 16 * MIB}[FULL]
        iterations = max(8, min(500, budget // size))
    depth = 64 if size >= MIB else 500
    return [f"ibv_{transport}_pingpong", "-g", gid, "-p", port, "-s", size, "-n", iterations,
            "-r", depth, *options]


def exchanged(text):
    """Requires the programs' last lines: they appear only when all exchanges are done.

    Wrong data (-c) is only printed: it changes neither the lines nor the exit status.
    """
    require("invalid data" not in text, f"the data is wrong\n{tail(text)}")
    found = re.search(r"(\d+) iters in ([\d.]+) seconds = ([\d.]+) usec/iter", text)
    require(found, f"no result line\n{tail(text)}")


def starved(failure):
    """Whether a pair may have failed only because an end had no processor for too long."""
    text = str(failure)
    return "Failed status transport retry counter exceeded" in text and \
        "invalid data" not in text and os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def exchange_once(stage, transport, size, *options, **more):
    """One pair, both of which must print their result."""
    port = PORTS.take()
    one = words(transport, size, *options, port=port, gid=stage.gid, **more)
    for text in stage.pair(one, one + [stage.host], port, seconds=60):
        exchanged(text)


def exchange(stage, *arguments, **more):
    """Likewise; a pair that was starved runs again."""
    for _ in range(ATTEMPTS - 1):
        try:
            return exchange_once(stage, *arguments, **more)
        except Failure as failure:
            if not starved(failure):
                raise
            print(f"      again, at a load of {os.getloadavg()[0]:.0f}: {failure}", flush=True)
    return exchange_once(stage, *arguments, **more)


def xsrq(stage, size, *options, count=200, clients=1):
    """XRC: a server with one SRQ, and clients, each of which answers from an SRQ of its own."""
    port = PORTS.take()
    one = ["ibv_xsrq_pingpong", "-g", stage.gid, "-p", port, "-s", size, "-n", count, *options]
    server = stage.start(*one, "-c", clients)
    poll_until(lambda: port_listened(port), 20)
    others = [stage.start(*one, stage.host) for _ in range(clients)]
    for process in [*others, server]:
        status = process.wait(60 * SLOW)
        require(status == 0, f"{process.title()} ended with {status}\n{tail(process.output())}")


def datagrams():
    """How many UDP datagrams this network namespace has sent, over IPv4 and IPv6."""
    with open("/proc/self/net/snmp", encoding="ascii") as file:
        names, values = [line.split() for line in file if line.startswith("Udp:")]
    count = int(values[names.index("OutDatagrams")])
    with open("/proc/self/net/snmp6", encoding="ascii") as file:
        return count + sum(int(line.split()[1]) for line in file
                           if line.startswith("Udp6OutDatagrams"))


def left_alone(failure):
    """Whether a pair failed only because one end had had everything and left: these programs leave
    without a word. If the last acknowledgement is lost then, nobody can repeat it any more, and the
    other end's last request fails after its retries, as between two adapters."""
    text = str(failure)
    return re.search(r"its peer printed(?:.*\n)+.* iters in [\d.]+ seconds", text) and \
        "Failed status transport retry counter exceeded" in text and "invalid data" not in text


def carrier(stage):
    """The run exercises the carrier that it is meant to (VERBENA_CARRIER, VERBENA_LOCAL_COPY)."""
    port = PORTS.take()
    one = words("rc", 4096, port=port)
    before = datagrams()
    server = stage.start(*one, environment={"VERBENA_LOG": "debug"})
    poll_until(lambda: port_listened(port), 20)
    stage.run(*one, "127.0.0.1")
    text = server.expect(20 * SLOW)
    up = re.findall(r"link to process \d+ at slot \d+ is up(.*)", text)
    if os.environ.get("VERBENA_CARRIER") == "wire":
        sent = datagrams() - before
        require(not up and sent > 500, f"the wire was asked for: {sent} datagrams, links {up}")
        return
    require(up, f"no link to another process\n{tail(text)}")
    if os.environ.get("VERBENA_LOCAL_COPY") == "ring":
        require(up == [" (ring copies)"], f"the ring was asked for, but not used: {up}")


def many_pairs(stage, count):
    """Pairs of all transports at the same instant: none may disturb another."""
    began, again = [], []
    for index in range(count):
        transport = TRANSPORTS[index % len(TRANSPORTS)]
        options = ["-e"] if index % 3 == 0 else []
        port = PORTS.take()
        one = words(transport, 1024, "-c", *options, port=port, iterations=2000)
        began.append(stage.start_pair(one, one + ["127.0.0.1"], port))
    problems = []
    for one, two in began:
        try:
            for text in stage.finish_pair(one, two, seconds=60):
                exchanged(text)
        except Failure as failure:
            if starved(failure):
                again.append(one.command)
            else:
                problems.append(str(failure))
    require(len(again) <= count // 2, f"{len(again)} of {count} pairs had no processor for seconds")
    for command in again:
        exchange(stage, re.search(r"ibv_(\w+)_pingpong", " ".join(command))[1], 1024, "-c",
                 iterations=2000)
    require(not problems, f"{len(problems)} of {count} pairs failed, the first:\n" +
            (problems[0] if problems else ""))


def main():
    """All cases."""
    need_programs("ibv_rc_pingpong")
    suite = Suite("pingpong")
    stage = Stage()
    for transport in TRANSPORTS:
        for mode in ((), ("-e",)):
            for size in sizes(transport):
                # Checked data on all of them; the unchecked variant differs in nothing for us.
                suite.case(f"{transport} {size} B {' '.join(mode) or 'polling'}",
                           exchange, stage, transport, size, "-c", *mode)
    for size in [1, 4096, MIB] if not FULL else sizes("rc"):
        suite.case(f"rc {size} B new send API", exchange, stage, "rc", size, "-N", "-c")
        suite.case(f"rc {size} B new send API -e", exchange, stage, "rc", size, "-N", "-e", "-c")
    for mode in ((), ("-e",)):
        for size in (1, 4096, 64 * KIB, MIB):
            suite.case(f"xsrq {size} B {' '.join(mode) or 'polling'}", xsrq, stage, size, *mode,
                       count=200 if size < MIB else 40)
    suite.case("xsrq 4 clients", xsrq, stage, 4096, clients=4)
    suite.case("the carrier", carrier, stage)
    suite.case("rc time stamps", exchange, stage, "rc", 4096, "-t")
    for mtu in [256, 4096] if not FULL else [256, 512, 1024, 2048, 4096]:
        for transport in ("rc", "uc", "srq"):
            suite.case(f"{transport} path MTU {mtu}", exchange, stage, transport, 10000, "-m", mtu)
    suite.case("srq 1 QP", exchange, stage, "srq", 4096, "-q", 1, "-c")
    suite.case("srq 100 QPs", exchange, stage, "srq", 512, "-q", 100, "-r", 1000, "-c",
               iterations=50)
    for size in (8, 4096, 128 * KIB):
        suite.case(f"rc {size} B device memory", exchange, stage, "rc", size, "-j", "-c")
    for size in (4096, MIB):
        suite.case(f"rc {size} B on demand", exchange, stage, "rc", size, "-o", "-c")
        suite.case(f"rc {size} B on demand, prefetched", exchange, stage, "rc", size, "-o", "-P",
                   "-c")
    suite.case("rc 4096 B on demand, implicit", exchange, stage, "rc", 4096, "-O", "-c")
    suite.case("srq 4096 B on demand", exchange, stage, "srq", 4096, "-o", "-c")
    suite.case("8 pairs at once", many_pairs, stage, 8)
    if FULL:
        suite.case("32 pairs at once", many_pairs, stage, 32)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
