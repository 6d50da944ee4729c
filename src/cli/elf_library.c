/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads what the dynamic loader reads of a shared library. See elf_library.h. */
#include "cli/elf_library.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ places in the file */

/* `size` bytes at an address of the library, as far as the file has them; NULL: it hasn't. */
static void *elf_at(const struct elf_library *library, uint64_t address, uint64_t size)
{
	for (unsigned int i = 0; i < library->segment_count; i++) {
		const Elf64_Phdr *segment = &library->segments[i];
		uint64_t inside = address - segment->p_vaddr;

		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    inside > segment->p_filesz || size > segment->p_filesz - inside)
			continue;
		if (segment->p_offset > library->size ||
		    segment->p_filesz > library->size - segment->p_offset)
			return NULL;
		return library->bytes + segment->p_offset + inside;
	}
	return NULL;
}

/* How many bytes of the file there are from an address to the end of its segment. */
static uint64_t elf_left(const struct elf_library *library, uint64_t address)
{
	for (unsigned int i = 0; i < library->segment_count; i++) {
		const Elf64_Phdr *segment = &library->segments[i];

		if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
		    address - segment->p_vaddr < segment->p_filesz)
			return segment->p_filesz - (address - segment->p_vaddr);
	}
	return 0;
}

static bool header_read(struct elf_library *library)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)(void *)library->bytes;
	uint16_t order = 1;
	uint8_t data = *(uint8_t *)&order ? ELFDATA2LSB : ELFDATA2MSB;

	if (library->size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != data ||
	    header->e_type != ET_DYN || header->e_phentsize != sizeof(Elf64_Phdr))
		return false;
	if (header->e_phoff > library->size || header->e_phoff % 8 ||
	    header->e_phnum * sizeof(Elf64_Phdr) > library->size - header->e_phoff)
		return false;
	library->segments = (const Elf64_Phdr *)(void *)(library->bytes + header->e_phoff);
	library->segment_count = header->e_phnum;
	return true;
}

static bool dynamic_find(struct elf_library *library)
{
	for (unsigned int i = 0; i < library->segment_count; i++) {
		const Elf64_Phdr *segment = &library->segments[i];

		if (segment->p_type != PT_DYNAMIC || segment->p_vaddr % 8)
			continue;
		library->dynamic = elf_at(library, segment->p_vaddr, segment->p_filesz);
		library->dynamic_count = segment->p_filesz / sizeof(Elf64_Dyn);
		return library->dynamic != NULL;
	}
	return false;
}

/* An entry's value; 0: there is none. */
static uint64_t dynamic_value(const struct elf_library *library, int64_t tag)
{
	for (size_t i = 0; i < library->dynamic_count; i++) {
		if (library->dynamic[i].d_tag == DT_NULL)
			break;
		if (library->dynamic[i].d_tag == tag)
			return library->dynamic[i].d_un.d_val;
	}
	return 0;
}

/* ------------------------------------------------------------------ symbols */

/* The number of symbols by the newer hash table, which has it in its last chain only. */
static uint32_t gnu_hash_count(const struct elf_library *library, uint64_t address)
{
	const uint32_t *head = elf_at(library, address, 4 * sizeof(*head));

	if (!head || address % 4)
		return 0;
	uint64_t buckets_at = address + 4 * sizeof(*head) + (uint64_t)head[2] * 8;
	const uint32_t *buckets = elf_at(library, buckets_at, (uint64_t)head[0] * sizeof(*head));
	uint32_t last = 0;

	for (uint32_t i = 0; buckets && i < head[0]; i++)
		if (buckets[i] > last)
			last = buckets[i];
	if (last < head[1])
		return head[1];
	for (uint64_t at = buckets_at + (uint64_t)head[0] * 4 + (uint64_t)(last - head[1]) * 4;;
	     at += 4) {
		const uint32_t *chain = elf_at(library, at, sizeof(*chain));

		last++;
		if (!chain)
			return 0;
		if (*chain & 1)
			return last;
	}
}

static uint32_t symbols_count(const struct elf_library *library)
{
	uint64_t address = dynamic_value(library, DT_HASH);
	const uint32_t *hash = address ? elf_at(library, address, 2 * sizeof(*hash)) : NULL;

	if (hash && !(address % 4))
		return hash[1];
	address = dynamic_value(library, DT_GNU_HASH);
	return address ? gnu_hash_count(library, address) : 0;
}

static bool symbols_find(struct elf_library *library)
{
	uint64_t symbols = dynamic_value(library, DT_SYMTAB);
	uint64_t versions = dynamic_value(library, DT_VERSYM);
	uint64_t strings = dynamic_value(library, DT_STRTAB);
	uint64_t count = symbols_count(library);

	library->strings_size = dynamic_value(library, DT_STRSZ);
	library->strings = elf_at(library, strings, library->strings_size);
	if (!strings || !library->strings_size || !library->strings ||
	    library->strings[library->strings_size - 1])
		return false;
	if (!symbols || symbols % 8 || !versions || versions % 2 || !count)
		return false;
	library->symbol_count = (uint32_t)count;
	library->symbols = elf_at(library, symbols, count * sizeof(Elf64_Sym));
	library->versions = elf_at(library, versions, count * sizeof(uint16_t));
	return library->symbols && library->versions;
}

/* ------------------------------------------------------------------ nodes */

static const char *string_at(const struct elf_library *library, uint64_t offset)
{
	return offset < library->strings_size ? library->strings + offset : NULL;
}

static void index_note(struct elf_library *library, uint16_t index)
{
	index &= 0x7fff;
	if (index > library->index_max)
		library->index_max = index;
}

/* One definition at an offset of the chain. */
static bool node_definition_read(struct elf_library *library, uint64_t at,
				 const Elf64_Verdef *definition)
{
	const Elf64_Verdaux *name;
	uint64_t name_at = at + definition->vd_aux;

	index_note(library, definition->vd_ndx);
	if (definition->vd_flags & VER_FLG_BASE)
		return true;
	if (name_at % 4 || name_at > library->definitions_size ||
	    library->definitions_size - name_at < sizeof(*name) ||
	    library->node_count == ELF_NODES_MAX)
		return false;
	name = (const Elf64_Verdaux *)(const void *)(library->definitions + name_at);
	library->nodes[library->node_count].name = string_at(library, name->vda_name);
	library->nodes[library->node_count].index = definition->vd_ndx & 0x7fff;
	return library->nodes[library->node_count++].name != NULL;
}

static bool definitions_read(struct elf_library *library)
{
	uint64_t address = dynamic_value(library, DT_VERDEF);
	uint64_t count = dynamic_value(library, DT_VERDEFNUM), at = 0;

	if (!address || address % 4)
		return false;
	library->definitions_size = elf_left(library, address);
	library->definitions = elf_at(library, address, library->definitions_size);
	for (uint64_t i = 0; library->definitions && i < count; i++) {
		const Elf64_Verdef *definition;

		if (at % 4 || at > library->definitions_size ||
		    library->definitions_size - at < sizeof(*definition))
			return false;
		definition = (const Elf64_Verdef *)(const void *)(library->definitions + at);
		if (!node_definition_read(library, at, definition))
			return false;
		if (!definition->vd_next)
			return true;
		at += definition->vd_next;
	}
	return false;
}

/* What it needs of other libraries has numbers of the same range. */
static bool needs_read(struct elf_library *library)
{
	uint64_t at = dynamic_value(library, DT_VERNEED);
	uint64_t count = dynamic_value(library, DT_VERNEEDNUM);

	for (uint64_t i = 0; i < count; i++) {
		const Elf64_Verneed *need = elf_at(library, at, sizeof(*need));
		uint64_t part_at = need ? at + need->vn_aux : 0;

		if (!need || at % 4)
			return false;
		for (unsigned int j = 0; j < need->vn_cnt; j++) {
			const Elf64_Vernaux *part = elf_at(library, part_at, sizeof(*part));

			if (!part || part_at % 4)
				return false;
			index_note(library, part->vna_other);
			part_at += part->vna_next;
		}
		at += need->vn_next;
	}
	return true;
}

/* ------------------------------------------------------------------ a library */

int elf_library_open(struct elf_library *library, const char *path)
{
	struct stat file;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	memset(library, 0, sizeof(*library));
	if (fd < 0)
		return -errno;
	int error = fstat(fd, &file)			      ? -errno
		    : !S_ISREG(file.st_mode) || !file.st_size ? -ENOEXEC
							      : 0;

	if (!error) {
		library->size = (size_t)file.st_size;
		library->bytes = mmap(NULL, library->size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (library->bytes == MAP_FAILED)
			error = -errno;
	}
	close(fd);
	if (error)
		return error;
	if (header_read(library) && dynamic_find(library) && symbols_find(library) &&
	    definitions_read(library) && needs_read(library))
		return 0;
	elf_library_close(library);
	return -ENOEXEC;
}

void elf_library_close(struct elf_library *library)
{
	munmap(library->bytes, library->size);
}

bool elf_library_has_node(const struct elf_library *library, const char *name)
{
	for (unsigned int i = 0; i < library->node_count; i++)
		if (!strcmp(library->nodes[i].name, name))
			return true;
	return false;
}

const char *elf_symbol_name(const struct elf_library *library, uint32_t symbol)
{
	const Elf64_Sym *entry = &library->symbols[symbol];

	/* The names of nodes are symbols, too. */
	if (entry->st_shndx == SHN_UNDEF || entry->st_shndx == SHN_ABS)
		return NULL;
	return string_at(library, entry->st_name);
}

const char *elf_symbol_node(const struct elf_library *library, uint32_t symbol)
{
	uint16_t index = library->versions[symbol] & 0x7fff;

	for (unsigned int i = 0; i < library->node_count; i++)
		if (library->nodes[i].index == index)
			return library->nodes[i].name;
	return NULL;
}

bool elf_symbol_is_offered(const struct elf_library *library, uint32_t symbol)
{
	return !(library->versions[symbol] & 0x8000);
}
