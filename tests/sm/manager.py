#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`verbena sm` as a process on verbena-fabric and on ibsim: Debian's diags and osmtest over it,
cut links, LIDs that stay, two of it and OpenSM as rivals."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fabric"))
from stage import BUILD, PATIENCE, SMALL, main, need, poll_until, require

VERBENA = os.path.join(BUILD, "bin", "verbena")
MANAGER = os.path.join(BUILD, "bin", "verbena-sm")

QUERIES = ["CPI", "NR", "PIR", "SL2VL", "PKTR", "VLAR", "IIR", "LR", "SR", "PR", "MCMR", "LFTR",
           "MFTR", "SWIR", "SMIR", "GIR"]
# Record types of which a subnet that has just come up has none.
EMPTY = ("IIR", "SR", "MFTR", "MCMR")


def verbena(fabric, *words):
    return subprocess.run([VERBENA, *words], env=fabric.environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE, check=False)


class Manager:
    """A `verbena sm` with its log."""

    def __init__(self, fabric, node, *options):
        self.fabric, self.node = fabric, node
        self.path = os.path.join(fabric.folder, f"sm-{node}-{len(fabric.children)}")
        with open(self.path, "w", encoding="utf-8") as log:
            self.child = subprocess.Popen([MANAGER, *options], cwd=fabric.folder,
                                          env=fabric.environment(node), stderr=log,
                                          stdin=subprocess.DEVNULL)
        fabric.children.append(self.child)

    def log(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def wait(self, text, count=1):
        poll_until(lambda: self.log().count(text) >= count or self.child.poll() is not None,
                   f"the manager on {self.node} doesn't say `{text}`\n{self.log()}")
        require(self.log().count(text) >= count, f"the manager on {self.node} ended:\n{self.log()}")
        return self

    def end(self):
        self.child.kill()
        self.child.wait()


def state_of(fabric, node):
    """SMInfo of the manager on a node, as another node sees it: priority and state."""
    lid = next(row["lid"] for row in fabric.ask(op="topology", counters=False)["nodes"]
               if row["name"] == node)
    code, text = fabric.run("H2", "sminfo", str(lid), check=False)
    found = re.search(r"state (\d)", text)
    return int(found[1]) if not code and found else None


def all_reach_all(fabric):
    hosts = ["H1", "H2", "H3", "H4"]
    for a in hosts:
        for b in hosts:
            if a != b:
                trace = fabric.ask(op="trace", **{"from": a, "to": b})
                require(trace["result"] == "ok", f"{a} to {b}: {trace}")


def up_with_a_manager(fabric):
    done = verbena(fabric, "fabric", "up", "--sm", SMALL)
    require(not done.returncode, f"fabric up --sm: {done.returncode}\n{done.stdout}")
    fabric.pid = fabric.ask(op="status")["pid"]
    status = fabric.ask(op="status")
    require(status["links_active"] == 6 and len(status["managers"]) == 1, str(status))
    all_reach_all(fabric)
    # It ends with the fabric, so that the next one can begin at once.
    for _ in range(3):
        require(not verbena(fabric, "fabric", "down").returncode, "fabric down")
        done = verbena(fabric, "fabric", "up", "--sm", SMALL)
        require(not done.returncode, f"fabric up --sm again: {done.returncode}\n{done.stdout}")
    status = fabric.ask(op="status")
    fabric.pid = status["pid"]
    require(len(status["clients"]) == 1, f"more than one manager: {status}")
    # When the fabric is killed, it ends some seconds later.
    manager = status["clients"][0]["pid"]
    fabric.kill()
    poll_until(lambda: not os.path.exists(f"/proc/{manager}") or
               " Z " in open(f"/proc/{manager}/stat", encoding="ascii").read(),
               "the manager goes on without its fabric")


def the_diags_like_it(fabric):
    fabric.start(SMALL)
    Manager(fabric, "H1").wait("subnet up")
    for query in QUERIES:
        _, text = fabric.run("H2", "saquery", "--smkey", "1", query)
        require(("dump" in text or "SA ClassPortInfo" in text) or query in EMPTY,
                f"saquery {query}:\n{text}")
    _, text = fabric.run("H2", "saquery", "PR", "--src-to-dst", "2:4")
    require(re.search(r"dlid\.*4", text) and re.search(r"mtu\.*0x85", text), text)
    _, text = fabric.run("H2", "saquery", "PR", "--src-to-dst", "2:99")
    require("dlid" not in text, f"a path to a LID that isn't there:\n{text}")
    for words in (["ibnetdiscover"], ["iblinkinfo"], ["ibqueryerrors"], ["ibhosts"], ["sminfo"],
                  ["ibtracert", "2", "4"], ["ibroute", "5"], ["saquery", "-g"], ["saquery", "-s"]):
        fabric.run("H2", *words)
    _, text = fabric.run("H2", "ibnetdiscover")
    require(text.count("# lid") >= 4 and '"H4"' in text, text)


def osmtest_passes(fabric):
    need("osmtest")
    fabric.start(SMALL)
    Manager(fabric, "H1").wait("subnet up")
    for flow in "cams":
        _, text = fabric.run("H2", "osmtest", "-f", flow, "-m", "1")
        require("PASS" in text, f"osmtest -f {flow}\n{text[-1500:]}")


def ibdiagnet_is_content(fabric):
    if not shutil.which("ibdiagnet"):
        return
    fabric.start(SMALL)
    Manager(fabric, "H1").wait("subnet up")
    _, text = fabric.run("H2", "ibdiagnet", "-o", fabric.folder)
    require("-E-" not in text, f"ibdiagnet:\n{text[-3000:]}")


def a_cut_link_is_routed_around(fabric):
    fabric.start(SMALL)
    manager = Manager(fabric, "H1").wait("subnet up")
    poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "the links aren't active")
    ups = manager.log().count("subnet up")
    begin = time.monotonic()
    fabric.ask(op="link", node="S1", port=7, action="down")
    manager.wait("5 links, 0 faults")
    print(f"      cut to subnet up, as a script sees it: {(time.monotonic() - begin) * 1e3:.0f} ms;"
          f" {manager.log().split('5 links')[1].splitlines()[0]}")
    all_reach_all(fabric)
    fabric.ask(op="link", node="S1", port=7, action="up")
    poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "the link doesn't come back")
    require(manager.log().count("subnet up") > ups, manager.log())
    # A switch that loses its tables gets them again.
    fabric.ask(op="power", node="S2", action="reboot")
    poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "S2 doesn't come back")
    poll_until(lambda: fabric.ask(op="trace", **{"from": "H1", "to": "H4"})["result"] == "ok",
               "S2 has no tables")
    all_reach_all(fabric)


def lids(fabric):
    return {row["name"]: row["lid"] for row in fabric.ask(op="topology", counters=False)["nodes"]}


def lids_stay(fabric):
    fabric.start(SMALL)
    manager = Manager(fabric, "H1").wait("subnet up")
    before = lids(fabric)
    require(sorted(before.values()) == [1, 2, 3, 4, 5, 6], str(before))
    manager.end()
    for node in ("S1", "H3"):
        fabric.ask(op="power", node=node, action="reboot")
    Manager(fabric, "H1").wait("subnet up")
    require(lids(fabric) == before, f"{before}, then {lids(fabric)}")
    fabric.run("H1", MANAGER, "--once", "--quiet", check=False)


def several_lids_a_port(fabric):
    fabric.start(SMALL)
    manager = Manager(fabric, "H1", "--lmc", "2").wait("subnet up")
    bases = lids(fabric)
    hosts = [bases[name] for name in ("H1", "H2", "H3", "H4")]
    require(all(lid and lid % 4 == 0 for lid in hosts) and len(set(hosts)) == 4, str(bases))
    traces = [fabric.ask(op="trace", **{"from": "H1", "lid": bases["H3"] + i}) for i in range(4)]
    first = {trace["hops"][1]["from_port"] for trace in traces}
    require(len(first) == 2, f"both cables between the switches are used: {first}")
    _, text = fabric.run("H2", "saquery", "PR", "--src-to-dst", f"{bases['H2']}:{bases['H3'] + 3}")
    require(text.count("dlid") == 1, text)
    # With other numbers of LIDs, ports keep the first one.
    manager.end()
    Manager(fabric, "H1", "--lmc", "1").wait("subnet up")
    require(lids(fabric) == bases, f"{bases}, then {lids(fabric)}")


def write(fabric, name, text):
    path = os.path.join(fabric.folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def port_of(fabric, node, number):
    return next(port for port in fabric.ask(op="node", node=node)["node"]["ports"]
                if port["port"] == number)


def trace(fabric, a, b, pkey):
    return fabric.ask(op="trace", **{"from": a, "to": b, "pkey": pkey})["result"]


PARTITIONS = """# H1 and H2 (limited) are in 5; H3 and H4 are limited members of 6
Default=0x7fff, ipoib : ALL=full ;
Five = 0x8005, ipoib, mtu=5, sl=2 :  # over two lines
    0x100001=full,
    0x100003=limited ;
Six=6, defmember=limited : 0x100005, 0x100007;
"""


def partitions_are_enforced(fabric):
    fabric.start(SMALL)
    Manager(fabric, "H1", "--partitions", write(fabric, "partitions", PARTITIONS)).wait("subnet up")
    keys = {node: port_of(fabric, node, 1)["pkeys"] for node in ("H1", "H2", "H3", "H4")}
    require(keys == {"H1": [0xffff, 0x8005], "H2": [0xffff, 0x0005], "H3": [0xffff, 6],
                     "H4": [0xffff, 6]}, str(keys))
    # The switch's ports have the keys of the adapters behind them, and refuse others.
    require(port_of(fabric, "S1", 1)["pkeys"] == [0xffff, 0x8005] and
            port_of(fabric, "S1", 7)["pkeys"] == [0xffff], "keys of S1's ports")
    results = [trace(fabric, *words) for words in (
        ("H1", "H2", 0x8005), ("H2", "H1", 0x0005), ("H1", "H3", 0x8005), ("H3", "H1", 0x8005),
        ("H3", "H4", 0x0006), ("H3", "H4", 0x8006), ("H1", "H3", 0xffff))]
    require(results == ["ok", "ok", "partition-xmit", "partition-rcv", "partition-xmit",
                        "partition-rcv", "ok"], str(results))
    # IPoIB's group of the partition, and the paths' service level.
    _, text = fabric.run("H1", "saquery", "-g")
    require("ff12:401b:8005::ffff:ffff" in text, text)
    _, text = fabric.run("H1", "saquery", "--smkey", "1", "PKTR")
    require("0x8005" in text and "0x0006" in text, text)
    for wrong, line in (("Five=5 : nobody ;\n", 1), ("\nFive=5, ipoip : ALL ;", 2),
                        ("Five : ALL ;\n", 1), ("Five=5 : ALL", 1), ("Five=5 : ALL=ful ;", 1)):
        code, text = fabric.run("H3", MANAGER, "--partitions", write(fabric, "wrong", wrong),
                                check=False)
        require(code == 1 and f"wrong:{line}:" in text, f"{wrong}: {text}")


def partitions_without_a_default_rule(fabric):
    fabric.start(SMALL)
    path = write(fabric, "partitions", "Five=5 : ALL_CAS=full ;\n")
    Manager(fabric, "H1", "--partitions", path, "--enforce", "off").wait("subnet up")
    require([port_of(fabric, node, 1)["pkeys"] for node in ("H1", "H2")] ==
            [[0xffff, 0x8005], [0x7fff, 0x8005]], "the default partition as OpenSM has it")
    require(port_of(fabric, "S1", 0)["pkeys"] == [0x7fff] and
            trace(fabric, "H1", "H3", 0x8009) == "ok", "nothing is enforced")


POLICY = """level 0 lane 0
level 3 lane 1
lane 0 low 10   # beside the others
lane 1 high 100
high-limit 7
path target 0x100005 service 0x1000-0x10ff level 3
path pkey 0x7fff class 9 level 4
"""


def levels_follow_the_policy(fabric):
    fabric.start(SMALL)
    Manager(fabric, "H1", "--policy", write(fabric, "policy", POLICY)).wait("subnet up")
    _, text = fabric.run("H2", "smpquery", "sl2vl", "-D", "0")
    require(re.search(r"\| ?0\| 1\| 2\| 1\| 4\|", text), text)
    _, text = fabric.run("H2", "smpquery", "vlarb", "-D", "0")
    require(re.search(r"0x0 \|0x1 \|", text) and "0xA" in text and "0x64" in text, text)
    _, text = fabric.run("H2", "saquery", "PR", "--src-to-dst", "2:5")
    require(re.search(r"sl\.*0x0", text), text)
    wrong = write(fabric, "wrong", "\nlevel 99 lane 1\n")
    code, text = fabric.run("H3", MANAGER, "--policy", wrong, check=False)
    require(code == 1 and "wrong:2:" in text, text)


def m_keys_protect(fabric):
    fabric.start(SMALL)
    manager = Manager(fabric, "H1", "--m-key", "random", "--m-key-protect", "2", "--m-key-lease",
                      "2", "--poll", "200").wait("subnet up")
    code, text = fabric.run("H2", "smpquery", "portinfo", "-D", "0,1", "1", check=False)
    require(code and "timed out" in text.lower(), f"read without the key: {text}")
    key = [name for name in os.listdir(fabric.runtime) if name.endswith(".mkey")]
    with open(os.path.join(fabric.runtime, key[0]), encoding="ascii") as file:
        value = file.read().strip()
    fabric.run("H2", "smpquery", "-y", value, "portinfo", "-D", "0,1", "1")
    # The manager hears of it, and asks with its key, which keeps the lease from running out.
    time.sleep(2.5)
    code, text = fabric.run("H2", "smpquery", "portinfo", "-D", "0,1", "1", check=False)
    require(code, f"the protection has ended: {text}")
    # It knows the key again, and ports obey it.
    manager.end()
    again = Manager(fabric, "H1", "--m-key", "random").wait("subnet up")
    require("0 faults" in again.log(), again.log())


def two_of_ours(fabric):
    fabric.start(SMALL)
    first = Manager(fabric, "H1", "--priority", "3", "--poll", "200", "--sweep", "500")
    first.wait("subnet up")
    second = Manager(fabric, "H3", "--priority", "7", "--poll", "200", "--sweep", "500")
    second.wait("this manager is the master")
    first.wait("handed over")
    require((state_of(fabric, "H1"), state_of(fabric, "H3")) == (2, 3), "states after the handover")
    all_reach_all(fabric)
    second.end()
    first.wait("this manager is the master", 2)
    all_reach_all(fabric)
    # A worse one stands by.
    third = Manager(fabric, "H4", "--priority", "1", "--poll", "200")
    third.wait("standing by")
    require(state_of(fabric, "H1") == 3 and state_of(fabric, "H4") == 2, "states with a worse one")


def ours_and_opensm(fabric):
    need("opensm")
    fabric.start(SMALL)
    with open(os.path.join(fabric.folder, "conf"), "w", encoding="utf-8") as file:
        file.write("sminfo_polling_timeout 200\npolling_retry_number 2\nsweep_interval 1\n")
    ours = Manager(fabric, "H1", "--priority", "5", "--poll", "200", "--sweep", "500")
    ours.wait("subnet up")
    # OpenSM is worse: it stands by, and takes over when ours dies.
    opensm = fabric.spawn("H3", "opensm", "-d", "2", "-D", "0x43", "-f", "low", "-F", "conf", "-p",
                          "1")
    poll_until(lambda: state_of(fabric, "H3") == 2, "OpenSM doesn't stand by\n" + fabric.log("low"))
    ours.end()
    poll_until(lambda: "SUBNET UP" in fabric.log("low"), "OpenSM doesn't take over")
    all_reach_all(fabric)
    # Ours is better: OpenSM hands over; then OpenSM dies, and nothing changes.
    ours = Manager(fabric, "H1", "--priority", "5", "--poll", "200", "--sweep", "500")
    ours.wait("this manager is the master")
    poll_until(lambda: state_of(fabric, "H3") == 2, "OpenSM didn't become a standby")
    opensm.kill()
    opensm.wait()
    # OpenSM is better: ours hands over, and takes over when OpenSM dies.
    opensm = fabric.spawn("H4", "opensm", "-d", "2", "-D", "0x43", "-f", "high", "-F", "conf", "-p",
                          "9")
    ours.wait("handed over")
    poll_until(lambda: "SUBNET UP" in fabric.log("high"), "OpenSM doesn't become the master")
    all_reach_all(fabric)
    opensm.kill()
    opensm.wait()
    ours.wait("this manager is the master", 2)
    all_reach_all(fabric)


def the_fabric_is_killed_and_resumed(fabric):
    fabric.start(SMALL)
    manager = Manager(fabric, "H1").wait("subnet up")
    fabric.kill()
    fabric.start("--resume")
    manager.wait("subnet up", 2)
    fabric.ask(op="link", node="S1", port=7, action="down")
    manager.wait("5 links, 0 faults")
    all_reach_all(fabric)


def ibsim_is_managed(fabric):
    preload = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"
    if not shutil.which("ibsim") or not os.path.exists(preload) or os.environ.get(
            "VERBENA_SANITIZER_RUNTIME"):
        return
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "input")
        os.mkfifo(fifo)
        name = f"verbena-sm-{os.getpid()}"
        environment = dict(os.environ, IBSIM_SOCKNAME=name, VERBENA_RUNTIME_DIR=fabric.runtime)
        keyboard = os.open(fifo, os.O_RDWR)
        log = os.path.join(folder, "log")
        with open(log, "wb") as output:
            fabric.children.append(subprocess.Popen(["ibsim", "-s", SMALL], cwd=folder,
                                                    env=environment, stdin=keyboard, stdout=output,
                                                    stderr=output))
        poll_until(lambda: "sim>" in open(log, encoding="utf-8", errors="replace").read(),
                   "ibsim doesn't begin")
        environment.update(LD_PRELOAD=preload, SIM_HOST="H1")
        done = subprocess.run([MANAGER, "--once", "--window", "4"], cwd=folder, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
        require(not done.returncode and "6 links, 0 faults" in done.stdout, done.stdout)
        environment.update(SIM_HOST="H2")
        done = subprocess.run(["ibtracert", "2", "4"], cwd=folder, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
        os.close(keyboard)
        require(not done.returncode and "To ca" in done.stdout, done.stdout)


TESTS = [up_with_a_manager, the_diags_like_it, osmtest_passes, ibdiagnet_is_content,
         a_cut_link_is_routed_around, lids_stay, several_lids_a_port,
         partitions_are_enforced, partitions_without_a_default_rule, levels_follow_the_policy,
         m_keys_protect, two_of_ours,
         ours_and_opensm, the_fabric_is_killed_and_resumed, ibsim_is_managed]

if __name__ == "__main__":
    need("saquery", "ibnetdiscover")
    wanted = sys.argv[1:]
    sys.exit(main([test for test in TESTS if not wanted or test.__name__ in wanted]))
