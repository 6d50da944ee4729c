#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""librpma's examples, each a server and a client that check what they exchange. By hand: Debian has
the library, not the examples; https://github.com/pmem/rpma builds both (cmake -DBUILD_TESTS=OFF).

usage: rpma.py EXAMPLES-DIRECTORY [WORD...], such as rpma/build/examples
"""
import os
import sys
import time

from clients import ADDRESS, on_each_stage, on_two_hosts, prepare
from lib import LEAST, PORTS, Suite, poll_until, seen_within

# What an example's client and server want beside address and port; each list of the client's is one
# client, one after the other, except 13's, whose server waits for all of them at once.
CLIENTS = {
    "06-multiple-connections": [[8], [9], [11], [12]],
    "06scch-multiple-connections": [[8], [9], [11], [12]],
    "07-atomic-write": [["1st_word", "2nd_word", "3rd_word"]],
    "08-messages-ping-pong": [[7, 3]],
    "08srq-simple-messages-ping-pong-with-srq": [[7, 3]],
    "10-send-with-imm": [["1234", "1st_word"]],
    "11-write-with-imm": [["1234"]],
    "12-receive-completion-queue": [[7, 3]],
    "12scch-receive-completion-queue": [[7, 3]],
    "13-messages-ping-pong-with-srq": [[1, 3], [5, 3], [10, 3]],
}
AT_ONCE = {"13-messages-ping-pong-with-srq": [3]}
# Their servers serve until they are ended.
ENDLESS = ("06-multiple-connections", "06scch-multiple-connections")


def connected(stage, words, server):
    """A client that ends well; it is started again while its server isn't listening yet, which no
    TCP port tells."""
    end = time.monotonic() + LEAST
    while True:
        client = stage.start(*words)
        if client.wait(30) == 0 or time.monotonic() > end or not server.running():
            return client
        time.sleep(0.1)


def example(stage, address, directory):
    """Its clients end well, and its server does, unless it is made to serve for ever."""
    name, port = os.path.basename(directory), PORTS.take()
    there = getattr(stage, "client", stage)
    server = getattr(stage, "server", stage).start(
        os.path.join(directory, "server"), address, port, *AT_ONCE.get(name, []))
    lists = CLIENTS.get(name, [[]])
    words = [os.path.join(directory, "client"), address, port]
    if name in AT_ONCE:
        seen_within(lambda: not server.running(), 1)
        clients = [there.start(*words, *more) for more in lists]
    else:
        clients = [connected(there, words + more, server) for more in lists]
    for client in clients:
        client.expect(30)
    if name in ENDLESS:
        server.kill()
        server.wait(20)
    else:
        server.expect(20)


def main():
    """All examples that were built."""
    if len(sys.argv) < 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    top = os.path.abspath(sys.argv[1])
    names = sorted(name for name in os.listdir(top)
                   if os.access(os.path.join(top, name, "client"), os.X_OK))
    suite = Suite("rpma", only=sys.argv[2:])
    prepare("unshare")

    def cases(suite, stage, who):
        address = stage.host if who == "two hosts" else ADDRESS
        for name in names:
            suite.case(f"{who}: {name}", example, stage, address, os.path.join(top, name))
    on_each_stage(suite, cases)
    on_two_hosts(suite, cases)
    suite.end()


if __name__ == "__main__":
    main()
