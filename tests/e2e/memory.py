#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Converted memory (docs/memory.md) where the system refuses what it takes, and in programs that
know nothing of it. Where memory can't be converted, it stays private, one line at VERBENA_LOG=info
says why, and nothing fails that didn't fail before.

usage: memory.py [WORD...]    the cases whose names have a WORD
"""
import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from lib import (BUILD, LIBC, SANITIZE, SKIPPED, VERBENA, Failure, Stage, Suite, poll_until, require,
                 tail)

UNCONVERTED = os.path.join(BUILD, "tests", "e2e", "unconverted")
UPHEAVAL = os.path.join(BUILD, "tests", "e2e", "upheaval")
HEAP = os.path.join(BUILD, "tests", "e2e", "heap_registered.so")
NOTHING = os.path.join(BUILD, "tests", "e2e", "static_nothing")
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"

PYTHON = """
import multiprocessing, os, subprocess, tempfile, threading
assert subprocess.run(["true"]).returncode == 0
assert sum(multiprocessing.get_context("fork").Pool(3).map(abs, range(-1000, 0))) == 500500
for i in range(20):
    pid = os.fork()
    if not pid:
        text = "x" * 100000
        os._exit(len(text.replace("x", "yy")) != 200000)
    assert os.waitpid(pid, 0)[1] == 0
kept = [bytes([i % 256]) * i for i in range(3000)]
thread = threading.Thread(target=lambda: [kept.append(bytes(1000)) for i in range(1000)])
thread.start()
assert subprocess.check_output("echo $((6*7))", shell=True) == b"42\\n"
thread.join()
assert all(kept[i] == bytes([i % 256]) * i for i in range(3000))
"""


def stage(**more):
    """Everything in it converts memory and says why not."""
    return Stage(VERBENA_MEMORY="shared", VERBENA_LOG="info", **more)


def reasons(text):
    """Why regions weren't converted."""
    return re.findall(r"aren't converted: (.*)", text)


def refused(case, converted, pattern, *words, **options):
    """The program's regions, of which so many are converted, and the line for each other one."""
    with stage() as its:
        text = its.run(UNCONVERTED, case, *words, seconds=60, **options)
        require(f"converted {converted} of 2" in text, tail(text))
        said = reasons(text)
        require(len(said) == 2 - converted and all(re.search(pattern, line) for line in said),
                f"not one line for each region: {said}\n{tail(text)}")
        require("warn" not in text, tail(text))


def group_make(folder, limit):
    """A memory cgroup of the first kind in a file system that is mounted there: its folder."""
    clone_newns, ms_rec_private = 0x20000, 0x44000
    require(LIBC.unshare(clone_newns) == 0 and
            LIBC.mount(b"none", b"/", None, ms_rec_private, None) == 0 and
            LIBC.mount(b"none", folder.encode(), b"cgroup", 0, b"memory") == 0,
            os.strerror(ctypes.get_errno()))
    group = tempfile.mkdtemp(prefix="verbena-test-", dir=folder)
    with open(f"{group}/memory.limit_in_bytes", "w", encoding="ascii") as file:
        file.write(str(limit))
    return group


def cgroup():
    """All memory of its cgroup is in use when it registers, forks and deregisters."""
    limit = 192 << 20
    with stage() as its:
        folder = os.path.join(its.directory, "cgroup")
        os.mkdir(folder)
        try:
            group = group_make(folder, limit)
        except (OSError, Failure) as error:
            print(f"      not run: no memory cgroup can be made ({error})")
            return
        try:
            its.run(UNCONVERTED, "plain")  # the daemon is outside
            text = its.run("sh", "-c", f"echo $$ > {group}/cgroup.procs && exec {UNCONVERTED} "
                           f"cgroup {limit} {group}/memory.usage_in_bytes", seconds=60)
            require("converted 2 of 2" in text, tail(text))
        finally:
            poll_until(lambda: not removed(group), 10)
            LIBC.umount(folder.encode())


def removed(group):
    """None once the cgroup is gone: it may have a process that is ending."""
    try:
        os.rmdir(group)
    except OSError as error:
        return error
    return None


def secure():
    """Of a set-user-ID program the environment doesn't count."""
    if os.getuid() != 0:
        print("      not run: only root makes such a program")
        return
    with stage() as its, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = shutil.copy(UNCONVERTED, os.path.join(folder, "unconverted"))
        os.chmod(folder, 0o755)
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o4755)
        ends = []
        for memory in ("shared", ""):
            process = its.start(path, "plain", plain=True, environment={"VERBENA_MEMORY": memory})
            ends.append(process.wait(30))
            require("converted 2" not in process.output(), tail(process.output()))
        require(ends[0] == ends[1], f"it ends with {ends[0]}, and without the option with {ends[1]}")


def static():
    """A static program is started as without the option."""
    with stage() as its:
        its.run(VERBENA, "run", "--fast-memory", "--", NOTHING, plain=True)


def allocator():
    """A program whose allocator is jemalloc; random steps, and forks, on its blocks."""
    if not os.path.exists(JEMALLOC) or SANITIZE:
        print("      not run: no libjemalloc.so.2, or a sanitizer has the allocator")
        return
    with stage() as its:
        its.run(UPHEAVAL, "5", seconds=60, environment={"LD_PRELOAD": JEMALLOC})


def linked_in(name, *options):
    """A program that brings an allocator, or a sanitizer; random steps, and forks, on its blocks."""
    program = f"{UPHEAVAL}_{name}"
    if not os.path.exists(program):
        print(f"      not run: {program} isn't built")
        return
    with stage() as its:
        text = its.run(program, *options, "5", seconds=60)
        require(options or re.search(r": [1-9]\d* blocks converted", text), tail(text))
        require(not options or reasons(text), f"no line says why\n{tail(text)}")


def preloaded_by_others(library):
    """The sanitizers' run-time libraries by LD_PRELOAD, as programs that load sanitized libraries
    have them."""
    path = subprocess.run([os.environ.get("CC", "cc"), f"-print-file-name={library}"], check=False,
                          capture_output=True, text=True, timeout=60).stdout.strip()
    if not os.path.isabs(path):
        print(f"      not run: there is no {library}")
        return
    with stage(ASAN_OPTIONS="detect_leaks=0", TSAN_OPTIONS="report_bugs=0") as its:
        its.run(UPHEAVAL, "-p", "3", seconds=60, environment={"LD_PRELOAD": path})
        require(poll_until(lambda: not its.servers(), 60), "verbena-counts stays")


def python():
    """Registered blocks on the pages of a program that forks, has threads, and knows nothing."""
    with stage(HEAP_REGISTERED="") as its:
        log = os.path.join(its.directory, "heap")
        its.run("/usr/bin/python3", "-c", PYTHON, seconds=60,
                environment={"LD_PRELOAD": HEAP, "HEAP_REGISTERED": log})
        with open(log, encoding="ascii") as file:
            lines = file.read().splitlines()
        require("registered 24 converted 24" in lines and "changed" not in lines, str(lines))


def main():
    """Each case has a daemon of its own."""
    if SANITIZE == "thread":
        print("left out with the thread sanitizer, which has a thread in each program: nothing is "
              "converted there")
        sys.exit(SKIPPED)
    suite = Suite("memory")
    suite.case("nothing is refused", refused, "plain", 2, "")
    if platform.machine() == "x86_64":
        suite.case("a descriptor that comes late", refused, "late", 0, "a pipe has data")
    suite.case("no memory files", refused, "seccomp", 0, "refuses memory files")
    suite.case("no descriptors", refused, "descriptors", 1, "descriptor")
    suite.case("a set-user-ID program", secure)
    suite.case("another allocator", allocator)
    if not SANITIZE:
        # A sanitizer's own mappings and memory exceed these limits.
        suite.case("no mappings", refused, "mappings", 1, "nearly used up|refused to map")
        suite.case("a full memory cgroup", cgroup)
        suite.case("a static program", static)
        for name in ("jemalloc", "tcmalloc", "address"):
            suite.case(f"{name} linked in", linked_in, name)
        suite.case("thread linked in", linked_in, "thread", "-p")
        for name in ("libasan.so", "libtsan.so"):
            suite.case(f"{name} preloaded", preloaded_by_others, name)
        suite.case("python", python)
    suite.end()


main()
