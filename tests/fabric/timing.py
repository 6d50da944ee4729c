#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Link speed and contention (`verbena fabric up --timing`), and faults that make links slow: shares of links, latencies, what ports
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

from programs import (Shell, connect, daemon_end, lid, pair, smp_write, start, table_entry_write,
                      verbena)
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
        _, text = fabric.run("H3", "perfquery", "--vlxmitcounters", str(lid(fabric, "H1")), "1")
        lanes = [int(one) for one in re.findall(r"PortVLXmitWait\d+:\.*?(\d+)", text)]
        require(lanes[0] == waited(fabric, "H1", 1) and not any(lanes[1:]), text)
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


def acknowledgements(fabric):
    """A completion comes when the acknowledgement is back: by all cables of both ways."""
    begin(fabric, 7)
    (sender,) = shells_connect(fabric, (("H1", "H3"),))
    one, address, key = sender
    for node, port, ns in ("H3", 1, 100000), ("S1", 7, 200000), ("H1", 1, 50000):
        fabric.ask(op="delay", node=node, port=port, ns=ns)
    for words in ("send", 1, 100), ("write", 1, 100, address, key), ("read", 1, 100, address, key):
        slow_by(one.facts(*words), 0.35)
    # In order, with many under way; and a failure comes after what succeeded.
    for node, port in ("H3", 1), ("S1", 7), ("H1", 1):
        fabric.ask(op="delay", node=node, port=port, ns=1000)
    require(one.facts("write", 300, 100, address, key)["done"] == 300, "many")
    require(one.facts("write", 1, 100, address, key ^ 0x100)["status"] == 10, "a wrong key")
    close([sender])
    daemon_end(fabric)


def groups(fabric):
    """A datagram to a group needs the time of all cables of its tree; so its last copy's."""
    group, mlid = "ff12:4001:ffff::5", 0xC005
    begin(fabric, 7)
    shells = {node: Shell(fabric, node) for node in ("H1", "H3")}
    for shell in shells.values():
        shell.ask("qp", "ud", 9)
        shell.ask("ready")
        shell.ask("attach", group, mlid)
    for node, mask in ("S1", 1 << 1 | 1 << 7), ("S2", 1 << 1 | 1 << 7):
        smp_write(fabric, lid(fabric, node), 0x12, 0, 18, b"\xc3\xff")
        smp_write(fabric, lid(fabric, node), 0x1B, 0, 10, mask.to_bytes(2, "big"))
    for node, port in ("H3", 1), ("S2", 7):
        fabric.ask(op="delay", node=node, port=port, ns=100000)
    began = time.monotonic()
    require(shells["H1"].facts("datagram", mlid, 0xFFFFFF, 9, 1000, 0, 0, group) == {"status": 0},
            "send")
    for node, shell in shells.items():
        require(len(shell.received(1)) == 1, f"{node}: lost")
    took = time.monotonic() - began
    require(took >= 0.2, f"after {took} s, by two cables of 0.1 s each")
    for shell in shells.values():
        shell.end()
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
    """What the command refuses and shows."""
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
    memory, file = clocks_open(fabric)  # for faults
    require(not any(memory[:]), "data has taken time")
    memory.close()
    os.close(file)
    daemon_end(fabric)


def slow_by(answer, seconds):
    require(answer["status"] == 0 and answer["longest_us"] >= seconds * 1e6, answer)


def delays(fabric):
    """Without timing, too, `delay` takes data's time: of what crosses the cable, from the next request
    on, until it is taken back."""
    start(fabric, open(SMALL, encoding="ascii").read())
    (one, address, key), (bystander, _, _) = shells_connect(fabric, (("H1", "H3"), ("H2", "H4")))
    other, memory = one.peer, one.facts("memory")
    other_memory = memory["address"], memory["rkey"]
    require(one.facts("send", 3, 100)["done"] == 3, "before")
    fabric.ask(op="delay", node="H3", port=1, ns=300000000)
    for words in ("send", 2, 100), ("write", 1, 100, address, key), ("read", 1, 100, address, key):
        slow_by(one.facts(*words), 0.3)
    # A second would be lost each time.
    fabric.ask(op="delay", node="H3", port=1, ns=1000000000)
    began = time.monotonic()
    require(bystander.facts("send", 100, 100)["done"] == 100, "elsewhere")
    require(time.monotonic() - began < 50, "data that doesn't cross the cable is slow")
    # What H3 sends is there at once; its acknowledgement is late.
    for words in ("send", 1, 100), ("read", 1, 100, *other_memory), ("send", 1, 100):
        slow_by(other.facts(*words), 1)
    slow_by(one.facts("send", 1, 100), 1)
    for ns in (0, 200000000, 0):
        fabric.ask(op="delay", node="H3", port=1, ns=ns)
        began = time.monotonic()
        require(one.facts("send", 50, 100)["done"] == 50, "after")
        took = time.monotonic() - began
        require(took >= 50 * ns / 1e9 and (ns or took < 25), f"{took} s with {ns} ns")
    fabric.ask(op="delay", node="H1", port=1, ns=300000000)
    require(one.facts("send", 1, 100)["done"] == 1, "from H1")
    slow_by(other.facts("send", 1, 100), 0.3)
    close([(one, 0, 0), (bystander, 0, 0)])
    daemon_end(fabric)


def delays_of_datagrams(fabric):
    """Datagrams, and those to groups: each is late by the cables that it crosses; and arrives though
    its program ends at once."""
    group, mlid = "ff12:4001:ffff::5", 0xC005
    start(fabric, open(SMALL, encoding="ascii").read())
    shells = {node: Shell(fabric, node) for node in ("H1", "H2", "H3")}
    qpns = {}
    for node, shell in shells.items():
        qpns[node] = shell.facts("qp", "ud", 9)["qpn"]
        shell.ask("ready")
        shell.ask("attach", group, mlid)
    for node, mask in ("S1", 1 << 1 | 1 << 2 | 1 << 7), ("S2", 1 << 1 | 1 << 7):
        smp_write(fabric, lid(fabric, node), 0x12, 0, 18, b"\xc3\xff")
        smp_write(fabric, lid(fabric, node), 0x1B, 0, 10, mask.to_bytes(2, "big"))

    def send(node, *words):
        began = time.monotonic()
        require(shells["H1"].facts("datagram", *words) == {"status": 0}, words)
        require(len(shells[node].received(1)) == 1, f"{words}: lost")
        return time.monotonic() - began

    fabric.ask(op="delay", node="H3", port=1, ns=300000000)
    require(send("H3", lid(fabric, "H3"), qpns["H3"], 9, 10) >= 0.3, "a datagram is early")
    began = time.monotonic()
    for _ in range(100):
        send("H2", lid(fabric, "H2"), qpns["H2"], 9, 10)
    require(time.monotonic() - began < 25, "datagrams to elsewhere are late")
    require(send("H3", mlid, 0xFFFFFF, 9, 10, 0, 0, group) >= 0.3, "a group's copy is early")
    require(len(shells["H2"].received(1)) == 1, "a copy is lost")
    fabric.ask(op="delay", node="H3", port=1, ns=0)
    began = time.monotonic()
    for _ in range(100):
        send("H3", mlid, 0xFFFFFF, 9, 10, 0, 0, group)
    require(time.monotonic() - began < 25, "it is slow still")
    for shell in shells.values():
        shell.end()
    daemon_end(fabric)


def rates_of_faults(fabric):
    """Without timing, too, a cable to which `rate` was given carries no more than that, for all who
    use it together; what waits is counted."""
    start(fabric, open(SMALL, encoding="ascii").read())
    senders = shells_connect(fabric, (("H1", "H3"), ("H2", "H3")))
    (one, address, key), (two, address_two, key_two) = senders
    fabric.ask(op="rate", node="H3", port=1, width="1X", speed="SDR")
    verbena(fabric, "sm", "--node", "H1", "--once")
    count, size = 16, 4 << 20
    least = count * size * 8 / 2e9
    began = time.monotonic()
    require(one.facts("write", count, size, address, key)["done"] == count, "one")
    alone = time.monotonic() - began
    began = time.monotonic()
    two.tell("write", count, size, address_two, key_two)
    require(one.facts("write", count, size, address, key)["done"] == count, "two")
    require("status=0" in two.line(), "the other one")
    both = time.monotonic() - began
    print(f"      {alone:.3f} s, two {both:.3f} s; at least {least:.3f} s and twice that")
    require(alone >= least * 0.99 and both >= 2 * least * 0.99, "more than the cable carries")
    require(not waited(fabric, "S2", 1), "the slow cable itself has waited")
    fabric.ask(op="rate", node="H3", port=1)
    verbena(fabric, "sm", "--node", "H1", "--once")
    require(one.facts("write", count, size, address, key)["done"] == count, "as before")
    close(senders)
    daemon_end(fabric)


if __name__ == "__main__":
    chosen = [test for test in (words, delays, delays_of_datagrams, rates_of_faults, shares, reads, latency,
                                 acknowledgements, groups, tools, engines, hostile)
              if len(sys.argv) < 2 or test.__name__ in sys.argv]
    sys.exit(main(chosen))
