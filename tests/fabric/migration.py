#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Automatic path migration: two LIDs for each adapter (LMC 1), whose ways cross different cables.
When the cable of the primary path is cut, both ends go over to the alternate one."""
import shutil
import subprocess
import sys
import threading
import time

from capture import Capture, packets_of
from cm import addressed
from programs import Shell, connect, daemon_end, facts_of, lid, smp_write, start, table_entry_write
from stage import SMALL, main, poll_until, require

SWITCH_INFO, PORT_INFO = 0x12, 0x15
RETRY_EXCEEDED = 12
ONE, OTHER = 64, 68  # LIDs; the next ones go by the other cable


def port(fabric, node, number):
    return fabric.ask(op="counters", node=node, port=number)["ports"][0]["counters"]


def two_ways(fabric, program="verbs_shell"):
    """Two shells; what they send to the first LID goes by cable 7, to the second by cable 8."""
    start(fabric, addressed())
    shells = Shell(fabric, "H2", program), Shell(fabric, "H4", program)
    for node in ("S1", "S2"):
        smp_write(fabric, lid(fabric, node), SWITCH_INFO, 0, 6, (100).to_bytes(2, "big"))
    for shell, new, near, far in ((shells[0], ONE, "S1", "S2"), (shells[1], OTHER, "S2", "S1")):
        entries = fabric.ask(op="table", node=near, kind="unicast")["entries"]
        own = next(one["port"] for one in entries if one["lid"] == lid(fabric, shell.node))
        for i in (0, 1):
            table_entry_write(fabric, near, new + i, own)
            table_entry_write(fabric, far, new + i, 7 + i)
        smp_write(fabric, lid(fabric, shell.node), PORT_INFO, 1, 34, bytes([1]), 16,
                  new.to_bytes(2, "big"))
    return shells


def arm(shells):
    """Both ends get an alternate path; the first waits for the second."""
    one, other = shells
    require(one.facts("migrate") == {"error": 0}, "MIGRATED is MIGRATED")
    require(one.facts("alternate", OTHER + 1) == {"error": 0}, "alternate path")
    require(one.facts("migration") == {"state": "REARM", "dlid": OTHER}, one.facts("migration"))
    require(other.facts("alternate", ONE + 1) == {"error": 0}, "alternate path")
    for shell in shells:
        poll_until(lambda shell=shell: shell.facts("migration")["state"] == "ARMED",
                   f"{shell.node} isn't armed")


def migrated(shells):
    for shell, to in zip(shells, (OTHER + 1, ONE + 1)):
        poll_until(lambda shell=shell: shell.facts("migration")["state"] == "MIGRATED",
                   f"{shell.node} hasn't migrated")
        require(shell.facts("migration")["dlid"] == to, shell.facts("migration"))
        got = shell.events(300)
        require("path migrated port=0" in [text.partition(" port=")[0] + " port=0" for text in got],
                f"{shell.node}: {got}")


def cut(fabric):
    """The cable is cut under traffic. No manager runs."""
    shells = one, other = two_ways(fabric)
    connect(fabric, one, other, "rc", 0, 0, 5, 10, 3)
    arm(shells)
    target = other.facts("memory")
    for shell in shells:
        shell.events(100)
    answer = {}
    thread = threading.Thread(target=lambda: answer.update(
        one.facts("stream", 2, 4000, target["address"], target["rkey"])))
    thread.start()
    time.sleep(0.5)
    before = port(fabric, "S1", 8)["xmit_packets"]
    fabric.ask(op="link", node="S1", port=7, action="down")
    thread.join()
    print(f"      {answer['done']} messages, longest stall {answer['longest_us'] / 1000:.1f} ms")
    require(answer["status"] == 0 and answer["done"] > 100, answer)
    require(port(fabric, "S1", 8)["xmit_packets"] > before + 100, "nothing goes by the other cable")
    migrated(shells)
    require(other.facts("send", 10, 100)["done"] == 10 and len(one.received(10)) == 10, "back")
    # There is no third path.
    fabric.ask(op="link", node="S1", port=8, action="down")
    require(one.facts("send", 1, 100)["status"] == RETRY_EXCEEDED, "without a path")
    for shell in shells:
        shell.end()
    daemon_end(fabric)


def by_program(fabric):
    """The program has its QP migrate, RC and UC; and back, with a new alternate path."""
    shells = one, other = two_ways(fabric)
    for kind in ("rc", "uc"):
        connect(fabric, one, other, kind)
        require(one.facts("send", 10, 100)["done"] == 10 and len(other.received(10)) == 10, kind)
        arm(shells)
        for shell in shells:
            shell.events(100)
        before = port(fabric, "S1", 8)["xmit_packets"]
        require(other.facts("migrate") == {"error": 0}, "migrate")
        migrated(shells)
        require(one.facts("send", 10, 100)["done"] == 10 and len(other.received(10)) == 10, kind)
        require(port(fabric, "S1", 8)["xmit_packets"] >= before + 10, "it goes the former way")
        require(one.facts("alternate", OTHER) == {"error": 0}, "alternate path")
        require(other.facts("alternate", ONE) == {"error": 0}, "alternate path")
        poll_until(lambda: one.facts("migration")["state"] == "ARMED", "not armed again")
        require(one.facts("migrate") == {"error": 0}, "migrate")
        poll_until(lambda: other.facts("migration") == {"state": "MIGRATED", "dlid": ONE}, "back")
        before = port(fabric, "S1", 7)["xmit_packets"]
        require(one.facts("send", 10, 100)["done"] == 10 and len(other.received(10)) == 10, kind)
        require(port(fabric, "S1", 7)["xmit_packets"] >= before + 10, "it goes the other way")
    for shell in shells:
        shell.end()
    daemon_end(fabric)


def one_side_only(fabric):
    """Without the peer's consent nothing is armed, and a cut is the end."""
    shells = one, other = two_ways(fabric)
    connect(fabric, one, other, "rc", 0, 0, 5, 10, 1)
    require(one.facts("send", 1, 100)["done"] == 1, "before")
    require(one.facts("alternate", OTHER + 1) == {"error": 0}, "alternate path")
    require(one.facts("migrate")["error"] == 22, "it isn't armed")
    fabric.ask(op="link", node="S1", port=7, action="down")
    require(one.facts("send", 1, 100)["status"] == RETRY_EXCEEDED, "it migrates alone")
    for shell in shells:
        shell.end()
    daemon_end(fabric)


def refused(fabric):
    """The peer migrates to another path than this one's alternate: this one is told so, once, and
    doesn't follow; what the peer sends is lost."""
    shells = one, other = two_ways(fabric)
    connect(fabric, one, other, "rc", 0, 0, 5, 10, 1)
    require(one.facts("alternate", OTHER + 1) == {"error": 0}, "alternate path")
    require(other.facts("alternate", lid(fabric, "H3")) == {"error": 0}, "alternate path")
    for shell in shells:
        poll_until(lambda shell=shell: shell.facts("migration")["state"] == "ARMED", "not armed")
        shell.events(100)
    require(one.facts("migrate") == {"error": 0}, "migrate")
    got = [text.partition(" port=")[0] for text in other.events()]
    require(got == ["path migration request error"], got)
    require(other.facts("migration") == {"state": "ARMED", "dlid": ONE}, "it has followed")
    require(one.facts("send", 1, 100)["status"] == RETRY_EXCEEDED, "it answers by no path")
    for shell in shells:
        shell.end()
    daemon_end(fabric)


# Statuses of an APR.
IS_CURRENT, INVALID_LID = 5, 7
EINVAL = 22


def disconnect_and_end(fabric, shells):
    """The disconnection takes the path that is left, in both directions."""
    one, other = shells
    other.tell("end")
    require(one.facts("disconnect") == {"error": 0}, "disconnect")
    require(facts_of(other.line()) == {"error": 0}, "the peer's disconnection")
    for shell in shells:
        shell.end()
    daemon_end(fabric)


def over_connection(fabric):
    """The program that connected loads an alternate path over the connection (LAP, APR); its peer
    does nothing for that. The cut follows. What can't be loaded is refused, and harms nothing."""
    shells = one, other = two_ways(fabric, "cm_shell")
    require(other.facts("listen", "10.0.0.4", 7471) == {"error": 0}, "listen")
    other.tell("accept")
    answer = one.facts("connect", "10.0.0.4", 7471, OTHER, ONE)
    require(answer == {"error": 0}, f"connect: {answer}")
    require(facts_of(other.line()) == {"error": 0}, "accept")
    other.tell("receive", 40)
    require(one.facts("send", 10) == {"status": 0, "done": 10}, "before")
    for to, own, status in ((OTHER, ONE, IS_CURRENT), (OTHER + 5, ONE + 1, INVALID_LID)):
        answer = one.facts("load", to, own)
        require(answer == {"event": "other", "status": status}, answer)
    require(one.facts("migration") == {"state": "MIGRATED", "dlid": OTHER, "alternate": 0},
            "a path that the peer refused")
    capture = Capture(fabric, "H2/1")
    require(one.facts("load", OTHER + 1, ONE + 1) == {"event": "ROUTE_RESOLVED", "status": 0}, "load")
    poll_until(lambda: one.facts("migration") == {"state": "ARMED", "dlid": OTHER,
                                                  "alternate": OTHER + 1}, "not armed")
    # The same again changes nothing.
    require(one.facts("load", OTHER + 1, ONE + 1) == {"event": "ROUTE_RESOLVED", "status": 0}, "load")
    poll_until(lambda: len(list(packets_of(capture.path))) >= 4, "two LAPs and two APRs")
    capture.child.terminate()
    capture.end()
    is_dissected(capture.path)
    before = port(fabric, "S1", 8)["xmit_packets"]
    fabric.ask(op="link", node="S1", port=7, action="down")
    require(one.facts("send", 30) == {"status": 0, "done": 30}, "after the cut")
    require(port(fabric, "S1", 8)["xmit_packets"] >= before + 30, "it goes the former way")
    require(facts_of(other.line()) == {"done": 40}, "what came")
    for shell, to in ((one, OTHER + 1), (other, ONE + 1)):
        require(shell.facts("migration") == {"state": "MIGRATED", "dlid": to, "alternate": to},
                shell.facts("migration"))
    # The side that was connected to may not.
    require(other.facts("load", ONE, OTHER) == {"error": EINVAL}, "a LAP of the passive side")
    disconnect_and_end(fabric, shells)


def two_ports(fabric):
    """Adapters with two ports, at different switches. H2's and H4's connection is made by the first
    ones, and its queue pairs have the others as their alternate path."""
    with open(SMALL, encoding="ascii") as file:
        text = file.read()
    for i, own, other, place in ((2, "S1", "S2", 3), (4, "S2", "S1", 3)):
        text = text.replace(f'Hca\t1 "H{i}"\n[1]\t"{own}"[2] w=2 s=1',
                            f'Hca\t2 "H{i}" # ip=10.0.0.{i}/8\n[1]\t"{own}"[2] w=2 s=1\n'
                            f'[2]\t"{other}"[{place}] w=2 s=1')
        text = text.replace(f'[7]\t"{own}"[7]', f'[{place}]\t"H{i}"[2] w=2 s=1\n[7]\t"{own}"[7]')
    start(fabric, text)
    shells = one, other = Shell(fabric, "H2", "cm_shell"), Shell(fabric, "H4", "cm_shell")
    ports = {node: fabric.ask(op="node", node=node)["node"]["ports"] for node in ("H2", "H4")}
    lids, guids = ({node: [port[what] for port in ports[node]] for node in ports}
                   for what in ("lid", "guid"))
    require(other.facts("listen", "10.0.0.4", 7471) == {"error": 0}, "listen")
    other.tell("accept")
    answer = one.facts("connect", "10.0.0.4", 7471, lids["H4"][0], lids["H2"][0])
    require(answer == {"error": 0}, f"connect: {answer}")
    require(facts_of(other.line()) == {"error": 0}, "accept")

    def load(to, own):
        return one.facts("load", lids["H4"][to], lids["H2"][own], guids["H4"][to],
                         guids["H2"][own])

    other.tell("receive", 40)
    require(one.facts("send", 10) == {"status": 0, "done": 10}, "before")
    require(load(1, 1) == {"event": "ROUTE_RESOLVED", "status": 0}, "load")
    poll_until(lambda: one.facts("migration")["state"] == "ARMED", "not armed")
    for node, switch in (("H2", "S1"), ("H4", "S2")):
        fabric.ask(op="link", node=switch, port=2, action="down")
    require(one.facts("send", 30) == {"status": 0, "done": 30}, "after the cut")
    require(facts_of(other.line()) == {"done": 40}, "what came")
    # The messages go by the other ports: no other way is left.
    require(load(0, 1) == {"event": "ROUTE_RESOLVED", "status": 0}, "load after the cut")
    disconnect_and_end(fabric, shells)


def is_dissected(path):
    """tshark knows the LAPs and the APRs in a capture."""
    if not shutil.which("tshark"):
        return
    text = subprocess.run(["tshark", "-r", path], capture_output=True, text=True, check=True).stdout
    for name in ("LoadAlternatePath", "AlternatePathResponse"):
        require(text.count(name) >= 2, f"no {name} in:\n{text}")
    require("Malformed" not in text, text)


if __name__ == "__main__":
    sys.exit(main([cut, by_program, one_side_only, refused, over_connection, two_ports]))
