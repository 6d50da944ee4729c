#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What is wrong with a combination of objects is said in words, beside the errno or the status that
the tests named here check (tests/e2e/faults, raw).
"""
import os

from lib import BUILD, Stage, Suite, require, tail

# what: the program, its test, the sentence
CASES = {
    "a window on a region without the right": (
        "faults", "window_wrong_requests", "the region wasn't registered with IBV_ACCESS_MW_BIND"),
    "a window for writing on a region for reading": (
        "faults", "window_wrong_requests", "needs a region with IBV_ACCESS_LOCAL_WRITE"),
    "a window of another protection domain": (
        "faults", "window_wrong_requests",
        "the window belongs to another protection domain than the queue pair"),
    "a region of another protection domain": (
        "faults", "window_wrong_requests",
        "the region belongs to another protection domain than the window"),
    "an SRQ of another XRC domain": (
        "faults", "xrc_srq_of_another_domain", "no SRQ of its domain has the number"),
    "a full list of tags": ("faults", "tags_wrong_ops", "the list of tags is full"),
    "a rule that has a layer twice": (
        "raw", "specifications", "two specifications describe one layer"),
    "a rule that contradicts another": (
        "raw", "overlaps", "another rule of this priority is for the same frames"),
    "a rule with a flow action": (
        "raw", "specifications", "flow actions (ACTION_HANDLE) aren't supported"),
    "a rule for all frames on their way out": (
        "raw", "rules", "only normal rules describe frames, or have flags"),
    "counters for a flow that exists": (
        "raw", "counters", "counters aren't attached to a flow that exists"),
    "an allocator without memory": (
        "faults", "parent_allocator_fails", "the parent domain's allocator has no 512 bytes"),
    "fields of a later release": (
        "faults", "later_registration", "no support for the fields 0x10000000000 of comp_mask"),
}


def says(stage, program, test, sentence):
    """The test passes, and the log has the sentence."""
    text = stage.run(os.path.join(BUILD, "tests", "e2e", program), "-c", "local", test, seconds=60)
    require("1 passed, 0 failed" in text, tail(text))
    require(sentence in text, f"it doesn't say `{sentence}`\n{tail(text)}")


def main():
    """All cases."""
    suite = Suite("reasons")
    stage = Stage(VERBENA_LOG="info")
    for what, case in CASES.items():
        suite.case(what, says, stage, *case)
    suite.stage_closed(stage)
    suite.end()


main()
