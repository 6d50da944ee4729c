#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""nodes.py OUR-LIBRARY

Each private node of rdma-core's releases has in our library what the release has (private_nodes.py), and
a program and a driver library that were linked with that release run on ours. The release is a made-up
library with its node.
"""
import os
import subprocess
import sys
import tempfile

import private_nodes
import symbols
from header_facts import CC, Failure, run

PROGRAM = """
int ibv_query_gid_type(void *, unsigned char, unsigned, int *);
void **ibv_get_device_list(int *);
int register_calls(void);
int main(void) { return ibv_query_gid_type == 0 || ibv_get_device_list == 0 || register_calls() != 1; }
"""
# A driver registers in a constructor, and refers to all that its release has.
DRIVER = """
void verbs_register_driver_{number}(const void *);
static const char provider[256];
static int calls;
int register_calls(void) {{ return calls; }}
{declarations}
void *const used[] = {{ {used} }};
__attribute__((constructor)) static void start(void)
{{ verbs_register_driver_{number}(provider); calls++; }}
"""


def build(folder, number):
    """A library of the release, a driver and a program that are linked with it."""
    def path(name):
        return os.path.join(folder, name)

    def write(name, text):
        with open(path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return path(name)

    names = sorted(private_nodes.names(number))
    write("release.c", "".join(f"void {name}(void) {{}}\n" for name in names)
          + "void ibv_get_device_list(void) {}\n")
    write("release.map", "IBVERBS_1.1 { global: ibv_get_device_list; };\n"
          f"IBVERBS_PRIVATE_{number} {{ global: " + " ".join(f"{name};" for name in names)
          + " local: *; };\n")
    os.mkdir(path("release"))
    release = path("release/libibverbs.so.1")
    run(CC, "-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1",
        f"-Wl,--version-script={path('release.map')}", "-o", release, path("release.c"))
    others = [name for name in names if "register_driver" not in name]
    write("driver.c", DRIVER.format(
        number=number, declarations="".join(f"extern char {name}[];\n" for name in others),
        used=", ".join(f"{name}" for name in others)))
    run(CC, "-shared", "-fPIC", "-Wl,-z,now", "-o", path("libdriver.so"), path("driver.c"), release)
    run(CC, "-Wl,-z,now", "-o", path("program"), write("program.c", PROGRAM), path("libdriver.so"),
        release, "-Wl,-rpath," + folder)
    return path("program")


def main(ours):
    exported = symbols.exported(ours)
    for number in private_nodes.NUMBERS:
        node = f"IBVERBS_PRIVATE_{number}"
        have = {name for name, where in exported if where == node}
        if have != private_nodes.names(number):
            print(f"{node} differs from the release's in {have ^ private_nodes.names(number)}.")
            return 1
        with tempfile.TemporaryDirectory() as folder:
            program = build(folder, number)
            result = subprocess.run([program], env=dict(
                os.environ, LD_LIBRARY_PATH=os.path.dirname(ours)), timeout=60, check=False)
            if result.returncode:
                print(f"a program of {node} ends with {result.returncode}")
                return 1
    print(f"{len(private_nodes.NUMBERS)} nodes are as in their releases; their programs run")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(sys.argv[1]))
    except Failure as failure:
        sys.exit(str(failure))
