#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes inputs for the fuzz targets to begin with: one ordinary life of everything.

usage: tests/fuzz/seeds.py FOLDER      (writes FOLDER/TARGET/seed-*)

The numbers are those of the targets' tables of actions; the other files of the corpus are what the
fuzzers made of these, chosen by tests/fuzz/minimize.
"""
import pathlib
import random
import sys

# daemon_commands.c
COMMAND, ATTACH, CONTEXT, END, CTL, READ, ROUNDS, TABLE, SCARCE, RESTART = (
    0, 6, 9, 10, 11, 13, 14, 15, 16, 18)
# commands.c
(PD, MR, CHANNEL, CQ, SRQ, QP, AH, REREG, RESIZE, MODIFY_SRQ, DEALLOC_PD, DEREG, DESTROY_AH,
 DESTROY_CQ, DESTROY_QP, DESTROY_SRQ, DESTROY_CHANNEL, LINK, EX_QUERY, LINK_RETURN, RETURNED) = range(21)
IMPORT_PD, UNIMPORT_PD, QUERY_MR, ROUTE = 25, 26, 27, 255
ATTACH_GROUP, DETACH_GROUP = 254, 253
CREATE_FLOW, DESTROY_FLOW = 241, 240
ALLOC_DM, FREE_DM, IMPORT_DM, REG_DM_MR, NULL_MR = range(239, 234, -1)


def command(client, which, *body, other=0, makes=None, cut=0):
    """`makes`: the place of the object among those that the client has made."""
    returned = [makes, 0] if makes is not None else []
    return [COMMAND, client, other, which, *body, *returned, 0, cut]


def attach(client, how=1, who=None):
    return [ATTACH, client, client if who is None else who, how, 0]


def objects(client):
    return (command(client, PD, makes=0)
            + command(client, CHANNEL, makes=1)
            + command(client, CQ, 16, 0, 0, 0, makes=2)
            + command(client, SRQ, 0, 8, 1, makes=3)
            + command(client, MR, 1, 8, 9, 0, 7, makes=4)
            + command(client, QP, 0, 0, 0, 1, 0, 8, 8, 0, makes=5)
            + command(client, AH, 0, 0, makes=6))


def destroy(client):
    kinds = (DESTROY_AH, DESTROY_QP, DEREG, DESTROY_SRQ, DESTROY_CQ, DESTROY_CHANNEL, DEALLOC_PD)
    return sum((command(client, kind, 0) for kind in kinds), [])


def daemon_commands():
    two = attach(0) + attach(1) + [CONTEXT, 2, 0, 1, 0] + [CONTEXT, 3, 1, 1, 0]
    link = command(0, LINK, other=1) + [READ, 0, READ, 1]
    back = [RESTART] + attach(0, 2) + attach(1, 2) + [CONTEXT, 2, 0, 1, 0] + objects(2)
    links_back = command(0, LINK_RETURN, 0, other=1) + command(1, LINK_RETURN, 1, other=0)
    returned = command(0, RETURNED) + command(1, RETURNED)
    yield two + objects(2) + destroy(2)
    yield two + objects(2) + [CTL, 0, CTL, 2, TABLE, 1, 1, 2, 0, 0, 9, 0, 0, 0, CTL, 2]
    yield two + link + [END, 1, 0]
    yield two + objects(2) + link + back + links_back + returned + destroy(2)
    yield two + link + [RESTART] + attach(0, 2) + links_back + [END, 1, 255] + returned
    yield (two + objects(2) + command(3, IMPORT_PD, 0, other=2, makes=0)
           + command(3, QUERY_MR, 0, other=2) + command(3, CQ, 16, 0, 1, makes=1) + [END, 2, 0]
           + command(3, UNIMPORT_PD, 0))
    narrow = [SCARCE, 225] + two
    yield narrow + command(2, EX_QUERY, 0, 0, 0, 0, cut=150) * 20 + [READ, 2, ROUNDS, 1, READ, 2]
    yield narrow + (command(0, LINK, other=1) + [END, 1, 0] + attach(1)) * 8 + [READ, 0, READ, 0]
    yield two + objects(2) * 5
    yield (two + command(2, ROUTE, 1, 0, *[0] * 10, 255, 255, 127, 0, 0, 1)
           + command(2, ROUTE, 1, 1, 0xfe, 0x80, *[0] * 14) + command(2, ROUTE, 2, 7, *range(16)))
    datagrams = command(2, QP, 0, 0, 0, 1, 0, 8, 8, 2, makes=7)
    groups = sum((command(2, ATTACH_GROUP, 0, which, makes=7) for which in (0, 1, 2, 3)), [])
    yield (two + objects(2) + datagrams + groups + command(2, DETACH_GROUP, 0, 1)
           + command(2, DESTROY_QP, 0) + [CTL, 2] + command(2, DETACH_GROUP, 0, 1) + [END, 2, 0])
    yield (two + objects(2) + datagrams + groups + back + datagrams + groups + returned
           + command(2, ATTACH_GROUP, 0, 130, 77, makes=7) + [END, 0, 0])
    raw = command(2, QP, 0, 0, 0, 0, 0, 8, 8, 3, makes=7)
    spec = [0x41, 0, 0, 0, 16, 0, 0, 0, *[0] * 8]  # UDP
    flows = sum((command(2, CREATE_FLOW, 0, kind, 0, 1, 0, count, size, *spec[:size], makes=8)
                 for kind, count, size in ((0, 1, 16), (1, 0, 0), (3, 0, 0), (0, 1, 15))), [])
    yield (two + objects(2) + raw + flows + command(2, DESTROY_QP, 0) + command(2, DESTROY_FLOW, 0)
           + [CTL, 2] + [END, 2, 0])
    yield two + objects(2) + raw + flows + back + raw + flows + returned + flows + [END, 0, 0]
    # Device memory: a buffer, regions in it and beyond, another process that imports it; null regions.
    memory = (command(2, ALLOC_DM, 100, makes=0) + command(2, REG_DM_MR, 0, 200, 1, 0, 0, makes=1)
              + command(2, REG_DM_MR, 255, 255, 1, 0, 0, makes=1) + command(2, NULL_MR, 0, makes=2))
    yield (two + objects(2) + memory + command(3, IMPORT_DM, 0, other=2) + command(2, FREE_DM, 0) + [CTL, 2]
           + command(2, FREE_DM, 0) + [END, 2, 0])
    yield two + objects(2) + memory + back + memory + returned + [END, 0, 0]
    for n in (1, 2, 3, 5):
        yield [SCARCE, n] + two + objects(2) + raw + flows + [END, 0, 180]
        yield [SCARCE, n] + two + objects(2) + datagrams + groups + [END, 0, 180]
        yield [SCARCE, n] + two + objects(2) + link + [END, 0, 180]


def post_recv(action, qp):
    return [action, qp, 1, 0, 0, 131, 0]  # one segment: a whole region


def ring_entries():
    record, recv, send, serve, poll, round_, time, modify, region, link = 0, 6, 5, 12, 8, 9, 10, 14, 15, 16
    for vm in (0, 1):
        for kind in range(1, 17):
            yield ([vm] + post_recv(recv, 0) + [record, 0, kind, 9, 0, 0, 0, 0, 0]
                   + [1, 0, 0, 64, 0, 1] + [poll, 1, round_])
        for op in range(7):
            yield ([vm, send, 0, op, 2, 0, 1, 0, 1, 0, 0, 237, 0, round_, serve, 0, 0, 0, round_, poll, 1,
                    time, 32, modify, 0, 6, region, 1, link, 7])
    for to in (119, 120, 121):  # a datagram to a group: another, and the QP's
        yield ([0] + post_recv(recv, 3) + [record, 3, 8, 4, 0, 0, 0, 0, 0, 1, 0, 0, 64, 0, to, 0, 1]
               + [poll, 3, round_])
    yield from tagged(record, recv, round_, poll)
    yield from full_ring()
    for size in (64, 133, 131):
        yield from pulled(size, record, recv, serve, round_)
    yield from held()


def tagged(record, recv, round_, poll):
    """Messages to an SRQ that matches tags: eager and rendezvous, in the record and by reference, with
    and without a buffer or a receive, with the SRQ's READ and without."""
    add = [240, 3, 3, 1, 0, 0, 131, 0, 1, 0]  # a buffer of a whole region, for the tag 1

    def send(opcode, how):
        return [record, 1, 1, 9, 0, 0, 0, 0, 0, 1, 0, 0, 64, opcode, 0, how, 0, 1]
    by_reference = [record, 1, 2, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 64, 0, 1]
    for options in (16, 17, 48, 49):
        for opcode in range(4):
            for before in (add, post_recv(recv, 5), []):
                yield ([options] + before + send(opcode, 1) + [round_, poll, 1] + post_recv(recv, 5) + add
                       + [round_, poll, 1])
            yield ([options] + add + [240, 0, opcode, 0, 1] + by_reference + [round_, poll, 1, 14, 1, 6, round_, poll, 1])
        yield [options] + (add + send(1, 1)) * 4 + [12, round_] * 8 + [240, 0x62, 240, 1, 0, poll, 3]


def full_ring():
    """Three READs of 32 KiB: the last one waits until the ring has room, and what follows, too."""
    record, consume, serve, round_, read_req = 0, 11, 12, 9, 6
    read = [record, 0, read_req, 9, 0, 0, 0, 0, 0, 1, 0, 0, 131, 0, 1]
    yield [0] + read * 3 + [consume, 0, 1, serve, round_, record, 0, 1, 9, 0, 0, 0, 0, 0, 1, 0, 0, 9, 0, 1]
    yield [0] + read * 4 + [serve, round_, serve, round_, serve, round_]
    yield [0] + read * 3 + [record, 1, 1, 9, 0, 0, 0, 0, 0, 1, 0, 0, 9, 0, 1] * 4 + [serve, round_] * 3


def pulled(size, record, recv, serve, round_):
    """A message by reference that is streamed, in one piece or more."""
    send_ref, send_data = 2, 3
    message = [record, 0, send_ref, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, size, 0, 1]
    piece = [record, 0, send_data, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    for vm in (0, 1):
        yield [vm] + post_recv(recv, 0) + message + piece * 5 + [serve, round_]


def held():
    """What was wrong once: a receive's place is posted to again while its message is streamed, and
    a WRITE with immediate data waits behind a SEND and then for a receive."""
    record, recv, modify, round_, write = 0, 6, 14, 9, 5
    send_ref = [record, 0, 2, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 64, 0, 1]
    yield [0] + post_recv(recv, 0) * 4 + send_ref + post_recv(recv, 0) + [modify, 0, 6, round_]
    send = [record, 0, 1, 225, 0, 0, 0, 0, 0, 1, 0, 0, 8, 0, 1]
    write_imm = [record, 0, write, 237, 0, 0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 1]
    yield [0] + send + write_imm + post_recv(recv, 0) * 3 + [round_]


def shared_tables():
    send, table_mr, header, region, poll, round_, link = 7, 2, 5, 16, 11, 12, 17
    for file in range(5):  # the peer's region is in a file; the first WRITE or READ asks for it
        for offset in (0, 8):
            write, read = ([send, 0, op, 2, 0, 1, 0, 1, 0, 0, 64, 0] for op in (0, 4))
            yield [1 | 4 | offset | file << 4] + (write + [round_] + read + [round_, poll, 1]) * 3 + [link, 7]
    for vm in (0, 1):
        for op in range(7):
            yield ([vm, table_mr, 2, 31, 64, 15, send, 0, op, 2, 0, 1, 0, 1, 0, 0, 64, 0, poll, 1,
                    header, 64, 1, 0, region, 1])


def packets():
    """What two kernel rxe peers sent, as captured; each also with flags that mend it."""
    golden = pathlib.Path(__file__).resolve().parents[1] / "unit" / "wire" / "golden"
    seen = set()
    for capture in sorted(golden.glob("*.pcap")):
        data, at = capture.read_bytes(), 24
        while at < len(data):
            size = int.from_bytes(data[at + 8:at + 12], "little")
            frame, at = data[at + 16:at + 16 + size], at + 16 + size
            is_v6 = frame[12:14] == b"\x86\xdd"
            ip = 40 if is_v6 else 20
            udp = frame[14 + ip:]
            if frame[14 + (6 if is_v6 else 9)] != 17 or udp[2:4] != b"\x12\xb7":
                continue
            addresses = frame[34:38] + frame[50:54] if is_v6 else frame[26:34]
            path = addresses + udp[:2] + (b"\0\0" if is_v6 else frame[18:20]) + bytes(4)
            if udp[8] not in seen or is_v6:
                seen.add(udp[8])
                yield bytes([is_v6]) + path + udp[8:]
                yield bytes([is_v6 | 6]) + path + udp[8:72]
    # The kernel has no XRC. FLUSH and ATOMIC WRITE, with all reserved bits set.
    for opcode, more in ((0xbc, 24), (0xbd, 28)):
        yield bytes([2]) + bytes(range(1, 17)) + bytes([opcode, 0]) + b"\xff" * (10 + more) + bytes(4)


def transport():
    """Ordinary traffic both ways, for RC and UC, some of it with a world that fails."""
    post, time, state, send, packet = 0, 2, 3, 4, 5

    def request(what, length):
        return [post, what] + list(length.to_bytes(4, "little"))

    def arrives(what, near=0, syndrome=31, msn=0, kind=1):
        return [packet, what, kind, near & 255, syndrome, msn]

    messages = [arrives(32 | op) for op in (4, 5, 10, 11, 12, 19, 20, 23)]
    long_send = arrives(0) + arrives(1) + arrives(34, kind=2)
    for is_uc in (0, 1):
        for retries, faults in ((63, []), (63 + 128, [20])):
            setting = [not is_uc, retries, 0, 100, 100, 4, 4, 14, 1] + faults + [200]
            yield setting + sum(messages, []) + long_send + [send, 20]
            for what in range(8):
                answer = {4: 16, 5: 18, 6: 18}.get(what, 17)
                yield (setting + request(what, 700 if what != 4 else 200) + [send, 9]
                       + arrives(answer, kind=2) + [time, 255, 23, 1, send, 9]
                       + arrives(17, 0, 96) + [send, 9] + arrives(17, 0, 33)
                       + [time, 255, 20, 1, send, 9] + arrives(17, 0, 31, 1))
            yield setting + request(0, 1) + [state, 0, 0, 0, send, 2, state, 0, 0, 1, send, 2]


def captured_mads():
    """Each kind of MAD that two kernel rxe peers sent."""
    golden = pathlib.Path(__file__).resolve().parents[1] / "unit" / "wire" / "golden"
    seen = {}
    for capture in sorted(golden.glob("*.pcap")):
        data, at = capture.read_bytes(), 24
        while at < len(data):
            size = int.from_bytes(data[at + 8:at + 12], "little")
            frame, at = data[at + 16:at + 16 + size], at + 16 + size
            ip = 40 if frame[12:14] == b"\x86\xdd" else 20
            udp = frame[14 + ip:]
            if len(udp) == 8 + 20 + 256 + 4 and udp[2:4] == b"\x12\xb7" and udp[13:16] == b"\0\0\1":
                seen.setdefault(udp[28 + 17], udp[28:284])
    return seen


def cm_mads():
    any_mad, message, connect, command, time = 0, 1, 2, 3, 4
    mads = captured_mads()
    for mad in mads.values():
        yield [any_mad, 0] + list(mad)
    yield [any_mad, 0] + list(mads[0x10]) + [command, 0, 1] + [any_mad, 0] + list(mads[0x14]) + [command, 0, 4, time, 14]
    for outcome in ([message, 3, 0], [message, 2, 0], [message, 1, 0]):
        yield [connect, 0, 0] + outcome + [command, 0, 2, message, 5, 0, command, 0, 4, message, 6, 0, time, 14]
    lap, apr, mra, path = 9, 10, 1, [command, 0, 7, 5]
    for answer in ([apr, 0, 3], [mra, 0, 2 + 80] + [time, 14] * 12 + [message, apr, 0, 0], [lap, 0, 4]):
        yield [connect, 0, 0, message, 3, 0, 5, 1, 0, 0, 0, command, 0, 2] + path + [message] + answer + path + [time, 10] * 3
    for again in ([], [message, lap, 0, 9]):
        yield [message, 0, 1, 0, 1, 0, 0, 0, command, 0, 1, message, 4, 0, 0, message, lap, 0, 8] + again + path
    yield [connect, 1, 0, message, 8, 0] + [time, 14] * 20
    yield [connect, 0, 0] + [time, 14] * 40


def cm_commands():
    """Who listens, who connects, and what may become of it."""
    open_, make, bind, listen, resolve, route, connect, accept, read = 0, 1, 2, 3, 4, 5, 6, 7, 8
    both = [open_, 0, 0, open_, 1, 0]
    for space in (0, 1, 2, 3):
        up = both + [make, 0, space, bind, 0, 0, 0, listen, 0, 0, 3, make, 1, space, resolve, 1, 0, 0, route, 1, 0]
        talk = [connect, 1, 0, 5, 5, read, 0, accept, 0, 1, 5, read, 1, accept, 1, 0, 255, read, 0]
        for end in ([9, 1, 0, 9, 0, 1], [10, 1, 0], [11, 0], [12, 0, 1, 3], [13, 1, 0], [14, 0, 0, 1]):
            yield up + talk + end + [15, 10, read, 0, read, 1]
    join, leave, close, migrate = 255, 254, 11, 14
    bound = both + [make, 0, 1, bind, 0, 0, 0]
    yield bound + [join, 0, 0, 1, join, 0, 0, 2, join, 0, 0, 17, read, 0, leave, 0, 1, leave, 0, 1, close, 0]
    yield bound + [join, 0, 0, 0, join, 0, 0, 0, migrate, 0, 0, 1, 0, leave, 0, 1, 10, 0, 0, read, 0]
    yield bound + [join, 0, 0, 6, join, 0, 0, 7, join, 0, 0, 251, 3, join, 0, 0, 255, 255, read, 0]


def cm_daemon():
    """Both sides of a connection; each step answered rightly or not, with the events that follow."""
    bind, resolve, route, qp, connect, listen, accept, disconnect = (*range(128, 135), 136)
    known, event, end, whole = 15, [40, 0, 0], 100, 100

    def asks(how=0, *events):
        """What the daemon makes of a request: it sends events to the first id, then answers."""
        told = [byte for which in events for byte in (0, which, whole, 0, known, 0)]
        return [len(events)] + told + [how]

    def on(what, *made_of, which=0):
        return [what, which, 0, 0] + sum(made_of, [])
    # An id in the port space TCP, with a channel: HELLO, CREATE_CHANNEL (its descriptor), CREATE_ID.
    first = [0, 0, 0, 0, 0, 0] + asks() + asks() + [0] + asks()
    for how in (0, 190, 210, 230, 245, 252, 255):
        yield (first + on(resolve, asks(how, 0)) + event + on(route, asks(how, 2)) + event + on(qp)
               + on(connect, asks(how, 5, 9)) + event + asks() + event + on(disconnect, asks(how, 10, 15))
               + event + event + [end, 0, 0])
        yield (first + on(bind, asks(how), asks()) + on(listen, asks(how, 4, 4), asks()) + event + event
               + on(qp, which=1) + on(accept, asks(how, 9), which=1) + event + [end, 1, 0] + [end, 0, 0])


def mostly_small():
    """Steps of a fabric: bytes of which most are small, so that nodes, LIDs and methods are valid."""
    for number in range(12):
        dice = random.Random(number)
        yield [dice.choice((dice.randrange(256), dice.randrange(8), 1, 2))
               for _ in range(200 * (1 + number))]


def fabric_smps():
    return mostly_small()


def fabric_umads():
    return mostly_small()


def sm_queries():
    """Steps of programs that ask a subnet manager: each attribute with each method, and joins."""
    for method in range(5):
        yield b"".join(bytes((3, 0, 1, method | 0x20, 64, attribute, 9)) +
                       (1 << attribute % 8).to_bytes(8, "little") + bytes((0, 2)) + bytes(62)
                       for attribute in range(20))
    join = bytes((3, 0, 1, 1 | 0x30, 52, 16, 9)) + 0x130c7.to_bytes(8, "little")
    group = bytes.fromhex("ff124001ffff0000000000000000000a") + bytes(16) + bytes((1, 2, 3, 4)) + \
        bytes(4) + b"\xff\xff" + bytes(6) + b"\x01" + bytes(3)
    yield (join + group + b"\x00") * 3 + bytes((1, 0, 50)) + (join + group + b"\x01") * 2
    yield from (random.Random(number).randbytes(400) for number in range(6))


def topology_files():
    """Small topologies, right and wrong."""
    pair = 'Switch\t8 "S"\t# "a b" base port 0 lid 3 lmc 0\n[3](900)\t"H"[1](a01) w=2 s=7 e=7 # lid 4 4xHDR\n\n'
    host = 'Hca\t1 "H" # ip=10.0.0.1/8\n[1]\t"S"[3] # lid 4 lmc 2 "a b" lid 3 4xEDR mtu=2048 delay=1.5us\n'
    settings = "# Topology: t\nvendid=0x2c9\ndevid=1\nsysimgguid=7\nswitchguid=0x500(501)\ncaguid+5\nwidth=2\nspeed=7\n"
    chassis = 'Chassis 0x8f1 (guid 0x8f1)\n\nSwitch 24 "S-0008f1040041254a" # "SW" enhanced port 0\n[1][ext 13] "S"[1]\n'
    for text in (pair + host, settings + pair + host, pair, pair + host + pair, chassis, 'Rt 2 "R"\n', "include x\n"):
        yield list(text.encode())


def flow_rules():
    """One specification of each kind, with a frame that has all the layers."""
    lengths = {0x20: 16, 0x30: 12, 0x31: 40, 0x34: 8, 0x40: 4, 0x41: 4, 0x50: 4, 0x51: 8, 0x60: 4,
               0x1000: 4, 0x1001: 0, 0x1003: 4}
    macs = bytes(11) + b"\1"
    ip = b"\x45\0\0\x60\0\0\0\0\x40%c\0\0\x0a\0\0\1\x0a\0\0\2"
    vxlan = b"\x11\x11\x12\xb5\0\x50\0\0\x08\0\0\0\1\2\3\0"
    frame = (macs + b"\x81\0\0\1\x08\0" + ip % 17 + vxlan + macs + b"\x08\0" + ip % 6
             + bytes(20))
    gre = macs + b"\x08\0" + ip % 47 + b"\xb0\0\x88\x47" + bytes(14) + b"\1\0" + ip % 17
    ipv6 = macs + b"\x86\xdd\x60\0\0\0\0\x18\0\x40" + bytes(32) + b"\x2c" + bytes(7) + bytes(16)
    for kind, length in lengths.items():
        action = kind >= 0x1000
        for inner in (0,) if action else (0, 0x100):
            size = 16 if action and length else 8 + (0 if action else 2 * length)
            spec = (kind | inner).to_bytes(4, "little") + size.to_bytes(2, "little") + bytes(2)
            spec += bytes(size - 8)
            for packet in (frame, gre, ipv6):
                yield bytes([1]) + len(spec).to_bytes(2, "little") + spec + packet


def main():
    for make in (daemon_commands, ring_entries, shared_tables, packets, flow_rules, transport, cm_mads, cm_commands, cm_daemon,
                 fabric_smps, fabric_umads, sm_queries, topology_files):
        folder = pathlib.Path(sys.argv[1]) / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(make()):
            (folder / f"seed-{number:02}").write_bytes(bytes(seed))


main()
