#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Connections by a node's IP address, which the topology gives: Debian's rping, ucmatose, udaddy,
mckey, rstream on nodes, with our subnet manager and with OpenSM."""
import os
import re
import signal
import sys

from capture import Capture, stopped
from programs import daemon_end, lid, pair_by_address, run, smp_write, spawn, start, verbena
from stage import PATIENCE, SMALL, main, need, poll_until, require


def addressed():
    """The small net, with addresses."""
    with open(SMALL, encoding="ascii") as file:
        return re.sub(r'(?m)^(Hca\t1 "H(\d)")', r'\1 # ip=10.0.0.\2/8', file.read())


def begin(fabric, manager="verbena"):
    start(fabric, addressed(), manager=None)
    if manager == "opensm":
        fabric.manager("H1", "log")
    else:
        verbena(fabric, "sm", "--node", "H1", "--detach")


def programs(fabric):
    need("rping", "ucmatose", "udaddy", "rstream")
    begin(fabric)
    address = ["10.0.0.3"]
    for server, client in (("H3", "H2"), ("H3", "H4"), ("H3", "H3")):
        pair_by_address(fabric, server, client, ["rping", "-s", "-C", "20", "-v"],
                        ["rping", "-c", "-C", "20", "-v", "-a", *address])
        pair_by_address(fabric, server, client, ["ucmatose"], ["ucmatose", "-s", *address])
        pair_by_address(fabric, server, client, ["udaddy"], ["udaddy", "-s", *address])
        pair_by_address(fabric, server, client, ["rstream", "-C", "100"],
                        ["rstream", "-C", "100", "-s", *address])
    pair_by_address(fabric, "H3", "H2", ["rping", "-s", "-C", "5", "-a", *address],
                    ["rping", "-c", "-C", "5", "-a", *address])
    daemon_end(fabric)


def with_opensm(fabric):
    need("rping", "opensm")
    begin(fabric, "opensm")
    pair_by_address(fabric, "H3", "H2", ["rping", "-s", "-C", "20", "-v"],
                    ["rping", "-c", "-C", "20", "-v", "-a", "10.0.0.3"])
    daemon_end(fabric)


def groups(fabric):
    """mckey joins a group at the subnet administration; its datagrams cross two switches."""
    need("mckey")
    begin(fabric)
    receivers = [spawn(fabric, node, "mckey", "-m", "239.1.2.3", "-b", address, "-C", "10")
                 for node, address in (("H3", "10.0.0.3"), ("H1", "10.0.0.1"))]
    # The sender's join is answered before the tables have its port, so the others make the tree.
    group_is_known(fabric)
    run(fabric, "H2", "mckey", "-m", "239.1.2.3", "-b", "10.0.0.2", "-s", "-C", "10")
    for receiver in receivers:
        out, _ = receiver.communicate(timeout=PATIENCE)
        require(not receiver.returncode and "test complete" in out, out)
    daemon_end(fabric)


def gid(fabric, node):
    """The GID of a node's port, as an IPv6 address is written."""
    guid = int(fabric.ask(op="node", node=node)["node"]["ports"][0]["guid"], 16)
    return "fe80::" + ":".join(f"{guid >> shift & 0xffff:x}" for shift in (48, 32, 16, 0))


def by_gid(fabric):
    """Addresses of the family AF_IB: no IP address has to be known. Beside them, listeners on the
    same node with IP addresses and other ports."""
    need("ucmatose", "udaddy", "rstream")
    begin(fabric)
    other = spawn(fabric, "H3", "ucmatose", "-p", "7999")
    target = gid(fabric, "H3")
    for client_node in ("H2", "H4", "H3"):
        for program, *options in (("ucmatose",), ("ucmatose", "-p", "9029"), ("udaddy",)):
            pair_by_address(fabric, "H3", client_node,
                            [program, "-f", "gid", "-b", target, *options],
                            [program, "-f", "gid", "-s", target, "-b", gid(fabric, client_node),
                             *options])
        pair_by_address(fabric, "H3", client_node, ["ucmatose", "-f", "gid", "-P", "ib"],
                        ["ucmatose", "-f", "gid", "-P", "ib", "-s", target])
        pair_by_address(fabric, "H3", client_node, ["rstream", "-f", "gid", "-C", "100"],
                        ["rstream", "-f", "gid", "-C", "100", "-s", target])
    out = run(fabric, "H2", "ucmatose", "-f", "gid", "-s", "fe80::1234", code=None)
    require("ROUTE_ERROR" in out, out)
    out = run(fabric, "H2", "ucmatose", "-f", "gid", "-s", target, "-p", "7999", code=None)
    require("REJECTED" in out or "event: 8" in out.lower(), out)
    out = run(fabric, "H2", "ucmatose", "-s", "10.0.0.3", "-p", "7999")
    require(not other.wait(timeout=PATIENCE), "the other listener")
    daemon_end(fabric)


def group_is_known(fabric):
    for node in ("S1", "S2"):
        poll_until(lambda node=node: fabric.ask(op="table", node=node, kind="multicast")["entries"],
                   "the group has no ports")


def managers_change(fabric):
    """A subnet manager that knows nothing of the groups has all ports register: the groups are
    joined anew, and their datagrams arrive. First OpenSM, then ours."""
    need("mckey", "opensm")
    start(fabric, addressed(), manager=None)
    for name in ("opensm", "verbena-sm"):
        for count in (1, 2):
            if name == "opensm":
                manager = fabric.manager("H4", f"log{count}")
            else:
                verbena(fabric, "sm", "--node", "H4", "--detach")
            if count == 1:
                receivers = [spawn(fabric, node, "mckey", "-m", "239.1.2.3", "-b", address, "-C",
                                   "10") for node, address in (("H3", "10.0.0.3"),
                                                               ("H1", "10.0.0.1"))]
            group_is_known(fabric)
            if count == 1:
                if name == "opensm":
                    manager.kill()
                    manager.wait()
                else:
                    os.kill(client(fabric, name)["pid"], signal.SIGKILL)
                # What the switches have isn't of the next manager.
                for node in ("S1", "S2"):
                    smp_write(fabric, lid(fabric, node), 0x1b, 0, 0, bytes(64))
        run(fabric, "H2", "mckey", "-m", "239.1.2.3", "-b", "10.0.0.2", "-s", "-C", "10")
        for receiver in receivers:
            out, _ = receiver.communicate(timeout=PATIENCE)
            require(not receiver.returncode and "test complete" in out, out)
        if name == "opensm":
            manager.kill()
            manager.wait()
    daemon_end(fabric)


def client(fabric, program):
    return next(one for one in fabric.ask(op="status")["clients"] if one["program"] == program)


def is_path_question(packet):
    """Whether it is SubnAdmGet(PathRecord)."""
    mad = packet[28 + (40 if packet[1] & 3 == 3 else 0):]
    return (mad[1], mad[3], mad[16:18]) == (3, 1, b"\x00\x35")


def restarts(fabric):
    """A listener's node is found again after verbena-fabric was killed. Path records are asked for
    once, until the tables change: the manager may still change some."""
    need("rping")
    begin(fabric)
    words = ["rping", "-c", "-C", "5", "-a", "10.0.0.3"]
    with_node = spawn(fabric, "H2", "rping", "-s", "-p", "9999")  # the node stays known to verbenad
    server = spawn(fabric, "H3", "rping", "-s", "-P", "-C", "5")

    def connects():
        """How often the manager was asked for a path; the tables' epochs before and after."""
        capture = Capture(fabric, "H1/1")
        epochs = [fabric.ask(op="status")["epoch"]]
        out = run(fabric, "H2", *words, code=None)
        while "REJECTED" in out or "UNREACHABLE" in out:
            out = run(fabric, "H2", *words, code=None)
        require("error" not in out.lower(), out)
        epochs.append(fabric.ask(op="status")["epoch"])
        return sum(is_path_question(packet) for _, packet in stopped(capture)), epochs

    rounds = [connects()]
    while not rounds[1:] or len({epoch for _, epochs in rounds[-2:] for epoch in epochs}) > 1:
        rounds.append(connects())
    print(f"      questions for paths: {[count for count, _ in rounds]}")
    require(rounds[0][0] and not rounds[-1][0], "the path's record isn't kept")
    fabric.kill()
    fabric.start("--resume")
    poll_until(lambda: [one for one in fabric.ask(op="status")["clients"]
                        if one["program"] == "verbenad"], "verbenad is lost")
    poll_until(lambda: fabric.ask(op="status")["managers"], "the manager is lost")
    for _ in range(2):
        connects()
    require(server.poll() is None and with_node.poll() is None, "a server has ended")
    daemon_end(fabric)


def refusals(fabric):
    """No node has the address; no program listens; there is no subnet manager."""
    need("rping")
    start(fabric, addressed(), manager=None)
    out = run(fabric, "H2", "rping", "-c", "-C", "1", "-a", "10.0.0.3", code=None)
    require("ADDR_ERROR" in out, out)
    verbena(fabric, "sm", "--node", "H1", "--detach")
    out = run(fabric, "H2", "rping", "-c", "-C", "1", "-a", "10.0.0.9", code=None)
    require("ADDR_ERROR" in out, out)
    spawn(fabric, "H3", "rping", "-s", "-p", "9999")
    for _ in range(2):
        # No answer comes for a while: until that program has its node's connection manager.
        out = run(fabric, "H2", "rping", "-c", "-C", "1", "-a", "10.0.0.3", code=None)
        if "REJECTED" in out:
            break
    require("REJECTED" in out, out)
    daemon_end(fabric)


if __name__ == "__main__":
    sys.exit(main([programs, with_opensm, by_gid, groups, managers_change, restarts, refusals]))
