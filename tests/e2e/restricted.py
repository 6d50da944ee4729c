#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a container's seccomp filter forbids, call by call and all together: Verbena works, more
slowly where it must, and says why in one line at VERBENA_LOG=info.

The command, the programs and the daemon they start run under the filter (forbid.py). What is
forbidden fails with EPERM, as with Docker's own filter; all together with ENOSYS, too, as with
Podman's. memfd_create(), which all of them allow, is required: without it nothing starts, and the
daemon's log has the errno.

usage: restricted.py [WORD...]    the cases whose names have a WORD
"""
import os
import re
import sys

from forbid import supported
from lib import (BUILD, PORTS, SANITIZE, SKIPPED, SLOW, VERBENA, Stage, Suite, need_programs,
                 port_listened, poll_until, require, tail)

HERE = os.path.dirname(os.path.abspath(__file__))
FAULTS = os.path.join(BUILD, "tests", "e2e", "faults")
RING = r"can't be reached by process_vm_readv \({}\): data goes through the ring"
# calls -> what the programs or the daemon say once (each process that meets it); None: nothing is
# lost without them (pidfd_open: kernels since 6.5 give the daemon such a descriptor otherwise).
CASES = {
    "process_vm_readv,process_vm_writev": RING,
    "pidfd_open,pidfd_getfd,pidfd_send_signal": None,
    "unshare,setns": r"a private mount namespace for it can't be had: .*--no-sysfs",
    "io_uring_setup,io_uring_enter,io_uring_register": None,
    "perf_event_open": None,
    "ptrace": None,
}
TEXTS = {"EPERM": "Operation not permitted", "ENOSYS": "Function not implemented"}


class RestrictedStage(Stage):
    """Everything that it starts is filtered."""

    def __init__(self, error, calls):
        super().__init__(VERBENA_LOG="info")
        self.filter = [sys.executable, os.path.join(HERE, "forbid.py"), error, calls]

    def start(self, *command, **options):
        words = self.filter + [VERBENA, "run", "--", *(str(word) for word in command)]
        return super().start(*words, plain=True, **options)


def pingpong(stage, *words):
    """A pair whose data are compared; returns what both said."""
    port = PORTS.take()
    command = ["ibv_rc_pingpong", "-g", "0", "-c", "-p", str(port), *words]
    one = stage.start(*command)
    poll_until(lambda: not one.running() or port_listened(port, one.pid), 20)
    require(one.running(), tail(one.output()))
    two = stage.start(*command, "127.0.0.1")
    texts = [process.expect(60 * SLOW) for process in (two, one)]
    for text in texts:
        require("iters in" in text and "invalid data" not in text, tail(text))
    return texts


def said(text, pattern):
    """The lines that say it."""
    return [line for line in text.splitlines() if re.search(pattern, line)]


def works(error, calls, pattern):
    """Short and long messages arrive, and the line is there; once for each process that says it."""
    with RestrictedStage(error, calls) as stage:
        texts = pingpong(stage, "-n", "50", "-s", "4096")
        texts += pingpong(stage, "-n", "20", "-s", "1000000")
        log = stage.log()
        if pattern:
            pattern = pattern.format(TEXTS[error])
            lines = [said(text, pattern) for text in texts] + [said(log, pattern)]
            require(any(lines), "nothing says why:\n" + tail("\n".join(texts + [log]), 60))
            most = max(len(found) for found in lines[:-1])
            require(most <= 1, f"one process says it {most} times")
            require(len(set(lines[-1])) == len(lines[-1]), "the daemon repeats itself")
        trouble = stage.close()
        require(not trouble, trouble)


def data(error, calls):
    """The bytes of SENDs, WRITEs and READs of all sizes, compared by the fault suite's program."""
    with RestrictedStage(error, calls) as stage:
        text = Stage.start(stage, *stage.filter, os.path.join(HERE, "own-daemon"), FAULTS, "-c",
                           "local", "send_rc", "write_rc", "read_rc", "pieces",
                           plain=True).expect(250 * SLOW)
        require("4 passed, 0 failed" in text, tail(text))
        require(said(text, RING.format(TEXTS[error])), "nothing says why:\n" + tail(text))


def own_pids():
    """The programs of two containers that share a daemon: neither has a number in the other."""
    with Stage(VERBENA_LOG="info") as stage:
        port = PORTS.take()
        command = ["unshare", "--pid", "--fork", "--kill-child", "ibv_rc_pingpong", "-g", "0", "-c",
                   "-n", "50", "-s", "1000000", "-p", str(port)]
        one = stage.start(*command)
        poll_until(lambda: not one.running() or port_listened(port), 20)
        require(one.running(), tail(one.output()))
        two = stage.start(*command, "127.0.0.1")
        for process in (two, one):
            text = process.expect(60 * SLOW)
            require("iters in" in text and "invalid data" not in text, tail(text))
            lines = said(text, RING.format("another PID namespace"))
            require(len(lines) == 1, f"one process says it {len(lines)} times\n{tail(text)}")


def required(error, calls):
    """The program finds no device, and the daemon's log says why."""
    with RestrictedStage(error, calls) as stage:
        text = stage.start("ibv_devinfo").expect(20 * SLOW, status=255)
        require("ended at once" in text, tail(text))
        require(f": {TEXTS[error]}" in stage.log(), stage.log_tail())


def main():
    """All cases."""
    need_programs("ibv_rc_pingpong", "ibv_devinfo", "unshare")
    if SANITIZE:
        print("skipped: a sanitizer's run time makes such calls itself")
        sys.exit(SKIPPED)
    if not supported():
        print("skipped: the numbers of this machine's system calls aren't known")
        sys.exit(SKIPPED)
    suite = Suite("restricted")
    for calls, pattern in CASES.items():
        suite.case(calls, works, "EPERM", calls, pattern)
    for error in TEXTS:
        suite.case(f"all, {error}", works, error, ",".join(CASES), RING)
    for error in TEXTS:
        suite.case(f"data, {error}", data, error, ",".join(CASES))
    if os.geteuid() == 0:
        suite.case("other PID namespaces", own_pids)
    suite.case("memfd_create", required, "EPERM", "memfd_create")
    suite.end()


main()
