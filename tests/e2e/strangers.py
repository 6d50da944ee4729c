# SPDX-License-Identifier: BSD-2-Clause
"""Packets from strangers, in the network that network.own_network() made: from another host, at the
other end of its card's cable, or (`near`) from a program of this host, by an ordinary socket."""
import socket
import struct
import zlib

ADDRESS, FAR = "10.9.9.1", "10.9.9.2"
CARD, FAR_CARD = bytes.fromhex("02000a090901"), bytes.fromhex("02000a090902")


def forge(slot, index, **how):
    """Sends the program at `slot` a SEND for one of its QPs; the rest as for send()."""
    pkey = how.pop("pkey", 0xffff)
    send(base_header(0x04, pkey, slot << 14 | index), **how)


def forge_datagram(qpn, source_qpn, qkey, **how):
    """Sends a UD QP a datagram that says it is from another one."""
    send(base_header(0x64, 0xffff, qpn) + qkey.to_bytes(4, "big") + source_qpn.to_bytes(4, "big") +
         b"forged  ", **how)


def base_header(opcode, pkey, qpn):
    """The BTH."""
    return bytes([opcode, 0x40]) + pkey.to_bytes(2, "big") + bytes([0]) + qpn.to_bytes(3, "big") + \
        bytes([0]) + (7).to_bytes(3, "big")


def forge_mad(mad, qkey=0x80010000, **how):
    """Sends the daemon a management datagram."""
    send(base_header(0x64, 0xffff, 1) + qkey.to_bytes(4, "big") + bytes([0, 0, 0, 1]) + mad, **how)


def request(port, local_id, **other):
    """A REQ of the RDMA CM for a port of TCP's space; `other`: class_, method or attribute that isn't
    a REQ's."""
    header = bytes([1, other.get("class_", 7), 2, other.get("method", 3)]) + bytes(4) + \
        local_id.to_bytes(8, "big") + other.get("attribute", 0x10).to_bytes(2, "big") + bytes(6)
    gid = bytes(10) + b"\xff\xff" + socket.inet_aton(ADDRESS)
    far = gid[:12] + socket.inet_aton(FAR)
    numbers = (local_id << 8 | 1).to_bytes(4, "big") + bytes([0, 0, 0, 1]) + bytes([0, 0, 0, 20 << 3]) + \
        bytes([0, 0, 1, 20 << 3 | 7]) + bytes([0xff, 0xff, 5 << 4 | 7, 15 << 4])
    path = bytes(4) + far + gid + bytes(4) + bytes([0, 64, 0, 18 << 3])
    ip = bytes([0, 4 << 4]) + (1234).to_bytes(2, "big") + bytes(12) + far[12:] + \
        bytes(12) + gid[12:]
    body = local_id.to_bytes(4, "big") + bytes(4) + (0x0106 << 16 | port).to_bytes(8, "big") + \
        bytes(7) + b"\x01" + bytes(8) + numbers + path + bytes(44) + ip
    return (header + body).ljust(256, b"\0")


def send(bth, spoil=0, size=None, near=False):
    """A RoCEv2 packet with its ICRC. spoil: a wrong one; size: cut to so many bytes."""
    if near:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: identification 0
            sender.bind((ADDRESS, 0))
            packet = sealed(bth, ADDRESS, sender.getsockname()[1], spoil)
            sender.sendto(packet[:size], (ADDRESS, 4791))
        return
    packet = sealed(bth, FAR, 0xc123, spoil)[:size]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as cable:
        cable.bind(("far0", 0x0800))
        cable.send(CARD + FAR_CARD + b"\x08\x00" + ip_header(FAR, len(packet)) +
                   struct.pack(">HHHH", 0xc123, 4791, 8 + len(packet), 0) + packet)


def ip_header(source, size, masked=False):
    """IPv4's, of a UDP datagram of `size` bytes; masked: as the ICRC sees it."""
    head = bytearray(struct.pack(">BBHHHBBH", 0x45, 0xff if masked else 0, 28 + size, 0, 0x4000,
                                 0xff if masked else 64, 17, 0xffff if masked else 0) +
                     socket.inet_aton(source) + socket.inet_aton(ADDRESS))
    if not masked:
        words = sum(struct.unpack(">10H", head))
        words = (words >> 16) + (words & 0xffff)
        head[10:12] = (~(words + (words >> 16)) & 0xffff).to_bytes(2, "big")
    return bytes(head)


def sealed(bth, source, port, spoil):
    """The packet with the ICRC that it has between these addresses."""
    size = len(bth) + 4
    masked = bytearray(bth)
    masked[4] = 0xff
    crc = zlib.crc32(b"\xff" * 8 + ip_header(source, size, masked=True) +
                     struct.pack(">HHHH", port, 4791, 8 + size, 0xffff) + bytes(masked))
    return bth + struct.pack("<I", crc ^ spoil)


def slot_of(stage):
    """The slot of the only client with a QP."""
    slots = [client["slot"] for client in stage.clients() if client["objects"]["qp"]]
    return slots[0] if slots else None
