#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Verbs programs on a fabric's nodes: devices and ports as the subnet manager made them, Debian's
pingpongs and perftest by LID between nodes 1, 3 and 5 hops apart, and where the forwarding tables
don't lead."""
import re
import sys

from programs import daemon_end, pair, run, start, verbena
from stage import main, need, require

# Five switches in a line, an adapter at each, and two more at the first.
LINE = "\n".join(
    [f'Switch\t8 "S{i}"\n[1]\t"H{i}"[1]\n'
     + (f'[2]\t"G1"[1]\n[3]\t"G2"[1]\n' if i == 1 else "")
     + (f'[7]\t"S{i - 1}"[8]\n' if i > 1 else "") + (f'[8]\t"S{i + 1}"[7]\n' if i < 5 else "")
     for i in range(1, 6)]
    + [f'Hca\t1 "H{i}"\n[1]\t"S{i}"[1]\n' for i in range(1, 6)]
    + [f'Hca\t1 "G{i}"\n[1]\t"S1"[{i + 1}]\n' for i in (1, 2)])


def devices(fabric):
    """ibv_devinfo says of a port what the subnet manager set, and before that what it hasn't."""
    need("ibv_devinfo")
    start(fabric, LINE, manager=None)
    out = run(fabric, "H3", "ibv_devinfo", "-v")
    require("PORT_INIT" in out and re.search(r"port_lid:\s+0\n", out), out)
    verbena(fabric, "sm", "--node", "H1", "--once")
    out = run(fabric, "H3", "ibv_devinfo", "-v")
    node = fabric.ask(op="node", node="H3")["node"]
    port = node["ports"][0]
    guid = f"{int(node['guid'], 16):016x}"
    guid = ":".join(guid[i:i + 4] for i in range(0, 16, 4))
    for name, value in (("hca_id", "verbena0"), ("transport", "InfiniBand (0)"),
                        ("node_guid", guid), ("sys_image_guid", guid), ("phys_port_cnt", "1"),
                        ("state", "PORT_ACTIVE (4)"), ("port_lid", str(port["lid"])),
                        ("sm_lid", str(port["sm_lid"])), ("port_lmc", "0x00"),
                        ("link_layer", "InfiniBand"), ("active_mtu", f"{port['mtu']} (5)"),
                        ("max_mtu", "4096 (5)"), ("active_width", "4X (2)"),
                        ("active_speed", "50.0 Gbps (64)"), ("phys_state", "LINK_UP (5)"),
                        ("pkey_tbl_len", "64"), ("gid_tbl_len", "32")):
        require(re.search(rf"{name}:\s+{re.escape(value)}\n", out), f"{name} isn't {value}\n{out}")
    gid = f"fe80:0000:0000:0000:{int(port['guid'], 16):016x}"
    require(re.search(r"GID\[\s*0\]:\s+fe80:", out), f"{gid}\n{out}")
    daemon_end(fabric)


def hops_1_3_5(fabric):
    """Neighbours at one switch, at the next one, and four switches away."""
    need("ibv_rc_pingpong", "ib_write_bw")
    start(fabric, LINE)
    for client in ("G1", "H2", "H5"):
        pair(fabric, "H1", client, "ibv_rc_pingpong", "-n", "500")
        pair(fabric, "H1", client, "ibv_rc_pingpong", "-n", "50", "-s", "100000", "-e")
        pair(fabric, "H1", client, "ibv_uc_pingpong", "-n", "500")
        pair(fabric, "H1", client, "ibv_srq_pingpong", "-n", "500")
        pair(fabric, "H1", client, "ibv_ud_pingpong", "-n", "500")
        pair(fabric, "H1", client, "ibv_rc_pingpong", "-n", "500", "-g", "0")
        pair(fabric, "H1", client, "ibv_ud_pingpong", "-n", "500", "-g", "0")
    for program in ("ib_send_lat", "ib_write_lat", "ib_read_bw", "ib_write_bw", "ib_atomic_bw"):
        out = pair(fabric, "H1", "H5", program, "-n", "1000", "-F")
        require("Link type       : IB" in out[0], out[0])
    daemon_end(fabric)


def counters(fabric):
    """All counters of traffic: (node, port) -> (packets sent, words sent, received, received)."""
    return {(node["name"], port["port"]):
            tuple(port["counters"][name] for name in ("xmit_packets", "xmit_words", "rcv_packets",
                                                      "rcv_words"))
            for node in fabric.ask(op="topology")["nodes"]
            for port in fabric.ask(op="counters", node=node["name"])["ports"]}


def packets_of(length, mtu, header, first=0, last=0):
    """(packets, words) of a message."""
    count = max(1, -(-length // mtu))
    return count, (count * header + first + last + (length + 3) // 4 * 4) // 4


def exact(fabric):
    """Each port on the way counts what passed, packets and words, headers included: pingpongs
    with known numbers of messages; nobody else counts anything."""
    need("ibv_rc_pingpong", "ib_write_bw")
    start(fabric, LINE)
    base = 24
    runs = (
        # program and options, then what goes each way: (packets, words)
        (("ibv_rc_pingpong", "-n", "100", "-s", "5000", "-m", "2048"),
         [packets_of(5000, 2048, base), (1, 7)], [packets_of(5000, 2048, base), (1, 7)], 100),
        (("ibv_rc_pingpong", "-n", "100", "-s", "1", "-g", "0"),
         [packets_of(1, 2048, base + 40), (1, 17)], [packets_of(1, 2048, base + 40), (1, 17)], 100),
        (("ibv_uc_pingpong", "-n", "100", "-s", "4095", "-m", "1024"),
         [packets_of(4095, 1024, base)], [packets_of(4095, 1024, base)], 100),
        (("ibv_ud_pingpong", "-n", "100", "-s", "1001"),
         [packets_of(1001, 2048, base + 8)], [packets_of(1001, 2048, base + 8)], 100),
        (("ib_write_bw", "-n", "200", "-s", "10000", "-F", "-m", "4096"),
         [packets_of(10000, 4096, base, 16)], [(1, 7)], 200),
        (("ib_read_bw", "-n", "200", "-s", "10000", "-F", "-m", "4096"),
         [(1, 10)], [packets_of(10000, 4096, base, 4, 4)], 200),
        (("ib_read_bw", "-n", "200", "-s", "100", "-F", "-m", "4096"),
         [(1, 10)], [packets_of(100, 4096, base, 4)], 200),
        (("ib_atomic_bw", "-n", "200", "-F"), [(1, 13)], [(1, 9)], 200),
        (("ibv_xsrq_pingpong", "-n", "100", "-s", "1001", "-i", "1"),
         [packets_of(1001, 2048, base + 4), (1, 7)], [packets_of(1001, 2048, base + 4), (1, 7)],
         100),
    )
    for words, there, back, count in runs:
        before = counters(fabric)
        pair(fabric, "H1", "H5", *words)
        after = counters(fabric)
        change = {port: tuple(b - a for a, b in zip(before[port], after[port]))
                  for port in after if after[port] != before[port]}
        sent = [count * sum(one[i] for one in there) for i in (0, 1)]
        answered = [count * sum(one[i] for one in back) for i in (0, 1)]
        expected = {}
        for i in range(1, 6):
            if i < 5:
                expected[f"S{i}", 8] = (*answered, *sent)
                expected[f"S{i + 1}", 7] = (*sent, *answered)
        expected["H5", 1] = expected["S1", 1] = (*sent, *answered)
        expected["S5", 1] = expected["H1", 1] = (*answered, *sent)
        require(change == expected, f"{words}:\n{change}\nisn't\n{expected}")
    daemon_end(fabric)


def no_way(fabric):
    """Without an entry, an active link or a manager requests are retried, then fail."""
    need("ibv_rc_pingpong")
    start(fabric, LINE)
    fabric.ask(op="link", node="S3", port=8, action="down")
    out = pair(fabric, "H1", "H3", "ibv_rc_pingpong", "-n", "10")
    out = pair(fabric, "H1", "H5", "ibv_rc_pingpong", "-n", "10", code=1)
    require("transport retry counter exceeded" in "\n".join(out), out)
    discards = fabric.ask(op="counters", node="S4", port=7)["ports"][0]["counters"]
    require(discards["xmit_discards"] > 0, discards)
    # XRC, too.
    pair(fabric, "H1", "H5", "ib_write_bw", "-c", "XRC", "-n", "10", "-F", code=1)
    daemon_end(fabric)


if __name__ == "__main__":
    sys.exit(main([devices, hops_1_3_5, exact, no_way]))
