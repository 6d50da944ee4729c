#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's pyverbs suite over Verbena: every test of the files below passes or is on the list.

The files come from the package rdma-core, most of them compressed; they are unpacked into the
build tree and run with Debian's python3 by the suite's own runner. Each test must be "ok", except
those in LATER, which name a feature that does not exist yet. A skip that is not listed fails, and
so does a listed one that no longer skips: then the list must be made shorter.
"""
import gzip
import os
import re
import shutil
import sys

from lib import BUILD, FULL, SKIPPED, SLOW, Failure, Stage, require, tail

SOURCE = "/usr/share/doc/rdma-core/tests"
FILES = ("test_addr", "test_atomic", "test_cq", "test_cq_events", "test_cqex", "test_device",
         "test_fork", "test_pd", "test_qp", "test_qpex", "test_relaxed_ordering")

# Which of the suite's tests may skip, by the end of their names, and for what.
XRC, RAW, DM = "XRC QPs come later", "raw packet QPs come later", "device memory comes later"
LATER = {
    "test_atomic.AtomicTest.test_xrc_atomic_cmp_and_swap": XRC,
    "test_atomic.AtomicTest.test_xrc_atomic_fetch_and_add": XRC,
    "test_cqex.CqExTestCase.test_xrc_traffic_cq_ex": XRC,
    "test_relaxed_ordering.RoTestCase.test_ro_xrc_traffic": XRC,
    "test_qpex.QpExTestCase.test_qp_ex_xrc_send": XRC,
    "test_qpex.QpExTestCase.test_qp_ex_xrc_send_imm": XRC,
    "test_qpex.QpExTestCase.test_qp_ex_rc_atomic_write": "atomic write comes later",
    "test_qpex.QpExTestCase.test_qp_ex_rc_bind_mw": "memory windows come later",
    "test_qp.QPTest.test_create_raw_qp_no_attr": RAW,
    "test_qp.QPTest.test_create_raw_qp_with_attr": RAW,
    "test_qp.QPTest.test_create_raw_qp_ex_no_attr": RAW,
    "test_qp.QPTest.test_create_raw_qp_ex_with_attr": RAW,
    "test_qp.QPTest.test_query_raw_qp": RAW,
    "test_device.DMTest.test_create_dm": DM,
    "test_device.DMTest.test_create_dm_bad_flow": DM,
    "test_device.DMTest.test_destroy_dm": DM,
    "test_device.DMTest.test_destroy_dm_bad_flow": DM,
    "test_device.DMTest.test_dm_read": DM,
    "test_device.DMTest.test_dm_write": DM,
    "test_device.DMTest.test_dm_write_bad_flow": DM,
    "test_device.DMTest.test_multi_process_alloc_dm": DM,
    "test_device.SharedDMTest.test_import_dm": DM,
}
RESULT = re.compile(r"^test_\w+ \((?:tests\.)?([\w.]+)\)")
OUTCOME = re.compile(r"\.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")


def unpack(target):
    """Copies the suite into the build tree; compressed files are unpacked."""
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for name in os.listdir(SOURCE):
        path = os.path.join(SOURCE, name)
        if name.endswith(".py.gz"):
            with gzip.open(path, "rb") as packed, open(os.path.join(target, name[:-3]),
                                                       "wb") as file:
                shutil.copyfileobj(packed, file)
        elif name.endswith(".py"):
            shutil.copyfile(path, os.path.join(target, name))


def results_of(text):
    """module.Class.method -> outcome, from unittest's verbose output.

    A test with a docstring takes two lines, the outcome on the second; what a test prints itself
    may stand in between.
    """
    found, current = {}, None
    for line in text.split("\n"):
        started = RESULT.match(line)
        if started:
            current = started[1]
            found[current] = "no result"
        ended = OUTCOME.search(line)
        if ended and current:
            found[current] = ended[1]
            current = None
    return found


def judge(found):
    """What is wrong with the results, as lines of text."""
    wrong = []
    for name, outcome in sorted(found.items()):
        why = LATER.get(name)
        if outcome == "ok" and why:
            wrong.append(f"{name} passes now; take it off the list in tests/e2e/pyverbs.py "
                         f"({why})")
        elif outcome.startswith("skipped") and not why:
            wrong.append(f"{name} skips, but nothing says that it may: {outcome}")
        elif outcome != "ok" and not outcome.startswith("skipped"):
            wrong.append(f"{name}: {outcome}")
    listed = [name for name in LATER if name not in found]
    wrong += [f"{name} is on the list but does not exist" for name in listed]
    return wrong


def run_file(stage, directory, name):
    """One file of the suite; returns (results, output)."""
    process = stage.start("/usr/bin/python3", os.path.join(directory, "run_tests.py"), "-v",
                          "--dev", "verbena0", "--port", 1, "--gid", 0, "-k", f"*.{name}.*",
                          cwd=directory, environment={"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        process.wait(60 * SLOW)
    except Failure as failure:
        found = results_of(process.output())
        stuck = [test for test, outcome in found.items() if outcome == "no result"]
        return found, f"stuck in {', '.join(stuck) or 'no test'}: {failure}"
    return results_of(process.output()), process.output()


def main():
    """All files; the details of failures are printed at the end."""
    if not os.path.isfile(os.path.join(SOURCE, "run_tests.py")):
        print(f"{SOURCE} is missing (package rdma-core): `make deps` installs it")
        sys.exit(SKIPPED)
    directory = os.path.join(BUILD, "tests", "pyverbs")
    unpack(directory)
    only = [word for word in sys.argv[1:] if not os.path.isdir(word)]
    wrong, all_found = [], {}
    # The library's warnings would stand in the middle of unittest's lines.
    stage = Stage(idle_ms=2000, VERBENA_LOG="error")
    try:
        for name in FILES:
            if only and name not in only:
                continue
            for _ in range(5 if FULL else 1):
                found, text = run_file(stage, directory, name)
                ours = {test: outcome for test, outcome in found.items()
                        if test.startswith(name + ".")}
                fine = [outcome for outcome in ours.values() if outcome == "ok"]
                skips = [outcome for outcome in ours.values() if outcome.startswith("skipped")]
                print(f"{name}: {len(ours)} tests, {len(fine)} ok, {len(skips)} skipped",
                      flush=True)
                if not ours:
                    wrong.append(f"{name}: no test ran\n{tail(text)}")
                elif len(fine) + len(skips) < len(ours):
                    print(tail(text, 60))
                all_found.update(ours)
        if not only:
            wrong += judge(all_found)
        stage.expect_no_clients()
        trouble = stage.close()
        require(not trouble, trouble)
    except Failure as failure:
        wrong.append(str(failure))
    finally:
        stage.close()
    for line in wrong:
        print(f"FAIL  {line}")
    passed = sum(outcome == "ok" for outcome in all_found.values())
    print(f"pyverbs: {passed} of {len(all_found)} passed, {len(wrong)} complaints")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
