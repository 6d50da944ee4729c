/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Private memory that is converted at registration (docs/memory.md): peers map it, and the program
 * sees no difference. See rig.h and found.h. End B has the memory.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "found.h"

/* BYTES in the heap, not at a page's beginning, with a neighbour on either side. */
struct heap {
	uint8_t *before, *at, *after;
};

uint8_t *private_pages(struct rig *rig, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(rig, at != MAP_FAILED);
	return at;
}

uint8_t *convertible_pages(struct rig *rig, struct end *end)
{
	if (rig->carrier != RIG_CONVERTED)
		return NULL;
	end_pair(end, rig, NULL);
	uint8_t *at = private_pages(rig, BYTES);

	pattern_fill(at, BYTES, SEED);
	return at;
}

/* ------------------------------------------------------------------ use */

static void use_region(struct rig *rig, uint8_t *at)
{
	struct found found;
	struct end open, *end = &open;

	end_pair(end, rig, NULL);
	found_register(&found, end, at, ALL_RIGHTS);
	if (rig->role == RIG_B)
		CHECK(rig, is_converted(at) && is_converted(at + BYTES - 1));
	use_all(end, &found);
	if (rig->role == RIG_A)
		await_mapping(end, &found, IBV_WR_RDMA_WRITE);
	rig_sync(rig);
	use_all(end, &found);
	end_region(end, &found, true);
	if (rig->role == RIG_B)
		CHECK(rig, is_private(at) && is_private(at + BYTES - 1));
	end_close(end);
}

/* Small blocks in the heap; a large one; pages. */
static void converted_used(struct rig *rig)
{
	struct heap heap = {0};
	uint8_t *pages = NULL;

	if (rig->carrier != RIG_CONVERTED)
		return;
	if (rig->role == RIG_B) {
		heap.before = malloc(100);
		heap.at = malloc(BYTES);
		heap.after = malloc(100);
		memset(heap.before, OLD, 100);
		memset(heap.after, NEW, 100);
		pages = private_pages(rig, 4 << 20);
		pages[0] = pages[BYTES] = OLD;
	}
	for (int i = 0; i < 3; i++) {
		use_region(rig, heap.at);
		use_region(rig, pages ? pages + 40 : NULL);
	}
	if (rig->role == RIG_B) {
		for (int i = 0; i < 100; i++) {
			CHECK_EQ(rig, heap.before[i], OLD);
			CHECK_EQ(rig, heap.after[i], NEW);
		}
		CHECK_EQ(rig, pages[0], OLD);
		CHECK_EQ(rig, pages[2 << 20], 0);
		munmap(pages, 4 << 20);
		free(heap.before);
		free(heap.at);
		free(heap.after);
	}
}

/* Overlapping regions: a page stays converted as long as one needs it. */
static void converted_twice(struct rig *rig)
{
	struct ibv_mr *mr[3];
	struct end end;

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	uint8_t *at = private_pages(rig, 8 * PAGE);

	pattern_fill(at, 8 * PAGE, SEED);
	CHECK(rig, (mr[0] = ibv_reg_mr(end.pd, at + 10, 3 * PAGE, ALL_RIGHTS)));
	CHECK(rig, is_converted(at) && is_converted(at + 3 * PAGE) && is_private(at + 4 * PAGE));
	CHECK(rig, (mr[1] = ibv_reg_mr(end.pd, at + 4 * PAGE, 4 * PAGE, ALL_RIGHTS)));
	CHECK(rig, (mr[2] = ibv_reg_mr(end.pd, at + 2 * PAGE, 3 * PAGE, ALL_RIGHTS)));
	CHECK(rig, is_converted(at + 8 * PAGE - 1));
	OK(rig, ibv_dereg_mr(mr[0]));
	CHECK(rig, is_private(at + PAGE) && is_converted(at + 2 * PAGE));
	OK(rig, ibv_dereg_mr(mr[1]));
	CHECK(rig, is_private(at + 5 * PAGE) && is_converted(at + 4 * PAGE));
	CHECK(rig, pattern_holds(at, 8 * PAGE, SEED));
	OK(rig, ibv_dereg_mr(mr[2]));
	CHECK(rig, is_private(at + 2 * PAGE) && is_private(at + 4 * PAGE));
	CHECK(rig, pattern_holds(at, 8 * PAGE, SEED));
	/* And by ibv_rereg_mr(). */
	CHECK(rig, (mr[0] = ibv_reg_mr(end.pd, at, 2 * PAGE, ALL_RIGHTS)));
	OK(rig,
	   ibv_rereg_mr(mr[0], IBV_REREG_MR_CHANGE_TRANSLATION, end.pd, at + PAGE, 2 * PAGE, 0));
	CHECK(rig, is_private(at) && is_converted(at + PAGE) && is_private(at + 2 * PAGE));
	OK(rig, ibv_dereg_mr(mr[0]));
	CHECK(rig, is_private(at + PAGE) && pattern_holds(at, 8 * PAGE, SEED));
	munmap(at, 8 * PAGE);
	end_close(&end);
}

/* ------------------------------------------------------------------ fork */

/* In the child: its memory is as of the fork, and stays so. */
static int child_looks(uint8_t *at, size_t bytes, int from_parent, int to_parent)
{
	char byte;

	if (!pattern_holds(at, bytes, SEED))
		return 2;
	memset(at, NEW, bytes); /* the parent doesn't see it */
	if (write(to_parent, "x", 1) != 1 || read(from_parent, &byte, 1) != 1)
		return 3;
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != NEW)
			return 4;
	return 0;
}

static void fork_and_look(struct rig *rig, uint8_t *at, size_t bytes)
{
	int down[2], up[2], status;
	char byte;

	pattern_fill(at, bytes, SEED);
	CHECK(rig, !pipe(down) && !pipe(up));
	pid_t pid = fork();

	CHECK(rig, pid >= 0);
	if (!pid)
		_exit(child_looks(at, bytes, down[0], up[1]));
	CHECK(rig, read(up[0], &byte, 1) == 1);
	CHECK(rig, pattern_holds(at, bytes, SEED));
	memset(at, OLD, bytes); /* the child doesn't see it */
	CHECK(rig, write(down[1], "x", 1) == 1);
	CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
	CHECK_EQ(rig, status, 0);
	for (int i = 0; i < 2; i++)
		close(down[i]), close(up[i]);
}

/* `verbena resources mr` says whether peers map any region of this process. */
static void resources_say(struct rig *rig, bool mapped)
{
	const char *build = getenv("VERBENA_BUILD_DIR");
	char command[512];

	if (!build)
		return;
	snprintf(command, sizeof(command),
		 "%s/bin/verbena resources mr --pid %d --json | grep -q '\"mapped\"'", build,
		 getpid());
	CHECK_EQ(rig, !system(command), mapped); /* NOLINT */
}

static void converted_forks(struct rig *rig)
{
	struct ibv_mr *mr;
	struct end end;

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	for (size_t bytes = BYTES; bytes <= 5 << 20; bytes *= 16) {
		uint8_t *at = private_pages(rig, bytes);

		CHECK(rig, (mr = ibv_reg_mr(end.pd, at + 100, bytes - 200, ALL_RIGHTS)));
		CHECK(rig, is_converted(at));
		resources_say(rig, true);
		CHECK(rig, is_converted(at));
		fork_and_look(rig, at, bytes);
		CHECK(rig, is_private(at));
		resources_say(rig, false);
		fork_and_look(rig, at, bytes);
		OK(rig, ibv_dereg_mr(mr));
		munmap(at, bytes);
	}
	end_close(&end);
}

/* A child that no handler knows of can't write into the memory. */
static void converted_cloned(struct rig *rig)
{
	struct ibv_mr *mr;
	struct end end;
	int status;

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	uint8_t *at = private_pages(rig, BYTES);

	CHECK(rig, (mr = ibv_reg_mr(end.pd, at, BYTES, ALL_RIGHTS)));
	at[0] = OLD;
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		at[0] = NEW;
		_exit(0);
	}
	CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
	CHECK(rig, WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK_EQ(rig, at[0], OLD);
	/* One that executes another program finds nothing changed. */
	CHECK_EQ(rig, system("true"), 0); /* NOLINT */
	CHECK(rig, is_converted(at));
	OK(rig, ibv_dereg_mr(mr));
	munmap(at, BYTES);
	end_close(&end);
}

enum { STREAM = 4000, FORKS = 8 };

/* A writes while B forks: all that A wrote is there, also what was on its way. */
static void converted_forks_under_writes(struct rig *rig)
{
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int status;

	if (rig->carrier != RIG_CONVERTED)
		return;
	for (int round = 0; round < FORKS; round++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_B)
			at = private_pages(rig, BYTES);
		found_register(&found, &end, at, ALL_RIGHTS);
		if (rig->role == RIG_A) {
			await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
			rig_sync(rig);
			for (uint64_t i = 0; i < STREAM; i++) {
				uint64_t number = i, place = i % (BYTES / 8) * 8;

				memcpy(end.buf, &number, 8);
				operate(&end, &found, IBV_WR_RDMA_WRITE, i, 8, place,
					IBV_WC_SUCCESS);
				operate(&end, &found, IBV_WR_RDMA_READ, i, 8, place,
					IBV_WC_SUCCESS);
				CHECK_EQ(rig, *(uint64_t *)(void *)end.buf, i);
			}
		} else {
			CHECK(rig, is_converted(at));
			rig_sync(rig);
			while (!*(volatile uint64_t *)(void *)(at + 8 + (size_t)round * 3200))
				usleep(10);
			pid_t pid = fork();

			if (!pid)
				_exit(!is_private(at));
			CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
			CHECK_EQ(rig, status, 0);
			CHECK(rig, is_private(at));
		}
		rig_sync(rig);
		for (uint64_t i = 0; rig->role == RIG_B && i < STREAM; i++)
			CHECK_EQ(rig, *(uint64_t *)(void *)(at + i % (BYTES / 8) * 8), i);
		rig_sync(rig);
		end_region(&end, &found, true);
		if (at)
			munmap(at, BYTES);
		end_close(&end);
	}
}

/* ------------------------------------------------------------------ what the program does to it */

/* Moved, grown, unmapped in part, protected: it is private again at the end, and as it was. */
static void converted_moved(struct rig *rig)
{
	struct ibv_mr *mr;
	struct end end;

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	uint8_t *at = private_pages(rig, 8 * PAGE);

	pattern_fill(at, 8 * PAGE, SEED);
	CHECK(rig, (mr = ibv_reg_mr(end.pd, at, 8 * PAGE, ALL_RIGHTS)));
	/* Grown: what is new is zero. */
	uint8_t *moved = mremap(at, 8 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);

	CHECK(rig, moved != MAP_FAILED && pattern_holds(moved, 8 * PAGE, SEED));
	CHECK_EQ(rig, moved[63 * PAGE], 0);
	memset(moved + 8 * PAGE, OLD, 56 * PAGE);
	OK(rig, munmap(moved + 2 * PAGE, PAGE));
	OK(rig, mprotect(moved + 4 * PAGE, PAGE, PROT_READ));
	OK(rig, ibv_dereg_mr(mr));
	CHECK(rig,
	      is_private(moved) && is_private(moved + 3 * PAGE) && is_private(moved + 63 * PAGE));
	CHECK(rig, !strcmp(maps_find(moved + 4 * PAGE, NULL).rights, "r--p"));
	CHECK(rig, !maps_find(moved + 2 * PAGE, NULL).rights[0]);
	CHECK(rig, pattern_holds(moved, 2 * PAGE, SEED));
	CHECK_EQ(rig, moved[64 * PAGE - 1], OLD);
	OK(rig, madvise(moved + 8 * PAGE, 56 * PAGE, MADV_DONTNEED));
	CHECK_EQ(rig, moved[64 * PAGE - 1], 0);
	munmap(moved, 64 * PAGE);
	end_close(&end);
}

struct storer {
	_Atomic uint64_t *word;
	_Atomic bool stop;
	uint64_t stored;
};

static void *store_on(void *arg)
{
	struct storer *s = arg;

	while (!atomic_load(&s->stop)) {
		atomic_fetch_add_explicit(s->word, 1, memory_order_relaxed);
		s->stored++;
	}
	return NULL;
}

/* While it is registered the program starts a thread, which stores to the page during its return:
 * no store is lost, and dropped pages read as zeros. */
static void converted_threads(struct rig *rig)
{
	struct storer storer = {.stored = 0};
	struct ibv_mr *mr;
	pthread_t thread;
	struct end end;

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	uint8_t *at = private_pages(rig, BYTES);

	storer.word = (_Atomic uint64_t *)(void *)at;
	for (int round = 0; round < 50; round++) {
		pattern_fill(at + PAGE, BYTES - PAGE, SEED);
		CHECK(rig, (mr = ibv_reg_mr(end.pd, at, BYTES, ALL_RIGHTS)));
		CHECK(rig, is_converted(at));
		atomic_store(&storer.stop, false);
		OK(rig, pthread_create(&thread, NULL, store_on, &storer));
		if (round % 2)
			usleep(100);
		OK(rig, ibv_dereg_mr(mr));
		CHECK(rig, is_private(at));
		atomic_store(&storer.stop, true);
		OK(rig, pthread_join(thread, NULL));
		CHECK_EQ(rig, atomic_load(storer.word), storer.stored);
		CHECK(rig, pattern_holds(at + PAGE, BYTES - PAGE, SEED));
		OK(rig, madvise(at + PAGE, PAGE, MADV_DONTNEED));
		CHECK_EQ(rig, at[PAGE], 0);
		/* Plain memory again, which can be converted. */
		munmap(at, BYTES);
		CHECK(rig, mmap(at, BYTES, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		storer.stored = 0;
	}
	munmap(at, BYTES);
	end_close(&end);
}

/* ------------------------------------------------------------------ what isn't converted */

/* A thread that waits for a lock of a file: it can't be stopped unseen (docs/memory.md). */
struct waiter {
	pthread_t thread;
	_Atomic int number;
	int held, wanted; /* the file, opened twice */
};

static void *wait_for_lock(void *arg)
{
	struct waiter *w = arg;

	w->number = (int)gettid();
	flock(w->wanted, LOCK_EX);
	return NULL;
}

/* Whether it sleeps, as /proc says. */
static bool waiter_sleeps(const struct waiter *w)
{
	char path[64], text[128] = "";
	const char *state;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", w->number);
	FILE *file = fopen(path, "re");

	if (file) {
		state = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
		fclose(file);
		return state && state[1] && state[2] == 'S';
	}
	return false;
}

static void waiter_begin(struct rig *rig, struct waiter *w)
{
	char path[64];

	w->number = 0;
	w->held = memfd_create("lock", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->held);
	w->wanted = open(path, O_RDWR | O_CLOEXEC);
	CHECK(rig, w->wanted >= 0 && !flock(w->held, LOCK_EX));
	OK(rig, pthread_create(&w->thread, NULL, wait_for_lock, w));
	while (!w->number || !waiter_sleeps(w))
		usleep(1000);
}

static void waiter_end(struct rig *rig, struct waiter *w)
{
	flock(w->held, LOCK_UN);
	OK(rig, pthread_join(w->thread, NULL));
	close(w->held);
	close(w->wanted);
}

static void stays_private(struct end *end, uint8_t *at)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, at, BYTES, ALL_RIGHTS);

	CHECK(end->rig, mr && is_private(at));
	OK(end->rig, ibv_dereg_mr(mr));
}

static void converted_not(struct rig *rig)
{
	struct waiter waiter;
	struct ibv_mr *mr;
	struct end end;
	int pipes[2];

	if (rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	uint8_t *at = private_pages(rig, BYTES);

	/* a second thread, which can't be stopped */
	waiter_begin(rig, &waiter);
	stays_private(&end, at);
	waiter_end(rig, &waiter);
	/* a pipe with data */
	CHECK(rig, !pipe(pipes) && write(pipes[1], "x", 1) == 1);
	stays_private(&end, at);
	close(pipes[0]);
	close(pipes[1]);
	/* marked memory */
	OK(rig, madvise(at + PAGE, PAGE, MADV_DONTFORK));
	stays_private(&end, at);
	OK(rig, madvise(at + PAGE, PAGE, MADV_DOFORK));
	OK(rig, madvise(at, PAGE, MADV_WIPEONFORK));
	stays_private(&end, at);
	OK(rig, madvise(at, PAGE, MADV_KEEPONFORK));
	/* a region that may have windows, also on converted pages */
	CHECK(rig, (mr = ibv_reg_mr(end.pd, at, PAGE, ALL_RIGHTS)) && is_converted(at));
	struct ibv_mr *bound =
		ibv_reg_mr(end.pd, at + 8, BYTES - 8, ALL_RIGHTS | IBV_ACCESS_MW_BIND);

	CHECK(rig, bound && is_private(at));
	OK(rig, ibv_dereg_mr(bound));
	OK(rig, ibv_dereg_mr(mr));
	/* and now nothing stands against it */
	CHECK(rig, (mr = ibv_reg_mr(end.pd, at, BYTES, ALL_RIGHTS)) && is_converted(at));
	OK(rig, ibv_dereg_mr(mr));
	munmap(at, BYTES);
	end_close(&end);
}

const struct rig_test converted_tests[] = {
	{"converted_used", converted_used},
	{"converted_twice", converted_twice},
	{"converted_forks", converted_forks},
	{"converted_cloned", converted_cloned},
	{"converted_forks_under_writes", converted_forks_under_writes},
	{"converted_moved", converted_moved},
	{"converted_threads", converted_threads},
	{"converted_not", converted_not},
	{NULL, NULL},
};
