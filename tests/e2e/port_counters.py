#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The port's counters in /sys/class/infiniband as programs of `verbena run` see them: they count
what goes over the wire, never decrease, and are kept current as long as a program needs them.

usage: port_counters.py [WORD...]    the cases whose names have a WORD
"""
import os
import re
import shutil
import signal
import sys

from lib import (BUILD, PORTS, SANITIZE, SKIPPED, SLOW, VERBENA, Stage, Suite, need_programs,
                 poll_until, require, tail)
from network import own_network
from sysfs import Nobodys, ServedNobodys, may_be_nobody

PORT = "/sys/class/infiniband/verbena0/ports/1"
DATA, SENT = "counters/port_xmit_data", "hw_counters/sent_pkts"


def read(stage, *names):
    """The values of files, as a program sees them."""
    return [int(line) for line in stage.run("cat", *(f"{PORT}/{name}" for name in names)).split()]


def traffic(stage, *options, size=65536, count=100):
    """perftest between two processes; returns the client's output."""
    port = PORTS.take()
    words = ["ib_write_bw", "-F", "-x", 0, "-u", 18, "-p", port, "-s", size, "-n", count, *options]
    return stage.pair(words, words + ["127.0.0.1"], port, seconds=60)[1]


def perftest(stage):
    """-W shows how far the counters have gone: by the bytes and the packets at least."""
    text = traffic(stage, "-W", f"{DATA},{SENT}")
    found = dict(re.findall(r"((?:hw_)?counters/\w+)=(\d+)", text))
    require(set(found) == {DATA, SENT}, tail(text))
    require(int(found[DATA]) >= 100 * 65536 // 4, f"too few bytes: {found}")
    require(int(found[SENT]) >= 100 * 65536 // 4096, f"too few packets: {found}")


def the_daemons(stage):
    """The values are those of `verbena status`; without traffic they stay."""
    names = [DATA, "counters/port_rcv_data", "counters/port_xmit_packets",
             "counters/port_rcv_packets", SENT, "hw_counters/rcvd_pkts"]
    traffic(stage)
    stage.expect_no_clients(20)
    wire = stage.status()["counters"]["wire"]
    wanted = [wire["bytes_out"] // 4, wire["bytes_in"] // 4, wire["packets_out"],
              wire["packets_in"], wire["packets_out"], wire["packets_in"]]
    require(wanted[0] >= 100 * 65536 // 4, f"the first program's are lost: {wire}")
    for _ in range(2):
        got = read(stage, *names)
        require(got == wanted, f"{got} instead of {wanted}")


def killed(stage):
    """What a killed process has counted stays."""
    port = PORTS.take()
    words = ["ib_write_bw", "-F", "-x", 0, "-p", port, "-D", 1000]
    before = read(stage, SENT)[0]
    pair = stage.start_pair(words, words + ["127.0.0.1"], port)
    require(poll_until(lambda: read(stage, SENT)[0] > before + 1000, 60), "nothing is sent")
    seen = read(stage, DATA, SENT)
    for process in pair:
        process.kill()
        process.wait(20)
    stage.expect_no_clients(20)
    after = read(stage, DATA, SENT)
    require(after[0] >= seen[0] and after[1] >= seen[1], f"from {seen} to {after}")


def files(stage):
    """They are files that may be read in pieces, and nothing else; other names aren't there."""
    text = stage.run("sh", "-c", f"cd {PORT}; dd if={DATA} bs=1 2>&-; cat {DATA}; "
                     f"read -r value <{DATA}; echo $value")
    require(re.fullmatch(r"(\d+\n)\1\1", text), f"{text!r}")
    text = stage.run("python3", "-c", f"file = open('{PORT}/{DATA}')\nfor _ in range(3):\n"
                     " file.seek(0)\n print(file.read(), end='')")
    require(re.fullmatch(r"(\d+\n)\1\1", text), f"{text!r}")
    for command in (f"echo 0 >{DATA}", "cat counters/none", "cat counters", "touch counters/new",
                    f"rm {DATA}", "mkdir counters/new", f"ln -s x counters/new; cat {DATA}/x"):
        stage.run("sh", "-c", f"cd {PORT} && ! {{ {command}; }} 2>&-")
    listing = stage.run("sh", "-c", f"cd {PORT}; find counters hw_counters -type f | wc -l; "
                        "cat counters/* hw_counters/* | grep -cx '[0-9]*'").split()
    require(listing[0] == listing[1] and int(listing[0]) >= 10, f"{listing}")


def next_daemon(stage):
    """A program reads on while there is no daemon, and when there is another one."""
    path = os.path.join(stage.directory, "go")
    os.mkfifo(path)
    process = stage.start("sh", "-c", f"cat {PORT}/{DATA}; read x <{path}; cat {PORT}/{DATA}; "
                          f"read x <{path}; cat {PORT}/{DATA}")
    require(poll_until(lambda: process.output().count("\n") == 1, 60), tail(process.output()))
    for number in (2, 3):
        for pid in stage.daemons():
            os.kill(pid, signal.SIGKILL)
        require(poll_until(lambda: not stage.daemons(), 60), "the daemon doesn't end")
        if number == 3:
            read(stage, DATA)
        with open(path, "w", encoding="ascii") as file:
            file.write("\n")
        require(poll_until(lambda n=number: process.output().count("\n") == n, 60),
                tail(process.output()))
    values = [int(line) for line in process.expect(20).split()]
    require(len(values) == 3 and values[0] <= values[1] <= values[2], f"{values}")


def ends(stage, **environment):
    """The process that answers ends with the last program that has the files, and not before."""
    require(poll_until(lambda: not stage.servers(), 60), "some are left")
    process = stage.start("sh", "-c", "sleep 1000 & echo $!", environment=environment)
    process.wait(20 * SLOW)
    left = int(process.output())
    try:
        require(len(stage.servers()) == 1, f"{stage.servers()}")
        read(stage, DATA)
    finally:
        os.kill(left, signal.SIGKILL)
    require(poll_until(lambda: not stage.servers(), 60), f"{stage.servers()} is left")


def threaded(stage):
    """The same where a preloaded library has a thread in each process."""
    ends(stage, LD_PRELOAD=os.path.join(BUILD, "tests/e2e/with_thread.so"))


def nested_space(stage):
    """A program in a mount namespace of its own has them after the first program has ended."""
    path = os.path.join(stage.directory, "nested")
    os.mkfifo(path)
    process = stage.start("unshare", "-m", "sh", "-c",
                          f"(read x <{path}; cat {PORT}/{DATA}; echo end) &")
    require(process.wait(20 * SLOW) == 0, tail(process.output()))
    with open(path, "w", encoding="ascii") as file:
        file.write("\n")
    require(poll_until(lambda: "end" in process.output(), 60), "it doesn't end")
    require(re.fullmatch(r"\d+\nend\n", process.output()), tail(process.output()))


def twice(stage):
    """One `verbena run` within another."""
    text = stage.run(VERBENA, "run", "cat", f"{PORT}/{DATA}")
    require(re.fullmatch(r"\d+\n", text), f"{text!r}")


def without_fuse(stage, hide):
    """Where no FUSE can be had there are no such directories; programs run as ever."""
    words = ["unshare", "-m", "sh", "-ec", f"{hide}; exec {VERBENA} run sh -c \"$0\"",
             f"ls {PORT}; ibv_devinfo"]
    text = stage.run(*words, plain=True)
    require("gid_attrs" in text and "counters" not in text and "verbena0" in text, tail(text))
    text = stage.run(*words, plain=True, environment={"VERBENA_LOG": "info"})
    require(text.count("no FUSE file system can be had") == 2, tail(text))


def first_process(stage):
    """Process 1 may wait for all its children, so it gets none."""
    script = ("import os\ntry:\n while True: os.wait()\nexcept ChildProcessError: print('none')\n"
              f"print(os.path.exists('{PORT}/counters'))")
    text = stage.run("unshare", "-p", "-f", "--mount-proc", VERBENA, "run", "python3", "-c", script,
                     plain=True)
    require(text.split() == ["none", "False"], tail(text))


def main():
    """All cases."""
    if SANITIZE == "thread":
        print("a shell doesn't run with the thread sanitizer's run time in it")
        sys.exit(SKIPPED)
    need_programs("ib_write_bw", "ibv_devinfo", "unshare")
    own_network()
    stage = Stage(idle_ms=3000, VERBENA_CARRIER="wire")
    if stage.start("test", "-d", f"{PORT}/counters").wait(20 * SLOW):
        stage.close()
        print("no FUSE file system can be mounted here")
        sys.exit(SKIPPED)
    suite = Suite("port_counters")
    for name, function in (("perftest", perftest), ("what the daemon has", the_daemons),
                           ("a killed process", killed), ("files", files),
                           ("another daemon", next_daemon), ("one within another", twice),
                           ("a mount namespace of one's own", nested_space),
                           ("the end", ends)):
        suite.case(name, function, stage)
    suite.case("the end, where a library has a thread", threaded, stage)
    suite.case("process 1", first_process, stage)
    suite.case("/dev/fuse is something else", without_fuse, stage,
               "mount --bind /dev/null /dev/fuse")
    suite.case("no /dev/fuse", without_fuse, stage,
               f"d={stage.directory}/dev; mkdir -p $d; mount -t tmpfs none $d; "
               "for n in null full; do touch $d/$n; mount --bind /dev/$n $d/$n; done; "
               "mount --rbind $d /dev")
    suite.stage_closed(stage)
    if may_be_nobody() and shutil.which("setpriv"):
        stage = Nobodys()
        stage.environment["VERBENA_CARRIER"] = "wire"
        if stage.start("test", "-d", f"{PORT}/counters").wait(20 * SLOW) == 0:
            for name, function in (("perftest", perftest), ("files", files), ("the end", ends)):
                suite.case(f"ordinary user: {name}", function, stage)
        suite.stage_closed(stage)
        stage = ServedNobodys()
        if stage.start("test", "-d", f"{PORT}/counters").wait(20 * SLOW) == 0:
            suite.case("root's daemon: files", files, stage)
        suite.stage_closed(stage)
    suite.end()


main()
