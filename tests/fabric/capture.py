#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`verbena capture --port`: what crosses a port, as packets that tshark dissects and whose CRC is
right; clients that don't read, and the end of either side."""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import zlib

from programs import Shell, connect, daemon_end, lid, start
from stage import BUILD, PATIENCE, RUNTIME, SMALL, main, need, poll_until, require


class Capture:
    """A `verbena capture --port` that has begun."""

    def __init__(self, fabric, port, *options):
        self.path = os.path.join(fabric.folder, f"capture-{port.replace('/', '-')}.pcapng")
        self.child = subprocess.Popen(
            [os.path.join(BUILD, "bin", "verbena"), "capture", "--port", port, "-w", self.path,
             *options], env=fabric.environment(), stderr=subprocess.PIPE, text=True)
        fabric.children.append(self.child)
        line = self.child.stderr.readline()
        require(line.startswith(f"capturing {port} into "), f"capture: {line}")

    def end(self):
        """Its exit code and what it said, after it has ended."""
        code = self.child.wait(PATIENCE)
        return code, self.child.stderr.read()


def packets_of(path):
    """(flags, packet) of each enhanced packet block, without the ERF header."""
    with open(path, "rb") as file:
        for flags, packet, _ in packets_in(file.read()):
            yield flags, packet


def packets_in(data):
    """(flags, packet, how many were lost before) of each packet block of whole blocks."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("=II", data, at)
        if at + size > len(data):
            return  # the rest hasn't come yet
        require(size == struct.unpack_from("=I", data, at + size - 4)[0], "a block's lengths")
        if kind == 6:
            length = struct.unpack_from("=I", data, at + 20)[0]
            packet = data[at + 28:at + 28 + length]
            code, _, flags = struct.unpack_from("=HHI", data, at + 28 + (length + 3) // 4 * 4)
            require(code == 2, "a block has no flags")
            after = at + 28 + (length + 3) // 4 * 4 + 8
            code = struct.unpack_from("=H", data, after)[0]
            lost = struct.unpack_from("=Q", data, after + 4)[0] if code == 4 else 0
            require(struct.unpack(">H", packet[14:16])[0] == length - 16, "ERF's length")
            yield flags, packet[16:], lost
        at += size


def crc_is_right(packet):
    """The ICRC, by zlib: what the way may change counts as ones."""
    masked = bytearray(packet[:-4])
    grh = 40 if masked[1] & 3 == 3 else 0
    masked[0] |= 0xf0
    masked[8 + grh + 4] = 0xff
    if grh:
        masked[:8] = b"\xff" * 8
        masked[8] |= 0x0f
        masked[9:12] = b"\xff" * 3
        masked[15] = 0xff
    return struct.pack("<I", zlib.crc32(masked)) == packet[-4:]


def dissected(path, *fields):
    done = subprocess.run(["tshark", "-r", path, "-T", "fields",
                           *(part for field in fields for part in ("-e", field))],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def a_request_and_its_answer(fabric):
    fabric.start(SMALL)
    capture = Capture(fabric, "S1/7", "-c", "2")
    fabric.run("H2", "smpquery", "-D", "nodeinfo", "0,1,7,1")
    code, text = capture.end()
    require(not code and "2 packets captured" in text, f"capture: {code} {text}")
    packets = list(packets_of(capture.path))
    require([flags for flags, _ in packets] == [2, 1], "out, then in")
    for _, packet in packets:
        require(len(packet) == 288 and crc_is_right(packet), f"packet {packet.hex()}")
        require(struct.unpack(">H", packet[4:6])[0] * 4 == 288, "LRH's length")
    if shutil.which("tshark"):
        rows = dissected(capture.path, "infiniband.lrh.vl", "infiniband.lrh.dlid",
                         "infiniband.bth.opcode", "infiniband.mad.method",
                         "infiniband.mad.attributeid", "infiniband.smpdirected.hopcount",
                         "infiniband.nodeinfo.nodetype")
        require([row[0] for row in rows] == ["0x0f", "0x0f"] or
                [int(row[0], 0) for row in rows] == [15, 15], f"lanes: {rows}")
        require([int(row[2], 0) for row in rows] == [100, 100], f"opcodes: {rows}")
        require([int(row[4], 0) for row in rows] == [17, 17], f"attributes: {rows}")
        require(int(rows[1][6], 0) == 1, f"the adapter's node type: {rows}")


def only_what_crosses_the_port(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    capture = Capture(fabric, "H3/1")
    fabric.run("H2", "perfquery", "5", "1")
    fabric.run("H2", "perfquery", "6", "1")
    fabric.run("H2", "smpquery", "nodeinfo", "5")
    count = fabric.ask(op="counters", node="H3", port=1)["ports"][0]["counters"]
    packets = stopped(capture)
    # Two of PMA and one of the SMA, each with its answer; the manager may sweep meanwhile.
    lids = [struct.unpack(">H", packet[2:4])[0] for _, packet in packets]
    require(len(packets) >= 6 and set(lids) <= {5, 4, 1, 0xffff}, f"LIDs {lids}")
    require(count["rcv_packets"] >= len(packets) / 2, f"counters {count}")
    require(all(crc_is_right(packet) for _, packet in packets), "a CRC")
    levels = {packet[0] >> 4 for _, packet in packets}
    require(levels == {0, 15}, f"lanes {levels}: the PMA's is 0, the SMA's 15")


def data(fabric):
    """Data of programs that start later: the packets that a port's counters count, each once, out
    and in."""
    with open(SMALL, encoding="ascii") as file:
        start(fabric, file.read())
    hops = fabric.ask(op="trace", **{"from": "H2", "to": "H4"})["hops"]
    number = next(hop["from_port"] for hop in hops if hop["from"] == "S1")

    def counters():
        counted = fabric.ask(op="counters", node="S1", port=number)["ports"][0]["counters"]
        return [counted[name] for name in ("xmit_packets", "rcv_packets", "xmit_words",
                                           "rcv_words")]

    elsewhere = Capture(fabric, "H1/1")
    capture = Capture(fabric, f"S1/{number}")
    before = counters()
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    connect(fabric, one, other)
    require(one.facts("send", 10, 5000)["done"] == 10 and len(other.received(10)) == 10, "there")
    require(other.facts("send", 3, 100)["done"] == 3 and len(one.received(3)) == 3, "back")
    target = other.facts("memory")
    for verb in ("write", "read"):
        answer = one.facts(verb, 4, 5000, target["address"], target["rkey"])
        require(answer["done"] == 4, f"{verb}: {answer}")
    counted = [now - then for now, then in zip(counters(), before)]
    packets = stopped(capture)
    seen = [0, 0, 0, 0]
    for flags, packet in packets:
        seen[flags == 1] += 1
        seen[2 + (flags == 1)] += len(packet) // 4
    require(seen == counted, f"captured {seen}, counted {counted}")
    require(all(crc_is_right(packet) for _, packet in packets), "a CRC")
    lids = {lid(fabric, "H2"), lid(fabric, "H4")}
    require({struct.unpack(">H", packet[at:at + 2])[0] for _, packet in packets
             for at in (2, 6)} == lids, "LIDs")
    opcodes = [packet[8] for _, packet in packets]
    require(opcodes.count(0) == opcodes.count(2) == 10 and opcodes.count(4) == 3
            and opcodes.count(6) == opcodes.count(12) == 4 and opcodes.count(17) == 17,
            f"opcodes {opcodes}")
    if shutil.which("tshark"):
        rows = dissected(capture.path, "infiniband.bth.opcode", "infiniband.bth.destqp",
                         "_ws.malformed")
        require([int(row[0], 0) for row in rows] == opcodes and not any(row[2] for row in rows),
                f"tshark: {rows}")
    require(not stopped(elsewhere), "packets at another port")
    one.end()
    other.end()
    daemon_end(fabric)


def stopped(capture):
    """The packets of a capture that is ended by a signal."""
    capture.child.send_signal(signal.SIGINT)
    code, text = capture.end()
    packets = list(packets_of(capture.path))
    require(not code and f"{len(packets)} packets captured" in text, f"{code} {text}")
    return packets


def open_raw(fabric, port=7):
    """The stream that an answer brings; None: refused."""
    with fabric.control() as connection:
        connection.sendall(json.dumps({"op": "capture", "node": "S1", "port": port}).encode() +
                           b"\n")
        data, fds, _, _ = socket.recv_fds(connection, 4096, 4)
    require(json.loads(data)["ok"] == bool(fds), f"{data}")
    return socket.socket(fileno=fds[0]) if fds else None


def read_all(stream):
    """What is there."""
    stream.setblocking(False)
    data = b""
    while True:
        try:
            data += stream.recv(1 << 20)
        except BlockingIOError:
            return data


def clients_that_never_read(fabric):
    fabric.start(SMALL)
    streams = [open_raw(fabric) for _ in range(8)]
    require(all(streams), "eight captures at once")
    require(open_raw(fabric) is None, "a ninth capture")
    require(open_raw(fabric, 3) is None, "a port without a cable")
    fabric.manager("H1", "log")
    fabric.spawn("H3", "ibping", "-S")
    poll_until(lambda: "1 received" in fabric.run("H2", "ibping", "-c", "1", "5", check=False)[1],
               "ibping gets no answer")
    fabric.run("H2", "ibping", "-f", "-c", "12000", "5")  # some 4 MB for each
    with open(f"/proc/{fabric.pid}/status", encoding="ascii") as file:
        size = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    # A sanitizer's own memory is several times the program's.
    require(size < (240000 if RUNTIME else 60000), f"it keeps {size} kB")
    # What one was sent before it read are whole blocks; then it hears what it has lost.
    data = b""
    lost = []

    def hears():
        nonlocal data, lost
        fabric.run("H2", "perfquery", "5", "1")
        data += read_all(streams[0])
        lost = [row[2] for row in packets_in(data) if row[2]]
        return lost

    poll_until(hears, "the client doesn't hear of its losses")
    require(lost[0] > 1000, f"lost: {lost}")
    def descriptors():
        return len(os.listdir(f"/proc/{fabric.pid}/fd"))

    before = descriptors()
    for stream in streams:
        stream.sendall(b"a client has nothing to say")
        stream.close()
    poll_until(lambda: descriptors() <= before - len(streams), "descriptors are left")
    again = open_raw(fabric)
    require(again is not None, "a capture after them")
    again.settimeout(PATIENCE)
    require(again.recv(4) == b"\x0a\x0d\x0d\x0a", "a section's head")


def ends(fabric):
    fabric.start(SMALL)
    capture = Capture(fabric, "S1/7")
    fabric.ask(op="down")
    code, text = capture.end()
    require(code == 1 and "the fabric ended" in text, f"{code} {text}")
    poll_until(lambda: not fabric.alive(), "verbena-fabric still runs")
    fabric.start(SMALL)
    capture = Capture(fabric, "S1/7", "--seconds", "1")
    code, text = capture.end()
    require(not code and "0 packets" in text, f"--seconds: {code} {text}")
    for options, wanted in ((["--port", "S1/3"], 1), (["--port", "S1"], 2),
                            (["--port", "none/1"], 1), (["--port", "S1/7", "-d", "verbena0"], 2)):
        done = subprocess.run([os.path.join(BUILD, "bin", "verbena"), "capture", "-w", "/dev/null",
                               *options], env=fabric.environment(), stderr=subprocess.PIPE,
                              text=True, timeout=PATIENCE)
        require(done.returncode == wanted, f"{options}: {done.returncode} {done.stderr}")


if __name__ == "__main__":
    need("opensm", "smpquery", "perfquery", "ibnetdiscover")
    sys.exit(main([a_request_and_its_answer, only_what_crosses_the_port, data,
                   clients_that_never_read, ends]))
