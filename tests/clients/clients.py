# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of other projects' programs share: where they run, and as whom.

Each program runs over `verbena run` without any option or variable of Verbena's, on one host as the
user who runs the tests and, if that is root, as an ordinary user with ordinary limits too; and
between two hosts. A host is a network namespace. Variables of the program itself choose its
transport where it would otherwise prefer shared memory of its own, so that data really goes over
Verbena. See tests/e2e/lib.py and network.py.
"""
import os
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

# pylint: disable=wrong-import-position
from lib import SANITIZE, SKIPPED, Failure, Stage, need_programs, require  # noqa: E402
from network import TwoHosts, own_network  # noqa: E402
from sysfs import Nobodys, may_be_nobody  # noqa: E402

ADDRESS = "10.9.9.1"  # of own_network()'s card

__all__ = ["ADDRESS", "Failure", "Nobodys", "Stage", "TwoHosts", "on_each_stage", "prepare",
           "on_two_hosts", "require"]


def prepare(*programs):
    """Skips the test where a program is missing; from now on this script is alone in a network."""
    need_programs(*programs)
    if SANITIZE:
        print("left out with sanitizers: these programs replace the C library's allocator as well")
        sys.exit(SKIPPED)
    own_network()


def ordinary_limits():
    """What Debian gives a user who logs in: 8 MiB of locked memory, 1024 descriptors."""
    for kind, wanted in ((resource.RLIMIT_MEMLOCK, 8 << 20), (resource.RLIMIT_NOFILE, 1024)):
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            wanted = min(wanted, most)
        resource.setrlimit(kind, (wanted, most))


def on_each_stage(suite, cases):
    """Calls cases(suite, stage, who): as this user, and as an ordinary one where there is another:
    an ordinary user is root of own_network()'s namespace, which has no second one."""
    stage = Stage()
    cases(suite, stage, "root" if os.geteuid() == 0 else "user")
    suite.stage_closed(stage)
    if not may_be_nobody():
        return
    ordinary_limits()
    stage = Nobodys()
    try:
        stage.run("ibv_devices")
    except Failure as failure:
        print(f"      an ordinary user is left out, who can't start the build's programs: {failure}")
        stage.close()
        return
    cases(suite, stage, "user")
    suite.stage_closed(stage)


def on_two_hosts(suite, cases):
    """Calls cases(suite, hosts, who) with two hosts on one cable."""
    hosts = TwoHosts()
    cases(suite, hosts, "two hosts")
    suite.stage_closed(hosts)
