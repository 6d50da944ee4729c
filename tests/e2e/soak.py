#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs are born and killed at random, in traffic, for a while; afterwards nothing is left.

Debian's pingpongs and perftest in pairs, some of which lose an end at a random instant; programs that
only open the device. In the end the daemon has no client, object, link or pinned page, and its
descriptors and memory are where they began. The seed is printed; --seed repeats it.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

from lib import (PORTS, SANITIZE, SLOW, VERBENA, Stage, Suite, need_programs, poll_until,
                 port_listened, require)

PAIRS_AT_ONCE, LONERS_AT_ONCE = 5, 3
LIFE_S = 1.5  # the longest that anybody is left alone
WARM_UP_S = 3
MEMORY_MARGIN_KIB = 2048

PAIRS = (("ibv_rc_pingpong", "-g", "0", "-n", "2000"), ("ibv_uc_pingpong", "-g", "0", "-n", "100"),
         ("ibv_srq_pingpong", "-g", "0", "-n", "1000"),
         ("ibv_rc_pingpong", "-g", "0", "-e", "-s", "1000000", "-n", "200"),
         ("ib_send_bw", "-F", "-D", "1"), ("ib_write_bw", "-F", "-s", "1000000", "-n", "500"),
         ("ib_read_lat", "-F", "-n", "1000"), ("ib_atomic_bw", "-F", "-n", "500", "-q", "3"),
         ("ib_send_bw", "-F", "-c", "UD", "-n", "1000", "-r", "1000"))
LONERS = (("ibv_devinfo", "-v"), ("ibv_asyncwatch",), ("ibv_devices",))
KILLS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Life:
    """One or two programs, and when whatever is left of them is killed."""

    def __init__(self, stage, chance, commands, port=None):
        self.stage, self.chance, self.port = stage, chance, port
        self.commands = list(commands)
        self.programs = []
        self.end = time.monotonic() + chance.uniform(0, LIFE_S) * SLOW
        self.step()

    def step(self):
        """Starts what may start, kills what must end; whether anybody is left."""
        first = not self.programs
        while self.commands and (first or not self.port or port_listened(self.port)):
            self.programs.append(self.stage.start(*self.commands.pop(0)))
            first = False
        if time.monotonic() > self.end:
            self.commands = []
            running = [one for one in self.programs if one.running()]
            if running:  # one at a time: the others see it die
                self.chance.choice(running).kill(self.chance.choice(KILLS))
                self.end = time.monotonic() + self.chance.uniform(0, 0.3)
                self.chance = Merciless
        return bool(self.commands) or any(one.running() for one in self.programs)

    def forget(self):
        """Takes the output away: there are thousands."""
        for one in self.programs:
            one.popen.wait()
            self.stage.processes.remove(one)
            os.unlink(one.path)
            os.unlink(one.path + ".err")
        return len(self.programs)


class Merciless:
    """The second time there is no choice."""
    choice = staticmethod(lambda things: signal.SIGKILL if things is KILLS else things[0])
    uniform = staticmethod(lambda low, high: low)


def live(stage, chance, seconds):
    """Births and deaths for so many seconds; how many programs there were."""
    end = time.monotonic() + seconds
    pairs, loners, count = [], [], 0
    while time.monotonic() < end or pairs or loners:
        while time.monotonic() < end and len(pairs) < PAIRS_AT_ONCE:
            port = PORTS.take()
            PORTS.given.discard(port)
            words = [*chance.choice(PAIRS), "-p", port]
            pairs.append(Life(stage, chance, (words, words + ["localhost"]), port))
        while time.monotonic() < end and len(loners) < LONERS_AT_ONCE:
            loners.append(Life(stage, chance, (chance.choice(LONERS),)))
        for lives in (pairs, loners):
            for life in [one for one in lives if not one.step()]:
                lives.remove(life)
                count += life.forget()
        time.sleep(0.01)
    return count


def resources(stage):
    """Everything that the daemon knows of anybody."""
    done = subprocess.run([VERBENA, "resources", "--json"], env=stage.environment, timeout=30,
                          stdin=subprocess.DEVNULL, capture_output=True, check=True)
    reply = json.loads(done.stdout)
    return {kind: entries for kind, entries in reply.items() if kind != "ok" and entries}


def daemon_size(pid):
    """Its descriptors by what they are, memory files among its mappings, resident KiB."""
    fds = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            # A socket's or an inode's number says nothing.
            fds.append(os.readlink(f"/proc/{pid}/fd/{name}").split("[")[0])
        except OSError:
            pass
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        maps = [line.split()[-1] for line in file if "memfd:" in line]
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    return sorted(fds), maps, resident


def settled(stage, pid):
    """The daemon's size once nobody is left."""
    stage.expect_no_clients(20)
    left = resources(stage)
    require(not left, f"the daemon still knows of {json.dumps(left)}")
    # What `verbena` itself used is closed a moment later.
    size = [daemon_size(pid)]

    def quiet():
        size.append(daemon_size(pid))
        return size[-1][0] == size[-2][0]

    poll_until(quiet, 2, step=0.2)
    return size[-1]


def soak(stage, chance, seconds):
    """Warms up, measures, soaks, measures again."""
    live(stage, chance, WARM_UP_S)
    daemons = stage.daemons()
    require(len(daemons) == 1, f"{len(daemons)} daemons: {daemons}")
    before = settled(stage, daemons[0])
    count = live(stage, chance, seconds)
    require(stage.daemons() == daemons, f"the daemon was replaced: {stage.daemons()}\n"
            f"{stage.log_tail()}")
    after = settled(stage, daemons[0])
    print(f"      {count} programs in {seconds} s; the daemon has {len(after[0])} descriptors and "
          f"{after[2]} KiB (before: {len(before[0])}, {before[2]} KiB)")
    require(after[0] == before[0], f"descriptors: {before[0]} before, {after[0]} after")
    require(not after[1] and not any("memfd:" in name for name in after[0]),
            f"memory files are left: {after[1]} {after[0]}")
    # A sanitizer keeps what was freed.
    require(SANITIZE or after[2] <= before[2] + MEMORY_MARGIN_KIB,
            f"the daemon grew from {before[2]} to {after[2]} KiB")


def main():
    """One case, as long as it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    given = parser.parse_args()
    need_programs("ibv_rc_pingpong", "ib_send_bw")
    print(f"seed {given.seed}", flush=True)
    suite = Suite("soak", only=[])
    stage = Stage(idle_ms=-1)
    try:
        suite.case(f"{given.seconds} s of births and deaths", soak, stage,
                   random.Random(given.seed), given.seconds)
        for pid in stage.daemons():
            os.kill(pid, signal.SIGTERM)
    finally:
        stage.close()
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
