#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Many verbs programs at once on nodes of fat trees: MPI with 16 ranks, each on a node of its own;
pairs of programs on random nodes; and what is killed under traffic takes nothing with it but
itself.

usage: clusters.py [PROGRAMS]: with a number, only that many programs at once on random nodes of a
net of 10,240 adapters and 800 switches.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

from programs import Shell, VERBENA, connect, daemon_end, environment, lid, start, verbena
from stage import HERE, PATIENCE, main, need, poll_until, require

MPI = os.path.join(HERE, "..", "clients", "mpi_check.c")
RANKS = 16
# Of each pair of programs the even one listens, and the odd one calls until it is there. Each checks
# the bytes that it received.
PAIR = """\
i=$1; port=$((21000 + i / 2))
[ $((i % 2)) = 0 ] && exec ibv_rc_pingpong -p $port -n 200 -s 4096 -c -e
while :; do
    out=$(ibv_rc_pingpong -p $port -n 200 -s 4096 -c -e 127.0.0.1 2>&1) && break
    case $out in *"ouldn't connect"*) sleep 0.2;; *) echo "$out"; exit 1;; esac
done
echo "$out"
"""


def tree(fabric, *words):
    """Starts a fat tree, and our subnet manager on its first node."""
    path = os.path.join(fabric.folder, "tree.net")
    verbena(fabric, "fabric", "gen", "fat-tree", *words, "-o", path)
    with open(path, encoding="ascii") as file:
        start(fabric, file.read(), manager=None)
    manager(fabric)


def manager(fabric):
    """Our subnet manager, on the first node."""
    verbena(fabric, "sm", "--node", "H-0", "--detach")

    def is_up():
        status = fabric.ask(op="status")
        return status["links_active"] == status["cables"]
    poll_until(is_up, "the subnet doesn't come up")


def sent(fabric, nodes):
    """Packets that each of the nodes has sent."""
    return [fabric.ask(op="counters", node=node, port=1)["ports"][0]["counters"]["xmit_packets"]
            for node in nodes]


def mpi(fabric):
    """OpenMPI over UCX by RC, MPICH by UD: 16 ranks on 16 nodes; every result is compared."""
    libraries = {
        "openmpi": (["mpirun.openmpi", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc",
                     "ucx", "--mca", "opal_common_ucx_devices", "any", "--mca",
                     "opal_common_ucx_tls", "any"], "$OMPI_COMM_WORLD_RANK", "rc,self"),
        "mpich": (["mpiexec.mpich"], "$PMI_RANK", "ud,self"),
    }
    present = [name for name in libraries if shutil.which(f"mpicc.{name}")]
    if not present:
        print("      skipped: no MPI is installed")
        return
    tree(fabric, "--ports", "8", "--hosts", str(RANKS))
    for name in present:
        words, rank, transports = libraries[name]
        program = os.path.join(fabric.folder, "mpi_check")
        subprocess.run([f"mpicc.{name}", "-O1", "-w", "-o", program, MPI], check=True,
                       timeout=PATIENCE)
        done = subprocess.run(
            [*words, "-n", str(RANKS), "sh", "-c",
             f"exec {VERBENA} run --node H-{rank} -- {program} 2"],
            env=dict(environment(fabric), UCX_TLS=transports, HOME=fabric.folder,
                     TMPDIR=fabric.folder, OMPI_ALLOW_RUN_AS_ROOT="1",
                     OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"), cwd=fabric.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PATIENCE * 2, check=False)
        for part in ("neighbours", "everyone to everyone", "collectives", "windows"):
            require(f"ok    {part}, {RANKS} ranks" in done.stdout,
                    f"{name}: {done.returncode}, no {part}\n{done.stdout[-2000:]}")
    require(min(sent(fabric, [f"H-{i}" for i in range(RANKS)])) > 200, "a node has sent nothing")
    daemon_end(fabric)


def random_nodes(fabric, programs, hosts, *words):
    """So many programs at once, in pairs, on random nodes, but not the manager's."""
    need("ibv_rc_pingpong")
    tree(fabric, "--hosts", str(hosts), *words)
    nodes = [f"H-{i}" for i in random.Random(16).sample(range(1, hosts), programs)]
    script = os.path.join(fabric.folder, "pair")
    with open(script, "w", encoding="ascii") as file:
        file.write(PAIR)
    before, begin = sent(fabric, nodes), time.monotonic()
    out = verbena(fabric, "fabric", "exec", ",".join(nodes), "sh", script, "{index}")
    require(out.count("iters in") == programs and "invalid data" not in out, out[-2000:])
    print(f"      {programs} programs in {time.monotonic() - begin:.1f} s")
    # 200 messages of four packets, and an acknowledgement of each message of the peer's; beside
    # these a few management datagrams.
    more = [after - first for first, after in zip(before, sent(fabric, nodes))]
    require(all(1000 <= one < 1100 for one in more), f"packets that were counted: {more}")
    daemon_end(fabric)


def pairs(fabric):
    random_nodes(fabric, 60, 1024, "--ports", "64")


def daemon_pid(fabric):
    done = subprocess.run([VERBENA, "status", "--json"], env=environment(fabric), text=True,
                          stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
    return json.loads(done.stdout)["pid"]


def manager_pid(fabric):
    return next(one["pid"] for one in fabric.ask(op="status")["clients"]
                if one["program"] == "verbena-sm")


def kills(fabric):
    """verbena-fabric, verbenad, the subnet manager and a program are killed again and again while
    two pairs send; the pairs' connections go on."""
    tree(fabric, "--ports", "8", "--hosts", str(RANKS))
    shells = [Shell(fabric, node) for node in ("H-1", "H-14", "H-6", "H-11")]
    answers, threads = [{}, {}], []
    for i, answer in enumerate(answers):
        one, other = shells[2 * i:2 * i + 2]
        connect(fabric, one, other, "rc", 0, 0, 5, 16, 7)
        target = other.facts("memory")

        def stream(one=one, target=target, answer=answer):
            answer.update(one.facts("stream", 8, 4000, target["address"], target["rkey"]))
        threads.append(threading.Thread(target=stream))
        threads[-1].start()
    count = 0
    while any(thread.is_alive() for thread in threads):
        victim = Shell(fabric, "H-3")
        victim.ask("qp", "rc")
        for pid in (manager_pid(fabric), victim.pid(), daemon_pid(fabric)):
            os.kill(pid, signal.SIGKILL)
        fabric.kill()
        fabric.start("--resume")
        manager(fabric)
        count += 1
    for thread in threads:
        thread.join()
    print(f"      {count} times; longest stalls "
          + ", ".join(f"{answer['longest_us'] / 1000:.1f} ms" for answer in answers))
    for answer in answers:
        require(answer["status"] == 0 and answer["done"] > 100, answer)
    # What was killed is there again: a new connection.
    one, other = Shell(fabric, "H-2"), Shell(fabric, "H-13")
    connect(fabric, one, other)
    require(one.facts("send", 10, 100)["done"] == 10 and len(other.received(10)) == 10, "afterwards")
    require(lid(fabric, "H-2") != lid(fabric, "H-13"), "LIDs")
    daemon_end(fabric)


def by_hand(fabric):
    random_nodes(fabric, int(sys.argv[1]), 10240, "--levels", "3", "--pods", "10", "--leaves", "32",
                 "--hosts-per-leaf", "32", "--spines", "160", "--ports", "64")


if __name__ == "__main__":
    sys.exit(main([by_hand] if len(sys.argv) > 1 else [pairs, kills, mpi]))
