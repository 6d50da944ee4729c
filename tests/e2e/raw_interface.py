#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Raw packets on a network interface: frames out and in, and without the capability.

The program is build/tests/e2e/raw --station; the other end of its cable is this script's packet
socket. Needs root or user namespaces; without them it is skipped.
"""
import os
import socket
import struct
import sys

from lib import SLOW, Stage, Suite, need_programs, poll_until, require, tail
from network import interface_up, ip, own_network, setting

PROGRAM = os.path.join(os.environ["VERBENA_BUILD_DIR"], "tests", "e2e", "raw")
WITHOUT = ("setpriv", "--bounding-set", "-net_raw")
STATION = bytes.fromhex("020000000007")
OTHER = bytes.fromhex("020000000008")
HERE = bytes.fromhex("020000000005")
TYPE = b"\x88\xb5"


def cable():
    """raw0 and raw1, both ends of one."""
    ip("link add raw0 type veth peer name raw1")
    for name in ("raw0", "raw1"):
        setting(f"ipv6/conf/{name}/disable_ipv6", 1)
        interface_up(name)


def far_end():
    """A packet socket on the other end of the cable."""
    far = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    far.bind(("raw1", 0))
    far.settimeout(20 * SLOW)
    return far


def started(stage, frames, before=()):
    """A station that has sent its frame."""
    station = stage.start(*before, PROGRAM, "--station", frames,
                          environment={"VERBENA_RAW_INTERFACE": "raw0"})
    require(poll_until(lambda: "sent" in station.output() or not station.running(), 20),
            tail(station.output()))
    return station


def out_and_in(stage):
    """Its frame comes out; of those that go in it gets the ones that its rule describes."""
    far = far_end()
    station = started(stage, 3)
    out = far.recv(2000)
    require(out[:14] == HERE + bytes.fromhex("020000000063") + TYPE and len(out) == 128,
            f"not the station's frame: {out.hex()}")
    plain = STATION + HERE + TYPE + b"plain" * 10
    tagged = STATION + HERE + b"\x81\x00\x61\x23" + TYPE + b"tagged" * 10
    for frame in (OTHER + HERE + TYPE + b"other" * 10, plain, tagged, plain):
        far.send(frame)
    text = station.expect(20 * SLOW)
    got = [line.split()[1] for line in text.splitlines() if line[:1].isdigit()]
    require(got == [frame.hex() for frame in (plain, tagged, plain)], f"it got\n{tail(text)}")
    far.close()


def from_the_kernel(stage):
    """A datagram of the host's own, whose checksum the kernel leaves to the card, is made whole."""
    ip("addr add 10.77.0.1/24 dev raw1",
       "neigh add 10.77.0.2 lladdr 02:00:00:00:00:07 dev raw1 nud permanent")
    station = started(stage, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", ("10.77.0.2", 5000))
    text = station.expect(20 * SLOW)
    frame = bytes.fromhex([line.split()[1] for line in text.splitlines()
                           if line[:1].isdigit()][0])
    ports, = struct.unpack(">H", frame[36:38])
    require(ports == 5000, f"not that datagram: {frame.hex()}")
    covered = frame[26:34] + b"\x00\x11" + frame[38:40] + frame[34:47] + b"\x00"
    total = sum(struct.unpack(f">{len(covered) // 2}H", covered))
    require(total % 0xffff == 0, f"its checksum is wrong: {frame.hex()}")


def without_the_capability(stage):
    """No queue pair, EPERM, and the reason in words; without the variable all is well."""
    station = started(stage, 1, before=WITHOUT)
    status, text = station.wait(20 * SLOW), station.output()
    require(status and "Operation not permitted" in text and "CAP_NET_RAW" in text, tail(text))
    stage.run(*WITHOUT, PROGRAM, "--station", 0)


def no_such_interface(stage):
    """ENODEV."""
    station = stage.start(PROGRAM, "--station", 0,
                          environment={"VERBENA_RAW_INTERFACE": "nosuch0"})
    status, text = station.wait(20 * SLOW), station.output()
    require(status and "No such device" in text and "nosuch0" in text, tail(text))


def main():
    """All cases."""
    need_programs("setpriv")
    own_network()
    cable()
    suite = Suite("raw_interface")
    stage = Stage(idle_ms=2000)
    for case in (out_and_in, from_the_kernel, without_the_capability, no_such_interface):
        suite.case(case.__name__.replace("_", " "), case, stage)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
