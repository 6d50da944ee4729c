#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric: fi_info finds the device, fi_pingpong with checked data over the verbs provider, its
messages and datagrams, and over both utility providers on top, on one host and between two.

usage: fabric.py [WORD...]
"""
import re

from clients import ADDRESS, on_each_stage, on_two_hosts, prepare, require
from lib import PORTS, Suite, tail

# Provider, kind of end point, sizes. A datagram is no longer than the MTU.
BY_ADDRESS = [("verbs", "msg", (64, 4096, 1048576)),
              ("verbs;ofi_rxm", "rdm", (64, 4096, 1048576))]
BY_GID = [("verbs", "dgram", (64, 1024)),
          ("verbs;ofi_rxd", "rdm", (64, 4096, 65536))]


def finds_device(stage):
    """All kinds of end points are offered."""
    text = stage.run("fi_info", "-p", "verbs")
    for provider, kind, _ in BY_ADDRESS + BY_GID:
        require(re.search(rf"provider: {provider}\n(?:\s+\S.*\n)*?\s+type: FI_EP_{kind.upper()}",
                          text), f"no {kind} of {provider}\n{tail(text, 60)}")


def pingpong(stage, address, provider, kind, size):
    """Twenty there and back, each compared with what it must be."""
    port = PORTS.take()
    words = ["fi_pingpong", "-p", provider, "-e", kind, "-c", "-I", 20, "-S", size]
    texts = stage.pair([*words, "-B", port], [*words, "-P", port, address], port, seconds=60)
    for text in texts:
        require(re.search(r"^\S+\s+20\s+=20\s", text, re.MULTILINE), f"no result\n{tail(text)}")


def exchanges(suite, stage, who, address, choices):
    """Each provider, each size."""
    for provider, kind, sizes in choices:
        for size in sizes:
            suite.case(f"{who}: {kind} of {size} bytes over {provider}", pingpong, stage, address,
                       provider, kind, size)


def one_host(suite, stage, who):
    """Everything."""
    suite.case(f"{who}: fi_info", finds_device, stage)
    exchanges(suite, stage, who, ADDRESS, BY_ADDRESS + BY_GID)


def two_hosts(suite, hosts, who):
    """Over the wire."""
    exchanges(suite, hosts, who, hosts.host, BY_ADDRESS + BY_GID)


def main():
    """All cases."""
    prepare("fi_info", "fi_pingpong")
    suite = Suite("fabric")
    on_each_stage(suite, one_host)
    on_two_hosts(suite, two_hosts)
    suite.end()


if __name__ == "__main__":
    main()
