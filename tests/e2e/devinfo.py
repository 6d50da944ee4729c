#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's ibv_devices, ibv_devinfo and ibv_asyncwatch over Verbena."""
import re
import sys

from lib import SLOW, Stage, Suite, need_programs, poll_until, require, tail

# What ibv_devinfo -v prints: field and what its value must match.
FIELDS = {
    "hca_id": r"verbena0",
    "transport": r"InfiniBand \(0\)",
    "fw_ver": r"\d+\.\d+\.\d+",
    "node_guid": r"(?!0000:0000:0000:0000)[0-9a-f]{4}(:[0-9a-f]{4}){3}",
    "sys_image_guid": r"(?!0000:0000:0000:0000)[0-9a-f]{4}(:[0-9a-f]{4}){3}",
    "vendor_id": r"0x766562",
    "vendor_part_id": r"1",
    "phys_port_cnt": r"1",
    "max_mr_size": r"0x[1-9a-f][0-9a-f]*",
    "page_size_cap": r"0x[0-9a-f]+",
    "max_qp": r"[1-9]\d+",
    "max_qp_wr": r"[1-9]\d+",
    "max_sge": r"[1-9]\d*",
    "max_cq": r"[1-9]\d+",
    "max_cqe": r"[1-9]\d+",
    "max_mr": r"[1-9]\d+",
    "max_pd": r"[1-9]\d+",
    "max_qp_rd_atom": r"[1-9]\d*",
    "max_qp_init_rd_atom": r"[1-9]\d*",
    "atomic_cap": r"ATOMIC_(HCA|GLOB) \([12]\)",
    "max_mw": r"[1-9]\d+",
    "max_ah": r"[1-9]\d+",
    "max_srq": r"[1-9]\d+",
    "max_srq_wr": r"[1-9]\d+",
    "max_srq_sge": r"[1-9]\d*",
    "max_pkeys": r"1",
    "port": r"1",
    "state": r"PORT_ACTIVE \(4\)",
    "max_mtu": r"4096 \(5\)",
    "active_mtu": r"(256 \(1\)|512 \(2\)|1024 \(3\)|2048 \(4\)|4096 \(5\))",
    "link_layer": r"Ethernet",
    "gid_tbl_len": r"[1-9]\d*",
}


def fields_of(text):
    """name: value lines as a dictionary (the first of each name)."""
    found = {}
    for line in text.split("\n"):
        name, colon, value = line.strip().partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def devices(stage):
    """ibv_devices lists our device and nothing else."""
    text = stage.run("ibv_devices")
    rows = [line.split() for line in text.strip().split("\n")[2:]]
    require([row[0] for row in rows] == ["verbena0"], f"not exactly verbena0\n{tail(text)}")
    require(re.fullmatch(r"(?!0{16})[0-9a-f]{16}", rows[0][1]), f"odd GUID\n{tail(text)}")


def devinfo(stage):
    """ibv_devinfo -v: every field that a program decides by."""
    text = stage.run("ibv_devinfo", "-v")
    got = fields_of(text)
    wrong = [f"{name}: {got.get(name, '(absent)')}" for name, pattern in FIELDS.items()
             if not re.fullmatch(pattern, got.get(name, ""))]
    require(not wrong, f"unexpected: {'; '.join(wrong)}\n{tail(text, 90)}")
    gids = re.findall(r"GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)", text)
    require(gids, f"no GID\n{tail(text, 40)}")
    loopback = [gid for _, gid in gids if gid in ("::1", "::ffff:127.0.0.1")]
    # A program that chooses by position must not find an address that other hosts can't reach; but
    # a host without a network has no others.
    alone = stage.status()["devices"][0]["interfaces"] == ["lo"]
    require(bool(loopback) == alone, f"GIDs of the loopback interface: {loopback} of {gids}")
    require("RoCE v2" in text, f"no GID is of type RoCE v2\n{tail(text, 40)}")


def devinfo_options(stage):
    """The list, the choice of a device and a port, and the refusals."""
    require("1 HCA found" in stage.run("ibv_devinfo", "-l"), "ibv_devinfo -l shows no HCA")
    require("PORT_ACTIVE" in stage.run("ibv_devinfo", "-d", "verbena0", "-i", 1), "no port 1")
    process = stage.start("ibv_devinfo", "-d", "mlx5_0")
    require(process.wait(10 * SLOW) != 0, "a device that does not exist was found")


def asyncwatch(stage):
    """ibv_asyncwatch opens the device and listens; it is a client until it is ended."""
    watch = stage.start("ibv_asyncwatch")
    # Its standard output is a file here, so what it prints stays in its buffer: ask the daemon.
    seen = poll_until(lambda: any(client["pid"] == watch.pid and client["contexts"] == 1
                                  for client in stage.clients()), 10)
    require(seen, f"it is no client of the daemon\n{tail(watch.output())}")
    require(watch.running(), f"it ended by itself\n{tail(watch.output())}")
    watch.kill(15)
    watch.wait(5 * SLOW)
    stage.expect_no_clients()


def asyncwatch_prints(stage):
    """The same with a line-buffered output, to see its greeting."""
    need_programs("stdbuf")
    watch = stage.start("stdbuf", "-oL", "ibv_asyncwatch")
    poll_until(lambda: "async event FD" in watch.output(), 10)
    require(re.search(r"verbena0: async event FD \d+", watch.output()),
            f"no greeting\n{tail(watch.output())}")
    watch.kill(15)
    watch.wait(5 * SLOW)


def main():
    """All cases."""
    need_programs("ibv_devices", "ibv_devinfo", "ibv_asyncwatch")
    suite = Suite("devinfo")
    stage = Stage()
    suite.case("ibv_devices", devices, stage)
    suite.case("ibv_devinfo -v", devinfo, stage)
    suite.case("ibv_devinfo's options", devinfo_options, stage)
    suite.case("ibv_asyncwatch", asyncwatch, stage)
    suite.case("ibv_asyncwatch's output", asyncwatch_prints, stage)
    suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    sys.exit(main())
