#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What others make of our captures.

usage: capture.py CAPTURE_SAMPLE

CAPTURE_SAMPLE writes a capture and says what is in it. This reads the file with code of its own, and
computes every checksum and ICRC in another way (zlib); then Wireshark's dissector (tshark) reads it:
no packet is malformed, and each is what it was said to be. (Wireshark shows the ICRC but doesn't verify
it: its value is compared with the one computed here.)
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

def blocks(data):
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("=II", data, at)
        assert size % 4 == 0 and struct.unpack_from("=I", data, at + size - 4)[0] == size, at
        yield kind, data[at + 8:at + size - 4]
        at += size


def packets(data):
    for kind, body in blocks(data):
        if kind == 6:
            _, _, _, captured, size = struct.unpack_from("=IIIII", body)
            assert captured == size
            yield body[20:20 + captured]


def internet_sum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def icrc(ip):
    """Of a whole IP packet, whose checksums and sizes it verifies. Returns what is there, after
    comparing it with what must be there."""
    masked = bytearray(ip)
    if ip[0] >> 4 == 4:
        udp, addresses = 20, ip[12:20]
        assert struct.unpack_from(">H", ip, 2)[0] == len(ip)
        assert internet_sum(ip[:20]) == 0xffff
        masked[1] = masked[8] = masked[10] = masked[11] = 0xff
    else:
        udp, addresses = 40, ip[8:40]
        assert struct.unpack_from(">H", ip, 4)[0] == len(ip) - 40
        masked[0], masked[1:4], masked[7] = 0x6f, b"\xff" * 3, 0xff
    length = len(ip) - udp
    assert struct.unpack_from(">HH", ip, udp + 2) == (4791, length)
    assert internet_sum(addresses + struct.pack(">II", 17, length) + ip[udp:]) == 0xffff
    masked[udp + 6] = masked[udp + 7] = masked[udp + 8 + 4] = 0xff
    there = struct.unpack("<I", ip[-4:])[0]
    assert zlib.crc32(b"\xff" * 8 + bytes(masked[:-4])) == there
    return there


FIELDS = ("frame.interface_id infiniband.bth.opcode infiniband.bth.destqp infiniband.bth.psn frame.comment "
          "infiniband.invariant.crc udp.checksum.status ip.checksum.status _ws.malformed "
          "_ws.expert.severity frame.time_epoch").split()
COMMENT = 1 << 20  # the mildest severity: the comment that we wrote
START_NS = 1700000000000000001


def payload_protocols():
    """Those that guess from a payload's bytes that it is theirs (and then find it malformed)."""
    lines = subprocess.run(["tshark", "-G", "heuristic-decodes"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return [line.split("\t")[1] for line in lines if line.startswith("infiniband.payload\t")]


def tshark(path):
    """What it sees in each packet: a dictionary."""
    command = ["tshark", "-r", path, "-T", "fields", "-o", "ip.check_checksum:TRUE",
               "-o", "udp.check_checksum:TRUE"]
    for protocol in payload_protocols():
        command += ["--disable-protocol", protocol]
    for field in FIELDS:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [dict(zip(FIELDS, line.split("\t"))) for line in done.stdout.splitlines()]


# Wireshark's dissector names the fields of RC, UC, RD and UD packets; of others it shows the BTH only.
XRC = {str(opcode) for opcode in [*range(0xa0, 0xb5), 0xb6, 0xb7, 0xbc, 0xbd]}
# tshark 4.0 doesn't know them, so it shows no ICRC: CNP, RC's FLUSH and ATOMIC WRITE.
NEWER = {"129", "28", "29", *XRC}


def check_seen(number, seen, said, there):
    is_v6, opcode, qpn, psn, _, comment = said
    seconds, _, fraction = seen["frame.time_epoch"].partition(".")
    expected = {
        "frame.interface_id": is_v6,
        "infiniband.bth.opcode": opcode,
        "infiniband.bth.destqp": f"0x{int(qpn):06x}",
        "infiniband.bth.psn": psn,
        "frame.comment": comment,
        # it shows the bytes as they come
        "infiniband.invariant.crc": f"0x{struct.pack('<I', there).hex()}",
        "udp.checksum.status": "1",
        "ip.checksum.status": "" if is_v6 == "1" else "1",
        "_ws.malformed": "",
        "_ws.expert.severity": str(COMMENT),
    }
    if opcode in NEWER and not seen["infiniband.invariant.crc"]:
        del expected["infiniband.invariant.crc"]
    for field, value in expected.items():
        assert seen[field] == value, f"packet {number}: {field} is {seen[field]}, not {value}"
    assert int(seconds + fraction) == START_NS + number, seen["frame.time_epoch"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sample.pcapng")
        done = subprocess.run([*sys.argv[1:], path], capture_output=True, text=True, check=True)
        said = [line.split("\t") for line in done.stdout.splitlines()]
        with open(path, "rb") as file:
            there = [icrc(packet) for packet in packets(file.read())]
        assert len(there) == len(said) > 500, (len(there), len(said))
        print(f"{len(there)} packets: every checksum and ICRC is right")
        if not shutil.which("tshark"):
            print("tshark is missing (make deps installs it): what Wireshark sees isn't checked")
            return 77
        seen = tshark(path)
        assert len(seen) == len(said), (len(seen), len(said))
        for number, row in enumerate(seen):
            check_seen(number, row, said[number], there[number])
        print(f"{len(seen)} packets: tshark sees what was written")
        return 0


if __name__ == "__main__":  # tests/e2e/capture.py reads captures as this does
    sys.exit(main())
