/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What making and ending objects costs, measured in what it can't be done without: one blocking
 * round trip of 64 bytes each way between two processes over a Unix SOCK_SEQPACKET socket.
 *
 * usage: objects [-c CORE,CORE] [-p DAEMON_PID] [-r ROUNDS]
 *
 * A round measures the round trip, then a kind of object, for every kind in turn, so that both
 * halves of a ratio see the same machine. With -c, this process runs on the first core, and on the
 * second the one that answers, and with -p the daemon. Each call is timed by itself; a round's
 * figure is the median of its calls, and what is printed the median of the rounds.
 *
 * Prints "name value" lines:
 *   roundtrip_us
 *   WHAT_us           one call: reg_4k, dereg_4k, ..., open (the device), close, and so on;
 *                     _huge: of huge pages
 *   WHAT_trips        the same in round trips
 *   open_first_us, open_first_trips   of a process that hasn't opened the device before
 * A region that this machine has no memory for is left out.
 */
#include "scale.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE = 64, TRIPS = 400, CALLS_MAX = 400, ROUNDS_MAX = 50, FIRST_OPENS = 15 };

static int rounds = 7, core_mine = -1, core_theirs = -1, daemon_pid;
static struct node node;
static struct ibv_device *device;
static uint8_t *memory, *memory_huge; /* the latter of huge pages, if the kernel has some */
static size_t memory_bytes;

/* ------------------------------------------------------------------ figures */

/* ------------------------------------------------------------------ the round trip */

static int echo_socket;

static _Noreturn void echo(int sock)
{
	char message[MESSAGE];

	while (read(sock, message, sizeof(message)) == MESSAGE)
		if (write(sock, message, sizeof(message)) != MESSAGE)
			break;
	_exit(0);
}

static void echo_start(void)
{
	int sock[2];
	pid_t parent = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) < 0)
		give_up("socketpair: %s", strerror(errno));
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(sock[0]);
		run_on_core(0, core_theirs);
		echo(sock[1]);
	}
	close(sock[1]);
	echo_socket = sock[0];
}

/* Median seconds of one. */
static double round_trip(void)
{
	static double took[TRIPS];
	char message[MESSAGE] = {0};

	for (int i = 0; i < TRIPS; i++) {
		double start = now_seconds();

		if (write(echo_socket, message, MESSAGE) != MESSAGE ||
		    read(echo_socket, message, MESSAGE) != MESSAGE)
			give_up("the process that answers has ended");
		took[i] = now_seconds() - start;
	}
	return median(took, TRIPS);
}

/* ------------------------------------------------------------------ kinds of objects */

/* Each makes one (NULL: it failed) or ends one (not 0: it failed). */

static void *open_make(size_t bytes)
{
	(void)bytes;
	return ibv_open_device(device);
}

static int open_end(void *object)
{
	return ibv_close_device(object);
}

static void *pd_make(size_t bytes)
{
	(void)bytes;
	return ibv_alloc_pd(node.ctx);
}

static int pd_end(void *object)
{
	return ibv_dealloc_pd(object);
}

static void *mr_make(size_t bytes)
{
	return ibv_reg_mr(node.pd, memory, bytes,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ);
}

static void *mr_make_huge(size_t bytes)
{
	return ibv_reg_mr(node.pd, memory_huge, bytes,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ);
}

static int mr_end(void *object)
{
	return ibv_dereg_mr(object);
}

static void *channel_make(size_t bytes)
{
	(void)bytes;
	return ibv_create_comp_channel(node.ctx);
}

static int channel_end(void *object)
{
	return ibv_destroy_comp_channel(object);
}

static void *cq_make(size_t bytes)
{
	(void)bytes;
	return ibv_create_cq(node.ctx, 256, NULL, NULL, 0);
}

static int cq_end(void *object)
{
	return ibv_destroy_cq(object);
}

static void *srq_make(size_t bytes)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 128, .max_sge = 1}};

	(void)bytes;
	return ibv_create_srq(node.pd, &init);
}

static int srq_end(void *object)
{
	return ibv_destroy_srq(object);
}

static void *ah_make(size_t bytes)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = node.gid, .sgid_index = node.gid_index, .hop_limit = 1}};

	(void)bytes;
	return ibv_create_ah(node.pd, &attr);
}

static int ah_end(void *object)
{
	return ibv_destroy_ah(object);
}

static void *qp_make(size_t bytes)
{
	struct ibv_qp_init_attr init = {
		.send_cq = node.cq,
		.recv_cq = node.cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 128,
			.max_recv_wr = 128,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	(void)bytes;
	return ibv_create_qp(node.pd, &init);
}

static int qp_end(void *object)
{
	return ibv_destroy_qp(object);
}

static const struct kind {
	const char *make_name, *end_name;
	void *(*make)(size_t bytes);
	int (*end)(void *object);
	int calls; /* a round */
	size_t bytes;
} kinds[] = {
	{"reg_4k", "dereg_4k", mr_make, mr_end, 300, 4096},
	{"reg_1m", "dereg_1m", mr_make, mr_end, 300, 1 << 20},
	{"reg_1g", "dereg_1g", mr_make, mr_end, 10, 1 << 30},
	{"reg_1g_huge", "dereg_1g_huge", mr_make_huge, mr_end, 10, 1 << 30},
	{"alloc_pd", "dealloc_pd", pd_make, pd_end, 300, 0},
	{"create_channel", "destroy_channel", channel_make, channel_end, 300, 0},
	{"create_cq", "destroy_cq", cq_make, cq_end, 300, 0},
	{"create_srq", "destroy_srq", srq_make, srq_end, 300, 0},
	{"create_ah", "destroy_ah", ah_make, ah_end, 300, 0},
	{"create_qp", "destroy_qp", qp_make, qp_end, 300, 0},
	{"open", "close", open_make, open_end, 100, 0},
};

/* ------------------------------------------------------------------ measuring */

/* One figure over all rounds. */
struct series {
	double us[ROUNDS_MAX], trips[ROUNDS_MAX];
	int n;
};

static void series_add(struct series *series, double seconds, double trip)
{
	series->us[series->n] = seconds * 1e6;
	series->trips[series->n++] = seconds / trip;
}

static void series_print(const char *name, struct series *series)
{
	if (!series->n)
		return;
	printf("%s_us %.2f\n", name, median(series->us, series->n));
	printf("%s_trips %.2f\n", name, median(series->trips, series->n));
}

static void kind_round(const struct kind *kind, double trip, struct series *make,
		       struct series *end)
{
	static double made[CALLS_MAX], ended[CALLS_MAX];

	for (int i = 0; i < kind->calls; i++) {
		double start = now_seconds();
		void *object = kind->make(kind->bytes);
		double between = now_seconds();

		if (!object)
			give_up("%s: %s", kind->make_name, strerror(errno));
		int err = kind->end(object);

		ended[i] = now_seconds() - between;
		made[i] = between - start;
		if (err)
			give_up("%s: %s", kind->end_name, strerror(err));
	}
	series_add(make, median(made, kind->calls), trip);
	series_add(end, median(ended, kind->calls), trip);
}

/* From RESET to RTS; the QP itself is its peer. */
static void connect_round(double trip, struct series *series)
{
	enum { CALLS = 100 };
	double took[CALLS];

	for (int i = 0; i < CALLS; i++) {
		struct ibv_qp *qp = qp_make(0);
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

		if (!qp)
			give_up("ibv_create_qp: %s", strerror(errno));
		double start = now_seconds();
		int err = ibv_modify_qp(qp, &attr,
					IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS);

		if (err)
			give_up("ibv_modify_qp to INIT: %s", strerror(err));
		qp_connect(&node, qp, qp->qp_num);
		took[i] = now_seconds() - start;
		ibv_destroy_qp(qp);
	}
	series_add(series, median(took, CALLS), trip);
}

/* A child's only opening of the device; it tells what that took. */
static double first_open(void)
{
	double took;
	int pipes[2], status;

	if (pipe(pipes) < 0)
		give_up("pipe: %s", strerror(errno));
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork: %s", strerror(errno));
	if (!pid) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		double start = now_seconds();
		struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

		took = now_seconds() - start;
		_exit(!ctx || write(pipes[1], &took, sizeof(took)) != sizeof(took));
	}
	close(pipes[1]);
	if (read(pipes[0], &took, sizeof(took)) != sizeof(took) || waitpid(pid, &status, 0) != pid)
		give_up("a child can't open the device");
	close(pipes[0]);
	return took;
}

/* Before this process has opened the device: a child of one that has isn't a process that hasn't.
 */
static void report_first_open(void)
{
	double took[FIRST_OPENS];
	struct series series = {0};

	for (int i = 0; i < FIRST_OPENS; i++)
		took[i] = first_open();
	series_add(&series, median(took, FIRST_OPENS), round_trip());
	series_print("open_first", &series);
}

/* ------------------------------------------------------------------ */

static uint8_t *touched(size_t bytes, int advice)
{
	const uintptr_t huge = 2 << 20;
	uint8_t *p = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (p == MAP_FAILED)
		give_up("mmap: %s", strerror(errno));
	p = (uint8_t *)(((uintptr_t)p + huge - 1) & ~(huge - 1));
	madvise(p, bytes, advice); /* a wish */
	memset(p, 1, bytes);
	return p;
}

/* What the largest regions need, or less where that much isn't free. */
static void memory_take(void)
{
	size_t free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * 4096;

	memory_bytes = free_bytes > (size_t)3 << 30 ? (size_t)1 << 30 : (size_t)1 << 20;
	memory = touched(memory_bytes, MADV_NOHUGEPAGE);
	memory_huge = touched(memory_bytes, MADV_HUGEPAGE);
}

static void measure(void)
{
	enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
	static struct series trips, make[KINDS], end[KINDS], connect;

	for (int r = -1; r < rounds; r++) {
		double trip = round_trip();

		if (r == 0) /* the one before was for caches and memory's first pages */
			memset(make, 0, sizeof(make)), memset(end, 0, sizeof(end)), connect.n = 0;
		if (r >= 0)
			series_add(&trips, trip, trip);
		for (int k = 0; k < KINDS; k++)
			if (kinds[k].bytes <= memory_bytes)
				kind_round(&kinds[k], round_trip(), &make[k], &end[k]);
		connect_round(round_trip(), &connect);
	}
	printf("roundtrip_us %.2f\n", median(trips.us, trips.n));
	for (int k = 0; k < KINDS; k++) {
		series_print(kinds[k].make_name, &make[k]);
		series_print(kinds[k].end_name, &end[k]);
	}
	series_print("connect", &connect);
}

int main(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "c:p:r:")) != -1) {
		if (option == 'c' && sscanf(optarg, "%d,%d", &core_mine, &core_theirs) == 2)
			continue;
		else if (option == 'p')
			daemon_pid = atoi(optarg);
		else if (option == 'r')
			rounds = atoi(optarg) < ROUNDS_MAX ? atoi(optarg) : ROUNDS_MAX;
		else
			return 2;
	}
	run_on_core(0, core_mine);
	if (daemon_pid)
		run_on_core(daemon_pid, core_theirs);
	echo_start();
	report_first_open();
	memory_take();
	node_open(&node, 1024, 4096);
	device = node.ctx->device;
	measure();
	node_close(&node);
	return 0;
}
