#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes inputs for the fuzz targets to begin with: one ordinary life of everything.

usage: tests/fuzz/seeds.py FOLDER      (writes FOLDER/TARGET/seed-*)

The numbers are those of the targets' tables of actions; the other files of the corpus are what the
fuzzers made of these, chosen by tests/fuzz/minimize.
"""
import pathlib
import sys

# daemon_commands.c
COMMAND, ATTACH, CONTEXT, END, CTL, READ, ROUNDS, TABLE, SCARCE, RESTART = (
    0, 6, 9, 10, 11, 13, 14, 15, 16, 18)
# commands.c
(PD, MR, CHANNEL, CQ, SRQ, QP, AH, REREG, RESIZE, MODIFY_SRQ, DEALLOC_PD, DEREG, DESTROY_AH,
 DESTROY_CQ, DESTROY_QP, DESTROY_SRQ, DESTROY_CHANNEL, LINK, _, LINK_RETURN, RETURNED) = range(21)
IMPORT_PD, UNIMPORT_PD, QUERY_MR = 25, 26, 27


def command(client, which, *body, other=0, makes=False):
    returned = [0, 0] if makes else []
    return [COMMAND, client, other, which, *body, *returned, 0, 0]


def attach(client, how=1, who=None):
    return [ATTACH, client, client if who is None else who, how, 0]


def objects(client):
    return (command(client, PD, makes=True)
            + command(client, CHANNEL, makes=True)
            + command(client, CQ, 16, 0, 0, 0, makes=True)
            + command(client, SRQ, 0, 8, 1, makes=True)
            + command(client, MR, 1, 8, 9, 0, 7, makes=True)
            + command(client, QP, 0, 0, 0, 1, 0, 8, 8, 0, makes=True)
            + command(client, AH, 0, 0, makes=True))


def destroy(client):
    kinds = (DESTROY_AH, DESTROY_QP, DEREG, DESTROY_SRQ, DESTROY_CQ, DESTROY_CHANNEL, DEALLOC_PD)
    return sum((command(client, kind, 0) for kind in kinds), [])


def daemon_commands():
    two = attach(0) + attach(1) + [CONTEXT, 2, 0, 1, 0] + [CONTEXT, 3, 1, 1, 0]
    link = command(0, LINK, other=1) + [READ, 0, READ, 1]
    back = [RESTART] + attach(0, 2) + attach(1, 2) + [CONTEXT, 2, 0, 1, 0]
    yield two + objects(2) + destroy(2)
    yield two + objects(2) + [CTL, 0, CTL, 2, TABLE, 1, 1, 2, 0, 0, 9, 0, 0, 0, CTL, 2]
    yield two + link + [END, 1, 0]
    yield two + objects(2) + link + back + command(0, LINK_RETURN, 0, other=0) + command(
        0, RETURNED) + command(1, RETURNED)
    yield (two + objects(2) + command(3, IMPORT_PD, 0, other=2, makes=True)
           + command(3, QUERY_MR, 0, other=2) + command(3, CQ, 16, 0, 1, makes=True) + [END, 2, 0]
           + command(3, UNIMPORT_PD, 0))
    for n in (1, 2, 3, 5):
        yield [SCARCE, n] + two + objects(2) + link + [END, 0, 180]


def post_recv(action, qp):
    return [action, qp, 1, 0, 0, 237]  # one segment of usual[9] bytes


def ring_entries():
    record, recv, send, serve, poll, round_, time, modify, region, link = 0, 6, 5, 12, 8, 9, 10, 14, 15, 16
    for vm in (0, 1):
        for kind in range(1, 17):
            yield ([vm] + post_recv(recv, 0) + [record, 0, kind, 9, 0, 0, 0, 0, 0]
                   + [1, 0, 0, 64, 0, 1] + [poll, 1, round_])
        for op in range(7):
            yield ([vm, send, 0, op, 2, 0, 1, 0, 1, 0, 0, 237, round_, serve, 0, 0, 0, round_, poll, 1,
                    time, 32, modify, 0, 6, region, 1, link, 7])


def shared_tables():
    send, table_mr, header, region, poll = 7, 2, 5, 16, 11
    for vm in (0, 1):
        for op in range(7):
            yield ([vm, table_mr, 2, 31, 64, 15, send, 0, op, 2, 0, 1, 0, 1, 0, 0, 64, poll, 1,
                    header, 64, 1, 0, region, 1])


def main():
    for make in (daemon_commands, ring_entries, shared_tables):
        folder = pathlib.Path(sys.argv[1]) / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(make()):
            (folder / f"seed-{number:02}").write_bytes(bytes(seed))


main()
