#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Thousands of queue pairs in one process, a hundred thousand regions at one daemon, a listener with a
thousand connections, and hundreds of processes on one device.

The programs are those of `make bench`, which says how fast and how small; here they only have to
do their work, and to leave nothing behind. VERBENA_FULL=1 adds 200 processes, all to all.
"""
import os

from lib import BUILD, FULL, SANITIZE, Stage, Suite, require

MANYQPS = os.path.join(BUILD, "bench", "manyqps")
MANYOBJECTS = os.path.join(BUILD, "bench", "manyobjects")
MANYPROCS = os.path.join(BUILD, "bench", "manyprocs")


CONNECTIONS = os.path.join(BUILD, "bench", "connections")


def established(stage, count):
    """A listener with many connections: each is small, and none takes a descriptor anywhere."""
    stage.run("ibv_devices")
    text = stage.run(CONNECTIONS, "-n", 0, "-k", count, "-p", stage.daemons()[0], seconds=90,
                     preload=False)
    got = {words[0]: float(words[1]) for words in map(str.split, text.splitlines())}
    # The memory of sanitized code says nothing.
    require(SANITIZE or got["both_bytes"] < 65536, f"one takes {got['both_bytes']:.0f} bytes")
    for who in ("server", "client", "daemon"):
        require(not got[who + "_fds"], f"each takes descriptors: {who} {got[who + '_fds']}")
    stage.expect_no_clients(10)


def works(stage, *command, seconds):
    """The program succeeds, and nothing of it is left at the daemon."""
    stage.run(*command, seconds=seconds, preload=False)
    stage.expect_no_clients(10)
    left = stage.status()
    require(not left or not left["clients"], f"left behind: {left}")


def main():
    """All cases. Sanitized code gets fewer of everything."""
    suite = Suite("scale")
    # RLIMIT_MEMLOCK is looked at by other tests; who isn't root may have 8 MiB.
    stage = Stage(idle_ms=2000, VERBENA_MEMLOCK="off")
    qps, processes = (10000, 200) if not SANITIZE else (1000, 24)
    for mode in ("self", "peer"):
        suite.case(f"{qps} QPs, {mode}", works, stage, MANYQPS, "-n", qps, "-m", mode, seconds=60)
    regions, pairs = (100000, 50000) if not SANITIZE else (10000, 5000)
    suite.case(f"{regions} regions, {pairs} QPs, 5 processes", works, stage, MANYOBJECTS,
               "-m", regions, "-q", pairs, seconds=90)
    suite.case(f"{processes} processes", works, stage, MANYPROCS, "-n", processes, "-k", 6,
               "-r", 2, seconds=90)
    kept = 1000 if not SANITIZE else 200
    suite.case(f"{kept} established connections", established, stage, kept)
    everybody = processes if FULL else processes // 5
    suite.case(f"{everybody} processes, all to all", works, stage, MANYPROCS, "-n", everybody,
               "-k", everybody, "-r", 2, seconds=120)
    suite.stage_closed(stage)
    suite.end()


main()
