#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""inlines.py OUR-INCLUDE DEBIAN-INCLUDE

Our static inline functions do what Debian's do. A program calls each with many arguments, on a
made-up device in which every function pointer notes who called it with what; it needs no library.
It is compiled once with each set of headers, and the notes must be the same. Fails at the first
difference. Exit code 77: Debian's headers are not installed.

The program is generated from the types of Debian's headers. Its parts: the arena (one object of
each type that an inline takes, at a fixed address, so that pointers compare), a stub for each
function pointer and each exported function, a caller for each inline, and the loops.
"""
import os
import re
import sys
import tempfile

import header_facts
from header_facts import CC, Failure, run

POINTER = re.compile(r"^(?:const )?struct (\w+) \*$")
POINTER_TO_POINTER = re.compile(r"^struct (\w+) \* \*$")

# calloc() and free() by another name: addresses of the heap differ from run to run.
HEAP = ("umad_alloc", "umad_free")

PROLOGUE = """
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define ARENA ((void *)0x200000000)

struct arena;
static struct arena *A;
static unsigned long long result; /* what stubs return; for pointers, 0 means an object */
static unsigned long long number; /* which integers callers pass */
static sigjmp_buf escape;

static void on_crash(int signal_number)
{
	siglongjmp(escape, signal_number);
}

/* The n-th argument of a call, if it is an integer. */
static unsigned long long integer(int n)
{
	switch (number) {
	case 0: return 3 + 2 * n;
	case 1: return 0;
	case 2: return 1;
	case 3: return 0x100000 + n;
	case 4: return ~0ull;
	default: return 0x123456789abcdefull * (n + 1);
	}
}
"""

# After the arena. What an inline builds on its stack has no fixed address, so its content is noted.
STACK = """
static const char *running; /* the inline that is called */

static int on_stack(const void *p)
{
	char here;

	return (const char *)p > &here - 4096 && (const char *)p < &here + (1 << 20);
}

static unsigned long long pointer(const void *p)
{
	return on_stack(p) ? 0x57ac : (uintptr_t)p;
}

static void note_segments(const struct ibv_sge *sge, int count)
{
	printf("segments %llx %d", pointer(sge), count);
	if (on_stack(sge))
		for (int i = 0; i < count; i++)
			printf(" {%llx %x %x}", (unsigned long long)sge[i].addr, sge[i].length,
			       sge[i].lkey);
}

static void note_recv(const struct ibv_recv_wr *wr)
{
	if (!on_stack(wr))
		return;
	printf("{id %llx next %llx ", (unsigned long long)wr->wr_id, pointer(wr->next));
	note_segments(wr->sg_list, wr->num_sge);
	printf("}");
}

/* Only what this kind of request has: the rest is whatever the stack held. */
static void note_send(const struct ibv_send_wr *wr)
{
	if (!on_stack(wr))
		return;
	printf("{id %llx next %llx opcode %d flags %x ", (unsigned long long)wr->wr_id,
	       pointer(wr->next), wr->opcode, wr->send_flags);
	note_segments(wr->sg_list, wr->num_sge);
	if (wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_RDMA_WRITE)
		printf(" to %llx %x", (unsigned long long)wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	if (!strcmp(running, "rdma_post_ud_send"))
		printf(" to %llx %x %x", pointer(wr->wr.ud.ah), wr->wr.ud.remote_qpn,
		       wr->wr.ud.remote_qkey);
	printf("}");
}
"""

MAIN = """
static unsigned long long before[(sizeof(struct arena) + 7) / 8];

static void report_changes(void)
{
	const unsigned long long *after = (const void *)A;

	for (size_t i = 0; i < sizeof(struct arena) / 8; i++)
		if (after[i] != before[i])
			printf(" [%zu]=%llx", i, after[i]);
}

static void attempt(const char *name, void (*call)(void))
{
	int crashed = sigsetjmp(escape, 1);

	if (!crashed) {
		memcpy(before, A, sizeof(*A));
		errno = 0;
		running = name;
		call();
		printf(" errno %d", errno);
		report_changes();
	} else {
		printf(" crashes");
	}
	printf("\\n");
}

static void one(int i, int scenario, size_t sz, unsigned mask, int kind)
{
	static const unsigned long long results[] = { 0, 7, EOPNOTSUPP, ENOSYS };

	for (int r = 0; r < 4; r++) {
		result = results[r];
		arena_fill(scenario, sz, mask, kind);
		printf("%s: scenario %d, sz %zu, mask 0x%x, kind %d, numbers %llu, stubs %llu:",
		       calls[i].name, scenario, sz, mask, kind, number, result);
		attempt(calls[i].name, calls[i].call);
	}
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_crash, .sa_flags = SA_NODEFER };
	const size_t full = sizeof(struct verbs_context) - offsetof(struct verbs_context, query_port);

	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGILL, &action, NULL);
	sigaction(SIGABRT, &action, NULL); /* a failed assertion */
	A = mmap(ARENA, sizeof(*A), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (A != ARENA)
		return 2;
	for (int i = 0; i < (int)(sizeof(calls) / sizeof(calls[0])); i++) {
		/* scenario 0: complete device; 1: not extended; 2: no slot filled */
		/* kind: an object's type, modulo 3; from 3 on the MR is another PD's */
		for (int scenario = 0; scenario < 3; scenario++)
			for (int kind = 0; kind < 6; kind++)
				for (number = 0; number < 6; number++)
					one(i, scenario, full, 0, kind);
		number = 0;
		for (unsigned mask = 1; mask < 128; mask++)
			for (int kind = 0; kind < 3; kind++)
				one(i, 0, full, mask, kind);
		for (size_t sz = 0; sz <= full + 8; sz += 8)
			one(i, 0, sz, 0, 0);
	}
	return 0;
}
"""


class Generator:
    """Writes the program from the facts about one set of headers."""

    def __init__(self, facts):
        self.facts = facts
        self.inlines = [name for name, kind in facts.functions.items()
                        if kind == "static" and name not in HEAP]
        self.objects = set()
        for name in facts.functions:
            for text in self.parameters(name) + [self.returned(name)]:
                found = POINTER.match(text) or POINTER_TO_POINTER.match(text)
                if found and f"struct {found[1]}" in facts.aggregates:
                    self.objects.add(found[1])
        self.objects -= {"ibv_context", "verbs_context"}

    def parameters(self, function):
        types = self.facts.types
        entry = self.facts.signatures[function]
        return [types.text(types.of(child)) for child in entry.children
                if child.tag == "parameter"]

    def variadic(self, function):
        return any(child.tag == "unspecified" for child in self.facts.signatures[function].children)

    def returned(self, function):
        return self.facts.types.text(self.facts.types.of(self.facts.signatures[function]))

    def object(self, name):
        """The arena's object of a type."""
        return {"ibv_context": "A->ctx.context", "verbs_context": "A->ctx"}.get(name, f"A->{name}")

    def argument(self, n, text):
        """What a caller passes as the n-th argument of this type."""
        found = POINTER.match(text)
        if found and found[1] in self.objects | {"ibv_context", "verbs_context"}:
            pointer = f"&{self.object(found[1])}"
            # Pointers to const are inputs, and some may be absent.
            return f"(number == 1 ? NULL : {pointer})" if text.startswith("const") else pointer
        found = POINTER_TO_POINTER.match(text)
        if found:
            return f"&A->list_{found[1]}"
        if text.endswith("*"):
            return "(void *)A->bytes"
        # Enumerations stay small: some are shift counts.
        limit = " & 0xff" if text.startswith("enum") else ""
        return f"({text})(integer({n}){limit})"

    def number(self, text, expression):
        return f"pointer({expression})" if text.endswith("*") else \
            f"(unsigned long long){expression}"

    def stub(self, name, label, returned, parameters, static="static "):
        declared = ", ".join(f"{text} a{n}" for n, text in enumerate(parameters)) or "void"
        if name in self.facts.signatures and self.variadic(name):
            declared += ", ..."
        lines = [f"{static}{returned} {name}({declared})", "{", f'\tprintf(" {label}(");']
        lines += [f'\tprintf("%llx,", {self.number(text, f"a{n}")});'
                  for n, text in enumerate(parameters)]
        lines += [f"\tnote_{text.split('_')[1]}(a{n});" for n, text in enumerate(parameters)
                  if text in ("struct ibv_send_wr *", "struct ibv_recv_wr *")]
        lines.append('\tprintf(")");')
        found = POINTER.match(returned)
        if found and found[1] in self.objects | {"ibv_context"}:
            lines += ["\tif (result)", "\t\terrno = (int)result;",
                      f"\treturn result ? NULL : &{self.object(found[1])};"]
        elif returned.endswith("*"):
            lines.append("\treturn NULL;")
        elif returned != "void":
            lines.append(f"\treturn ({returned})result;")
        return "\n".join(lines + ["}", ""])

    def slots(self):
        """(object, member, label, returned, parameters) of every function pointer in the arena."""
        places = [("A->ctx", "struct verbs_context"),
                  ("A->ctx.context.ops", "struct ibv_context_ops")]
        places += [(self.object(name), f"struct {name}") for name in sorted(self.objects)]
        for place, aggregate in places:
            for member, what in self.facts.aggregates[aggregate]["members"].items():
                found = re.match(r"^(.*?) \((.*)\) \*$", what["type"])
                if found:
                    parameters = found[2].split(", ") if found[2] else []
                    label = f"{aggregate.split()[1]}.{member}"
                    yield place, member, label, found[1], parameters

    def arena(self):
        # A context grows at its beginning, so its end is at an equal place.
        lines = ["struct arena {", "\tunsigned char before[4096 - sizeof(struct verbs_context)];",
                 "\tstruct verbs_context ctx;"]
        # At equal places with headers of later releases, where some are some bytes longer.
        lines += [f"\t__attribute__((aligned(64))) struct {name} {name};"
                  for name in sorted(self.objects)]
        lines += [f"\tstruct {name} *list_{name};" for name in sorted(self.objects)]
        return "\n".join(lines + ["\tunsigned char bytes[1024];", "};", ""])

    def fill(self):
        """Background of a pattern, so that what an inline writes shows; then what it reads."""
        lines = ["static void arena_fill(int scenario, size_t sz, unsigned mask, int kind)", "{",
                 "\tmemset(A, 0x5a, sizeof(*A));"]
        lines += [f"\t{place}.{member} = scenario == 2 ? NULL : stub_{label.replace('.', '_')};"
                  for place, member, label, _, _ in self.slots()]
        lines += ["\tA->ctx.sz = sz;",
                  "\tA->ctx.context.abi_compat = scenario == 1 ? NULL : __VERBS_ABI_IS_EXTENDED;"]
        for name in sorted(self.objects):
            members = self.facts.aggregates[f"struct {name}"]["members"]
            lines += self.links(f"A->{name}", members)
            for member, value in (("comp_mask", "mask"), ("type", "kind % 3"),
                                  ("srq_type", "kind % 3")):
                if member in members and not members[member]["type"].startswith("union"):
                    lines.append(f"\tA->{name}.{member} = {value};")
        lines += ["\tif (kind >= 3)", "\t\tA->ibv_mr.pd = (void *)A->bytes;",
                  "\tif (number == 1)", "\t\tA->ibv_mw_bind.bind_info.mr = NULL;"]
        return "\n".join(lines + ["}", ""])

    def links(self, place, members):
        """Makes pointers to other objects point to those of the arena."""
        for member, what in members.items():
            found = POINTER.match(what["type"])
            if found and found[1] in self.objects | {"ibv_context"}:
                yield f"\t{place}.{member} = &{self.object(found[1])};"
            elif what["type"] in self.facts.aggregates:
                yield from self.links(f"{place}.{member}",
                                      self.facts.aggregates[what["type"]]["members"])

    def caller(self, name):
        arguments = ", ".join(self.argument(n, text)
                              for n, text in enumerate(self.parameters(name)))
        returned = self.returned(name)
        call = f"{name}({arguments})"
        if returned != "void":
            call = f'{returned} value = {call};\n\tprintf(" = %llx", ' \
                   f'{self.number(returned, "value")})'
        return f"static void call_{name}(void)\n{{\n\t{call};\n}}\n"

    def program(self):
        parts = [self.facts.source, PROLOGUE, self.arena(), STACK]
        parts += [self.stub("stub_" + label.replace(".", "_"), label, returned, parameters)
                  for _, _, label, returned, parameters in self.slots()]
        parts += [self.stub(name, name, self.returned(name), self.parameters(name), static="")
                  for name, kind in self.facts.functions.items() if kind == "extern"]
        parts.append(self.fill())
        parts += [self.caller(name) for name in self.inlines]
        parts.append("static const struct {\n\tconst char *name;\n\tvoid (*call)(void);\n"
                     "} calls[] = {")
        parts += [f'\t{{ "{name}", call_{name} }},' for name in self.inlines]
        parts += ["};", MAIN]
        return "\n".join(parts)


def notes(include, program, work):
    """The program's output when compiled with the headers in include."""
    source, binary = os.path.join(work, "inlines.c"), os.path.join(work, "inlines")
    with open(source, "w") as file:
        file.write(program)
    # Without optimisation, so that a call through a NULL slot crashes instead of being undefined.
    run(CC, "-std=gnu17", "-w", "-O0", "-I" + include, source, "-o", binary)
    return run(binary).splitlines()


def first_difference(our_include, their_include, work):
    """A sentence, or None; and how many calls were compared."""
    facts = header_facts.Facts(their_include, os.path.join(work, "facts"))
    # What a call passes or returns that grew (docs/abi.md): the size of a port's attributes in 56, the
    # beginning of a context in 59.
    grown = () if header_facts.is_later(facts) else ("___ibv_query_port:",)
    if "alloc_dmah" not in facts.aggregates["struct verbs_context"]["members"]:
        grown += ("verbs_get_ctx:",)
    program = Generator(facts).program()
    ours = notes(our_include, program, work)
    theirs = notes(their_include, program, work)
    for our, their in zip(ours, theirs):
        if our.startswith(grown):
            continue
        if our != their:
            return f"An inline behaves differently.\n  ours:     {our}\n  Debian's: {their}", 0
    if len(ours) != len(theirs):
        return "One program stopped early.", 0
    return None, len(theirs)


def main(our_include, their_include):
    missing = header_facts.missing(their_include)
    if missing:
        print(f"skipped: {missing} is missing ({header_facts.PACKAGES})")
        return 77
    with tempfile.TemporaryDirectory(prefix="verbena-abi-") as work:
        try:
            found, count = first_difference(our_include, their_include, work)
        except Failure as failure:
            print(failure)
            return 1
    print(found or f"equal: {count} calls")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
