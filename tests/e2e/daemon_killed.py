#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbenad is killed under running programs: data goes on, and they go on with the next daemon.

Debian's perftest and ibv_rc_pingpong (which checks its data) are in traffic meanwhile; what they
hold is compared before and after, by handle, number and key.
"""
import json
import os
import random
import signal
import sys
import time

from lib import (BUILD, PORTS, SLOW, VERBENA, Stage, Suite, device_mtu, need_programs, poll_until,
                 require, tail)


def kill_daemon(stage):
    """Kills the directory's daemon; returns when it is dead."""
    pids = stage.daemons()
    require(len(pids) == 1, f"{len(pids)} daemons: {pids}")
    os.kill(pids[0], signal.SIGKILL)
    poll_until(lambda: pids[0] not in stage.daemons(), 5)


def held(stage):
    """Who holds what, without what changes by itself: kind -> sorted entries."""
    reply = stage.resources()
    if reply is None:
        return None
    del reply["ok"], reply["cm_id"]  # identifiers end with their daemon
    for entries in reply.values():
        for entry in entries:
            entry.pop("state", None)
    return {kind: sorted(entries, key=json.dumps) for kind, entries in reply.items()}


def long_traffic(stage, program, seconds, *options):
    """A pair of perftest that runs for a while; returns both processes, in traffic."""
    port = PORTS.take()
    size = device_mtu() if "UD" in options else 4096
    words = [program, "-F", "-p", port, "-s", size, "-D", seconds, *options]
    pair = stage.start_pair(words, words + ["127.0.0.1"], port)

    def connected():
        reply = stage.resources()
        mine = {process.pid for process in pair}
        states = [entry["state"] for entry in (reply or {}).get("qp", []) if entry["pid"] in mine]
        linked = [client for client in stage.clients()
                  if client["pid"] in mine and client["links"]]
        # A server that only receives stays in RTR.
        return len(linked) == 2 and len(states) >= 2 and "RTS" in states \
            and set(states) <= {"RTR", "RTS"}

    require(poll_until(connected, 10), f"no traffic\n{tail(pair[0].output())}")
    return pair


def finish(stage, pair, seconds):
    """Both ends end well."""
    stage.finish_pair(*pair, seconds=seconds)


def traffic_goes_on(stage, program, *options):
    """Nothing but the daemon is missing: the pair runs to its end, and needs one to end."""
    pair = long_traffic(stage, program, 3, *options)
    kill_daemon(stage)
    time.sleep(0.3)
    started = stage.daemons()
    # One that ends has objects to end, and needs a daemon for that.
    if all(process.running() for process in pair):
        require(not started, "a daemon was started although nothing needs one")
    finish(stage, pair, 20)
    stage.expect_no_clients()


def all_come_back(stage):
    """Somebody else starts the next daemon; everybody returns with all that he holds."""
    pairs = [long_traffic(stage, "ib_send_bw", 6, "-q", 3),
             long_traffic(stage, "ib_write_bw", 6),
             long_traffic(stage, "ib_send_bw", 6, "-c", "UD")]
    before = held(stage)
    kill_daemon(stage)
    stage.run("ibv_devices")
    same = poll_until(lambda: held(stage) == before, 10)
    if not same:
        after = held(stage) or {}
        lost = {kind: [entry for entry in before[kind] if entry not in after.get(kind, [])]
                for kind in before}
        require(False, f"not back: {json.dumps(lost)[:2000]}\n{stage.log_tail()}")
    for pair in pairs:
        finish(stage, pair, 30)
    stage.expect_no_clients()


def rules_come_back(stage):
    """Raw packets go on without a daemon, and their flow rules return to the next one."""
    ends = ["00:11:22:33:44:55", "00:11:22:33:44:66"]
    pair = []
    for role, mine, theirs in (("server", *ends), ("client", *reversed(ends))):
        pair.append(stage.start("raw_ethernet_lat", "-F", "-D", 6, f"--{role}", "-B", mine, "-E",
                                theirs))
        require(poll_until(lambda: len((stage.resources() or {}).get("flow", [])) == len(pair),
                           20), f"no flow rule\n{tail(pair[-1].output())}")
    before = held(stage)
    kill_daemon(stage)
    stage.run("ibv_devices")
    require(poll_until(lambda: held(stage) == before, 10), f"not back\n{stage.log_tail()}")
    finish(stage, pair, 30)
    stage.expect_no_clients()


def the_dead_are_noticed(stage):
    """Also those who die after, or while, they return: their peers hear of it."""
    for moment in (0, 0.002, 0.3):
        port = PORTS.take()
        words = ["ib_send_bw", "-F", "-p", port, "-s", 4096, "-D", 20]
        pair = stage.start_pair(words, words + ["127.0.0.1"], port)
        require(poll_until(lambda: len(stage.clients()) == 2, 10), "no two clients")
        time.sleep(0.3)
        kill_daemon(stage)
        stage.run("ibv_devices")
        time.sleep(moment)
        pair[0].kill()
        status = pair[1].wait(20 * SLOW)
        require(status != 0, f"the survivor saw nothing\n{tail(pair[1].output())}")
        stage.expect_no_clients()


def many_times(stage, seed):
    """The daemon is killed at random while programs come, exchange checked data, and go."""
    chance = random.Random(seed)
    flows = []
    end = time.monotonic() + 60 * SLOW
    kills = 0
    while kills < 15 and time.monotonic() < end:
        while len(flows) < 3:
            port = PORTS.take()
            size = chance.choice([64, 4096, 100000])
            words = ["ibv_rc_pingpong", "-g", 0, "-p", port, "-s", size, "-n", 2000, "-c"]
            flows.append(stage.start_pair(words, words + ["127.0.0.1"], port))
        time.sleep(chance.random() * 0.2)
        for pid in stage.daemons():
            os.kill(pid, signal.SIGKILL)
            kills += 1
            end = time.monotonic() + 60 * SLOW
        for pair in [pair for pair in flows if not (pair[0].running() or pair[1].running())]:
            finish(stage, pair, 1)
            flows.remove(pair)
    for pair in flows:
        finish(stage, pair, 30)
    require(kills >= 15, f"only {kills} daemons were killed")
    stage.run("ibv_devices")
    stage.expect_no_clients()


# Ends in the way that it is told, as often as it is told, and then becomes the daemon.
MORTAL = """#!/usr/bin/python3
import os, signal, socket, sys
count, times, moment, real = {count!r}, {times}, {moment!r}, {real!r}
with open(count, "a+", encoding="ascii") as file:
    file.write("x")
    file.flush()
    starts = os.fstat(file.fileno()).st_size
if starts > times:
    os.execv(real, [real, *sys.argv[1:]])
if moment == "connected":
    path = sys.argv[sys.argv.index("--runtime-dir") + 1] + "/uverbs0"
    if os.path.exists(path):
        os.unlink(path)
    node = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    node.bind(path)
    node.listen()
if moment != "early":
    os.write(3, b"1")
    os.close(3)
if moment == "connected":
    node.accept()
os.kill(os.getpid(), signal.SIGKILL)
"""


def start_mortal(stage, moment, times, **options):
    """Runs a program whose daemons are killed; returns how many were started."""
    count = os.path.join(stage.directory, "starts")
    mortal = os.path.join(stage.directory, "mortal")
    if os.path.exists(count):
        os.unlink(count)
    with open(mortal, "w", encoding="ascii") as file:
        file.write(MORTAL.format(count=count, times=times, moment=moment,
                                 real=os.path.join(BUILD, "bin", "verbenad")))
    os.chmod(mortal, 0o700)
    text = stage.run("ibv_devinfo", environment={"VERBENA_DAEMON": mortal}, **options)
    return os.stat(count).st_size, text


def killed_while_it_starts():
    """A daemon is killed before it is ready, before the program has connected, and then."""
    for moment in ("early", "ready", "connected"):
        with Stage() as stage:
            starts, text = start_mortal(stage, moment, 3)
            require(starts == 4, f"{moment}: {starts} daemons were started")
            require("verbena0" in text, tail(text))
    with Stage() as stage:
        starts, text = start_mortal(stage, "early", 1000, status=255)
        require(2 < starts < 100 and "ended at once" in text, f"{starts} starts: {tail(text)}")
        starts, text = start_mortal(stage, "early", 0)
        require(starts == 1, f"{starts} daemons were started")


def gives_up():
    """A daemon that can't start says so, and isn't started again."""
    with Stage() as stage:
        config = os.path.join(stage.directory, "config")
        with open(config, "w", encoding="ascii") as file:
            file.write("no-such-setting = 1\n")
        stage.environment["VERBENA_CONFIG"] = config
        starts, text = start_mortal(stage, "early", 0, status=255)
        # One for `verbena run`, and one for the program.
        require(starts <= 2 and "says why" in text, f"{starts} starts: {tail(text)}")


def main():
    """All cases."""
    need_programs("ib_send_bw", "ib_write_bw", "ibv_rc_pingpong", "ibv_devices")
    suite = Suite("daemon_killed")
    stage = Stage(idle_ms=2000)
    seed = int(os.environ.get("VERBENA_SEED") or random.randrange(1 << 32))
    suite.case("killed while it starts", killed_while_it_starts)
    suite.case("gives up", gives_up)
    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
        suite.case(f"{program} goes on without a daemon", traffic_goes_on, stage, program)
    suite.case("all return to the next daemon", all_come_back, stage)
    suite.case("flow rules return, too", rules_come_back, stage)
    suite.case("the dead are noticed", the_dead_are_noticed, stage)
    suite.case(f"many times (VERBENA_SEED={seed})", many_times, stage, seed)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
