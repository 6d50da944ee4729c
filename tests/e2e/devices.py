#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Several devices, each bound to an interface: what programs see of them, and of their links.

Runs in a network namespace of its own, with two veth interfaces, whose other ends are cables that can
be pulled.
"""
import errno
import ipaddress
import os
import re
import subprocess
import sys

from lib import (BUILD, PORTS, SKIPPED, SLOW, Stage, Suite, enter_namespace, need_programs,
                 poll_until, require, tail)

MACS = {"veba": "02:00:00:00:0a:01", "vebb": "02:00:00:00:0b:01"}


def ip(*words):
    """Changes interfaces of this namespace."""
    subprocess.run(["ip", *[str(word) for word in words]], check=True, timeout=20)


def make_card(name, mtu):
    """An interface; its other end, NAME_peer, is made after it and has no address."""
    ip("link", "add", f"{name}_peer", "mtu", mtu, "type", "veth", "peer", "name", name, "address",
       MACS[name], "mtu", mtu)
    ip("link", "set", f"{name}_peer", "addrgenmode", "none")
    ip("link", "set", f"{name}_peer", "up")


def make_interfaces():
    """Two cards: one with large packets, one with ordinary ones."""
    for number, (name, mtu) in enumerate((("veba", 4200), ("vebb", 1500))):
        make_card(name, mtu)
        ip("address", "add", f"10.91.{number}.1/24", "dev", name)
        ip("address", "add", f"fd91:{number}::1/64", "dev", name, "nodad")
        ip("link", "set", name, "up")


def start_daemon(stage, configuration):
    """verbenad with this configuration."""
    path = os.path.join(stage.directory, "verbenad.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write(configuration)
    daemon = stage.start(os.path.join(BUILD, "bin", "verbenad"), "--config", path,
                         "--runtime-dir", stage.runtime, "--idle-ms", "never", plain=True)
    require(poll_until(stage.status, 10), f"no daemon\n{tail(daemon.output())}")
    return daemon


def end_daemon(daemon):
    """As a service manager would."""
    daemon.kill(15)
    daemon.expect(10 * SLOW)


def devinfo(stage, device):
    """ibv_devinfo -v: state, MTU, GUID, GIDs as addresses."""
    text = stage.run("ibv_devinfo", "-v", "-d", device)

    def find(pattern):
        found = re.search(pattern, text)
        require(found, f"no {pattern} in\n{tail(text)}")
        return found.group(1)

    gids = re.findall(r"GID\[\s*\d+\]:\s*([0-9a-f:.]+)", text)
    return {"state": find(r"state:\s*(\w+)"), "mtu": int(find(r"active_mtu:\s*(\d+)")),
            "guid": find(r"node_guid:\s*(\S+)"),
            "gids": {ipaddress.ip_address(gid.rstrip(",")) for gid in gids}}


def addresses(*texts):
    """As GIDs are shown."""
    return {ipaddress.ip_address(text) for text in texts}


CONFIGURATION = "device = big veba\ndevice = small vebb\n"


def configuration_at(directory, *path, text=CONFIGURATION, mode=0o644):
    """Writes a configuration file; returns its path."""
    path = os.path.join(directory, *path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def listed(stage, **environment):
    """The devices that a program sees which starts the daemon itself. The daemon is gone after."""
    poll_until(lambda: not stage.daemons(), 10)
    text = stage.run("ibv_devices", environment=environment)
    names = [line.split()[0] for line in text.strip().split("\n")[2:] if line.strip()]
    file = (stage.status() or {}).get("config")
    stage.run(os.path.join(BUILD, "bin", "verbena"), "stop", "--force", plain=True)
    return names, file


def users_configuration(stage):
    """A user's daemon reads the user's file: named by a variable, or in the usual places."""
    del stage.environment["VERBENA_CONFIG"]
    home = os.path.join(stage.directory, "home")
    stage.environment.update(HOME=home, XDG_CONFIG_HOME="")
    unset = (["verbena0", "verbena1"], None)
    require(listed(stage) == unset, f"without a file: {listed(stage)}")
    usual = configuration_at(home, ".config", "verbena", "verbenad.conf")
    require(listed(stage) == (["big", "small"], usual), f"in HOME: {listed(stage)}")
    # As for a user who may not search it: a container with another user, sudo that keeps HOME.
    require(listed(stage, HOME="/dev/null") == unset, "a HOME without files hinders")
    require(listed(stage, VERBENA_CONFIG="") == unset, "it is read all the same")
    named = configuration_at(stage.directory, "named.conf", text="device = other veba\n")
    require(listed(stage, VERBENA_CONFIG=named) == (["other"], named), "not the one that was named")
    folder = os.path.join(stage.directory, "folder")
    xdg = configuration_at(folder, "verbena", "verbenad.conf", text="device = third vebb\n")
    require(listed(stage, XDG_CONFIG_HOME=folder) == (["third"], xdg), "not XDG_CONFIG_HOME's")
    require(listed(stage, XDG_CONFIG_HOME="relative") == (["big", "small"], usual), "not HOME's")


def wrong_configuration(stage):
    """A file that can't be used is an error, which the daemon's log explains; another user's file
    in the usual place is no file of this user."""
    home = os.path.join(stage.directory, "home")
    verbenad = os.path.join(BUILD, "bin", "verbenad")

    def refused(said, **environment):
        text = stage.run(verbenad, "--runtime-dir", stage.runtime, "--idle-ms", "0", plain=True,
                         status=2, environment=environment)
        require(said in text, f"no \"{said}\" in\n{tail(text)}")

    refused("there is no such file", VERBENA_CONFIG="/nowhere/verbenad.conf")
    refused("no absolute path", VERBENA_CONFIG="verbenad.conf")
    bad = configuration_at(stage.directory, "bad.conf", text="device = x\n")
    refused("bad.conf:1: device wants a name and at least one interface", VERBENA_CONFIG=bad)
    usual = configuration_at(home, ".config", "verbena", "verbenad.conf", mode=0o666)
    refused("may be changed by others")
    os.chmod(usual, 0o644)
    if os.geteuid() == 0 and not subprocess.run(["chown", "65534", usual], check=False,
                                                stderr=subprocess.DEVNULL).returncode:
        require(listed(stage) == (["verbena0", "verbena1"], None), "another user's file is read")
        require("isn't read, because it belongs to user 65534" in stage.log(), stage.log_tail())
        refused("may be changed by others", VERBENA_CONFIG=usual)


def two_devices(stage):
    """Both are listed, each with its own card's number, addresses and MTU."""
    text = stage.run("ibv_devices")
    rows = [line.split() for line in text.strip().split("\n")[2:]]
    require([row[0] for row in rows] == ["big", "small"], f"not big and small\n{tail(text)}")
    big, small = devinfo(stage, "big"), devinfo(stage, "small")
    require(big["guid"] == "0000:00ff:fe00:0a01" and small["guid"] == "0000:00ff:fe00:0b01",
            f"odd GUIDs: {big['guid']}, {small['guid']}")
    require((big["mtu"], small["mtu"]) == (4096, 1024), f"odd MTUs: {big['mtu']}, {small['mtu']}")
    for device, number, mac in ((big, 0, "a"), (small, 1, "b")):
        own = addresses(f"fe80::ff:fe00:{mac}01", f"::ffff:10.91.{number}.1", f"fd91:{number}::1")
        require(device["gids"] == own, f"{device['gids']} instead of {own}")
        require(device["state"] == "PORT_ACTIVE", f"the port is {device['state']}")


def status_shows(stage):
    """verbena status has them with their interfaces, and the wire."""
    status = stage.status()
    got = [(d["name"], d["node"], d["interfaces"], d["state"], d["mtu"])
           for d in status["devices"]]
    require(got == [("big", "uverbs0", ["veba"], "ACTIVE", 4096),
                    ("small", "uverbs1", ["vebb"], "ACTIVE", 1024)], f"status has {got}")
    text = stage.run(os.path.join(BUILD, "bin", "verbena"), "status", plain=True)
    require("vebb" in text and "wire: " in text, f"not in the text\n{tail(text)}")


def pingpong(stage):
    """Data over the second device."""
    port = PORTS.take()
    words = ["ibv_rc_pingpong", "-d", "small", "-g", 1, "-p", port, "-n", 100]
    stage.pair(words, [*words, "127.0.0.1"], port)


def watch_device(stage, device):
    """ibv_asyncwatch, once it watches."""
    watch = stage.start("stdbuf", "-oL", "ibv_asyncwatch", "-d", device)
    require(poll_until(lambda: "async event FD" in watch.output(), 10),
            f"no greeting\n{tail(watch.output())}")
    return watch


def expect_event(watch, text):
    """It comes."""
    require(poll_until(lambda: text in watch.output(), 10),
            f"no {text} in\n{tail(watch.output())}")


def link_events(stage):
    """An interface goes down and comes back: its device's contexts hear it, nobody else's."""
    with_it, without = watch_device(stage, "small"), watch_device(stage, "big")
    ip("link", "set", "vebb", "down")
    expect_event(with_it, "EVENT_PORT_ERR")
    require(devinfo(stage, "small")["state"] == "PORT_DOWN", "the port isn't down")
    require(devinfo(stage, "big")["state"] == "PORT_ACTIVE", "the other port isn't up")
    ip("link", "set", "vebb", "up")
    expect_event(with_it, "EVENT_PORT_ACTIVE")
    require(devinfo(stage, "small")["state"] == "PORT_ACTIVE", "the port isn't up again")
    # Now the other way round, by the cable; what would have come before would be there by then.
    ip("link", "set", "veba_peer", "down")
    expect_event(without, "EVENT_PORT_ERR")
    ip("link", "set", "veba_peer", "up")
    expect_event(without, "EVENT_PORT_ACTIVE")
    require(without.output().count("EVENT_PORT_ERR") == 1 and with_it.output().count("EVENT_PORT_ERR") == 1,
            f"events of the other device:\n{tail(with_it.output())}\n{tail(without.output())}")
    for watch in (with_it, without):
        watch.kill(15)
        watch.wait(5 * SLOW)


def gid_change(stage):
    """An address comes and goes: only its device says so."""
    with_it, without = watch_device(stage, "small"), watch_device(stage, "big")
    ip("address", "add", "10.91.1.2/24", "dev", "vebb")
    expect_event(with_it, "EVENT_GID_CHANGE")
    require(ipaddress.ip_address("::ffff:10.91.1.2") in devinfo(stage, "small")["gids"],
            "no GID of the new address")
    require("EVENT_GID_CHANGE" not in without.output(), "another device's GIDs changed")
    ip("address", "del", "10.91.1.2/24", "dev", "vebb")
    for watch in (with_it, without):
        watch.kill(15)
        watch.wait(5 * SLOW)


def mtu_follows(stage):
    """The interface's MTU changes."""
    ip("link", "set", "vebb", "mtu", 9000)
    require(poll_until(lambda: devinfo(stage, "small")["mtu"] == 4096, 10), "the MTU didn't grow")
    ip("link", "set", "vebb", "mtu", 1500)
    require(poll_until(lambda: devinfo(stage, "small")["mtu"] == 1024, 10), "it didn't shrink")


def interface_vanishes(stage):
    """One that is deleted and made again."""
    ip("link", "del", "vebb")
    require(poll_until(lambda: devinfo(stage, "small")["state"] == "PORT_DOWN", 10),
            "the port of an interface that isn't there is up")
    make_card("vebb", 1500)
    ip("address", "add", "10.91.1.1/24", "dev", "vebb")
    ip("link", "set", "vebb", "up")
    require(poll_until(lambda: devinfo(stage, "small")["state"] == "PORT_ACTIVE"
                       and len(devinfo(stage, "small")["gids"]) >= 2, 10), "it isn't up again")


def found_devices(stage):
    """Without configuration: a device for each card, with its own addresses only (gid_rules.py has
    more). A program that has one open keeps it when the card goes down."""
    for name, mac, number, mtu in (("verbena0", "a", 0, 4096), ("verbena1", "b", 1, 1024)):
        info = devinfo(stage, name)
        own = addresses(f"fe80::ff:fe00:{mac}01", f"::ffff:10.91.{number}.1")
        require(info["gids"] - addresses("fd91::1") == own, f"{name}: {info['gids']} instead of {own}")
        require((info["mtu"], info["guid"]) == (mtu, f"0000:00ff:fe00:0{mac}01"), f"odd: {info}")
    watch = watch_device(stage, "verbena0")
    ip("link", "set", "veba", "down")
    expect_event(watch, "EVENT_PORT_ERR")
    require(devinfo(stage, "verbena0")["state"] == "PORT_DOWN", "the port isn't down")
    ip("link", "set", "veba", "up")
    expect_event(watch, "EVENT_PORT_ACTIVE")
    watch.kill(15)
    watch.wait(5 * SLOW)


def own_address(stage):
    """Whether an address is the host's own is known without asking again, but not for too long."""
    def says(*errors):
        words = [str(error) for error in errors]
        require(poll_until(lambda: re.findall(r"^(\d+)$", probe.output(), re.M) == words, 10),
                f"not {words}:\n{tail(probe.output())}")

    address = ("203.0.113.9/32", "dev", "veba")
    ip("address", "add", *address)
    require(poll_until(lambda: "203.0.113.9" in str(stage.status()["devices"][0]["gids"]), 10),
            "no GID of the new address")
    probe = stage.start(os.path.join(BUILD, "tests", "e2e", "own_route"), "203.0.113.9")
    says(0, 0)
    ip("address", "del", *address)
    says(0, 0, errno.EHOSTUNREACH)
    ip("address", "add", *address)
    says(0, 0, errno.EHOSTUNREACH, 0)
    probe.kill(15)
    probe.wait(5 * SLOW)
    ip("address", "del", *address)


def lonely_device(stage):
    """A host without a network: the device is up, for this host. It becomes the card's."""
    info = devinfo(stage, "verbena0")
    require((info["state"], info["mtu"]) == ("PORT_ACTIVE", 4096), f"odd: {info}")
    watch = watch_device(stage, "verbena0")
    ip("link", "set", "veba_peer", "up")
    ip("link", "set", "veba", "up")
    require(poll_until(lambda: "10.91.0.1" in str(stage.status()["devices"][0]["gids"]), 10),
            "its addresses don't come")
    expect_event(watch, "EVENT_GID_CHANGE")
    ip("link", "set", "veba", "down")
    require(poll_until(lambda: devinfo(stage, "verbena0")["state"] == "PORT_DOWN", 10),
            "once it was up, it goes down")
    watch.kill(15)
    watch.wait(5 * SLOW)
    # Nobody has the device open any more: it is what the network is now.
    require(poll_until(lambda: devinfo(stage, "verbena0")["state"] == "PORT_ACTIVE", 10),
            "a host without a network doesn't serve itself")


def main():
    """All cases."""
    need_programs("ibv_devices", "ibv_devinfo", "ibv_asyncwatch", "stdbuf", "unshare", "ip")
    problem = enter_namespace("veth")
    if problem:
        print(problem)
        sys.exit(SKIPPED)
    make_interfaces()
    suite = Suite("devices")
    with Stage() as stage:
        daemon = start_daemon(stage, CONFIGURATION)
        suite.case("two devices", two_devices, stage)
        suite.case("verbena status", status_shows, stage)
        suite.case("pingpong over the second", pingpong, stage)
        suite.case("link down and up", link_events, stage)
        suite.case("an address comes", gid_change, stage)
        suite.case("the interface's MTU", mtu_follows, stage)
        suite.case("an interface vanishes", interface_vanishes, stage)
        end_daemon(daemon)
    with Stage() as stage:
        suite.case("a user's own configuration", users_configuration, stage)
        suite.case("a wrong configuration", wrong_configuration, stage)
    with Stage() as stage:
        daemon = start_daemon(stage, "")
        suite.case("a device for each card", found_devices, stage)
        suite.case("an address of the host's comes and goes", own_address, stage)
        end_daemon(daemon)
    for name in MACS:
        ip("link", "set", name, "down")
        ip("link", "set", f"{name}_peer", "down")
    with Stage() as stage:
        daemon = start_daemon(stage, "")
        suite.case("a host without a network", lonely_device, stage)
        end_daemon(daemon)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
