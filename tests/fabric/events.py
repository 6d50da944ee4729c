#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a manager's writes do to verbs programs on nodes: asynchronous events, LIDs with path bits,
P_Keys and Q_Keys with their violations, what a datagram's completion says."""
import sys

from programs import (Shell, connect, daemon_end, lid, smp_write, start, table_entry_write,
                      verbena)
from stage import SMALL, main, poll_until, require

SWITCH_INFO, GUID_INFO, PORT_INFO, PKEYS = 0x12, 0x14, 0x15, 0x16
RETRY_EXCEEDED = 12


def small():
    with open(SMALL, encoding="ascii") as file:
        return file.read()


def names(events):
    return [text.rpartition(" port=")[0] for text in events]


def events(fabric):
    """Each cause has its event, and the attributes are new when it comes."""
    start(fabric, small(), manager=None)
    one = Shell(fabric, "H3")
    require(one.facts("port")["state"] == 2, "the port isn't in Init")
    verbena(fabric, "sm", "--node", "H1", "--once")
    first = names(one.events())
    require(first[:2] == ["LID change", "SM change"]
            and "port active" in first, first)
    own = one.facts("port")
    require(own["state"] == 4 and own["lid"] == lid(fabric, "H3"), own)

    def after(expected, *write):
        smp_write(fabric, own["lid"], *write)
        got = names(one.events())
        require(got == expected, f"{write}: {got}")

    after(["SM change"], PORT_INFO, 1, 18, (9).to_bytes(2, "big"))
    require(one.facts("port")["sm_lid"] == 9, "SM LID")
    after(["client reregistration"], PORT_INFO, 1, 51, b"\x80")
    after(["P_Key change"], PKEYS, 0, 2, b"\x80\x05")
    require(one.ask("pkey", 1) == "0x8005", "P_Key 1")
    after(["GID table change"], GUID_INFO, 0, 8, b"\x02\x00\x00\x00\x00\x00\x12\x34")
    require(one.ask("gid", 1) == "fe80::200:0:0:1234", one.ask("gid", 1))
    after([], PKEYS, 0, 2, b"\x80\x05")
    fabric.ask(op="link", node="S2", port=1, action="down")
    require(names(one.events()) == ["port error"], "a link that is cut")
    require(one.facts("port")["state"] == 1, "state after a cut")
    fabric.ask(op="link", node="S2", port=1, action="up")
    verbena(fabric, "sm", "--node", "H1", "--once")
    require("port active" in names(one.events()), "a link that is mended")
    fabric.kill()
    fabric.start("--resume")
    poll_until(lambda: fabric.ask(op="status")["ok"], "it doesn't run")
    fabric.ask(op="link", node="S2", port=1, action="down")
    fabric.ask(op="link", node="S2", port=1, action="up")
    verbena(fabric, "sm", "--node", "H1", "--once")

    def again():
        fabric.ask(op="link", node="S2", port=1, action="flap")
        verbena(fabric, "sm", "--node", "H1", "--once")
        return names(one.events(200))

    poll_until(again, "no events after a restart of verbena-fabric")
    one.end()
    daemon_end(fabric)


def armed(fabric):
    """A port that was left Armed becomes Active by the first data that comes in by it: an adapter's
    by a datagram, a switch's by RC's."""
    start(fabric, small())
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")

    def state(node, number):
        ports = fabric.ask(op="node", node=node)["node"]["ports"]
        return next(port["state"] for port in ports if port["port"] == number)

    def left_armed(cable, to):
        """Cuts and mends the cable, and sets both ends to Armed, only the first then to Active."""
        fabric.ask(op="link", node=cable[0], port=cable[1], action="down")
        fabric.ask(op="link", node=cable[0], port=cable[1], action="up")
        for state_wanted, ends in ((3, (cable, to)), (4, (cable,))):
            for node, number in ends:
                fabric.run("H1", "ibportstate", "-D", to_port(node), str(number),
                           {3: "arm", 4: "active"}[state_wanted])

    def to_port(node):
        return {"S1": "0,1", "S2": "0,1,7", "H4": "0,1,7,2"}[node]

    qpn = other.facts("qp", "ud", 5)["qpn"]
    one.ask("qp", "ud", 5)
    one.ask("ready")
    other.ask("ready")
    other.events(300)
    left_armed(("S2", 2), ("H4", 1))
    require((state("S2", 2), state("H4", 1)) == ("active", "armed"), "the adapter's port")
    require(names(other.events()) == ["port error"], "before data")
    require(one.facts("datagram", lid(fabric, "H4"), qpn, 5, 10) == {"status": 0}, "datagram")
    require(len(other.received(1)) == 1, "the datagram is lost")
    require(names(other.events()) == ["port active"] and state("H4", 1) == "active", "after data")
    left_armed(("S1", 7), ("S2", 7))
    left_armed(("S1", 8), ("S2", 8))
    connect(fabric, one, other)
    require(one.facts("send", 10, 100)["done"] == 10 and len(other.received(10)) == 10, "by RC")
    require("active" in (state("S2", 7), state("S2", 8)), "the switch's port")
    one.end()
    other.end()
    daemon_end(fabric)


def datagrams(fabric):
    """What a completion says: source LID with path bits, SL, own path bits, GRH or none."""
    start(fabric, small())
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    for node in ("S1", "S2"):
        smp_write(fabric, lid(fabric, node), SWITCH_INFO, 0, 6, (100).to_bytes(2, "big"))
    # LMC 2 for both: LIDs in steps of four, and entries for them in both switches.
    for shell, new in (one, 64), (other, 68):
        ports = {node: next(entry["port"] for entry in
                            fabric.ask(op="table", node=node, kind="unicast")["entries"]
                            if entry["lid"] == lid(fabric, shell.node)) for node in ("S1", "S2")}
        for node, number in ports.items():
            for i in range(4):
                table_entry_write(fabric, node, new + i, number)
        smp_write(fabric, lid(fabric, shell.node), PORT_INFO, 1, 34, bytes([2]), 16,
                  new.to_bytes(2, "big"))
        require(shell.facts("port")["lid"] == new and shell.facts("port")["lmc"] == 2,
                shell.facts("port"))
    qpn, peer = one.facts("qp", "ud", 7)["qpn"], other.facts("qp", "ud", 7)["qpn"]
    one.ask("ready")
    other.ask("ready")
    require(one.facts("datagram", 70, peer, 7, 100, 3, 1) == {"status": 0}, "datagram")
    got = other.received(1)
    require(got == [{"status": 0, "bytes": 140, "from": qpn, "slid": 65, "sl": 3, "bits": 2,
                     "grh": 0}], got)
    gid = other.ask("gid", 0)
    require(one.facts("datagram", 68, peer, 7, 1, 0, 0, gid) == {"status": 0}, "datagram")
    got = other.received(1)
    require(got == [{"status": 0, "bytes": 41, "from": qpn, "slid": 64, "sl": 0, "bits": 0,
                     "grh": 1, "sgid": one.ask("gid", 0), "dgid": gid}], got)
    # Loopback by the own LID passes no port.
    before = fabric.ask(op="counters", node="H2")
    require(one.facts("datagram", 66, qpn, 7, 1, 0, 3) == {"status": 0}, "datagram")
    got = one.received(1)
    require(got and got[0]["slid"] == 67 and got[0]["bits"] == 2, got)
    require(fabric.ask(op="counters", node="H2") == before, "loopback counts")
    # A QP of another node's process isn't there.
    require(one.facts("datagram", 64, peer, 7, 1) == {"status": 0}, "datagram")
    require(not other.received(1, 300), "a QP was reached by another node's LID")
    one.end()
    other.end()
    daemon_end(fabric)


def keys(fabric):
    """Another partition, and another Q_Key: dropped, counted, and a trap; a limited member reaches
    full members only."""
    start(fabric, small())
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    for shell, keys_ in (one, b"\x80\x05\x00\x06"), (other, b"\x80\x05\x00\x06\x80\x07"):
        smp_write(fabric, lid(fabric, shell.node), PKEYS, 0, 2, keys_)
        require(names(shell.events()) == ["P_Key change"], "event")

    def datagram(own, theirs, qkey=7):
        peer = other.facts("qp", "ud", 7, theirs)["qpn"]
        one.ask("qp", "ud", 7, own)
        one.ask("ready")
        other.ask("ready")
        require(one.facts("datagram", lid(fabric, "H4"), peer, qkey, 1) == {"status": 0}, "sent")
        return len(other.received(1, 500))

    violations = other.facts("port")
    for own, theirs, passes in (0, 0, 1), (1, 1, 1), (0, 1, 0), (1, 3, 0), (2, 2, 0), (1, 2, 0):
        require(datagram(own, theirs) == passes, f"P_Keys {own} and {theirs}")
    now = other.facts("port")
    require(now["pkey_violations"] == violations["pkey_violations"] + 4, now)
    require(datagram(1, 1, 8) == 0, "another Q_Key")
    poll_until(lambda: other.facts("port")["qkey_violations"]
               == violations["qkey_violations"] + 1, "the Q_Key violation isn't counted")
    # RC: requests of another partition get no answer.
    peers = [shell.facts("qp", "rc", 0, index)["qpn"] for shell, index in ((one, 1), (other, 3))]
    one.ask("connect", peers[1], lid(fabric, "H4"), 0, 0, 5, 10, 1)
    other.ask("connect", peers[0], lid(fabric, "H2"), 0, 0, 5, 10, 1)
    answer = one.facts("send", 1, 10)
    require(answer["status"] == RETRY_EXCEEDED, answer)
    require(other.facts("port")["pkey_violations"] == now["pkey_violations"] + 2,
            other.facts("port"))
    connect(fabric, one, other)
    require(one.facts("send", 3, 10)["done"] == 3, "P_Key 0")
    one.end()
    other.end()
    daemon_end(fabric)


if __name__ == "__main__":
    sys.exit(main([events, armed, datagrams, keys]))
