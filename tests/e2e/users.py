#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of different users under a system-wide verbenad, which runs as root.

Data moves between them, with Debian's programs and their checks; what one did not register for the
other stays its own (users.c); nobody enters who may not. Needs root, to become the users.
"""
import os
import re
import shutil
import subprocess
import sys

from lib import (BUILD, PORTS, SLOW, VERBENA, Process, Stage, Suite, need_programs, poll_until,
                 port_listened, require, sanitizer_environment, tail, SANITIZER_RUNTIME, SKIPPED)

ALICE, BOB, ROOT = 60001, 60002, 0


def as_user(user, *command):
    """The words that run a command as a user."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--",
            *map(str, command)]


class Machine(Stage):
    """A stage whose daemon is root's and serves all users."""

    def __init__(self, config=""):
        super().__init__()
        os.chmod(self.directory, 0o755)
        os.chmod(self.runtime, 0o755)
        self.config = os.path.join(self.directory, "conf")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(config)
        self.daemon = None

    def serve(self):
        """Starts the daemon."""
        words = [os.path.join(BUILD, "bin", "verbenad"), "--system", "--config", self.config,
                 "--runtime-dir", self.runtime, "--idle-ms", "never"]
        environment = dict(self.environment)
        if SANITIZER_RUNTIME:
            environment.update(sanitizer_environment(environment))
        self.daemon = Process(self, words, env=environment)
        require(poll_until(lambda: self.status() is not None, 10),
                f"no daemon\n{tail(self.daemon.output())}")

    def close(self):
        """Ends the daemon first: it never leaves by itself."""
        if self.daemon and self.daemon.running():
            self.daemon.kill(15)
            self.daemon.wait(20 * SLOW)
        return super().close()

    def log(self):
        """Standard error, here."""
        return self.daemon.output() if self.daemon else ""

    def ask(self, user, *command):
        """`verbena COMMAND` as a user: exit status and output."""
        done = subprocess.run(as_user(user, VERBENA, *command), env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=30 * SLOW)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def over_verbena(user, *command):
    """A program over Verbena, as a user."""
    return as_user(user, VERBENA, "run", "--", *command)


def exchange(stage, one, two, *command, pattern=None, forbidden=None):
    """A server of one user, a client of the other; returns the server's output."""
    port = PORTS.take()
    words = [*command, "-p", port]
    server = stage.start(*over_verbena(one, *words), plain=True,
                         environment={"VERBENA_LOG": "debug"})
    poll_until(lambda: not server.running() or port_listened(port), 20)
    client = stage.start(*over_verbena(two, *words, "127.0.0.1"), plain=True)
    text = stage.finish_pair(server, client, 60)[0]
    require(not pattern or re.search(pattern, text), f"no {pattern}\n{tail(text)}")
    require(not forbidden or forbidden not in text, f"{forbidden}\n{tail(text)}")
    links = re.findall(r"link to process \d+ at slot \d+ is up(.*)", text)
    require(links == [" (ring copies)"], f"the link is {links}, not through the ring\n{tail(text)}")
    return text


def attempts(stage, users, test):
    """users.c with these two users."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "users"), "-c", "local", test, plain=True,
              seconds=60, environment={"RIG_USERS": ",".join(map(str, users))})


def idle_link(stage, users, test):
    """idle.c with these two users: a link that a stranger's datagram made goes again."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "idle"), "-c", "local", test, plain=True,
              seconds=60,
              environment={"RIG_USERS": ",".join(map(str, users)), "VERBENA_LINK_IDLE_MS": "100"})


def privacy(stage):
    """Neither sees the other's programs, nor ends the daemon."""
    watch = stage.start(*over_verbena(ALICE, "ibv_asyncwatch"), plain=True)
    require(poll_until(stage.clients, 10), "no client")
    for user, seen in ((ALICE, True), (ROOT, True), (BOB, False)):
        for command in ("status", "resources"):
            status, text = stage.ask(user, command, "--json")
            require(status == 0, f"verbena {command} ends with {status} for {user}\n{tail(text)}")
            require((f'"pid": {watch.pid},' in text) == seen or command == "status" and not seen and
                    '"clients": []' in text, f"user {user}, verbena {command}:\n{tail(text)}")
    for options in ((), ("--force",)):
        status, text = stage.ask(BOB, "stop", *options)
        require(status == 1 and "root" in text, f"stop ends with {status}\n{tail(text)}")
    require(watch.running(), "it was ended")
    watch.kill()
    watch.popen.wait()
    stage.expect_no_clients()


def refused(stage):
    """Who may not open the node gets EACCES and one clear line, from each program."""
    for program, shown in (("ibv_devices", "Permission denied"),
                           ("ibv_devinfo", "Permission denied"),
                           ("ibv_rc_pingpong", "Permission denied")):
        process = stage.start(*over_verbena(BOB, program), plain=True)
        status, text = process.wait(20 * SLOW), process.output()
        require(status != 0 and shown in text, f"{program} ends with {status}\n{tail(text)}")
        lines = [line for line in text.splitlines() if "no permission to open" in line]
        require(len(lines) == 1 and "mode 0660" in lines[0] and f"group {ALICE}" in lines[0],
                f"{program}: not one clear line\n{tail(text)}")
    status, text = stage.ask(BOB, "status")
    require(status == 1 and "no permission" in text, f"status: {status}\n{tail(text)}")
    text = stage.run(*over_verbena(ALICE, "ibv_devinfo"), plain=True)
    require("verbena0" in text, f"the group is refused, too\n{tail(text)}")


def set_user_id(stage):
    """A program with rights that its caller lacks: it starts no daemon, which the caller could
    stop, and believes none of the caller's variables."""
    program = os.path.join(stage.directory, "opens")
    shutil.copy(os.path.join(BUILD, "tests", "e2e", "opens"), program)
    os.chown(program, ALICE, ALICE)
    os.chmod(program, 0o4755)
    own = f"/tmp/verbena-{ALICE}-{os.stat('/proc/self/ns/net').st_ino}"
    environment = dict(stage.environment, VERBENA_LOG="debug", VERBENA_IDLE_MS="1")
    done = subprocess.run(as_user(BOB, program), env=environment, capture_output=True, check=False,
                          timeout=30 * SLOW)
    text = (done.stdout + done.stderr).decode(errors="replace")
    require(done.returncode == 1 and "starts none" in text, f"{done.returncode}\n{tail(text)}")
    require(stage.runtime not in text and " debug:" not in text,
            f"it believed its caller's environment\n{tail(text)}")
    require(not os.path.exists(os.path.join(own, "verbenad.pid")), "it started a daemon")
    subprocess.run(["rm", "-rf", own], check=False)


def nobody_serves(stage):
    """Without a daemon, others are told who can start one, and start none."""
    stage.daemon.kill(15)
    stage.daemon.wait(20 * SLOW)
    process = stage.start(*over_verbena(BOB, "ibv_devices"), plain=True)
    status, text = process.wait(20 * SLOW), process.output()
    require(status != 0 and "only user 0 can start one there" in text,
            f"ended with {status}\n{tail(text)}")


def data(suite, stage, one, two, names):
    """Every way in which data moves."""
    pingpong = ("ibv_rc_pingpong", "-g", 0, "-c", "-n", 100)
    for size in (1, 4096, 1 << 20):
        suite.case(f"{names}: pingpong {size} B", exchange, stage, one, two, *pingpong, "-s", size,
                   pattern="100 iters", forbidden="invalid data")
    for verb in ("send", "write", "read"):
        suite.case(f"{names}: ib_{verb}_bw", exchange, stage, one, two, f"ib_{verb}_bw", "-F",
                   "-n", 200, "-s", 65536)
    suite.case(f"{names}: ib_atomic_bw", exchange, stage, one, two, "ib_atomic_bw", "-F", "-n", 200)
    suite.case(f"{names}: ibv_ud_pingpong", exchange, stage, one, two, "ibv_ud_pingpong", "-g", 0,
               "-c", "-n", 100, "-s", 1024, pattern="100 iters", forbidden="invalid data")


def main():
    """All cases."""
    need_programs("ibv_rc_pingpong", "ib_send_bw", "setpriv")
    if os.geteuid() != 0:
        print("only root can play several users")
        sys.exit(SKIPPED)
    suite = Suite("users")
    stage = Machine()
    try:
        if subprocess.run(as_user(ALICE, "test", "-x", VERBENA), check=False).returncode:
            print(f"other users can't reach {VERBENA}")
            sys.exit(SKIPPED)
        stage.serve()
        data(suite, stage, ALICE, BOB, "two users")
        suite.case("root and a user", exchange, stage, ALICE, ROOT, "ib_read_bw", "-F", "-n", 200)
        suite.case("a user and root", exchange, stage, ROOT, ALICE, "ib_write_bw", "-F", "-n", 200)
        for users in ((ALICE, BOB), (ROOT, ALICE), (ALICE, ROOT)):
            for test in ("only_what_is_granted", "keys_are_not_shown",
                         "no_stranger_stops_the_other", "nobody_is_taken_for_another"):
                suite.case(f"{test}, users {users}", attempts, stage, users, test)
        suite.case("one that was root before it met root", attempts, stage, (ROOT, ROOT),
                   "who_became_another_sees_no_keys")
        for users, test in (((ALICE, BOB), "comes_and_goes"),
                            ((ROOT, ALICE), "one_that_stands_still")):
            suite.case(f"{test}, users {users}", idle_link, stage, users, test)
        suite.case("neither sees nor ends the other", privacy, stage)
        suite.case("a set-user-ID program", set_user_id, stage)
        suite.stage_closed(stage)
        stage = Machine(config=f"node-mode = 0660\nnode-group = {ALICE}\n"
                        f"ctl-mode = 0660\nctl-group = {ALICE}\n")
        stage.serve()
        suite.case("who may not open the node", refused, stage)
        suite.case("nobody serves", nobody_serves, stage)
    finally:
        stage.close()
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
