#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The run-time directory's file system is full, of bytes or of files, from the start or suddenly.

What can go on does: data, connections, objects. What can't says what is full and what to do; and
everything works again once there is room. The full file system is a small tmpfs in a mount
namespace of this test's own.
"""
import os
import shutil
import signal
import subprocess
import sys

from lib import PORTS, SKIPPED, Stage, Suite, need_programs, poll_until, require

NAMESPACE = "VERBENA_TEST_NAMESPACE"


def enter_namespace():
    """Runs this script again where it may mount; skipped where that can't be had."""
    if NAMESPACE in os.environ:
        return
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", "--propagation", "private", *user, "--"]
    if subprocess.run([*command, "true"], check=False).returncode:
        print("skipped: a mount namespace can't be had here")
        sys.exit(SKIPPED)
    os.environ[NAMESPACE] = "1"
    os.execvp("unshare", [*command, sys.executable, *sys.argv])


class SmallStage(Stage):
    """A stage whose run-time directory is a small file system."""

    def __init__(self, options, **more):
        super().__init__(**more)
        self.mount(options)

    def mount(self, options):
        """Puts a tmpfs there."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "none",
                        self.runtime], check=True)

    def fill(self):
        """Not a byte is free."""
        with open(os.path.join(self.runtime, "filler"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        require(os.statvfs(self.runtime).f_bavail == 0, "not full")

    def make_room(self):
        """The filler is gone."""
        os.unlink(os.path.join(self.runtime, "filler"))

    def close(self):
        """The file system ends with the stage."""
        trouble = super().close()
        subprocess.run(["umount", "--lazy", self.runtime], check=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        return trouble


def pingpong_words(*options):
    """A pingpong that checks its data, and its port."""
    port = PORTS.take()
    return port, ["ibv_rc_pingpong", "-g", 0, "-p", port, "-c", *options]


def talk(stage, *options):
    """Two programs that begin now exchange data."""
    port, words = pingpong_words(*options)
    stage.pair(words, words + ["127.0.0.1"], port)


def no_bytes(stage):
    """A daemon without a log, and all that one wants from a daemon."""
    stage.fill()
    talk(stage)
    clients = stage.status()
    require(clients is not None, "the daemon isn't to be spoken to")
    stage.run("ibv_devinfo")
    stage.expect_no_clients()
    stage.make_room()


def no_files(stage):
    """Not even a socket: every program says what is full, and how to go on."""
    taken = []
    try:
        while True:
            path = os.path.join(stage.runtime, f"taken{len(taken)}")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            taken.append(path)
    except OSError:
        pass
    for room in ("nothing", "a lock", "a lock and a log"):
        program = stage.start("ibv_devinfo")
        require(program.wait(20) != 0, f"it works with room for {room}")
        said = program.output()
        require(" is full; make room" in said or "No space left" in said,
                f"with room for {room}: {said}")
        require(poll_until(lambda: not stage.daemons(), 5), "a daemon that can't be reached")
        os.unlink(taken.pop())
    for path in taken:
        os.unlink(path)
    talk(stage)


def fills_in_traffic(stage):
    """It fills up under running programs; the daemon is killed; they return to the next one."""
    port, words = pingpong_words("-n", 10)
    stage.pair(words, words + ["127.0.0.1"], port)
    port = PORTS.take()
    words = ["ib_send_bw", "-F", "-p", port, "-s", 4096, "-D", 4]
    pair = stage.start_pair(words, words + ["127.0.0.1"], port)
    require(poll_until(lambda: len(stage.clients()) == 2, 10), "no two clients")
    stage.fill()
    talk(stage)
    old = stage.daemons()
    require(len(old) == 1, f"daemons {old}")
    os.kill(old[0], signal.SIGKILL)
    require(poll_until(lambda: not stage.daemons(), 5), "it lives")
    talk(stage)
    stage.finish_pair(*pair, 30)
    stage.expect_no_clients()
    require(stage.daemons() and stage.daemons() != old, "no next daemon")
    stage.make_room()


def main():
    """All cases."""
    enter_namespace()
    need_programs("ibv_rc_pingpong", "ibv_devinfo", "ib_send_bw")
    suite = Suite("full_disk")
    for case, options in ((no_bytes, "size=16k"), (no_files, "size=1m,nr_inodes=11"),
                          (fills_in_traffic, "size=64k")):
        stage = SmallStage(options, idle_ms=1500)
        suite.case(case.__name__.replace("_", " "), case, stage)
        suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
