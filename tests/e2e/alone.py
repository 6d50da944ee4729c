# SPDX-License-Identifier: BSD-2-Clause
"""Tests that are alone in a network: a namespace with one card, and packets from strangers there."""
import os
import socket
import struct
import subprocess
import sys
import zlib

from lib import SKIPPED

ADDRESS = "10.77.77.1"


def own_network():
    """Runs this script again, alone in a network; where that isn't allowed it is skipped."""
    if os.environ.get("VERBENA_ALONE"):
        return
    environment = dict(os.environ, VERBENA_ALONE="1")
    # No address is tried before it is used: nothing can be sent from it meanwhile.
    setup = (f"echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up && "
             f"ip link add eth7 type veth peer name far7 && ip address add {ADDRESS}/24 dev eth7 && ip link set eth7 mtu 4200 up && "
             f"ip link set far7 mtu 4200 up && exec \"$@\"")
    for how in (["-n"], ["-rn"]):
        if subprocess.run(["unshare", *how, "true"], check=False, capture_output=True).returncode:
            continue
        words = ["unshare", *how, "sh", "-c", setup, "sh", sys.executable, *sys.argv]
        os.execvpe("unshare", words, environment)
    print("no network namespace can be made here: root, or user namespaces for everybody")
    sys.exit(SKIPPED)


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
