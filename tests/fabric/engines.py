#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""OpenSM's routing engines, QoS and partitions on fat trees and tori: all adapters reach one
another with the service levels that OpenSM's path records name, and where an engine promises it,
packets can't wait for one another in a circle."""
import os
import re
import subprocess
import sys

from stage import BUILD, PATIENCE, SMALL, main, need, poll_until, require

VERBENA = os.path.join(BUILD, "bin", "verbena")


def generate(fabric, *words):
    """The path of a generated topology."""
    path = os.path.join(fabric.folder, "generated.net")
    subprocess.run([VERBENA, "fabric", "gen", *words, "-o", path], check=True, timeout=PATIENCE,
                   env=fabric.environment())
    return path


def write(fabric, name, text):
    path = os.path.join(fabric.folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def levels(fabric):
    """The service level of each path, by LIDs: what SA says."""
    _, text = fabric.run(hosts(fabric)[1], "saquery", "-p")
    found = {}
    for record in text.split("PathRecord dump")[1:]:
        number = {key: int(re.search(rf"\b{key}\.*(0x[0-9a-f]+|\d+)", record)[1], 0)
                  for key in ("dlid", "slid", "sl")}
        found[number["slid"], number["dlid"]] = number["sl"]
    return found


def hosts(fabric):
    return [node["name"] for node in fabric.ask(op="topology", counters=False)["nodes"]
            if node["type"] == "ca"]


def lids(fabric):
    return {node["name"]: node["lid"]
            for node in fabric.ask(op="topology", counters=False)["nodes"]}


def traces(fabric):
    """The hops between all adapters, each as (node, port, lane)."""
    names, lid, level = hosts(fabric), lids(fabric), levels(fabric)
    for a in names:
        for b in names:
            if a == b:
                continue
            require((lid[a], lid[b]) in level, f"no path record from {a} to {b}")
            answer = fabric.ask(op="trace", **{"from": a, "to": b, "sl": level[lid[a], lid[b]]})
            require(answer["result"] == "ok", f"{a} to {b}: {answer}")
            yield [(hop["from"], hop["from_port"], hop["vl"]) for hop in answer["hops"]]


def circle_in(after):
    """A circle in a graph, or None."""
    done = set()
    for first in after:
        if first in done:
            continue
        way, stack = [], [(first, iter(after[first]))]
        on_way = {first}
        way.append(first)
        while stack:
            at, rest = stack[-1]
            to = next(rest, None)
            if to is None:
                stack.pop()
                on_way.discard(at)
                way.pop()
                done.add(at)
            elif to in on_way:
                return way[way.index(to):]
            elif to not in done:
                stack.append((to, iter(after.get(to, ()))))
                on_way.add(to)
                way.append(to)
    return None


def engine_routes(fabric, engine, topology, *options, is_free=True):
    """OpenSM brings the fabric up by this engine and no other."""
    fabric.start(topology)
    log = f"log-{len(fabric.children)}"
    fabric.manager(hosts(fabric)[0], log, "-R", engine, *options)
    require(f"{engine} tables configured on all switches" in fabric.log(log),
            f"another engine than {engine}:\n{fabric.log(log)[-2000:]}")
    cables = fabric.ask(op="status")["cables"]
    poll_until(lambda: fabric.ask(op="status")["links_active"] == cables, "links aren't active")
    after = {}
    for hops in traces(fabric):
        for here, there in zip(hops, hops[1:]):
            after.setdefault(here, set()).add(there)
    circle = circle_in(after)
    require(not is_free or not circle, f"{engine}: lanes wait for one another: {circle}")
    return log


def minhop(fabric):
    engine_routes(fabric, "minhop", generate(fabric, "fat-tree", "--ports", "8", "--hosts", "16"))


def guids(fabric, topology):
    """By name, before a manager is there."""
    fabric.start(topology)
    found = {node["name"]: node["guid"]
             for node in fabric.ask(op="topology", counters=False)["nodes"]}
    fabric.kill()
    return found


def updn(fabric):
    engine_routes(fabric, "updn", generate(fabric, "fat-tree", "--ports", "8", "--hosts", "16"))
    fabric.kill()
    fabric.children[-1].kill()
    # A torus has no roots of its own.
    topology = generate(fabric, "torus", "--size", "3x3", "--hosts", "1")
    roots = write(fabric, "roots", guids(fabric, topology)["S-0-0"] + "\n")
    engine_routes(fabric, "updn", topology, "-a", roots)


def ftree(fabric):
    engine_routes(fabric, "ftree", generate(fabric, "fat-tree", "--ports", "8", "--hosts", "32"))


def dor(fabric):
    # Dimensions in order are free of circles in hypercubes.
    engine_routes(fabric, "dor", generate(fabric, "torus", "--size", "2x2x2", "--hosts", "1"))


def lash(fabric):
    engine_routes(fabric, "lash", generate(fabric, "torus", "--size", "4x4", "--hosts", "1"))


def dfsssp(fabric):
    engine_routes(fabric, "dfsssp", generate(fabric, "torus", "--size", "4x4", "--hosts", "1"))


def sssp(fabric):
    engine_routes(fabric, "sssp", generate(fabric, "torus", "--size", "3x3", "--hosts", "1"),
                  is_free=False)


def torus_2qos(fabric):
    topology = generate(fabric, "torus", "--size", "5x5", "--hosts", "1")
    guid = guids(fabric, topology)
    first, right, below = (guid[name] for name in ("S-0-0", "S-1-0", "S-0-1"))
    conf = write(fabric, "torus.conf", f"torus 5 5 1\nxp_link {first} {right}\n"
                                       f"yp_link {first} {below}\nx_dateline 0\ny_dateline 0\n")
    engine_routes(fabric, "torus-2QoS", topology, "--torus_config", conf, "-Q")


def a_cut_torus_is_routed_again(fabric):
    """What makes torus-like engines worth their trouble: a cut cable leaves no circle."""
    topology = generate(fabric, "torus", "--size", "4x4", "--hosts", "1")
    log = engine_routes(fabric, "dfsssp", topology)
    link = next(link for link in fabric.ask(op="topology", counters=False)["links"]
                if all(fabric.ask(op="topology", counters=False)["nodes"][link[end][0]]["type"]
                       == "switch" for end in ("a", "b")))
    nodes = fabric.ask(op="topology", counters=False)["nodes"]
    ups = fabric.log(log).count("SUBNET UP")
    fabric.ask(op="link", node=nodes[link["a"][0]]["name"], port=link["a"][1], action="down")
    poll_until(lambda: fabric.log(log).count("SUBNET UP") > ups, "OpenSM didn't sweep again")
    after = {}
    for hops in traces(fabric):
        for here, there in zip(hops, hops[1:]):
            after.setdefault(here, set()).add(there)
    require(not circle_in(after), "lanes wait for one another after the cut")


def opensm_sets_up_qos(fabric):
    fabric.start(SMALL)
    conf = write(fabric, "conf", "qos TRUE\nqos_max_vls 4\nqos_high_limit 3\n"
                                 "qos_vlarb_high 0:4,1:8\nqos_vlarb_low 2:16,3:32\n"
                                 "qos_sl2vl 0,1,2,3,0,1,2,3,0,1,2,3,0,1,2,3\n")
    policy = write(fabric, "policy", "qos-ulps\n default : 0\n any, target-port-guid 0x100005 : 3\n"
                                     "end-qos-ulps\n")
    fabric.manager("H1", "log", "-F", conf, "-Q", "-Y", policy)
    _, text = fabric.run("H2", "smpquery", "sl2vl", "-D", "0")
    require(re.search(r"\| ?0\| 1\| 2\| 3\| 0\|", text), f"SL to VL\n{text}")
    _, text = fabric.run("H2", "smpquery", "vlarb", "-D", "0")
    require(re.search(r"0x4 *\|0x8 *\|", text) and re.search(r"0x10 *\|0x20 *\|", text),
            f"arbitration\n{text}")
    lid = lids(fabric)
    _, text = fabric.run("H2", "saquery", "PR", "--src-to-dst", f"{lid['H2']}:{lid['H3']}")
    require(re.search(r"sl\.*0x3", text), f"the path's level\n{text}")
    hop = fabric.ask(op="trace", **{"from": "H2", "to": "H3", "sl": 7})["hops"][1]
    require(hop["vl"] == 3, f"SL 7 has lane 3: {hop}")


def opensm_makes_partitions(fabric):
    fabric.start(SMALL)
    conf = write(fabric, "partitions", "Default=0x7fff, ipoib : ALL=full ;\n"
                                       "Five=0x0005 : 0x100001=full, 0x100003=limited ;\n")
    fabric.manager("H1", "log", "-P", conf)

    def result(a, b, pkey):
        return fabric.ask(op="trace", **{"from": a, "to": b, "pkey": pkey})["result"]

    require(result("H1", "H2", 0x8005) == result("H2", "H1", 0x0005) == "ok", "the members")
    require(result("H1", "H3", 0x8005) == "partition-xmit", "a switch lets through what H3 lacks")
    require(result("H3", "H1", 0x8005) == "partition-rcv", "a switch takes what H3 mustn't send")
    require(result("H2", "H1", 0x8005) == "partition-rcv", "a limited member sends as a full one")


TESTS = [minhop, updn, ftree, dor, lash, dfsssp, sssp, torus_2qos, a_cut_torus_is_routed_again,
         opensm_sets_up_qos, opensm_makes_partitions]

if __name__ == "__main__":
    need("opensm", "saquery", "smpquery")
    wanted = sys.argv[1:]
    sys.exit(main([test for test in TESTS if not wanted or test.__name__ in wanted]))
