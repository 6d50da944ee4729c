#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Valkey over RDMA: its server with the module, its own test client, which sets thousands of values,
has them saved by a forked child, and compares them. By hand: Debian has none. From its source
(https://github.com/valkey-io/valkey):

    make -C src BUILD_RDMA=module MALLOC=libc valkey-server valkey-rdma.so
    make -C tests/rdma

usage: valkey.py VALKEY-DIRECTORY [WORD...]
"""
import os
import signal
import sys

from clients import ADDRESS, on_each_stage, on_two_hosts, prepare, require
from lib import PORTS, Suite, poll_until, tail

STEPS = ("PING/PONG", "SET", "GET")
SAVED = "Background saving terminated with success"


def serve(stage, top, address, threads):
    """A server, and a client of so many threads; both end well."""
    port = PORTS.take()
    one = getattr(stage, "server", stage)
    server = one.start(f"{top}/src/valkey-server", "--port", 0, "--dir", one.directory,
                       "--protected-mode", "no",
                       "--loadmodule", f"{top}/src/valkey-rdma.so", f"bind={address}",
                       f"port={port}")
    require(poll_until(lambda: "Ready to accept connections rdma" in server.output(), 20),
            f"the server isn't ready\n{tail(server.output())}")
    text = getattr(stage, "client", stage).run(f"{top}/tests/rdma/rdma-test", "-h", address, "-p",
                                               port, "-t", threads, seconds=60)
    for step in STEPS:
        done = [line for line in text.splitlines() if f" {step}" in line and "[OK]" in line]
        require(len(done) >= threads, f"{len(done)} times {step}\n{tail(text)}")
    require(poll_until(lambda: SAVED in server.output(), 20), tail(server.output()))
    server.kill(signal.SIGTERM)
    server.expect(20)


def main():
    """All cases."""
    if len(sys.argv) < 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    top = os.path.abspath(sys.argv[1])
    prepare("unshare")
    suite = Suite("valkey", only=sys.argv[2:])

    def cases(suite, stage, who):
        address = stage.host if who == "two hosts" else ADDRESS
        for threads in (1, 4):
            suite.case(f"{who}: {threads} threads", serve, stage, top, address, threads)
    on_each_stage(suite, cases)
    on_two_hosts(suite, cases)
    suite.end()


if __name__ == "__main__":
    main()
