#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Link speed and contention (`verbena fabric up --timing`): shares of links, latencies, what ports
have waited, routing engines compared by the time that data takes. The links are slowed so much that
this machine isn't what data waits for; lower bounds of times are exact, all else are ratios."""
import array
import mmap
import os
import random
import re
import shutil
import socket
import struct
import sys
import time

from programs import (Shell, connect, daemon_end, lid, pair, start, table_entry_write, verbena)
from stage import SMALL, Failure, main, need, poll_until, require

SLOW = 1000
RATE = 1000000  # bytes a second of 4X SDR, slowed
BYTES = 1 << 20  # of each transfer
ATTEMPTS = 10
ABI, CLOCKS = 1, 11  # PROTO_FABRIC_ABI, PROTO_FABRIC_CLOCKS


def begin(fabric, other_cable=None, slow=SLOW):
    """The small net; `other_cable`: the port of S1 by which H4's packets leave, as H3's do by 7."""
    fabric.start(f"--timing={slow}", SMALL)
    verbena(fabric, "sm", "--node", "H1", "--once")
    if other_cable is None:
        return
    for switch, lids in ("S1", {"H3": 7, "H4": other_cable}), ("S2", {"H1": 7, "H2": 8}):
        for node, port in lids.items():
            table_entry(fabric, switch, node, port)


def table_entry(fabric, switch, node, port):
    table_entry_write(fabric, switch, lid(fabric, node), port)


def shells_connect(fabric, pairs):
    """Shells on nodes, connected in pairs. Returns those that send, each with what it writes to."""
    result = []
    for one, other in pairs:
        a, b = Shell(fabric, one), Shell(fabric, other)
        connect(fabric, a, b)
        memory = b.facts("memory")
        result.append((a, memory["address"], memory["rkey"]))
        result[-1][0].peer = b
    return result


def send_all(senders, verb="write"):
    """All at once; the seconds until the last was done."""
    began = time.monotonic()
    for shell, address, key in senders:
        shell.tell(verb, 1, BYTES, address, key)
    for shell, _, _ in senders:
        text = shell.line()
        require("status=0" in text, text)
    return time.monotonic() - began


def takes(fabric, senders, times, verb="write"):
    """That all need so many times as long as one that has its way for itself: never less, and, unless
    this machine stops for a while, not much more."""
    seen = []
    for _ in range(ATTEMPTS):
        for node in fabric.ask(op="topology")["nodes"]:
            fabric.ask(op="counters", node=node["name"], clear=True)
        seen.append(send_all(senders, verb) * RATE / BYTES)
        require(seen[-1] >= times * 0.999, f"{seen} times as long, not {times}")
        if seen[-1] <= times * 1.15 + 0.15:
            return seen[-1]
    raise Failure(f"{seen} times as long, not {times}")


def close(senders):
    for shell, _, _ in senders:
        shell.end()
        shell.peer.end()


def waited(fabric, node, port):
    return fabric.ask(op="counters", node=node, port=port)["ports"][0]["counters"]["xmit_wait"]


def shares(fabric):
    """Two flows over one cable get half each; over two cables each gets all. PortXmitWait counts at
    the ports that wait for credits, as a manager of performance reads it, and only there."""
    begin(fabric, 7)
    senders = shells_connect(fabric, (("H1", "H3"), ("H2", "H4")))
    alone = takes(fabric, senders[:1], 1)
    require(not waited(fabric, "H1", 1), "a port has waited, though nothing else was sent")
    one_cable = takes(fabric, senders, 2)
    waits = [waited(fabric, node, port) for node, port in (("H1", 1), ("H2", 1), ("S1", 7))]
    # Each waited for half of the time, in microseconds of a fabric that isn't slowed.
    expected = BYTES / RATE * 1e6 / SLOW
    require(sum(waits[:2]) > 1.2 * expected and max(waits) < 1.5 * expected, waits)
    require(not waits[2], "the cable itself has waited")
    if shutil.which("perfquery"):
        _, text = fabric.run("H3", "perfquery", str(lid(fabric, "H1")), "1")
        require(int(re.search(r"PortXmitWait:\.*?(\d+)", text)[1]) == waited(fabric, "H1", 1), text)
    table_entry(fabric, "S1", "H4", 8)
    two_cables = takes(fabric, senders, 1)
    print(f"      one flow {alone:.2f}, two by one cable {one_cable:.2f}, by two {two_cables:.2f}; "
          f"waited {waits} us")
    require(not waited(fabric, "H1", 1) and not waited(fabric, "H2", 1), "two cables are shared")
    close(senders)
    daemon_end(fabric)


def reads(fabric):
    """READs take the time of the way back."""
    begin(fabric, 7)
    senders = shells_connect(fabric, (("H1", "H3"),))
    read = takes(fabric, senders, 1, "read")
    require(not waited(fabric, "H1", 1) and not waited(fabric, "H3", 1), "nothing else was sent")
    fabric.ask(op="rate", node="H3", port=1, width="1X", speed="SDR")
    verbena(fabric, "sm", "--node", "H1", "--once")
    slow = takes(fabric, senders, 4, "read")
    print(f"      READs {read:.2f}, by a cable of a quarter {slow:.2f}")
    close(senders)
    daemon_end(fabric)


def latency(fabric):
    """Delays of cables add up, each way; pingpongs and datagrams have them."""
    need("ib_send_lat")
    begin(fabric, 7)
    for node, port in ("H3", 1), ("S2", 7):
        fabric.ask(op="delay", node=node, port=port, ns=20000)
    # To H3: two cables of 20 us; back: none.
    for options in ((), ("-c", "UD"), ("-c", "UC")):
        out = pair(fabric, "H3", "H1", "ib_send_lat", "-n", "10", "-s", "16", *options)[0]
        least = float(re.search(r"^\s*16\s+10\s+([\d.]+)", out, re.M)[1])
        print(f"      {options}: {least / 1000:.1f} ms")
        # Half of the way to H3 and back.
        require(least >= 40000 * SLOW / 1000 / 2, out)
    daemon_end(fabric)


def tools(fabric):
    """Debian's programs measure what the links carry; and no more than that. (Not by datagrams: with
    one that is lost, as a datagram may be, ib_send_bw waits for ever.)"""
    need("ib_write_bw")
    begin(fabric, 7, 100)
    for words in (("ib_write_bw", "-s", "65536", "-n", "40"), ("ib_read_bw", "-s", "65536", "-n", "40"),
                  ("ib_send_bw", "-s", "65536", "-n", "40")):
        out = pair(fabric, "H3", "H1", *words, "-F")[0]
        average = float(re.search(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", out, re.M)[1])
        print(f"      {' '.join(words)}: {average:.2f} MiB/s")
        # The first message's time isn't counted by all of them.
        require(average <= 10e6 / 2**20 * 1.1, "more than the link carries")
    daemon_end(fabric)


def flows_by_link(fabric, pairs):
    """How many of the flows the fullest link has."""
    count = {}
    for one, other in pairs:
        for a, b in ((one, other), (other, one)):
            answer = fabric.ask(op="trace", **{"from": a, "to": b})
            require(answer["result"] == "ok", answer)
            for hop in answer["hops"]:
                key = hop["from"], hop["from_port"]
                count[key] = count.get(key, 0) + 1
    return max(count.values())


def engines(fabric):
    """All-to-all, as rounds of pairs, in a fat tree: OpenSM's ftree has rounds without contention;
    minhop's round that it routes worst takes as many times as long as its fullest link has
    flows."""
    need("opensm")
    path = os.path.join(fabric.folder, "tree.net")
    verbena(fabric, "fabric", "gen", "fat-tree", "--ports", "4", "--levels", "2", "--link", "4xSDR",
            "-o", path)
    fabric.start(f"--timing={SLOW}", path)
    for engine in ("ftree", "minhop"):
        names = [node["name"] for node in fabric.ask(op="topology")["nodes"]
                 if node["type"] == "ca"]
        fabric.run(names[0], "opensm", "-o", "-R", engine, "-f", "log-" + engine)
        dice = random.Random(1)
        rounds = []
        for _ in range(60):
            dice.shuffle(names)
            pairs = list(zip(names[::2], names[1::2]))
            rounds.append((flows_by_link(fabric, pairs), pairs))
        rounds.sort(key=lambda one: one[0])
        for load, pairs in (rounds[0], rounds[-1]):
            senders = shells_connect(fabric, pairs)
            # Both directions.
            for one, other in list(pairs):
                shell = next(sender for sender in senders if sender[0].node == one)
                memory = shell[0].facts("memory")
                senders.append((shell[0].peer, memory["address"], memory["rkey"]))
            times = takes(fabric, senders, load)
            print(f"      {engine}: {load} flows in the fullest link, {times:.2f} times as long")
            for shell, _, _ in senders:
                shell.end()
    daemon_end(fabric)


def clocks_open(fabric):
    """The clocks' memory, as any process on a node gets it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(os.path.join(fabric.runtime, "fabric"))
        connection.send(struct.pack("=III128s", ABI, CLOCKS, 0, b"H2"))
        answer, ancillary, _, _ = connection.recvmsg(64, socket.CMSG_SPACE(4))
    require(struct.unpack("=iI", answer)[0] == 0, answer)
    file = array.array("i", ancillary[0][2])[0]
    for size in (0, 1 << 30):
        try:
            os.ftruncate(file, size)
            require(False, "a process has changed the memory's size")
        except PermissionError:
            pass
    return mmap.mmap(file, os.fstat(file).st_size), file


def hostile(fabric):
    """A process writes anything into the clocks: nothing ends, waits are bounded, and then all is as
    before. verbena-fabric is killed and goes on: so do the clocks."""
    begin(fabric, 7)
    senders = shells_connect(fabric, (("H1", "H3"), ("H2", "H4")))
    memory, file = clocks_open(fabric)
    dice = random.Random(3)
    for shell, address, key in senders:
        shell.tell("write", 1, BYTES, address, key)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        # Never a time that is to come: what is written last stays.
        memory[:] = b"\xff" * len(memory)
        memory[:] = dice.randbytes(len(memory) // 8) * 8
        memory[:] = bytes(len(memory))
        waited(fabric, "H1", 1)
    for shell, _, _ in senders:
        text = shell.line()
        require("status=0" in text, text)
    takes(fabric, senders, 2)
    for shell, address, key in senders:
        shell.tell("write", 2, BYTES, address, key)
    fabric.kill()
    fabric.start("--resume")
    require(fabric.ask(op="status")["timing"] == SLOW, "timing is forgotten")
    for shell, _, _ in senders:
        text = shell.line()
        require("status=0" in text, text)
    # The processes have the new memory, so that what they wait is counted.
    before = waited(fabric, "H1", 1)
    poll_until(lambda: send_all(senders) and waited(fabric, "H1", 1) > before,
               "nothing is counted any more")
    memory.close()
    os.close(file)
    close(senders)
    daemon_end(fabric)


def words(fabric):
    """What the command refuses and shows; a fabric without timing has no clocks."""
    for text in ("0", "x", "10001", "1x", "-1", "99999999999999999999"):
        code, out = fabric.begin(f"--timing={text}", SMALL)
        require(code and "give a number from 1 to 10000" in out, out)
    code, out = fabric.begin("--timing", "--resume")
    require(code == 2 and "usage" in out, out)
    verbena(fabric, "fabric", "up", "--timing", SMALL)
    require(fabric.ask(op="status")["timing"] == 1, "not as adapters")
    require("timing" in verbena(fabric, "fabric", "status"), "status doesn't say so")
    verbena(fabric, "fabric", "down")
    start(fabric, open(SMALL, encoding="ascii").read())
    require(fabric.ask(op="status")["timing"] == 0, "timing without being asked for")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(os.path.join(fabric.runtime, "fabric"))
        connection.send(struct.pack("=III128s", ABI, CLOCKS, 0, b"H2"))
        require(struct.unpack_from("=i", connection.recv(64))[0] == -61, "there are clocks")
    daemon_end(fabric)


if __name__ == "__main__":
    chosen = [test for test in (words, shares, reads, latency, tools, engines, hostile)
              if len(sys.argv) < 2 or test.__name__ in sys.argv]
    sys.exit(main(chosen))
