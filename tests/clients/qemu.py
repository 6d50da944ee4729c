#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""QEMU: a virtual machine migrates over RDMA, on one host and between two, with its memory pinned as
it goes and all at once; afterwards its memory is what it was. No operating system runs in it.

usage: qemu.py [WORD...]
"""
import json
import os
import socket

from clients import ADDRESS, Failure, on_each_stage, on_two_hosts, prepare, require
from lib import PORTS, SLOW, Suite, poll_until, tail

MIB = 64
AT = 16 << 20       # where the machine's memory has bytes that tell
BYTES = 24 << 20
QEMU = ["qemu-system-x86_64", "-accel", "tcg", "-M", "pc", "-m", MIB, "-nodefaults", "-display",
        "none", "-no-user-config", "-S"]


class Machine:
    """A QEMU with its monitor."""

    def __init__(self, stage, name, *words):
        self.path = os.path.join(stage.directory, name + ".monitor")
        self.process = stage.start(*QEMU, "-qmp", f"unix:{self.path},server=on,wait=off", *words)
        self.monitor = socket.socket(socket.AF_UNIX)
        self.monitor.settimeout(60 * SLOW)
        require(poll_until(self.connected, 20), f"no monitor\n{tail(self.process.output())}")
        self.lines = self.monitor.makefile("rw", encoding="utf-8")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def connected(self):
        """Whether its monitor takes us."""
        try:
            self.monitor.connect(self.path)
        except OSError:
            return False
        return True

    def ask(self, command, **arguments):
        """A command's answer; Failure if it is an error."""
        print(json.dumps({"execute": command, "arguments": arguments}), file=self.lines, flush=True)
        while True:
            line = self.lines.readline()
            require(line, f"QEMU has ended\n{tail(self.process.output())}")
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"{command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def capability(self, name):
        """Switches one of migration's on."""
        self.ask("migrate-set-capabilities", capabilities=[{"capability": name, "state": True}])

    def quit(self):
        """Ends it well."""
        self.ask("quit")
        self.process.expect(20 * SLOW)
        self.monitor.close()


def migrate(stage, address, *capabilities):
    """From the second host to the first, or within one; all of its memory is there."""
    ends = [getattr(stage, name, stage) for name in ("client", "server")]
    port = PORTS.take()
    content = os.path.join(ends[0].directory, "content")
    with open(content, "wb") as file:
        file.write(os.urandom(BYTES))
    source = Machine(ends[0], "source", "-device",
                     f"loader,file={content},addr={AT},force-raw=on")
    target = Machine(ends[1], "target", "-incoming", "defer")
    for name in capabilities:
        source.capability(name)
        target.capability(name)
    uri = f"rdma:{address}:{port}"
    target.ask("migrate-incoming", uri=uri)
    source.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 33})
    source.ask("migrate", uri=uri)
    require(poll_until(lambda: source.ask("query-migrate").get("status") in
                       ("completed", "failed"), 60), "it doesn't end")
    state = source.ask("query-migrate")
    require(state["status"] == "completed", f"{state}\n{tail(source.process.output())}\n"
            f"{tail(target.process.output())}")
    arrived = os.path.join(ends[1].directory, "arrived")
    target.ask("pmemsave", val=AT, size=BYTES, filename=arrived)
    source.quit()
    target.quit()
    with open(content, "rb") as one, open(arrived, "rb") as two:
        require(one.read() == two.read(), "its memory is another")
    os.unlink(arrived)
    print(f"      {state['ram']['mbps'] / 8:.0f} MB/s")


def cases(suite, stage, who):
    """Both ways to register the machine's memory."""
    address = stage.host if who == "two hosts" else ADDRESS
    suite.case(f"{who}: pages pinned as they go", migrate, stage, address)
    suite.case(f"{who}: everything pinned at once", migrate, stage, address, "rdma-pin-all")


def main():
    """All cases."""
    prepare(QEMU[0])
    suite = Suite("qemu")
    on_each_stage(suite, cases)
    on_two_hosts(suite, cases)
    suite.end()


if __name__ == "__main__":
    main()
