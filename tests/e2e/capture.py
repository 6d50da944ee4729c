#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`verbena capture`: what is in its files, and what it does to the programs that it watches.

usage: capture.py [WORD...]    the cases whose names have a WORD

Everything runs in a network namespace of its own, because some of it is on the wire. The files are
read with code of its own (tests/unit/wire/capture.py, which computes every ICRC by zlib) and by
tshark, and must say the same. Counts are exact: each run's messages, and so its packets, are known.
"""
import collections
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unit", "wire"))

import capture as reference  # noqa: E402  (the unit test's reader)
from lib import (BUILD, PORTS, SLOW, VERBENA, Failure, Stage, Suite,  # noqa: E402
                 need_programs, poll_until, require, tail)
from network import own_network  # noqa: E402
from raw_interface import HERE, OTHER, STATION, TYPE, cable, far_end, started  # noqa: E402
from strangers import forge, slot_of  # noqa: E402

IN, OUT = 1, 2
ETHERNET = 1
MTU = 1024
RC, UC, UD, XRC = 0x00, 0x20, 0x60, 0xa0
SEND, WRITE, READ_ANSWER = (0, 1, 2, 4), (6, 7, 8, 10), (13, 14, 15, 16)
READ, ACK, ATOMIC_ACK, SWAP, ADD, FLUSH, ATOMIC_WRITE = 12, 17, 18, 19, 20, 28, 29


# ------------------------------------------------------------------ reading

class Packet:
    """One enhanced packet block. `links`: the link types of the interfaces."""

    def __init__(self, body, links):
        self.interface, high, low, captured, self.size = struct.unpack_from("=IIIII", body)
        self.time_ns = high << 32 | low
        self.bytes = body[20:20 + captured]
        options = options_of(body[20 + (captured + 3) // 4 * 4:])
        self.comment = options.get(1, b"").decode()
        self.direction = struct.unpack("=I", options[2])[0] & 3
        self.dropped = struct.unpack("=Q", options[4])[0] if 4 in options else 0
        self.whole = captured == self.size
        self.is_frame = links[self.interface] == ETHERNET
        if self.is_frame:
            return
        udp = 20 if self.bytes[0] >> 4 == 4 else 40
        bth = self.bytes[udp + 8:]
        if len(bth) >= 12:
            self.opcode, self.qpn = bth[0], int.from_bytes(bth[5:8], "big")
            self.psn = int.from_bytes(bth[9:12], "big")
            self.asks = bth[8] >> 7
            self.extended = bth[12:]

    def key(self):
        """What it has in common with its repetition."""
        return self.qpn, self.opcode, self.psn

    def operation(self):
        """Without the transport."""
        return self.opcode & 0x1f


class File:
    """A pcapng file: its interfaces' names, packets, and what its statistics say was lost."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.path, self.interfaces, self.packets, self.lost, self.statistics = path, [], [], 0, 0
        links = []
        for kind, body in reference.blocks(self.data):
            if kind == 1:
                self.interfaces.append(options_of(body[8:])[2].decode())
                links.append(struct.unpack_from("=H", body)[0])
            elif kind == 6:
                self.packets.append(Packet(body, links))
            elif kind == 5:
                options = options_of(body[12:])
                self.statistics += 1
                self.lost += struct.unpack("=Q", options[5])[0]

    def count(self, transport, operations, direction=None, again=True):
        """How many packets have one of these operations. not again: which of them differ; a wire
        may have had to send some again, on a busy machine."""
        found = [p.key() for p in self.packets if p.opcode & 0xe0 == transport and
                 p.operation() in operations and direction in (None, p.direction)]
        return len(found) if again else len(set(found))

    def by_time(self):
        """The packets, sorted: those of several processes aren't quite in order in the file."""
        return sorted(self.packets, key=lambda p: p.time_ns)


def options_of(data):
    """code -> value."""
    found, at = {}, 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from("=HH", data, at)
        if not code:
            break
        found[code] = data[at + 4:at + 4 + size]
        at += 4 + (size + 3) // 4 * 4
    return found


def check_dissector(file):
    """tshark sees the same packets, and nothing wrong with them."""
    rows = reference.tshark(file.path)
    require(len(rows) == len(file.packets), f"tshark sees {len(rows)} of {len(file.packets)}")
    for number, (row, packet) in enumerate(zip(rows, file.packets)):
        where = f"packet {number + 1} of {file.path}: {row}"
        # A payload that begins with an Ethernet type and zeros is taken for such a packet; nothing
        # switches that off.
        guessed = packet.operation() in SEND + (3, 5) and "Ethertype]" in row["_ws.malformed"]
        require(not row["_ws.malformed"] or guessed, f"tshark calls it malformed: {where}")
        require(row["infiniband.bth.opcode"] == str(packet.opcode) and
                row["infiniband.bth.psn"] == str(packet.psn) and
                row["infiniband.bth.destqp"] == f"0x{packet.qpn:06x}", f"another packet: {where}")
        require(row["frame.comment"] == packet.comment, where)
        require(row["udp.checksum.status"] == "1", f"UDP checksum: {where}")


def requests_of(packets):
    """Those that count PSNs."""
    return [p for p in packets if p.operation() not in READ_ANSWER + (ACK, ATOMIC_ACK)]


def check_order(packets, mtu=MTU):
    """PSNs are consecutive: of a QP's requests (a READ takes as many as its answer has packets),
    and of each answer, which is to a request that there was. `packets`: each as seen once."""
    expected, reads, known = {}, set(), set()
    for at, p in enumerate(packets):
        flow = (p.qpn, p.opcode & 0xe0)
        if p.operation() in READ_ANSWER:
            require((p.qpn, p.psn) in reads, f"PSN {p.psn} answers no READ")
            reads.discard((p.qpn, p.psn))
        elif p.operation() in (ACK, ATOMIC_ACK):
            require(p.psn in known, f"PSN {p.psn} acknowledges nothing")
        else:
            require(expected.get(flow, p.psn) == p.psn,
                    f"QP 0x{p.qpn:x}: PSN {p.psn}, not {expected.get(flow)}")
            count = 1
            if p.operation() == READ:
                length = struct.unpack_from(">I", p.extended, 12)[0]
                count = max(1, (length + mtu - 1) // mtu)
            psns = [(p.psn + i) & 0xffffff for i in range(count)]
            known.update(psns)
            if p.operation() in (READ, FLUSH, ATOMIC_WRITE):
                reads.update((answered(packets[at:], p), psn) for psn in psns)
            expected[flow] = (psns[-1] + 1) & 0xffffff
    require(not reads, f"{len(reads)} READ answers are missing")


def answered(packets, read):
    """The QP that a READ's answer goes to, which its request doesn't name. `packets`: from the
    request on, since QPs may begin with the same PSN."""
    for p in packets:
        if p.operation() in READ_ANSWER and p.psn == read.psn:
            return p.qpn
    raise Failure(f"READ {read.psn} isn't answered")


def check(file, dissect=True):
    """What holds for every capture of whole packets."""
    require(file.packets, "nothing was captured")
    require(file.interfaces == ["verbena0"], str(file.interfaces))
    require(file.statistics == 1 and not file.lost, f"{file.lost} packets were lost")
    for p in file.packets:
        require(p.whole and p.interface == 0 and p.direction in (IN, OUT), "odd packet")
        reference.icrc(p.bytes)
        require(abs(p.time_ns / 1e9 - time.time()) < 3600, "not the wall clock's time")
    if dissect:
        check_dissector(file)


# ------------------------------------------------------------------ running

class Capture:
    """A running `verbena capture`."""

    def __init__(self, stage, *options):
        self.stage = stage
        self.path = os.path.join(stage.directory, f"capture{stage.serial()}.pcapng")
        self.process = stage.start(VERBENA, "capture", "-w", self.path, *options, plain=True,
                                   preload=False)
        poll_until(lambda: "capturing" in self.process.output() or not self.process.running(), 30)
        require("capturing" in self.process.output(), tail(self.process.output()))

    def size(self):
        """Bytes in the file now."""
        return os.path.getsize(self.path)

    def wait_for(self, size):
        """Until the file has so many bytes."""
        require(poll_until(lambda: self.size() >= size, 30), f"only {self.size()} bytes came")

    def end(self, number=signal.SIGINT, status=0):
        """Ends it and reads its file."""
        self.process.kill(number)
        text = self.process.expect(30 * SLOW, status)
        file = File(self.path)
        said = re.search(r"(\d+) packets of (\d+) programs captured", text)
        require(said and int(said[1]) == len(file.packets), f"it says\n{tail(text)}")
        lost = re.search(r"(\d+) packets were lost", text)
        require((int(lost[1]) if lost else 0) == file.lost, f"it says\n{tail(text)}")
        return file


def perftest(stage, program, *options):
    """One run of a pair."""
    port = PORTS.take()
    words = [program, "-F", "-p", port, "-m", MTU, *options]
    stage.pair(words, words + ["127.0.0.1"], port, seconds=60)


def pingpong(stage, kind, count, size):
    """One run of a pair."""
    port = PORTS.take()
    words = [f"ibv_{kind}_pingpong", "-g", 0, "-p", port, "-n", count, "-s", size]
    words += [] if kind == "ud" else ["-m", MTU]
    stage.pair(words, words + ["127.0.0.1"], port, seconds=60)


def placement(stage, *tests):
    """Tests of tests/e2e/placement.c and xrc.c, of what no other program asks for."""
    carrier = stage.environment.get("VERBENA_CARRIER", "local")
    stage.run(os.path.join(BUILD, "tests", "e2e", "faults"), "-c", carrier, *tests, seconds=60)


# program, options, transport, packets: a list of (operations, how many). -1: some
RUNS = {
    "SENDs": (pingpong, ("rc", 5, 5000), RC,
              [((0,), 10), ((1,), 30), ((2,), 10), ((ACK,), -1)]),
    "UC SENDs": (pingpong, ("uc", 5, 100), UC, [((4,), 10)]),
    "datagrams": (pingpong, ("ud", 5, 1000), UD, [((4,), 10)]),
    "WRITEs": (perftest, ("ib_write_bw", "-n", 10, "-s", 20000), RC,
               [((6,), 10), ((7,), 180), ((8,), 10), ((ACK,), -1)]),
    "small WRITEs": (perftest, ("ib_write_bw", "-n", 10, "-s", 8), RC,
                     [((10,), 10), ((ACK,), -1)]),
    "READs": (perftest, ("ib_read_bw", "-n", 10, "-s", 20000), RC,
              [((READ,), 10), (READ_ANSWER, 200)]),
    "atomics": (perftest, ("ib_atomic_bw", "-n", 10), RC,
                [((ADD, SWAP), 10), ((ATOMIC_ACK,), 10)]),
    "FLUSH and ATOMIC WRITE": (placement, ("flush_levels", "atomic_write_words"), RC,
                               [((FLUSH,), 5), ((ATOMIC_WRITE,), 3), ((16,), 8)]),
    "XRC's FLUSH and ATOMIC WRITE": (placement, ("xrc_flush", "xrc_atomic_write"), XRC,
                                     [((FLUSH,), 16), ((ATOMIC_WRITE,), 24), ((16,), 40)]),
    "tag matching": (placement, ("tags_eager",), RC,
                     [((0,), 2), ((1,), 7), ((2,), 2), ((4,), 4), ((ACK,), -1)]),
    "rendezvous of tag matching": (placement, ("tags_rendezvous",), RC,
                                   [((4,), 12), ((READ,), 6), (READ_ANSWER, 15), ((ACK,), -1)]),
}

# The same over the wire, where it differs: WRITEs to addresses that the peer has accepted before go
# as WRITEs of one packet each (src/transport/requester.h).
OVER_THE_WIRE = {"WRITEs": [((6, 7, 8, 10), 200), ((ACK,), -1)]}


def is_late(packet):
    """A busy machine's packets are sent again though they came; what answers them twice is stale,
    or comes when the queue pair has ended."""
    return "fits no state" in packet.comment or (
        packet.operation() == ACK and "no QP has this number" in packet.comment)


def whole_run(stage, name, local):
    """A run that begins and ends while it is captured: every packet is there, once on each side of
    the wire, or once if there is none."""
    run, options, transport, packets = RUNS[name]
    packets = packets if local else OVER_THE_WIRE.get(name, packets)
    capture = Capture(stage)
    run(stage, *options)
    file = capture.end()
    check(file)
    for operations, count in packets:
        for direction in ((None,) if local else (OUT, IN)):
            got = file.count(transport, operations, direction, again=local)
            require(got == count or (count < 0 < got),
                    f"{got} packets of {operations}, not {count} (direction {direction})")
    known = sum(file.count(transport, operations) for operations, _ in packets)
    require(known == len(file.packets), f"{len(file.packets) - known} packets are of other kinds")
    comments = {p.comment for p in file.packets if not is_late(p)}
    require(comments == {"local" if local else ""}, str(comments))
    for direction in ((None,) if local else (OUT, IN)):
        first = {}
        for p in file.by_time():
            if direction in (None, p.direction):
                first.setdefault(p.key(), p)
        check_order(list(first.values()), 4096 if run is placement else MTU)


TM_HEADER = struct.Struct(">B3xI8s")  # struct ibv_tmh: opcode, context, tag
TM_RENDEZVOUS, TM_FIN, TM_EAGER = 1, 2, 3


def tag_headers(stage):
    """The messages of tag matching begin with their header: of each rendezvous and of its end, which
    the receiver sends; of eager ones with the tag, whatever the message's length."""
    capture = Capture(stage)
    placement(stage, "tags_eager", "tags_rendezvous")
    file = capture.end()
    check(file)
    first = {p.key(): p for p in file.packets if p.operation() in (0, 4)}
    heads = [TM_HEADER.unpack_from(p.extended) for p in first.values()]
    kinds = collections.Counter(head[0] for head in heads)
    require(kinds == {TM_EAGER: 6, TM_RENDEZVOUS: 6, TM_FIN: 6}, f"headers {kinds}")
    tags = {kind: sorted(int.from_bytes(head[2], "big") for head in heads if head[0] == kind)
            for kind in kinds}
    require(tags == {TM_EAGER: list(range(40, 46)), TM_RENDEZVOUS: list(range(6)),
                     TM_FIN: list(range(6))}, f"tags {tags}")


def check_local_answers(file):
    """Acknowledgements name the right PSN and message, and come back along the path."""
    messages = collections.Counter()
    for p in file.packets:
        if p.operation() == ACK:
            require(p.direction == IN, "an ACK goes out")
            messages[p.qpn] += 1
            require(int.from_bytes(p.extended[1:4], "big") == messages[p.qpn], "its MSN is wrong")
            require(p.extended[0] == 0x1f, f"syndrome {p.extended[0]:x}")
        else:
            require(p.direction == OUT, "a request comes in")


CM_CLASS, CM_FIRST = 7, 0x10
CM_NAMES = ("REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP")
GSI_QKEY = bytes.fromhex("80010000")


def cm_name(packet):
    """The message of the connection manager in a packet, which is as the standard demands."""
    mad = packet.extended[8:8 + 256]
    require(packet.opcode == UD | 4 and packet.qpn == 1 and packet.extended[5:8] == b"\0\0\1",
            f"a MAD in opcode 0x{packet.opcode:x} for QP {packet.qpn}")
    require(packet.extended[:4] == GSI_QKEY and len(packet.extended) == 8 + 256 + 4, "no QP1's MAD")
    require(mad[1] == CM_CLASS, f"of class {mad[1]}")
    return CM_NAMES[int.from_bytes(mad[16:18], "big") - CM_FIRST]


def cm_identifiers(stage, state):
    """How many identifiers of the connection manager are in a state."""
    done = subprocess.run([VERBENA, "resources", "--json", "cm_id"], env=stage.environment,
                          timeout=20, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    listed = json.loads(done.stdout)["cm_id"] if done.returncode == 0 else []
    return sum(entry["state"] == state for entry in listed)


def cm_sent(stage):
    """How many messages of each kind the daemon has sent."""
    return collections.Counter((stage.status() or {}).get("connections", {}).get("sent", {}))


def cm_messages(stage, local):
    """The messages of a connection, from request to disconnection: as many of each kind as the
    daemon counts, once within the host, on both sides of a wire."""
    capture = Capture(stage)
    before = cm_sent(stage)
    words = ["-a", "10.9.9.1", "-p", PORTS.take(), "-C", 3, "-S", 100]
    one = stage.start("rping", "-s", *words)
    require(poll_until(lambda: cm_identifiers(stage, "LISTEN") or not one.running(), 20) and
            one.running(), tail(one.output()))
    stage.finish_pair(one, stage.start("rping", "-c", *words), 60)
    sent = +(cm_sent(stage) - before)
    file = capture.end()
    check(file)
    packets = [p for p in file.packets if p.qpn == 1]
    for direction in ((OUT,) if local else (OUT, IN)):
        seen = [cm_name(p) for p in packets if p.direction == direction]
        require(collections.Counter(seen) == sent and {"REQ", "REP", "RTU", "DREQ"} <= set(seen),
                f"captured {seen}, sent {dict(sent)} (direction {direction})")
        require(seen[:2] == ["REQ", "REP"] or not local, f"in the order {seen}")
    require(len(packets) == sum(sent.values()) * (1 if local else 2), f"{len(packets)} packets")
    require({p.comment for p in packets} == {"local" if local else ""}, "another comment")
    if local:
        psns = [p.psn for p in packets]
        require(psns == [(psns[0] + i) & 0xffffff for i in range(len(psns))], f"PSNs {psns}")
    require({bytes(p.bytes[12:20]) for p in packets} == {bytes([10, 9, 9, 1]) * 2}, "addresses")
    require([p for p in file.packets if p.qpn != 1], "the connection's data is missing")


def local_answers(stage):
    """See check_local_answers()."""
    capture = Capture(stage)
    pingpong(stage, "rc", 20, 100)
    file = capture.end()
    check(file)
    check_local_answers(file)
    require(all(p.asks for p in requests_of(file.packets)), "no acknowledgement is asked for")


def running_already(stage):
    """Programs that run when the capture begins and go on when it ends. Their PSNs are right, though
    nobody saw how they began; COUNT packets are written."""
    port = PORTS.take()
    words = ["ibv_rc_pingpong", "-g", 0, "-p", port, "-n", 2000000, "-s", 2000, "-m", MTU]
    one, two = stage.start_pair(words, words + ["127.0.0.1"], port)
    require(poll_until(lambda: sum(client["links"] for client in stage.clients()) == 2, 20),
            "the programs didn't connect")
    first = Capture(stage, "-c", 3000)
    first.process.expect(60 * SLOW)
    file = File(first.path)
    require(len(file.packets) == 3000, f"{len(file.packets)} packets, not 3000")
    check_order_since(file)
    require(one.running() and two.running(), "the programs ended with the capture")
    for process in (one, two):
        process.kill(signal.SIGTERM)


def check_order_since(file):
    """As check_order(), of a capture that may have lost packets where it says so."""
    for p in file.packets:
        reference.icrc(p.bytes)
    if not any(p.dropped for p in file.packets):
        expected = {}
        for p in requests_of(file.packets):
            require(expected.get(p.qpn, p.psn) == p.psn, "PSNs jump")
            expected[p.qpn] = (p.psn + 1) & 0xffffff


def psn_of_the_middle(stage):
    """A capture that begins in the middle shows the PSN that the QP has come to: a second one goes
    on where the first one, of the same QP, would be."""
    port = PORTS.take()
    words = ["ib_send_lat", "-F", "-p", port, "-m", MTU, "-s", 3000, "-n", 20000]
    whole = Capture(stage, "-s", 100)
    one, two = stage.start_pair(words, words + ["127.0.0.1"], port)
    poll_until(lambda: whole.size() > 100000 or not two.running(), 30)
    middle = Capture(stage, "-s", 100)
    stage.finish_pair(one, two, 120)
    later, all_of_it = middle.end(), whole.end()
    seen = {(p.qpn, p.opcode, p.psn): p.time_ns for p in all_of_it.packets}
    require(later.packets and len(later.packets) < len(all_of_it.packets), "it saw all, or nothing")
    if not all_of_it.lost:
        for p in later.packets:
            require((p.qpn, p.opcode, p.psn) in seen, f"PSN {p.psn} is none of the run's")


def killed(stage):
    """A capturing program that dies leaves nothing: the programs go on, and let go of the ring."""
    port = PORTS.take()
    words = ["ibv_rc_pingpong", "-g", 0, "-p", port, "-n", 2000000, "-s", 2000]
    capture = Capture(stage)
    one, two = stage.start_pair(words, words + ["127.0.0.1"], port)
    capture.wait_for(100000)

    def rings(process):
        with open(f"/proc/{process.pid}/maps", encoding="ascii", errors="replace") as file:
            return sum("verbena-capture" in line for line in file)
    require(rings(one) == 1 and rings(two) == 1, "the rings aren't mapped")
    capture.process.kill()
    capture.process.wait(10)
    require(poll_until(lambda: not rings(one) and not rings(two), 20), "the rings stay")
    require(one.running() and two.running(), "the programs ended with the capture")
    again = Capture(stage, "-c", 100)
    again.process.expect(60)
    require(len(File(again.path).packets) == 100, "no second capture")
    for process in (one, two):
        process.kill(signal.SIGTERM)


def stopped(stage):
    """A capturing program that doesn't read holds nobody up; what was lost is counted."""
    capture = Capture(stage)
    capture.process.kill(signal.SIGSTOP)
    perftest(stage, "ib_write_bw", "-n", 400, "-s", 65536)
    capture.process.kill(signal.SIGCONT)
    file = capture.end()
    sent = file.count(RC, WRITE)
    # (the last loss may have no packet after it)
    told = sum(p.dropped for p in file.packets)
    require(file.lost and told <= file.lost, f"{file.lost} were lost, {told} in the packets")
    require(sent + file.count(RC, (ACK,)) + file.lost == 400 * 64 + 400,
            f"{sent} WRITE packets and {file.lost} lost")


def two_at_once(stage):
    """Two captures see the same; one of them keeps the packets' beginnings only."""
    whole, short = Capture(stage), Capture(stage, "-s", 64, "-d", "verbena0")
    pingpong(stage, "rc", 20, 3000)
    whole, short = whole.end(), short.end(signal.SIGTERM)
    check(whole)
    require(len(whole.packets) == len(short.packets), "they differ")
    # Two processes' packets may be written in another order when they are of the same moment.
    key = (lambda p: (p.time_ns, p.qpn, p.psn, p.opcode))
    for one, two in zip(sorted(whole.packets, key=key), sorted(short.packets, key=key)):
        require(two.bytes == one.bytes[:64] and two.size == one.size, "not its beginning")


# Not those that end the daemon, and not the long ones.
FAULTS = ("send_rc", "atomics*", "rkey_*", "range_*", "rights_*", "receive_*", "rnr_*", "peer_*",
          "posting_states", "reset_forgets", "ud_data", "uc_refused_silently", "unmapped_*",
          "placement_rights", "flush_refused", "atomic_write_wrong")


def faults(stage):
    """Right and wrong use of verbs (tests/e2e/faults): NAKs of each kind, and whatever the program
    does to its memory and QPs meanwhile."""
    capture = Capture(stage)
    stage.run(os.path.join(BUILD, "tests", "e2e", "faults"), "-c", "local", *FAULTS, seconds=200)
    file = capture.end()
    for p in file.packets:
        reference.icrc(p.bytes)
    check_dissector(file)
    syndromes = {p.extended[0] & 0x60 or p.extended[0] for p in file.packets
                 if p.operation() == ACK and p.opcode & 0xe0 == RC}
    naks = {p.extended[0] & 0x1f for p in file.packets
            if p.opcode == ACK and p.extended[0] & 0x60 == 0x60}
    require(0x20 in syndromes, f"no RNR NAK among {syndromes}")
    require({1, 2} <= naks, f"no NAK of each kind: {naks}")


# ------------------------------------------------------------------ frames of raw packets

RAW = os.path.join(BUILD, "tests", "e2e", "raw")


def check_frames(file):
    """What holds for each frame, and that tshark reads them as Ethernet's."""
    require(file.interfaces == ["verbena0", "verbena0 frames"] and file.statistics == 2,
            f"{file.interfaces}, {file.statistics} statistics")
    require(file.packets and all(p.is_frame and p.whole for p in file.packets), "other packets")
    words = ["tshark", "-r", file.path, "-T", "fields", "-e", "eth.dst", "-e", "eth.type",
             "-e", "frame.len", "-e", "frame.comment", "-e", "_ws.malformed",
             "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
             "-e", "ip.checksum.status", "-e", "udp.checksum.status"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    require(len(rows) == len(file.packets), f"tshark sees {len(rows)} of {len(file.packets)}")
    for row, p in zip(rows, file.packets):
        require(row[0].split(",")[0].replace(":", "") == p.bytes[:6].hex(), f"another frame: {row}")
        require(row[2] == str(p.size) and row[3] == p.comment and not row[4], f"{row}")
    return rows


def frames(stage):
    """Each frame that a raw packet queue pair sends, once, with the comment `local`."""
    capture = Capture(stage)
    stage.run(RAW, "-c", "local", "by_address", seconds=60)
    file = capture.end()
    check_frames(file)
    to = collections.Counter(p.bytes[5] for p in file.packets)
    require(to == {77: 2, 10: 5, 11: 5}, f"frames to {to}")
    require({(p.comment, p.direction, p.size) for p in file.packets} == {("local", OUT, 128)},
            "with other words, sizes, or directions")


def frames_with_checksums(stage):
    """The checksums that the sender leaves to the device are in the captured frames."""
    capture = Capture(stage)
    stage.run(RAW, "-c", "local", "checksums", seconds=60)
    rows = check_frames(capture.end())
    require(any(row[5] == "1" and row[6] == "1" for row in rows), f"no right checksums: {rows}")


def frames_of_an_interface(stage):
    """Out of the host without a comment; in only those that the program's rule takes."""
    cable()
    far = far_end()
    capture = Capture(stage)
    station = started(stage, 2)
    far.recv(2000)
    mine = STATION + HERE + TYPE + b"plain" * 10
    for frame in (OTHER + HERE + TYPE + b"other" * 10, mine, mine):
        far.send(frame)
    station.expect(20 * SLOW)
    far.close()
    file = capture.end()
    check_frames(file)
    seen = [(p.direction, p.comment, p.bytes) for p in file.by_time()]
    require([s[:2] for s in seen] == [(OUT, ""), (IN, ""), (IN, "")], f"{seen}")
    require(seen[1][2] == seen[2][2] == mine, f"not the frames that came: {seen}")


# ------------------------------------------------------------------ the wire

def dropped(stage):
    """Packets that were dropped are there, with the reason."""
    port = PORTS.take()
    one = stage.start("ibv_rc_pingpong", "-g", 0, "-p", port)
    poll_until(lambda: slot_of(stage), 20)
    slot = slot_of(stage)
    capture = Capture(stage)
    forge(slot, 5000)
    forge(slot, 5000, spoil=1)
    require(poll_until(lambda: len(File(capture.path).packets) == 2, 20), "they aren't captured")
    file = capture.end()
    one.kill(signal.SIGTERM)
    comments = sorted(p.comment for p in file.packets)
    require(comments == ["dropped: its ICRC is wrong", "dropped: no QP has this number"],
            str(comments))
    require(all(p.direction == IN for p in file.packets), "they came in")


# ------------------------------------------------------------------ the command

def command(stage, *options, status, said, **more):
    """Runs `verbena capture` with nonsense."""
    text = stage.run(VERBENA, "capture", *options, plain=True, preload=False, status=status, **more)
    require(said in text, f"it doesn't say `{said}`\n{tail(text)}")


def to_a_pipe(stage):
    """`-w -`, and an end by time."""
    with subprocess.Popen([VERBENA, "capture", "-w", "-", "--seconds", "2"],
                          env=stage.environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stderr.readline()
        pingpong(stage, "rc", 5, 100)
        data, text = process.communicate(timeout=30)
    require(process.returncode == 0, f"ended with {process.returncode}: {text.decode()}")
    path = os.path.join(stage.directory, "piped.pcapng")
    with open(path, "wb") as file:
        file.write(data)
    check(File(path))


def daemon_ends(stage):
    """The capture ends with the daemon, its file complete, and says so."""
    capture = Capture(stage)
    pingpong(stage, "rc", 5, 100)
    stage.run(VERBENA, "stop", "--force", plain=True, preload=False)
    text = capture.process.expect(20, status=1)
    require("the daemon ended" in text, tail(text))
    check(File(capture.path))


# ------------------------------------------------------------------ all

def main():
    """All cases."""
    need_programs("ibv_rc_pingpong", "ib_write_bw", "rping", "tshark", "ip")
    own_network()
    suite = Suite("capture")
    stage = Stage()
    for name in RUNS:
        suite.case(f"local: {name}", whole_run, stage, name, True)
    suite.case("local: connection manager", cm_messages, stage, True)
    suite.case("local: acknowledgements", local_answers, stage)
    suite.case("local: headers of tag matching", tag_headers, stage)
    suite.case("programs that run already", running_already, stage)
    suite.case("PSNs of the middle", psn_of_the_middle, stage)
    suite.case("a capture that is killed", killed, stage)
    suite.case("a capture that is stopped", stopped, stage)
    suite.case("two at once", two_at_once, stage)
    suite.case("right and wrong use", faults, stage)
    suite.case("frames of raw packets", frames, stage)
    suite.case("frames with checksums", frames_with_checksums, stage)
    suite.case("to a pipe, for some seconds", to_a_pipe, stage)
    suite.case("no file", command, stage, status=2, said="-w FILE")
    suite.case("no such folder", command, stage, "-w", "/nowhere/x", status=1, said="/nowhere/x")
    suite.case("no such device", command, stage, "-w", "/dev/null", "-d", "mlx5_0", status=1,
               said="no device mlx5_0")
    suite.case("a full disk", command, stage, "-w", "/dev/full", status=1, said="No space left")
    for wrong in ("0", "-1", "1x", ""):
        suite.case(f"COUNT `{wrong}`", command, stage, "-w", "/dev/null", "-c", wrong, status=2,
                   said="--count")
    suite.case("the daemon ends", daemon_ends, stage)
    suite.stage_closed(stage)
    ring = Stage(VERBENA_LOCAL_COPY="ring")
    for name in RUNS:
        suite.case(f"by rings: {name}", whole_run, ring, name, True)
    suite.stage_closed(ring)
    wire = Stage(VERBENA_CARRIER="wire")
    for name in RUNS:
        suite.case(f"wire: {name}", whole_run, wire, name, False)
    suite.case("wire: connection manager", cm_messages, wire, False)
    suite.case("wire: headers of tag matching", tag_headers, wire)
    suite.case("wire: dropped packets", dropped, wire)
    suite.stage_closed(wire)
    outside = Stage()
    suite.case("frames of a network interface", frames_of_an_interface, outside)
    suite.stage_closed(outside)
    suite.end()


main()
