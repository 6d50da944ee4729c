#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""An ordinary user where user namespaces are restricted, as on Ubuntu since 23.10: `verbena run` says
once what is missing, and the program runs as the same user, in the same namespaces, and has its device.

AppArmor can't be had here, so what it does is played: a filter lets unshare() fail (forbid.py), and
no_rights.so lets the new namespace have no rights (unshare() succeeds, the maps can't be written),
which is what Ubuntu 24.04 does with a program that no profile allows more.

usage: no_user_space.py [WORD...]    the cases whose names have a WORD
"""
import os
import shutil
import subprocess
import sys

from forbid import supported
from lib import (BUILD, PORTS, SANITIZE, SKIPPED, VERBENA, Stage, Suite, need_programs, require,
                 tail)

HERE = os.path.dirname(os.path.abspath(__file__))
NO_RIGHTS = os.path.join(BUILD, "tests", "e2e", "no_rights.so")
WARNING = "a private mount namespace for it can't be had: "
USER = 64123  # not the overflow user, as whom a user without a map appears
TEXTS = {"EPERM": "Operation not permitted", "EACCES": "Permission denied"}


def as_user():
    """The words that make root an ordinary user."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


class Restricted(Stage):
    """`verbena run` and the programs are an ordinary user's and restricted."""

    def __init__(self, how):
        super().__init__(VERBENA_SYSFS="")
        self.words = as_user()
        if how == "no rights":
            self.words += ["env", f"LD_PRELOAD={NO_RIGHTS}"]
        elif how:
            self.words += [sys.executable, os.path.join(HERE, "forbid.py"), how, "unshare,setns"]
        if os.geteuid() == 0:
            for path in (self.directory, self.runtime):
                os.chown(path, USER, USER)

    def start(self, *command, plain=False, **options):
        """Stage.start, under the restriction."""
        words = [] if plain else [VERBENA, "run", "--"]
        return super().start(*self.words, *words, *command, plain=True, **options)


def same_process(stage, text):
    """One warning with the reason; user, group and namespaces are what they were."""
    look = ["sh", "-c", "id -u; id -g; readlink /proc/self/ns/user /proc/self/ns/mnt"]
    before = stage.run(*look, plain=True)
    after = stage.run(*look)
    lines = after.splitlines(keepends=True)
    said = [line for line in lines if WARNING in line]
    require(len(said) == 1 and WARNING + text in said[0], f"not one warning\n{tail(after)}")
    require("--no-sysfs" in said[0], f"nothing says how to do without\n{tail(after)}")
    require("".join(line for line in lines if line not in said) == before,
            f"it was\n{before}and is\n{tail(after)}")


def device(stage):
    """A pair of the user's programs; the data are compared."""
    port = PORTS.take()
    words = ["ibv_rc_pingpong", "-g", "0", "-c", "-s", "65536", "-n", "100", "-p", port]
    for text in stage.pair(words, words + ["127.0.0.1"], port):
        require("100 iters" in text and "invalid data" not in text, f"no result\n{tail(text)}")


def quietly(stage):
    """With --no-sysfs nothing is said."""
    text = stage.run(VERBENA, "run", "--no-sysfs", "id", "-u", plain=True)
    require(text == stage.run("id", "-u", plain=True), tail(text))


def user_spaces():
    """Whether an ordinary user may make user namespaces here."""
    return not subprocess.run([*as_user(), "unshare", "-U", "true"], stderr=subprocess.DEVNULL,
                              check=False).returncode


def main():
    """All cases."""
    need_programs("ibv_rc_pingpong", "unshare", "env")
    if SANITIZE or not supported():
        print("skipped: a sanitizer's run time would be restricted as well, or the numbers of this "
              "machine's system calls aren't known")
        sys.exit(SKIPPED)
    if os.geteuid() == 0 and (not shutil.which("setpriv") or subprocess.run(
            [*as_user(), "true"], stderr=subprocess.DEVNULL, check=False).returncode):
        print("skipped: root can't become an ordinary user here")
        sys.exit(SKIPPED)
    suite = Suite("no_user_space")
    for how, text in (("EPERM", TEXTS["EPERM"]), ("EACCES", TEXTS["EACCES"]),
                      ("no rights", TEXTS["EACCES"])):
        if how == "no rights" and not user_spaces():
            print("      a namespace without rights is left out: users may make none here at all")
            continue
        stage = Restricted(how)
        suite.case(f"{how}: said, and nothing changes", same_process, stage, text)
        suite.case(f"{how}: the device", device, stage)
        suite.case(f"{how}: --no-sysfs", quietly, stage)
        suite.stage_closed(stage)
    suite.end()


main()
