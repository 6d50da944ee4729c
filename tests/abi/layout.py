#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""layout.py OUR-INCLUDE DEBIAN-INCLUDE

Our public headers declare what Debian's libibverbs-dev, librdmacm-dev, libibumad-dev and
libibmad-dev declare: every structure with size and members, every enumerator, every function's type,
every macro constant, but for what docs/abi.md lists. Fails at the first difference. Exit code 77:
Debian's headers are not installed.
"""
import os
import sys
import tempfile

import header_facts


def main(our_include, their_include):
    missing = header_facts.missing(their_include)
    if missing:
        print(f"skipped: {missing} is missing ({header_facts.PACKAGES})")
        return 77
    if os.path.samefile(our_include, their_include):
        print("Both directories are the same one: that compares nothing.")
        return 1
    with tempfile.TemporaryDirectory(prefix="verbena-abi-") as work:
        try:
            ours = header_facts.Facts(our_include, os.path.join(work, "ours"))
            theirs = header_facts.Facts(their_include, os.path.join(work, "debian"))
        except header_facts.Failure as failure:
            print(failure)
            return 1
        found = list(header_facts.differences(ours, theirs))
    if found:
        print(found[0])
        print(f"({len(found)} differences in all)")
        if os.environ.get("VERBOSE"):
            print("\n".join(found[1:]))
        return 1
    print(f"equal: {len(theirs.aggregates)} structures and unions, {len(theirs.enums)} "
          f"enumerations, {len(theirs.functions)} functions, {len(theirs.macros)} macros")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
