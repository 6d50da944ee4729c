#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every rule by which programs choose a device and a GID finds one that the other host can reach.

Two hosts (network namespaces) with networks of many kinds; gid_rule.c has the rules. Each delivers
a message, whatever else the host has: a bridge for containers with the same address on both hosts,
several cards, no IPv4, no IPv6, a card that comes later, none at all.
"""
import contextlib
import os
import subprocess
import sys

from lib import (BUILD, PORTS, SLOW, Failure, Suite, need_programs, poll_until, require, tail)
from network import Host, addresses_ready, inside, ip, may_make_networks, setting, skip

GID_RULE = os.path.join(BUILD, "tests", "e2e", "gid_rule")
RULES = ("first", "last", "v4", "ranked")
V4, V6 = "10.77.{net}.{host}/24", "fd77:{net}::{host}/64"


def is_ready(name):
    """Whether an interface of this namespace has a carrier, and the kernel's addresses."""
    def shown(*words):
        return subprocess.run(["ip", *words, "show", "dev", name], check=True, text=True, timeout=20,
                              capture_output=True).stdout

    with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", encoding="ascii") as file:
        without = file.read().strip() == "1"
    return "state UP" in shown("link") and (without or "fe80::" in shown("-6", "address"))


class Pair:
    """Two hosts without a network; cables are added by cable()."""

    def __init__(self, **environment):
        may_make_networks()
        self.hosts = []
        try:
            for number in (1, 2):
                self.hosts.append(Host(number, **environment))
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            skip(f"no network namespace can be made here: {error}")
        for host in self.hosts:
            host.ip("link set lo up")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def cable(self, name, net, *forms, index=None):
        """A cable with an interface `name` at both hosts, up, with addresses of these forms."""
        pids = [host.holder.pid for host in self.hosts]
        at = f" index {index}" if index else ""
        ip(f"link add name {name}{at} netns {pids[0]} type veth peer name {name}{at} netns {pids[1]}")
        for host in self.hosts:
            with host.inside():
                setting(f"ipv6/conf/{name}/accept_dad", 0)
                if not any(":" in form for form in forms):
                    setting(f"ipv6/conf/{name}/disable_ipv6", 1)
            host.ip(*(f"address add {address} dev {name}" + (" nodad" if ":" in address else "")
                      for address in self.addresses(host, net, forms)), f"link set {name} up")
        self.settle(name)

    @staticmethod
    def addresses(host, net, forms):
        """The addresses of a host on a network."""
        return [form.format(net=net, host=host.number) for form in forms]

    def settle(self, *names):
        """Waits until all addresses may be used, and these interfaces have a carrier and, with
        IPv6, a link-local address: the kernel reports a carrier up to a second late."""
        for host in self.hosts:
            with inside(host.space):
                for name in names:
                    require(poll_until(lambda name=name: is_ready(name), 10), f"{name} isn't up")
                addresses_ready()

    def both(self, *lines):
        """Commands of ip(8) on both hosts."""
        for host in self.hosts:
            host.ip(*lines)

    def deliver(self, rule, to, device=0, of_client=None):
        """One message by this rule, between devices at this position (of_client: the client's)."""
        port = PORTS.take()
        server, client = self.hosts
        one, two = server.start_pair(
            [GID_RULE, device, rule, port],
            [GID_RULE, device if of_client is None else of_client, rule, port, to], port, at=client)
        outputs = server.finish_pair(one, two)
        require(all("arrived" in text for text in outputs), f"{rule}: {outputs}")
        return [text.split()[0] for text in outputs]

    def all_rules(self, to, devices=(0,)):
        """Each rule, for each of these devices."""
        for device in devices:
            for rule in RULES:
                try:
                    self.deliver(rule, to, device)
                except Failure as error:
                    raise Failure(f"device {device}, rule {rule}: {error}\n{self.tables()}") from error

    def tables(self):
        """What the hosts' devices are, for messages."""
        return "\n".join(str(self.devices(number)) for number in range(len(self.hosts)))

    def devices(self, host=0):
        """[(name, interfaces, GIDs)] of a host."""
        return [(device["name"], device["interfaces"], [gid["gid"] for gid in device["gids"]])
                for device in (self.hosts[host].status() or self.started(host))["devices"]]

    def started(self, host):
        """The status of a host whose daemon has just been started."""
        self.hosts[host].run("ibv_devices")
        return self.hosts[host].status()

    def close(self):
        """Ends everything."""
        trouble = [text for text in (host.close() for host in self.hosts) if text]
        self.hosts = []
        require(not trouble, "\n".join(trouble))


def docker(pair, index):
    """A bridge as Docker makes it: the same address on each host, a container's cable as its
    port."""
    pair.both(f"link add name dk0 index {index} type bridge", "address add 172.17.0.1/16 dev dk0",
              "link add name vguest type veth peer name vinside", "link set vguest master dk0 up",
              "link set vinside up", "link set dk0 up")
    pair.settle("dk0")


# ---------------------------------------------------------------------- one card

def one_card():
    """IPv4 and IPv6: the table is as Linux makes it."""
    with Pair() as pair:
        pair.cable("eth0", 1, V4, V6)
        pair.all_rules("10.77.1.1")
        devices = pair.devices()
        require([(name, at) for name, at, _ in devices] == [("verbena0", ["eth0"])], f"{devices}")
        gids = devices[0][2]
        require(gids[0].startswith("fe80::") and gids[1:] == ["::ffff:10.77.1.1", "fd77:1::1"],
                f"GIDs {gids}")


def only_ipv4():
    """No IPv6 on the card: entry 0 is an address that it has."""
    with Pair() as pair:
        pair.cable("eth0", 1, V4)
        pair.all_rules("10.77.1.1")
        require(pair.devices()[0][2] == 2 * ["::ffff:10.77.1.1"], f"{pair.devices()}")


def only_ipv6():
    """No IPv4 beside the loopback interface's."""
    with Pair() as pair:
        pair.cable("eth0", 1, V6)
        pair.all_rules("fd77:1::1")


def private_link_local():
    """Link-local addresses that aren't made of the card's address (stable privacy)."""
    with Pair() as pair:
        for host in pair.hosts:
            with host.inside():
                setting("ipv6/conf/default/addr_gen_mode", 3)
        pair.cable("eth0", 1, V4, V6)
        pair.all_rules("10.77.1.1")


def docker_lower():
    """A bridge for containers that was made before the card."""
    with Pair() as pair:
        docker(pair, 10)
        pair.cable("eth0", 1, V4, V6, index=50)
        pair.all_rules("10.77.1.1")
        require(len(pair.devices()) == 1, f"the bridge has a device: {pair.devices()}")


def docker_higher():
    """And one that was made later."""
    with Pair() as pair:
        pair.cable("eth0", 1, V4, V6, index=20)
        docker(pair, 90)
        pair.all_rules("10.77.1.1")
        require(len(pair.devices()) == 1, f"the bridge has a device: {pair.devices()}")


def inner_cable(pair, index):
    """A veth pair within each host, with the same addresses on both."""
    pair.both(f"link add name dk0 index {index} type veth peer name dk1", "link set dk1 up",
              "address add 172.18.0.1/16 dev dk0", "link set dk0 up")
    pair.settle("dk0", "dk1")


def cable_within():
    """A cable with both ends within the host is no way to another."""
    for index in (10, 90):
        with Pair() as pair:
            inner_cable(pair, index)
            pair.cable("eth0", 1, V4, V6, index=50)
            pair.all_rules("10.77.1.1")
            require(len(pair.devices()) == 1, f"the cable has a device: {pair.devices()}")


def docker_without_ipv4():
    """The only IPv4 addresses are the bridge's and the loopback interface's."""
    with Pair() as pair:
        docker(pair, 10)
        pair.cable("eth0", 1, V6, index=50)
        pair.all_rules("fd77:1::1")


# ---------------------------------------------------------------------- above a card

def above(pair, name, kind, net):
    """An interface on the card that has the addresses; False: this kernel has none."""
    for host in pair.hosts:
        try:
            host.ip(f"link add link eth0 name {name} type {kind}")
        except Failure as error:
            print(f"no {kind} here: {error}")
            return False
        host.ip(*(f"address add {address} dev {name}" + (" nodad" if ":" in address else "")
                  for address in pair.addresses(host, net, (V4, V6))), f"link set {name} up")
    pair.settle(name)
    return True


def upper(kind):
    """An interface above the card: its addresses are GIDs of the card's device."""
    with Pair() as pair:
        pair.cable("eth0", 1, V4, V6)
        if not above(pair, "up0", kind, 2):
            return
        pair.all_rules("10.77.2.1")
        devices = pair.devices()
        require(len(devices) == 1 and devices[0][1] == ["eth0"], f"{devices}")
        require("::ffff:10.77.2.1" in devices[0][2], f"the upper's addresses are missing: {devices}")


def bridge():
    """The host's only way out is a bridge."""
    with Pair() as pair:
        pair.both("link add name br0 type bridge")
        pair.cable("eth0", 9, "fd77:99::{host}/64")
        pair.both("address flush dev eth0", "link set eth0 master br0")
        for host in pair.hosts:
            host.ip(*(f"address add {address} dev br0" + (" nodad" if ":" in address else "")
                      for address in pair.addresses(host, 1, (V4, V6))), "link set br0 up")
        pair.settle("br0")
        pair.all_rules("10.77.1.1")
        docker(pair, 90)
        # Beside another bridge it is the default route that tells which one leads out.
        for host in pair.hosts:
            host.ip("route add default via 10.77.1.9")
        pair.all_rules("10.77.1.1")
        require(pair.devices()[0][1] == ["br0"] and len(pair.devices()) == 1, f"{pair.devices()}")


def tunnel():
    """A tunnel has a device where there is nothing else, and none beside a card."""
    with Pair() as pair:
        pair.cable("eth0", 9, "fe80::77:{host}/64")
        for host in pair.hosts:
            try:
                host.ip(f"link add vx0 type vxlan id 7 local fe80::77:{host.number} "
                        f"remote fe80::77:{3 - host.number} dev eth0 dstport 4789")
            except Failure as error:
                print(f"no tunnels here: {error}")
                return
            host.ip(f"address add 10.77.5.{host.number}/24 dev vx0", "link set vx0 up")
        pair.settle()
        pair.all_rules("10.77.5.1")
        require(pair.devices()[0][1] == ["vx0"], f"{pair.devices()}")
        for host in pair.hosts:
            host.ip(f"address add 10.77.1.{host.number}/24 dev eth0")
            host.expect_no_clients()
        pair.all_rules("10.77.1.1")
        require([at for _, at, _ in pair.devices()] == [["eth0"]], f"{pair.devices()}")


def point_to_point():
    """An interface without a hardware address (WireGuard, tun): its device has its addresses."""
    with Pair() as pair:
        host = pair.hosts[0]
        holder = host.start("sleep", "infinity", plain=True)
        with contextlib.ExitStack() as stack:
            stack.callback(holder.kill)
            host.ip("tuntap add mode tun name tun0", "address add 10.8.0.1 peer 10.8.0.2 dev tun0",
                    "link set tun0 up")
            devices = pair.devices()
            require(devices[0][1] == ["tun0"] and devices[0][2][0] in
                    ("::ffff:10.8.0.1",) + tuple(g for g in devices[0][2] if g.startswith("fe80")),
                    f"{devices}")


# ---------------------------------------------------------------------- several cards

def two_cards():
    """The default route's is the first; each reaches its own cable."""
    with Pair() as pair:
        pair.cable("eth0", 1, V4, V6)
        pair.cable("eth1", 2, V4, V6)
        pair.both("route add default via 10.77.2.9")
        devices = pair.devices()
        require([(name, at) for name, at, _ in devices] ==
                [("verbena0", ["eth1"]), ("verbena1", ["eth0"])], f"{devices}")
        pair.all_rules("10.77.1.1", (0, 1))
        # One that leads elsewhere: the host's routes decide by which card packets leave.
        pair.deliver("v4", "10.77.1.1", 0, 1)
        # The hosts' own processes reach each other over any of them.
        server = pair.hosts[0]
        port = PORTS.take()
        one, two = server.start_pair([GID_RULE, 0, "v4", port],
                                     [GID_RULE, 1, "v4", port, "127.0.0.1"], port)
        server.finish_pair(one, two)


def connection_manager():
    """It serves all addresses, the hosts' own too: of each card, of the bridge, of the loopback."""
    with Pair() as pair:
        docker(pair, 10)
        pair.cable("eth0", 1, V4, V6, index=20)
        pair.cable("eth1", 2, V4, V6, index=21)
        server = pair.hosts[0]
        for address in ("127.0.0.1", "127.0.0.9", "::1", "172.17.0.1", "10.77.1.1", "fd77:2::1"):
            for environment in ({}, {"VERBENA_CARRIER": "wire"}):
                if environment and address == "127.0.0.9":
                    continue  # the packets come from 127.0.0.1
                port = PORTS.take()
                words = ["-C", 3, "-p", port, "-a", address]
                one = server.start("rping", "-s", *words, environment=environment)
                two = server.start("sh", "-c", "for i in 1 2 3 4 5; do rping -c " +
                                   " ".join(str(word) for word in words) +
                                   " && exit; sleep 0.2; done; exit 1", environment=environment)
                server.finish_pair(one, two)
        for address in ("10.77.1.1", "fd77:2::1"):
            port = PORTS.take()
            one = server.start("rping", "-s", "-C", 3, "-p", port, "-a", address)
            two = pair.hosts[1].start("sh", "-c", "for i in 1 2 3 4 5; do rping -c -C 3 -p "
                                      f"{port} -a {address} && exit; sleep 0.2; done; exit 1")
            server.finish_pair(one, two)


# ---------------------------------------------------------------------- no card, and one that comes

def no_network():
    """The loopback interface only: the host's programs reach each other, also by packets."""
    for environment in ({}, {"VERBENA_CARRIER": "wire"}):
        with Pair(**environment) as pair:
            server = pair.hosts[0]
            for rule in RULES:
                port = PORTS.take()
                words = [GID_RULE, 0, rule, port]
                server.finish_pair(*server.start_pair(words, [*words, "127.0.0.1"], port))
            require(pair.devices()[0][1:] == (["lo"], ["::ffff:127.0.0.1"] * 2 + ["::1"]),
                    f"{pair.devices()}")
            port = PORTS.take()
            words = ["ib_send_bw", "-n", 5, "-x", 0, "-p", port]
            server.pair(words, [*words, "127.0.0.1"], port)


def later():
    """The device of a host without a network becomes the first card's; the next card has its own.
    Programs that use the first one hear of it."""
    with Pair() as pair:
        watches = []
        for host in pair.hosts:
            watch = host.start("stdbuf", "-oL", "ibv_asyncwatch", "-d", "verbena0")
            require(poll_until(lambda watch=watch: "async event FD" in watch.output(), 10),
                    f"no greeting\n{tail(watch.output())}")
            watches.append(watch)
        pair.cable("eth0", 1, V4, V6)
        for watch in watches:
            require(poll_until(lambda watch=watch: "EVENT_GID_CHANGE" in watch.output(), 10),
                    f"no event:\n{tail(watch.output())}")
        pair.all_rules("10.77.1.1")
        require(pair.devices()[0][:2] == ("verbena0", ["eth0"]), f"{pair.devices()}")
        pair.cable("eth1", 2, V4, V6)
        require(poll_until(lambda: len(pair.devices(0)) == len(pair.devices(1)) == 2, 10),
                f"the second card has no device: {pair.devices()}")
        for number in (0, 1):
            for (_, _, gids), net in zip(pair.devices(number), (1, 2)):
                require(gids[0].startswith("fe80::") and gids[1:] ==
                        [f"::ffff:10.77.{net}.{number + 1}", f"fd77:{net}::{number + 1}"],
                        f"the tables depend on when the carrier came: {pair.devices(number)}")
        pair.all_rules("10.77.1.1", (0, 1))
        for number, watch in enumerate(watches):
            pair.hosts[number].ip("link del eth0") if number == 0 else None
            require(poll_until(lambda watch=watch: "EVENT_DEVICE_FATAL" in watch.output(), 10),
                    f"no event of the removal:\n{tail(watch.output())}")
        require(poll_until(lambda: [at for _, at, _ in pair.devices()] == [["eth1"]], 10),
                f"the card that went has a device: {pair.devices()}")
        pair.all_rules("10.77.2.1")
        for watch in watches:
            watch.kill(15)
            watch.wait(5 * SLOW)


def main():
    """All networks."""
    need_programs("ip", "ibv_devices", "ibv_asyncwatch", "stdbuf", "rping", "ib_send_bw")
    suite = Suite("gid_rules")
    for case in (one_card, only_ipv4, only_ipv6, private_link_local, docker_lower, docker_higher,
                 docker_without_ipv4, cable_within, bridge, tunnel, point_to_point, two_cards,
                 connection_manager, no_network, later):
        suite.case(case.__name__.replace("_", " "), case)
    suite.case("VLAN", upper, "vlan id 5")
    suite.case("macvlan", upper, "macvlan mode bridge")
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
