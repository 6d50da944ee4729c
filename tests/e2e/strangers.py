# SPDX-License-Identifier: BSD-2-Clause
"""Packets from strangers, in the network that network.own_network() made."""
import socket
import struct
import zlib

ADDRESS = "10.9.9.1"


def forge(slot, index, spoil=0, pkey=0xffff, size=None):
    """Sends the program at `slot` a SEND for one of its QPs, from a stranger; spoil: a wrong ICRC;
    size: cut to so many bytes."""
    send(base_header(0x04, pkey, slot << 14 | index), spoil, size)


def base_header(opcode, pkey, qpn):
    """The BTH."""
    return bytes([opcode, 0x40]) + pkey.to_bytes(2, "big") + bytes([0]) + qpn.to_bytes(3, "big") + \
        bytes([0]) + (7).to_bytes(3, "big")


def forge_mad(mad, qkey=0x80010000):
    """Sends the daemon a management datagram."""
    send(base_header(0x64, 0xffff, 1) + qkey.to_bytes(4, "big") + bytes([0, 0, 0, 1]) + mad)


def request(port, local_id, **other):
    """A REQ of the RDMA CM for a port of TCP's space; `other`: class_, method or attribute that isn't
    a REQ's."""
    header = bytes([1, other.get("class_", 7), 2, other.get("method", 3)]) + bytes(4) + \
        local_id.to_bytes(8, "big") + other.get("attribute", 0x10).to_bytes(2, "big") + bytes(6)
    gid = bytes(10) + b"\xff\xff" + socket.inet_aton(ADDRESS)
    numbers = (local_id << 8 | 1).to_bytes(4, "big") + bytes([0, 0, 0, 1]) + bytes([0, 0, 0, 20 << 3]) + \
        bytes([0, 0, 1, 20 << 3 | 7]) + bytes([0xff, 0xff, 5 << 4 | 7, 15 << 4])
    path = bytes(4) + gid + gid + bytes(4) + bytes([0, 64, 0, 18 << 3])
    ip = bytes([0, 4 << 4]) + (1234).to_bytes(2, "big") + (bytes(12) + gid[12:]) * 2
    body = local_id.to_bytes(4, "big") + bytes(4) + (0x0106 << 16 | port).to_bytes(8, "big") + \
        bytes(7) + b"\x01" + bytes(8) + numbers + path + bytes(44) + ip
    return (header + body).ljust(256, b"\0")


def send(bth, spoil=0, size=None):
    """A RoCEv2 packet with its ICRC."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: identification 0
        sender.bind((ADDRESS, 0))
        source = sender.getsockname()[1]
        whole = 20 + 8 + len(bth) + 4
        here = socket.inet_aton(ADDRESS)
        head = struct.pack(">BBHHHBBH", 0x45, 0xff, whole, 0, 0x4000, 0xff, 17, 0xffff) + 2 * here
        udp = struct.pack(">HHHH", source, 4791, whole - 20, 0xffff)
        masked = bytearray(bth)
        masked[4] = 0xff
        crc = zlib.crc32(b"\xff" * 8 + head + udp + bytes(masked))
        sender.sendto((bth + struct.pack("<I", crc ^ spoil))[:size], (ADDRESS, 4791))


def slot_of(stage):
    """The slot of the only client with a QP."""
    slots = [client["slot"] for client in stage.clients() if client["objects"]["qp"]]
    return slots[0] if slots else None
