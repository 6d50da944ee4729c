# SPDX-License-Identifier: BSD-2-Clause
"""Which tests of Debian's pyverbs suite may skip over Verbena, and for what reason.

A pattern (fnmatch) names module.Class.method. A test that skips and matches nothing here fails
pyverbs.py, and so does one that matches and passes: then this list must be made shorter.
"""

# Cards that Verbena isn't: every test of these modules asks for one by name, or it needs CUDA.
OTHER_DEVICES = ("test_mlx5_*", "test_efa*", "test_cuda_*")

# They look the device's interface up in /sys/class/infiniband: where `verbena run` may not make it.
NEED_SYSFS = ("test_rdmacm.CMTestCase.*",)

# Tests of later releases than Debian 12's 44: that there is none of such a name is no mistake.
NEWER_TESTS = ()

LATER = {
    "needs reserved huge pages": (
        "test_odp.OdpTestCase.test_odp_rc_huge_*",
        "test_parent_domain.ParentDomainTrafficTest.test_huge_page_traffic",
    ),
    "needs a graphics card to share memory with": (
        "test_mr.DmaBufMRTest.*",
        "test_mr.DmaBufTestCase.*",
    ),
}
