# SPDX-License-Identifier: BSD-2-Clause
"""Networks of their own for the tests: namespaces, cables between them, and what runs there.

own_network() moves this script into a network namespace of its own, so that what it starts has port
4791 for itself. TwoHosts is two more namespaces, each with a Stage of its own, joined by a veth
pair or by tests/net/relay, a cable with faults. A namespace lives as long as the processes in it:
one that sleeps for each Host, ended by close(), and by the kernel when this script dies.

Needs root, or a user namespace that one may make (then everything runs as root in that). Where
neither can be had the test is skipped, with a sentence.
"""
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys

from lib import (BUILD, LIBC, SKIPPED, SLOW, Failure, Stage, die_with_parent, poll_until, require)

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
RELAY = os.path.join(BUILD, "tests", "net", "relay")
MTU = 4200  # of the interfaces: IB MTU 4096 and all headers fit


def call(name, *arguments):
    """A function of the C library; OSError when it returns -1."""
    if getattr(LIBC, name)(*arguments) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def skip(why):
    """Ends the test as skipped."""
    print(why)
    sys.exit(SKIPPED)


def take_network_rights():
    """Gets the rights for everything in here; returns why they can't be had, or ""."""
    with open("/proc/self/status", encoding="ascii") as file:
        rights = int(re.search(r"CapEff:\s*(\w+)", file.read())[1], 16)
    net_admin, sys_admin = 12, 21
    if rights >> net_admin & rights >> sys_admin & 1:
        return ""
    uid, gid = os.geteuid(), os.getegid()
    try:
        call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    except OSError as error:
        return f"needs network namespaces: root, or user namespaces for everybody ({error})"
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return ""


def may_make_networks():
    """take_network_rights(); ends the test as skipped where they can't be had."""
    why = take_network_rights()
    if why:
        skip(why)


def ip(*lines):
    """Commands of ip(8) in this namespace, one a line."""
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True,
                          capture_output=True, check=False, timeout=20)
    require(done.returncode == 0, f"ip failed: {done.stderr.strip()}, asked for {lines}")


def setting(path, value):
    """Writes a setting of this namespace's kernel; containers may forbid it."""
    with contextlib.suppress(OSError), open("/proc/sys/net/" + path, "w", encoding="ascii") as file:
        file.write(str(value))


def addresses_ready():
    """Waits until no IPv6 address is being tried any more: until then nothing can be sent."""
    def tentative():
        done = subprocess.run(["ip", "-6", "address", "show", "tentative"], check=True, text=True,
                              capture_output=True, timeout=20)
        return "inet6" in done.stdout
    require(poll_until(lambda: not tentative(), 10), "IPv6 addresses stay tentative")


def interface_up(name, *addresses, mtu=MTU):
    """Loopback and an interface with its addresses, ready to use. Its queue is as long as a card's:
    a longer one makes round trips of a second when many QPs fill it."""
    for family in ("default", name):
        setting(f"ipv6/conf/{family}/accept_dad", 0)
        setting(f"ipv6/conf/{family}/router_solicitations", 0)
    ip("link set lo up", f"link set {name} mtu {mtu} txqueuelen 1000 up",
       *(f"address add {address} dev {name}" + (" nodad" if ":" in address else "")
         for address in addresses))
    addresses_ready()


def own_network(mtu=MTU):
    """From now on this script, and what it starts, is alone in a network with one card, eth0."""
    may_make_networks()
    try:
        call("unshare", CLONE_NEWNET)
        ip("link add far0 type veth peer name eth0 address 02:00:0a:09:09:01")
    except (OSError, Failure) as error:
        skip(f"no network of its own can be made here: {error}")
    setting("ipv6/conf/far0/disable_ipv6", 1)
    ip(f"link set far0 mtu {mtu} up")
    interface_up("eth0", "10.9.9.1/24", mtu=mtu)


@contextlib.contextmanager
def inside(space):
    """What happens meanwhile, and what is started, does so in another network namespace."""
    if space is None:
        yield
        return
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("setns", space, CLONE_NEWNET)
        try:
            yield
        finally:
            call("setns", home, CLONE_NEWNET)
    finally:
        os.close(home)


def gid_index(text, wanted):
    """The index of a GID in what `ibv_devinfo -v` prints."""
    for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s+([0-9a-f:.]+)", text):
        if socket.inet_pton(socket.AF_INET6, gid) == socket.inet_pton(socket.AF_INET6, wanted):
            return int(index)
    raise Failure(f"{wanted} is none of the GIDs:\n{text}")


class Elsewhere(Stage):
    """A Stage whose programs run in another network namespace, given by its file."""

    def __init__(self, path, idle_ms=500, **environment):
        self.space = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        super().__init__(idle_ms, **environment)

    def inside(self):
        """See inside()."""
        return inside(self.space)

    def start(self, *command, **options):
        """Stage.start, in that network."""
        with self.inside():
            return super().start(*command, **options)

    def ip(self, *lines):
        """Commands of ip(8) there."""
        with self.inside():
            ip(*lines)

    def close(self):
        """Stage.close."""
        trouble = super().close()
        os.close(self.space)
        return trouble


class Host(Elsewhere):
    """A network namespace of its own, with a card eth0 once there is a cable."""

    def __init__(self, number, idle_ms=500, **environment):
        self.number = number
        self.addresses = {"ipv4": f"10.9.9.{number}", "ipv6": f"fd09:9::{number}"}

        def new_network():
            die_with_parent()
            call("unshare", CLONE_NEWNET)
        # Popen returns after exec, so the namespace exists then.
        self.holder = subprocess.Popen(["sleep", "infinity"], preexec_fn=new_network)
        super().__init__(f"/proc/{self.holder.pid}/ns/net", idle_ms, **environment)

    def up(self, mtu=MTU):
        """Its card gets addresses and works."""
        with self.inside():
            setting("ipv6/conf/default/keep_addr_on_down", 1)
            setting("ipv6/conf/eth0/keep_addr_on_down", 1)
            interface_up("eth0", self.addresses["ipv4"] + "/24", self.addresses["ipv6"] + "/64",
                         mtu=mtu)

    def gid_index(self, family):
        """The index of the GID that is made of the card's address: ipv4, ipv6, or link (0)."""
        if family == "link":
            return 0
        wanted = {"ipv4": "::ffff:", "ipv6": ""}[family] + self.addresses[family]
        return gid_index(self.run("ibv_devinfo", "-v"), wanted)

    def close(self):
        """Stage.close, and the namespace goes, with the cable's end in it."""
        trouble = super().close()
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        return trouble


class Relay:
    """A running tests/net/relay: the cable with faults between two places (see tap.h)."""

    def __init__(self, one, two, *options):
        words = [RELAY, *[str(word) for word in options], one, two]
        self.popen = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, bufsize=1,
                                      preexec_fn=die_with_parent)
        if self.popen.stdout.readline() != "ready\n":
            text = self.popen.stderr.read().strip()
            if self.popen.wait() == SKIPPED:
                skip(f"no cable with faults can be made here: {text}")
            raise Failure(f"the relay gave {self.popen.returncode}: {text}")

    def tell(self, *commands):
        """Commands (see relay.c), each of which must be accepted."""
        for command in commands:
            print(command, file=self.popen.stdin, flush=True)
            answer = self.popen.stdout.readline()
            require(answer == "ok\n", f"the relay answers {answer!r} to {command!r}")

    def counters(self):
        """What has happened so far, for each direction: from-a, from-b."""
        print("counters", file=self.popen.stdin, flush=True)
        return json.loads(self.popen.stdout.readline())

    def happened(self, name):
        """One counter, of both directions together."""
        counters = self.counters()
        return sum(counters[direction][name] for direction in ("from-a", "from-b"))

    def close(self):
        """Ends it; returns its last counters."""
        out, text = self.popen.communicate(timeout=20 * SLOW)
        require(self.popen.returncode == 0, f"the relay gave {self.popen.returncode}: {text}")
        return json.loads(out.strip().split("\n")[-1])


class TwoHosts:
    """Two hosts on one cable. Servers run on the first, clients on the second; what takes a Stage
    for a pair takes this as well (host: the server's name for the client; gid: the index). With
    verbs=False no daemon is asked anything: port 4791 is free."""

    def __init__(self, *faults, relay=False, verbs=True, mtu=MTU, idle_ms=500, **environment):
        may_make_networks()
        self.relay = None
        self.hosts = []
        try:
            for number in (1, 2):
                self.hosts.append(Host(number, idle_ms, **environment))
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            skip(f"no network namespace can be made here: {error}")
        self.server, self.client = self.hosts
        if relay or faults:
            self.relay = Relay(*(f"{host.holder.pid}:eth0" for host in self.hosts), *faults)
            for host in self.hosts:
                host.ip(f"link set eth0 address 02:00:0a:09:09:0{host.number}")
        else:
            pids = [host.holder.pid for host in self.hosts]
            ip(f"link add eth0 address 02:00:0a:09:09:01 netns {pids[0]} type veth peer "
               f"name eth0 address 02:00:0a:09:09:02 netns {pids[1]}")
        for host in self.hosts:
            host.up(mtu)
        # The programs' own connection (TCP) is over IPv4 in any case.
        self.host = self.server.addresses["ipv4"]
        if verbs:
            self.use("ipv4")

    def use(self, family):
        """Which GIDs pairs use from now on: ipv4, ipv6, or link (index 0)."""
        indices = [host.gid_index(family) for host in self.hosts]
        require(indices[0] == indices[1], f"the GIDs' indices differ: {indices}")
        self.gid = indices[0]

    def start_pair(self, server, client, port, seconds=20):
        """Stage.start_pair: the server on the first host, the client on the second."""
        return self.server.start_pair(server, client, port, seconds, at=self.client)

    def finish_pair(self, one, two, seconds=20):
        """Stage.finish_pair."""
        return self.server.finish_pair(one, two, seconds)

    def pair(self, server, client, port, seconds=20):
        """Stage.pair."""
        return self.finish_pair(*self.start_pair(server, client, port, seconds), seconds)

    def expect_no_clients(self, seconds=5):
        """Stage.expect_no_clients, of both hosts."""
        for host in self.hosts:
            host.expect_no_clients(seconds)

    @property
    def directory(self):
        """Of the first host, while anything is left of it."""
        return next((host.directory for host in self.hosts if os.path.isdir(host.directory)), "")

    def close(self):
        """Ends everything; returns what stayed behind."""
        trouble = [text for text in (host.close() for host in self.hosts) if text]
        if self.relay:
            self.relay.close()
            self.relay = None
        self.hosts = []
        return "\n".join(trouble)
