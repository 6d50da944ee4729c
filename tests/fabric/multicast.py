#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Datagrams to groups over several switches go where the multicast tables lead, to queue pairs that
are attached; ports count them as multicast."""
import sys

from programs import Shell, daemon_end, lid, smp_write, start
from stage import main, require

GROUP, MLID = "ff12:4001:ffff::5", 0xC005
SWITCH_INFO, MULTICAST_TABLE = 0x12, 0x1B

# Three switches in a line, two adapters at each.
LINE = "\n".join(
    [f'Switch\t8 "S{i}"\n[1]\t"H{2 * i - 1}"[1]\n[2]\t"H{2 * i}"[1]\n'
     + (f'[7]\t"S{i - 1}"[8]\n' if i > 1 else "") + (f'[8]\t"S{i + 1}"[7]\n' if i < 3 else "")
     for i in range(1, 4)]
    + [f'Hca\t1 "H{i}"\n[1]\t"S{(i + 1) // 2}"[{2 - i % 2}]\n' for i in range(1, 7)])


def ports_set(fabric, node, *numbers):
    """The group's ports at a switch."""
    smp_write(fabric, lid(fabric, node), SWITCH_INFO, 0, 18, b"\xc3\xff")  # MulticastFDBTop
    mask = sum(1 << number for number in numbers)
    smp_write(fabric, lid(fabric, node), MULTICAST_TABLE, (MLID - 0xC000) // 32,
              (MLID - 0xC000) % 32 * 2, mask.to_bytes(2, "big"))


def traffic(fabric):
    return {(node, port["port"]): (port["counters"]["multicast_xmit"],
                                   port["counters"]["multicast_rcv"])
            for node in ("S1", "S2", "S3", "H1", "H2", "H3", "H4", "H5", "H6")
            for port in fabric.ask(op="counters", node=node)["ports"]}


def tree(fabric):
    start(fabric, LINE)
    shells = {node: Shell(fabric, node) for node in ("H1", "H2", "H3", "H5", "H6")}
    for node, shell in shells.items():
        shell.ask("qp", "ud", 9)
        shell.ask("ready")
        if node != "H6":
            require(shell.facts("attach", GROUP, MLID) == {"error": 0}, f"attach on {node}")
    require(shells["H6"].facts("attach", GROUP, 5) == {"error": 22}, "a unicast LID is attached")
    # H2 is attached, but isn't in the tables; H6's port is in them, but it isn't attached.
    ports_set(fabric, "S1", 1, 8)
    ports_set(fabric, "S2", 1, 7, 8)
    ports_set(fabric, "S3", 1, 2, 7)
    before = traffic(fabric)

    def send(node, count):
        for _ in range(count):
            answer = shells[node].facts("datagram", MLID, 0xFFFFFF, 9, 100, 0, 0, GROUP)
            require(answer == {"status": 0}, f"{node}: {answer}")

    send("H1", 5)
    for node, expected in ("H1", 5), ("H3", 5), ("H5", 5), ("H2", 0), ("H6", 0):
        got = shells[node].received(expected + 1, 1000)
        require(len(got) == expected, f"{node} got {len(got)}, not {expected}")
        require(all(one["grh"] and one["dgid"] == GROUP and one["slid"] == lid(fabric, "H1")
                    for one in got), got)
    after = traffic(fabric)
    change = {port: tuple(b - a for a, b in zip(before[port], after[port]))
              for port in after if after[port] != before[port]}
    require(change == {("H1", 1): (5, 0), ("S1", 1): (0, 5), ("S1", 8): (5, 0), ("S2", 7): (0, 5),
                       ("S2", 1): (5, 0), ("H3", 1): (0, 5), ("S2", 8): (5, 0), ("S3", 7): (0, 5),
                       ("S3", 1): (5, 0), ("H5", 1): (0, 5), ("S3", 2): (5, 0), ("H6", 1): (0, 5)},
            change)
    # From the other end; the sender's own port is in the group, too.
    send("H5", 3)
    for node, expected in ("H1", 3), ("H3", 3), ("H5", 3):
        require(len(shells[node].received(expected, 2000)) == expected, f"{node}: from H5")
    # A branch is cut off: the tables change, and the next datagram follows them.
    ports_set(fabric, "S2", 1, 7)
    send("H1", 2)
    for node, expected in ("H1", 2), ("H3", 2), ("H5", 0):
        require(len(shells[node].received(expected + 1, 1000)) == expected, f"{node}: cut off")
    require(shells["H3"].facts("detach", GROUP, MLID) == {"error": 0}, "detach")
    send("H1", 1)
    require(not shells["H3"].received(1, 500), "H3 is detached")
    for shell in shells.values():
        shell.end()
    daemon_end(fabric)


def dropped(fabric):
    """A cable that loses packets loses copies: behind it, and no others."""
    start(fabric, LINE)
    shells = {node: Shell(fabric, node) for node in ("H1", "H3", "H5")}
    for shell in shells.values():
        shell.ask("qp", "ud", 9)
        shell.ask("ready")
        shell.ask("attach", GROUP, MLID)
    ports_set(fabric, "S1", 8)
    ports_set(fabric, "S2", 1, 8)
    ports_set(fabric, "S3", 1)
    fabric.ask(op="drop", node="S3", port=7, percent=50)
    before = traffic(fabric)
    for _ in range(200):
        require(shells["H1"].facts("datagram", MLID, 0xFFFFFF, 9, 100, 0, 0, GROUP) ==
                {"status": 0}, "datagram")
    require(len(shells["H3"].received(200)) == 200, "a copy on another way is lost")
    count = len(shells["H5"].received(200, 1000))
    require(50 < count < 150, f"{count} of 200 copies came")
    after = traffic(fabric)
    for port, expected in ((("S3", 7), (0, 200)), (("S3", 1), (count, 0)), (("H5", 1), (0, count))):
        change = tuple(b - a for a, b in zip(before[port], after[port]))
        require(change == expected, f"{port}: {change}, not {expected}")
    errors = fabric.ask(op="counters", node="S3", port=7)["ports"][0]["counters"]["rcv_errors"]
    require(errors == 200 - count, f"{errors} errors for {200 - count} copies")
    fabric.ask(op="drop", node="S3", port=7, percent=0)
    for _ in range(20):
        shells["H1"].facts("datagram", MLID, 0xFFFFFF, 9, 100, 0, 0, GROUP)
    require(len(shells["H5"].received(20)) == 20, "copies are lost still")
    for shell in shells.values():
        shell.end()
    daemon_end(fabric)


if __name__ == "__main__":
    sys.exit(main([tree, dropped]))
