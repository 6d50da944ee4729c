#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""/sys/class/infiniband and /dev/infiniband as programs of `verbena run` see them: what is in them
is what the device says, everything else is as it was, and where it can't be had that is said once.

usage: sysfs.py [WORD...]
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

from lib import (PORTS, SANITIZE, SKIPPED, SLOW, VERBENA, Stage, Suite, need_programs,
                 poll_until, port_listened, require, tail)
from network import Host, may_make_networks
from users import Machine

DEVICE = "/sys/class/infiniband/verbena0"
NOBODY = 65534
WARNING = "private mount namespace"


def read(stage, *paths, **options):
    """Files as a program sees them, one line each."""
    return stage.run("cat", *(f"{DEVICE}/{path}" for path in paths), **options).splitlines()


def gid_words(text):
    """A GID as sysfs writes it: colons between groups of four digits, nothing left out."""
    return re.fullmatch(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}", text)


def facts(stage):
    """The attributes are what the verbs say."""
    text = stage.run("ibv_devinfo", "-v")
    got = read(stage, "node_guid", "sys_image_guid", "fw_ver", "node_type", "ports/1/state",
               "ports/1/link_layer", "ports/1/lid", "ports/1/pkeys/0")
    wanted = [re.search(rf"^\s*{name}:\s+(\S+)", text, re.MULTILINE)[1]
              for name in ("node_guid", "sys_image_guid", "fw_ver")]
    state = re.search(r"state:\s+PORT_(\w+) \((\d)\)", text)
    wanted += ["1: CA", f"{state[2]}: {state[1]}", "Ethernet", "0x0", "0xffff"]
    require(got == wanted, f"{got} isn't {wanted}")


def said_gids(stage):
    """Index -> GID, as the verbs say."""
    text = stage.run("ibv_devinfo", "-v")
    return {int(index): gid for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s+([0-9a-f:.]+)", text)}


def gids(stage):
    """All 128 are there, those that the device has are the same, and only those have a type."""
    said = said_gids(stage)
    lines = read(stage, *(f"ports/1/gids/{index}" for index in range(128)))
    for index, line in enumerate(lines):
        require(gid_words(line), f"GID {index} is written {line!r}")
        wanted = socket.inet_pton(socket.AF_INET6, said.get(index, "::"))
        require(socket.inet_pton(socket.AF_INET6, line) == wanted,
                f"GID {index} is {line}, not {said.get(index)}")
    typed = stage.run("ls", f"{DEVICE}/ports/1/gid_attrs/types").split()
    require(sorted(map(int, typed)) == sorted(said), f"types of {typed}, GIDs {sorted(said)}")
    require(set(read(stage, *(f"ports/1/gid_attrs/types/{index}" for index in said))) ==
            {"RoCE v2"}, "another type")


@contextlib.contextmanager
def daemon_kept(stage):
    """The daemon doesn't leave meanwhile, however long the machine takes."""
    watch = stage.start("ibv_asyncwatch")
    try:
        require(poll_until(stage.clients, 60), "no client")
        yield
    finally:
        watch.kill()
        watch.wait(20 * SLOW)


def interface(stage):
    """The device's interface, by its name in device/net, is the one that the daemon goes by."""
    with daemon_kept(stage):
        wanted = stage.status()["devices"][0]["interfaces"]
    require(stage.run("ls", f"{DEVICE}/device/net").split() == wanted, f"not {wanted}")
    name = wanted[0]
    index, = read(stage, f"device/net/{name}/ifindex")
    with stage.inside() if isinstance(stage, Host) else contextlib.nullcontext():
        require(int(index) == socket.if_nametoindex(name), f"ifindex {index}")


def nodes(stage):
    """infiniband_verbs leads to the device."""
    base = "/sys/class/infiniband_verbs"
    text = stage.run("cat", f"{base}/uverbs0/ibdev", f"{base}/abi_version")
    require(text.split() == ["verbena0", "6"], f"{text!r}")
    require(stage.run("ls", f"{base}/uverbs0/device/net") ==
            stage.run("ls", f"{DEVICE}/device/net"), "it leads elsewhere")


# One line for each: whether it is a character device, the device's number, its mode, its name.
LISTING = "for name in {}; do test ! -c $name || stat -c '%t:%T %a %n' $name; done"


def device_nodes(stage):
    """Each is a character device that may be read and written, and takes no command."""
    listing = stage.run("sh", "-c", LISTING.format("/dev/infiniband/*")).splitlines()
    require([line.split()[-1] for line in listing] ==
            ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"], f"there is {listing}")
    for name in ("rdma_cm", "uverbs0"):
        path = f"/dev/infiniband/{name}"
        stage.run("sh", "-c", f"test -r {path} && test -w {path} && : <>{path}")
        stage.run("sh", "-c", f"! printf command >{path}")


def other_nodes(stage):
    """/dev has everything that it has outside, the same; outside, nothing is new."""
    def listing():
        names = sorted(os.listdir("/dev"))
        return names, [(status.st_rdev, status.st_mode, status.st_ino)
                       for status in (os.stat(f"/dev/{name}", follow_symlinks=False)
                                      for name in names)]
    before, _ = listing()
    seen = stage.run("ls", "-A", "/dev").split()
    require(sorted(set(before) | {"infiniband"}) == sorted(seen), f"{seen} isn't {before}")
    devices = [f"/dev/{name}" for name in before if not os.path.islink(f"/dev/{name}")]
    command = ["stat", "-c", "%t:%T %f %i %n", *devices]
    require(stage.run(*command) == stage.run(*command, plain=True), "another device")
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        text = mounts.read()
    stage.run("sh", "-c", "echo gone >/dev/null; head -c 9 /dev/urandom | wc -c | grep -qx 9; "
              "exec </dev/zero; test $(head -c 3 | wc -c) = 3")
    require(listing()[0] == before, "/dev has changed outside")
    with open("/proc/self/mounts", encoding="utf-8") as after:
        require(after.read() == text, "there are mounts outside")


def terminal(stage):
    """A program on a terminal knows it by its name."""
    text = stage.run("script", "-q", "-c", f"{VERBENA} run tty", "/dev/null", plain=True)
    require(re.fullmatch(r"/dev/(pts/\d+|console)", text.strip()), f"its terminal is {text!r}")


def shared_memory(stage):
    """/dev/shm is the host's."""
    name = f"/dev/shm/verbena-{os.getpid()}"
    try:
        stage.run("sh", "-c", f"echo hello >{name}")
        with open(name, encoding="ascii") as file:
            require(file.read() == "hello\n", "not the same")
    finally:
        os.unlink(name)


def own_dev(stage, script):
    """What a program of `verbena run` shows, with a /dev that a script has made."""
    words = ["unshare", "-m", "sh", "-ec", "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; "
             + script + f"; exec {VERBENA} run sh -c \"$0\"",
             LISTING.format("/dev/infiniband/*")]
    return stage.run(*words, plain=True).splitlines()


def nodes_beside_others(stage):
    """The host's own nodes stay, but for one of the same name."""
    seen = own_dev(stage, "mknod -m 666 /dev/full c 1 7; mkdir /dev/infiniband; "
                   "mknod -m 600 /dev/infiniband/uverbs0 c 1 5; "
                   "mknod -m 640 /dev/infiniband/uverbs7 c 1 8")
    require(seen == ["1:7 666 /dev/infiniband/rdma_cm", "1:7 666 /dev/infiniband/uverbs0",
                     "1:8 640 /dev/infiniband/uverbs7"], f"{seen}")


def nodes_in_small_dev(stage):
    """A /dev with nothing but null; one without that as well gets a warning."""
    seen = own_dev(stage, "true")
    require(seen == ["1:3 666 /dev/infiniband/rdma_cm", "1:3 666 /dev/infiniband/uverbs0"],
            f"{seen}")
    with daemon_kept(stage):  # without /dev/null none can be started
        seen = own_dev(stage, "chmod 400 /dev/null; rm /dev/null")
    require(len([line for line in seen if WARNING in line]) == 1 and
            not [line for line in seen if line.endswith("uverbs0")], f"{seen}")


def rest(stage):
    """The other classes are the host's; here, outside, nothing has changed."""
    before = sorted(os.listdir("/sys/class"))
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        text = mounts.read()
    seen = stage.run("ls", "/sys/class").split()
    require(sorted(set(before) | {"infiniband", "infiniband_verbs"}) == sorted(seen),
            f"{seen} isn't {before} with ours")
    for name in ("net", "mem"):
        if name in before:
            require(sorted(stage.run("ls", f"/sys/class/{name}").split()) ==
                    sorted(os.listdir(f"/sys/class/{name}")), f"/sys/class/{name} is another")
    require(sorted(os.listdir("/sys/class")) == before, "/sys/class has changed outside")
    with open("/proc/self/mounts", encoding="utf-8") as after:
        require(after.read() == text, "there are mounts outside")


def same_process(stage):
    """`verbena run` becomes the program: its pid, its status, its signals; its files are there."""
    process = stage.start("sh", "-c", "echo $$; exit 7")
    require(process.wait(20 * SLOW) == 7 and process.output() == f"{process.pid}\n",
            f"pid {process.pid} printed {process.output()!r}")
    process = stage.start("sh", "-c", "kill -TERM $$")
    require(process.wait(20 * SLOW) == -signal.SIGTERM, "not ended by its signal")
    path = os.path.join(stage.directory, "made")
    stage.run("sh", "-c", f"echo hello > {path}; id -u > {path}.id; id -g >> {path}.id")
    with open(path, encoding="ascii") as file:
        require(file.read() == "hello\n", "the file isn't there")
    with open(path + ".id", encoding="ascii") as file:
        require(file.read().split() == [str(os.geteuid()), str(os.getegid())], "another user")
    status = os.stat(path)
    require((status.st_uid, status.st_gid) == (os.geteuid(), os.getegid()), "another's file")


def mounts_show(stage):
    """What a program of root's mounts is mounted for all, as without `verbena run`."""
    target = os.path.join(stage.directory, "mounted")
    os.mkdir(target)
    shared = stage.start("findmnt", "-n", "-o", "PROPAGATION", "-T", target, plain=True)
    if shared.wait(20) or "shared" not in shared.output():
        return
    stage.run("mount", "-t", "tmpfs", "none", target)
    there = os.path.ismount(target)
    stage.start("umount", target, plain=True).wait(20)
    require(there, "the mount doesn't show outside")


def twice(stage):
    """One within another: nothing is said, everything is there."""
    process = stage.start(VERBENA, "run", "cat", f"{DEVICE}/node_type")
    require(process.wait(20 * SLOW) == 0 and process.output() == "1: CA\n",
            f"not the same:\n{tail(process.output())}")
    process = stage.start(VERBENA, "run", "test", "-c", "/dev/infiniband/uverbs0")
    require(process.wait(20 * SLOW) == 0 and not process.output(), tail(process.output()))


def may_be_nobody():
    """Not so for root of a user namespace, where own-network puts an ordinary user."""
    return bool(os.geteuid() == 0 and shutil.which("setpriv") and not subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "true"],
        stderr=subprocess.DEVNULL, check=False).returncode)


# Users that may not mount -----------------------------------------------------------------------

class Nobodys(Stage):
    """A Stage whose programs are the user nobody's."""

    def __init__(self):
        super().__init__()
        for path in (self.directory, self.runtime):
            os.chown(path, NOBODY, NOBODY)

    def start(self, *command, plain=False, **options):
        """Stage.start; `verbena run` itself is the user's too."""
        words = list(command) if plain else [VERBENA, "run", "--", *command]
        return super().start("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                             *words, plain=True, **options)


class ServedNobodys(Nobodys, Machine):
    """The same with root's daemon."""

    def __init__(self):  # pylint: disable=super-init-not-called
        Machine.__init__(self)
        os.chmod(self.directory, 0o777)
        self.serve()


def ordinary_user(stage):
    """In a user namespace: the user is who it was, and has no more rights."""
    text = stage.run("sh", "-c", "id -u; id -g; grep -h CapEff /proc/self/status")
    require(text.split() == [str(NOBODY), str(NOBODY), "CapEff:", "0" * 16], text)
    path = os.path.join(stage.directory, "made")
    stage.run("touch", path)
    require(os.stat(path).st_uid == NOBODY, "another's file")


def one_user_space(stage, attached):
    """All programs of a user are in one user namespace while one lives, so that they may reach each
    other's memory; data between them is right. attached: the one that lives is the daemon's client."""
    port = PORTS.take()
    living = f"ibv_rc_pingpong -g 0 -p {port}" if attached else "sleep 60"
    first = stage.start("sh", "-c", f"readlink /proc/self/ns/user; exec {living}")
    try:
        poll_until(lambda: port_listened(port) if attached else first.output(), 10)
        spaces = {first.output().splitlines(keepends=True)[0]}
        for _ in range(3):
            spaces.add(stage.run("readlink", "/proc/self/ns/user"))
        require(len(spaces) == 1, f"several: {spaces}")
        require(os.readlink("/proc/self/ns/user") + "\n" not in spaces, "it's our own")
        port = PORTS.take()
        words = ["ibv_rc_pingpong", "-g", "0", "-c", "-s", "65536", "-n", "200", "-p", port]
        for text in stage.pair(words, words + ["127.0.0.1"], port):
            require("200 iters" in text, f"no result\n{tail(text)}")
    finally:
        first.kill()


def no_real_right(stage):
    """Who is root in a user namespace of its own only is held to RLIMIT_MEMLOCK all the same."""
    words = ["ibv_rc_pingpong", "-g", "0", "-s", 4 * 1024 * 1024, "-p", PORTS.take()]
    process = stage.start("prlimit", "--memlock=65536:65536", "unshare", "-U", "--map-root-user",
                          *words, environment={"VERBENA_MEMLOCK": "on"})
    status = process.wait(20 * SLOW)
    require(status > 0 and "register MR" in process.output(),
            f"it ended with {status}\n{tail(process.output())}")


def more_than_may_be_locked(stage):
    """Nothing is locked, so a program of `verbena run` may register more than RLIMIT_MEMLOCK."""
    port = PORTS.take()
    words = ["prlimit", "--memlock=65536:65536", "ibv_rc_pingpong", "-g", "0", "-c", "-s",
             4 * 1024 * 1024, "-n", "10", "-p", port]
    for text in stage.pair(words, words + ["127.0.0.1"], port):
        require("10 iters" in text, f"no result\n{tail(text)}")


# Where it may not -------------------------------------------------------------------------------

def forbidden(stage, nested=()):
    """Without the right to mount: one warning, and the program runs."""
    process = stage.start("setpriv", "--bounding-set=-sys_admin", VERBENA, "run", *nested, "sh",
                          "-c", "ls -d /sys/class/infiniband /dev/infiniband; echo done", plain=True)
    status, text = process.wait(20 * SLOW), process.output()
    require(status == 0 and "\ndone\n" in f"\n{text}", f"it ended with {status}\n{tail(text)}")
    if not os.path.exists(DEVICE):
        require(text.count(WARNING) == 1, f"not one warning\n{tail(text)}")


def switched_off(stage):
    """Nothing is made and nothing said."""
    space = os.readlink("/proc/self/ns/mnt")
    for words, environment in ((["--no-sysfs"], {}), ([], {"VERBENA_SYSFS": "off"})):
        process = stage.start(VERBENA, "run", *words, "readlink", "/proc/self/ns/mnt", plain=True,
                              environment=environment)
        require(process.wait(20 * SLOW) == 0 and process.output() == space + "\n",
                f"{words} {environment}: {tail(process.output())}")


# ------------------------------------------------------------------------------------------------

def own_host(suite):
    """In a network namespace: the interface is that one's, and a new address is there at once."""
    may_make_networks()
    host = Host(1)
    host.ip("link add eth0 type veth peer name far0", "link set far0 up")
    host.up()

    def new_address():
        host.ip("address add 10.9.9.77/24 dev eth0")
        # The daemon is told by the kernel, a moment later.
        require(poll_until(lambda: "ffff:0a09:094d" in host.run("sh", "-c",
                                                                f"cat {DEVICE}/ports/1/gids/*"),
                           10), "it isn't among the GIDs")
    suite.case("in a network namespace: attributes", facts, host)
    suite.case("in a network namespace: GIDs", gids, host)
    suite.case("in a network namespace: the interface", interface, host)
    suite.case("in a network namespace: a new address", new_address)
    suite.stage_closed(host)


def users(suite):
    """As an ordinary user; needs root to become one."""
    stage = Nobodys()
    process = stage.start("unshare", "-U", VERBENA, "version", plain=True)
    # The thread sanitizer has a thread of its own: the kernel refuses a namespace to two.
    if process.wait(20) or SANITIZE == "thread":
        print("      an ordinary user is left out: no user namespaces, or a thread too many")
    else:
        suite.case("ordinary user: attributes", facts, stage)
        suite.case("ordinary user: GIDs", gids, stage)
        suite.case("ordinary user: the rest", rest, stage)
        suite.case("ordinary user: device nodes", device_nodes, stage)
        suite.case("ordinary user: the rest of /dev", other_nodes, stage)
        suite.case("ordinary user: still the same user", ordinary_user, stage)
        suite.case("ordinary user: programs share a user namespace", one_user_space, stage,
                   False)
        suite.case("ordinary user: one within another", twice, stage)
        suite.case("ordinary user: more than may be locked", more_than_may_be_locked, stage)
        suite.case("ordinary user: rights in a user namespace are none", no_real_right, stage)
        root_serves(suite)
    suite.stage_closed(stage)


def root_serves(suite):
    """Programs of an ordinary user with root's daemon, whose directory isn't root's to see there."""
    stage = ServedNobodys()
    suite.case("root's daemon: attributes", facts, stage)
    suite.case("root's daemon: the rest", rest, stage)
    suite.case("root's daemon: programs share a user namespace", one_user_space, stage, True)
    suite.stage_closed(stage)


def main():
    """All cases."""
    if SANITIZE == "thread":
        print("a shell doesn't run with the thread sanitizer's run time in it")
        sys.exit(SKIPPED)
    need_programs("ibv_asyncwatch", "ibv_devinfo", "setpriv", "unshare", "prlimit", "findmnt",
                  "script")
    stage = Stage()
    if stage.start("test", "-d", DEVICE).wait(20 * SLOW):
        stage.close()
        print("no mount namespace of one's own can be had here")
        sys.exit(SKIPPED)
    suite = Suite("sysfs")
    for name, function in (("attributes", facts), ("GIDs", gids), ("the interface", interface),
                           ("infiniband_verbs", nodes), ("the rest", rest),
                           ("device nodes", device_nodes), ("the rest of /dev", other_nodes),
                           ("terminal", terminal), ("shared memory", shared_memory),
                           ("the same process", same_process), ("one within another", twice),
                           ("switched off", switched_off)):
        suite.case(name, function, stage)
    if os.geteuid() == 0:
        suite.case("mounts show", mounts_show, stage)
        suite.case("device nodes beside the host's", nodes_beside_others, stage)
        suite.case("device nodes in a small /dev", nodes_in_small_dev, stage)
        suite.case("forbidden", forbidden, stage)
        suite.case("forbidden, one within another", forbidden, stage, [VERBENA, "run"])
    suite.stage_closed(stage)
    own_host(suite)
    if may_be_nobody():
        users(suite)
    suite.end()


if __name__ == "__main__":
    main()
