#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Connections by a node's IP address, which the topology gives: Debian's rping, ucmatose, udaddy,
mckey, rstream on nodes, with our subnet manager and with OpenSM."""
import re
import sys

from programs import daemon_end, pair_by_address, run, spawn, start, verbena
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
    for node in ("S1", "S2"):
        poll_until(lambda node=node: fabric.ask(op="table", node=node, kind="multicast")["entries"],
                   "the group has no ports")
    run(fabric, "H2", "mckey", "-m", "239.1.2.3", "-b", "10.0.0.2", "-s", "-C", "10")
    for receiver in receivers:
        out, _ = receiver.communicate(timeout=PATIENCE)
        require(not receiver.returncode and "test complete" in out, out)
    daemon_end(fabric)


def refusals(fabric):
    """No node has the address; nobody listens; there is no subnet manager."""
    need("rping")
    start(fabric, addressed(), manager=None)
    out = run(fabric, "H2", "rping", "-c", "-C", "1", "-a", "10.0.0.3", code=None)
    require("ADDR_ERROR" in out, out)
    verbena(fabric, "sm", "--node", "H1", "--detach")
    out = run(fabric, "H2", "rping", "-c", "-C", "1", "-a", "10.0.0.9", code=None)
    require("ADDR_ERROR" in out, out)
    spawn(fabric, "H3", "rping", "-s", "-p", "9999")
    for _ in range(2):
        # Before that program has its node's connection manager, nobody answers, for a while.
        out = run(fabric, "H2", "rping", "-c", "-C", "1", "-a", "10.0.0.3", code=None)
        if "REJECTED" in out:
            break
    require("REJECTED" in out, out)
    daemon_end(fabric)


if __name__ == "__main__":
    sys.exit(main([programs, with_opensm, groups, refusals]))
