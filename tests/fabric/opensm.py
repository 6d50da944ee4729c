#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's OpenSM, infiniband-diags and osmtest, unmodified, on a fabric of two switches. What the
diags print is compared with oracle.txt, which ibsim and the same OpenSM made, but for what ibsim
does otherwise (DIFFERENT)."""
import os
import re
import sys

from stage import HERE, SMALL, can_run, main, need, poll_until, require

# Lines that begin so differ for a reason.
DIFFERENT = {
    "smpquery switchinfo": (
        "LinearFdbCap", "McastFdbTop", "MulticastFDBTop",   # ours is larger; OpenSM sets the top
        "InboundPartEnf", "OutboundPartEnf",                # we enforce partitions
        "FilterRaw"),                                       # and have no raw packets
    "saquery -s": ("capability_mask",),
    "ibroute -M": ("Multicast mlids",),                     # MulticastFDBTop
    "dump_mfts": ("Multicast mlids",),
    "smpdump": ("",),                                       # raw PortInfo: other capabilities
}

CHANGES = [
    (re.compile(r"^# Topology file: generated on .*"), "# Topology file"),
    (re.compile(r"((?:Xmit|Rcv)(?:Data|Pkts):\.+)\d+"), r"\1N"),
    (re.compile(r"activity count \d+"), "activity count N"),
    (re.compile(r"^(ibwarn: \[)\d+\]"), r"\1N]"),
    # Bit 15: QP1Dropped is counted, which ibsim doesn't say.
    (re.compile(r"\(CapMask: 0x9([23])00\)"), r"(CapMask: 0x1\g<1>00)"),
    # ibsim says of each port that it could do more than its cable.
    (re.compile(r" +\((?: |Could be[^)]*)?\)?$"), ""),
    # SLs beyond the lanes: to a lane that isn't there (ibsim), or by the remainder (ours).
    (re.compile(r"^(ports: .*?\| 7\|).*"), r"\1"),
    # Debian's releases have different ones.
    (re.compile(r"getopts \(version [\d.]+"), "getopts (version N"),
    (re.compile(r"running under Perl version [\d.]+"), "running under Perl version N"),
    (re.compile(r"\s+"), " "),
]


def normal(line):
    for pattern, text in CHANGES:
        line = pattern.sub(text, line)
    return line.strip()


def oracle():
    """(command, lines, exit code)."""
    with open(os.path.join(HERE, "oracle.txt"), encoding="utf-8") as file:
        parts = file.read().split("\n$ ")[1:]
    for part in parts:
        lines = part.splitlines()
        yield lines[0], lines[1:-1], int(lines[-1].removeprefix("rc="))


def compare(fabric, command, expected, code):
    different = next((lines for begin, lines in DIFFERENT.items() if command.startswith(begin)), ())

    def relevant(lines):
        lines = [normal(line) for line in lines]
        return sorted(line for line in lines if line and
                      not any(line.startswith(begin) for begin in different))

    got, text = fabric.run("H2", *command.split(), check=False)
    wanted, found = relevant(expected), relevant(text.splitlines())
    lost = [line for line in wanted if line not in found]
    new = [line for line in found if line not in wanted]
    if got == code and wanted == found:
        return ""
    return (f"`{command}` ended with {got}, oracle {code}\n" +
            "".join(f"  -{line}\n" for line in lost) + "".join(f"  +{line}\n" for line in new))


def the_diags_print_what_the_oracle_says(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    rows = list(oracle())
    require(len(rows) > 30, "the oracle has too few commands")
    wrong = [compare(fabric, *row) for row in rows if can_run(row[0].split()[0])]
    wrong = [text for text in wrong if text]
    require(not wrong, "".join(wrong))


def what_ibsim_cannot(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    _, text = fabric.run("H2", "saquery", "-N")
    require(text.count("NodeRecord") >= 6, f"RMPP: not all records\n{text}")
    _, text = fabric.run("H2", "ibportstate", "2", "7", "query")
    require("Peer PortInfo" in text, f"combined route: no peer\n{text}")
    fabric.spawn("H4", "ibping", "-S")
    poll_until(lambda: not fabric.run("H2", "ibping", "-c", "1", "6", check=False)[0],
               "ibping gets no answer")
    fabric.run("H2", "perfquery", "-x", "5", "1")
    fabric.run("H2", "perfquery", "-c", "5", "1")


def osmtest_passes(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    for flow in ("c", "a", "m"):
        _, text = fabric.run("H2", "osmtest", "-f", flow, "-m", "1")
        require("PASS" in text, f"osmtest -f {flow}\n{text[-1500:]}")


def ports_of_lids(fabric, switch):
    return {row["lid"]: row["port"]
            for row in fabric.ask(op="table", node=switch, kind="unicast")["entries"]}


def a_cut_link_is_routed_around(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    before = ports_of_lids(fabric, "S1")
    require(before == {1: 1, 2: 0, 3: 7, 4: 2, 5: 7, 6: 8}, f"table of S1: {before}")
    fabric.ask(op="link", node="S1", port=7, action="down")
    poll_until(lambda: ports_of_lids(fabric, "S1") == {1: 1, 2: 0, 3: 8, 4: 2, 5: 8, 6: 8},
               "S1 isn't routed around the cut link")
    require("num:128" in fabric.log("log"), "OpenSM got no trap 128")
    trace = fabric.ask(op="trace", **{"from": "H2", "to": "H3"})
    require(trace["result"] == "ok" and trace["hops"][1]["from_port"] == 8, str(trace))
    code, _ = fabric.run("H2", "ibqueryerrors", check=False)
    require(code == 1, "ibqueryerrors doesn't report the downed link")
    fabric.ask(op="link", node="S1", port=7, action="up")
    poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "the link isn't active again")


def counters_are_found_and_cleared(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    fabric.ask(op="errors", node="S1", port=1, counter="symbol", count=12)
    fabric.ask(op="errors", node="S1", port=8, counter="xmit_discards", count=500)
    code, text = fabric.run("H2", "ibqueryerrors", check=False)
    require(code == 1 and "[SymbolErrorCounter == 12" in text and
            "[PortXmitDiscards == 500" in text, f"ibqueryerrors: {code}\n{text}")
    fabric.run("H2", "ibqueryerrors", "-k", check=False)
    code, text = fabric.run("H2", "ibqueryerrors", check=False)
    require(not code, f"not cleared: {code}\n{text}")


def the_second_manager_takes_over(fabric):
    fabric.start(SMALL)
    first = fabric.manager("H1", "first", "-p", "2")
    with open(os.path.join(fabric.folder, "second.conf"), "w", encoding="ascii") as file:
        file.write("sminfo_polling_timeout 300\npolling_retry_number 3\n")
    second = fabric.spawn("H3", "opensm", "-d", "2", "-D", "0x43", "-f", "second", "-p", "1",
                          "-F", "second.conf")
    poll_until(lambda: "STANDBY" in fabric.log("second"), "the second manager isn't standby")
    first.kill()
    first.wait()
    poll_until(lambda: "Entering MASTER" in fabric.log("second"), "the second one isn't master")
    poll_until(lambda: fabric.ask(op="node", node="H2")["node"]["ports"][0]["sm_lid"] == 5,
               "H2 hasn't heard of the second manager")
    require(second.poll() is None, "the second manager ended")
    managers = [one["node"] for one in fabric.ask(op="status")["managers"]]
    require(managers == ["H3"], f"IsSM is set on {managers}")


if __name__ == "__main__":
    need("opensm", "osmtest", "ibnetdiscover", "smpquery", "saquery", "ibping")
    sys.exit(main([the_diags_print_what_the_oracle_says, what_ibsim_cannot, osmtest_passes,
                   a_cut_link_is_routed_around, counters_are_found_and_cleared,
                   the_second_manager_takes_over]))
