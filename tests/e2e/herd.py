#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Fifty programs at the same instant: one daemon, all succeed, and it leaves when idle.

The programs wait at the reading end of one pipe; closing its other end releases them together. The
directory is, in turn, empty, in use, and left behind by a daemon that was killed.
"""
import os
import signal
import sys
import time

from lib import (FULL, SANITIZER_RUNTIME, SLOW, Stage, Suite, need_programs, pid_alive,
                 poll_until, require, tail)

HERD = 50


def release(stage, count, *command):
    """Starts `count` programs that begin at one instant; returns their Processes."""
    reading, writing = os.pipe()
    # A shell doesn't run with the thread sanitizer's run time in it.
    gate = ["sh", "-c", 'read -r _ <&"$0"; exec env "$@"', reading,
            f"LD_PRELOAD={SANITIZER_RUNTIME}"]
    herd = [stage.start(*gate, *command, pass_fds=(reading,), preload=False)
            for _ in range(count)]
    os.close(reading)
    time.sleep(0.3)  # all of them have reached their `read`
    os.close(writing)
    return herd


def one_daemon(stage):
    """The pid of the only daemon; those that lost the race may need a moment to leave."""
    poll_until(lambda: len(stage.daemons()) == 1, 5)
    daemons = stage.daemons()
    require(len(daemons) == 1, f"{len(daemons)} daemons: {daemons}\n{stage.log_tail()}")
    with open(os.path.join(stage.runtime, "verbenad.pid"), encoding="ascii") as file:
        written = int(file.read())
    require(written == daemons[0], f"the pid file says {written}, but {daemons[0]} runs")
    return daemons[0]


def all_succeed(stage):
    """ibv_devinfo fifty times at once."""
    for process in release(stage, HERD, "ibv_devinfo"):
        text = process.expect(40 * SLOW)
        require("verbena0" in text, f"a program saw no device\n{tail(text)}")


def all_share(stage):
    """Fifty programs that stay: the one daemon has every one of them as its client."""
    herd = release(stage, HERD, "ibv_asyncwatch")
    wanted = {process.pid for process in herd}

    def present():
        return {client["pid"] for client in stage.clients() if client["contexts"]}

    poll_until(lambda: present() >= wanted, 30)
    missing = wanted - present()
    ended = [process for process in herd if not process.running()]
    require(not ended, f"{len(ended)} ended by themselves, the first:\n" +
            (tail(ended[0].output()) if ended else ""))
    require(not missing, f"{len(missing)} of {HERD} are not clients of the daemon\n"
            f"{stage.log_tail()}")
    daemon = one_daemon(stage)
    for process in herd:
        process.kill()
    for process in herd:
        process.wait(5 * SLOW)
    stage.expect_no_clients()
    return daemon


def leaves(stage):
    """Without clients the daemon ends by itself and takes its sockets along."""
    daemon = one_daemon(stage)
    require(poll_until(lambda: not pid_alive(daemon), 5), f"verbenad {daemon} stays when idle")
    left = set(os.listdir(stage.runtime)) - {"devices", "lock", "log", "roster", "space", "verbenad.pid"}
    require(not left, f"it left {', '.join(sorted(left))} behind")


def after_a_crash(stage):
    """A killed daemon's sockets are no obstacle for the next fifty."""
    stage.run("ibv_devinfo")
    first = one_daemon(stage)
    os.kill(first, signal.SIGKILL)
    poll_until(lambda: not pid_alive(first), 5)
    all_succeed(stage)
    require(one_daemon(stage) != first, "the killed daemon still serves")


def directory_removed(stage):
    """A daemon whose directory has vanished must not spin: it leaves, or waits at no cost."""
    stage.run("ibv_devinfo")
    daemon = one_daemon(stage)
    for name in os.listdir(stage.runtime):
        os.unlink(os.path.join(stage.runtime, name))
    os.rmdir(stage.runtime)
    gone = poll_until(lambda: not pid_alive(daemon), 3)
    os.mkdir(stage.runtime, 0o700)
    if not gone:
        os.kill(daemon, signal.SIGKILL)
    require(gone, f"verbenad {daemon} stays when its directory is gone")


def main():
    """All cases."""
    need_programs("ibv_devinfo", "ibv_asyncwatch")
    suite = Suite("herd")
    stage = Stage(idle_ms=700)
    for turn in range(5 if FULL else 2):
        suite.case(f"{HERD} programs at once, all succeed ({turn + 1})", all_succeed, stage)
        suite.case("the daemon leaves when idle", leaves, stage)
    suite.case(f"{HERD} programs share one daemon", all_share, stage)
    suite.case(f"{HERD} programs after a crash of the daemon", after_a_crash, stage)
    suite.case("the directory is removed", directory_removed, stage)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
