#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Multicast: Debian's mckey within a host and between two, and what is left of a group's members.

usage: multicast.py [GROUP...] [WORD...]
Runs the groups (see GROUPS; without any: all), and of their cases those whose name has a WORD.
All of it in network namespaces of its own: what goes to a group leaves the host.

mckey's sender pauses for three seconds, posts, asks for no completion, and leaves. Its receivers
wait until they have all messages.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys

from lib import (BUILD, SLOW, VERBENA, Stage, Suite, chosen, need_programs, poll_until, require,
                 tail)
from network import TwoHosts, ip, own_network

ADDRESSES = {"ipv4": "10.9.9.1", "ipv6": "fd09:9::1"}
LOOPBACK = {"ipv4": "127.0.0.1", "ipv6": "::1"}
GROUP = {"ipv4": "224.77.1.1", "ipv6": "ff0e::77:1"}


def resources(stage, kind="mcast"):
    """What `verbena resources --json` says of one kind; nothing without a daemon."""
    done = subprocess.run([VERBENA, "resources", "--json", kind], env=stage.environment, timeout=20,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return json.loads(done.stdout)[kind] if done.returncode == 0 else []


def attached(stage, process, group):
    """Whether a program's queue pair is attached to the group."""
    def same(text):
        return socket.inet_pton(socket.AF_INET6, text) == \
            socket.inet_pton(socket.AF_INET6, group if ":" in group else f"::ffff:{group}")
    return any(entry["pid"] == process.pid and same(entry["gid"]) for entry in resources(stage))


def listening(group, interface="eth0", pid="self"):
    """Whether an interface takes a group's packets, as the kernel says it."""
    with open(f"/proc/{pid}/net/igmp{'6' if ':' in group else ''}", encoding="ascii") as file:
        text = file.read()
    if ":" in group:
        digits = socket.inet_pton(socket.AF_INET6, group).hex()
        return re.search(rf"^\d+\s+{interface}\s+{digits}\s", text, re.MULTILINE) is not None
    word = int.from_bytes(socket.inet_aton(group), sys.byteorder)
    lines = re.search(rf"^\d+\s+{interface}\s.*\n((?:\t.*\n?)*)", text, re.MULTILINE)
    return lines is not None and f"{word:08X}" in lines[1]


def receiver(stage, group, address, *options):
    """A mckey that is attached to its group."""
    one = stage.start("mckey", "-m", group, *(("-b", address) if address else ()), *options)
    poll_until(lambda: not one.running() or attached(stage, one, group), 10)
    require(one.running() and attached(stage, one, group),
            f"{one.title()} isn't attached\n{tail(one.output())}\n{stage.log_tail()}")
    return one


def send(stage, group, address, *options):
    """A mckey that sends."""
    return stage.run("mckey", "-s", "-m", group, *(("-b", address) if address else ()), *options)


def expect_all(*receivers):
    """They have got everything."""
    for one in receivers:
        text = one.expect(10 * SLOW)
        require("data transfers complete" in text and "return status 0" in text,
                f"{one.title()}: no good end\n{tail(text)}")


def expect_joined(text, group):
    """What the event of joining said."""
    gid = group if ":" in group else f"::ffff:{group}"
    require(f"joined dgid: {gid} mlid 0x0" in text, f"not joined to {gid}\n{tail(text)}")


def mckey(stage, family, address, *options, receivers=3):
    """Several receivers, one sender."""
    group = GROUP[family]
    ones = [receiver(stage, group, address, *options) for _ in range(receivers)]
    expect_joined(send(stage, group, address, *options), group)
    expect_all(*ones)
    require(poll_until(lambda: not resources(stage), 5), f"left: {resources(stage)}")
    for interface in ("lo", "eth0"):
        require(not listening(group, interface), f"{interface} still listens for {group}")


def other_group(stage, address):
    """Who is in another group hears nothing."""
    one = receiver(stage, "224.77.1.1", address)
    two = receiver(stage, "224.77.1.2", address)
    send(stage, "224.77.1.1", address)
    expect_all(one)
    require(two.running(), f"it heard another group's\n{tail(two.output())}")
    send(stage, "224.77.1.2", address)
    expect_all(two)


def killed(stage, address, interface):
    """A receiver that is killed leaves the group; the others and the sender notice nothing."""
    group = "224.77.1.3"
    one, two = receiver(stage, group, address), receiver(stage, group, address)
    shown = stage.start(VERBENA, "resources", "mcast", plain=True).expect(10)
    require(re.search(rf"mckey +0x\w+ +::ffff:{group} +\S*{interface}", shown),
            f"`verbena resources` shows\n{tail(shown)}")
    require(listening(group, interface), f"{interface} doesn't listen")
    one.kill()
    one.wait(5)
    require(poll_until(lambda: len(resources(stage)) == 1, 5), f"left: {resources(stage)}")
    require(listening(group, interface), f"{interface} doesn't listen any more")
    send(stage, group, address)
    expect_all(two)
    three = receiver(stage, group, address)
    three.kill()
    three.wait(5)
    require(poll_until(lambda: not resources(stage), 5), f"left: {resources(stage)}")
    require(not listening(group, interface), f"{interface} still listens")


def daemon_killed(stage, address, interface):
    """The daemon is killed: who was attached still gets what comes, before and after the next one."""
    group = "224.77.1.4"
    one = receiver(stage, group, address)
    pids = stage.daemons()
    require(len(pids) == 1, f"{len(pids)} daemons")
    os.kill(pids[0], signal.SIGKILL)
    require(poll_until(lambda: pids[0] not in stage.daemons(), 5), "it lives")
    # The sender starts the next one, and finds the receiver there, once that has returned.
    send(stage, group, address)
    one.wait(10 * SLOW)
    text = one.output()
    require("data transfers complete" in text, f"not all arrived\n{tail(text)}\n{stage.log_tail()}")
    # Its identifier went with the daemon that knew it.
    require("No such device" in text, f"it could leave?\n{tail(text)}")
    require(poll_until(lambda: not resources(stage), 5), f"left: {resources(stage)}")
    require(poll_until(lambda: not listening(group, interface), 5), f"{interface} still listens")


def refused(stage, needle, *words):
    """What can't be: it says so."""
    process = stage.start("mckey", *words)
    status, text = process.wait(10 * SLOW), process.output()
    require(status != 0 and needle in text, f"ended with {status}\n{tail(text)}")


def refusals(suite, stage):
    suite.case("an address that no interface has", refused, stage, "Cannot assign requested address",
               "-m", "224.77.1.1", "-b", "198.51.100.1")
    suite.case("no group", refused, stage, "Invalid argument", "-m", "10.9.9.1", "-b", "10.9.9.1")
    suite.case("no route to the group", refused, stage, "Network is unreachable", "-m", "224.77.1.1")


def port_taken():
    """Somebody else has UDP port 4791: there is no wire."""
    taken = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    taken.bind(("::", 4791))
    return taken


def host(suite):
    """Within one host: the local carrier; over loopback, over a card, and without the wire."""
    own_network()
    ip("address add fd09:9::1/64 dev eth0 nodad")
    stage = Stage()
    for family in ("ipv4", "ipv6"):
        suite.case(f"mckey over loopback, {family}", mckey, stage, family, LOOPBACK[family])
        suite.case(f"mckey over a card, {family}", mckey, stage, family, ADDRESSES[family])
    suite.case("mckey, 4 identifiers each, 200 messages of 1000 bytes", mckey, stage, "ipv4",
               LOOPBACK["ipv4"], "-c", 4, "-C", 200, "-S", 1000, receivers=2)
    suite.case("two groups", other_group, stage, ADDRESSES["ipv4"])
    suite.case("receivers are killed", killed, stage, ADDRESSES["ipv4"], "eth0")
    suite.case("the daemon is killed", daemon_killed, stage, ADDRESSES["ipv4"], "eth0")
    refusals(suite, stage)
    ip("route add 224.0.0.0/4 dev eth0")
    suite.case("by the host's route", mckey, stage, "ipv4", None, receivers=1)
    suite.stage_closed(stage)
    stage = Stage()
    with port_taken():
        for family in ("ipv4", "ipv6"):
            suite.case(f"without the wire, {family}", mckey, stage, family, LOOPBACK[family])
        suite.case("without the wire, over a card", mckey, stage, "ipv4", ADDRESSES["ipv4"])
        suite.stage_closed(stage)


def wire(suite):
    """Within one host, everything as packets."""
    own_network()
    ip("address add fd09:9::1/64 dev eth0 nodad")
    stage = Stage(VERBENA_CARRIER="wire")
    for family in ("ipv4", "ipv6"):
        suite.case(f"mckey over a card, {family}", mckey, stage, family, ADDRESSES[family])
    suite.case("mckey over loopback, IPv4", mckey, stage, "ipv4", LOOPBACK["ipv4"])
    suite.case("two groups", other_group, stage, ADDRESSES["ipv4"])
    suite.case("receivers are killed", killed, stage, ADDRESSES["ipv4"], "eth0")
    suite.case("the daemon is killed", daemon_killed, stage, ADDRESSES["ipv4"], "eth0")
    suite.stage_closed(stage)


def between(hosts, family):
    """Receivers on both hosts, the sender on one, then on the other."""
    group = GROUP[family]
    for stage in hosts.hosts:
        ones = [(receiver(at, group, at.addresses[family]), at)
                for at in (*hosts.hosts, hosts.client)]
        for at in hosts.hosts:
            require(listening(group, pid=at.holder.pid), f"host {at.number} doesn't listen")
        expect_joined(send(stage, group, stage.addresses[family]), group)
        expect_all(*(one for one, _ in ones))
        for at in hosts.hosts:
            require(poll_until(lambda at=at: not listening(group, pid=at.holder.pid), 5),
                    f"host {at.number} still listens")


def rig(hosts, carrier, *options):
    """Tests of groups.c, each end on its own host. The carrier `local` only means that nothing is
    forced: members on the sender's host then get their copy by its links, and no other one."""
    ends = ",".join(f"/proc/{host.holder.pid}/ns/net,{host.runtime}" for host in hosts.hosts)
    hosts.server.run(os.path.join(BUILD, "tests", "e2e", "groups"), "-c", carrier, *options,
                     plain=True, seconds=100, environment={"RIG_HOSTS": ends})


def between_hosts(suite):
    """Between two network namespaces."""
    hosts = TwoHosts(idle_ms=3000)
    for family in ("ipv4", "ipv6"):
        suite.case(f"mckey between two hosts, {family}", between, hosts, family)
    suite.case("verbs between two hosts", rig, hosts, "local")
    suite.case("verbs between two hosts, all as packets", rig, hosts, "wire")
    suite.stage_closed(hosts)


GROUPS = {"host": host, "wire": wire, "hosts": between_hosts}


def main():
    """The groups that the command line names, or all."""
    need_programs("mckey", "ip")
    groups, cases = chosen(GROUPS)
    suite = Suite("multicast: " + " ".join(groups), only=cases)
    for name in groups:
        GROUPS[name](suite)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
