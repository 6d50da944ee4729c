#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""diags.py OUR-LIBIBMAD

Debian's infiniband-diags print the same and exit alike with our libibmad.so.5 and with Debian's. They
look at a small subnet that ibsim simulates and OpenSM has configured; datagrams travel by Debian's
libibumad, into which ibsim's preloaded library puts itself. Fails at the first difference. Exit code
77: a program isn't installed, or the library is built with a sanitizer, whose run-time library and
ibsim's can't both come first.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PRELOADED = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"
PROGRAMS = ("ibsim", "opensm", "ibnetdiscover", "smpquery", "perfquery")

# LIDs are OpenSM's choice, which follows from the GUIDs: H1 1, S1 2, S2 3, H2 4, H3 5, H4 6.
COMMANDS = """
ibaddr
ibnetdiscover
ibnetdiscover -p
iblinkinfo
ibhosts
ibswitches
ibqueryerrors
ibroute 2
ibtracert 4 5
perfquery 5 1
perfquery -x 5 1
perfquery -a 2
perfquery -c 5 1
smpquery portinfo 5 1
smpquery portinfo 2 7
smpquery portinfo 99
smpquery nodeinfo 2
smpquery nodeinfo -D 0,1
smpquery -G nodeinfo 0x100005
smpquery switchinfo 2
smpquery nodedesc 5
smpquery pkeys 5
smpquery sl2vl 5
smpquery sl2vl 2
smpquery vlarb 5
smpquery guids 5
ibportstate 5 1
ibportstate 2 7
ibccquery CongestionInfo 5
vendstat 5
sminfo
ibping -c 1 5
"""

# What the requests themselves change, and times.
CHANGING = re.compile(r"((?:Xmit|Rcv)(?:Data|Pkts):\.+)\d+|(time )\d+ ms|(generated on ).*")


def environment(folder, node, library=None):
    result = dict(os.environ, IBSIM_SOCKNAME=f"verbena{os.getpid()}", SIM_HOST=node,
                  LD_PRELOAD=PRELOADED, OSM_CACHE_DIR=folder, OSM_TMP_DIR=folder)
    result.pop("LD_LIBRARY_PATH", None)
    if library:
        result["LD_LIBRARY_PATH"] = library
    return result


def output(words, folder, library):
    done = subprocess.run(words, cwd=folder, env=environment(folder, "H2", library), timeout=60,
                          capture_output=True, text=True)
    return CHANGING.sub(r"\1\2\3N", done.stdout) + f"exit code {done.returncode}\n"


def uses_ours(folder, library):
    """Whether the programs really load our library from there."""
    done = subprocess.run(["ldd", shutil.which("smpquery", path=path())], capture_output=True,
                          text=True, env=dict(os.environ, LD_LIBRARY_PATH=library), cwd=folder)
    return library in done.stdout


def path():
    return os.environ["PATH"] + ":/usr/sbin:/sbin"


def compare(folder, library):
    equal = 0
    for line in COMMANDS.strip().splitlines():
        words = line.split()
        words[0] = shutil.which(words[0], path=path())
        theirs = output(words, folder, None)
        ours = output(words, folder, library)
        if ours != theirs:
            print(f"`{line}` prints with our library:\n{ours}and with Debian's:\n{theirs}")
            return 1
        equal += 1
    print(f"equal: {equal} commands")
    return 0


def wait_ready(simulator):
    for line in simulator.stdout:
        if b"ready" in line:
            return
    raise SystemExit("ibsim ended before it was ready")


def main(library):
    if os.environ.get("VERBENA_SANITIZER_RUNTIME"):
        print("skipped: the library is built with a sanitizer")
        return 77
    missing = [name for name in PROGRAMS if not shutil.which(name, path=path())]
    if missing or not os.path.exists(PRELOADED):
        print(f"skipped: {missing or PRELOADED} is missing (packages infiniband-diags, opensm, "
              "ibsim-utils)")
        return 77
    with tempfile.TemporaryDirectory(prefix="verbena-diags-") as folder:
        own = os.path.join(folder, "lib")
        os.mkdir(own)
        os.symlink(os.path.realpath(library), os.path.join(own, "libibmad.so.5"))
        if not uses_ours(folder, own):
            print("The programs don't load our library: that compares nothing.")
            return 1
        net = os.path.join(os.path.dirname(os.path.abspath(__file__)), "small.net")
        # The simulator reads its console and ends with it.
        simulator = subprocess.Popen([shutil.which("ibsim", path=path()), "-s", net], cwd=folder,
                                     env=dict(os.environ,
                                              IBSIM_SOCKNAME=f"verbena{os.getpid()}"),
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL)
        try:
            wait_ready(simulator)
            manager = [shutil.which("opensm", path=path()), "-o", "-f", "opensm.log"]
            subprocess.run(manager, cwd=folder, env=environment(folder, "H1"), timeout=120,
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return compare(folder, own)
        finally:
            simulator.kill()
            simulator.wait()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
