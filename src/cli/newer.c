/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A release of rdma-core newer than this library. See newer.h.
 *
 * rdma-core changes the node of its private symbols (IBVERBS_PRIVATE_65) when it changes what its
 * driver libraries see. Those, and all programs that are linked with one of them or with
 * `ibv_query_gid_type`, name that node, and the loader refuses a library that lacks it before any
 * symbol matters. So the copy of our library has the node. In it stand the names that ours has in
 * its newest private node; what else the release has there leads to a function that does nothing
 * and fails (`verbena_unknown_release`): only drivers call it, and they don't register, because
 * their layouts aren't known. New public nodes get the names that ours has in some other node; a
 * program that calls a new one ends in the loader with that name.
 *
 * The copy is kept in a directory of this user whose name has the two files' identities, so that it
 * is made once for each pair, and never used for another. It gets its name when it is complete.
 */
#include "cli/newer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/env.h"
#include "base/own_dir.h"
#include "cli/cli.h"
#include "cli/elf_library.h"
#include "client/rundir.h"

#define LIBRARY "libibverbs.so.1"
#define OUR_NODE "VERBENA_PRIVATE_1"
#define PRIVATE_NODE "IBVERBS_PRIVATE_"
/* In a copy's directory's name, before 16 digits. */
#define DIRECTORY "-libraries-"
#define UNKNOWN_CALL "verbena_unknown_release"

/* ------------------------------------------------------------------ the system's library */

/* Opens the library of a directory. False: it has none, or it is Verbena's. */
static bool system_library_try(struct elf_library *library, const char *directory, int length,
			       char path[PATH_MAX])
{
	int size = snprintf(path, PATH_MAX, "%.*s/%s", length, directory, LIBRARY);

	if (!length || size >= PATH_MAX || elf_library_open(library, path))
		return false;
	if (!elf_library_has_node(library, OUR_NODE))
		return true;
	elf_library_close(library);
	return false;
}

/* The directories of LD_LIBRARY_PATH, then the loader's own. VERBENA_MULTIARCH: CMakeLists.txt. */
static bool system_library_find(struct elf_library *library, char path[PATH_MAX])
{
	static const char *const usual[] = {"/lib/" VERBENA_MULTIARCH,
					    "/usr/lib/" VERBENA_MULTIARCH,
					    "/lib64",
					    "/usr/lib64",
					    "/lib",
					    "/usr/lib"};
	const char *list = env_get("LD_LIBRARY_PATH");

	while (list && *list) {
		int length = (int)strcspn(list, ":;");

		if (system_library_try(library, list, length, path))
			return true;
		list += length + (list[length] != '\0');
	}
	for (unsigned int i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (system_library_try(library, usual[i], (int)strlen(usual[i]), path))
			return true;
	return false;
}

/* ------------------------------------------------------------------ what the copy gets */

struct additions {
	const char *nodes[ELF_NODES_MAX];
	unsigned int node_count;
	struct elf_addition *list;
	size_t count;
	unsigned int missing; /* new public names */
	const char *first_missing;
};

static bool node_is_private(const char *node)
{
	return !strncmp(node, PRIVATE_NODE, strlen(PRIVATE_NODE));
}

/* How good a symbol stands in for one of its name in a new node; 0: it doesn't. Of the private
 * nodes the newest is best, of the public ones the one that programs are linked with. */
static unsigned long symbol_rank(const struct elf_library *ours, uint32_t symbol)
{
	const char *node = elf_symbol_node(ours, symbol);

	if (!node)
		return 0;
	if (node_is_private(node))
		return 1 + strtoul(node + strlen(PRIVATE_NODE), NULL, 10);
	return elf_symbol_is_offered(ours, symbol) ? 1 : 0;
}

/* Our symbol of that name; 0: none. */
static uint32_t symbol_like(const struct elf_library *ours, const char *name)
{
	unsigned long best = 0;
	uint32_t found = 0;

	for (uint32_t i = 1; i < ours->symbol_count; i++) {
		const char *other = elf_symbol_name(ours, i);
		unsigned long rank = other && !strcmp(other, name) ? symbol_rank(ours, i) : 0;

		if (rank > best) {
			best = rank;
			found = i;
		}
	}
	return found;
}

/* The number of a node among those that ours lacks; -1: ours has it. */
static int node_wanted(const struct additions *additions, const char *node)
{
	for (unsigned int i = 0; i < additions->node_count; i++)
		if (!strcmp(additions->nodes[i], node))
			return (int)i;
	return -1;
}

/* Adds what stands in for one symbol of the system's library. */
static void symbol_serve(struct additions *additions, const struct elf_library *ours,
			 const struct elf_library *theirs, uint32_t symbol, uint32_t unknown)
{
	const char *name = elf_symbol_name(theirs, symbol);
	const char *node = name ? elf_symbol_node(theirs, symbol) : NULL;
	int wanted = node ? node_wanted(additions, node) : -1;

	if (wanted < 0)
		return;
	uint32_t like = symbol_like(ours, name);

	if (!like && node_is_private(node) &&
	    ELF64_ST_TYPE(theirs->symbols[symbol].st_info) == STT_FUNC)
		like = unknown;
	if (like)
		additions->list[additions->count++] = (struct elf_addition){
			.name = name, .like = like, .node = (unsigned int)wanted};
	else if (!additions->missing++)
		additions->first_missing = name;
}

/* Returns 0 or -ENOMEM. Without nodes there is nothing to do. */
static int additions_find(struct additions *additions, const struct elf_library *ours,
			  const struct elf_library *theirs)
{
	memset(additions, 0, sizeof(*additions));
	for (unsigned int i = 0; i < theirs->node_count; i++)
		if (!elf_library_has_node(ours, theirs->nodes[i].name))
			additions->nodes[additions->node_count++] = theirs->nodes[i].name;
	if (!additions->node_count)
		return 0;
	additions->list = calloc(theirs->symbol_count, sizeof(*additions->list));
	if (!additions->list)
		return -ENOMEM;
	uint32_t unknown = symbol_like(ours, UNKNOWN_CALL);

	for (uint32_t i = 1; i < theirs->symbol_count; i++)
		symbol_serve(additions, ours, theirs, i, unknown);
	return 0;
}

/* ------------------------------------------------------------------ where the copy is */

static void hash_more(uint64_t *hash, uint64_t value)
{
	for (unsigned int i = 0; i < sizeof(value); i++, value >>= 8)
		*hash = (*hash ^ (value & 0xff)) * 0x100000001b3; /* FNV-1a */
}

/* Which file this is, and as of when. */
static int file_identify(uint64_t *hash, const char *path)
{
	struct stat file;

	if (stat(path, &file))
		return -errno;
	hash_more(hash, file.st_dev);
	hash_more(hash, file.st_ino);
	hash_more(hash, (uint64_t)file.st_size);
	hash_more(hash, (uint64_t)file.st_mtim.tv_sec);
	hash_more(hash, (uint64_t)file.st_mtim.tv_nsec);
	hash_more(hash, (uint64_t)file.st_ctim.tv_sec);
	hash_more(hash, (uint64_t)file.st_ctim.tv_nsec);
	return 0;
}

/* Makes a directory, if it may have programs' code: this user's or root's, written by no one else,
 * and not on a file system without execution. */
static bool directory_make(const char *directory)
{
	struct statvfs system;

	return !rundir_make(directory) && !access(directory, W_OK) &&
	       !statvfs(directory, &system) && !(system.f_flag & ST_NOEXEC);
}

bool newer_directory_is_first(const char *list)
{
	size_t length = strcspn(list, ":;");
	const char *found = memmem(list, length, DIRECTORY, strlen(DIRECTORY));

	return found && strspn(found + strlen(DIRECTORY), "0123456789abcdef") >= 16;
}

/* Below VERBENA_RUNTIME_DIR or XDG_RUNTIME_DIR; else in /tmp. */
static int directory_find(char directory[PATH_MAX], uint64_t identity)
{
	static const char *const variables[] = {"VERBENA_RUNTIME_DIR", "XDG_RUNTIME_DIR"};
	char name[80];

	snprintf(name, sizeof(name), "verbena" DIRECTORY "%016llx", (unsigned long long)identity);
	for (unsigned int i = 0; i < 2; i++) {
		const char *parent = env_get(variables[i]);

		if (!parent || *parent != '/' || strpbrk(parent, ":;") ||
		    snprintf(directory, PATH_MAX, "%s/%s", parent, name) >= PATH_MAX ||
		    (i == 0 && rundir_make(parent)) || (i == 1 && rundir_check(parent)))
			continue;
		if (directory_make(directory))
			return 0;
	}
	snprintf(name, sizeof(name), "verbena-%u" DIRECTORY "%016llx", (unsigned int)geteuid(),
		 (unsigned long long)identity);
	int error = own_dir_find(directory, PATH_MAX, "/tmp", name);

	return error ? error : directory_make(directory) ? 0 : -EACCES;
}

static int file_write(int fd, const uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t written = write(fd, bytes, size);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		bytes += written;
		size -= (size_t)written;
	}
	return 0;
}

/* Writes the file under another name, and gives it its own when it is complete. */
static int library_write(const char *path, const uint8_t *bytes, size_t size)
{
	char draft[PATH_MAX];

	if (snprintf(draft, sizeof(draft), "%s.XXXXXX", path) >= (int)sizeof(draft))
		return -ENAMETOOLONG;
	int fd = mkostemp(draft, O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int error = file_write(fd, bytes, size);

	if (!error && (fchmod(fd, 0444) || rename(draft, path)))
		error = -errno;
	if (error)
		unlink(draft);
	close(fd);
	return error;
}

/* ------------------------------------------------------------------ one system */

static int newer_copy_make(const char *path, const struct elf_library *ours,
			   const struct additions *additions)
{
	size_t size = 0;
	uint8_t *bytes = elf_library_extend(ours, additions->nodes, additions->node_count,
					    additions->list, additions->count, &size);
	int error = bytes ? library_write(path, bytes, size) : -ENOMEM;

	free(bytes);
	return error;
}

/* "A", or "A, B": into `text`. */
static void nodes_format(char *text, size_t size, const struct additions *additions)
{
	size_t at = 0;

	text[0] = '\0';
	for (unsigned int i = 0; i < additions->node_count && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "",
				       additions->nodes[i]);
}

static void newer_say(const char *theirs, const struct additions *additions)
{
	char nodes[256], missing[160] = "";

	nodes_format(nodes, sizeof(nodes), additions);
	if (additions->missing)
		snprintf(missing, sizeof(missing), "; %u new names are missing (%.60s%s)",
			 additions->missing, additions->first_missing,
			 additions->missing > 1 ? ", ..." : "");
	cli_error("warning: %s is of a later release of rdma-core than Verbena knows: programs "
		  "get what they share with earlier ones under its %s, and driver libraries of "
		  "cards stay out%s",
		  theirs, nodes, missing);
}

static int copy_serve(const char *our_path, const char *their_path, const struct elf_library *ours,
		      const struct additions *additions, char directory[PATH_MAX])
{
	uint64_t identity = 0xcbf29ce484222325;
	char path[PATH_MAX];
	int error = file_identify(&identity, our_path);

	if (!error)
		error = file_identify(&identity, their_path);
	if (!error)
		error = directory_find(directory, identity);
	if (!error && snprintf(path, sizeof(path), "%s/%s", directory, LIBRARY) >= PATH_MAX)
		error = -ENAMETOOLONG;
	if (!error && access(path, R_OK))
		error = newer_copy_make(path, ours, additions);
	if (error)
		cli_error("warning: %s is of a later release of rdma-core than Verbena knows, and "
			  "a library for its programs can't be made: %s",
			  their_path, strerror(-error));
	else
		newer_say(their_path, additions);
	return error ? error : 1;
}

int newer_release_serve(const char *library_dir, char directory[PATH_MAX])
{
	char our_path[PATH_MAX], their_path[PATH_MAX];
	struct elf_library ours, theirs;
	struct additions additions;
	int result = 0;

	if (snprintf(our_path, sizeof(our_path), "%s/%s", library_dir, LIBRARY) >= PATH_MAX ||
	    elf_library_open(&ours, our_path))
		return 0; /* a stand-in for our library, of a test */
	if (system_library_find(&theirs, their_path)) {
		result = additions_find(&additions, &ours, &theirs);
		if (!result && additions.node_count)
			result = copy_serve(our_path, their_path, &ours, &additions, directory);
		free(additions.list);
		elf_library_close(&theirs);
	}
	elf_library_close(&ours);
	return result;
}
