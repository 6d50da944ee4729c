#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""symbols.py OUR-LIBRARY DEBIAN-LIBRARY

Our library exports what Debian's exports: the same names under the same version nodes,
with the same default, as the same kind, objects in the same size; and the nodes inherit alike.
Beyond that our libraries have what OWN says (src/abi/private.h, infiniband/xrc.h) and LATER, and nothing else.
Fails at the first difference. Exit code 77: Debian's library is not installed.
"""
import os
import re
import sys

import private_nodes
from header_facts import Failure, run


# OFED's calls for XRC (include/infiniband/xrc.h).
OFED = {(f"ibv_{name}", "VERBENA_1.0") for name in (
    "open_xrc_domain", "close_xrc_domain", "create_xrc_srq", "create_xrc_rcv_qp",
    "modify_xrc_rcv_qp", "query_xrc_rcv_qp", "reg_xrc_rcv_qp", "unreg_xrc_rcv_qp")}
# SONAME -> what only our library has: (name, node).
OWN = {
    "libibverbs.so.1": {("VERBENA_PRIVATE_1", ""), ("VERBENA_1.0", ""),
                        ("verbena_create_cq_for_qp", "VERBENA_PRIVATE_1"),
                        ("verbena_context_removed", "VERBENA_PRIVATE_1"),
                        ("verbena_unknown_release", "VERBENA_PRIVATE_1"), *OFED},
}
def nodes(**of):
    """Nodes with what is in them."""
    return {("IBVERBS_1." + name[1:], "") for name in of} | {
        (call, "IBVERBS_1." + name[1:]) for name, calls in of.items() for call in calls.split()}


# What rdma-core got from 45 to 65 (docs/abi.md). Debian's library may have it.
LATER = {
    "libibverbs.so.1": private_nodes.symbols() | nodes(
        _15="ibv_alloc_dmah ibv_dealloc_dmah ibv_reg_mr_ex",
        _16="ibv_dm_export_dmabuf_fd ibv_query_port_speed",
        _17="ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr",
        _18="_ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr "
            "ibv_export_buf_dmabuf_fd ibv_inc_comp_cntr ibv_inc_err_comp_cntr "
            "ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr "
            "ibv_set_comp_cntr ibv_set_err_comp_cntr"),
    "librdmacm.so.1": {("RDMACM_1.4", ""), ("rdma_query_addrinfo", "RDMACM_1.4"),
                       ("rdma_resolve_addrinfo", "RDMACM_1.4"),
                       ("rdma_write_cm_event", "RDMACM_1.4"),
                       ("RDMACM_1.5", ""), ("repoll_create", "RDMACM_1.5"),
                       ("repoll_ctl", "RDMACM_1.5"), ("repoll_wait", "RDMACM_1.5")},
    "libibumad.so.3": {("IBUMAD_1.3", ""), ("umad_open_smi_port", "IBUMAD_1.3"),
                       ("IBUMAD_1.4", ""), ("umad_get_smi_gsi_pairs", "IBUMAD_1.4"),
                       ("umad_get_smi_gsi_pair_by_ca_name", "IBUMAD_1.4")},
    "libibmad.so.5": {("IBMAD_1.4", ""), ("mad_dump_linkspeedext2", "IBMAD_1.4"),
                      ("mad_dump_linkspeedexten2", "IBMAD_1.4"),
                      ("mad_dump_linkspeedextsup2", "IBMAD_1.4"),
                      ("IBMAD_1.5", ""), ("mad_rpc_open_port2", "IBMAD_1.5"),
                      ("mad_rpc_close_port2", "IBMAD_1.5")},
}


def exported(library):
    """(name, node) -> kind, binding, default or hidden, size of objects; of what it defines."""
    result = {}
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        field = line.split()
        if len(field) != 8 or not field[0].rstrip(":").isdigit() or field[6] == "UND":
            continue
        size, kind, binding, where, name = field[2], field[3], field[4], field[6], field[7]
        name, at, node = name.partition("@@") if "@@" in name else name.partition("@")
        result[name, node] = {
            "kind": "version node" if where == "ABS" else kind,
            "binding": binding,
            "version": {"@@": "default", "@": "hidden", "": "unversioned"}[at],
            "size": int(size, 0) if kind == "OBJECT" else None,
        }
    if not result:
        raise Failure(f"{library} exports nothing at all.")
    return result


def inheritance(library):
    """node -> its parents."""
    result, node = {}, None
    text = run("readelf", "-V", "-W", library)
    definitions = text.split("Version definition section", 1)[-1].split("Version needs", 1)[0]
    for line in definitions.splitlines():
        named = re.search(r"Name: (\S+)", line)
        parent = re.search(r"Parent \d+: (\S+)", line)
        if named:
            node = named[1]
            result[node] = []
        elif parent:
            result[node].append(parent[1])
    return result


def soname(library):
    found = re.search(r"SONAME\).*\[(.*)\]", run("readelf", "-d", "-W", library))
    return found[1] if found else "none"


def spelled(key):
    return "@".join(part for part in key if part)


def differences(ours, theirs, own=frozenset()):
    """All differences between two libraries, as sentences; `own` is what only ours must have."""
    if soname(ours) != soname(theirs):
        yield f"The SONAME is {soname(ours)} in our library and {soname(theirs)} in Debian's."
    our_symbols, their_symbols = exported(ours), exported(theirs)
    for key, their in sorted(their_symbols.items()):
        our = our_symbols.get(key)
        if our is None:
            elsewhere = sorted(node for name, node in our_symbols if name == key[0])
            hint = f"; ours has it under {', '.join(elsewhere)}" if elsewhere else ""
            yield f"{spelled(key)} is missing from our library{hint}."
            continue
        for what, value in their.items():
            # Of several private nodes the linker offers one, and no program is linked with it.
            if what == "version" and key[1].startswith("IBVERBS_PRIVATE_"):
                continue
            if our[what] != value:
                yield (f"{spelled(key)}: its {what} is {our[what]} in our library and {value} in "
                       f"Debian's.")
    for key in sorted(own - our_symbols.keys()):
        yield f"{spelled(key)}, which is our own, is missing from our library."
    for key in sorted(our_symbols.keys() - their_symbols.keys() - own):
        yield f"{spelled(key)} is exported by our library and unknown to Debian's."
    our_nodes, their_nodes = inheritance(ours), inheritance(theirs)
    for node, parents in their_nodes.items():
        if our_nodes.get(node) != parents:
            yield (f"Node {node} inherits from {our_nodes.get(node)} in our library and from "
                   f"{parents} in Debian's.")


def main(ours, theirs):
    if not os.path.exists(theirs):
        print(f"skipped: {theirs} is missing (packages libibverbs1, librdmacm1, libibumad3, libibmad5)")
        return 77
    if os.path.samefile(ours, theirs):
        print("Both files are the same one: that compares nothing.")
        return 1
    try:
        name = soname(ours)
        found = list(differences(ours, theirs, OWN.get(name, set()) | LATER.get(name, set())))
    except Failure as failure:
        found = [str(failure)]
    if found:
        print(found[0])
        print(f"({len(found)} differences in all)")
        if os.environ.get("VERBOSE"):
            print("\n".join(found[1:]))
        return 1
    print(f"equal: {len(exported(theirs))} symbols")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
