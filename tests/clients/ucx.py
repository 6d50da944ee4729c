#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""UCX: ucx_info finds the device, ucx_perftest runs over its rc and ud transports and over what it
chooses by itself, on one host and between two.

usage: ucx.py [WORD...]
"""
import functools
import re
import subprocess

from clients import ADDRESS, on_each_stage, on_two_hosts, prepare, require
from lib import FULL, PORTS, Suite, tail

SIZES = (8, 8192, 65536)
TESTS = ["tag_lat", "tag_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_fadd", "ucp_am_bw",
         "stream_bw"]
MORE = ["ucp_am_lat", "stream_lat", "ucp_add", "ucp_swap", "ucp_cswap"]
# Of the transports themselves, and which of them has them.
TRANSPORT_TESTS = [("rc_verbs", "am_lat"), ("rc_verbs", "put_lat"), ("rc_verbs", "put_bw"),
                   ("rc_verbs", "fadd"), ("ud_verbs", "am_lat"), ("ud_verbs", "am_bw")]

# UCX 1.18 flushes at the peer after ucp_put_bw, with a key that it makes for mlx5 only, and says so.
REMOTE_FLUSH = re.compile(r"flush\(remote\) is not supported|error during flush: Unsupported op")


@functools.cache
def no_mpi():
    """Debian 13's ucx_perftest is built with MPI, and takes itself for a rank unless its input is a
    terminal: the option that says it is none."""
    usage = subprocess.run(["ucx_perftest", "-h"], stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
    return ["-P", 0] if re.search(r"^\s*-P ", usage, re.MULTILINE) else []


def finds_device(stage):
    """Both transports of the device are there."""
    text = stage.run("ucx_info", "-d")
    found = re.findall(r"Transport: (\w+)\n#\s+Device: (\S+)", text)
    for name in ("rc_verbs", "ud_verbs"):
        require((name, "verbena0:1") in found, f"no {name}\n{tail(text)}")


def measure(stage, address, *words, device=(), transports=None):
    """A pair of ucx_perftest that ends well and has done all that was asked. `device`: words for
    both (UCX 1.13's server has them from its client, 1.18's doesn't)."""
    port = PORTS.take()
    stages = getattr(stage, "hosts", [stage])
    for one in stages:
        one.environment.pop("UCX_TLS", None)
        if transports:
            one.environment["UCX_TLS"] = transports
    command = ["ucx_perftest", *no_mpi(), *device, "-p", port]
    texts = stage.pair(command, [*command, address, "-n", 300, *words], port, seconds=60)
    for text in texts:
        errors = [line for line in text.splitlines() if "UCX  ERROR" in line]
        require(all(REMOTE_FLUSH.search(line) for line in errors), tail(text))
    require(re.search(r"^Final:\s+300 ", texts[1], re.MULTILINE), f"no result\n{tail(texts[1])}")


def one_host(suite, stage, who):
    """All tests with each choice of transports."""
    suite.case(f"{who}: ucx_info", finds_device, stage)
    for transports in (None, "rc,self", "ud,self"):
        for test in TESTS + (MORE if FULL else []):
            for size in SIZES if test.endswith("_bw") else SIZES[:1]:
                suite.case(f"{who}: {test} of {size} bytes over {transports or 'its choice'}",
                           measure, stage, ADDRESS, "-t", test, "-s", size, transports=transports)
    for transport, test in TRANSPORT_TESTS:
        suite.case(f"{who}: {test} of {transport}", measure, stage, ADDRESS, "-t", test, "-s", 8,
                   device=("-d", "verbena0:1", "-x", transport))


def two_hosts(suite, hosts, who):
    """The same over the wire, fewer."""
    for transports in ("rc,self", "ud,self"):
        for test, size in (("tag_lat", 8), ("tag_bw", 8192), ("tag_bw", 65536),
                           ("ucp_put_bw", 65536), ("ucp_get", 8192), ("ucp_fadd", 8)):
            suite.case(f"{who}: {test} of {size} bytes over {transports}", measure, hosts,
                       hosts.host, "-t", test, "-s", size, transports=transports)


def main():
    """All cases."""
    prepare("ucx_info", "ucx_perftest")
    suite = Suite("ucx")
    on_each_stage(suite, one_host)
    on_two_hosts(suite, two_hosts)
    suite.end()


if __name__ == "__main__":
    main()
