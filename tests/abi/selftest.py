#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""selftest.py OUR-INCLUDE DEBIAN-INCLUDE DEBIAN-LIBRARY

The other tests of this folder can fail. Copies of our headers with one mistake each, and made-up
libraries with one mistake each, must be found wrong, and the sentence must name the mistake. The
correct copy must pass. Exit code 77: Debian's development package is not installed.
"""
import os
import shutil
import sys
import tempfile

import header_facts
import inlines
import symbols
from header_facts import CC, Failure, run

# header, what stands there, what shall stand there, what the complaint must mention
HEADER_MISTAKES = (
    ("verbs.h", "\tuint32_t vendor_err;\n\tuint32_t byte_len;",
     "\tuint32_t byte_len;\n\tuint32_t vendor_err;", "struct ibv_wc."),
    ("verbs.h", "\tuint16_t pkey_tbl_len;", "\tuint32_t pkey_tbl_len;", "struct ibv_port_attr"),
    ("verbs.h", "\t__be64 node_guid;", "\tuint64_t node_guid;", "ibv_device_attr.node_guid"),
    ("verbs.h", "\tint (*dealloc_mw)(struct ibv_mw *mw);", "\tint (*dealloc_mw)(void *mw);",
     "ibv_context_ops.dealloc_mw"),
    ("verbs.h", "\tuint64_t _ABI_placeholder3;\n", "", "struct verbs_context"),
    ("verbs.h", "\t\t__be32 imm_data;\n\t\tuint32_t invalidated_rkey;",
     "\t\t__be32 imm_data;", "struct ibv_wc"),
    ("verbs.h", "IBV_WC_RNR_RETRY_EXC_ERR = 13", "IBV_WC_RNR_RETRY_EXC_ERR = 12",
     "IBV_WC_RNR_RETRY_EXC_ERR"),
    ("verbs.h", "\tIBV_NODE_UNKNOWN = -1,", "\tIBV_NODE_UNKNOWN = 9,", "enum ibv_node_type"),
    ("verbs.h", "\tIBV_SEND_IP_CSUM = 1 << 4,\n", "", "IBV_SEND_IP_CSUM"),
    ("verbs.h", "\tIBV_QPS_UNKNOWN = 7,", "\tIBV_QPS_UNKNOWN = 7,\n\tIBV_QPS_ODD = 8,",
     "IBV_QPS_ODD"),
    ("verbs.h", "\tIBV_SYSFS_NAME_MAX = 64,", "\tIBV_SYSFS_NAME_MAX = 65,", "ibv_device"),
    ("verbs.h", "int ibv_resize_cq(struct ibv_cq *cq, int cqe);",
     "int ibv_resize_cq(struct ibv_cq *cq, unsigned cqe);", "ibv_resize_cq()"),
    ("verbs.h", "int ibv_destroy_srq(struct ibv_srq *srq);\n", "", "ibv_destroy_srq"),
    ("verbs.h", "static inline int ibv_is_qpt_supported(uint32_t caps,",
     "static inline int ibv_is_qpt_supported(uint64_t caps,", "ibv_is_qpt_supported()"),
    ("verbs.h", "#define IB_GRH_FLOWLABEL_MASK (0x000FFFFF)",
     "#define IB_GRH_FLOWLABEL_MASK (0x00FFFFFF)", "IB_GRH_FLOWLABEL_MASK"),
    ("verbs.h", "#define ETHERNET_LL_SIZE ETH_ALEN", "#define ETHERNET_LL_SIZE 6ul", "ETHERNET_LL_SIZE"),
    ("verbs.h", "#undef __VERBS_INT_OP\n", "", "__VERBS_INT_OP"),
    ("verbs_api.h", "#define IBV_ACCESS_OPTIONAL_FIRST ", "#define IBV_ACCESS_OPTIONAL_FIRST 1+",
     "IBV_ACCESS"),
    ("ib_user_ioctl_verbs.h", "\tRDMA_DRIVER_MANA = 20,\n", "", "RDMA_DRIVER_MANA"),
    ("tm_types.h", "\tuint8_t reserved[3];", "\tuint8_t reserved[2];", "struct ibv_tmh.reserved"),
    ("opcode.h", "\tIBV_OPCODE_FETCH_ADD = 20,", "\tIBV_OPCODE_FETCH_ADD = 21,",
     "IBV_OPCODE_FETCH_ADD"),
    ("arch.h", "#define ntohll ntohll\n", "#define ntohll (ntohll)\n", "ntohll"),
    ("sa.h", "\tuint8_t name[64];", "\tuint8_t name[60];", "struct ibv_sa_service_rec"),
    ("sa-kern-abi.h", "#define ibv_kern_path_rec ib_user_path_rec\n", "", "ibv_kern_path_rec"),
    ("rdma_cma.h", "\tRDMA_PS_TCP = 0x0106,", "\tRDMA_PS_TCP = 0x0107,", "RDMA_PS_TCP"),
    ("rdma_cma.h", "\tuint8_t port_num;\n", "", "struct rdma_cm_id"),
    ("umad.h", "\tuint64_t method_mask[2];\n\tuint32_t oui;",
     "\tuint32_t oui;\n\tuint64_t method_mask[2];", "struct umad_reg_attr."),
    ("umad_types.h", "\t__be16 status;\n", "\tuint16_t status;\n", "struct umad_hdr.status"),
    ("umad_sm.h", "\tuint8_t hop_ptr;\n\tuint8_t hop_cnt;",
     "\tuint8_t hop_cnt;\n\tuint8_t hop_ptr;", "struct umad_smp."),
    ("mad.h", "\tIB_PORT_LMC_F,\n", "", "IB_PC_XMT_WAIT_F"),
    ("mad.h", "\tunsigned pkey_idx;", "\tuint16_t pkey_idx;", "struct portid.pkey_idx"),
)

# The same for what inlines do, each in another one, so that one copy of the headers has them all. The
# last word is how the lines of that inline begin.
BEHAVIOUR_MISTAKES = (
    ("rdma_verbs.h", "\twr.opcode = IBV_WR_RDMA_READ;", "\twr.opcode = IBV_WR_RDMA_WRITE;",
     "rdma_post_readv:"),
    ("verbs.h", "return qp->context->ops.post_recv(qp, list, bad);",
     "return qp->context->ops.post_send(qp, (void *)list, (void *)bad);", "ibv_post_recv:"),
    ("verbs.h", "if (info->mr && info->mr->pd != mw->pd)\n\t\treturn EPERM;", "", "ibv_bind_mw:"),
    ("verbs.h", "\t*bad = list;\n", "", "ibv_post_srq_ops:"),
    ("verbs.h", "err == EOPNOTSUPP || err == ENOSYS", "err == EOPNOTSUPP", "ibv_query_device_ex:"),
    ("verbs.h", "(rkey & ~0xffu)", "(rkey & ~0xfu)", "ibv_inc_rkey:"),
    ("verbs.h", "\t\tpthread_cond_init(&wq->cond, NULL);\n", "", "ibv_create_wq:"),
    ("verbs.h", "return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr, access);",
     "return ibv_reg_mr_iova2(pd, addr, len, 0, access);", "__ibv_reg_mr:"),
    ("mad.h", "\tportid->lid = lid;\n", "", "ib_portid_set:"),
    ("umad_sa_mcm.h", "(flow_label & 0xfffff) << 8", "(flow_label & 0xffff) << 8",
     "umad_sa_mcm_set_sl_flow_hop:"),
)

# One that most inlines see.
COMMON_MISTAKES = (
    ("verbs.h", "__vext->sz < sizeof(*__vext)", "__vext->sz <= sizeof(*__vext)",
     "ibv_alloc_dm:"),
)


def mutated(original, work, name, mistakes):
    """A copy of the include directory with these mistakes."""
    copy = os.path.join(work, f"copy-{name}")
    shutil.copytree(original, copy)
    for header, old, new, _ in mistakes:
        path = os.path.join(copy, "rdma" if header.startswith("rdma_") else "infiniband", header)
        with open(path) as file:
            text = file.read()
        if old not in text:
            raise Failure(f"{header} does not contain `{old}`: adapt this test to the header.")
        with open(path, "w") as file:
            file.write(text.replace(old, new, 1))
    return copy


def in_words(mistake):
    _, old, new, _ = mistake
    return f"`{new.strip() or 'nothing'}` for `{old.strip()}`"


def must_mention(complaint, needle, mistake):
    """The complaint is a text, or a list of names."""
    if not complaint:
        raise Failure(f"A mistake went unnoticed: {mistake}")
    if needle not in complaint:
        raise Failure(f"The complaint about {mistake} does not mention {needle}:\n{complaint}")


def check_headers(ours, debians, work):
    theirs = header_facts.Facts(debians, os.path.join(work, "debian"))
    for number, mistake in enumerate(HEADER_MISTAKES):
        copy = mutated(ours, work, f"header{number}", [mistake])
        facts = header_facts.Facts(copy, os.path.join(work, f"facts{number}"))
        found = "\n".join(header_facts.differences(facts, theirs))
        must_mention(found, mistake[3], in_words(mistake))
    program = inlines.Generator(theirs).program()
    expected = inlines.notes(debians, program, work)
    for name, mistakes in ("behaviour", BEHAVIOUR_MISTAKES), ("common", COMMON_MISTAKES):
        copy = mutated(ours, work, name, mistakes)
        # "NAME: ..." of each inline that does something else than Debian's.
        wrong = {our.split(" ", 1)[0]
                 for our, their in zip(inlines.notes(copy, program, work), expected)
                 if our != their}
        for mistake in mistakes:
            must_mention(sorted(wrong), mistake[3], in_words(mistake))


def library(work, name, table):
    """A library that exports what the table says (see symbols.exported), and does nothing."""
    code, nodes = [], {}
    for number, ((symbol, node), what) in enumerate(sorted(table.items())):
        if what["kind"] == "version node":
            nodes.setdefault(symbol, [])
            continue
        own = f"own_{number}"
        if what["kind"] == "OBJECT":
            code.append(f"char {own}[{what['size']}] = {{ 1 }};")
        else:
            code.append(f"long {own}(void) {{ return 0; }}")
        at = "@@" if what["version"] == "default" else "@"
        code.append(f'__asm__(".symver {own}, {symbol}{at}{node}");')
        nodes.setdefault(node, []).append(symbol)
    source, path = os.path.join(work, name + ".c"), os.path.join(work, name + ".so")
    with open(source, "w") as file:
        file.write("\n".join(code) + "\n")
    with open(source + ".map", "w") as file:
        parent = ""
        for node in sorted(nodes, key=lambda n: [int(p) if p.isdigit() else 0
                                                 for p in n.split("_")[-1].split(".")]):
            private = "PRIVATE" in node
            listed = "".join(f" {symbol};" for symbol in nodes[node])
            hide = " local: own_*;" if private else ""
            file.write(f"{node} {{ global:{listed}{hide} }}{'' if private else parent};\n")
            parent = parent if private else " " + node
    run(CC, "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libibverbs.so.1",
        f"-Wl,--version-script={source}.map", source, "-o", path)
    return path


def without(table, key):
    return {k: v for k, v in table.items() if k != key}


def check_symbols(debians, work):
    table = symbols.exported(debians)
    listed = "ibv_resize_cq", "IBVERBS_1.1"
    flag = "verbs_allow_disassociate_destroy", "IBVERBS_PRIVATE_34"
    function = table[listed]
    mistakes = {
        "missing": (without(table, listed), "ibv_resize_cq@IBVERBS_1.1 is missing"),
        "moved": ({**without(table, listed), ("ibv_resize_cq", "IBVERBS_1.5"): function},
                  "under IBVERBS_1.0, IBVERBS_1.5"),
        "added": ({**table, ("ibv_odd", "IBVERBS_1.1"): function}, "ibv_odd@IBVERBS_1.1"),
        "hidden": ({**table, listed: {**function, "version": "hidden"}},
                   "is hidden in our library"),
        "large": ({**table, flag: {**table[flag], "size": 4}}, "size is 4 in our library and 1"),
        "function": ({**table, flag: function}, "kind is FUNC in our library and OBJECT"),
        "unparented": (without({k: v for k, v in table.items() if k[1] != "IBVERBS_1.5"},
                               ("IBVERBS_1.5", "")), "Node IBVERBS_1.6 inherits"),
    }
    correct = list(symbols.differences(library(work, "correct", table), debians))
    if correct:
        raise Failure(f"A correct library is called wrong: {correct[0]}")
    for name, (wrong, needle) in mistakes.items():
        found = "\n".join(symbols.differences(library(work, name, wrong), debians))
        must_mention(found, needle, f"the library with the mistake `{name}`")
    own = symbols.OWN["libibverbs.so.1"]
    found = "\n".join(symbols.differences(library(work, "ownless", table), debians, own))
    must_mention(found, "which is our own, is missing", "the library without our own symbols")
    return len(mistakes) + 1


def main(our_include, their_include, their_library):
    missing = header_facts.missing(their_include)
    if missing:
        print(f"skipped: {missing} is missing ({header_facts.PACKAGES})")
        return 77
    with tempfile.TemporaryDirectory(prefix="verbena-abi-") as work:
        try:
            check_headers(our_include, their_include, work)
            count = check_symbols(their_library, work)
        except Failure as failure:
            print(failure)
            return 1
    count += len(HEADER_MISTAKES) + len(BEHAVIOUR_MISTAKES) + len(COMMON_MISTAKES)
    print(f"all of {count} mistakes are found")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
