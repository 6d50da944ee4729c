#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""fio's rdma engine: a job that writes to, and one that reads from, another fio's memory, on one
host and between two.

The engine's third way, send, isn't run: fio connects with no RNR retries, so it ends with an error
on any device as soon as the receiving fio is late once.

usage: fio.py [WORD...]
"""
import os
import re

from clients import ADDRESS, on_each_stage, on_two_hosts, prepare, require
from lib import PORTS, Suite, poll_until, tail

MIB = 16
COMMON = "[{name}]\nioengine=rdma\nport={port}\nbs={bs}\nsize={mib}m\n"
SERVER = COMMON + "rw=read\niodepth=16\n"
CLIENT = COMMON + "hostname={address}\nverb={verb}\nrw=write\niodepth=8\niodepth_batch_complete=8\n"


def job(stage, text, **values):
    """A file with a job, and the command that runs it."""
    path = os.path.join(stage.directory, values["name"] + ".fio")
    with open(path, "w", encoding="ascii") as file:
        file.write(text.format(**values))
    return ["fio", path]


def exchange(stage, address, verb, bs):
    """All bytes are counted and neither reports an error."""
    one = getattr(stage, "server", stage)
    values = {"port": PORTS.take(), "bs": bs, "mib": MIB, "address": address, "verb": verb}
    server = one.start(*job(one, SERVER, name="server", **values))
    require(poll_until(lambda: "waiting for connection" in server.output(), 20),
            f"the server doesn't wait\n{tail(server.output())}")
    client = getattr(stage, "client", stage).start(*job(one, CLIENT, name="client", **values))
    for text in stage.finish_pair(server, client, seconds=60):
        require("err= 0" in text, tail(text))
    require(re.search(rf"WRITE: .*io={MIB}\.0MiB", client.output()), tail(client.output()))


def cases(suite, stage, who):
    """Both verbs, small and large blocks."""
    for verb in ("write", "read"):
        for bs in ("4k", "64k", "1m"):
            suite.case(f"{who}: {verb}, blocks of {bs}", exchange, stage,
                       stage.host if who == "two hosts" else ADDRESS, verb, bs)


def main():
    """All cases."""
    prepare("fio")
    suite = Suite("fio")
    on_each_stage(suite, cases)
    on_two_hosts(suite, cases)
    suite.end()


if __name__ == "__main__":
    main()
