/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy of a shared library with more version nodes and symbols. See elf_library.h.
 *
 * The file is kept as it is, but for where its dynamic section and its header point to; a segment
 * is added at the end. It has, in this order, the table of segments (one longer, so it can't stay
 * where it is), the symbols, their strings, their versions, a hash table, and the definitions of
 * nodes: each is the library's own with the additions behind, so that the numbers that relocations
 * have stay right. The hash table is of the older kind (DT_HASH), which takes symbols in any order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/elf_library.h"

enum { SEGMENT_ALIGN = 0x10000, PART_ALIGN = 8 };

/* A copy that is being made; `at` is the end of what has been written. */
struct extension {
	const struct elf_library *library;
	uint8_t *bytes;
	size_t at;
	size_t start;						/* of the new segment in the file */
	uint64_t address;					/* and in memory */
	uint64_t symbols, strings, versions, hash, definitions; /* addresses */
	size_t strings_size;
	uint32_t symbol_count;
};

static size_t align_up(size_t value, size_t align)
{
	return (value + align - 1) / align * align;
}

static uint64_t memory_end(const struct elf_library *library)
{
	uint64_t end = 0;

	for (unsigned int i = 0; i < library->segment_count; i++) {
		const Elf64_Phdr *segment = &library->segments[i];

		if (segment->p_type == PT_LOAD && segment->p_vaddr + segment->p_memsz > end)
			end = segment->p_vaddr + segment->p_memsz;
	}
	return end;
}

/* Begins a part; returns its address. */
static uint64_t part_begin(struct extension *extension)
{
	extension->at = align_up(extension->at, PART_ALIGN);
	return extension->address + (extension->at - extension->start);
}

static void *part_put(struct extension *extension, const void *data, size_t size)
{
	void *place = extension->bytes + extension->at;

	memcpy(place, data, size);
	extension->at += size;
	return place;
}

/* The hash of names that the ELF specification has for DT_HASH and for nodes. */
static uint32_t elf_name_hash(const char *name)
{
	uint32_t hash = 0;

	for (; *name; name++) {
		hash = (hash << 4) + (uint8_t)*name;
		hash ^= (hash & 0xf0000000) >> 24;
		hash &= 0x0fffffff;
	}
	return hash;
}

/* ------------------------------------------------------------------ parts */

/* Appends a string; returns its offset. */
static uint32_t string_put(struct extension *extension, const char *text)
{
	uint32_t offset = (uint32_t)extension->strings_size;

	part_put(extension, text, strlen(text) + 1);
	extension->strings_size += strlen(text) + 1;
	return offset;
}

/* The strings come first: symbols and nodes then have their offsets. */
static void strings_put(struct extension *extension, const char *const *nodes,
			unsigned int node_count, const struct elf_addition *additions, size_t count,
			uint32_t *node_names, uint32_t *names)
{
	const struct elf_library *library = extension->library;

	extension->strings = part_begin(extension);
	part_put(extension, library->strings, library->strings_size);
	extension->strings_size = library->strings_size;
	for (unsigned int i = 0; i < node_count; i++)
		node_names[i] = string_put(extension, nodes[i]);
	for (size_t i = 0; i < count; i++) {
		const Elf64_Sym *like = &library->symbols[additions[i].like];
		const char *name = elf_symbol_name(library, additions[i].like);

		names[i] = name && !strcmp(name, additions[i].name)
				   ? like->st_name
				   : string_put(extension, additions[i].name);
	}
}

static const Elf64_Sym *symbols_put(struct extension *extension,
				    const struct elf_addition *additions, size_t count,
				    const uint32_t *names)
{
	const struct elf_library *library = extension->library;

	extension->symbols = part_begin(extension);
	const Elf64_Sym *all =
		part_put(extension, library->symbols, library->symbol_count * sizeof(Elf64_Sym));

	for (size_t i = 0; i < count; i++) {
		Elf64_Sym symbol = library->symbols[additions[i].like];

		symbol.st_name = names[i];
		part_put(extension, &symbol, sizeof(symbol));
	}
	extension->symbol_count = library->symbol_count + (uint32_t)count;
	return all;
}

/* A new symbol is hidden: a look-up of a name without a node finds what it found before. */
static void versions_put(struct extension *extension, const struct elf_addition *additions,
			 size_t count)
{
	const struct elf_library *library = extension->library;

	extension->versions = part_begin(extension);
	part_put(extension, library->versions, library->symbol_count * sizeof(uint16_t));
	for (size_t i = 0; i < count; i++) {
		uint16_t version =
			(uint16_t)((library->index_max + 1u + additions[i].node) | 0x8000);

		part_put(extension, &version, sizeof(version));
	}
}

static void hash_put(struct extension *extension, const Elf64_Sym *symbols)
{
	uint32_t count = extension->symbol_count, buckets = count / 2 + 1;
	const uint32_t head[] = {buckets, count};
	const char *strings = (const char *)extension->bytes + extension->start +
			      (extension->strings - extension->address);

	extension->hash = part_begin(extension);
	part_put(extension, head, sizeof(head));
	uint32_t *first = (uint32_t *)(void *)(extension->bytes + extension->at);
	uint32_t *next = first + buckets;

	extension->at += (buckets + (size_t)count) * sizeof(uint32_t); /* all 0 */
	for (uint32_t i = 1; i < count; i++) {
		if (symbols[i].st_name >= extension->strings_size)
			continue;
		uint32_t *bucket = &first[elf_name_hash(strings + symbols[i].st_name) % buckets];

		next[i] = *bucket;
		*bucket = i;
	}
}

/* Up to where the library's own chain goes, and where its last definition is. */
static size_t definitions_end(const struct elf_library *library, size_t *last)
{
	size_t at = 0, end = 0;

	for (;;) {
		Elf64_Verdef definition;
		size_t part = at;

		memcpy(&definition, library->definitions + at, sizeof(definition));
		part += definition.vd_aux;
		for (unsigned int i = 0; i < definition.vd_cnt; i++) {
			Elf64_Verdaux name;

			if (part + sizeof(name) > library->definitions_size)
				break;
			memcpy(&name, library->definitions + part, sizeof(name));
			if (part + sizeof(name) > end)
				end = part + sizeof(name);
			part += name.vda_next;
		}
		*last = at;
		if (!definition.vd_next)
			return end;
		at += definition.vd_next;
	}
}

static void definitions_put(struct extension *extension, const char *const *nodes,
			    unsigned int node_count, const uint32_t *node_names)
{
	const struct elf_library *library = extension->library;
	size_t last, end = definitions_end(library, &last);

	extension->definitions = part_begin(extension);
	uint8_t *all = part_put(extension, library->definitions, end);
	uint32_t next = (uint32_t)(end - last);

	memcpy(all + last + offsetof(Elf64_Verdef, vd_next), &next, sizeof(next));
	for (unsigned int i = 0; i < node_count; i++) {
		Elf64_Verdaux name = {.vda_name = node_names[i]};
		Elf64_Verdef definition = {
			.vd_version = VER_DEF_CURRENT,
			.vd_ndx = (uint16_t)(library->index_max + 1u + i),
			.vd_cnt = 1,
			.vd_hash = elf_name_hash(nodes[i]),
			.vd_aux = sizeof(definition),
			.vd_next = i + 1 < node_count ? sizeof(definition) + sizeof(name) : 0,
		};

		part_put(extension, &definition, sizeof(definition));
		part_put(extension, &name, sizeof(name));
	}
}

/* ------------------------------------------------------------------ pointing to them */

static void segments_put(struct extension *extension)
{
	const struct elf_library *library = extension->library;
	Elf64_Ehdr *header = (Elf64_Ehdr *)(void *)extension->bytes;
	size_t size = (library->segment_count + 1u) * sizeof(Elf64_Phdr);
	Elf64_Phdr *table = (Elf64_Phdr *)(void *)(extension->bytes + extension->start);

	memcpy(table, library->segments, library->segment_count * sizeof(Elf64_Phdr));
	for (unsigned int i = 0; i < library->segment_count; i++) {
		if (table[i].p_type != PT_PHDR)
			continue;
		table[i].p_offset = extension->start;
		table[i].p_vaddr = table[i].p_paddr = extension->address;
		table[i].p_filesz = table[i].p_memsz = size;
	}
	table[library->segment_count] = (Elf64_Phdr){
		.p_type = PT_LOAD,
		.p_flags = PF_R,
		.p_offset = extension->start,
		.p_vaddr = extension->address,
		.p_paddr = extension->address,
		.p_filesz = extension->at - extension->start,
		.p_memsz = extension->at - extension->start,
		.p_align = SEGMENT_ALIGN,
	};
	header->e_phoff = extension->start;
	header->e_phnum = (uint16_t)(library->segment_count + 1);
}

static void dynamic_point(struct extension *extension, unsigned int node_count)
{
	const struct elf_library *library = extension->library;
	Elf64_Dyn *entry = (Elf64_Dyn *)(void *)(extension->bytes +
						 ((uint8_t *)library->dynamic - library->bytes));

	for (size_t i = 0; i < library->dynamic_count && entry->d_tag != DT_NULL; i++, entry++) {
		switch (entry->d_tag) {
		case DT_GNU_HASH:
		case DT_HASH:
			entry->d_tag = DT_HASH;
			entry->d_un.d_ptr = extension->hash;
			break;
		case DT_SYMTAB:
			entry->d_un.d_ptr = extension->symbols;
			break;
		case DT_STRTAB:
			entry->d_un.d_ptr = extension->strings;
			break;
		case DT_STRSZ:
			entry->d_un.d_val = extension->strings_size;
			break;
		case DT_VERSYM:
			entry->d_un.d_ptr = extension->versions;
			break;
		case DT_VERDEF:
			entry->d_un.d_ptr = extension->definitions;
			break;
		case DT_VERDEFNUM:
			entry->d_un.d_val += node_count;
			break;
		}
	}
}

/* An upper bound of what is added. */
static size_t extension_room(const struct elf_library *library, const char *const *nodes,
			     unsigned int node_count, const struct elf_addition *additions,
			     size_t count)
{
	size_t symbols = library->symbol_count + count;
	size_t room = (library->segment_count + 1u) * sizeof(Elf64_Phdr) +
		      symbols * (sizeof(Elf64_Sym) + sizeof(uint16_t) + 2 * sizeof(uint32_t)) +
		      library->strings_size + library->definitions_size +
		      node_count * (sizeof(Elf64_Verdef) + sizeof(Elf64_Verdaux)) + 128;

	for (unsigned int i = 0; i < node_count; i++)
		room += strlen(nodes[i]) + 1;
	for (size_t i = 0; i < count; i++)
		room += strlen(additions[i].name) + 1;
	return room;
}

uint8_t *elf_library_extend(const struct elf_library *library, const char *const *nodes,
			    unsigned int node_count, const struct elf_addition *additions,
			    size_t count, size_t *size)
{
	struct extension new = {
		.library = library,
		.start = align_up(library->size, SEGMENT_ALIGN),
		.address = align_up(memory_end(library), SEGMENT_ALIGN),
	};
	size_t room = extension_room(library, nodes, node_count, additions, count);
	uint32_t *names = calloc(node_count + count + 1, sizeof(*names));

	new.bytes = calloc(1, new.start + room);
	if (names && new.bytes) {
		memcpy(new.bytes, library->bytes, library->size);
		new.at = new.start + (library->segment_count + 1u) * sizeof(Elf64_Phdr);
		strings_put(&new, nodes, node_count, additions, count, names, names + node_count);
		const Elf64_Sym *symbols = symbols_put(&new, additions, count, names + node_count);

		versions_put(&new, additions, count);
		hash_put(&new, symbols);
		definitions_put(&new, nodes, node_count, names);
		segments_put(&new);
		dynamic_point(&new, node_count);
		*size = new.at;
	} else {
		free(new.bytes);
		new.bytes = NULL;
	}
	free(names);
	return new.bytes;
}
