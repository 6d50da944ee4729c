#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""gdb, started outside, finds the symbols of a program under `verbena run`.

The program is in a mount namespace of `verbena run`'s, and its libraries come from the build. gdb
attaches by the process's number, finds our library, its internal functions with their files, and
can say where the program waits. gdb looks for the files in the program's mount namespace; an
ordinary user may not enter that, and `set sysroot /` has gdb look for them where itself is.

usage: debugger.py [WORD...]    the cases whose names have a WORD
"""
import os
import re
import subprocess
import sys

from lib import (BUILD, PORTS, SANITIZE, SKIPPED, SLOW, Stage, Suite, need_programs, poll_until,
                 port_listened, require, tail)

# A call of libibverbs, and a function that only its symbol table has.
EXPORTED, INTERNAL = "ibv_open_device", "engine_start"


def enters(pid):
    """Whether gdb can enter the program's mount namespace, and has the program's root there."""
    done = subprocess.run(["nsenter", "-t", str(pid), "-m", "stat", "-c", "%d:%i", "/"], check=False,
                          capture_output=True, text=True, timeout=60 * SLOW)
    there = os.stat(f"/proc/{pid}/root/")
    return done.stdout.strip() == f"{there.st_dev}:{there.st_ino}"


def look(stage, pid, *commands):
    """What gdb says; it attaches, and lets the program go on afterwards."""
    words = [word for command in commands for word in ("-ex", command)]
    early = [] if enters(pid) else ["-iex", "set sysroot /"]
    return stage.start("gdb", "-nx", "-batch", *early, "-p", str(pid), *words, "-ex", "detach", plain=True,
                       preload=False).expect(120 * SLOW)


def waiting_program(stage):
    """One that has opened the device and waits for its peer."""
    port = PORTS.take()
    process = stage.start("ibv_rc_pingpong", "-g", "0", "-p", str(port))
    poll_until(lambda: not process.running() or port_listened(port, process.pid), 30)
    require(process.running(), tail(process.output()))
    return process


def symbols(stage):
    """Our library, and what is in it."""
    process = waiting_program(stage)
    try:
        if os.readlink(f"/proc/{process.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            print("      not run: the program has no mount namespace of its own")
            return
        if os.geteuid() == 0 and not enters(process.pid):
            print("      not run: in a chroot gdb finds no files of another mount namespace")
            return
        text = look(stage, process.pid, "info sharedlibrary libibverbs",
                    f"info address {EXPORTED}", f"info address {INTERNAL}", "bt")
        require(re.search(rf"Yes +(?:target:)?{re.escape(BUILD)}/\S*libibverbs\.so\.1", text),
                f"our library isn't there with its symbols:\n{tail(text)}")
        for name in (EXPORTED, INTERNAL):
            require(re.search(rf'Symbol "{name}" is (a function at|at) ', text),
                    f"{name} isn't found:\n{tail(text)}")
        require(re.search(r"^#\d+ .* in main ", text, re.MULTILINE) or "accept" in text,
                f"gdb can't say where the program waits:\n{tail(text)}")
        require(process.running(), "the program didn't go on")
    finally:
        process.kill()
        process.popen.wait()


def main():
    """All cases."""
    need_programs("gdb", "ibv_rc_pingpong")
    if SANITIZE:
        print("skipped: a sanitizer's run time doesn't let a debugger attach")
        sys.exit(SKIPPED)
    suite = Suite("debugger")
    stage = Stage()
    suite.case("symbols", symbols, stage)
    suite.stage_closed(stage)
    suite.end()


main()
