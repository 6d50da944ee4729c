/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exhaustion: no free descriptors, no address space, no run-time directory. Every verb reports that
 * with NULL and an errno, earlier objects stay usable, and everything works again as soon as there
 * is room. Each case is a process of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { BYTES = 65536 };

struct objects {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

static char buffer[BYTES];

/* Makes the missing objects, as far as possible; 0 or the errno of the first failure. */
static int make(struct objects *o)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1024, .max_sge = 4}};
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = 1024,
					      .max_recv_wr = 1024,
					      .max_send_sge = 4,
					      .max_recv_sge = 4}};
	struct ibv_device **list;

	errno = 0;
	if (!o->ctx) {
		list = ibv_get_device_list(NULL);
		if (!list || !list[0]) {
			if (list)
				ibv_free_device_list(list);
			return errno ? errno : ENODEV;
		}
		o->ctx = ibv_open_device(list[0]);
		ibv_free_device_list(list);
	}
	if (!o->ctx || (!o->pd && !(o->pd = ibv_alloc_pd(o->ctx))))
		return errno ? errno : -1;
	if (!o->channel && !(o->channel = ibv_create_comp_channel(o->ctx)))
		return errno ? errno : -1;
	if (!o->cq && !(o->cq = ibv_create_cq(o->ctx, 20000, NULL, o->channel, 0)))
		return errno ? errno : -1;
	if (!o->srq && !(o->srq = ibv_create_srq(o->pd, &srq)))
		return errno ? errno : -1;
	qp.send_cq = qp.recv_cq = o->cq;
	if (!o->qp && !(o->qp = ibv_create_qp(o->pd, &qp)))
		return errno ? errno : -1;
	if (!o->mr && !(o->mr = ibv_reg_mr(o->pd, buffer, BYTES, IBV_ACCESS_LOCAL_WRITE)))
		return errno ? errno : -1;
	return 0;
}

static bool unmake(struct objects *o)
{
	return !ibv_dereg_mr(o->mr) && !ibv_destroy_qp(o->qp) && !ibv_destroy_srq(o->srq) &&
	       !ibv_destroy_cq(o->cq) && !ibv_destroy_comp_channel(o->channel) &&
	       !ibv_dealloc_pd(o->pd) && !ibv_close_device(o->ctx);
}

/* Runs with a lowered limit, which `lift` raises again. */
static int under_limit(int resource, rlim_t low, const int *allowed)
{
	struct rlimit before, limit;
	struct objects o = {0};
	int error;

	getrlimit(resource, &before);
	limit = before;
	limit.rlim_cur = low;
	if (setrlimit(resource, &limit))
		return 10;
	error = make(&o);
	setrlimit(resource, &before);
	if (error) {
		while (*allowed && *allowed != error)
			allowed++;
		if (!*allowed) {
			fprintf(stderr, "  with %llu: errno %d (%s)\n", (unsigned long long)low,
				error, strerror(error));
			return 11;
		}
	}
	int again = make(&o);

	if (again) {
		fprintf(stderr, "  with %llu, then without: errno %d (%s)\n",
			(unsigned long long)low, again, strerror(again));
		return 12;
	}
	if (!unmake(&o))
		return 13;
	return error ? 1 : 0; /* whether or not the limit was reached */
}

static rlim_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long long pages = 0;

	if (!f || fscanf(f, "%llu", &pages) != 1) /* NOLINT(cert-err34-c) */
		abort();
	fclose(f);
	return pages * 4096;
}

/* Runs `under_limit` in a process; false when that fails. Counts how often the limit was
 * reached. */
static bool run(const char *what, int resource, rlim_t low, const int *allowed, unsigned int *felt)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(180);
		if (resource == RLIMIT_AS)
			low += address_space();
		exit(under_limit(resource, low, allowed));
	}
	waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
		printf("FAIL  %s of %llu: %s %d\n", what, (unsigned long long)low,
		       WIFEXITED(status) ? "exit" : "signal",
		       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		return false;
	}
	*felt += (unsigned int)WEXITSTATUS(status);
	return true;
}

static bool descriptors(void)
{
	/* ETOOMANYREFS: the user has more descriptors than the limit in messages. */
	static const int allowed[] = {EMFILE, ETOOMANYREFS, 0};
	unsigned int felt = 0, wrong = 0;

	for (rlim_t n = 3; n < 30; n++)
		wrong += !run("a limit of descriptors", RLIMIT_NOFILE, n, allowed, &felt);
	printf("%s    descriptors: felt %u times\n", wrong || !felt ? "FAIL" : "ok", felt);
	return !wrong && felt;
}

/* Starts the daemon first: one that a limited program starts would have the limit, too. */
static bool daemon_runs(void)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct objects o = {0};

		exit(make(&o) || !unmake(&o));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool memory(void)
{
	static const int allowed[] = {ENOMEM, EAGAIN /* no thread */, 0};
	unsigned int felt = 0, wrong = !daemon_runs();

	for (rlim_t kib = 0; kib < 200 << 10; kib += kib < 20 << 10 ? 700 : 5000)
		wrong += !run("a limit of address space", RLIMIT_AS, kib << 10, allowed, &felt);
	printf("%s    address space: felt %u times\n", wrong || !felt ? "FAIL" : "ok", felt);
	return !wrong && felt;
}

/* An unusable run-time directory: an errno, no daemon, no wait. */
static bool directory(const char *path, const char *what)
{
	struct objects o = {0};
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(180);
		setenv("VERBENA_RUNTIME_DIR", path, 1);
		exit(make(&o) > 0 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;

	printf("%s    run-time directory: %s\n", fine ? "ok" : "FAIL", what);
	return fine;
}

int main(void)
{
	bool fine = true;

	if (getenv("VERBENA_SANITIZE") && *getenv("VERBENA_SANITIZE"))
		puts("skip  limits of memory: a sanitizer needs it all");
	else
		fine &= memory();
	fine &= descriptors();
	fine &= directory("/proc/nowhere", "can't be made");
	fine &= directory("/dev/null", "is a file");
	fine &= directory("/sys", "isn't ours");
	return fine ? 0 : 1;
}
