#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's pyverbs suite over Verbena: every test passes or is on the list of pyverbs_later.py.

The files come from the package rdma-core, most of them compressed; they are unpacked into a
directory of this run and run with Debian's python3 by the suite's own runner, one process for each
file, so that a crash costs one file only (and one process for all files that want another device).

It runs in a network of its own, because the tests of the connection manager need an interface with
an IPv4 address, and as root of it, because some tests want to be root's. Where neither can be had
(an ordinary user in a chroot) both kinds of test skip.

usage: pyverbs.py [FILE...]    (such as test_qp; without any: all)
"""
import fnmatch
import gzip
import os
import re
import shutil
import sys

from lib import FULL, SKIPPED, SLOW, Failure, Stage, require, tail
from network import own_network, take_network_rights
from pyverbs_later import LATER, NEED_SYSFS, NEWER_TESTS, OTHER_DEVICES

SOURCE = "/usr/share/doc/rdma-core/tests"
# What must be there: a suite that lost one of these would pass without saying much.
FILES = ("test_addr", "test_atomic", "test_cq", "test_cq_events", "test_cqex", "test_device",
         "test_fork", "test_pd", "test_qp", "test_qpex", "test_rdmacm", "test_relaxed_ordering")
LISTED = {pattern: reason for reason, patterns in LATER.items() for pattern in patterns}

RESULT = re.compile(r"^test_\w+ \((?:tests\.)?([\w.]+)\)")
OUTCOME = re.compile(r"\.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")


def unpack(target):
    """Copies the suite; compressed files are unpacked. Returns its modules' names."""
    os.makedirs(target)
    for name in os.listdir(SOURCE):
        path = os.path.join(SOURCE, name)
        if name.endswith(".py.gz"):
            with gzip.open(path, "rb") as packed, open(os.path.join(target, name[:-3]),
                                                       "wb") as file:
                shutil.copyfileobj(packed, file)
        elif name.endswith(".py"):
            shutil.copyfile(path, os.path.join(target, name))
    return sorted(name[:-3] for name in os.listdir(target) if re.match(r"test_\w+\.py$", name))


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


def other_device(name):
    """Whether a test is for somebody else's card: it may skip, or pass, but not fail."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in OTHER_DEVICES)


def why_skipped(name):
    """The reason for which a test may skip, or None."""
    return next((LISTED[pattern] for pattern in LISTED if fnmatch.fnmatch(name, pattern)), None)


def judge_one(name, outcome):
    """What is wrong with one result, or None."""
    skipped, why = outcome.startswith("skipped"), why_skipped(name)
    if outcome != "ok" and not skipped:
        return f"{name}: {outcome}"
    if other_device(name) or skipped and os.geteuid() and "by root" in outcome:
        return None
    if skipped and not why:
        return f"{name} skips, but nothing says that it may: {outcome}"
    if not skipped and why:
        return f"{name} passes now; take it off the list in tests/e2e/pyverbs_later.py ({why})"
    return None


def judge(found):
    """What is wrong with each result, as lines of text."""
    wrong = [judge_one(name, outcome) for name, outcome in sorted(found.items())]
    return [line for line in wrong if line]


def judge_completeness(found):
    """What is missing from the results of the whole suite, as lines of text."""
    wrong = [f"{pattern} is on the list, but no test has such a name" for pattern in LISTED
             if pattern not in NEWER_TESTS and not fnmatch.filter(found, pattern)]
    wrong += [f"{name}: no test ran" for name in FILES
              if not fnmatch.filter(found, name + ".*")]
    return wrong


def run_modules(stage, directory, names):
    """Some modules of the suite in one process; returns (results, output)."""
    patterns = [word for name in names for word in ("-k", f"*.{name}.*")]
    # Warnings would stand between a test's name and its outcome.
    process = stage.start("/usr/bin/python3", "-W", "ignore", os.path.join(directory, "run_tests.py"), "-v",
                          "--dev", "verbena0", "--port", 1, "--gid", 0, *patterns,
                          cwd=directory)
    trouble = ""
    try:
        status = process.wait(60 * SLOW)
        if status not in (0, 1):
            trouble = f"it ended with {status}\n"
    except Failure as failure:
        trouble = f"{failure}\n"
    text = process.output()
    return results_of(text), trouble + text


def report(title, found, text):
    """One line for a run, and its output when something failed."""
    passed = sum(outcome == "ok" for outcome in found.values())
    skipped = sum(outcome.startswith("skipped") for outcome in found.values())
    print(f"{title}: {len(found)} tests, {passed} ok, {skipped} skipped", flush=True)
    if passed + skipped < len(found) or not found:
        print(tail(text, 60))


def run_all(stage, only):
    """Every module, or those of `only`: name of a test -> outcome."""
    directory = os.path.join(stage.directory, "suite")
    names = [name for name in unpack(directory) if name in only or not only]
    runs = [[name] for name in names if not other_device(name)] * (5 if FULL else 1)
    runs.append([name for name in names if other_device(name)])
    all_found = {}
    for run in filter(None, runs):
        found, text = run_modules(stage, directory, run)
        report(run[0] if len(run) == 1 else f"{len(run)} modules for other devices", found, text)
        # Of several results of one test the bad one counts.
        all_found.update({test: outcome for test, outcome in found.items()
                          if outcome != "ok" or test not in all_found})
    return all_found


def main():
    """Runs the suite, then judges it."""
    if not os.path.isfile(os.path.join(SOURCE, "run_tests.py")):
        print(f"{SOURCE} is missing (package rdma-core): `make deps` installs it")
        sys.exit(SKIPPED)
    only = [word for word in sys.argv[1:] if not os.path.isdir(word)]
    why = take_network_rights()
    if why:
        print(f"in the host's network, because a network of its own {why}")
    else:
        own_network()
    # The library's warnings would stand in the middle of unittest's lines.
    stage = Stage(idle_ms=2000, VERBENA_LOG="error")
    wrong, found = [], {}
    try:
        if stage.start("test", "-d", "/sys/class/infiniband").wait(20 * SLOW):
            LISTED.update((pattern, "no /sys/class/infiniband here") for pattern in NEED_SYSFS)
        found = run_all(stage, only)
        wrong += judge(found) + (judge_completeness(found) if not only else [])
        stage.expect_no_clients()
        trouble = stage.close()
        require(not trouble, trouble)
    except Failure as failure:
        wrong.append(str(failure))
    finally:
        stage.close()
    for line in wrong:
        print(f"FAIL  {line}")
    passed = sum(outcome == "ok" for outcome in found.values())
    print(f"pyverbs: {passed} of {len(found)} passed, {len(wrong)} complaints")
    sys.exit(1 if wrong or not found else 0)


if __name__ == "__main__":
    main()
