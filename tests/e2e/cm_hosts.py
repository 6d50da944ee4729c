#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The connection manager between two hosts: addresses that have to be found on the link first, refusals,
ends of programs, and hosts that are gone."""
import sys

from lib import BUILD, PORTS, SLOW, Suite, need_programs, poll_until, require, tail
from network import TwoHosts

PROBE = f"{BUILD}/tests/e2e/cm_probe"


def says(process, text):
    """A line that begins like this comes."""
    require(poll_until(lambda: any(line.startswith(text) for line in process.output().splitlines()),
                       20 * SLOW), f"no '{text}' in\n{tail(process.output())}")


def end(*processes):
    """Ends them."""
    for process in processes:
        process.kill()
        process.wait(5)


def connected(hosts, at):
    """A server and a client, connected."""
    port = PORTS.take()
    server = hosts.server.start(PROBE, "listen", "::" if ":" in at else "0.0.0.0", port)
    says(server, f"listening {port}")
    client = hosts.client.start(PROBE, "connect", "-", at, port)
    says(client, "ESTABLISHED 0 verbena0")
    says(server, "ESTABLISHED 0 verbena0")
    return server, client


def connects(hosts, at):
    """Nobody's link address is known yet."""
    hosts.client.ip("neigh flush dev eth0")
    server, client = connected(hosts, at)
    # The other side hears of each end.
    end(client)
    says(server, "DISCONNECTED 0 verbena0")
    end(server)
    server, client = connected(hosts, at)
    end(server)
    says(client, "DISCONNECTED 0 verbena0")
    end(client)


def refused(hosts, at):
    """Nobody listens there: at once, from the other host's daemon."""
    server, client = connected(hosts, at)
    late = hosts.client.start(PROBE, "connect", "-", at, PORTS.take())
    says(late, "REJECTED 8 verbena0")
    end(late, client, server)


def gone(hosts, at):
    """The server's host has left the network, and its link address is forgotten."""
    hosts.server.ip("link set eth0 down")
    hosts.client.ip("neigh flush dev eth0")
    silent = hosts.client.start(PROBE, "resolve", "-", at, 500)
    says(silent, "ADDR_ERROR -110 -")
    silent.wait(5 * SLOW)
    waits = hosts.client.start(PROBE, "resolve", "-", at, 100000)
    # It comes back while somebody waits.
    require(poll_until(lambda: at in hosts.client.run("ip", "neigh", "show", "dev", "eth0", plain=True),
                       20), "the link isn't asked")
    hosts.server.ip("link set eth0 up")
    says(waits, "ADDR_RESOLVED 0 verbena0")
    waits.wait(5 * SLOW)


def main():
    """All cases."""
    need_programs("ip")
    suite = Suite("cm_hosts")
    hosts = TwoHosts()
    for family in ("ipv4", "ipv6"):
        at = hosts.server.addresses[family]
        suite.case(f"connections by {family}", connects, hosts, at)
        suite.case(f"nobody listens, {family}", refused, hosts, at)
    # Of the card's address, as TwoHosts sets it.
    suite.case("connections by link-local addresses", connects, hosts, "fe80::aff:fe09:901%eth0")
    suite.case("a host that is gone, and comes back", gone, hosts, hosts.server.addresses["ipv4"])
    suite.stage_closed(hosts)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
