#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""tgt and libiscsi: a target over iSER, whose disk libiscsi's programs find, and write to
and read back by their conformance tests.

usage: tgt.py [WORD...]
"""
import os
import re

from clients import ADDRESS, on_each_stage, prepare, require
from lib import Suite, poll_until, tail

TARGET = "iqn.2026-01.org.example:disk"
INITIATOR = "iqn.2026-01.org.example:initiator"
MIB = 32
URL = f"iser://{ADDRESS}:3260/{TARGET}/1"
# Tests of iscsi-test-cu that write and read what is on the disk.
TESTS = ["SCSI.Read10.Simple", "SCSI.Read16.Simple", "SCSI.Write10.Simple", "SCSI.Write16.Simple",
         "SCSI.Read10.BeyondEol", "SCSI.Write10.BeyondEol"]


def target_started(stage):
    """A tgtd with one disk, which the initiator may use."""
    disk = os.path.join(stage.directory, "disk")
    with open(disk, "wb") as file:
        file.truncate(MIB << 20)
    os.chmod(disk, 0o666)
    stage.environment["TGT_IPC_SOCKET"] = os.path.join(stage.directory, "ipc")
    stage.start("tgtd", "-f")

    def admin(*words):
        return stage.start("tgtadm", "--lld", "iser", "--mode", *words, plain=True)
    require(poll_until(lambda: admin("target", "--op", "show").wait(20) == 0, 20), "no tgtd")
    for words in (("target", "--op", "new", "--tid", 1, "--targetname", TARGET),
                  ("logicalunit", "--op", "new", "--tid", 1, "--lun", 1, "--backing-store", disk),
                  ("target", "--op", "bind", "--tid", 1, "-I", "ALL"),
                  ("target", "--op", "bind", "--tid", 1, "-Q", INITIATOR)):
        admin(*words).expect(20)


def capacity(stage):
    """The disk's size comes over the wire."""
    text = stage.run("iscsi-readcapacity16", "-i", INITIATOR, URL)
    require(re.search(rf"Total size:{MIB << 20}\b", text), tail(text))


def conformance(stage, test):
    """One of libiscsi's tests passes."""
    text = stage.run("iscsi-test-cu", "--dataloss", "-i", INITIATOR, f"--test={test}", URL)
    require(re.search(r"tests\s+1\s+1\s+1\s+0", text) and "failed" not in text.lower()
            .replace("failed inactive", ""), tail(text))


def cases(suite, stage, who):
    """All of it with one target."""
    suite.case(f"{who}: a target", target_started, stage)
    suite.case(f"{who}: its disk's size", capacity, stage)
    for test in TESTS:
        suite.case(f"{who}: {test}", conformance, stage, test)
    for process in stage.processes:
        process.kill()
        process.wait(20)


def main():
    """All cases."""
    prepare("tgtd", "tgtadm", "iscsi-readcapacity16", "iscsi-test-cu")
    suite = Suite("tgt")
    on_each_stage(suite, cases)
    suite.end()


if __name__ == "__main__":
    main()
