# SPDX-License-Identifier: BSD-2-Clause
"""Packets from strangers, in the network that network.own_network() made."""
import socket
import struct
import zlib

ADDRESS = "10.9.9.1"


def forge(slot, index, spoil=0, pkey=0xffff, size=None):
    """Sends the program at `slot` a SEND for one of its QPs, from a stranger; spoil: a wrong ICRC;
    size: cut to so many bytes."""
    bth = bytes([0x04, 0x40]) + pkey.to_bytes(2, "big") + bytes([0]) + (slot << 14 | index).to_bytes(3, "big") + \
        bytes([0]) + (7).to_bytes(3, "big")
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
