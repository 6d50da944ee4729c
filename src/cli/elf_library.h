/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared libraries as the dynamic loader sees them: the version nodes that a library defines, its
 * symbols, and a copy of it with more of both. Files of 64-bit ELF for this processor's byte order.
 * Nothing of a file is believed that wasn't checked against its size. One thread; no state.
 */
#ifndef VERBENA_CLI_ELF_LIBRARY_H
#define VERBENA_CLI_ELF_LIBRARY_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ELF_NODES_MAX = 128 };

struct elf_node {
	const char *name;
	uint16_t index;
};

struct elf_library {
	uint8_t *bytes; /* the file, mapped privately */
	size_t size;
	const Elf64_Phdr *segments;
	unsigned int segment_count;
	Elf64_Dyn *dynamic;
	size_t dynamic_count;
	const char *strings; /* the last byte is 0 */
	size_t strings_size;
	const Elf64_Sym *symbols;
	const uint16_t *versions; /* one for each symbol */
	uint32_t symbol_count;
	const uint8_t *definitions; /* the chain of Elf64_Verdef */
	size_t definitions_size;
	struct elf_node nodes[ELF_NODES_MAX]; /* that it defines, but for that of its own name */
	unsigned int node_count;
	uint16_t index_max; /* of nodes that it defines or needs */
};

/* Maps a library. Returns 0, -ENOEXEC (not such a library, or a damaged one) or another negative
 * errno. */
int elf_library_open(struct elf_library *library, const char *path);
void elf_library_close(struct elf_library *library);

bool elf_library_has_node(const struct elf_library *library, const char *name);

/* Name and node of a symbol that the library defines; NULL: it defines none there, or has no node
 * for it. */
const char *elf_symbol_name(const struct elf_library *library, uint32_t symbol);
const char *elf_symbol_node(const struct elf_library *library, uint32_t symbol);
/* Whether a program that is linked with the library gets this one of several with its name. */
bool elf_symbol_is_offered(const struct elf_library *library, uint32_t symbol);

/* A symbol for a copy: `name` in `node`, with the value of the library's symbol `like`. */
struct elf_addition {
	const char *name;
	uint32_t like;
	unsigned int node; /* which of the added nodes */
};

/*
 * Makes a copy of the library that has the nodes, and the symbols in them: allocated with malloc(),
 * its size in *size. The tables that the loader reads stand anew at its end; the sections' headers,
 * which debuggers read, describe the old ones. NULL: no memory.
 */
uint8_t *elf_library_extend(const struct elf_library *library, const char *const *nodes,
			    unsigned int node_count, const struct elf_addition *additions,
			    size_t addition_count, size_t *size);

#endif
