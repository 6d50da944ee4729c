#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs are born and killed at random, in traffic, for a while; afterwards nothing is left.

Debian's pingpongs and perftest in pairs, some of which lose an end at a random instant; programs
that only open the device. A witness of the same user stays all the time, so that what the daemon
counts for the user is never simply dropped with its last program. In the end the daemon has no
object, link or pinned page of anybody, and its descriptors, memory files and memory are where they
began, as are the files of its directory. The seed is printed; --seed repeats the choices, though not
the instants.
"""
import argparse
import collections
import json
import os
import random
import signal
import subprocess
import sys
import time

from lib import (PORTS, SANITIZE, SLOW, VERBENA, Stage, Suite, need_programs, poll_until,
                 port_listened, require)
from network import own_network

PAIRS_AT_ONCE, LONERS_AT_ONCE = 5, 3
LIFE_S = 1.5  # the longest that anybody is left alone
WARM_UP_S = 3
MEMORY_MARGIN_KIB = 2048  # allocators' arenas and tables that grew to their size once

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
        self.kills = 0
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
                self.kills += 1
                self.end = time.monotonic() + self.chance.uniform(0, 0.3)
                self.chance = Merciless
        return bool(self.commands) or any(one.running() for one in self.programs)

    def forget(self):
        """Takes the output away: there are thousands. Programs and kills."""
        for one in self.programs:
            one.popen.wait()
            self.stage.processes.remove(one)
            os.unlink(one.path)
            os.unlink(one.path + ".err")
        return len(self.programs), self.kills


class Merciless:
    """The second time there is no choice."""
    choice = staticmethod(lambda things: signal.SIGKILL if things is KILLS else things[0])
    uniform = staticmethod(lambda low, high: low)


def live(stage, chance, seconds):
    """Births and deaths for so many seconds; how many programs and kills there were."""
    end = time.monotonic() + seconds
    pairs, loners, programs, kills = [], [], 0, 0
    while time.monotonic() < end or pairs or loners:
        while time.monotonic() < end and len(pairs) < PAIRS_AT_ONCE:
            port = PORTS.take()
            PORTS.given.discard(port)
            words = [*chance.choice(PAIRS), "-p", port]
            pairs.append(Life(stage, chance, (words, words + ["127.0.0.1"]), port))
        while time.monotonic() < end and len(loners) < LONERS_AT_ONCE:
            loners.append(Life(stage, chance, (chance.choice(LONERS),)))
        for lives in (pairs, loners):
            for life in [one for one in lives if not one.step()]:
                lives.remove(life)
                born, killed = life.forget()
                programs += born
                kills += killed
        time.sleep(0.01)
    return programs, kills


def wire_sockets(pid):
    """The sockets on port 4791. One is kept for each slot that ever was: numbers age, so there are
    more of them from process to process, up to a bound that other tests look at."""
    found = set()
    for table in ("udp", "udp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            found.update(f"socket:[{line.split()[9]}]" for line in file
                         if line.split()[1].endswith(":12B7"))
    return found


# The daemon's own memory files: the table of multicast groups.
OWN_FILES = collections.Counter(["/memfd:verbena-groups"])


class Size:
    """What a daemon uses: descriptors by what they are, memory files, memory, its directory."""

    def __init__(self, pid, directory):
        self.fds, wire = [], wire_sockets(pid)
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                what = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if what not in wire:
                # A socket's or an inode's number says nothing.
                self.fds.append(what.split("[")[0])
        self.fds.sort()
        with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
            self.mapped = [line.split()[5] for line in file if "memfd:" in line]
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        self.resident_kib = pages * os.sysconf("SC_PAGE_SIZE") // 1024
        self.files = sorted(os.listdir(directory))

    def memory_files(self):
        """How many it holds open, by name."""
        return collections.Counter(name.split(" ")[0] for name in self.fds if "memfd:" in name)


def left_over(stage, witness):
    """What the daemon knows of anybody but the witness; a text, empty if that is nothing."""
    done = subprocess.run([VERBENA, "resources", "--json"], env=stage.environment, timeout=30,
                          stdin=subprocess.DEVNULL, capture_output=True, check=True)
    reply = json.loads(done.stdout)
    left = [entry for entry in reply.pop("process")
            if entry["pid"] != witness.pid or entry["pinned_bytes"]]
    left += [entry for entry in reply.pop("user")
             if entry["processes"] != 1 or entry["objects"] or entry["pinned_bytes"]]
    left += [entry for entry in reply.pop("context") if entry["pid"] != witness.pid]
    left += [{kind: entries} for kind, entries in reply.items() if kind != "ok" and entries]
    left += [client for client in stage.clients()
             if client["pid"] != witness.pid or client["links"]]
    return json.dumps(left) if left else ""


def settled(stage, pid, witness):
    """The daemon's size once nobody else is left."""
    poll_until(lambda: not left_over(stage, witness), 20 * SLOW)
    left = left_over(stage, witness)
    require(not left, f"the daemon still knows of {left}\n{stage.log_tail()}")
    # What `verbena` itself used is closed a moment later.
    sizes = [Size(pid, stage.runtime)]

    def quiet():
        sizes.append(Size(pid, stage.runtime))
        return len(sizes) > 2 and sizes[-1].fds == sizes[-2].fds == sizes[-3].fds

    poll_until(quiet, 2, step=0.2)
    return sizes[-1]


def sockets(pid):
    """The process's sockets and what they are connected to, a line each."""
    done = subprocess.run(["ss", "-anp", "-x", "-u", "-t", "-f", "netlink"], capture_output=True,
                          text=True, check=False, stdin=subprocess.DEVNULL)
    more = subprocess.run(["ss", "-anpxut"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    return "\n".join(line for line in (done.stdout + more.stdout).splitlines()
                     if f"pid={pid}," in line)


def compare(before, after, pid):
    """Failure where more is used than before. (On a loaded machine the last connection of before may
    not be closed yet when it is looked at. After many programs the daemon parks sockets in a pair
    of its own, where a user may not have many descriptors.)"""
    more = collections.Counter(after.fds) - collections.Counter(before.fds)
    require(not more or more == {"socket:": 2},
            f"descriptors: {before.fds} before, {after.fds} after\n{sockets(pid)}")
    require(after.mapped == before.mapped,
            f"memory files are mapped: {before.mapped} before, {after.mapped} after")
    require(after.files == before.files, f"files: {before.files} before, {after.files} after")
    # A sanitizer keeps what was freed.
    require(SANITIZE or after.resident_kib <= before.resident_kib + MEMORY_MARGIN_KIB,
            f"the daemon grew from {before.resident_kib} to {after.resident_kib} KiB, by more than "
            f"{MEMORY_MARGIN_KIB}")


def soak(stage, chance, seconds):
    """Warms up, measures, soaks, measures again."""
    witness = stage.start("ibv_asyncwatch")
    require(poll_until(stage.clients, 20 * SLOW), "the witness doesn't open its device")
    live(stage, chance, WARM_UP_S)
    daemons = stage.daemons()
    require(len(daemons) == 1, f"{len(daemons)} daemons: {daemons}")
    before = settled(stage, daemons[0], witness)
    programs, kills = live(stage, chance, seconds)
    require(stage.daemons() == daemons, f"the daemon was replaced: {stage.daemons()}\n"
            f"{stage.log_tail()}")
    after = settled(stage, daemons[0], witness)
    print(f"      {programs} programs and {kills} kills in {seconds} s; left: 0 objects, 0 links, 0 "
          "pinned bytes\n"
          f"      the daemon's descriptors: {len(before.fds)} before, {len(after.fds)} after; of "
          f"these memory files: {sum(before.memory_files().values())} before, "
          f"{sum(after.memory_files().values())} after (the witness's)\n"
          f"      the daemon's memory: {before.resident_kib} KiB before, {after.resident_kib} KiB "
          f"after (allowed: {MEMORY_MARGIN_KIB} more)", flush=True)
    compare(before, after, daemons[0])
    require(witness.running(), "the witness has ended")
    witness.kill()
    witness.popen.wait()
    stage.expect_no_clients(20)
    last = Size(daemons[0], stage.runtime)
    require(last.mapped == list(OWN_FILES) and last.memory_files() == OWN_FILES,
            f"memory files are left: {last.mapped} {last.memory_files()}")


def main():
    """One case, as long as it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    given = parser.parse_args()
    need_programs("ibv_rc_pingpong", "ib_send_bw")
    if os.geteuid() == 0:
        own_network()  # another test's daemon may give port 4791 back meanwhile, and this one takes it
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
