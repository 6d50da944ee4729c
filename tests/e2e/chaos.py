#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every carrier at once, and in each something fails all the time; nothing hangs, nothing leaks.

One host program (chaos.c) for each carrier (self, local, ring, split, shared, wire) lives for the whole
test and plays rounds with peers that are killed, stopped and left; it deregisters memory in use,
ends queue pairs, cancels threads and forks. This script kills the daemon at random instants
meanwhile. Each host checks order, data, time and memory of its rounds; this script requires that
the hosts' descriptors, memory and threads don't grow: after a warm-up of a quarter of the run, the
medians of both halves of the rest are compared, because single instants differ (a daemon that is
just starting has a host hold three descriptors more). Memory of their own (RssAnon) is flat; what
grows through an hour is RssShmem, as more and more pages of the published table and of the regions'
file are used once, so it is bounded by their size. Without --seconds it is as short as `make check` has it; --seconds 3600 is the long run. It
needs a network namespace (for the wire).
"""
import argparse
import os
import random
import signal
import statistics
import sys
import time

from lib import BUILD, SANITIZE, SLOW, Stage, Suite, require, tail
from network import own_network

CARRIERS = {"self": {}, "local": {}, "ring": {"VERBENA_LOCAL_COPY": "ring"},
            "split": {"VERBENA_LOCAL_COPY": "split"}, "shared": {}, "wire": {"VERBENA_CARRIER": "wire"}}
PROGRAM = os.path.join(BUILD, "tests", "e2e", "chaos")
FDS_MARGIN, THREADS_MARGIN = 2, 1  # a reply under way, a thread that is ending
ANON_MARGIN_KIB = 6144             # allocators' arenas that grew to their size once
SHMEM_MARGIN_KIB = (1 + 64) * 1024  # the published table and the regions' file, see hca/process


def quiet_lines(process):
    """What a host has printed of itself: (round, descriptors, KiB of RssAnon, of RssShmem, threads)
    each."""
    return [tuple(int(word) for word in line.split()[1:])
            for line in process.output().splitlines() if line.startswith("quiet ")]


def judge(carrier, process):
    """The host's use in the second half after its warm-up beside that in the first half."""
    lines = quiet_lines(process)
    require(len(lines) >= 8, f"{carrier}: too few rounds to compare\n{tail(process.output())}")
    lines = lines[len(lines) // 4:]
    middle = len(lines) // 2
    # The medians that are nearer to each other, if a half has an even number of lines.
    first = [statistics.median_high(values) for values in zip(*lines[:middle])]
    last = [statistics.median_low(values) for values in zip(*lines[middle:])]
    print(f"      {carrier}: {lines[-1][0]} rounds; descriptors {first[1]} -> {last[1]}, "
          f"RssAnon {first[2]} -> {last[2]} KiB, RssShmem {first[3]} -> {last[3]} KiB, "
          f"threads {first[4]} -> {last[4]}", flush=True)
    for what, place, margin in (("descriptors", 1, FDS_MARGIN), ("threads", 4, THREADS_MARGIN)):
        require(last[place] <= first[place] + margin,
                f"{carrier}: {what} grow: {first[place]} -> {last[place]}, each: "
                f"{[line[place] for line in lines]}")
    for what, place, margin in (("RssAnon", 2, ANON_MARGIN_KIB), ("RssShmem", 3, SHMEM_MARGIN_KIB)):
        require(SANITIZE or last[place] <= first[place] + margin,
                f"{carrier}: {what} grows: {first[place]} -> {last[place]} KiB")


def daemon_size(stage):
    """The running daemon's pid, descriptors, KiB of RssAnon and RssShmem; None between two of
    them."""
    for pid in stage.daemons():
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                known = dict(line.split(":", 1) for line in file)
            return (pid, len(os.listdir(f"/proc/{pid}/fd")),
                    int(known["RssAnon"].split()[0]), int(known["RssShmem"].split()[0]))
        except (OSError, KeyError):  # a process that has ended has no memory
            pass
    return None


def chaos(stage, chance, seconds, deaths):
    """Runs all hosts, kills daemons; returns when every host has ended well."""
    hosts = {}
    for carrier, environment in CARRIERS.items():
        kind = carrier if carrier in ("self", "shared") else "process"
        hosts[carrier] = stage.start(PROGRAM, "host", kind, seconds, chance.randrange(1 << 30),
                                     environment=environment)
    end = time.monotonic() + seconds
    killed, sizes = 0, []
    strike = time.monotonic() + chance.uniform(2, 8)
    while any(host.running() for host in hosts.values()):
        for carrier, host in hosts.items():
            require(host.running() or host.popen.returncode == 0,
                    f"{carrier}: ended with {host.popen.returncode}\n{tail(host.output())}"
                    f"\n{stage.log_tail()}")
        require(time.monotonic() < end + 480 * SLOW, "a host doesn't end: "
                + ", ".join(name for name, host in hosts.items() if host.running()))
        size = daemon_size(stage)
        if size:
            sizes.append(size)
        if deaths and size and time.monotonic() > strike and time.monotonic() < end - 2:
            os.kill(size[0], signal.SIGKILL)
            killed += 1
            strike = time.monotonic() + chance.uniform(2, 15)
        time.sleep(0.25)
    print(f"      {killed} daemons killed; their descriptors at most {max(s[1] for s in sizes)}, "
          f"RssAnon at most {max(s[2] for s in sizes)} KiB, "
          f"RssShmem {max(s[3] for s in sizes)} KiB", flush=True)
    for carrier, host in hosts.items():
        host.expect(120)
        judge(carrier, host)
    stage.expect_no_clients(120)


def main():
    """The whole, with daemons dying."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--no-deaths", action="store_true", help="the daemon lives")
    given = parser.parse_args()
    own_network()
    print(f"seed {given.seed}", flush=True)
    suite = Suite("chaos", only=[])
    stage = Stage(idle_ms=2000)
    try:
        suite.case(f"{given.seconds} s of everything", chaos, stage, random.Random(given.seed),
                   given.seconds, not given.no_deaths)
    finally:
        stage.close()
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
