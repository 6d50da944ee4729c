#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Random kills on a fabric: the fabric itself (which is resumed), both subnet managers, programs in
the middle of their work, cables, switches, adapters. After each, what is left must settle: all
links active, all adapters reach one another, all have the LIDs that they had, one manager is the
master, and programs work. In the end, the fabric has no more descriptors, clients and memory than
it had in the beginning.

usage: chaos.py [--seconds N] [--seed N]
"""
import argparse
import os
import random
import subprocess
import sys
import time

from stage import BUILD, PATIENCE, Fabric, Failure, need, poll_until, require

VERBENA = os.path.join(BUILD, "bin", "verbena")
MANAGER = os.path.join(BUILD, "bin", "verbena-sm")
PROGRAMS = (("smpquery", "nodeinfo", "-D", "0"), ("ibnetdiscover",), ("saquery", "-p"),
            ("sminfo",), ("iblinkinfo",), ("perfquery",))


class Chaos:
    """A fat tree of 16 adapters with two managers."""

    def __init__(self, fabric, seed):
        self.fabric, self.dice = fabric, random.Random(seed)
        path = os.path.join(fabric.folder, "tree.net")
        subprocess.run([VERBENA, "fabric", "gen", "fat-tree", "--ports", "8", "--hosts", "16",
                        "-o", path], check=True, timeout=PATIENCE)
        fabric.start(path)
        self.topology = fabric.ask(op="topology", counters=False)
        self.hosts = [node["name"] for node in self.topology["nodes"] if node["type"] == "ca"]
        self.switches = [node["name"] for node in self.topology["nodes"]
                         if node["type"] == "switch"]
        self.trunks = [self.end(link["a"]) for link in self.topology["links"]
                       if all(self.topology["nodes"][link[end][0]]["type"] == "switch"
                              for end in "ab")]
        self.managers = {}
        for host in (self.hosts[0], self.hosts[-1]):
            self.manager_start(host)
        self.done = {}
        self.lids = None
        self.settle("the beginning")
        self.lids = self.lids_now()

    def end(self, end):
        return self.topology["nodes"][end[0]]["name"], end[1]

    def manager_start(self, host):
        """A manager that says what it does into a file that a failure shows."""
        with open(os.path.join(self.fabric.folder, f"sm-{host}"), "a", encoding="ascii") as log:
            self.managers[host] = subprocess.Popen(
                [MANAGER, "--poll", "200", "--sweep", "500"], cwd=self.fabric.folder, stderr=log,
                stdout=log, stdin=subprocess.DEVNULL, env=self.fabric.environment(host))
        self.fabric.children.append(self.managers[host])

    def lids_now(self):
        return {node["name"]: node["lid"]
                for node in self.fabric.ask(op="topology", counters=False)["nodes"]}

    def is_up(self):
        status = self.fabric.ask(op="status")
        return status["links_active"] == status["cables"]

    def all_reach_all(self):
        return all(self.fabric.ask(op="trace", **{"from": a, "to": b})["result"] == "ok"
                   for a in self.hosts for b in self.dice.sample(self.hosts, 4) if a != b)

    def settle(self, after):
        """What must be so again."""
        logs = [os.path.join(self.fabric.folder, f"sm-{host}") for host in self.managers]
        try:
            poll_until(lambda: self.is_up() and self.all_reach_all(),
                       f"after {after}: adapters don't reach one another")
        except Failure as failure:
            tails = "".join(self.fabric.log(path)[-600:] for path in logs)
            raise Failure(f"{failure}\n{self.fabric.ask(op='status')}\n{tails}") from failure
        require(self.lids is None or self.lids_now() == self.lids,
                f"after {after}: other LIDs\n{self.lids}\n{self.lids_now()}")

    # Actions

    def kill_fabric(self):
        self.fabric.kill()
        self.fabric.start("--resume")

    def kill_manager(self):
        host = self.dice.choice(list(self.managers))
        self.managers[host].kill()
        self.managers[host].wait()
        if self.dice.random() < 0.5:
            # The other one has to take over alone.
            other = next(name for name in self.managers if name != host)
            require(self.managers[other].poll() is None, f"the manager on {other} has ended")
            self.cut_and_mend()
        self.manager_start(host)

    def kill_programs(self):
        children = [self.fabric.spawn(self.dice.choice(self.hosts), *self.dice.choice(PROGRAMS))
                    for _ in range(12)]
        time.sleep(self.dice.random() * 0.1)
        for child in children:
            if self.dice.random() < 0.7:
                child.kill()
            child.wait(PATIENCE)
            self.fabric.children.remove(child)

    def cut_and_mend(self):
        node, port = self.dice.choice(self.trunks)
        self.fabric.ask(op="link", node=node, port=port, action="down")
        poll_until(self.all_reach_all, f"{node}/{port} is cut: adapters don't reach one another")
        self.fabric.ask(op="link", node=node, port=port, action="up")

    def flap(self):
        for node, port in self.dice.sample(self.trunks, 3):
            self.fabric.ask(op="link", node=node, port=port, action="flap")

    def reboot(self):
        away = [host for host in self.hosts if host not in self.managers]
        self.fabric.ask(op="power", node=self.dice.choice(self.switches + away), action="reboot")

    def programs_work(self):
        host, words = self.dice.choice(self.hosts), self.dice.choice(PROGRAMS)
        # A manager may be about to take over: then it doesn't answer for a moment.
        poll_until(lambda: not self.fabric.run(host, *words, check=False)[0],
                   f"`{' '.join(words)}` on {host} fails")

    def step(self):
        action = self.dice.choice((self.kill_fabric, self.kill_manager, self.kill_programs,
                                   self.cut_and_mend, self.flap, self.reboot))
        name = action.__name__
        self.done[name] = self.done.get(name, 0) + 1
        action()
        for host, child in list(self.managers.items()):
            # One whose device was away for too long ends: somebody starts it again.
            if child.poll() is not None:
                self.manager_start(host)
        self.settle(name)
        self.programs_work()

    def held(self):
        """(descriptors, programs on the fabric)"""
        return (len(os.listdir(f"/proc/{self.fabric.pid}/fd")),
                len(self.fabric.ask(op="status")["clients"]))


def main():
    """Goes on for so long; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    need("smpquery", "saquery", "ibnetdiscover")
    print(f"seed {options.seed}")
    with Fabric() as fabric:
        try:
            chaos = Chaos(fabric, options.seed)
            before = chaos.held()
            end = time.monotonic() + options.seconds
            while time.monotonic() < end:
                chaos.step()
            poll_until(lambda: chaos.held() <= before,
                       f"{before} descriptors and clients in the beginning")
            masters = [one["node"] for one in fabric.ask(op="status")["managers"]]
            require(sorted(masters) == sorted(chaos.managers), f"managers on {masters}")
        except Failure as failure:
            print(f"FAIL  {failure}")
            return 1
        print("ok    " + ", ".join(f"{count} {name}" for name, count in chaos.done.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
