#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The cable with faults (tests/net/relay) does what it is told, and the same for the same seed.

Plain UDP sockets at both ends, one to RoCEv2's port, whose datagrams carry their number and a
pattern. Nothing of Verbena runs.
"""
import select
import socket
import sys
import time

from lib import Suite, need_programs, poll_until, require
from network import TwoHosts, skip

ROCE, OTHER = 4791, 4792
UDP_SEGMENT = 103
COUNT, SIZE = 400, 1000
PATTERN = bytes(range(250)) * 4


def receive_buffer(sock, size):
    """Beyond the host's limit: what waits here must not be lost, however late it is taken."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, 33, size)  # SO_RCVBUFFORCE
    except PermissionError:
        skip("only root may have sockets whose buffers are certain to hold all datagrams")


class Ends:
    """A socket at each host, on one port."""

    def __init__(self, hosts, port=ROCE):
        self.sockets = []
        for host in hosts.hosts:
            with host.inside():
                self.sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self.sockets[-1].bind((host.addresses["ipv4"], port))
            receive_buffer(self.sockets[-1], 8 << 20)
        self.sockets[0].connect((hosts.client.addresses["ipv4"], port))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for each in self.sockets:
            each.close()

    def take(self, quiet=0.2):
        """What has come to the second host, until nothing came for a while."""
        got = []
        while select.select([self.sockets[1]], [], [], quiet)[0]:
            got.append(self.sockets[1].recv(65536))
        return got

    def send(self, count=COUNT, wait=0.2):
        """Numbered datagrams from the first host; returns what came to the second."""
        got = []
        for number in range(count):
            self.sockets[0].send(number.to_bytes(4, "big") + PATTERN[4:])
            # Bounds what waits in the socket; the order of what comes is not touched.
            if number % 50 == 49:
                got += self.take(0)
        return got + self.take(wait)

    def numbers(self, **options):
        """The numbers of what came."""
        return [int.from_bytes(data[:4], "big") for data in self.send(**options)]


class Cable:
    """Two hosts, a cable with settings of its own, and sockets."""

    def __init__(self, *settings, port=ROCE):
        self.hosts = TwoHosts(*settings, relay=True, verbs=False)
        self.ends = Ends(self.hosts, port)
        # The neighbours' addresses are known before anything counts.
        while not self.ends.send(count=1):
            pass

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.ends.__exit__(kind, value, trace)
        self.hosts.close()

    def happened(self, name):
        """One of the relay's counters."""
        return self.hosts.relay.counters()["from-a"][name]


def clean():
    """Without faults everything comes, once, in order, unchanged."""
    with Cable() as cable:
        got = cable.ends.send()
        require(got == [number.to_bytes(4, "big") + PATTERN[4:] for number in range(COUNT)],
                f"{len(got)} of {COUNT} came, or not as they were")


def seeded(settings, look):
    """The same seed, the same faults; another one, others."""
    def once(seed):
        with Cable("--seed", seed, *settings) as cable:
            return look(cable)
    one, again, other = once(7), once(7), once(8)
    require(one == again, f"the same seed gave {one} and {again}")
    require(one != other, f"another seed gave the same: {one}")
    return one


def loss():
    """A tenth is lost, by the same numbers each time."""
    # The first packet, which tries the way, may be lost too; it is drawn like any other.
    got = seeded(["--loss", "10%"], lambda cable: tuple(cable.ends.numbers()))
    require(0.8 * COUNT < len(got) < 0.97 * COUNT, f"{len(got)} of {COUNT} came")
    require(list(got) == sorted(set(got)), "not in order, or doubled")


def bursts():
    """Losses come in a row, for a time."""
    with Cable() as cable:
        cable.hosts.relay.tell("burst-for 20ms", "burst 1%")
        lost = set(range(COUNT)) - set(cable.ends.numbers())
        rows = [number for number in lost if number - 1 not in lost]
        require(len(lost) > 5 * len(rows) > 0, f"{len(lost)} lost in {len(rows)} bursts")


def duplicates():
    """Some come twice, the second right after the first."""
    with Cable() as cable:
        cable.hosts.relay.tell("duplicate 10%")
        got = cable.ends.numbers()
        twice = len(got) - COUNT
        require(twice == cable.happened("duplicated") and twice > 10, f"{twice} came twice")
        require(sorted(set(got)) == list(range(COUNT)) and got == sorted(got), "not all, in order")


def reordered():
    """Some come later than those after them; nothing is lost."""
    with Cable() as cable:
        cable.hosts.relay.tell("reorder 5%", "reorder-by 2ms")
        got = cable.ends.numbers()
        require(sorted(got) == list(range(COUNT)), f"{len(got)} came")
        require(got != sorted(got), "all in order")
        require(cable.happened("reordered") > 5, "too few")


def corrupted():
    """One bit is wrong, and the kernel's checksum doesn't notice."""
    with Cable() as cable:
        cable.hosts.relay.tell("corrupt 10%")
        got = cable.ends.send()
        require(len(got) == COUNT, f"{len(got)} of {COUNT} came")
        wrong = 0
        for number, data in enumerate(got):
            right = number.to_bytes(4, "big") + PATTERN[4:]
            bits = sum(bin(one ^ two).count("1") for one, two in zip(right, data))
            require(bits < 2 and len(data) == len(right), f"{bits} bits of {number} are wrong")
            wrong += bits
        require(wrong == cable.happened("corrupted") and wrong > 10, f"{wrong} bits were wrong")


def delayed():
    """Everything takes as long as it is told, at least."""
    with Cable() as cable:
        cable.hosts.relay.tell("delay 30ms", "jitter 5ms")
        began = time.monotonic()
        cable.ends.sockets[0].send(PATTERN)
        select.select([cable.ends.sockets[1]], [], [], 5)
        took = time.monotonic() - began
        require(took >= 0.0299, f"it took {took * 1000:.1f} ms")
        cable.ends.take(0)
        got = cable.ends.numbers()
        require(got == list(range(COUNT)), "not all, or not in order")


def limited():
    """At a rate, what the queue can't hold is dropped, and the rest takes its time."""
    with Cable() as cable:
        cable.hosts.relay.tell("rate 1M", "queue 20k")
        began = time.monotonic()
        got = cable.ends.numbers(count=100, wait=0.5)
        dropped = cable.happened("overflowed")
        require(dropped > 50 and len(got) == 100 - dropped, f"{dropped} dropped, {len(got)} came")
        require(time.monotonic() - began > len(got) * SIZE / 1e6, "faster than the rate")


def only_roce():
    """Faults are for RoCEv2; with --all for everything."""
    with Cable("--loss", "50%", port=OTHER) as cable:
        require(cable.ends.numbers() == list(range(COUNT)), "another port's datagrams were lost")
    with Cable("--all", port=OTHER) as cable:
        cable.hosts.relay.tell("loss 50%")
        require(len(cable.ends.numbers()) < 0.7 * COUNT, "nothing was lost")


def one_direction():
    """Settings may be for one direction only."""
    with Cable() as cable:
        cable.hosts.relay.tell("from-b.loss 100%")
        require(cable.ends.numbers() == list(range(COUNT)), "the wrong direction")
        cable.hosts.relay.tell("from-a.loss 100%")
        require(not cable.ends.numbers(count=10), "something came")


def switched():
    """silent and heard, down and up; a command that is none is refused."""
    with Cable() as cable:
        relay = cable.hosts.relay
        for off, on in (("silent", "heard"), ("down", "up")):
            relay.tell(off)
            require(not cable.ends.send(count=10), f"something came when the cable was {off}")
            relay.tell(on)
            # The kernel takes a moment to believe in its carrier.
            require(poll_until(lambda: cable.ends.send(count=1, wait=0.05), 5), f"none after {on}")
            cable.ends.take()
            require(cable.ends.numbers() == list(range(COUNT)), f"not all came after {on}")
        for wrong in ("loss 2", "loss", "delay 5", "nonsense 3"):
            try:
                relay.tell(wrong)
            except Exception:  # pylint: disable=broad-except
                continue
            require(False, f"{wrong!r} was taken")


def super_packets():
    """With offloads, 20 datagrams in one call are one frame; without, 20. They come apart."""
    for options, frames in (([], 1), (["--no-offloads"], 20)):
        with Cable(*options) as cable:
            before = cable.happened("roce")
            sender = cable.ends.sockets[0]
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)
            sender.send(PATTERN * 20)
            got = cable.ends.take()
            require(got == [PATTERN] * 20, f"{len(got)} came")
            now = cable.happened("roce") - before
            require(now == frames, f"{now} frames instead of {frames}")


def main():
    """All cases."""
    need_programs("ip")
    suite = Suite("relay")
    for name, function in (
            ("no faults", clean), ("loss", loss), ("bursts", bursts), ("duplicates", duplicates),
            ("reordering", reordered), ("corruption", corrupted), ("delay and jitter", delayed),
            ("rate and queue", limited), ("RoCEv2 only, or all", only_roce),
            ("one direction", one_direction), ("commands", switched),
            ("super-packets", super_packets)):
        suite.case(name, function)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
