#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""OpenMPI and MPICH: mpi_check.c, which compares every message, collective result and window with
what it must be, with 2 to 4 processes, over what the library chooses by itself and over each way
to Verbena that it has.

usage: mpi.py openmpi|mpich [WORD...]
"""
import os
import re
import sys

from clients import Nobodys, on_each_stage, prepare, require
from lib import FULL, Suite, tail

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_check.c")
PARTS = ("neighbours", "everyone to everyone", "collectives", "windows")
OPENMPI = ["mpirun.openmpi", "--oversubscribe"]
UCX = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "opal_common_ucx_devices", "any",
       "--mca", "opal_common_ucx_tls", "any"]
OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
       "verbs;ofi_rxm"]

# Compiler; and what runs a program: words, and variables.
LIBRARIES = {
    "openmpi": ("mpicc.openmpi", {
        "its choice": (OPENMPI, {}),
        "UCX, rc": (OPENMPI + UCX, {"UCX_TLS": "rc,self"}),
        "UCX, ud": (OPENMPI + UCX, {"UCX_TLS": "ud,self"}),
        "libfabric, verbs;ofi_rxm": (OPENMPI + OFI, {}),
    }),
    "mpich": ("mpicc.mpich", {
        "its choice": (["mpiexec.mpich"], {}),
        "UCX, rc": (["mpiexec.mpich"], {"UCX_TLS": "rc,self"}),
        "UCX, ud": (["mpiexec.mpich"], {"UCX_TLS": "ud,self"}),
    }),
}


def check(stage, program, words, environment, ranks):
    """All parts pass. A library that looks for a session's files finds the stage's directory."""
    environment = {**environment, "TMPDIR": stage.directory, "HOME": stage.directory,
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = stage.run(*words, "-n", ranks, program, 20 if FULL else 4, seconds=100,
                     environment=environment)
    for part in PARTS:
        require(f"ok    {part}, {ranks} ranks" in text, f"no {part}\n{tail(text)}")
    print("      " + re.search(r"8 bytes: .*", text)[0])


def main():
    """All cases of one library."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in LIBRARIES:
        sys.exit(__doc__)
    compiler, ways = LIBRARIES[name]
    suite = Suite(name, only=sys.argv[2:])
    prepare(compiler, ways["its choice"][0][0])

    def cases(suite, stage, who):
        program = os.path.join(stage.directory, "mpi_check")
        stage.run(compiler, "-O1", "-o", program, SOURCE, seconds=60, plain=True,
                  **({"cwd": stage.directory} if isinstance(stage, Nobodys) else {}))
        for way, (words, environment) in ways.items():
            for ranks in (2, 3, 4) if FULL or way == "its choice" else (2, 4):
                suite.case(f"{who}: {ranks} processes over {way}", check, stage, program, words,
                           environment, ranks)
    on_each_stage(suite, cases)
    suite.end()


if __name__ == "__main__":
    main()
