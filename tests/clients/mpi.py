#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""OpenMPI and MPICH: mpi_check.c, which compares every message, collective result and window with
what it must be, with 2 to 8 processes, over what the library chooses by itself and over each way
to Verbena that it has; and with processes on two hosts. A remote shell of this script's own starts
them on the second host.

usage: mpi.py openmpi|mpich [WORD...]
"""
import os
import re
import subprocess
import sys

from clients import Nobodys, on_each_stage, on_two_hosts, prepare, require
from lib import FULL, VERBENA, Suite, tail

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_check.c")
PARTS = ("neighbours", "everyone to everyone", "collectives", "windows")
OPENMPI = ["mpirun.openmpi", "--oversubscribe"]
UCX = ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "opal_common_ucx_devices", "any",
       "--mca", "opal_common_ucx_tls", "any"]
# Debian's configuration leaves no way for windows between hosts but UCX's. In OpenMPI 4 pt2pt makes
# them of messages; in 5 rdma does.
OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
       "verbs;ofi_rxm", "--mca", "osc", "sm,{windows}"]

# How each is told of its hosts and the remote shell. Both hosts have this machine's name and
# memory, which the libraries would share, so the second one gets another name.
HOSTS = {
    "openmpi": ["--host", "{one}:{half},{two}:{half}", "--mca", "plm_rsh_agent", "{shell}", "--mca",
                "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"],
    "mpich": ["-hosts", "{one}:{half},{two}:{half}", "-launcher", "rsh", "-launcher-exec",
              "{shell}", "-iface", "eth0"],
}
SHELL = """#!/bin/sh
# usage: shell [-OPTION]... HOST WORD...: what ssh would do with the second host
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
export VERBENA_RUNTIME_DIR={runtime} TMPDIR={directory} HOME={directory}
exec nsenter --net=/proc/{pid}/ns/net unshare --uts \\
	sh -c 'hostname second; exec "$0" run -- sh -c "$1"' {verbena} "$*"
"""
# Both libraries hand the first host's variables on.
RANK = """#!/bin/sh
[ "$(hostname)" != second ] ||
	export VERBENA_RUNTIME_DIR={runtime} TMPDIR={directory} HOME={directory}
exec {program} "$@"
"""

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


def script(hosts, name, text):
    """A script that knows the second host; returns its path."""
    path, second = os.path.join(hosts.directory, name), hosts.client
    program = os.path.join(hosts.directory, "mpi_check")
    with open(path, "w", encoding="ascii") as file:
        file.write(text.format(runtime=second.runtime, directory=second.directory, verbena=VERBENA,
                               pid=second.holder.pid, program=program))
    os.chmod(path, 0o755)
    return path


def check(stage, program, words, environment, ranks):
    """All parts pass. A library that looks for a session's files finds the stage's directory."""
    environment = {**environment, "TMPDIR": stage.directory, "HOME": stage.directory,
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = stage.run(*words, "-n", ranks, program, 20 if FULL else 4, seconds=100,
                     environment=environment)
    for part in PARTS:
        require(f"ok    {part}, {ranks} ranks" in text, f"no {part}\n{tail(text)}")
    print("      " + re.search(r"8 bytes: .*", text)[0])


def windows():
    """The component of this OpenMPI for windows over any transport."""
    said = subprocess.run(["mpirun.openmpi", "--version"], stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    version = re.search(r"\) (\d+)\.", said)
    return "rdma" if version and int(version[1]) >= 5 else "pt2pt"


def main():
    """All cases of one library."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in LIBRARIES:
        sys.exit(__doc__)
    compiler, ways = LIBRARIES[name]
    suite = Suite(name, only=sys.argv[2:])
    prepare(compiler, ways["its choice"][0][0])
    if name == "openmpi":
        component = windows()
        ways = {way: ([word.replace("{windows}", component) for word in words], environment)
                for way, (words, environment) in ways.items()}

    def cases(suite, stage, who):
        program = os.path.join(stage.directory, "mpi_check")
        stage.run(compiler, "-O1", "-o", program, SOURCE, seconds=60, plain=True,
                  **({"cwd": stage.directory} if isinstance(stage, Nobodys) else {}))
        for way, (words, environment) in ways.items():
            for ranks in (2, 3, 4, 8) if FULL or way == "its choice" else (2, 4, 8):
                suite.case(f"{who}: {ranks} processes over {way}", check, stage, program, words,
                           environment, ranks)

    def between(suite, hosts, who):
        first = hosts.server
        program = os.path.join(hosts.directory, "mpi_check")
        first.run(compiler, "-O1", "-o", program, SOURCE, seconds=60, plain=True)
        shell, rank = script(hosts, "shell", SHELL), script(hosts, "rank", RANK)
        for way, (words, environment) in ways.items():
            if way == "its choice":
                continue  # its choice needn't be Verbena
            for ranks in (2, 4):
                told = [word.format(one=hosts.host, two=hosts.client.addresses["ipv4"], shell=shell,
                                    half=ranks // 2) for word in HOSTS[name]]
                suite.case(f"{who}: {ranks} processes over {way}", check, first, rank,
                           words + told, environment, ranks)
    on_each_stage(suite, cases)
    if os.geteuid() == 0:
        on_two_hosts(suite, between)
    suite.end()


if __name__ == "__main__":
    main()
