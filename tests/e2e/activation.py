#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbenad with sockets that a service manager hands in; this script plays the service manager.

It makes the sockets, starts the daemon when somebody waits in one, as systemd does, and starts the
next when that one ends or is killed. Programs must not notice, and the sockets' files must stay.
"""
import os
import select
import signal
import socket
import stat
import subprocess
import sys

from lib import (BUILD, PORTS, SKIPPED, SLOW, Stage, Suite, enter_namespace, need_programs,
                 poll_until, port_listened, require, tail)

VERBENAD = os.path.join(BUILD, "bin", "verbenad")
FIRST_FD = 3


class Manager:
    """Three listening sockets in the stage's directory, and at most one daemon."""

    def __init__(self, stage):
        self.stage = stage
        self.daemon = None
        self.stored = None  # a descriptor that the daemon wants kept
        self.nodes = ["uverbs0", "ctl", "rdma_cm"]
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(os.path.join(stage.directory, "notify"))
        self.notify.settimeout(20 * SLOW)
        self.sockets = [self.listen("uverbs0", socket.SOCK_SEQPACKET),
                        self.listen("ctl", socket.SOCK_STREAM),
                        self.listen("rdma_cm", socket.SOCK_SEQPACKET)]

    def listen(self, name, kind):
        """A socket as a socket unit makes it."""
        new = socket.socket(socket.AF_UNIX, kind)
        new.bind(os.path.join(self.stage.runtime, name))
        os.chmod(os.path.join(self.stage.runtime, name), 0o640)
        new.listen(64)
        return new

    def wanted(self, seconds):
        """Whether somebody waits in a socket within so many seconds."""
        return bool(select.select(self.sockets, [], [], seconds * SLOW)[0])

    def start(self, *options, order=(0, 1, 2), names=None, status=None):
        """Starts the daemon with the sockets; waits until it is ready, or has ended (status)."""
        given = [self.sockets[i] for i in order]

        def hand_in():
            for i, one in enumerate(given):  # above all that are taken, then into their places
                os.dup2(one.fileno(), 100 + i)
            for i in range(len(given)):
                os.dup2(100 + i, FIRST_FD + i)
                os.close(100 + i)

        environment = dict(self.stage.environment, LISTEN_FDS=str(len(given)),
                           NOTIFY_SOCKET=os.path.join(self.stage.directory, "notify"))
        if names:
            environment["LISTEN_FDNAMES"] = names
        # The pid is only known in the child: a shell puts it in.
        words = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", VERBENAD, *options]
        with open(os.path.join(self.stage.runtime, "log"), "ab") as log:
            self.daemon = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log, close_fds=False,
                                           preexec_fn=hand_in)
        if status is not None:
            got = self.daemon.wait(20 * SLOW)
            require(got == status, f"ended with {got}, not {status}\n{self.stage.log_tail()}")
            return
        said = self.hear()
        require(said == b"READY=1", f"it says {said} instead of being ready")

    def hear(self):
        """The next that the daemon says; what it wants stored is taken on the way."""
        while True:
            said, fds, _, _ = socket.recv_fds(self.notify, 100, 1)
            if said != b"FDSTORE=1\nFDNAME=verbena-park":
                return said
            require(len(fds) == 1, "it stores nothing")
            self.forget()
            self.stored = socket.socket(fileno=fds[0])

    def forget(self):
        """As systemd does when the service is stopped."""
        if self.stored:
            self.stored.close()
        self.stored = None

    def files_stay(self):
        """The sockets' files are those that were made, with their modes."""
        for name in self.nodes:
            mode = os.stat(os.path.join(self.stage.runtime, name)).st_mode
            require(stat.S_ISSOCK(mode) and mode & 0o777 == 0o640, f"{name} has mode {mode:o}")

    def expect_end(self, status=0):
        """The daemon ends by itself."""
        got = self.daemon.wait(20 * SLOW)
        require(got == status, f"it ended with {got}\n{self.stage.log_tail()}")
        self.files_stay()


def program_starts_it(stage, manager, *options, **how):
    """A program waits in the socket until the daemon is there, and gets its answer."""
    program = stage.start("ibv_devinfo")
    require(manager.wanted(20), "nobody came to the socket")
    manager.start(*options, **how)
    text = program.expect(20 * SLOW)
    require("verbena0" in text, f"no device\n{tail(text)}")
    manager.expect_end()  # idle


def traffic(stage, manager):
    """Traffic between programs; the daemon is killed in it, and the next one gets them back."""
    port = PORTS.take()
    words = ["ib_send_bw", "-F", "-p", port, "-s", 4096, "-D", 5]
    server = stage.start(*words)
    require(manager.wanted(20), "nobody came to the socket")
    manager.start()
    poll_until(lambda: port_listened(port), 20)
    client = stage.start(*words, "127.0.0.1")

    def connected():
        return sum(one["objects"]["qp"] for one in stage.clients()) >= 2

    require(poll_until(connected, 20), f"no traffic\n{tail(server.output())}")
    manager.daemon.send_signal(signal.SIGKILL)
    manager.daemon.wait()
    require(manager.wanted(20), "the programs don't come to the socket for the next daemon")
    manager.start()
    require(poll_until(connected, 10), f"the programs did not come back\n{stage.log_tail()}")
    stage.finish_pair(server, client, 30)
    stage.expect_no_clients()
    manager.expect_end()


def stored_sockets(stage, manager):
    """The daemon is killed; nobody but the manager brings the next one the sockets of the wire."""
    program = stage.start("ibv_asyncwatch")
    require(manager.wanted(20), "nobody came to the socket")
    manager.forget()
    manager.start()
    require(poll_until(stage.clients, 10), f"no client\n{tail(program.output())}")
    require(stage.status()["wire"]["state"] == "open", f"no wire: {stage.status()['wire']}")
    require(select.select([manager.notify], [], [], 20 * SLOW)[0], "nothing is stored")
    program.kill(signal.SIGSTOP)
    manager.daemon.send_signal(signal.SIGKILL)
    manager.daemon.wait()
    manager.notify.setblocking(False)
    try:
        manager.hear()
    except BlockingIOError:
        pass
    manager.notify.settimeout(20 * SLOW)
    require(manager.stored, "nothing is stored")
    manager.sockets.append(manager.stored)
    manager.start(order=(0, 1, 2, 3), names="uverbs0:ctl:rdma_cm:verbena-park")
    manager.sockets.pop()
    require(stage.status()["wire"]["state"] == "open", f"no wire: {stage.status()['wire']}")
    another = stage.start("ibv_asyncwatch")
    require(poll_until(lambda: any(one["pid"] == another.pid for one in stage.clients()), 10),
            f"no second client\n{tail(another.output())}")
    wire = stage.status()["wire"]
    require(wire["state"] == "open" and "why" not in wire, f"it isn't as it was: {wire}")
    program.kill(signal.SIGCONT)
    require(poll_until(lambda: len(stage.clients()) == 2, 10), "the first doesn't come back")
    for one in (program, another):
        one.kill(15)
        one.wait(5 * SLOW)
    manager.expect_end()
    manager.forget()


def wrong_sockets(stage, manager):
    """What isn't a node is refused with a line that says what to do."""
    manager.sockets.append(manager.listen("other", socket.SOCK_STREAM))
    manager.start(order=(0, 3), status=1)
    require("ListenSequentialPacket=" in stage.log(), f"no clear line\n{stage.log_tail()}")
    manager.start(order=(1, 1), status=1)
    manager.start("--runtime-dir", "/run/somewhere-else", status=1)
    require("change runtime-dir or verbenad.socket" in stage.log(), stage.log_tail())
    manager.files_stay()
    manager.sockets.pop().close()
    os.unlink(os.path.join(stage.runtime, "other"))


def main():
    """All cases."""
    need_programs("ibv_devinfo", "ib_send_bw", "ibv_asyncwatch")
    problem = enter_namespace()  # the port is this test's own there
    if problem:
        print(problem)
        sys.exit(SKIPPED)
    suite = Suite("activation")
    stage = Stage(idle_ms=400)
    manager = Manager(stage)
    suite.case("a program starts it", program_starts_it, stage, manager)
    suite.case("sockets in the other order", program_starts_it, stage, manager, order=(2, 1, 0))
    suite.case("sockets known by name", program_starts_it, stage, manager, order=(2, 1, 0),
               names="rdma_cm:ctl:uverbs0")
    suite.case("sockets with the unit's name", program_starts_it, stage, manager, "--system",
               "--runtime-dir", stage.runtime, "--idle-ms", "400",
               names="verbenad.socket:verbenad.socket:verbenad.socket")
    suite.case("killed in traffic", traffic, stage, manager)
    suite.case("the manager keeps the wire's sockets", stored_sockets, stage, manager)
    suite.case("wrong sockets", wrong_sockets, stage, manager)
    manager.nodes = ["uverbs0"]  # the daemon makes the others, and takes them away
    suite.case("only the device's socket", program_starts_it, stage, manager, order=(0,))
    for one in manager.sockets:
        one.close()
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
