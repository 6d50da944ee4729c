#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`verbena resources` has a table for each kind of object, and nothing is left of a killed process.

The program (holds.c) has an object of each kind, and each type of queue pair, SRQ and region.
"""
import os

from lib import BUILD, VERBENA, Stage, Suite, poll_until, require, tail

# kind: how many the program has, and the title of the table
KINDS = {
    "context": (1, "open devices"), "pd": (1, "protection domains"), "mr": (4, "memory regions"),
    "mw": (2, "memory windows"), "dm": (1, "device memory"), "cq": (2, "completion queues"),
    "qp": (7, "queue pairs"), "flow": (1, "flow rules"), "srq": (3, "shared receive queues"),
    "xrcd": (1, "XRC domains"), "ah": (1, "address handles"),
    "channel": (1, "completion channels"),
}


def counts(stage, pid):
    """How many objects of each kind the process has."""
    reply = stage.resources() or {}
    return {kind: sum(entry.get("pid") == pid for entry in reply.get(kind, [])) for kind in KINDS}


def held_and_gone(stage):
    """All are listed, each kind in a table of its own; then the process is killed."""
    program = stage.start(os.path.join(BUILD, "tests", "e2e", "holds"))
    require(poll_until(lambda: "ready" in program.output() or not program.running(), 60) and
            program.running(), tail(program.output()))
    wanted = {kind: count for kind, (count, _) in KINDS.items()}
    have = counts(stage, program.pid)
    require(have == wanted, f"it has {have}")
    text = stage.run(VERBENA, "resources", plain=True, preload=False)
    for kind, (count, title) in KINDS.items():
        require(f"{title} ({count})" in text, f"no table `{title} ({count})`\n{tail(text)}")
        alone = stage.run(VERBENA, "resources", kind, plain=True, preload=False)
        require(alone.startswith(title), f"`resources {kind}` says\n{tail(alone)}")
    program.kill()
    program.wait(20)
    require(poll_until(lambda: not any(counts(stage, program.pid).values()), 60),
            f"left behind: {counts(stage, program.pid)}")


def main():
    """All cases."""
    suite = Suite("holds")
    stage = Stage()
    suite.case("each kind is listed, and gone with its process", held_and_gone, stage)
    suite.stage_closed(stage)
    suite.end()


main()
