/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that can't be converted, or hardly returned, because the system refuses something: used by
 * memory.py, which looks at the reasons that are logged.
 *
 * usage: unconverted CASE [LIMIT USAGE]
 * Cases: plain, seccomp, descriptors, mappings, late (a descriptor that may hold memory comes while
 * the threads are counted, as from a thread that ends then: x86-64), cgroup (LIMIT: bytes; USAGE:
 * the file with the bytes in use). Prints "converted N of M". Whatever happens, the bytes are
 * right, here and in a child, and the memory is private in the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "require.h"

enum { PAGE = 4096, REGIONS = 2, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

struct region {
	uint8_t *at;
	size_t size;
	struct ibv_mr *mr;
	bool converted;
};

static struct region regions[REGIONS];
static struct ibv_pd *pd;
static FILE *maps; /* open from the beginning: there may be no descriptor later */

static bool is_converted(const void *at)
{
	unsigned long from, to;
	bool converted = false;
	char line[512];

	rewind(maps);
	fflush(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)at >= from &&
		    (uintptr_t)at < to)
			converted = strstr(line, "verbena-memory");
	return converted;
}

static bool holds(const struct region *r)
{
	for (size_t i = 0; i < r->size; i++)
		if (r->at[i] != (uint8_t)(i / PAGE + i))
			return false;
	return true;
}

static void device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;

	REQUIRE(ctx && (pd = ibv_alloc_pd(ctx)));
}

static void region_make(struct region *r, size_t size)
{
	r->size = size;
	r->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(r->at != MAP_FAILED);
	for (size_t i = 0; i < size; i++)
		r->at[i] = (uint8_t)(i / PAGE + i);
}

static void region_register(struct region *r)
{
	REQUIRE((r->mr = ibv_reg_mr(pd, r->at, r->size, RIGHTS)));
	r->converted = is_converted(r->at);
	REQUIRE(holds(r));
}

/* A child has the bytes, and the regions end. `write`: there is memory for a second copy. */
static void finish(bool write)
{
	unsigned int converted = 0;
	int status;
	pid_t pid = fork();

	REQUIRE(pid >= 0);
	if (!pid) {
		for (int i = 0; i < REGIONS; i++) {
			REQUIRE(holds(&regions[i]));
			if (write)
				memset(regions[i].at, 0, regions[i].size);
		}
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && !status);
	for (int i = 0; i < REGIONS; i++) {
		struct region *r = &regions[i];

		REQUIRE(holds(r) && !is_converted(r->at));
		REQUIRE(!ibv_dereg_mr(r->mr));
		REQUIRE(holds(r) && !is_converted(r->at));
		converted += r->converted;
	}
	printf("converted %u of %d\n", converted, REGIONS);
}

static bool late;

#ifdef __x86_64__
static long raw_call(long number, const long arg[6])
{
	register long r10 __asm__("r10") = arg[3];
	register long r8 __asm__("r8") = arg[4];
	register long r9 __asm__("r9") = arg[5];
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(arg[0]), "S"(arg[1]), "d"(arg[2]), "r"(r10), "r"(r8),
			   "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* The library opens the list of threads by it. The program's own function comes before libc's. */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static int pipe_fds[2];
	long arg[6], result;
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (late && number == SYS_openat && !strcmp((char *)arg[1], "/proc/self/task") &&
	    !pipe_fds[0])
		REQUIRE(!pipe(pipe_fds) && write(pipe_fds[1], "", 1) == 1);
	result = raw_call(number, arg);
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
#endif

static void refuse_memory_files(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	REQUIRE(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	REQUIRE(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* Until none is left. */
static void take_descriptors(void)
{
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){200, 200}));
	while (dup(0) >= 0)
		;
	REQUIRE(errno == EMFILE);
}

/* Until none is left: each page has other rights than its neighbours. */
static void take_mappings(void)
{
	enum { MOST = 200000 };
	uint8_t *at = mmap(NULL, (size_t)MOST * PAGE, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int i = 1;

	REQUIRE(at != MAP_FAILED);
	while (i < MOST && !mprotect(at + (size_t)i * PAGE, PAGE, PROT_READ))
		i += 2;
	REQUIRE(i < MOST && errno == ENOMEM);
	/* One place may be left, which a mapping apart takes. */
	while (mmap(NULL, PAGE, i++ % 2 ? PROT_READ : PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		;
	REQUIRE(errno == ENOMEM);
}

/* All but some bytes of the cgroup's. */
static void take_memory(const char *limit, const char *usage)
{
	unsigned long most = strtoul(limit, NULL, 10), used = 0;

	do {
		FILE *file = fopen(usage, "re");

		REQUIRE(file && fscanf(file, "%lu", &used) == 1);
		fclose(file);
		uint8_t *at = mmap(NULL, 128 << 10, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		REQUIRE(at != MAP_FAILED);
	} while (used + (1 << 20) < most);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	bool memory = !strcmp(what, "cgroup") && argc == 4;

	maps = fopen("/proc/self/maps", "re");
	REQUIRE(maps);
	device_open();
	for (int i = 0; i < REGIONS; i++)
		region_make(&regions[i], memory ? 16 << 20 : 64 << 10);
	if (memory)
		take_memory(argv[2], argv[3]);
	else if (!strcmp(what, "seccomp"))
		refuse_memory_files();
	late = !strcmp(what, "late");
	region_register(&regions[0]);
	if (!strcmp(what, "descriptors"))
		take_descriptors();
	else if (!strcmp(what, "mappings"))
		take_mappings();
	region_register(&regions[1]);
	finish(!memory);
	return 0;
}
