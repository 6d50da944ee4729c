#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbena-fabric as a process: it is killed and goes on with its state, two of it exclude each
other, bad topologies are refused, and hostile clients get nothing and disturb no other."""
import array
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time

from stage import BUILD, PATIENCE, SMALL, main, need, poll_until, require

QUERY, ISSM, OPEN, REGISTER, UNREGISTER, MAD = range(1, 7)


def state(fabric):
    """What must survive."""
    return (fabric.ask(op="topology"), fabric.ask(op="table", node="S1", kind="unicast"),
            fabric.ask(op="table", node="S2", kind="unicast"))


def killed_and_resumed(fabric):
    fabric.start(SMALL)
    fabric.run("H1", "opensm", "-o", "-f", "log")
    fabric.ask(op="link", node="S1", port=8, action="down")
    fabric.ask(op="drop", node="S2", port=1, percent=0)
    before = state(fabric)
    require(before[0]["nodes"][3]["lid"], f"no LIDs: {before[0]['nodes']}")
    for _ in range(3):
        fabric.kill()
        fabric.start("--resume")
        require(fabric.ask(op="status")["resumed"], "it doesn't say that it resumed")
        require(state(fabric) == before, "the state is another one")
    _, text = fabric.run("H2", "smpquery", "nodedesc", "1")
    require("H1" in text, f"no route by LID after the restart\n{text}")
    fabric.ask(op="down")
    fabric.await_end()
    fabric.start("--resume")
    require(state(fabric) == before, "the state after `down` is another one")


def killed_under_a_manager(fabric):
    """An SM that was killed, too, is replaced by another one, which finds the subnet as it was."""
    fabric.start(SMALL)
    for _ in range(4):
        child = fabric.spawn("H1", "opensm", "-d", "2", "-o", "-f", "log")
        poll_until(lambda: fabric.ask(op="status")["mads"] > 20 or child.poll() is not None,
                   "OpenSM does nothing")
        fabric.kill()
        child.kill()
        child.wait()
        fabric.start("--resume")
        fabric.run("H1", "opensm", "-o", "-f", "log")
        require(fabric.ask(op="status")["links_active"] == 6, "not all links are active")


def a_manager_goes_on(fabric):
    """OpenSM waits while there is no fabric, goes on with the next one, and ends when it is told to,
    also while there is none."""
    fabric.start(SMALL)
    manager = fabric.manager("H1", "log")
    for is_killed in (True, False):
        if is_killed:
            fabric.kill()
        else:
            fabric.ask(op="down")
            fabric.await_end()
        fabric.start("--resume")
        poll_until(lambda: not fabric.run("H2", "sminfo", check=False)[0], "the manager is gone")
        # It hears of a change, and its next sweep comes to an end.
        before = fabric.log("log").count("SUBNET UP")
        fabric.ask(op="link", node="S1", port=8, action="down")
        poll_until(lambda: fabric.log("log").count("SUBNET UP") > before, "the manager is deaf")
        before = fabric.log("log").count("SUBNET UP")
        fabric.ask(op="link", node="S1", port=8, action="up")
        poll_until(lambda: fabric.log("log").count("SUBNET UP") > before, "the manager is deaf")
    require("ERR 5404" not in fabric.log("log"), "OpenSM was told of failed messages")
    fabric.kill()
    manager.terminate()
    manager.wait(PATIENCE)


def issm_survives(fabric):
    fabric.start(SMALL)
    manager = fabric.manager("H1", "log")
    require([one["node"] for one in fabric.ask(op="status")["managers"]] == ["H1"], "no IsSM")
    fabric.kill()
    fabric.start("--resume")
    require([one["node"] for one in fabric.ask(op="status")["managers"]] == ["H1"],
            "IsSM is lost although the manager has its file open")
    manager.kill()
    manager.wait()
    poll_until(lambda: not fabric.ask(op="status")["managers"], "IsSM stays without its manager")


def saved_and_loaded(fabric):
    path = os.path.join(fabric.folder, "saved")
    fabric.start(SMALL)
    fabric.run("H1", "opensm", "-o", "-f", "log")
    before = state(fabric)
    fabric.ask(op="save", path=path)
    fabric.ask(op="power", node="S1", action="reboot")
    require(state(fabric) != before, "a reboot changes nothing")
    fabric.ask(op="load", path=path)
    require(state(fabric) == before, "load doesn't bring the saved state back")
    fabric.ask(op="down")
    fabric.await_end()
    fabric.start("--restore", path)
    require(state(fabric) == before, "restore doesn't bring the saved state back")


def what_is_refused(fabric):
    bad = os.path.join(fabric.folder, "bad.net")
    code, text = fabric.begin("--resume")
    require(code == 1 and "cannot resume" in text, f"resume without a state: {code} {text}")
    with open(bad, "w", encoding="ascii") as file:
        file.write('Switch 4 "S1"\n[1] "H1"[1]\n')
    code, text = fabric.begin(bad)
    require(code == 1 and "bad.net" in text, f"a bad topology: {code} {text}")
    code, text = fabric.begin(os.path.join(fabric.folder, "none"))
    require(code == 1 and text, f"no topology: {code} {text}")
    fabric.start(SMALL)
    first = fabric.pid
    code, text = fabric.begin(SMALL)
    require(code == 1 and "runs" in text, f"a second fabric: {code} {text}")
    require(fabric.ask(op="status")["pid"] == first, "the first fabric has gone")
    fabric.kill()
    path = os.path.join(fabric.runtime, "fabric.state")
    with open(path, "r+b") as file:
        file.seek(20)
        file.write(b"\0\0\0\0")  # not complete
    code, text = fabric.begin("--resume")
    require(code == 1 and "isn't the complete state" in text, f"a broken state: {code} {text}")
    with open(path, "r+b") as file:
        file.truncate(5000)
    require(fabric.begin("--resume")[0] == 1, "a short state is accepted")


def damaged_states(fabric):
    """Bytes anywhere in the state's rows: refused, or it serves; never a crash."""
    fabric.start(SMALL)
    fabric.run("H1", "opensm", "-o", "-f", "log")
    fabric.kill()
    path = os.path.join(fabric.runtime, "fabric.state")
    with open(path, "rb") as file:
        good = file.read()
    for seed in range(25):
        dice = random.Random(seed)
        data = bytearray(good)
        for _ in range(dice.choice((1, 5, 50))):
            at = dice.randrange(len(data)) if dice.random() < 0.3 else dice.randrange(20000)
            data[at] = dice.randrange(256)
        with open(path, "wb") as file:
            file.write(data)
        code, _ = fabric.begin("--resume")
        if code:
            continue
        fabric.ask(op="topology", counters=True)
        fabric.ask(op="trace", **{"from": "H2", "lid": 5})
        require(fabric.alive(), f"seed {seed}: it ended")
        fabric.kill()


def connect(fabric):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    connection.connect(os.path.join(fabric.runtime, "fabric"))
    return connection


def named(kind, port=1, node=b"H2"):
    return struct.pack("=III128s", 1, kind, port, node)


def send(connection, data, fds=()):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        connection.sendmsg([data], rights)
    except OSError:
        pass  # closed meanwhile


def closed(connection):
    """Whether the fabric has ended the connection (after what it sent)."""
    try:
        while connection.recv(1 << 17):
            pass
        return True
    except ConnectionError:
        return True


def hostile_packets(fabric):
    fabric.start(SMALL)
    dice = random.Random(16)
    reading, writing = os.pipe()
    for first in (b"", b"x", struct.pack("=II", 2, QUERY), struct.pack("=II", 1, 99),
                  named(QUERY)[:-1], struct.pack("=II", 1, MAD) + bytes(320),
                  struct.pack("=II", 1, REGISTER) + bytes(56)):
        with connect(fabric) as one:
            if first:
                send(one, first)
                require(closed(one), f"a packet {first[:12]} is accepted")
    for file in (reading, os.open(SMALL, os.O_RDONLY)):
        with connect(fabric) as one:
            send(one, named(OPEN))
            one.recv(64)
            send(one, struct.pack("=II", 1, MAD), [file])
            require(closed(one), "a file that isn't sealed is accepted")
    for seed in range(300):
        with connect(fabric) as one:
            if seed % 3:
                send(one, named(OPEN, dice.randrange(3)))
            for _ in range(8):
                kind = dice.choice((QUERY, ISSM, OPEN, REGISTER, UNREGISTER, MAD, 7))
                data = struct.pack("=II", 1, kind) + dice.randbytes(dice.choice((0, 64, 132, 320)))
                send(one, data, [writing] if dice.random() < 0.3 else [])
    require(fabric.alive(), "it ended")
    poll_until(lambda: not fabric.ask(op="status")["clients"], "connections are left over")
    count = len(os.listdir(f"/proc/{fabric.pid}/fd"))
    require(count < 20, f"{count} descriptors are left over")
    fabric.run("H2", "smpquery", "-D", "nodeinfo", "0,1")


def a_program_that_never_reads(fabric):
    fabric.start(SMALL)
    with connect(fabric) as one:
        send(one, named(OPEN))
        one.recv(64)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        send(one, struct.pack("=IIIIIIIIII16s", 1, REGISTER, 0, 0, 0x81, 1, 0, 0x1405, 0, 0,
                              bytes(16)), [theirs.fileno()])
        result, agent, _, _ = struct.unpack("=iIII", ours.recv(64))
        require(not result, f"registering: {result}")
        path = bytes((0, 1)) + bytes(62)
        for number in range(70000):
            mad = struct.pack(">BBBBHBBQHHI8sHH28s64s64s64s", 1, 0x81, 1, 1, 0, 0, 1, number,
                              0x11, 0, 0, bytes(8), 0xffff, 0xffff, bytes(28), bytes(64), path,
                              bytes(64))
            # timeout 1000 ms: the answer is matched with its request, and delivered
            header = struct.pack("=IIIII", agent, 0, 1000, 0, 320) + \
                struct.pack(">IIH", 0, 0, 0xffff) + bytes(34)
            one.sendmsg([struct.pack("=II", 1, MAD) + header + mad])
        client = poll_until(lambda: [c for c in fabric.ask(op="status")["clients"]
                                     if c["sent"] == 70000], "not all was taken")[0]
        require(client["queued_bytes"] <= 16 << 20, f"it keeps too much: {client}")
        require(client["dropped"] > 0, f"nothing was dropped: {client}")
        fabric.run("H3", "smpquery", "-D", "nodeinfo", "0,1")


def hostile_control(fabric):
    fabric.start(SMALL)
    for data in (b"\n", b"x\n", b"[]\n", b"{}\n", b'{"op":"nothing"}\n', b'{"op":5}\n',
                 b'{"op":"link","node":"S1","port":99,"action":"down"}\n',
                 b'{"op":"link","node":"S1","port":3,"action":"down"}\n',
                 b'{"op":"save","path":"relative"}\n', b'{"op":"errors","node":"H1","port":1}\n',
                 b'{"op":"trace"}\n',
                 b'{"op":"table","node":"H1"}\n'):
        answer = json.loads(fabric.ask_raw(data))
        require(answer["ok"] is False and answer["error"], f"{data}: {answer}")
    require(fabric.ask_raw(b"x" * 100000) == b"", "a request without end is answered")
    silent = [fabric.control() for _ in range(100)]
    fabric.ask(op="status")
    for one in silent:
        one.close()
    require(fabric.ask(op="trace", **{"from": "S1", "lid": 70000, "sl": 99})["result"] == "no-lid",
            "a LID that can't be")


def another_user_is_refused(fabric):
    """All that a fabric has a limited number of is its user's and root's: no other user gets a
    connection, even where the sockets' modes would let one in."""
    if os.geteuid():
        print("another_user_is_refused: skipped, it needs root")
        return
    fabric.start(SMALL)
    here = os.getcwd()
    os.chdir(fabric.runtime)
    os.chmod(".", 0o711)
    try:
        for name, kind in (("fabric", socket.SOCK_SEQPACKET), ("fabctl", socket.SOCK_STREAM)):
            os.chmod(name, 0o666)
            connection = socket.socket(socket.AF_UNIX, kind)
            connection.settimeout(PATIENCE)
            os.seteuid(60001)
            try:
                connection.connect(name)
            finally:
                os.seteuid(0)
            require(closed(connection), f"{name}: another user's connection is served")
    finally:
        os.chdir(here)
    require(fabric.ask(op="status")["nodes"], "root's connection isn't served")


def seconds_of(fabric, *words):
    begin = time.monotonic()
    _, text = fabric.run("H2", *words)
    return time.monotonic() - begin, text


def what_the_file_says_of_cables(fabric):
    """Delay, MTU, width and speed of cables, aliases: from the file to what a manager sees."""
    path = os.path.join(fabric.folder, "own.net")
    with open(path, "w", encoding="ascii") as file:
        file.write('Switch\t4 "S1"\n[1]\t"H2"[1]\n[2]\t"H1"[1]\t# 4xXDR mtu=1024\n'
                   '@[3]\t"up"\n\nHca\t1 "H2"\n[1]\t"S1"[1]\n\n'
                   'Hca\t1 "H1"\n[1]\t"S1"[2]\n\n'
                   'Hca\t1 "H3"\n[1]\t"@up"\t# 1xNDR delay=300ms\n')
    fabric.start(path)
    took, text = seconds_of(fabric, "smpquery", "-D", "portinfo", "0,1,3", "1")
    require(took >= 0.6, f"300 ms both ways took {took} s")
    require("LinkWidthActive:.................1X" in text and "LinkState:" in text, text)
    _, text = seconds_of(fabric, "smpquery", "-D", "portinfo", "0,1,2", "1")
    require("MtuCap:..........................1024" in text, text)
    speeds = {(link["speed"], link["width"])
              for link in fabric.ask(op="topology", counters=False)["links"]}
    require(speeds == {("HDR", "4X"), ("XDR", "4X"), ("NDR", "1X")}, f"speeds: {speeds}")


def delays_hold_up_datagrams(fabric):
    """Only what comes by that port, and nobody else, waits; what waits is lost with the process."""
    fabric.start(SMALL)
    fabric.ask(op="delay", node="S2", port=7, ns=400000000)
    took, _ = seconds_of(fabric, "smpquery", "-D", "nodeinfo", "0,1,7")
    require(took >= 0.4, f"400 ms took {took} s")
    waits = fabric.spawn("H2", "smpquery", "-t", "60000", "-D", "nodeinfo", "0,1,7")
    fabric.run("H1", "smpquery", "-D", "nodeinfo", "0,1,8,1")
    require(not waits.wait(PATIENCE), "the one that waits has no answer")
    fabric.ask(op="delay", node="S2", port=7, ns=1000000000)
    lost = fabric.spawn("H2", "smpquery", "-t", "60000", "-D", "nodeinfo", "0,1,7")
    poll_until(lambda: fabric.ask(op="counters", node="S2", port=7)["ports"][0]["counters"]
               ["rcv_packets"] >= 3, "the third request hasn't crossed the cable")
    fabric.kill()
    lost.kill()
    fabric.start("--resume")
    require(fabric.ask(op="status")["faults"][0]["ns"] == 1000000000, "the delay is forgotten")
    fabric.ask(op="delay", node="S2", port=7, ns=0)
    fabric.run("H2", "smpquery", "-D", "nodeinfo", "0,1,7")


def signals_end_it(fabric):
    fabric.start(SMALL)
    fabric.kill(signal.SIGTERM)
    left = sorted(os.listdir(fabric.runtime))
    require("fabric" not in left and "fabctl" not in left, f"sockets are left: {left}")


def without_a_fabric(fabric):
    code, text = fabric.run("H2", "ibstat", check=False)
    require("no fabric runs" in text, f"{code} {text}")
    fabric.start(SMALL)
    code, text = fabric.run("nobody", "ibstat", check=False)
    require('no node "nobody"' in text, f"{code} {text}")


if __name__ == "__main__":
    need("opensm", "smpquery", "ibstat")
    subprocess.run([os.path.join(BUILD, "bin", "verbena-fabric"), "--version"], check=True,
                   stdout=subprocess.DEVNULL)
    sys.exit(main([killed_and_resumed, killed_under_a_manager, a_manager_goes_on, issm_survives,
                   saved_and_loaded, what_is_refused, damaged_states, hostile_packets, a_program_that_never_reads,
                   hostile_control, another_user_is_refused, what_the_file_says_of_cables, delays_hold_up_datagrams,
                   signals_end_it, without_a_fabric]))
