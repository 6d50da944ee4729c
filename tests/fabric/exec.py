#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs on a fabric's nodes by `verbena run --node` and `verbena fabric exec`: Debian's diags on
500 nodes at once, outputs without end, and what programs find in /sys/class/infiniband."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys

from stage import BUILD, PATIENCE, RUNTIME, SMALL, main, need, need_shell, poll_until, require

VERBENA = os.path.join(BUILD, "bin", "verbena")
DEVICE = "/sys/class/infiniband/verbena0"
NOBODY = "65534"
MANY = 500

IBSTATUS = """\
Infiniband device 'verbena0' port {port} status:
	default gid:	 fe80:0000:0000:0000:0000:0000:00{guid}
	base lid:	 {lid}
	sm lid:		 {sm}
	state:		 {state}
	phys state:	 5: LinkUp
	rate:		 10 Gb/sec (4X SDR)
	link_layer:	 InfiniBand
"""


def environment(fabric):
    result = fabric.environment()
    for name in ("VERBENA_NODE", "VERBENA_SYSFS"):
        result.pop(name, None)
    if RUNTIME:
        result.update(LD_PRELOAD=RUNTIME, ASAN_OPTIONS="detect_leaks=0")
    return result


def spawn(fabric, *words, before=(), **options):
    """Starts the command `verbena`; it is ended with the fabric."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    child = subprocess.Popen([*before, VERBENA, *words], cwd=fabric.folder, text=True,
                             env=environment(fabric), stdin=subprocess.DEVNULL, **options)
    fabric.children.append(child)
    return child


def verbena(fabric, *words, code=0, **options):
    """Runs the command; returns what it printed, and its messages."""
    child = spawn(fabric, *words, **options)
    out, err = child.communicate(timeout=PATIENCE * 5)
    require(child.returncode == code,
            f"verbena {' '.join(words)[:200]}: {child.returncode}\n{out[-2000:]}\n{err[-2000:]}")
    return out, err


def daemon_end(fabric):
    subprocess.run([VERBENA, "stop", "--force"], env=environment(fabric), check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def many_at_once(fabric):
    """As many programs as at once, each a diag on its own node of a large fabric."""
    net = os.path.join(fabric.folder, "tree.net")
    verbena(fabric, "fabric", "gen", "fat-tree", "--ports", "32", "--hosts", "4000", "-o", net)
    fabric.start(net)
    dice = random.Random(16)
    nodes = [f"H-{i}" for i in dice.sample(range(4000), MANY)]
    child = spawn(fabric, "fabric", "exec", ",".join(nodes), "sh", "-c",
                  "smpquery -D nodedesc 0; echo; echo ready {index}; exec sleep 600")
    descriptions, ready = {}, {}
    for line in child.stdout:
        node, _, text = line.rstrip("\n").partition(": ")
        if text.startswith("Node Description"):
            descriptions[node] = text.rpartition(".")[2]
        elif text.startswith("ready"):
            ready[node] = int(text.split()[1])
            if len(ready) == MANY:
                break
    require(ready == {node: i for i, node in enumerate(nodes)},
            f"{len(ready)} programs run at once: {child.stderr.read() if not ready else ''}")
    require(descriptions == {node: node for node in nodes}, "a program is on another node")
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=PATIENCE * 5)
    require(child.returncode == 128 + signal.SIGTERM, f"after SIGTERM: {child.returncode}\n{err}")
    require(f"failed on {MANY} of {MANY} nodes" in err and "signal 15" in err, err[-2000:])
    out, _ = verbena(fabric, "fabric", "exec", ",".join(nodes[:50]), "cat", f"{DEVICE}/node_desc")
    require(sorted(out.split("\n")[:-1]) == sorted(f"{node}: {node}" for node in nodes[:50]),
            f"files of other nodes are shown\n{out}")


def memory_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))


def output_without_end(fabric):
    """Programs that never stop writing wait for the reader; memory stays as it is."""
    fabric.start(SMALL)
    child = spawn(fabric, "fabric", "exec", "--no-sysfs", "H[1-4]", "sh", "-c",
                  "[ {index} = 0 ] && exec yes; [ {index} = 1 ] && exec tr '\\0' x </dev/zero; "
                  "while :; do echo {node} 0123456789 0123456789; done", stderr=subprocess.DEVNULL)
    amount, first = 0, None
    for line in child.stdout:
        node, _, text = line.partition(": ")
        require({"H1": text == "y\n", "H2": text == "x" * 8192 + "\n"}.get(
            node, text == f"{node} 0123456789 0123456789\n"), f"a line is {line[:100]!r}")
        amount += len(line)
        if not first and amount > 10 << 20:
            first = memory_kib(child.pid)
        if amount > 60 << 20:
            break
    last = memory_kib(child.pid)
    require(last < first + 1024, f"it had {first} KiB, then {last} KiB")
    child.stdout.close()
    child.wait(timeout=PATIENCE * 5)


def files_of_nodes(fabric):
    fabric.start(SMALL)
    out, _ = verbena(fabric, "run", "--node", "H2", "ibstatus")
    require(out == IBSTATUS.format(port=1, guid="10:0003", lid="0x0", sm="0x0", state="2: INIT") +
            "\n", out)
    # A program that runs meanwhile sees the change.
    waiting = spawn(fabric, "run", "--node", "H2", "sh", "-c",
                    f"until grep -q ACTIVE {DEVICE}/ports/1/state; do sleep 0.1; done; "
                    f"ibstatus verbena0:1; cat {DEVICE}/ports/1/counters/port_xmit_packets")
    many = spawn(fabric, "fabric", "exec", "H[3-4]", "sh", "-c",
                 f"until grep -q ACTIVE {DEVICE}/ports/1/state; do sleep 0.1; done; "
                 f"cat {DEVICE}/ports/1/lid")
    fabric.run("H1", "opensm", "-o", "-f", "log")
    # LIDs and GIDs as the oracle's ibaddr and ibstat have them.
    expected = IBSTATUS.format(port=1, guid="10:0003", lid="0x4", sm="0x1", state="4: ACTIVE")
    out, err = waiting.communicate(timeout=PATIENCE * 5)
    require(out.startswith(expected + "\n"), f"{out}\n{err}")
    require(int(out.split()[-1]) > 0, "no packet was counted")
    out, err = many.communicate(timeout=PATIENCE * 5)
    require(sorted(out.split("\n")) == ["", "H3: 0x5", "H4: 0x6"], f"{out}\n{err}")
    out, _ = verbena(fabric, "run", "--node", "S2", "ibstatus")
    require("port 0 status" in out and "base lid:	 0x3" in out, out)
    gids = verbena(fabric, "run", "--node", "H3", "ibaddr")[0]
    require("LID start 0x5 end 0x5" in gids, gids)
    for words in (("ibstat",), ("ibv_devinfo",), ("ibv_devices",)):
        verbena(fabric, "run", "--node", "H3", *words)


def shape_of_files(fabric):
    """What is there, and that it can't be changed but for the description."""
    fabric.start(SMALL)
    out, _ = verbena(fabric, "fabric", "exec", "--no-prefix", "H4", "sh", "-c",
                     f"cd {DEVICE}; cat node_type node_guid sys_image_guid hca_type ports/1/cap_mask; "
                     "ls ports/1/pkeys | wc -l; ls ports/1/gids | wc -l; ls ports/1/counters | wc -l; "
                     "cat ports/1/pkeys/0 ports/1/pkeys/63 ports/1/gids/7 ports/1/sm_sl "
                     "ports/1/lid_mask_count; cd ../../infiniband_mad; cat abi_version umad0/ibdev "
                     "umad0/port issm0/ibdev issm0/port; ls /sys/class/infiniband_verbs/abi_version; "
                     f"echo x 2>/dev/null >{DEVICE}/fw_ver || echo refused")
    capabilities = fabric.ask(op="node", node="H4")["node"]["ports"][-1]["capabilities"]
    require(out.split("\n") == [
        "1: CA", "0000:0000:0010:0006", "0000:0000:0010:0006", "Verbena", f"0x{capabilities:08x}",
        "64", "8", "21", "0xffff", "0x0000", "fe80:0000:0000:0000:0000:0000:0000:0000", "0", "0",
        "5", "verbena0", "1", "verbena0", "1", "/sys/class/infiniband_verbs/abi_version", "refused",
        ""], out)
    for words in (("run", "--node", "H4"), ("fabric", "exec", "H4")):
        text = f"named by {words[0]}"
        child = spawn(fabric, *words, "sh", "-c",
                      f"echo '{text}' >{DEVICE}/node_desc; exec sleep 600")
        poll_until(lambda: fabric.ask(op="node", node="H4")["node"]["description"] == text,
                   "the description that was written isn't the node's")
        fabric.ask(op="describe", node="H4", description="from outside")
        if words[0] == "run":
            poll_until(lambda: open(f"/proc/{child.pid}/root{DEVICE}/node_desc",
                                    encoding="ascii").read() == "from outside\n",
                       "a new description isn't in the file")
        child.terminate()
        child.communicate(timeout=PATIENCE * 5)


def followers(fabric):
    """Processes that keep files of this fabric up to date."""
    result = set()
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                name = file.read()
            with open(f"/proc/{pid}/environ", "rb") as file:  # empty: it has ended
                variables = file.read()
        except (OSError, UnicodeError):
            continue
        if name == "verbena-sysfs\n" and fabric.runtime.encode() in variables:
            result.add(pid)
    return result


def nothing_is_left(fabric):
    """The process in the background ends with the program, and with what that left behind."""
    fabric.start(SMALL)
    verbena(fabric, "run", "--node", "H1", "true")
    poll_until(lambda: not followers(fabric), "a process is left after `true`")
    child = spawn(fabric, "run", "--node", "H1", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    left, _ = child.communicate(timeout=PATIENCE * 5)
    require(len(followers(fabric)) == 1, "files of a process that was left behind aren't kept up "
            "to date")
    os.kill(int(left), signal.SIGTERM)
    poll_until(lambda: not followers(fabric), "a process is left")


def what_is_refused(fabric):
    _, err = verbena(fabric, "run", "--node", "H2", "sh", "-c", "exit 7", code=7)
    fabric.start(SMALL)
    _, err = verbena(fabric, "run", "--node", "H22", "true", code=1)
    require("no node `H22`: did you mean H2" in err, err)
    _, err = verbena(fabric, "fabric", "exec", "H[1-6]", "true", code=1)
    require("no nodes H[5-6]" in err, err)
    if os.geteuid() == 0 and shutil.which("setpriv"):
        for words in (("run", "--node", "H2"), ("fabric", "exec", "H2")):
            out, err = verbena(fabric, *words, "smpquery", "-D", "nodedesc", "0",
                               before=("setpriv", "--bounding-set=-sys_admin"))
            require(err.count("\n") == 1 and "mount namespace" in err, err)
            require("H2" in out, out)


def without_privileges(fabric):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("      (not root: the other tests are this one)")
        return
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    # By a shell of the user's: setpriv itself finds programs with root's rights.
    if subprocess.run([*user, "sh", "-c", 'exec "$0" version', VERBENA],
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("      (left out: the build can't be read by other users)")
        return
    os.chown(fabric.folder, int(NOBODY), int(NOBODY))
    os.chown(fabric.runtime, int(NOBODY), int(NOBODY))
    net = shutil.copy(SMALL, fabric.folder)
    os.chmod(net, 0o644)
    verbena(fabric, "fabric", "up", net, before=user)
    try:
        if subprocess.run([*user, "unshare", "-Um", "true"], stderr=subprocess.DEVNULL,
                          check=False).returncode:
            print("      (left out: no user namespaces here)")
            return
        for words, prefix in ((("run", "--node", "H2"), ""), (("fabric", "exec", "H2"), "H2: ")):
            out, err = verbena(fabric, *words, "cat", f"{DEVICE}/ports/1/gids/0", before=user)
            require(out == f"{prefix}fe80:0000:0000:0000:0000:0000:0010:0003\n" and not err,
                    f"{out}{err}")
    finally:
        verbena(fabric, "fabric", "down", before=user)


def with_daemon_ended(test):
    def wrapped(fabric):
        try:
            test(fabric)
        finally:
            daemon_end(fabric)
    wrapped.__name__ = test.__name__
    return wrapped


if __name__ == "__main__":
    need_shell()
    need("opensm", "smpquery", "ibstatus", "ibaddr", "ibstat", "ibv_devinfo")
    if subprocess.run(["unshare", "-m", "true"] if os.geteuid() == 0 else ["unshare", "-Um", "true"],
                      stderr=subprocess.DEVNULL, check=False).returncode:
        print("skipped: no mount namespace can be had here")
        sys.exit(77)
    sys.exit(main([with_daemon_ended(test) for test in (
        what_is_refused, files_of_nodes, shape_of_files, nothing_is_left, output_without_end,
        without_privileges, many_at_once)]))
