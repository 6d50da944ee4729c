/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What fork(), ibv_reg_mr() and ibv_dereg_mr() cost in a process of GIB GiB with 1 MiB that is
 * registered; with VERBENA_MEMORY=shared the latter is converted (docs/memory.md).
 *
 * usage: forking GIB
 * Prints medians: plain_ms, a fork before the device is open; first_ms, the first one after a
 * registration; next_ms, the second one; register_ms and deregister_ms of that 1 MiB;
 * convert_us and return_us, for each MiB of 64 MiB. One thread.
 */
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "measure.h"

enum { TIMES = 9, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static double samples[6][TIMES];
enum { PLAIN, FIRST, NEXT, REGISTER, DEREGISTER, LARGE };

static uint8_t *touched(size_t bytes)
{
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		give_up("no memory");
	memset(at, 1, bytes);
	return at;
}

/* ms that the parent takes. */
static double fork_ms(void)
{
	double began = now();
	pid_t pid = fork();
	double took = now() - began;

	if (!pid)
		_exit(0);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		give_up("fork");
	return took / 1e6;
}

static struct ibv_pd *domain(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;

	if (!pd)
		give_up("no device");
	ibv_free_device_list(list);
	return pd;
}

static struct ibv_mr *registered(struct ibv_pd *pd, void *at, size_t bytes, double *took_ms)
{
	double began = now();
	struct ibv_mr *mr = ibv_reg_mr(pd, at, bytes, RIGHTS);

	if (!mr)
		give_up("ibv_reg_mr");
	*took_ms = (now() - began) / 1e6;
	return mr;
}

static void deregister(struct ibv_mr *mr, double *took_ms)
{
	double began = now();

	if (ibv_dereg_mr(mr))
		give_up("ibv_dereg_mr");
	*took_ms = (now() - began) / 1e6;
}

static double median(double *of)
{
	qsort(of, TIMES, sizeof(*of), compare);
	return of[TIMES / 2];
}

int main(int argc, char **argv)
{
	double large_back[TIMES];
	size_t small_bytes = 1 << 20, large_bytes = 64 << 20;

	touched(strtoul(argc > 1 ? argv[1] : "1", NULL, 10) << 30);
	/* Apart from the thread's own memory, which can't be converted. */
	uint8_t *small = touched(3 * small_bytes) + small_bytes, *large = touched(large_bytes);

	for (int i = 0; i < TIMES; i++)
		samples[PLAIN][i] = fork_ms();
	struct ibv_pd *pd = domain();

	for (int i = 0; i < TIMES; i++) {
		struct ibv_mr *mr = registered(pd, small, small_bytes, &samples[REGISTER][i]);

		samples[FIRST][i] = fork_ms();
		samples[NEXT][i] = fork_ms();
		deregister(mr, &samples[DEREGISTER][i]);
	}
	for (int i = 0; i < TIMES; i++) {
		struct ibv_mr *mr = registered(pd, large, large_bytes, &samples[LARGE][i]);

		deregister(mr, &large_back[i]);
	}
	printf("plain_ms %.2f\nfirst_ms %.2f\nnext_ms %.2f\n", median(samples[PLAIN]),
	       median(samples[FIRST]), median(samples[NEXT]));
	printf("register_ms %.3f\nderegister_ms %.3f\n", median(samples[REGISTER]),
	       median(samples[DEREGISTER]));
	printf("convert_us %.0f\nreturn_us %.0f\n",
	       (median(samples[LARGE]) - median(samples[REGISTER])) * 1000 / 63,
	       median(large_back) * 1000 / 64);
	return 0;
}
