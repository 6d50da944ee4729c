#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A process that attached to a daemon without a wire gets the wire of the next daemon.

It then reaches hosts by its own queue pairs, and executes what comes for its SRQ by an XRC target
of another process, whose socket gets the packets. The network is a namespace of the test's own.
"""
import os
import re
import signal
import sys

from lib import BUILD, Stage, Suite, poll_until, require, tail
from network import own_network

PROGRAM = os.path.join(BUILD, "tests", "e2e", "wire_later")


def replace_daemon(stage, config):
    """Kills the daemon; the next one has the wire. Returns when it is there."""
    old = stage.daemons()
    require(len(old) == 1, f"daemons: {old}")
    with open(config, "w", encoding="ascii") as file:
        file.write("wire = on\n")
    os.kill(old[0], signal.SIGKILL)
    require(poll_until(lambda: not set(old) & set(stage.daemons()), 10), "it lives")
    stage.run("ibv_devices")  # starts the next one


def wire_comes():
    """The whole story; see wire_later.c."""
    with Stage(VERBENA_CARRIER="wire", idle_ms=2000) as stage:
        config = os.path.join(stage.directory, "verbenad.conf")
        with open(config, "w", encoding="ascii") as file:
            file.write("wire = off\n")
        stage.environment["VERBENA_CONFIG"] = config
        domain = os.path.join(stage.directory, "domain")
        early = stage.start(PROGRAM, "early", domain)
        require(poll_until(lambda: "alone" in early.output(), 30), tail(early.output()))
        number = int(re.search(r"alone (\d+)", early.output())[1])
        replace_daemon(stage, config)
        # It has returned once the daemon shows its objects.
        require(poll_until(lambda: (stage.resources() or {}).get("srq"), 30), "it doesn't return")
        early.kill(signal.SIGUSR1)
        require(poll_until(lambda: "joined" in early.output() or not early.running(), 60),
                "it has no wire")
        stage.run(PROGRAM, "sender", domain, number, seconds=60)
        early.expect(60)
        require("received" in early.output(), tail(early.output()))


def main():
    """The case."""
    own_network()
    suite = Suite("wire_later")
    suite.case("a process gets the wire of the next daemon", wire_comes)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
