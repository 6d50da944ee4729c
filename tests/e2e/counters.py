#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `verbena status` counts and explains: packets, strangers' packets by their fault, waiting.

usage: counters.py [WORD...]    the cases whose names have a WORD

Counts are exact where nothing else can cause them.
"""
import json
import os
import signal
import socket
import subprocess

from lib import (BUILD, PORTS, VERBENA, Stage, Suite, need_programs, poll_until, require, tail)
from network import ip, own_network
from strangers import (ADDRESS, FAR, FAR_CARD, forge, forge_datagram, forge_mad, request, slot_of)


def total(stage):
    """The sum of all processes."""
    return stage.status()["counters"]


def words(stage):
    """What people are told."""
    return subprocess.run([VERBENA, "status"], env=stage.environment, check=True, text=True,
                          capture_output=True, timeout=20).stdout


def explained(stage, sentence):
    """Requires it among what people are told."""
    text = words(stage)
    require(sentence in text, f"`{sentence}` isn't said\n{tail(text)}")


def waiting_server(stage):
    """A program with a QP that nobody talks to, and its slot."""
    process = stage.start("ibv_rc_pingpong", "-g", 0, "-p", PORTS.take())
    require(poll_until(lambda: slot_of(stage), 20), tail(process.output()))
    return process, slot_of(stage)


def qpn_of(stage, process):
    """The number of its only QP."""
    done = subprocess.run([VERBENA, "resources", "--json", "--pid", str(process.pid),
                           "qp"], env=stage.environment, check=True, text=True,
                          capture_output=True, timeout=20)
    return json.loads(done.stdout)["qp"][0]["qpn"]


def packets(stage):
    """Both ends' packets: what one sent has come to the other, ended or not."""
    port = PORTS.take()
    one = ["ibv_rc_pingpong", "-g", 0, "-p", port, "-n", 10, "-s", 4000, "-m", 1024]
    stage.pair(one, one + ["127.0.0.1"], port)
    wire = total(stage)["wire"]
    require(wire["packets_out"] >= 80 and wire["bytes_out"] > 80000, str(wire))
    require(wire["packets_out"] == wire["packets_in"] + wire["refused"] + wire["no_room"],
            str(wire))
    require("since the daemon began" in words(stage), "no table")


def strangers(stage):
    """Each fault by itself, at the process that it was sent to."""
    process, slot = waiting_server(stage)
    before = total(stage)["wire"]
    for _ in range(3):
        forge(slot, 5000)
    forge(slot, 5000, spoil=1)
    index = qpn_of(stage, process) & 0x3fff
    forge(slot, index)
    forge(slot, index, pkey=0x1234)
    forge(slot, index, size=12)  # a whole BTH, or it would come to nobody

    poll_until(lambda: of_process(stage, process)["packets_in"] == 7, 20)
    wire, wanted = of_process(stage, process), {"packets_in": 7, "no_such_qp": 3, "bad_icrc": 1,
                                                "not_receiving": 1, "other_pkey": 1, "too_short": 1}
    for name, count in wire.items():
        if name != "bytes_in":
            require(count == wanted.get(name, 0), f"{name} is {count}: {wire}")
    explained(stage, "3 packets came for a QP that doesn't exist (any more)")
    explained(stage, "1 packet came with a wrong ICRC")
    explained(stage, "1 packet came with another P_Key")
    process.kill(signal.SIGTERM)
    process.wait(10)
    require(poll_until(lambda: not stage.clients(), 10), "the client stays")
    require(total(stage)["wire"]["no_such_qp"] == before["no_such_qp"] + 3,
            "what an ended process counted is lost")


def requests(stage):
    """Strangers' messages to the connection manager: malformed, repeated, for a port without a listener."""
    port = PORTS.take()
    server = stage.start(os.path.join(BUILD, "tests", "e2e", "cm_probe"), "hear", ADDRESS, port)
    require(poll_until(lambda: "listening" in server.output(), 20), tail(server.output()))
    before = stage.status()["connections"]
    for _ in range(3):
        forge_mad(request(port, 4711))
    forge_mad(request(port + 1, 4712))
    forge_mad(request(port, 4713, class_=0x81))
    forge_mad(request(port, 4713, method=1))
    forge_mad(request(port, 4713, attribute=0x99))
    forge_mad(request(port, 4713)[:200])
    forge_mad(request(port, 4713), qkey=0x1234)
    # A message of a connection that there isn't.
    forge_mad(request(port, 4713, attribute=0x14))

    def counted():
        now = stage.status()["connections"]
        return {name: now[name] - before[name]
                for name in ("duplicates", "malformed", "no_listener")} | {
            "REQ": now["received"]["REQ"] - before["received"]["REQ"],
            "RTU": now["received"]["RTU"] - before["received"]["RTU"],
            "MRA": now["sent"]["MRA"] - before["sent"]["MRA"],
            "REJ 8": now["rejects_sent"].get("8", 0) - before["rejects_sent"].get("8", 0)}
    wanted = {"duplicates": 2, "malformed": 5, "no_listener": 1, "REQ": 4, "RTU": 1, "MRA": 2, "REJ 8": 1}
    require(poll_until(lambda: counted() == wanted, 20), f"{counted()} instead of {wanted}")
    require(poll_until(lambda: "CONNECT_REQUEST" in server.output(), 20), "the listener heard nothing")
    require(server.output().count("CONNECT_REQUEST") == 1, tail(server.output()))
    explained(stage, "2 messages came again: the peer hadn't heard the answer")
    explained(stage, "5 datagrams for QP 1 weren't messages of a connection manager")
    server.kill(signal.SIGTERM)
    server.wait(10)


def of_process(stage, process):
    """What one process has counted on the wire."""
    client = next(c for c in stage.clients() if c["pid"] == process.pid)
    return client["counters"]["wire"]


def addresses_set():
    """The card's addresses, which refused() takes away, and the other host's."""
    ip(f"address replace {ADDRESS}/24 dev eth0", "address replace fd09::1/64 dev eth0 nodad",
       f"neighbour replace {FAR} lladdr {FAR_CARD.hex(':')} dev eth0")


def send_from_anywhere(to, payload):
    """IPv6 lets every program send from an address that isn't its host's."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
        sender.bind(("fd09::99", 0))
        sender.sendto(payload, (to, 4791))


def neighbours(stage):
    """What a program of this host sends by an ordinary socket doesn't even reach a process, or the
    connection manager, whatever its source address."""
    addresses_set()
    port = PORTS.take()
    process = stage.start("ibv_ud_pingpong", "-g", 0, "-p", port)
    require(poll_until(lambda: slot_of(stage), 20), tail(process.output()))
    server = stage.start(os.path.join(BUILD, "tests", "e2e", "cm_probe"), "hear", ADDRESS, port)
    require(poll_until(lambda: "listening" in server.output(), 20), tail(server.output()))
    qpn = qpn_of(stage, process)
    for index in range(3):
        forge_datagram(qpn, qpn + index, 0x11111111, near=True)
        forge_mad(request(port, 4720 + index), near=True)
    bth = bytes([0x04, 0x40, 0xff, 0xff, 0]) + qpn.to_bytes(3, "big") + bytes(8)
    send_from_anywhere("::1", bth)
    send_from_anywhere("fd09::1", bth)
    # Each comes after those before, to the same socket.
    forge(qpn >> 14, 5000)
    forge_mad(request(port, 4711))
    require(poll_until(lambda: of_process(stage, process)["no_such_qp"], 20), "nothing came")
    require(of_process(stage, process)["packets_in"] == 1, str(of_process(stage, process)))
    require(poll_until(lambda: "CONNECT_REQUEST" in server.output(), 20), "the listener heard nothing")
    require(stage.status()["connections"]["received"]["REQ"] == 1, str(stage.status()["connections"]))
    for ended in (server, process):
        ended.kill(signal.SIGTERM)
        ended.wait(10)


def claimed(stage):
    """Processes that reach each other by UDP see who sent a datagram: not from a port of another's."""
    port = PORTS.take()
    one = ["ibv_ud_pingpong", "-g", 0, "-p", port, "-n", 10]
    stage.pair(one, one + ["127.0.0.1"], port)
    require(not total(stage)["wire"]["forged"], "a process's own datagrams count as forged")
    process = stage.start("ibv_ud_pingpong", "-g", 0, "-p", PORTS.take())
    require(poll_until(lambda: slot_of(stage), 20), tail(process.output()))
    qpn = qpn_of(stage, process)
    before = stage.status()["connections"]["malformed"]
    forge_mad(request(port, 4711), near=True)
    for index in range(3):
        forge_datagram(qpn, qpn + index, 0x11111111, near=True)
    forge_datagram(qpn, 0x123456, 0x11111111, near=True)  # of no process
    require(poll_until(lambda: of_process(stage, process)["packets_in"] == 4, 20), "nothing came")
    require(of_process(stage, process)["forged"] == 4, str(of_process(stage, process)))
    require(poll_until(lambda: stage.status()["connections"]["malformed"] == before + 1, 20),
            "the connection manager believes a request from an address of its host")
    explained(stage, "4 packets came with an address of this host, but not from the process")
    process.kill(signal.SIGTERM)
    process.wait(10)


def refused(stage):
    """The host doesn't take packets: which, and why, is said."""
    port = PORTS.take()
    one = ["ibv_ud_pingpong", "-g", 0, "-p", port, "-n", 2000000, "-s", 1000]
    pair = stage.start_pair(one, one + ["127.0.0.1"], port)
    poll_until(lambda: total(stage)["wire"]["packets_in"] > 100, 20)
    subprocess.run(["ip", "address", "flush", "dev", "eth0"], check=True)
    poll_until(lambda: total(stage)["wire"]["refused"], 20)
    wire = total(stage)["wire"]
    for process in pair:
        process.kill(signal.SIGTERM)
        process.wait(10)
    require(wire["refused"], f"nothing was refused: {wire}")
    require(wire["last_error"] and os.strerror(wire["last_error"]) in words(stage), words(stage))
    explained(stage, "refused by the host: ")


def local(stage):
    """Messages that wait for a receive, or for nobody, within the host."""
    stage.run(os.path.join(BUILD, "tests", "e2e", "faults"), "-c", "local", "rnr_*", "peer_in_*",
              "ud_dropped", "ud_receive_*", "ud_left", "ud_stopped", seconds=100)
    counters = total(stage)
    for name in ("rnr_waits", "rnr_naks", "other_qkey", "no_receive", "short_receive", "kept",
                 "not_taken", "no_such_qp"):
        require(counters["local"][name], f"no {name}: {counters['local']}")
    for name in ("retry_exceeded", "rnr_retry_exceeded"):
        require(counters["requests"][name], f"no {name}: {counters['requests']}")
    explained(stage, "IBV_WC_RNR_RETRY_EXC_ERR")
    explained(stage, "IBV_WC_RETRY_EXC_ERR")


def main():
    """All cases."""
    need_programs("ibv_rc_pingpong", "ip")
    own_network()
    addresses_set()
    suite = Suite("counters")
    wire = Stage(idle_ms=3000, VERBENA_CARRIER="wire")
    suite.case("packets", packets, wire)
    suite.case("strangers", strangers, wire)
    suite.case("messages to the connection manager", requests, wire)
    suite.case("from this host, by UDP", claimed, wire)
    suite.case("refused by the host", refused, wire)
    suite.stage_closed(wire)
    here = Stage(idle_ms=3000)
    suite.case("from this host", neighbours, here)
    suite.case("waiting within the host", local, here)
    suite.stage_closed(here)
    suite.end()


main()
