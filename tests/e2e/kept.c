/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program relies on for its private memory, while the memory is converted and afterwards
 * (docs/memory.md). Both ends do the same, each with memory of its own. See rig.h and found.h.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "found.h"

/* A converted region of BYTES with the pattern. */
struct kept {
	struct rig *rig;
	struct end end;
	uint8_t *at;
	struct ibv_mr *mr;
};

static bool kept_begin(struct kept *k, struct rig *rig)
{
	*k = (struct kept){.rig = rig};
	k->at = convertible_pages(rig, &k->end);
	return k->at;
}

static void kept_register(struct kept *k)
{
	CHECK(k->rig, (k->mr = ibv_reg_mr(k->end.pd, k->at, BYTES, ALL_RIGHTS)));
	CHECK(k->rig, is_converted(k->at) && is_converted(k->at + BYTES - 1));
}

static void kept_deregister(struct kept *k)
{
	OK(k->rig, ibv_dereg_mr(k->mr));
	CHECK(k->rig, is_private(k->at) && is_private(k->at + BYTES - 1));
}

static void kept_end(struct kept *k)
{
	munmap(k->at, BYTES);
	end_close(&k->end);
}

/* ------------------------------------------------------------------ madvise() */

static void kept_advice(struct rig *rig)
{
	struct kept k;

	if (!kept_begin(&k, rig))
		return;
	kept_register(&k);
	OK(rig, madvise(k.at, BYTES, MADV_HUGEPAGE));
	OK(rig, madvise(k.at, BYTES, MADV_NOHUGEPAGE));
	OK(rig, madvise(k.at, BYTES, MADV_MERGEABLE));
	OK(rig, madvise(k.at, BYTES, MADV_UNMERGEABLE));
	OK(rig, madvise(k.at, BYTES, MADV_WILLNEED));
	OK(rig, madvise(k.at, BYTES, MADV_COLD));
	OK(rig, madvise(k.at, BYTES, MADV_PAGEOUT));
	CHECK(rig, pattern_holds(k.at, BYTES, SEED));
	/* What docs/memory.md names as noticeable, as long as it is registered. */
	OK(rig, madvise(k.at, PAGE, MADV_DONTNEED));
	CHECK(rig, pattern_holds(k.at, BYTES, SEED));
	CHECK(rig, madvise(k.at, PAGE, MADV_FREE) < 0 && errno == EINVAL);
	kept_deregister(&k);
	CHECK(rig, pattern_holds(k.at, BYTES, SEED));
	OK(rig, madvise(k.at, PAGE, MADV_FREE));
	OK(rig, madvise(k.at, PAGE, MADV_DONTNEED));
	CHECK_EQ(rig, k.at[0], 0);
	CHECK_EQ(rig, k.at[PAGE - 1], 0);
	OK(rig, madvise(k.at, PAGE, MADV_WIPEONFORK));
	CHECK(rig, madvise(k.at, PAGE, MADV_REMOVE) < 0);
	kept_end(&k);
}

/* ------------------------------------------------------------------ mappings */

/* MAP_FIXED over a part, and mprotect() of another: what is new stays when the region ends. */
static void kept_mapped_over(struct rig *rig)
{
	struct kept k;

	if (!kept_begin(&k, rig))
		return;
	kept_register(&k);
	uint8_t *new = mmap(k.at + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	CHECK(rig, new == k.at + 2 * PAGE &&new[0] == 0);
	memset(new, NEW, 2 * PAGE);
	OK(rig, mprotect(k.at + 5 * PAGE, PAGE, PROT_NONE));
	kept_deregister(&k);
	for (int i = 0; i < 2 * PAGE; i++)
		CHECK_EQ(rig, new[i], NEW);
	CHECK(rig, !strcmp(maps_find(k.at + 5 * PAGE, NULL).rights, "---p"));
	OK(rig, mprotect(k.at + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE));
	memset(new, 0, 2 * PAGE);
	uint8_t *all = malloc(BYTES);

	CHECK(rig, all);
	pattern_fill(all, BYTES, SEED);
	memset(all + 2 * PAGE, 0, 2 * PAGE);
	CHECK(rig, !memcmp(all, k.at, BYTES));
	free(all);
	kept_end(&k);
}

/* Registered memory moves, its new place is registered as well, and so is what comes to the old
 * one: each page stays converted exactly as long as a region needs it. */
static void kept_moved(struct rig *rig)
{
	struct ibv_mr *moved, *other;
	struct kept k;

	if (!kept_begin(&k, rig))
		return;
	for (int old_first = 0; old_first < 2; old_first++) {
		uint8_t *new = private_pages(rig, BYTES);

		pattern_fill(k.at, BYTES, SEED);
		kept_register(&k);
		CHECK(rig, mremap(k.at, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, new) == new);
		CHECK(rig, mmap(k.at, BYTES, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == k.at);
		CHECK(rig, (moved = ibv_reg_mr(k.end.pd, new, BYTES, ALL_RIGHTS)));
		CHECK(rig, (other = ibv_reg_mr(k.end.pd, k.at, BYTES, ALL_RIGHTS)));
		OK(rig, ibv_dereg_mr(old_first ? k.mr : moved));
		CHECK(rig, is_converted(new) && pattern_holds(new, BYTES, SEED));
		OK(rig, ibv_dereg_mr(old_first ? moved : k.mr));
		CHECK(rig, is_private(new) && pattern_holds(new, BYTES, SEED));
		OK(rig, madvise(new, BYTES, MADV_DONTNEED));
		CHECK_EQ(rig, new[BYTES - 1], 0);
		OK(rig, ibv_dereg_mr(other));
		CHECK(rig, is_private(k.at) && k.at[0] == 0);
		munmap(new, BYTES);
	}
	kept_end(&k);
}

static bool is_locked(const void *at)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	unsigned long from, to;
	bool found = false, locked = false;
	char line[512];

	while (smaps && fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			found = (uintptr_t)at >= from && (uintptr_t)at < to;
		else if (found && !strncmp(line, "VmFlags:", 8))
			locked = strstr(line, " lo") != NULL;
	}
	if (smaps)
		fclose(smaps);
	return locked;
}

static void kept_locked(struct rig *rig)
{
	struct ibv_mr *mr;
	struct kept k;

	if (!kept_begin(&k, rig))
		return;
	kept_register(&k);
	OK(rig, mlock(k.at, BYTES));
	bool locks = is_locked(k.at); /* sanitizers make it a call without effect */

	kept_deregister(&k);
	if (!locks) {
		kept_end(&k);
		return;
	}
	CHECK(rig, is_locked(k.at) && is_locked(k.at + BYTES - 1));
	/* Locked before: it stays as it is. */
	CHECK(rig, (mr = ibv_reg_mr(k.end.pd, k.at, BYTES, ALL_RIGHTS)) && is_private(k.at));
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, munlock(k.at, BYTES));
	kept_register(&k);
	OK(rig, mlock(k.at, BYTES));
	OK(rig, munlock(k.at, BYTES));
	kept_deregister(&k);
	CHECK(rig, !is_locked(k.at) && pattern_holds(k.at, BYTES, SEED));
	kept_end(&k);
}

/* ------------------------------------------------------------------ limits */

/* The bytes of address space that the process has. */
static size_t address_space(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file && fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * PAGE;
}

/* RLIMIT_AS: it needs no more than before. (A sanitizer has terabytes.) */
static void kept_address_limit(struct rig *rig)
{
	struct rlimit before, low;
	struct kept k;

	if (!kept_begin(&k, rig))
		return;
	/* The first time takes some mappings; and so does the link, at any moment until it is used.
	 */
	kept_register(&k);
	kept_deregister(&k);
	end_warm(&k.end);
	rig_sync(rig);
	OK(rig, getrlimit(RLIMIT_AS, &before));
	low = (struct rlimit){address_space() + (256 << 10), before.rlim_max};
	OK(rig, setrlimit(RLIMIT_AS, &low));
	for (int i = 0; i < 40; i++) {
		kept_register(&k);
		kept_deregister(&k);
	}
	OK(rig, setrlimit(RLIMIT_AS, &before));
	CHECK(rig, pattern_holds(k.at, BYTES, SEED));
	kept_end(&k);
}

/* RLIMIT_DATA doesn't count shared memory: with it nothing is converted, and what is converted when
 * it comes can be returned. RLIMIT_FSIZE counts memory files. */
static void kept_data_limit(struct rig *rig)
{
	struct rlimit before, file;
	struct ibv_mr *mr;
	struct kept k;
	int status;

	/* A sanitizer ends the program when it gets no memory. */
	if (rig_slowness() > 1 || !kept_begin(&k, rig))
		return;
	OK(rig, getrlimit(RLIMIT_DATA, &before));
	OK(rig, getrlimit(RLIMIT_FSIZE, &file));
	for (int i = 0; i < 2; i++) {
		kept_register(&k);
		OK(rig, setrlimit(RLIMIT_DATA, &(struct rlimit){PAGE, before.rlim_max}));
		if (i) {
			pid_t pid = fork();

			if (!pid)
				_exit(!pattern_holds(k.at, BYTES, SEED));
			CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
			CHECK_EQ(rig, status, 0);
		}
		kept_deregister(&k);
		OK(rig, setrlimit(RLIMIT_DATA, &before));
	}
	OK(rig, setrlimit(RLIMIT_DATA, &(struct rlimit){1ul << 40, before.rlim_max}));
	CHECK(rig, (mr = ibv_reg_mr(k.end.pd, k.at, BYTES, ALL_RIGHTS)) && is_private(k.at));
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, setrlimit(RLIMIT_DATA, &before));
	OK(rig, setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, file.rlim_max}));
	CHECK(rig, (mr = ibv_reg_mr(k.end.pd, k.at, BYTES, ALL_RIGHTS)) && is_private(k.at));
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, setrlimit(RLIMIT_FSIZE, &file));
	kept_end(&k);
}

/* ------------------------------------------------------------------ allocations */

static void one_block(struct end *end, uint8_t *at, size_t size)
{
	size_t usable = malloc_usable_size(at);

	CHECK(end->rig, at && usable >= size);
	memset(at, OLD, usable);
	struct ibv_mr *mr = ibv_reg_mr(end->pd, at, size, ALL_RIGHTS);

	CHECK(end->rig, mr && is_converted(at));
	CHECK_EQ(end->rig, malloc_usable_size(at), usable);
	memset(at, NEW, usable);
	OK(end->rig, ibv_dereg_mr(mr));
	CHECK_EQ(end->rig, malloc_usable_size(at), usable);
	for (size_t i = 0; i < usable; i++)
		CHECK_EQ(end->rig, at[i], NEW);
	at = realloc(at, 2 * size);
	CHECK(end->rig, at && at[0] == NEW && at[size - 1] == NEW);
	free(at);
}

/* Blocks of every way to allocate; realloc() of a registered block moves or stays; a block that is
 * freed while it is registered can be given out again. */
static void kept_blocks(struct rig *rig)
{
	static const size_t sizes[] = {24, 500, 4096, 70000, 300000};
	struct ibv_mr *mr;
	struct end end;

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i], pages = (size + PAGE - 1) / PAGE * PAGE;
		void *aligned = NULL;

		one_block(&end, malloc(size), size);
		one_block(&end, calloc(1, size), size);
		one_block(&end, aligned_alloc(PAGE, pages), pages);
		one_block(&end, memalign(64, size), size);
		one_block(&end, valloc(size), size);
		CHECK(rig, !posix_memalign(&aligned, 8192, size));
		one_block(&end, aligned, size);
		uint8_t *at = malloc(size);

		CHECK(rig, at && (mr = ibv_reg_mr(end.pd, at, size, ALL_RIGHTS)));
		memset(at, OLD, size);
		at = realloc(at, 3 * size);
		CHECK(rig, at && at[0] == OLD && at[size - 1] == OLD);
		memset(at, OLD, 3 * size);
		OK(rig, ibv_dereg_mr(mr));
		CHECK(rig, at[0] == OLD && at[3 * size - 1] == OLD && is_private(at));
		CHECK(rig, (mr = ibv_reg_mr(end.pd, at, size, ALL_RIGHTS)));
		free(at);
		at = malloc(3 * size);
		CHECK(rig, at);
		memset(at, NEW, 3 * size);
		OK(rig, ibv_dereg_mr(mr));
		CHECK(rig, at[0] == NEW && at[3 * size - 1] == NEW && is_private(at));
		free(at);
	}
	end_close(&end);
}

/* 512-byte blocks of the memory file, found by the mapping; -1: it isn't open. */
static long file_blocks(void)
{
	char path[64], name[64];
	struct stat status;

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, name, sizeof(name) - 1);

		name[n > 0 ? n : 0] = 0;
		if (strstr(name, "verbena-memory") && !fstat(fd, &status))
			return status.st_blocks;
	}
	return -1;
}

/* What is freed goes back to the system; untouched pages stay so. */
static void kept_given_back(struct rig *rig)
{
	enum { LARGE = 32 << 20 };
	struct ibv_mr *mr;
	struct kept k;

	if (!kept_begin(&k, rig))
		return;
	long others = file_blocks(); /* the end's own buffer */

	CHECK(rig, others >= 0);
	for (int i = 0; i < 4; i++) {
		uint8_t *large = private_pages(rig, LARGE);

		memset(large, OLD, i < 2 ? LARGE / 4 : LARGE);
		CHECK(rig, (mr = ibv_reg_mr(k.end.pd, large, LARGE, ALL_RIGHTS)));
		CHECK(rig, is_converted(large));
		CHECK(rig,
		      file_blocks() - others <= (i < 2 ? LARGE / 4 + LARGE / 64 : LARGE) / 512);
		CHECK_EQ(rig, large[LARGE - 1], i < 2 ? 0 : OLD);
		if (i % 2)
			munmap(large, LARGE);
		OK(rig, ibv_dereg_mr(mr));
		CHECK_EQ(rig, file_blocks(), others);
		if (i % 2 == 0) {
			CHECK(rig, large[0] == OLD && large[LARGE / 4 - 1] == OLD);
			munmap(large, LARGE);
		}
	}
	kept_end(&k);
}

/* ------------------------------------------------------------------ core dumps */

static bool file_has(const char *path, const uint8_t *bytes, size_t length)
{
	FILE *file = fopen(path, "re");
	uint8_t *page = malloc(length);
	bool found = false;

	while (file && page && !found && fread(page, 1, length, file) == length)
		found = !memcmp(page, bytes, length);
	if (file)
		fclose(file);
	free(page);
	return found;
}

/* A child, which converts its own copy. */
static _Noreturn void dump_core(uint8_t *at, const char *dir)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list ? ibv_open_device(*list) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;

	if (!pd || !ibv_reg_mr(pd, at, BYTES, ALL_RIGHTS) || !is_converted(at) || chdir(dir))
		_exit(1);
	signal(SIGABRT, SIG_DFL);
	abort();
}

/* Whether the system writes cores to the current directory, and may. */
static bool cores_are_written(void)
{
	FILE *how = fopen("/proc/sys/kernel/core_pattern", "re");
	char pattern[64] = "";
	struct rlimit limit;

	if (how && !fgets(pattern, sizeof(pattern), how))
		pattern[0] = 0;
	if (how)
		fclose(how);
	return !strcmp(pattern, "core\n") && !getrlimit(RLIMIT_CORE, &limit) &&
	       limit.rlim_max == RLIM_INFINITY &&
	       !setrlimit(RLIMIT_CORE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
}

static void kept_core(struct rig *rig)
{
	char dir[] = "/tmp/verbena-core-XXXXXX", core[64];
	struct kept k;
	int status;

	if (!kept_begin(&k, rig))
		return;
	CHECK(rig, mkdtemp(dir));
	if (cores_are_written()) {
		pid_t pid = fork();

		if (!pid)
			dump_core(k.at, dir);
		CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
		CHECK(rig, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
		snprintf(core, sizeof(core), "%s/core", dir);
		CHECK(rig, access(core, F_OK) || file_has(core, k.at, PAGE));
		unlink(core);
	}
	rmdir(dir);
	kept_end(&k);
}

const struct rig_test kept_tests[] = {
	{"kept_advice", kept_advice},
	{"kept_mapped_over", kept_mapped_over},
	{"kept_moved", kept_moved},
	{"kept_locked", kept_locked},
	{"kept_address_limit", kept_address_limit},
	{"kept_data_limit", kept_data_limit},
	{"kept_blocks", kept_blocks},
	{"kept_given_back", kept_given_back},
	{"kept_core", kept_core},
	{NULL, NULL},
};
