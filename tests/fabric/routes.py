#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Routes under traffic: links that are cut with and without another path, tables that lead nowhere,
in circles or one way only, MTUs, faults; what the counters say of it."""
import sys
import threading
import time

from programs import Shell, connect, daemon_end, lid, start, table_entry_write, verbena
from stage import SMALL, main, poll_until, require

RETRY_EXCEEDED = 12


def small():
    with open(SMALL, encoding="ascii") as file:
        return file.read()


def port(fabric, node, number):
    return fabric.ask(op="counters", node=node, port=number)["ports"][0]["counters"]


def cut_with_another_path(fabric):
    """One of two links is cut and mended again and again under traffic: the manager reroutes, and
    the connection goes on."""
    start(fabric, small(), manager=None)
    verbena(fabric, "sm", "--node", "H1", "--detach")
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    connect(fabric, one, other)
    target = other.facts("memory")
    answer = {}
    thread = threading.Thread(target=lambda: answer.update(
        one.facts("stream", 6, 4000, target["address"], target["rkey"])))
    thread.start()
    time.sleep(0.5)
    cuts = 0
    while thread.is_alive() and cuts < 10:
        number = 7 + cuts % 2
        fabric.ask(op="link", node="S1", port=number, action="down")
        time.sleep(0.2)
        fabric.ask(op="link", node="S1", port=number, action="up")
        poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "a link stays down")
        cuts += 1
    thread.join()
    print(f"      {cuts} cuts, {answer['done']} messages, longest stall "
          f"{answer['longest_us'] / 1000:.1f} ms")
    require(answer["status"] == 0 and answer["done"] > 100 and cuts > 3, answer)
    for number in (7, 8):
        require(port(fabric, "S1", number)["xmit_packets"] > 100, f"port {number} had no traffic")
    daemon_end(fabric)


def cut_without_another_path(fabric):
    """Nobody reroutes: the request is tried for the QP's time and fails; one whose link comes back
    meanwhile doesn't."""
    start(fabric, small())
    for number in (7, 8):
        fabric.ask(op="link", node="S1", port=number, action="down")
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    connect(fabric, one, other, "rc", 0, 0, 5, 14, 3)
    begin = time.monotonic()
    answer = one.facts("send", 1, 100)
    took = time.monotonic() - begin
    # 4.096 us * 2^14 * 4 = 268 ms
    require(answer["status"] == RETRY_EXCEEDED and took > 0.25, f"{answer} after {took} s")
    lost = sum(port(fabric, "S1", number)["xmit_discards"] for number in range(1, 9))
    require(lost == 4, f"{lost} packets were discarded, not one for each try")
    connect(fabric, one, other, "rc", 0, 0, 5, 18, 7)
    one.tell("send", 1, 100)
    time.sleep(0.5)
    for number in (7, 8):
        fabric.ask(op="link", node="S1", port=number, action="up")
    verbena(fabric, "sm", "--node", "H1", "--once")
    answer = one.line()
    require("status=0 done=1" in answer, answer)
    require(len(other.received(1)) == 1, "the message hasn't arrived")
    one.end()
    other.end()
    daemon_end(fabric)


def wrong_tables(fabric):
    """A black hole, a circle and a way that leads one way only act as on hardware, and trace says
    why."""
    start(fabric, small())
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    there, back = lid(fabric, "H4"), lid(fabric, "H2")

    for node, to, number, result, blame, counter in (
            ("S1", there, 255, "no-entry", ("S1", 2), "rcv_switch_relay"),
            ("S2", there, 7, "loop", None, None),
            ("S1", there, 2, "looping", ("S1", 2), "rcv_switch_relay"),
            ("S2", back, 255, "no-entry", ("S2", 2), "rcv_switch_relay")):
        before = fabric.ask(op="table", node=node, kind="unicast")["entries"]
        good = next(one["port"] for one in before if one["lid"] == to)
        table_entry_write(fabric, node, to, number)
        ends = ("H2", "H4") if to == there else ("H4", "H2")
        trace = fabric.ask(op="trace", **dict(zip(("from", "to"), ends)))
        require(trace["result"] == result, f"{node} {to} {number}: {trace}")
        errors = port(fabric, *blame)[counter] if blame else 0
        connect(fabric, one, other, "rc", 0, 0, 5, 12, 1)
        answer = one.facts("send", 1, 100)
        require(answer["status"] == RETRY_EXCEEDED, f"{node} {to} {number}: {answer}")
        if blame:
            more = port(fabric, *blame)[counter] - errors
            require(more == 2, f"{node} {to} {number}: {more} packets lost at {blame}")
        table_entry_write(fabric, node, to, good)
        connect(fabric, one, other)
        require(one.facts("send", 10, 100)["done"] == 10, "the table is right again")
    one.end()
    other.end()
    daemon_end(fabric)


def mtus(fabric):
    """A packet that is longer than a link on the way allows is discarded there."""
    text = small().replace('[7]\t"S2"[7] w=2 s=1', '[7]\t"S2"[7] w=2 s=1 # mtu=2048')
    start(fabric, text.replace('[8]\t"S2"[8] w=2 s=1\n', "").replace('[8]\t"S1"[8] w=2 s=1\n', "")
          .replace('[7]\t"S1"[7] w=2 s=1', '[7]\t"S1"[7] w=2 s=1 # mtu=2048'))
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    connect(fabric, one, other, "rc", 0, 0, 5, 12, 1)
    require(one.facts("send", 5, 2048)["done"] == 5, "packets of 2048 bytes don't pass")
    answer = one.facts("send", 1, 2049)
    require(answer["status"] == RETRY_EXCEEDED, answer)
    require(port(fabric, "S1", 7)["xmit_discards"] == 2, port(fabric, "S1", 7))
    connect(fabric, one, other, "rc", 0, 0, 4)
    require(one.facts("send", 5, 8000)["done"] == 5, "with a path MTU of 2048 it doesn't pass")
    one.end()
    other.end()
    daemon_end(fabric)


def loss_is_counted(fabric, sender, ingress, egress, receiver):
    """Of what a node sends by the ports of its switch: what the first one drops is counted up to
    there, and there as an error; what is counted behind it came. Returns what was dropped."""
    sent, came = port(fabric, sender, 1), port(fabric, "S1", ingress)
    left, received = port(fabric, "S1", egress), port(fabric, receiver, 1)
    for what in "packets", "words":
        require(sent["xmit_" + what] == came["rcv_" + what], f"{what}: {sent}, {came}")
        require(left["xmit_" + what] == received["rcv_" + what], f"{what}: {left}, {received}")
    lost = sent["xmit_packets"] - left["xmit_packets"]
    require(came["rcv_errors"] == lost, f"{lost} of {sent}, errors of {came}")
    require(not any(one["rcv_errors"] for one in (sent, left, received)), "errors elsewhere")
    return lost


def counters_clear(fabric):
    for node in "S1", "H1", "H2":
        fabric.ask(op="counters", node=node, clear=True)


def dropped(fabric):
    """A cable that loses packets: RC loses time, UD loses datagrams. They are counted up to there."""
    start(fabric, small())
    one, other = Shell(fabric, "H2"), Shell(fabric, "H1")
    fabric.ask(op="drop", node="S1", port=2, percent=100, attribute=0x11)
    connect(fabric, one, other, "rc", 0, 0, 5, 8, 7)
    require(one.facts("send", 50, 100)["done"] == 50 and len(other.received(50)) == 50,
            "what loses only management datagrams loses data")
    fabric.ask(op="drop", node="S1", port=2, percent=20)
    counters_clear(fabric)
    answer = one.facts("send", 200, 100)
    require(answer["status"] == 0 and len(other.received(200)) == 200, answer)
    require(loss_is_counted(fabric, "H2", 2, 1, "H1") > 10, "nothing was lost")
    # Messages of several packets lose one of them.
    counters_clear(fabric)
    require(one.facts("send", 100, 8000)["status"] == 0 and len(other.received(100)) == 100, "long")
    lost = loss_is_counted(fabric, "H2", 2, 1, "H1")
    require(lost and port(fabric, "H2", 1)["xmit_packets"] == 200 + 2 * lost, "one packet of two")
    # On the way back.
    fabric.ask(op="drop", node="S1", port=2, percent=0)
    fabric.ask(op="drop", node="S1", port=1, percent=20)
    counters_clear(fabric)
    require(one.facts("send", 200, 100)["status"] == 0 and len(other.received(200)) == 200, "acks")
    lost = loss_is_counted(fabric, "H1", 1, 2, "H2")
    require(lost > 10 and port(fabric, "H2", 1)["xmit_packets"] == 200 + lost,
            f"{lost} acknowledgements lost, {port(fabric, 'H2', 1)}")
    fabric.ask(op="drop", node="S1", port=1, percent=0)
    fabric.ask(op="drop", node="S1", port=2, percent=20)
    counters_clear(fabric)
    qpn = other.facts("qp", "ud", 5)["qpn"]
    one.ask("qp", "ud", 5)
    one.ask("ready")
    other.ask("ready")
    for _ in range(200):
        require(one.facts("datagram", lid(fabric, "H1"), qpn, 5, 10) == {"status": 0}, "datagram")
    count = len(other.received(200, 1000))
    require(110 < count < 190, f"{count} of 200 datagrams came")
    require(loss_is_counted(fabric, "H2", 2, 1, "H1") == 200 - count, "datagrams")
    fabric.ask(op="drop", node="S1", port=2, percent=0)
    one.end()
    other.end()
    daemon_end(fabric)


def killed(fabric):
    """verbena-fabric is killed under traffic: data goes on, and what passed is counted, once."""
    start(fabric, small())
    one, other = Shell(fabric, "H2"), Shell(fabric, "H4")
    connect(fabric, one, other)
    require(one.facts("send", 100, 100)["done"] == 100, "before")
    require(port(fabric, "H2", 1)["xmit_packets"] > 100, "nothing was counted")
    before = port(fabric, "H2", 1)["xmit_packets"]
    fabric.kill()
    require(one.facts("send", 100, 100)["done"] == 100, "without a fabric")
    fabric.start("--resume")
    poll_until(lambda: port(fabric, "H2", 1)["xmit_packets"] == before + 100,
               f"it counts {port(fabric, 'H2', 1)} after {before}")
    require(one.facts("send", 100, 100)["done"] == 100, "after")
    require(port(fabric, "H2", 1)["xmit_packets"] == before + 200, "counts after the restart")
    one.end()
    other.end()
    require(port(fabric, "H2", 1)["xmit_packets"] == before + 200, "counts after the end")
    daemon_end(fabric)


TESTS = [cut_with_another_path, cut_without_another_path, wrong_tables, mtus, dropped, killed]

if __name__ == "__main__":
    sys.exit(main(TESTS))
