#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The connection manager and the host's network: which device an address leads to, hosts that aren't
there, and interfaces that go or change under a connection.

Runs in a network namespace of its own, with two veth interfaces, whose other ends have no address: nobody
answers there.
"""
import subprocess
import sys
import time

from devices import end_daemon, ip, make_card, make_interfaces, start_daemon
from lib import (BUILD, PORTS, SKIPPED, SLOW, Stage, Suite, enter_namespace, need_programs,
                 poll_until, require, tail)

PROBE = f"{BUILD}/tests/e2e/cm_probe"


def probe(stage, *words):
    """What cm_probe says, as lists of words; without the library's reasons for a refusal."""
    process = stage.start(PROBE, *words)
    process.wait(20 * SLOW)
    return [line.split() for line in process.output().splitlines()
            if not line.startswith("verbena[")]


def expect(stage, words, *lines):
    """It says these lines."""
    got = probe(stage, *words)
    require(got == [line.split() for line in lines], f"{words}: {got} instead of {lines}")


def says(process, text, seconds=20):
    """The line comes."""
    require(poll_until(lambda: text in process.output().splitlines(), seconds * SLOW),
            f"no '{text}' in\n{tail(process.output())}")


def end(*processes):
    """Ends them."""
    for process in processes:
        process.kill()
        process.wait(5)


def owners(stage):
    """An address leads to the device that has it; what no device has isn't there."""
    expect(stage, ("bind", "10.91.0.1"), "bound 0 big")
    expect(stage, ("bind", "10.91.1.1"), "bound 0 small")
    expect(stage, ("bind", "fd91:1::1"), "bound 0 small")
    expect(stage, ("bind", "fe80::ff:fe00:b01%vebb"), "bound 0 small")
    expect(stage, ("bind", "0.0.0.0"), "bound 0 -")
    expect(stage, ("bind", "10.99.0.1"), "rdma_bind_addr EADDRNOTAVAIL")
    # The loopback interface belongs to neither.
    expect(stage, ("bind", "127.0.0.1"), "rdma_bind_addr EADDRNOTAVAIL")
    expect(stage, ("resolve", "-", "127.0.0.1", 1000), "ADDR_ERROR -19 -")
    expect(stage, ("resolve", "-", "10.91.1.1", 1000), "ADDR_RESOLVED 0 small")
    expect(stage, ("resolve", "10.91.0.1", "10.91.1.1", 1000), "ADDR_RESOLVED 0 big")


def between(stage, at, source, destination, device, listener):
    """A connection between two devices: each end has its own."""
    port = PORTS.take()
    server = stage.start(PROBE, "listen", at, port)
    says(server, f"listening {port} {listener}")
    client = stage.start(PROBE, "connect", source, destination, port)
    says(client, f"ESTABLISHED 0 {device}")
    says(server, f"CONNECT_REQUEST 0 {'big' if destination == '10.91.0.1' else 'small'}")
    end(client, server)


def only_there(stage):
    """Who listens at one device's address isn't heard of at another's."""
    port = PORTS.take()
    server = stage.start(PROBE, "listen", "10.91.0.1", port)
    says(server, f"listening {port} big")
    client = stage.start(PROBE, "connect", "-", "10.91.1.1", port)
    says(client, "REJECTED 8 small")
    end(client, server)


def no_route(stage):
    """Refused by the call itself."""
    expect(stage, ("resolve", "-", "203.0.113.1", 5000), "rdma_resolve_addr ENETUNREACH")
    expect(stage, ("resolve", "-", "2001:db8::1", 5000), "rdma_resolve_addr ENETUNREACH")
    expect(stage, ("resolve", "-", "fe80::7", 5000), "rdma_resolve_addr EINVAL")


def silent(stage, address, wait_ms):
    """On this link, and doesn't answer: the event comes when the time is over, not before."""
    began = time.monotonic()
    expect(stage, ("resolve", "-", address, wait_ms), "ADDR_ERROR -110 -")
    require(time.monotonic() - began > wait_ms / 1000, "it came before its time")


def is_asked(interface, address):
    """Whether the kernel asks the link for this neighbour, or did."""
    done = subprocess.run(["ip", "neigh", "show", "dev", interface], capture_output=True, text=True,
                          check=True, timeout=20)
    return any(line.split()[0] == address for line in done.stdout.splitlines())


def answers(stage):
    """One whose link address is known, and one that answers late."""
    ip("neigh", "add", "10.91.0.70", "lladdr", "02:00:00:00:00:70", "dev", "veba", "nud", "permanent")
    expect(stage, ("resolve", "-", "10.91.0.70", 20000), "ADDR_RESOLVED 0 big")
    waits = stage.start(PROBE, "resolve", "-", "fd91:0::71", 60000 * SLOW)
    require(poll_until(lambda: is_asked("veba", "fd91::71"), 10 * SLOW), "the link wasn't asked")
    require(waits.running(), f"it didn't wait\n{tail(waits.output())}")
    ip("neigh", "replace", "fd91::71", "lladdr", "02:00:00:00:00:71", "dev", "veba", "nud", "reachable")
    says(waits, "ADDR_RESOLVED 0 big")
    waits.wait(5 * SLOW)


def own_address_goes(stage):
    """The interface's link-local address goes and comes back while a program uses its GID, which
    stays: no other card, so no event."""
    shown = subprocess.run(["ip", "-6", "-o", "address", "show", "dev", "veba", "scope", "link"],
                           capture_output=True, text=True, check=True, timeout=20)
    own = shown.stdout.split()[3]
    waits = stage.start(PROBE, "resolve", "-", "fe80::73%veba", 60000 * SLOW)
    require(poll_until(lambda: is_asked("veba", "fe80::73"), 10 * SLOW), "the link wasn't asked")
    ip("address", "delete", own, "dev", "veba")
    ip("address", "add", "10.91.0.73/24", "dev", "veba")
    require(poll_until(lambda: probe(stage, "bind", "10.91.0.73") == [["bound", "0", "big"]], 10),
            "the daemon doesn't see the change")
    ip("address", "delete", "10.91.0.73/24", "dev", "veba")
    ip("address", "add", own, "dev", "veba", "nodad")
    ip("neigh", "replace", "fe80::73", "lladdr", "02:00:00:00:00:73", "dev", "veba", "nud", "reachable")
    says(waits, "ADDR_RESOLVED 0 big")
    waits.wait(5 * SLOW)


def gives_up(stage):
    """A program that ends while it waits leaves nothing."""
    waits = stage.start(PROBE, "resolve", "-", "10.91.0.72", 60000)
    require(poll_until(lambda: is_asked("veba", "10.91.0.72"), 10 * SLOW), "the link wasn't asked")
    end(waits)
    stage.expect_no_clients()


def card_changes(stage):
    """The interface gets another link address: a hint for both ends' programs."""
    port = PORTS.take()
    server = stage.start(PROBE, "listen", "10.91.1.1", port)
    says(server, f"listening {port} small")
    client = stage.start(PROBE, "connect", "10.91.0.1", "10.91.1.1", port)
    says(client, "ESTABLISHED 0 big")
    ip("link", "set", "vebb", "address", "02:00:00:00:0b:02")
    # The listener's id and the connection's.
    require(poll_until(lambda: server.output().count("ADDR_CHANGE 0 small") == 2, 10 * SLOW),
            f"no two ADDR_CHANGE\n{tail(server.output())}")
    ip("link", "set", "vebb", "address", "02:00:00:00:0b:01")
    require(poll_until(lambda: server.output().count("ADDR_CHANGE 0 small") == 4, 10 * SLOW),
            f"no four ADDR_CHANGE\n{tail(server.output())}")
    require("ADDR_CHANGE" not in client.output(), f"the other device's\n{tail(client.output())}")
    end(client, server)


def counted(stage):
    """verbena status says how many requests there were, and why which were refused."""
    before = stage.status()["connections"]
    port = PORTS.take()
    server = stage.start(PROBE, "listen", "10.91.0.1", port)
    says(server, f"listening {port} big")
    client = stage.start(PROBE, "connect", "-", "10.91.0.1", port)
    says(client, "ESTABLISHED 0 big")
    nobody = stage.start(PROBE, "connect", "-", "10.91.0.1", PORTS.take())
    says(nobody, "REJECTED 8 big")
    now = stage.status()["connections"]

    def grown(*names):
        one, two = before, now
        for name in names:
            one, two = one.get(name, 0), two.get(name, 0)
        return two - one
    for way in ("sent", "received"):
        got = {name: grown(way, name) for name in ("REQ", "REP", "RTU", "REJ", "DREQ")}
        require(got == {"REQ": 2, "REP": 1, "RTU": 1, "REJ": 1, "DREQ": 0}, f"{way}: {got}")
        ending = "sent" if way == "sent" else "received"
        require(grown(f"rejects_{ending}", "8") == 1, f"reasons: {now}")
    require(grown("no_listener") == 1 and not grown("unexpected"), f"{now}")
    text = stage.run(f"{BUILD}/bin/verbena", "status", plain=True)
    for sentence in ("connections: ", "no program listened at that port (REJ 8)"):
        require(sentence in text, f"no '{sentence}' in\n{tail(text)}")
    end(client, server, nobody)


def device_goes(stage):
    """The interface is deleted: its device's ids hear it, and their peers that they are gone; who
    listens everywhere goes on."""
    one, two, three, four = (PORTS.take() for _ in range(4))
    had = stage.start(PROBE, "listen", "0.0.0.0", four)
    says(had, f"listening {four} -")
    before = stage.start(PROBE, "connect", "-", "10.91.1.1", four)
    says(before, "ESTABLISHED 0 small")
    bound = stage.start(PROBE, "listen", "10.91.1.1", one)
    everywhere = stage.start(PROBE, "listen", "0.0.0.0", two)
    other = stage.start(PROBE, "listen", "10.91.0.1", three)
    says(bound, f"listening {one} small")
    says(everywhere, f"listening {two} -")
    says(other, f"listening {three} big")
    leaves = stage.start(PROBE, "connect", "10.91.1.1", "10.91.0.1", three)
    stays = stage.start(PROBE, "connect", "10.91.0.1", "10.91.1.1", one)
    says(leaves, "ESTABLISHED 0 small")
    says(stays, "ESTABLISHED 0 big")
    ip("link", "del", "vebb")
    # The listener and its connection; the client's own; both peers.
    require(poll_until(lambda: bound.output().count("DEVICE_REMOVAL 0 small") == 2, 10 * SLOW),
            f"no two DEVICE_REMOVAL\n{tail(bound.output())}")
    says(leaves, "DEVICE_REMOVAL 0 small")
    says(other, "DISCONNECTED 0 big")
    says(stays, "DISCONNECTED 0 big")
    # Their contexts are lost, their queue pairs flushed, and nothing is made with them any more.
    for process in (bound, leaves):
        says(process, "fatal small")
        says(process, "receive 5 5")
        says(process, "modify EIO alloc EIO")
    for process in (other, stays, everywhere):
        require("fatal" not in process.output(), f"another device ended\n{tail(process.output())}")
    require("DEVICE_REMOVAL" not in everywhere.output(), "whoever listens everywhere was told, too")
    late = stage.start(PROBE, "connect", "-", "10.91.0.1", two)
    says(late, "ESTABLISHED 0 big")
    end(bound, everywhere, other, leaves, stays)
    make_card("vebb", 1500)
    ip("address", "add", "10.91.1.1/24", "dev", "vebb")
    ip("link", "set", "vebb", "up")
    require(poll_until(lambda: probe(stage, "bind", "10.91.1.1") == [["bound", "0", "small"]], 10),
            "a device that comes back isn't used")
    # A program that had the device opens it again.
    says(had, "fatal small")
    again = stage.start(PROBE, "connect", "-", "10.91.1.1", four)
    says(again, "ESTABLISHED 0 small")
    end(late, again, before, had)


def main():
    """All cases."""
    need_programs("unshare", "ip")
    problem = enter_namespace("veth")
    if problem:
        print(problem)
        sys.exit(SKIPPED)
    make_interfaces()
    suite = Suite("cm_network")
    with Stage() as stage:
        daemon = start_daemon(stage, "device = big veba\ndevice = small vebb\n")
        suite.case("an address and its device", owners, stage)
        for at, source, destination, device, listener in (
                ("0.0.0.0", "10.91.0.1", "10.91.1.1", "big", "-"),
                ("0.0.0.0", "10.91.1.1", "10.91.0.1", "small", "-"),
                ("0.0.0.0", "-", "10.91.1.1", "small", "-"),
                ("10.91.1.1", "10.91.0.1", "10.91.1.1", "big", "small")):
            suite.case(f"from {source} to {destination}, who listens at {at}", between, stage, at,
                       source, destination, device, listener)
        suite.case("another device's address", only_there, stage)
        suite.case("no route", no_route, stage)
        suite.case("a silent host", silent, stage, "10.91.0.77", 300)
        suite.case("a silent host, IPv6", silent, stage, "fd91:1::77", 300)
        suite.case("a silent host, link-local", silent, stage, "fe80::77%veba", 300)
        suite.case("hosts that answer", answers, stage)
        suite.case("the interface's own address goes", own_address_goes, stage)
        suite.case("a program that doesn't wait", gives_up, stage)
        suite.case("what is counted", counted, stage)
        suite.case("another card", card_changes, stage)
        suite.case("the device goes", device_goes, stage)
        end_daemon(daemon)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
