# SPDX-License-Identifier: BSD-2-Clause
"""What a set of headers declares: types, enumerators, functions, macros; and how two sets differ.

The compiler is asked, not the text: the headers are compiled with debugging information, which
tells sizes, offsets and types as they really are.
"""
import os
import re
import subprocess

import elf_dwarf

# The headers of libibverbs-dev, librdmacm-dev, libibumad-dev and libibmad-dev. verbs.h comes first:
# it sets the form of RDMA_UAPI_PTR. (librdmacm-dev's rdma_cma_abi.h is left out: it says what the
# kernel's rdma_user_cm.h says, under names of its own.)
HEADERS = ("infiniband/verbs.h", "infiniband/verbs_api.h", "infiniband/ib_user_ioctl_verbs.h",
           "infiniband/tm_types.h", "infiniband/opcode.h", "infiniband/arch.h", "infiniband/sa.h",
           "infiniband/sa-kern-abi.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h",
           "infiniband/umad.h", "infiniband/umad_types.h", "infiniband/umad_str.h",
           "infiniband/umad_sm.h", "infiniband/umad_sa.h", "infiniband/umad_sa_mcm.h",
           "infiniband/umad_cm.h", "infiniband/mad.h")

# Differences that are meant (docs/abi.md), as the sentences that differences() has for them. Ours are
# those of 65 (umad.h and mad.h of 56), so older ones lack what came later:
LATER = {
    f"{name} is in our headers and unknown to Debian's." for name in (
        # 45 to 56
        "struct umad_ca_pair", "struct ibmad_ports_item", "struct ibmad_ports_pair",
        "Enumerator of enum MAD_FIELDS: IB_PORT_LINK_SPEED_EXT_ACTIVE_2_F",
        "Enumerator of enum MAD_FIELDS: IB_PORT_LINK_SPEED_EXT_SUPPORTED_2_F",
        "Enumerator of enum MAD_FIELDS: IB_PORT_LINK_SPEED_EXT_ENABLED_2_F",
        "Enumerator of enum MAD_FIELDS: IB_PORT_LINK_SPEED_EXT_2_LAST_F",
        "Function umad_open_smi_port", "Function umad_get_smi_gsi_pairs",
        "Function umad_get_smi_gsi_pair_by_ca_name", "Function mad_rpc_open_port2",
        "Function mad_rpc_close_port2",
        "Member of struct ibv_qp_ex: wr_flush", "Member of struct ibv_port_attr: active_speed_ex",
        "Member of struct ib_uverbs_query_port_resp_ex: active_speed_ex",
        "enum ibv_placement_type", "enum ibv_selectivity_level",
        "enum ibv_query_qp_data_in_order_flags", "enum ibv_query_qp_data_in_order_caps",
        "Enumerator of enum ib_uverbs_access_flags: IB_UVERBS_ACCESS_FLUSH_GLOBAL",
        "Enumerator of enum ib_uverbs_access_flags: IB_UVERBS_ACCESS_FLUSH_PERSISTENT",
        "Enumerator of enum ibv_wc_opcode: IBV_WC_FLUSH",
        "Enumerator of enum ibv_access_flags: IBV_ACCESS_FLUSH_GLOBAL",
        "Enumerator of enum ibv_access_flags: IBV_ACCESS_FLUSH_PERSISTENT",
        "Enumerator of enum ibv_qp_create_send_ops_flags: IBV_QP_EX_WITH_FLUSH",
        "Enumerator of enum ibv_wr_opcode: IBV_WR_FLUSH",
        "Enumerator of enum ibv_port_cap_flags2: IBV_PORT_LINK_SPEED_XDR_SUP",
        "Function ibv_wr_flush", "Function ibv_wr_opcode_str", "struct ethhdr",
        # 57 to 65
        "struct ib_uverbs_buffer_desc", "struct ibv_dmah", "struct ibv_mr_init_attr",
        "struct ibv_fd_arr", "struct ibv_comp_cntr_caps", "struct ibv_comp_cntr",
        "struct ibv_comp_cntr_init_attr", "struct ibv_qp_attach_comp_cntr_attr",
        "struct ibv_dmah_init_attr", "union epoll_data", "struct epoll_event",
        *(f"Member of struct verbs_context: {name}" for name in (
            "free_buf", "alloc_buf", "dm_export_dmabuf_fd", "reg_mr_ex", "dealloc_dmah", "alloc_dmah")),
        "enum ib_uverbs_buffer_type", "enum ib_uverbs_comp_cntr_entry",
        "enum ib_uverbs_comp_cntr_modify_op", "enum ib_uverbs_qp_attach_comp_cntr_op",
        "enum ibv_mr_init_attr_mask", "enum ibv_qp_attach_comp_cntr_op", "enum ibv_comp_cntr_type",
        "enum ibv_tph_mem_type", "enum ibv_dmah_init_attr_mask", "enum EPOLL_EVENTS",
        "Enumerator of enum ib_uverbs_core_support: IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA",
        "Enumerator of enum rdma_driver_id: RDMA_DRIVER_IONIC",
        "Enumerator of enum ibv_odp_transport_cap_bits: IBV_ODP_SUPPORT_FLUSH",
        "Enumerator of enum ibv_odp_transport_cap_bits: IBV_ODP_SUPPORT_ATOMIC_WRITE",
        "Enumerator of enum ibv_event_type: IBV_EVENT_DEVICE_SPEED_CHANGE",
        "Enumerator of enum ibv_parent_domain_init_attr_mask: "
        "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
        *(f"Enumerator of enum rdma_cm_event_type: RDMA_CM_EVENT_{name}" for name in (
            "ADDRINFO_RESOLVED", "ADDRINFO_ERROR", "USER", "INTERNAL")),
        "Enumerator of the unnamed enumerations: EPOLL_CLOEXEC",
        *(f"Function {name}" for name in (
            "ibv_query_port_speed", "ibv_reg_mr_ex", "ibv_dm_export_dmabuf_fd",
            "_ibv_query_comp_cntr_caps", "ibv_query_comp_cntr_caps", "ibv_create_comp_cntr",
            "ibv_destroy_comp_cntr", "ibv_set_comp_cntr", "ibv_set_err_comp_cntr",
            "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_read_comp_cntr",
            "ibv_read_err_comp_cntr", "ibv_alloc_buf", "ibv_export_buf_dmabuf_fd", "ibv_free_buf",
            "ibv_reg_buf_mr", "ibv_alloc_dmah", "ibv_dealloc_dmah", "ibv_qp_attach_comp_cntr",
            "rdma_resolve_addrinfo", "rdma_query_addrinfo", "rdma_write_cm_event",
            "repoll_create", "repoll_ctl", "repoll_wait")),
        "Macro IBV_DEVICE_CC_DMA_BOUNCE", "Macro RAI_SA", "Macro RAI_DNS",
        # A declaration without a function, which 55 took out.
        "Function mad_register_port_client")
} | {
    "IB_FIELD_LAST_ of enum MAD_FIELDS is 670 in our headers and 666 in Debian's.",
    "struct ibv_qp_ex takes 360 bytes in our headers and 352 in Debian's.",
    "struct ibv_port_attr takes 56 bytes in our headers and 52 in Debian's.",
    "struct ib_uverbs_query_port_resp_ex.reserved is 2 bytes long in our headers and 6 bytes long "
    "in Debian's.",
    "struct ib_uverbs_query_port_resp_ex.reserved is of type `__u8[2]` in our headers and of type "
    "`__u8[6]` in Debian's.",
    "struct verbs_context takes 696 bytes in our headers and 648 in Debian's.",
}
# The same by rule. verbs_context grew at its beginning, and a union got a member.
LATER_RULES = (
    (r"struct verbs_context\.\w+ is at offset (\d+) in our headers and at offset (\d+) in Debian's\.",
     lambda found: int(found[1]) - int(found[2]) == 48),
    (r"struct rdma_cm_event\.param is of type `(.*); uint64_t arg at 0; }` in our headers and of type "
     r"`(.*); }` in Debian's\.", lambda found: found[1] == found[2]),
)
# Of 65 we have neither the kernel's headers (those of the system serve) nor umad.h's larger limits.
NOT_YET = re.compile(
    r"(struct ib_user_service_rec|enum ib_(placement_type|selectivity_level|uverbs_odp_\w+_cap_bits)|"
    r"Enumerator of enum ib_uverbs_(wc_opcode|wr_opcode|device_cap_flags): \w+) is in Debian's headers and "
    r"missing from ours\.|Macro UMAD_MAX_(DEVICES|PORTS) ")

PACKAGES = "packages libibverbs-dev, librdmacm-dev, libibumad-dev, libibmad-dev"

# Programs are compiled with the compiler of the build. Facts come from gcc, which alone can list
# prototypes (-aux-info).
CC = os.environ.get("CC", "cc")
GCC = os.environ.get("GCC", "gcc")


class Failure(Exception):
    """A difference, as a sentence for people."""


def run(*command, **options):
    """Runs a command; its output, or Failure with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if done.returncode:
        raise Failure(f"`{' '.join(command)}` failed with {done.returncode}:\n"
                      f"{done.stdout}{done.stderr}")
    return done.stdout


def missing(include):
    """A header that isn't there, or None."""
    paths = (os.path.join(include, name) for name in HEADERS)
    return next((path for path in paths if not os.path.exists(path)), None)


class Types:
    """Describes the types of one debugging information tree as comparable values."""

    NAMED = {"structure": "struct", "union": "union", "enumeration": "enum"}

    def __init__(self, entries):
        self.entries = entries

    def of(self, entry):
        reference = entry.get("type")
        return None if reference is None else self.entries[reference]

    def text(self, entry):
        """A type the way C would say it, roughly; typedefs by name, anonymous types in full."""
        if entry is None:
            return "void"
        name = entry.get("name")
        if entry.tag in self.NAMED:
            kind = self.NAMED[entry.tag]
            return f"{kind} {name}" if name else f"{kind} {{ {self.body_text(entry)} }}"
        if entry.tag in ("base", "typedef"):
            return name
        if entry.tag == "pointer":
            target, text = self.of(entry), self.text(self.of(entry))
            is_array = target is not None and target.tag == "array"
            return f"__typeof__({text}) *" if is_array else f"{text} *"
        if entry.tag in ("const", "volatile", "restrict"):
            return f"{entry.tag} {self.text(self.of(entry))}"
        if entry.tag == "array":
            return self.text(self.of(entry)) + self.bounds(entry)
        if entry.tag == "subroutine":
            parameters = ", ".join(self.text(self.of(child)) for child in entry.children
                                   if child.tag == "parameter")
            return f"{self.text(self.of(entry))} ({parameters})"
        return f"<{entry.tag}>"

    def bounds(self, entry):
        result = ""
        for child in entry.children:
            bound = child.get("upper_bound")
            count = child.get("count", None if bound is None else bound + 1)
            result += f"[{'' if count is None else count}]"
        return result

    def body_text(self, entry):
        if entry.tag == "enumeration":
            return ", ".join(f"{name} = {value}" for name, value in self.enumerators(entry).items())
        return " ".join(f"{what['type']} {name} at {what['offset']};"
                        for name, what in self.members(entry).items())

    def size(self, entry):
        """Bytes that an object of this type takes; 0 if the type does not say."""
        if entry is None:
            return 0
        if entry.get("size") is not None:
            return entry.get("size")
        if entry.tag == "pointer":
            return 8
        if entry.tag == "array":
            total = self.size(self.of(entry))
            for child in entry.children:
                bound = child.get("upper_bound")
                total *= child.get("count", 0 if bound is None else bound + 1)
            return total
        return self.size(self.of(entry)) if entry.tag != "subroutine" else 0

    def members(self, entry):
        """Members in order. Unnamed ones are called by their position; their type says the rest."""
        result = {}
        for number, child in enumerate(c for c in entry.children if c.tag == "member"):
            kind = self.of(child)
            name = child.get("name") or f"(unnamed member {number})"
            result[name] = {
                "offset": child.get("offset", 0),
                "size": self.size(kind),
                "type": self.text(kind),
                "bits": child.get("bit_size"),
            }
        return result

    def enumerators(self, entry):
        base = self.of(entry)
        signed = base is not None and base.get("encoding") in (5, 6)
        result = {}
        for child in entry.children:
            value = child.get("const_value")
            result[child.get("name")] = child.get("signed_value", value) if signed else value
        return result


class Facts:
    """Everything that one set of headers declares.

    include   directory that holds infiniband/ and rdma/
    work      directory for scratch files
    """

    def __init__(self, include, work):
        self.include = include
        self.work = work
        os.makedirs(work, exist_ok=True)
        self.files = {os.path.realpath(os.path.join(include, name)) for name in HEADERS}
        self.source = "".join(f"#include <{name}>\n" for name in HEADERS)
        self.read_macros()
        self.read_functions()
        self.read_debugging()

    def scratch(self, name):
        return os.path.join(self.work, name)

    def compile(self, name, text, *options):
        path = self.scratch(name)
        with open(path, "w") as file:
            file.write(text)
        return run(GCC, "-std=gnu17", "-w", "-I" + self.include, *options, path)

    def declared_here(self, path):
        return os.path.realpath(path) in self.files

    def read_macros(self):
        """name -> (parameter list or None, body), as left defined at the end."""
        self.macros = {}
        text = self.compile("macros.c", self.source, "-E", "-dD")
        here = False
        for line in text.splitlines():
            marker = re.match(r'# \d+ "([^"]+)"', line)
            if marker:
                here = self.declared_here(marker[1])
            undefined = re.match(r"#undef (\w+)", line)
            if undefined:
                self.macros.pop(undefined[1], None)
            define = re.match(r"#define (\w+)(\([^)]*\))?(?: (.*))?$", line)
            if here and define:
                body = re.sub(r"\s+", " ", define[3] or "").strip()
                self.macros[define[1]] = define[2], body

    def read_functions(self):
        """name -> "static" or "extern", of all functions declared or defined in the headers."""
        listing = self.scratch("prototypes.txt")
        self.compile("prototypes.c", self.source, "-c", "-o", self.scratch("prototypes.o"),
                     "-aux-info", listing)
        self.functions = {}
        with open(listing) as file:
            for line in file:
                found = re.match(r"/\* (\S+):\d+:\w+ \*/ (\w+) .*?(\w+) \(", line)
                if found and self.declared_here(found[1]):
                    self.functions[found[3]] = found[2]

    def read_debugging(self):
        """Types, from the debugging information; of functions through pointers of their type."""
        pointers = "".join(f"__typeof__({name}) *pointer_to_{name};\n" for name in self.functions)
        library = self.scratch("types.so")
        self.compile("types.c", self.source + pointers, "-shared", "-fPIC", "-nostdlib",
                     "-gdwarf-4", "-gstrict-dwarf", "-fno-eliminate-unused-debug-types",
                     "-o", library)
        self.entries = elf_dwarf.read_entries(library)
        self.types = Types(self.entries)
        self.aggregates, self.enums, self.anonymous, self.signatures = {}, {}, {}, {}
        unit = next(e for e in self.entries.values() if e.tag == "unit")
        for entry in unit.children:
            self.read_entry(entry)

    def read_entry(self, entry):
        types, name = self.types, entry.get("name")
        if entry.get("declaration"):
            return
        if entry.tag in ("structure", "union") and name:
            self.aggregates[f"{Types.NAMED[entry.tag]} {name}"] = {
                "size": entry.get("size"), "members": types.members(entry)}
        elif entry.tag == "enumeration":
            values = types.enumerators(entry)
            if not name:
                self.anonymous.update(values)
            else:
                self.enums[f"enum {name}"] = {
                    "base": types.text(types.of(entry)), "values": values}
        elif entry.tag == "variable" and name.startswith("pointer_to_"):
            self.signatures[name[len("pointer_to_"):]] = types.of(types.of(entry))

    def signature(self, name):
        return self.types.text(self.signatures[name])

    def value(self, macro):
        """A macro's value as a number, with its type's size and sign; None if it has none."""
        program = self.scratch("value")
        text = (self.source + "#include <stdio.h>\nint main(void)\n{\n"
                f"\tprintf(\"%lld in %zu bytes, signed %d\\n\", (long long)({macro}), "
                f"sizeof({macro}), (__typeof__({macro}))-1 < 0);\n}}\n")
        try:
            self.compile("value.c", text, "-o", program)
        except Failure:
            return None
        return run(program).strip()


def same_names(ours, theirs, kind):
    """Differences between two sets of names."""
    for name in theirs:
        if name not in ours:
            yield f"{kind}{name} is in Debian's headers and missing from ours."
    for name in ours:
        if name not in theirs:
            yield f"{kind}{name} is in our headers and unknown to Debian's."


def differences_of_aggregate(name, ours, theirs):
    if ours["size"] != theirs["size"]:
        yield f"{name} takes {ours['size']} bytes in our headers and {theirs['size']} in Debian's."
    yield from same_names(ours["members"], theirs["members"], f"Member of {name}: ")
    for member, their in theirs["members"].items():
        our = ours["members"].get(member, their)
        for what, unit in (("offset", "at offset {}"), ("size", "{} bytes long"),
                           ("bits", "{} bits wide"), ("type", "of type `{}`")):
            if our[what] != their[what]:
                yield (f"{name}.{member} is {unit.format(our[what])} in our headers and "
                       f"{unit.format(their[what])} in Debian's.")


def differences_of_values(name, ours, theirs):
    yield from same_names(ours, theirs, f"Enumerator of {name}: ")
    for enumerator, value in theirs.items():
        if ours.get(enumerator, value) != value:
            yield (f"{enumerator} of {name} is {ours[enumerator]} in our headers and {value} in "
                   f"Debian's.")


def differences_of_functions(ours, theirs):
    yield from same_names(ours.functions, theirs.functions, "Function ")
    for name in theirs.functions:
        if name not in ours.functions:
            continue
        if ours.functions[name] != theirs.functions[name]:
            yield (f"{name}() is {ours.functions[name]} in our headers and "
                   f"{theirs.functions[name]} in Debian's.")
        if ours.signature(name) != theirs.signature(name):
            yield (f"{name}() has the type `{ours.signature(name)}` in our headers and "
                   f"`{theirs.signature(name)}` in Debian's.")


def differences_of_macros(ours, theirs):
    """Constants must have the same value; of macros with parameters only those are compared.

    What such a macro does is tested by running it: see inlines.py.
    """
    yield from same_names(ours.macros, theirs.macros, "Macro ")
    for name, (parameters, body) in theirs.macros.items():
        our_parameters, our_body = ours.macros.get(name, (parameters, body))
        if (our_parameters is None) != (parameters is None):
            yield f"Macro {name} takes parameters in one set of headers and none in the other."
        elif parameters is not None:
            if parameters.count(",") != our_parameters.count(","):
                yield f"Macro {name}{our_parameters} is {name}{parameters} in Debian's headers."
        elif body.replace(" ", "") != our_body.replace(" ", ""):
            our, their = ours.value(name), theirs.value(name)
            if our is None or our != their:
                yield (f"Macro {name} is `{our_body}` ({our or 'no number'}) in our headers and "
                       f"`{body}` ({their or 'no number'}) in Debian's.")


def is_later(facts):
    """True of headers of rdma-core 56 or later, which have what 44 lacks."""
    return "ibv_wr_flush" in facts.functions


def is_meant(sentence):
    """Whether a difference is that of ours and an older release, or a known one from 65."""
    if sentence in LATER or NOT_YET.match(sentence):
        return True
    for pattern, holds in LATER_RULES:
        found = re.fullmatch(pattern, sentence)
        if found and holds(found):
            return True
    return False


def differences(ours, theirs):
    """All differences between two Facts, as sentences, but those that are meant."""
    yield from (sentence for sentence in all_differences(ours, theirs) if not is_meant(sentence))


def all_differences(ours, theirs):
    yield from same_names(ours.aggregates, theirs.aggregates, "")
    for name, their in theirs.aggregates.items():
        if name in ours.aggregates:
            yield from differences_of_aggregate(name, ours.aggregates[name], their)
    yield from same_names(ours.enums, theirs.enums, "")
    for name, their in theirs.enums.items():
        our = ours.enums.get(name, their)
        if our["base"] != their["base"]:
            yield f"{name} is stored as {our['base']} in our headers, {their['base']} in Debian's."
        yield from differences_of_values(name, our["values"], their["values"])
    yield from differences_of_values("the unnamed enumerations", ours.anonymous, theirs.anonymous)
    yield from differences_of_functions(ours, theirs)
    yield from differences_of_macros(ours, theirs)
