#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every carrier at once, and in each something fails all the time; nothing hangs, nothing leaks.

One host program (chaos.c) for each carrier (self, local, ring, split, wire) lives for the whole
test and plays rounds with peers that are killed, stopped and left; it deregisters memory in use,
ends queue pairs, cancels threads and forks. This script kills the daemon at random instants
meanwhile. Each host checks order, data, time and memory of its rounds; this script requires that
the hosts' and the daemon's descriptors, memory and threads are the same at the end as after the
warm-up. Without --seconds it is as short as `make check` has it; --seconds 3600 is the long run. It
needs a network namespace (for the wire).
"""
import argparse
import os
import random
import signal
import sys
import time

from lib import BUILD, SANITIZE, SLOW, Stage, Suite, require, tail
from network import own_network

CARRIERS = {"self": {}, "local": {}, "ring": {"VERBENA_LOCAL_COPY": "ring"},
            "split": {"VERBENA_LOCAL_COPY": "split"}, "wire": {"VERBENA_CARRIER": "wire"}}
PROGRAM = os.path.join(BUILD, "tests", "e2e", "chaos")
FDS_MARGIN, THREADS_MARGIN = 2, 1  # a reply under way, a thread that is ending
MEMORY_MARGIN_KIB = 6144           # allocators' arenas that grew to their size once


def quiet_lines(process):
    """What a host has printed of itself: (round, descriptors, KiB, threads) each."""
    return [tuple(int(word) for word in line.split()[1:])
            for line in process.output().splitlines() if line.startswith("quiet ")]


def judge(carrier, process):
    """The host's use at the end beside that after its warm-up."""
    lines = quiet_lines(process)
    require(len(lines) >= 2, f"{carrier}: too few rounds to compare\n{tail(process.output())}")
    first, last = lines[len(lines) // 4], lines[-1]
    print(f"      {carrier}: {last[0]} rounds; descriptors {first[1]} -> {last[1]}, "
          f"{first[2]} -> {last[2]} KiB, threads {first[3]} -> {last[3]}", flush=True)
    require(last[1] <= first[1] + FDS_MARGIN, f"{carrier}: descriptors grow: {first} {last}")
    require(last[3] <= first[3] + THREADS_MARGIN, f"{carrier}: threads grow: {first} {last}")
    require(SANITIZE or last[2] <= first[2] + MEMORY_MARGIN_KIB,
            f"{carrier}: memory grows: {first} {last}")


def daemon_size(stage):
    """The running daemon's pid, descriptors and resident KiB; None between two of them."""
    for pid in stage.daemons():
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
            return pid, len(os.listdir(f"/proc/{pid}/fd")), pages * 4
        except OSError:
            pass
    return None


def chaos(stage, chance, seconds, deaths):
    """Runs all hosts, kills daemons; returns when every host has ended well."""
    hosts = {}
    for carrier, environment in CARRIERS.items():
        kind = "self" if carrier == "self" else "process"
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
        require(time.monotonic() < end + 240 * SLOW, "a host doesn't end: "
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
          f"at most {max(s[2] for s in sizes)} KiB", flush=True)
    for carrier, host in hosts.items():
        host.expect(20)
        judge(carrier, host)
    stage.expect_no_clients(20)


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
