#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of the connection manager between two hosts: two network namespaces with a cable.

usage: two_hosts_cm.py [GROUP...] [WORD...]
Runs the groups, `cm` (nothing is lost) and `cm_loss` (1 % and 5 % of the packets, the connection
manager's as well as the data's), and of their cases those whose name has a WORD. VERBENA_FULL=1
takes more of everything.
"""
import re

import rdmacm
from lib import (FULL, PORTS, SLOW, Failure, Suite, chosen, need_programs, poll_until, require,
                 seen_within, tail)
from network import TwoHosts
from pingpong import left_alone

MIB = rdmacm.MIB


def link_local(host):
    """The address that a host's card makes of its number."""
    with host.inside():
        text = host.run("ip", "-6", "address", "show", "dev", "eth0", "scope", "link", plain=True)
    return re.search(r"inet6 (fe80::[0-9a-f:]+)/", text)[1]


def rping_link_local(hosts):
    """An address that needs its interface, on both hosts eth0."""
    rdmacm.rping(hosts, link_local(hosts.server) + "%eth0")


def both_ways(hosts):
    """A server on each host with a client of the other, at once."""
    began = []
    for here, there in ((hosts.server, hosts.client), (hosts.client, hosts.server)):
        port = PORTS.take()
        words = ("rping", "-v", "-V", "-p", port, "-C", 200, "-a", here.addresses["ipv4"])
        one = here.start(*words, "-s")
        rdmacm.wait_at_rest(one)
        began.append((one, there.start(*words, "-c")))
    for one, two in began:
        for process in (two, one):
            status = rdmacm.status_of(process, 30 * SLOW)
            require(status == 0,
                    f"{process.title()} ended with {status}\n{tail(process.output())}")
        text = two.output()
        require(len(re.findall("^ping data: ", text, re.MULTILINE)) == 200,
                f"not all pings\n{tail(text)}")


def nobody_there(hosts):
    """Where a daemon is and nobody listens: refused, at once."""
    client = hosts.client.start("rping", "-c", "-a", hosts.address, "-p", PORTS.take(), "-C", 1)
    status, text = client.wait(20), client.output()
    require(status != 0 and "REJECTED" in text, f"it ended with {status}\n{tail(text)}")


def clean(suite):
    """Each program once, and each of its ways."""
    hosts = TwoHosts(idle_ms=2000)
    hosts.address = hosts.server.addresses["ipv4"]
    suite.case("rping over IPv4", rdmacm.rping, hosts, hosts.address)
    suite.case("rping over IPv6", rdmacm.rping, hosts, hosts.server.addresses["ipv6"])
    suite.case("rping over IPv6, link-local", rping_link_local, hosts)
    suite.case("rping to a persistent server", rdmacm.rping_persistent, hosts)
    suite.case("rping in both directions at once", both_ways, hosts)
    # A daemon must be there to refuse: what its last client leaves it is gone 2 s later.
    suite.case("a connect to nobody", nobody_there, hosts)
    good = "return status 0"
    suite.case("ucmatose", rdmacm.simple, hosts, "ucmatose", needle=good)
    suite.case("ucmatose, 50 connections with messages", rdmacm.simple, hosts, "ucmatose", "-c", 50,
               "-C", 20, "-S", 4096, needle=good)
    suite.case("ucmatose, migrated ids", rdmacm.simple, hosts, "ucmatose", "-c", 10, "-m",
               needle=good)
    suite.case("udaddy", rdmacm.udaddy, hosts)
    suite.case("udaddy, 20 services", rdmacm.udaddy, hosts, "-c", 20)
    suite.case("rdma_server, rdma_client", rdmacm.server_client, hosts)
    suite.case("cmtime", rdmacm.cmtime, hosts, 1000 if FULL else 100)
    for program in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw",
                    "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat"):
        suite.case(f"{program} -R", rdmacm.perftest, hosts, program, "-R", "-n", 200)
    suite.case("ib_send_bw -R over 16 QPs", rdmacm.perftest, hosts, "ib_send_bw", "-R", "-q", 16,
               "-n", 200)
    suite.case("ib_send_lat -R -c UD", rdmacm.perftest, hosts, "ib_send_lat", "-R", "-c", "UD",
               "-n", 200)
    rdmacm.rsockets(suite, hosts)
    for name in rdmacm.QPERF + (rdmacm.QPERF_MORE if FULL else ()):
        suite.case(f"qperf -cm 1 {name}", rdmacm.qperf, hosts, name)
    suite.stage_closed(hosts)


def spared(function, *arguments, **options):
    """A case over a network that may lose the last acknowledgement of a program that leaves."""
    try:
        function(*arguments, **options)
    except Failure as failure:
        if not left_alone(failure):
            raise


def received(host, message):
    """How many messages of one kind the host's connection manager has received."""
    status = host.status()
    return status["connections"]["received"][message] if status else 0


def dies_out_of_reach(hosts):
    """A program dies while its peer can't be reached: its daemon, idle by then, goes on telling the
    peer until that has heard it."""
    port = PORTS.take()
    server = hosts.server.start("ucmatose", "-p", port, "-c", 2)
    rdmacm.wait_at_rest(server)  # it waits for a second connection until its end
    before = {message: received(hosts.server, message) for message in ("RTU", "DREQ")}
    client = hosts.client.start("ucmatose", "-s", hosts.address, "-p", port, "-c", 1)
    require(poll_until(lambda: received(hosts.server, "RTU") > before["RTU"], 20), "no connection")
    hosts.relay.tell("loss 100%")
    client.kill()
    client.wait(20)
    gone = seen_within(lambda: not hosts.client.daemons(), 4)  # its idle time is 2 s
    hosts.relay.tell("loss 0")
    require(not gone, "the dead program's daemon left although the peer hasn't heard of it")
    require(poll_until(lambda: received(hosts.server, "DREQ") > before["DREQ"], 20),
            "the peer wasn't told that the connection has ended")
    server.kill()
    server.wait(20)


def lossy(suite):
    """The protocol repeats what is lost, the programs notice nothing."""
    hosts = TwoHosts("--no-offloads", relay=True, idle_ms=2000)
    hosts.address = hosts.server.addresses["ipv4"]
    good = "return status 0"
    lost = 0
    for loss in ("1%", "5%"):
        hosts.relay.tell(f"loss {loss}")
        for name, function, *rest in (
                ("rping", rdmacm.rping, hosts.address, 100),
                ("ucmatose", rdmacm.simple, "ucmatose", "-c", 20, "-C", 20),
                ("cmtime", rdmacm.cmtime, 50),
                ("rdma_server, rdma_client", rdmacm.server_client),
                ("ib_send_bw -R", rdmacm.perftest, "ib_send_bw", "-R", "-n", 200),
                ("rstream", rdmacm.rstream, "-T", "v", "-S", 4096, "-C", 20, "-I", 10),
                ("rcopy", rdmacm.rcopy, (256 if FULL else 4) * MIB)):
            more = {"needle": good} if function is rdmacm.simple else {}
            suite.case(f"{loss} lost: {name}", spared, function, hosts, *rest, **more)
        lost = hosts.relay.happened("lost")
    hosts.relay.tell("loss 0")
    suite.case("a program dies out of its peer's reach", dies_out_of_reach, hosts)
    suite.stage_closed(hosts)
    if not suite.only:
        suite.case("packets were lost", require, lost > 100, f"only {lost}")


GROUPS = {"cm": clean, "cm_loss": lossy}


def main():
    """The groups that the command line names, or all."""
    need_programs("rping", "ucmatose", "rstream", "ib_send_bw", "qperf", "ip")
    groups, cases = chosen(GROUPS)
    suite = Suite("two hosts: " + " ".join(groups), only=cases)
    for group in groups:
        GROUPS[group](suite)
    suite.end()


if __name__ == "__main__":
    main()
