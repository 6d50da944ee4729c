/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converted memory that the kernel holds or other processes share: io_uring, userfaultfd, O_DIRECT,
 * and children of every kind (docs/memory.md). Both ends do the same, each with memory of its own.
 * See rig.h and found.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "found.h"

extern char **environ;

enum { FORKS_MAX = 10000 };

struct held {
	struct rig *rig;
	struct end end;
	uint8_t *at;
};

static bool held_begin(struct held *h, struct rig *rig)
{
	*h = (struct held){.rig = rig};
	h->at = convertible_pages(rig, &h->end);
	return h->at;
}

static struct ibv_mr *held_register(struct held *h, bool converted)
{
	struct ibv_mr *mr = ibv_reg_mr(h->end.pd, h->at, BYTES, ALL_RIGHTS);

	CHECK(h->rig, mr);
	CHECK_EQ(h->rig, is_converted(h->at), converted);
	return mr;
}

static void held_end(struct held *h)
{
	munmap(h->at, BYTES);
	end_close(&h->end);
}

static void child_ends_well(struct rig *rig, pid_t pid)
{
	int status;

	CHECK(rig, pid > 0);
	CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
	CHECK_EQ(rig, status, 0);
}

/* In the child: its memory is as of the fork, and it may write to it. */
static _Noreturn void child_has_pattern(uint8_t *at)
{
	if (!pattern_holds(at, BYTES, SEED))
		_exit(2);
	memset(at, NEW, BYTES);
	_exit(at[BYTES - 1] != NEW);
}

/* ------------------------------------------------------------------ io_uring */

/* A ring without SQPOLL; its queues are mapped. */
struct ring {
	int fd;
	struct io_uring_params p;
	uint8_t *queue;
	struct io_uring_sqe *sqe;
};

static bool ring_make(struct ring *r)
{
	*r = (struct ring){.fd = -1};
	r->fd = (int)syscall(SYS_io_uring_setup, 8, &r->p);
	if (r->fd < 0)
		return false;
	r->queue =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->sqe = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	return r->queue != MAP_FAILED && (void *)r->sqe != MAP_FAILED;
}

static void ring_end(struct ring *r)
{
	munmap(r->queue, 2 * PAGE);
	munmap(r->sqe, PAGE);
	close(r->fd);
}

/* Executes one request to its end; its result. */
static int ring_do(struct ring *r, const struct io_uring_sqe *request)
{
	_Atomic uint32_t *tail = (void *)(r->queue + r->p.sq_off.tail);
	_Atomic uint32_t *head = (void *)(r->queue + r->p.cq_off.head);
	uint32_t *array = (void *)(r->queue + r->p.sq_off.array);
	struct io_uring_cqe *cqe = (void *)(r->queue + r->p.cq_off.cqes);
	uint32_t at = atomic_load(tail) % r->p.sq_entries;

	r->sqe[at] = *request;
	array[at] = at;
	atomic_fetch_add(tail, 1);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -errno;
	int result = cqe[atomic_load(head) % r->p.cq_entries].res;

	atomic_fetch_add(head, 1);
	return result;
}

static int ring_read_fixed(struct ring *r, int file, uint8_t *to, unsigned int length)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_READ_FIXED, .fd = file, .addr = (uintptr_t)to, .len = length};

	return ring_do(r, &sqe);
}

static int pattern_file(struct rig *rig, int flags)
{
	char name[] = "/var/tmp/verbena-held-XXXXXX";
	int fd = mkstemp(name), again = open(name, O_RDWR | O_CLOEXEC | flags);
	uint8_t *bytes = malloc(BYTES);

	CHECK(rig, fd >= 0 && bytes);
	unlink(name);
	pattern_fill(bytes, BYTES, SEED + 1);
	CHECK_EQ(rig, write(fd, bytes, BYTES), BYTES);
	free(bytes);
	close(fd);
	return again; /* -1: not with these flags */
}

/* A ring that is there first rules conversion out, also one without a descriptor. */
static void held_ring_before(struct rig *rig)
{
	/* 1 << 31: the ring is named by its number */
	struct io_uring_rsrc_update own = {.offset = -1U};
	struct ring ring;
	struct held h;

	if (!held_begin(&h, rig))
		return;
	if (ring_make(&ring)) {
		OK(rig, ibv_dereg_mr(held_register(&h, false)));
		own.data = (uint64_t)ring.fd;
		if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_RING_FDS, &own, 1) ==
		    1) {
			ring_end(&ring);
			OK(rig, ibv_dereg_mr(held_register(&h, false)));
			own.data = 0;
			CHECK(rig, syscall(SYS_io_uring_register, own.offset,
					   IORING_UNREGISTER_RING_FDS | 1U << 31, &own, 1) == 1);
		} else {
			ring_end(&ring);
		}
	}
	OK(rig, ibv_dereg_mr(held_register(&h, true)));
	held_end(&h);
}

/* A ring that comes later: its fixed buffers are the same pages; a child has its own copy; the
 * pages stay as they are until the ring is gone. */
static void held_ring_after(struct rig *rig)
{
	struct ring ring;
	struct held h;
	int up[2], file;

	if (!held_begin(&h, rig))
		return;
	struct ibv_mr *mr = held_register(&h, true);
	struct iovec all = {h.at, BYTES};

	file = pattern_file(rig, 0);
	CHECK(rig, file >= 0 && !pipe(up));
	if (!ring_make(&ring)) {
		OK(rig, ibv_dereg_mr(mr));
		held_end(&h);
		return;
	}
	OK(rig, (int)syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &all, 1));
	for (int i = 0; i < 3; i++) {
		pattern_fill(h.at, BYTES, SEED);
		pid_t pid = fork();
		char byte;

		if (!pid) {
			if (read(up[0], &byte, 1) != 1)
				_exit(3);
			child_has_pattern(h.at);
		}
		/* The ring writes what the parent sees; the child doesn't. */
		CHECK_EQ(rig, ring_read_fixed(&ring, file, h.at, BYTES), BYTES);
		CHECK(rig, pattern_holds(h.at, BYTES, SEED + 1));
		CHECK_EQ(rig, write(up[1], "x", 1), 1);
		child_ends_well(rig, pid);
		CHECK(rig, pattern_holds(h.at, BYTES, SEED + 1) && is_converted(h.at));
	}
	OK(rig, ibv_dereg_mr(mr));
	CHECK(rig, is_converted(h.at) && pattern_holds(h.at, BYTES, SEED + 1));
	memset(h.at, 0, BYTES);
	CHECK_EQ(rig, ring_read_fixed(&ring, file, h.at, BYTES), BYTES);
	CHECK(rig, pattern_holds(h.at, BYTES, SEED + 1));
	ring_end(&ring);
	close(up[0]);
	close(up[1]);
	pattern_fill(h.at, BYTES, SEED);
	/* The kernel's threads for the ring end a moment after its descriptor; until then a fork
	 * finds that the process isn't quiet, and copies. */
	for (int i = 0; i < FORKS_MAX && !is_private(h.at); i++) {
		pid_t pid = fork();

		if (!pid)
			child_has_pattern(h.at);
		child_ends_well(rig, pid);
	}
	CHECK(rig, is_private(h.at) && pattern_holds(h.at, BYTES, SEED));
	close(file);
	held_end(&h);
}

/* ------------------------------------------------------------------ userfaultfd, O_DIRECT, mbind()
 */

static void held_userfaultfd(struct rig *rig)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range;
	struct held h;

	if (!held_begin(&h, rig))
		return;
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd >= 0 && !ioctl(fd, UFFDIO_API, &api)) {
		OK(rig, ibv_dereg_mr(held_register(&h, false)));
		close(fd);
		struct ibv_mr *mr = held_register(&h, true);

		api = (struct uffdio_api){.api = UFFD_API};
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
		CHECK(rig, fd >= 0 && !ioctl(fd, UFFDIO_API, &api));
		range = (struct uffdio_register){.range = {(uintptr_t)h.at, BYTES},
						 .mode = UFFDIO_REGISTER_MODE_MISSING};
		OK(rig, ioctl(fd, UFFDIO_REGISTER, &range));
		CHECK(rig, pattern_holds(h.at, BYTES, SEED));
		OK(rig, ioctl(fd, UFFDIO_UNREGISTER, &range.range));
		pid_t pid = fork();

		if (!pid)
			child_has_pattern(h.at);
		child_ends_well(rig, pid);
		close(fd);
		OK(rig, ibv_dereg_mr(mr));
		CHECK(rig, is_private(h.at) && pattern_holds(h.at, BYTES, SEED));
	} else if (fd >= 0) {
		close(fd);
	}
	held_end(&h);
}

static void held_direct(struct rig *rig)
{
	struct held h;
	int fd;

	if (!held_begin(&h, rig))
		return;
	fd = pattern_file(rig, O_DIRECT);
	if (fd >= 0) {
		struct ibv_mr *mr = held_register(&h, true);

		CHECK_EQ(rig, pread(fd, h.at, BYTES, 0), BYTES);
		CHECK(rig, pattern_holds(h.at, BYTES, SEED + 1));
		pattern_fill(h.at, BYTES, SEED);
		CHECK_EQ(rig, pwrite(fd, h.at, BYTES, 0), BYTES);
		memset(h.at, 0, BYTES);
		OK(rig, ibv_dereg_mr(mr));
		CHECK_EQ(rig, pread(fd, h.at, BYTES, 0), BYTES);
		CHECK(rig, pattern_holds(h.at, BYTES, SEED));
		close(fd);
	}
	held_end(&h);
}

/* Memory with a policy of its own stays as it is. */
static void held_policy(struct rig *rig)
{
	unsigned long node = 1;
	struct held h;

	if (!held_begin(&h, rig))
		return;
	if (!syscall(SYS_mbind, h.at + PAGE, PAGE, MPOL_BIND, &node, sizeof(node) * 8, 0)) {
		OK(rig, ibv_dereg_mr(held_register(&h, false)));
		OK(rig, (int)syscall(SYS_mbind, h.at + PAGE, PAGE, MPOL_DEFAULT, NULL, 0, 0));
	}
	OK(rig, ibv_dereg_mr(held_register(&h, true)));
	held_end(&h);
}

/* ------------------------------------------------------------------ children */

/* vfork() and posix_spawn(): nothing changes. */
static void held_spawns(struct rig *rig)
{
	char *argv[] = {"true", NULL};
	struct held h;
	pid_t pid;

	if (!held_begin(&h, rig))
		return;
	struct ibv_mr *mr = held_register(&h, true);

	OK(rig, posix_spawnp(&pid, "true", NULL, NULL, argv, environ));
	child_ends_well(rig, pid);
	pid = vfork(); /* NOLINT */
	if (!pid)
		_exit(0);
	child_ends_well(rig, pid);
	CHECK(rig, is_converted(h.at) && pattern_holds(h.at, BYTES, SEED));
	OK(rig, ibv_dereg_mr(mr));
	held_end(&h);
}

/* Children that no handler knows of can't write into the memory, nor read it. */
static void held_clones(struct rig *rig)
{
	struct held h;
	int status;

	if (!held_begin(&h, rig))
		return;
	struct ibv_mr *mr = held_register(&h, true);

	for (int i = 0; i < 6; i++) {
		pid_t pid = i / 2 == 0 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
			    : i / 2 == 1
				    ? (pid_t)syscall(SYS_clone3, (uint64_t[8]){[4] = SIGCHLD}, 64)
				    : _Fork();

		if (!pid) {
			signal(SIGSEGV, SIG_DFL);
			if (i % 2)
				((volatile uint8_t *)h.at)[BYTES - 1] = NEW;
			else
				_exit(((volatile uint8_t *)h.at)[0] & 0);
			_exit(0);
		}
		CHECK(rig, pid > 0);
		CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
		CHECK(rig, WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		CHECK(rig, pattern_holds(h.at, BYTES, SEED));
	}
	/* After a fork that the library knows of, such a child has its copy, too. */
	pid_t pid = fork();

	if (!pid)
		child_has_pattern(h.at);
	child_ends_well(rig, pid);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		child_has_pattern(h.at);
	child_ends_well(rig, pid);
	CHECK(rig, pattern_holds(h.at, BYTES, SEED));
	OK(rig, ibv_dereg_mr(mr));
	held_end(&h);
}

static _Atomic bool sharer_may_end;

static int share_memory(void *unused)
{
	(void)unused;
	while (!atomic_load(&sharer_may_end))
		sched_yield();
	return 0;
}

/* A process that has the same memory rules conversion out. */
static void held_sharer(struct rig *rig)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct held h;

	if (!held_begin(&h, rig))
		return;
	for (int i = 0; i < 2; i++) {
		atomic_store(&sharer_may_end, false);
		pid_t pid = clone(share_memory, stack + sizeof(stack), CLONE_VM | (i ? SIGCHLD : 0),
				  NULL);
		int status;

		CHECK(rig, pid > 0);
		OK(rig, ibv_dereg_mr(held_register(&h, false)));
		atomic_store(&sharer_may_end, true);
		CHECK_EQ(rig, waitpid(pid, &status, __WALL), pid);
		CHECK_EQ(rig, status, 0);
	}
	OK(rig, ibv_dereg_mr(held_register(&h, true)));
	held_end(&h);
}

enum { FORKERS = 4, FORKS_EACH = 10 };

struct forker {
	pthread_t thread;
	uint8_t *at;
	bool fine;
};

static void *fork_often(void *arg)
{
	struct forker *f = arg;
	int status;

	f->fine = true;
	for (int i = 0; f->fine && i < FORKS_EACH; i++) {
		pid_t pid = fork();

		if (!pid)
			child_has_pattern(f->at);
		f->fine = pid > 0 && waitpid(pid, &status, 0) == pid && !status;
	}
	return NULL;
}

/* Several threads fork at once. */
static void held_forkers(struct rig *rig)
{
	struct forker forker[FORKERS];
	struct held h;

	if (!held_begin(&h, rig))
		return;
	for (int round = 0; round < 5; round++) {
		/* Later ones may find memory that was returned while threads ran. */
		struct ibv_mr *mr = round ? ibv_reg_mr(h.end.pd, h.at, BYTES, ALL_RIGHTS)
					  : held_register(&h, true);

		CHECK(rig, mr);
		for (int i = 0; i < FORKERS; i++) {
			forker[i].at = h.at;
			OK(rig, pthread_create(&forker[i].thread, NULL, fork_often, &forker[i]));
		}
		for (int i = 0; i < FORKERS; i++) {
			OK(rig, pthread_join(forker[i].thread, NULL));
			CHECK(rig, forker[i].fine);
		}
		CHECK(rig, is_private(h.at) && pattern_holds(h.at, BYTES, SEED));
		OK(rig, ibv_dereg_mr(mr));
	}
	held_end(&h);
}

const struct rig_test held_tests[] = {
	{"held_ring_before", held_ring_before}, {"held_ring_after", held_ring_after},
	{"held_userfaultfd", held_userfaultfd}, {"held_direct", held_direct},
	{"held_policy", held_policy},		{"held_spawns", held_spawns},
	{"held_clones", held_clones},		{"held_sharer", held_sharer},
	{"held_forkers", held_forkers},		{NULL, NULL},
};
