#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`verbena cdi`: its specification keeps the rules of the Container Device Interface, and does what
it is for: a container whose image has a program and the C library, and nothing else, gets a device.

usage: cdi.py [WORD...]    the cases whose names have a WORD

The containers here are what a runtime makes of a specification: a root of its own in a mount
namespace, the mounts, nodes and variables of the specification, nothing inherited.
"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys

from lib import (PORTS, SANITIZE, SKIPPED, SLOW, VERBENA, Stage, Suite, need_programs,
                 port_listened, poll_until, require, tail)
from network import call, own_network

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
FLAGS = {"bind": MS_BIND, "rbind": MS_BIND | MS_REC, "ro": MS_RDONLY, "rw": 0,
         "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
PROGRAMS = ("ibv_devices", "ibv_rc_pingpong")

# The rules of version 0.5.0, of which a reader refuses a file that breaks one. For each object:
# member -> (whether it must be there, its type or the rules of the objects in its list).
STRINGS = (list, str)
EDITS = {
    "env": (False, STRINGS),
    "deviceNodes": (False, (list, {
        "path": (True, str), "hostPath": (False, str), "type": (False, str),
        "major": (False, int), "minor": (False, int), "fileMode": (False, int),
        "permissions": (False, str), "uid": (False, int), "gid": (False, int)})),
    "mounts": (False, (list, {
        "hostPath": (True, str), "containerPath": (True, str), "type": (False, str),
        "options": (False, STRINGS)})),
    "hooks": (False, (list, {
        "hookName": (True, str), "path": (True, str), "args": (False, STRINGS),
        "env": (False, STRINGS), "timeout": (False, int)})),
}
SPECIFICATION = {
    "cdiVersion": (True, str),
    "kind": (True, str),
    "devices": (True, (list, {"name": (True, str), "containerEdits": (True, EDITS)})),
    "containerEdits": (False, EDITS),
}
LABEL = r"[a-z0-9A-Z](?:[a-z0-9A-Z-]{0,61}[a-z0-9A-Z])?"
KIND = re.compile(rf"(?=[^/]{{1,253}}/){LABEL}(?:\.{LABEL})*/[A-Za-z](?:[\w-]{{0,61}}[a-z0-9A-Z])?",
                  re.ASCII)
NAME = re.compile(r"[a-z0-9A-Z](?:[\w.:-]*[a-z0-9A-Z])?", re.ASCII)


def check_object(value, rules, where):
    """The object has the members that it must have, no unknown ones, each of its type."""
    require(isinstance(value, dict), f"{where} is no object")
    for name, (needed, _) in rules.items():
        require(not needed or name in value, f"{where} has no {name}")
    for name, member in value.items():
        require(name in rules, f"{where} has an unknown member {name}")
        check_value(member, rules[name][1], f"{where}.{name}")


def check_value(value, kind, where):
    """See check_object()."""
    if isinstance(kind, dict):
        check_object(value, kind, where)
    elif isinstance(kind, tuple):
        require(isinstance(value, list), f"{where} is no list")
        for number, element in enumerate(value):
            check_value(element, kind[1], f"{where}[{number}]")
    else:
        require(isinstance(value, kind) and not isinstance(value, bool), f"{where} is {value!r}")


def check_edits(edits, where):
    """What a type doesn't say."""
    for variable in edits.get("env", []):
        require(re.fullmatch(r"[^=\0]+=[^\0]*", variable), f"{where}: variable {variable!r}")
    for node in edits.get("deviceNodes", []):
        require(os.path.isabs(node["path"]), f"{where}: {node}")
        require(node.get("type", "") in ("", "b", "c", "u", "p"), f"{where}: {node}")
        require(set(node.get("permissions", "")) <= set("rwm"), f"{where}: {node}")
    for mount in edits.get("mounts", []):
        require(os.path.isabs(mount["containerPath"]) and mount["hostPath"], f"{where}: {mount}")


def check(specification):
    """Everything that a reader of version 0.5.0 checks."""
    check_object(specification, SPECIFICATION, "the file")
    require(specification["cdiVersion"] == "0.5.0", specification["cdiVersion"])
    require(KIND.fullmatch(specification["kind"]), specification["kind"])
    names = [device["name"] for device in specification["devices"]]
    require(names and len(set(names)) == len(names), f"names {names}")
    for device in specification["devices"]:
        require(NAME.fullmatch(device["name"]), device["name"])
        require(device["containerEdits"], f"{device['name']} edits nothing")
        check_edits(device["containerEdits"], device["name"])
    check_edits(specification["containerEdits"], "all devices")


def specification_of(stage, *options):
    """What `verbena cdi` prints."""
    return json.loads(stage.run(VERBENA, "cdi", *options, plain=True, preload=False))


# Containers -------------------------------------------------------------------------------------

def mount(source, target, kind, flags, data=None):
    """mount(2)."""
    words = [word.encode() if word else None for word in (source, target, kind)]
    call("mount", *words, flags, data.encode() if data else None)


def mount_point(root, path, is_directory):
    """As a runtime makes it where the image has none."""
    target = root + path
    if is_directory:
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb"):
            pass
    return target


def image_fill(root):
    """An image: the programs and the C library."""
    for path in ("/tmp", "/proc", "/dev", "/etc"):
        os.makedirs(root + path)
    os.chmod(root + "/tmp", 0o1777)
    wanted = {shutil.which(name): f"/bin/{name}" for name in PROGRAMS}
    for program in list(wanted):
        text = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        for path in re.findall(r"(/\S+) \(0x", text):
            if re.match(r"(libc|libm|ld-linux[\w-]*)\.so", os.path.basename(path)):
                wanted[path] = path
    # libm is a part of the C library, which `verbena` needs and the programs may not.
    for path in [path for path in wanted if os.path.basename(path).startswith("libc.so")]:
        libm = os.path.join(os.path.dirname(path), "libm.so.6")
        wanted[libm] = libm
    for source, path in wanted.items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        shutil.copy(source, root + path)


class Container:
    """A root in which a specification's device was put; its programs run beside each other."""

    def __init__(self, stage, specification, name):
        self.stage = stage
        self.root = os.path.join(stage.directory, f"root{stage.serial()}")
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        os.mkdir(self.root)
        # What is mounted below goes with it.
        mount("none", self.root, "tmpfs", 0)
        image_fill(self.root)
        mount("/proc", mount_point(self.root, "/proc", True), None, MS_BIND | MS_REC)
        mount("/dev/null", mount_point(self.root, "/dev/null", False), None, MS_BIND)
        device, = [d for d in specification["devices"] if d["name"] == name]
        for edits in (specification["containerEdits"], device["containerEdits"]):
            self.apply(edits)

    def apply(self, edits):
        """As a runtime does."""
        for variable in edits.get("env", []):
            key, _, value = variable.partition("=")
            self.environment[key] = value
        for entry in edits.get("mounts", []):
            flags = 0
            for option in entry["options"]:
                flags |= FLAGS[option]
            target = mount_point(self.root, entry["containerPath"],
                                 os.path.isdir(entry["hostPath"]))
            mount(entry["hostPath"], target, None, flags & (MS_BIND | MS_REC))
            mount(None, target, None, flags & ~MS_REC | MS_REMOUNT)
            node = entry["containerPath"].startswith("/dev/infiniband/")
            require(stat.S_ISCHR(os.stat(target).st_mode) == node, f"{entry} isn't what it should be")
            if node:
                os.close(os.open(target, os.O_RDWR))

    def start(self, *command):
        """Starts a program in the container."""
        return self.stage.start(
            "env", "-i", *(f"{name}={value}" for name, value in self.environment.items()),
            shutil.which("chroot"), self.root, *command, plain=True, preload=False)

    def run(self, *command):
        """Runs one to its end; returns its output."""
        return self.start(*command).expect(20 * SLOW)

    def close(self):
        """Unmounts everything."""
        call("umount2", self.root.encode(), MNT_DETACH)


# Cases ------------------------------------------------------------------------------------------

def rules(stage):
    """The specification keeps them, names the daemon's devices, and its files are there."""
    specification = specification_of(stage)
    check(specification)
    require(specification["kind"] == "verbena.dev/rdma", specification["kind"])
    names = [device["name"] for device in specification["devices"]]
    require(names == ["own", "verbena0"], f"{names}")
    files = [entry for entry in specification["containerEdits"]["mounts"]]
    for entry in files:
        require(os.path.isfile(entry["hostPath"]) and "ro" in entry["options"], f"{entry}")
    require(not [entry for entry in files if "/libc.so" in entry["containerPath"]],
            "the C library isn't left to the image")
    for device in specification["devices"]:
        paths = [entry["containerPath"] for entry in device["containerEdits"]["mounts"]]
        require({"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"} <= set(paths), f"{paths}")
        # A runtime without root can't make them; Podman takes the host's node of the same path.
        require("deviceNodes" not in device["containerEdits"], f"{device['name']} wants nodes made")


def broken_rules():
    """Each rule finds the file that breaks it."""
    good = {"cdiVersion": "0.5.0", "kind": "a.b/c", "containerEdits": {},
            "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}
    check(good)
    device = good["devices"][0]
    for change in ({"kind": "c"}, {"kind": "a.b/c/d"}, {"kind": "-a/c"}, {"kind": "a.b/c-"},
                   {"kind": None}, {"more": 1}, {"devices": []}, {"devices": [device, device]},
                   {"devices": [{**device, "name": "_x"}]}, {"devices": [{**device, "name": "x y"}]},
                   {"devices": [{"name": "x"}]}, {"containerEdits": {"env": ["A"]}},
                   {"containerEdits": {"mounts": [{"hostPath": "/x"}]}},
                   {"containerEdits": {"mounts": [{"hostPath": "/x", "containerPath": "y"}]}},
                   {"containerEdits": {"deviceNodes": [{"path": "/x", "permissions": "x"}]}},
                   {"containerEdits": {"deviceNodes": [{"path": "/x", "major": "1"}]}}):
        try:
            check({**good, **change})
        except Exception as failure:  # pylint: disable=broad-except
            require(type(failure).__name__ == "Failure", f"{change}: {failure!r}")
        else:
            require(False, f"{change} is taken for good")


def output(stage):
    """A file is written whole, readable for all; `-` is standard output; a wrong place is said."""
    path = os.path.join(stage.directory, "verbena.json")
    require(stage.run(VERBENA, "cdi", "--output", path, plain=True, preload=False) == "", "it talks")
    with open(path, encoding="ascii") as file:
        check(json.load(file))
    require(os.stat(path).st_mode & 0o777 == 0o644, "another mode")
    require([name for name in os.listdir(stage.directory) if name.startswith("verbena.json")] ==
            ["verbena.json"], "a file was left beside it")
    check(specification_of(stage, "-o", "-"))
    text = stage.run(VERBENA, "cdi", "-o", "/nowhere/x.json", plain=True, preload=False, status=1)
    require("cannot write /nowhere/x.json" in text, tail(text))


def by_name(stage):
    """The command starts a daemon when PATH has led to it, too: argv[0] has no directory then."""
    stage.run(VERBENA, "stop", plain=True, preload=False)
    text = stage.run("env", f"PATH={os.path.dirname(VERBENA)}:{os.environ['PATH']}", "verbena",
                     "cdi", plain=True, preload=False)
    check(json.loads(text))


def pair(server, client, host_words, wanted_at):
    """A pingpong; `server` and `client`: functions that start a program."""
    port = PORTS.take()
    words = ["-g", "0", "-n", "200", "-p", str(port)]
    one = server("ibv_rc_pingpong", *words)
    poll_until(lambda: not one.running() or port_listened(port, one.pid), 20)
    require(one.running(), tail(one.output()))
    two = client("ibv_rc_pingpong", *words, *host_words)
    for process in (two, one):
        text = process.expect(30 * SLOW)
        require("200 iters" in text, tail(text))
    require(wanted_at(), "another daemon served it")


def own_daemon(stage, specification):
    """Device `own`: the container's programs start a daemon there."""
    container = Container(stage, specification, "own")
    try:
        require("verbena0" in container.run("ibv_devices"), "there is no device")
        pair(container.start, container.start, ["127.0.0.1"],
             lambda: [name for name in os.listdir(container.root + "/tmp")
                      if name.startswith("verbena-")])
        require("verbena0" in container.run("verbena", "status"), "the command doesn't work")
        container.run("verbena", "stop")
    finally:
        container.close()


def host_daemon(stage, specification):
    """Device `verbena0`: a program in the container and one outside, by the host's daemon."""
    stage.run("ibv_devices")
    container = Container(stage, specification, "verbena0")
    try:
        before = stage.status()["pid"]
        pair(container.start, stage.start, ["127.0.0.1"],
             lambda: stage.status()["pid"] == before and not os.listdir(container.root + "/tmp"))
    finally:
        container.close()


def main():
    """All cases."""
    need_programs(*PROGRAMS, "ip", "ldd", "chroot", "unshare")
    if SANITIZE:
        print("skipped: an image has no sanitizer's run time")
        sys.exit(SKIPPED)
    own_network()
    call("unshare", CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    suite = Suite("cdi")
    stage = Stage(idle_ms=3000)
    suite.case("rules", rules, stage)
    suite.case("rules find what breaks them", broken_rules)
    suite.case("by name", by_name, stage)
    suite.case("output", output, stage)
    specification = specification_of(stage)
    suite.case("a daemon of the container's own", own_daemon, stage, specification)
    suite.case("the host's daemon", host_daemon, stage, specification)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    main()
