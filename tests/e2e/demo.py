#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`make demo`, as far as it can be judged without a person: it ends with 0 and shows its results.

Also on a pseudo-terminal, where it uses colours, and with a program that is missing.
"""
import os
import re
import shutil
import sys

from lib import BUILD, SANITIZE, SKIPPED, SLOW, Stage, Suite, need_programs, require, tail

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo")
# What a person should see.
SHOWN = (r"verbena0 +\t[0-9a-f]{16}", r"iters in .* usec/iter", r"RDMA_Write Latency Test",
         r"RDMA_Write BW Test", r"verbena run PROGRAM", r"verbena status")


def shows_everything(text):
    """Failure unless all of SHOWN is there."""
    missing = [pattern for pattern in SHOWN if not re.search(pattern, text)]
    require(not missing, f"it doesn't show {missing}\n{tail(text, 60)}")


def piped(stage):
    """Into a file: no escape sequences."""
    text = stage.run(DEMO, BUILD, plain=True, seconds=60)
    shows_everything(text)
    require("\x1b" not in text, f"escape sequences in a file\n{tail(text, 60)}")


def on_a_terminal(stage):
    """The headings are bold."""
    text = stage.run("script", "-qec", f"'{DEMO}' '{BUILD}'", "/dev/null", plain=True, seconds=60)
    shows_everything(text)
    require("\x1b[1m== " in text, f"no bold headings\n{tail(text, 60)}")


def without_programs(stage):
    """A missing program is named, together with what to do."""
    path = os.path.join(stage.directory, "few-programs")
    os.mkdir(path)
    for name in ("bash", "mktemp", "rm"):
        os.symlink(shutil.which(name), os.path.join(path, name))
    process = stage.start(DEMO, BUILD, plain=True, environment={"PATH": path})
    status, text = process.wait(20 * SLOW), process.output()
    require(status == 1, f"it ended with {status}\n{tail(text)}")
    require("ibv_devices is missing: `make deps` installs it" in text, f"no advice\n{tail(text)}")


def main():
    """All cases."""
    if SANITIZE == "thread":
        print("a shell doesn't run with the thread sanitizer's run time in it")
        sys.exit(SKIPPED)
    need_programs("script", "ibv_rc_pingpong", "ib_write_bw")
    suite = Suite("demo")
    stage = Stage()
    suite.case("into a file", piped, stage)
    suite.case("on a terminal", on_a_terminal, stage)
    suite.case("without the programs", without_programs, stage)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
