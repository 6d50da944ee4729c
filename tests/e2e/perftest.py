#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's perftest between two processes: every verb, transport and the options that matter.

Checks that both ends finish and that every size asked for has a row of sensible numbers; how fast
they are is `make bench`'s business. VERBENA_FULL=1 takes more iterations, and -a for all verbs.

usage: perftest.py [GROUP...] [WORD...]
Runs the groups (see GROUPS; without any: all), and of their cases those whose name has a WORD.
"""
import contextlib
import os
import re
import sys

from lib import (FULL, PORTS, SANITIZE, SLOW, Stage, Suite, chosen, device_mtu, need_programs,
                 poll_until, require, tail)

MIB = 1024 * 1024
WIRE = os.environ.get("VERBENA_CARRIER") == "wire"
LIMIT_RECEIVES = 16384  # perftest's largest -r
# verb, transports
VERBS = {"send": ("RC", "UC", "UD"), "write": ("RC", "UC"), "read": ("RC",), "atomic": ("RC",)}
# "inf" is what perftest prints where it couldn't measure its clock on a busy machine.
ROW = re.compile(r"^ (\d+) +(\d+) +([\d.]+|inf) +([\d.]+|inf)", re.MULTILINE)


def rows(text):
    """size -> (iterations, third column, fourth column) of a result table."""
    return {int(size): (int(count), float(one), float(two))
            for size, count, one, two in ROW.findall(text)}


def measure(stage, program, *options, sizes=None, seconds=60, before=()):
    """One run of a pair; requires a row for each of the sizes at the client. `before`: words that
    the command begins with."""
    port = PORTS.take()
    # -F: the processor's frequency governor is none of our business.
    words = [*before, program, "-F", "-p", port, *options]
    # Over UDP a peer that waits for its processor is silent. With perftest's own timeout a QP ends
    # after two seconds of that, with this one after ten.
    if "-u" not in options:
        words += ["-u", 18]
    if stage.gid:
        words += ["-x", stage.gid]
    _, text = stage.pair(words, words + [stage.host], port, seconds=seconds)
    table = rows(text)
    require(table, f"no result row\n{tail(text)}")
    if sizes is not None:
        missing = [size for size in sizes if size not in table]
        require(not missing, f"no row for the sizes {missing}\n{tail(text)}")
    slot = 1 if program.endswith("_lat") else 2
    for size, columns in table.items():
        # Bandwidth of tiny messages in few iterations may round to 0.00 MB/s; its row is enough.
        require(columns[slot] > 0 or size < 64, f"size {size}: nothing measured\n{tail(text)}")
    return text


def iterations(size):
    """Enough to leave the start behind, few enough for a test."""
    return max(10, min(20000 if FULL else 2000, (512 if FULL else 64) * MIB // size))


def amount(count, verb, transport):
    """-n, and for unreliable SENDs a receive for each message: nothing stops their sender, and the
    server waits for all of them, so the run would hang whenever its turn on a processor ends."""
    lossy = verb == "send" and transport in ("UC", "UD")
    return ["-n", count, "-r", count] if lossy else ["-n", count]


def basics(suite, stage):
    """Every verb over every transport with a small and a large message."""
    for verb, transports in VERBS.items():
        for kind in ("lat", "bw"):
            program = f"ib_{verb}_{kind}"
            for transport in transports:
                large = device_mtu() if transport == "UD" else MIB
                for size in ([8] if verb == "atomic" else [2, large]):
                    options = [] if verb == "atomic" else ["-s", size]
                    count = min(iterations(size), LIMIT_RECEIVES)
                    suite.case(f"{program} {transport} {size} B", measure, stage, program, "-c",
                               transport, *amount(count, verb, transport), *options, sizes=[size])


def all_sizes(suite, stage):
    """-a: 2 B to 8 MiB (UD: to the MTU)."""
    wanted = [1 << shift for shift in range(1, 24)]
    for verb, transports in VERBS.items():
        for kind, transport in ((kind, transport) for kind in ("bw", "lat")
                                for transport in transports):
            program = f"ib_{verb}_{kind}"
            # perftest calibrates its clock for each size: one latency test is enough here.
            if verb == "atomic" or (kind == "lat" and program != "ib_send_lat" and not FULL):
                continue
            sizes = [size for size in wanted if transport != "UD" or size <= device_mtu()]
            suite.case(f"{program} {transport} -a", measure, stage, program, "-c", transport,
                       "-a", *amount(1000 if FULL else 20, verb, transport), sizes=sizes,
                       seconds=300)


def options_of_bandwidth(suite, stage):
    """Both directions, events, many QPs, depths, shared receive queues, lists, inline.

    With several QPs the count is a multiple of 100: perftest asks for every 100th completion,
    counts 100 for each also at the end, and so stops polling too early with other counts.
    """
    def case(program, *options, count=2000):
        size = 8 if program == "ib_atomic_bw" else device_mtu() if "UD" in options else 4096
        words = list(options) + ([] if program == "ib_atomic_bw" else ["-s", size])
        suite.case(" ".join([program] + [str(word) for word in options]), measure, stage,
                   program, "-n", count, *words, sizes=[size])

    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"):
        case(program, "-b")
        case(program, "-q", 16)
        case(program, "-b", "-q", 16)
        case(program, "-t", 1)
        case(program, "-t", 1024)
        if program != "ib_write_bw":  # perftest knows no events for WRITE
            case(program, "-e")
        case(program, "--use_old_post_send")
    case("ib_atomic_bw", "-A", "CMP_AND_SWAP")
    case("ib_send_bw", "-r", 32, "-t", 16)
    # A receive for each message, as in amount().
    for transport in ("UC", "UD"):
        for words in (["-e"], ["-b"], ["-t", 16], ["-q", 16]):
            case("ib_send_bw", "-c", transport, *words, "-r", 512, count=500)
    case("ib_send_bw", "-c", "UD", "--use-srq", "-r", 512, count=500)
    case("ib_send_bw", "--use-srq", "-q", 16)
    case("ib_send_bw", "-r", 16, "-t", 1)
    case("ib_send_bw", "-r", 4096, "-t", 2048)
    case("ib_write_bw", "-c", "UC", "-b", "-q", 16)
    case("ib_write_bw", "-l", 16)
    case("ib_send_bw", "-l", 16)
    case("ib_read_bw", "-o", 1)
    case("ib_write_bw", "-m", 256)
    case("ib_write_bw", "--mr_per_qp", "-q", 4)
    for program in ("ib_send_bw", "ib_write_bw"):
        for size in (1, 64, 220):
            suite.case(f"{program} -I {size}", measure, stage, program, "-s", size, "-I", size,
                       "-n", 2000, sizes=[size])


def options_of_latency(suite, stage):
    """Events, inline, depths, shared receive queues."""
    def case(program, *options, size=64):
        words = list(options) + ([] if program == "ib_atomic_lat" else ["-s", size])
        suite.case(" ".join([program] + [str(word) for word in options]), measure, stage,
                   program, "-n", 500, *words,
                   sizes=[8 if program == "ib_atomic_lat" else size])

    for program in ("ib_send_lat", "ib_read_lat", "ib_atomic_lat"):
        case(program, "-e")
    for program in ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat"):
        case(program, "--use_old_post_send")
    for transport in ("UC", "UD"):
        case("ib_send_lat", "-c", transport, "-e")
    for program in ("ib_send_lat", "ib_write_lat"):
        for inline in (0, 64, 220):
            case(program, "-I", inline)
    case("ib_send_lat", "--use-srq")
    case("ib_send_lat", "-c", "UD", "--use-srq")
    case("ib_send_lat", "-r", 16)
    case("ib_send_lat", "-r", 4096)
    case("ib_send_lat", "-x", 0)
    # ThreadSanitizer gives a signal to its handler at the program's next call, and this program's
    # end waits for one in a loop without any.
    if SANITIZE != "thread":
        case("ib_write_lat", "-D", 1)


def memory(suite, stage):
    """Kinds of memory: on demand, a mapped file."""
    def case(program, size, *options):
        suite.case(" ".join([program, f"{size} B"] + [str(word) for word in options]), measure,
                   stage, program, "-s", size, "-n", min(500, iterations(size)), *options,
                   sizes=[size])

    path = os.path.join(stage.directory, "mapped")
    with open(path, "wb") as file:
        file.truncate(64 * MIB)
    for verb in ("send", "write", "read"):
        for size in (2, 4096, MIB):
            case(f"ib_{verb}_bw", size, "--odp")
        case(f"ib_{verb}_lat", 4096, "--odp")
    case("ib_send_bw", 1024, "--odp", "-c", "UD")
    case("ib_write_bw", 4096, f"--mmap={path}")
    case("ib_read_bw", MIB, f"--mmap={path}")


def xrc(suite, stage):
    """XRC: every verb, both directions, events, several queue pairs."""
    def case(program, *options, size=4096):
        words = [] if "atomic" in program else ["-s", size]
        suite.case(" ".join([program, "-c XRC", f"{size} B"] + [str(word) for word in options]),
                   measure, stage, program, "-c", "XRC", "-n", min(500, iterations(size)), *words,
                   *options, sizes=[8 if "atomic" in program else size])

    for verb in ("send", "write", "read", "atomic"):
        for size in ([8] if verb == "atomic" else [2, 4096, MIB]):
            case(f"ib_{verb}_lat", size=size)
            case(f"ib_{verb}_bw", size=size)
        case(f"ib_{verb}_bw", "-b")
        case(f"ib_{verb}_bw", "-q", 4)
        if verb != "write":
            case(f"ib_{verb}_bw", "-e")


def brief(suite, stage):
    """One of each kind: for runs whose point is elsewhere (VERBENA_LOCAL_COPY=ring, valgrind)."""
    for program, size, *options in (
            ("ib_send_bw", 4096, "-q", 16), ("ib_send_bw", MIB, "-b"), ("ib_send_bw", 4096, "-e"),
            ("ib_send_bw", 64, "--use-srq", "-q", 4), ("ib_send_bw", MIB, "-c", "UC"),
            ("ib_send_bw", 2048, "-c", "UD", "-r", 512), ("ib_send_lat", 2),
            ("ib_send_lat", MIB, "-e"), ("ib_write_lat", 2), ("ib_write_lat", MIB),
            ("ib_write_lat", 4096, "-c", "UC"), ("ib_write_bw", 4096, "-b", "-q", 16),
            ("ib_write_bw", MIB), ("ib_read_lat", 2), ("ib_read_bw", 4096, "-q", 16),
            ("ib_read_bw", MIB, "-b"), ("ib_read_bw", 4096, "-e"),
            ("ib_send_lat", 2, "-c", "XRC"), ("ib_send_bw", MIB, "-c", "XRC"),
            ("ib_write_lat", 4096, "-c", "XRC"), ("ib_read_bw", 4096, "-c", "XRC")):
        count = min(500, iterations(size))
        if WIRE and program == "ib_send_bw" and ("UC" in options or "UD" in options):
            # Nothing holds this sender back, and what the receiver's socket can't hold while its
            # program waits for a processor is lost for good: no more than it holds.
            size = min(size, 16 * 1024)
            count = min(count, 256 * 1024 // size)
        if "UD" in options:
            size = min(size, device_mtu())
        suite.case(" ".join([program, f"{size} B"] + [str(word) for word in options]), measure,
                   stage, program, "-n", count, "-s", size, *options, sizes=[size])
    for program in ("ib_atomic_lat", "ib_atomic_bw"):
        suite.case(program, measure, stage, program, "-n", 500, sizes=[8])


# What an ordinary user has: descriptors, bytes of pinned memory.
USUAL_LIMITS = ("prlimit", "--nofile=1024:1024", "--memlock=8388608:8388608")


def many(suite, stage):
    """Thousands of queue pairs in one run, within the limits that an ordinary user has."""
    for program, pairs, *options in (
            ("ib_write_bw", 4096, "-t", 4), ("ib_send_bw", 4096, "-t", 4, "-r", 8),
            ("ib_read_bw", 1024, "-t", 4), ("ib_send_bw", 1024, "-t", 4, "-r", 32, "-c", "UD")):
        suite.case(f"{program} -q {pairs} " + " ".join(str(word) for word in options), measure,
                   stage, program, "-q", pairs, "-n", 20, "-s", 64, *options, sizes=[64],
                   seconds=200, before=USUAL_LIMITS)


MACS = ("00:11:22:33:44:55", "00:11:22:33:44:66")
ADDRESSES = ("-J", "10.0.0.1", "-j", "10.0.0.2", "-K", 5000, "-k", 6000)


def measure_raw(stage, program, size, *options):
    """One run with raw packets. The two ends don't talk to each other: the client may begin when the
    server's flow rule is there. A receive for each frame, as with other datagrams."""
    words = [program, "-F", "-s", size, "-n", 1000, "-r", 1000, *options]
    server = stage.start(*words, "--server", "-B", MACS[0], "-E", MACS[1])

    def has_rule():
        rules = (stage.resources() or {}).get("flow", [])
        return any(rule["pid"] == server.pid for rule in rules) or not server.running()

    require(poll_until(has_rule, 20), f"no flow rule\n{tail(server.output())}")
    client = stage.start(*words, "--client", "-B", MACS[1], "-E", MACS[0])
    _, text = stage.finish_pair(server, client, seconds=60)
    require(size in rows(text), f"no row for {size}\n{tail(text)}")


def raw(suite, stage):
    """Raw packets, with the headers that perftest can make."""
    for program, size, *options in (
            ("raw_ethernet_lat", 64), ("raw_ethernet_bw", 1024),
            ("raw_ethernet_bw", 1024, "--promiscuous"), ("raw_ethernet_bw", 1024, *ADDRESSES),
            ("raw_ethernet_lat", 512, *ADDRESSES, "--tcp"),
            ("raw_ethernet_bw", 512, *ADDRESSES, "--vlan_en")):
        suite.case(f"{program} {size} B " + " ".join(str(word) for word in options), measure_raw,
                   stage, program, size, *options)


GROUPS = {"many": many, "basics": basics, "latency": options_of_latency, "bandwidth": options_of_bandwidth,
          "memory": memory, "sizes": all_sizes, "brief": brief, "xrc": xrc, "raw": raw}


def xrc_files_are_removed():
    """perftest leaves them, and the next user of the machine couldn't open them."""
    for end in ("", "_client", "_server"):
        with contextlib.suppress(OSError):
            os.unlink("/tmp/xrc_domain" + end)


def main():
    """The groups that the command line names, or all."""
    need_programs("ib_send_bw", "ib_atomic_lat", "raw_ethernet_bw")
    groups, cases = chosen(GROUPS, usual=[group for group in GROUPS if group != "brief"])
    suite = Suite("perftest " + " ".join(groups), only=cases)
    stage = Stage()
    for group in groups:
        GROUPS[group](suite, stage)
    suite.stage_closed(stage)
    xrc_files_are_removed()
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
