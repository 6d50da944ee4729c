/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with several threads that forks, registers and deregisters, and moves, drops and
 * protects its memory at random, all at once, on memory that is converted (docs/memory.md) as far
 * as it may be. Every block's bytes are known: they are compared after each step, and in each
 * child.
 *
 * usage: upheaval [-p] SECONDS [SEED]
 * -p: the memory may stay private, because the program has more threads (a sanitizer's).
 * Each round is one process with new memory. First it has one thread, which registers blocks that
 * are converted; then THREADS threads take steps, each on its own blocks, while any of them forks.
 * A thread's blocks share pages with those of the others, and with the heap.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "maps.h"

enum {
	THREADS = 4,
	BLOCKS = 8, /* of each thread; the first half in the heap, the others of mmap() */
	STEPS = 60,
	PAGE = 4096,
	HEAP_MOST = 20000,
	PAGES_MOST = 40,
	RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

struct block {
	uint8_t *at;
	size_t size;
	uint32_t seed; /* of its bytes */
	struct ibv_mr *mr;
	bool mapped;   /* by mmap() */
	bool loose;    /* docs/memory.md excepts it: its dropped or new pages may have old bytes */
	bool returned; /* it was registered: the kernel may see several mappings in it */
};

struct worker {
	pthread_t thread;
	uint64_t random;
	unsigned int converted, forks;
	struct block block[BLOCKS];
};

static struct worker workers[THREADS];
static struct ibv_pd *pd;
static bool threads_run, may_stay_private;

static void give_up(const char *what, const struct block *b)
{
	fprintf(stderr, "  %s: %zu bytes at %p, %s, %s\n", what, b->size, (void *)b->at,
		b->mapped ? "mapped" : "in the heap", b->mr ? "registered" : "not registered");
	_exit(1);
}

static uint32_t next(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33);
}

static uint8_t byte_of(uint32_t seed, size_t i)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 7);
}

static void block_fill(struct block *b, uint32_t seed)
{
	b->seed = seed;
	for (size_t i = 0; i < b->size; i++)
		b->at[i] = byte_of(seed, i);
}

static bool block_holds(const struct block *b)
{
	for (size_t i = 0; i < b->size; i++)
		if (b->at[i] != byte_of(b->seed, i))
			return false;
	return true;
}

static void block_make(struct block *b, uint64_t *random)
{
	b->loose = b->returned = false;
	if (b->mapped) {
		b->size = (1 + next(random) % PAGES_MOST) * PAGE;
		b->at = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	} else {
		b->size = 1 + next(random) % HEAP_MOST;
		b->at = malloc(b->size);
	}
	if (!b->at || b->at == MAP_FAILED)
		give_up("no memory", b);
	block_fill(b, next(random));
}

static void block_register(struct block *b)
{
	if (!b->mr && !(b->mr = ibv_reg_mr(pd, b->at, b->size, RIGHTS)))
		give_up("it can't be registered", b);
}

static void block_deregister(struct block *b)
{
	if (b->mr && ibv_dereg_mr(b->mr))
		give_up("it can't be deregistered", b);
	b->returned |= b->mr != NULL;
	b->mr = NULL;
}

static void block_end(struct block *b, bool deregister_first)
{
	if (deregister_first)
		block_deregister(b);
	if (b->mapped)
		munmap(b->at, b->size);
	else
		free(b->at);
	if (!deregister_first)
		block_deregister(b);
}

/* ------------------------------------------------------------------ steps */

/* Of the child: the blocks of the thread that forked are as of the fork; it may change them. */
static _Noreturn void child_looks(struct worker *w)
{
	for (int i = 0; i < BLOCKS; i++)
		if (!block_holds(&w->block[i]))
			give_up("a child has other bytes", &w->block[i]);
	for (int i = 0; i < BLOCKS; i++)
		memset(w->block[i].at, 0xee, w->block[i].size);
	_exit(0);
}

static void fork_once(struct worker *w)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		child_looks(w);
	/* What the parent stores meanwhile isn't the child's. */
	struct block *b = &w->block[next(&w->random) % BLOCKS];

	block_fill(b, next(&w->random));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		give_up("a child has failed", b);
	w->forks++;
}

/* What only mappings may have done to them. Threads don't unmap or move registered memory, because
 * another one may be forking (docs/memory.md). */
static void mapping_change(struct worker *w, struct block *b)
{
	unsigned int change = next(&w->random) % 5;
	uint8_t *to;

	if (threads_run && change != 2)
		block_deregister(b);
	switch (change) {
	case 0: /* zeros, as soon as no region pins it */
		block_deregister(b);
		if (madvise(b->at, b->size, MADV_DONTNEED) < 0)
			give_up("MADV_DONTNEED", b);
		for (size_t i = 0; i < b->size; i++)
			if (b->at[i] && !b->loose)
				give_up("dropped pages aren't zero", b);
		block_fill(b, next(&w->random));
		break;
	case 1: /* moved; what is new is zero */
		to = mremap(b->at, b->size, b->size + 3 * PAGE, MREMAP_MAYMOVE);
		if (to == MAP_FAILED && errno == EFAULT && b->returned)
			break;
		if (to == MAP_FAILED)
			give_up("mremap()", b);
		b->at = to;
		if (!b->loose && (b->at[b->size] || b->at[b->size + 3 * PAGE - 1]))
			give_up("what grew isn't zero", b);
		b->size += 3 * PAGE;
		block_fill(b, next(&w->random));
		break;
	case 2: /* protected meanwhile */
		b->loose = true;
		mprotect(b->at, b->size, PROT_READ);
		if (next(&w->random) % 2)
			block_deregister(b);
		mprotect(b->at, b->size, PROT_READ | PROT_WRITE);
		break;
	case 3: /* the end of it is unmapped */
		if (b->size > PAGE) {
			b->loose = true;
			munmap(b->at + b->size - PAGE, PAGE);
			b->size -= PAGE;
		}
		break;
	default: /* something new over it */
		if (mmap(b->at, b->size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != b->at)
			give_up("mmap()", b);
		b->loose = b->mr; /* it may be the old region's again, grown */
		block_fill(b, next(&w->random));
	}
}

static void step(struct worker *w)
{
	struct block *b = &w->block[next(&w->random) % BLOCKS];

	switch (next(&w->random) % 8) {
	case 0:
	case 1:
		block_register(b);
		break;
	case 2:
		block_deregister(b);
		break;
	case 3:
		block_end(b, next(&w->random) % 2 || threads_run);
		block_make(b, &w->random);
		break;
	case 4:
		fork_once(w);
		break;
	case 5:
	case 6:
		if (b->mapped)
			mapping_change(w, b);
		break;
	default:
		block_fill(b, next(&w->random));
	}
	for (int i = 0; i < BLOCKS; i++)
		if (!block_holds(&w->block[i]))
			give_up("bytes have changed", &w->block[i]);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < STEPS; i++)
		step(w);
	return NULL;
}

/* ------------------------------------------------------------------ rounds */

static void round_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;

	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	if (!pd) {
		fprintf(stderr, "  no device\n");
		_exit(1);
	}
	ibv_free_device_list(list);
}

static void round_close(void)
{
	struct ibv_context *ctx = pd->context;

	if (ibv_dealloc_pd(pd) || ibv_close_device(ctx))
		_exit(1);
}

static _Noreturn void play_round(uint64_t seed)
{
	unsigned int converted = 0, forks = 0;

	round_open();
	for (int t = 0; t < THREADS; t++) {
		struct worker *w = &workers[t];

		w->random = seed * THREADS + (uint64_t)t;
		for (int i = 0; i < BLOCKS; i++) {
			w->block[i].mapped = i >= BLOCKS / 2;
			block_make(&w->block[i], &w->random);
		}
	}
	/* One thread: what is registered now is converted. */
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < BLOCKS; i++)
			if (next(&workers[t].random) % 4)
				block_register(&workers[t].block[i]);
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < BLOCKS; i++)
			converted += is_converted(workers[t].block[i].at);
	if (seed % 3 == 0) /* the steps without threads */
		work(&workers[0]);
	threads_run = true;
	for (int t = 0; t < THREADS; t++)
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			_exit(1);
	for (int t = 0; t < THREADS; t++) {
		pthread_join(workers[t].thread, NULL);
		forks += workers[t].forks;
	}
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < BLOCKS; i++)
			block_end(&workers[t].block[i], true);
	round_close();
	printf("round %llu: %u blocks converted, %u forks\n", (unsigned long long)seed, converted,
	       forks);
	fflush(stdout);
	_exit(!converted && !may_stay_private);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "-p")) {
		may_stay_private = true;
		argc--, argv++;
	}
	double until = seconds() + (argc > 1 ? strtod(argv[1], NULL) : 10);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
	unsigned int rounds = 0;
	int status;

	do {
		pid_t pid = fork();

		if (!pid)
			play_round(seed);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
			fprintf(stderr, "round with seed %llu failed (status 0x%x)\n",
				(unsigned long long)seed, (unsigned int)status);
			return 1;
		}
		rounds++;
		seed++;
	} while (seconds() < until);
	printf("%u rounds\n", rounds);
	return 0;
}
