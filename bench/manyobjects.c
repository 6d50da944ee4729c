/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hundred thousand regions and fifty thousand queue pairs at one daemon: does it hold them, does
 * it get slower, and what do they weigh?
 *
 * usage: manyobjects [-c CLIENTS] [-m REGIONS] [-q QPS] [-p DAEMON_PID]
 *
 * CLIENTS processes share REGIONS (4 KiB each) and QPS among them. The first one measures a *probe*
 * (PROBE regions and QPs are made, then queried and ended in another order) when nothing exists and
 * once more when everybody holds everything; nobody else is at work then, so that the ratio of the
 * two is what the number of objects costs; it and the daemon then share a core, where a round trip
 * takes the same time each time. Filling is everybody's at the same time. When
 * all is there, everybody checks that its keys and numbers are its own: no two regions of a process
 * have a key in common, no two QPs of all have a number. Then all is destroyed, every second one
 * first.
 *
 * Prints "name value" lines:
 *   regions, qps      held at once
 *   fill_us           for one object, of one client, while all were filling
 *   drain_us          the same for ending one
 *   reg_us, dereg_us, create_us, destroy_us                       of the probe at full load
 *   reg_ratio, dereg_ratio, create_ratio, destroy_ratio           full load to nothing there
 *   daemon_empty_bytes, daemon_full_bytes, daemon_after_bytes     its memory (Pss), with -p
 */
#include "scale.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Regions lie on the same pages again and again: these are about numbers, not about memory. */
enum { REGION = 4096, PAGES = 1024, PROBE = 1000, NUMBERS = 1 << 24 };

static int clients = 5, regions = 100000, qps = 50000, daemon_pid;

/* In memory that all share. */
static struct board {
	_Atomic int arrived[16];	     /* at each meeting */
	_Atomic uint8_t number[NUMBERS / 8]; /* of QPs that exist */
	double fill_us, drain_us;
} * board;

struct client {
	struct node node;
	uint8_t *memory;
	struct ibv_mr **mrs;
	struct ibv_qp **qps;
	int mr_count, qp_count;
};

/* What one object of a probe took, in us: the median. */
struct probe {
	double reg, dereg, create, destroy;
};

static void pin(int pid, const cpu_set_t *cores)
{
	if (sched_setaffinity(pid, sizeof(*cores), cores) < 0)
		give_up("sched_setaffinity: %s", strerror(errno));
}

/* The clients and their parent. */
static void meet(int where)
{
	atomic_fetch_add(&board->arrived[where], 1);
	while (atomic_load(&board->arrived[where]) < clients + 1)
		usleep(5000);
}

static double median_us(double *value, int n)
{
	return median(value, n) * 1e6;
}

/* ------------------------------------------------------------------ objects */

static struct ibv_mr *region_make(struct client *client, size_t place)
{
	struct ibv_mr *mr = ibv_reg_mr(client->node.pd, client->memory + place % PAGES * REGION,
				       REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		give_up("region %zu: %s (a process may register RLIMIT_MEMLOCK; "
			"VERBENA_MEMLOCK=off)",
			place, strerror(errno));
	return mr;
}

static void region_end(struct ibv_mr *mr)
{
	int err = ibv_dereg_mr(mr);

	if (err)
		give_up("ibv_dereg_mr: %s", strerror(err));
}

static struct ibv_qp *pair_make(struct client *client)
{
	struct ibv_qp *qp = node_qp(&client->node, 1);
	uint8_t bit = 1 << qp->qp_num % 8;

	if (atomic_fetch_or(&board->number[qp->qp_num / 8], bit) & bit)
		give_up("two QPs have the number 0x%x", qp->qp_num);
	return qp;
}

static void pair_end(struct ibv_qp *qp)
{
	uint32_t number = qp->qp_num;

	atomic_fetch_and(&board->number[number / 8], ~(1 << number % 8));
	int err = ibv_destroy_qp(qp);

	if (err)
		give_up("ibv_destroy_qp: %s", strerror(err));
}

/* ------------------------------------------------------------------ the probe */

/* The i-th to end: neither the order of making nor its reverse. */
static int shuffled(int i)
{
	return (int)((i * 617l) % PROBE);
}

static struct probe probe_here(struct client *client)
{
	static struct ibv_mr *mr[PROBE];
	static struct ibv_qp *qp[PROBE];
	static double took[4][PROBE];

	for (int i = 0; i < PROBE; i++) {
		double start = now_seconds();

		mr[i] = region_make(client, client->mr_count + i);
		double between = now_seconds();

		qp[i] = pair_make(client);
		took[0][i] = between - start;
		took[1][i] = now_seconds() - between;
	}
	for (int i = 0; i < PROBE; i++) {
		double start = now_seconds();

		region_end(mr[shuffled(i)]);
		double between = now_seconds();

		pair_end(qp[shuffled(i)]);
		took[2][i] = between - start;
		took[3][i] = now_seconds() - between;
	}
	return (struct probe){.reg = median_us(took[0], PROBE),
			      .create = median_us(took[1], PROBE),
			      .dereg = median_us(took[2], PROBE),
			      .destroy = median_us(took[3], PROBE)};
}

static struct probe probe(struct client *client)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	pin(0, &one);
	if (daemon_pid)
		pin(daemon_pid, &one);
	struct probe result = probe_here(client);

	pin(0, &all);
	if (daemon_pid)
		pin(daemon_pid, &all);
	return result;
}

static void probe_print(const struct probe *full, const struct probe *empty)
{
	printf("reg_us %.2f\ndereg_us %.2f\ncreate_us %.2f\ndestroy_us %.2f\n", full->reg,
	       full->dereg, full->create, full->destroy);
	printf("reg_ratio %.3f\ndereg_ratio %.3f\ncreate_ratio %.3f\ndestroy_ratio %.3f\n",
	       full->reg / empty->reg, full->dereg / empty->dereg, full->create / empty->create,
	       full->destroy / empty->destroy);
	fflush(stdout);
}

/* ------------------------------------------------------------------ a client */

/* Regions and QPs in turn, so that neither is made while there are none of the other. */
static void fill(struct client *client)
{
	int most = client->mr_count > client->qp_count ? client->mr_count : client->qp_count;

	for (int i = 0; i < most; i++) {
		if (i < client->mr_count)
			client->mrs[i] = region_make(client, i);
		if (i < client->qp_count)
			client->qps[i] = pair_make(client);
	}
}

static int compare_keys(const void *a, const void *b)
{
	uint32_t x = (*(struct ibv_mr *const *)a)->lkey, y = (*(struct ibv_mr *const *)b)->lkey;

	return (x > y) - (x < y);
}

static void check(struct client *client)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	qsort(client->mrs, client->mr_count, sizeof(struct ibv_mr *), compare_keys);
	for (int i = 1; i < client->mr_count; i++)
		if (client->mrs[i]->lkey == client->mrs[i - 1]->lkey)
			give_up("two regions have the key 0x%x", client->mrs[i]->lkey);
	for (int i = 0; i < client->qp_count; i++)
		if (ibv_query_qp(client->qps[i], &attr, IBV_QP_STATE, &init) ||
		    attr.qp_state != IBV_QPS_INIT)
			give_up("QP 0x%x isn't in INIT any more", client->qps[i]->qp_num);
}

static void drain(struct client *client)
{
	for (int start = 1; start >= 0; start--) {
		for (int i = start; i < client->mr_count; i += 2)
			region_end(client->mrs[i]);
		for (int i = start; i < client->qp_count; i += 2)
			pair_end(client->qps[i]);
	}
}

static int share_of(int total, int me)
{
	return total / clients + (me < total % clients);
}

static void client_open(struct client *client, int me)
{
	client->mr_count = share_of(regions, me);
	client->qp_count = share_of(qps, me);
	client->mrs = calloc(client->mr_count + 1, sizeof(*client->mrs));
	client->qps = calloc(client->qp_count + 1, sizeof(*client->qps));
	size_t bytes = (size_t)PAGES * REGION;

	client->memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!client->mrs || !client->qps || client->memory == MAP_FAILED)
		give_up("no memory");
	memset(client->memory, me, bytes);
	node_open(&client->node, 16, REGION);
}

static void client_run(int me)
{
	struct client client;
	struct probe empty, full;

	client_open(&client, me);
	meet(0);
	if (me == 0) {
		probe(&client); /* for caches and the memory's first pages */
		empty = probe(&client);
	}
	meet(1);
	double start = now_seconds();

	fill(&client);
	double per = (now_seconds() - start) / (client.mr_count + client.qp_count) * 1e6;

	meet(2);
	check(&client);
	meet(3);
	if (me == 0) {
		board->fill_us = per;
		full = probe(&client);
		probe_print(&full, &empty);
	}
	meet(4); /* the parent looks at the daemon */
	meet(5);
	start = now_seconds();
	drain(&client);
	if (me == 0)
		board->drain_us =
			(now_seconds() - start) / (client.mr_count + client.qp_count) * 1e6;
	node_close(&client.node);
}

/* ------------------------------------------------------------------ the parent */

static uint64_t weigh_daemon(void)
{
	return daemon_pid ? process_bytes(daemon_pid) : 0;
}

static void start_clients(pid_t *pids)
{
	pid_t parent = getpid();

	for (int i = 0; i < clients; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			give_up("fork: %s", strerror(errno));
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		client_run(i);
		exit(0);
	}
}

/* Meets the clients wherever they meet; gives up when one has ended before. */
static void meet_all(const pid_t *pids, int where)
{
	atomic_fetch_add(&board->arrived[where], 1);
	while (atomic_load(&board->arrived[where]) < clients + 1) {
		for (int i = 0; i < clients; i++)
			if (waitpid(pids[i], NULL, WNOHANG) != 0)
				give_up("a client has ended early");
		usleep(5000);
	}
}

static int run(void)
{
	pid_t *pids = calloc(clients, sizeof(*pids));
	uint64_t empty = weigh_daemon(), full;
	int status, failed = 0;

	start_clients(pids);
	for (int where = 0; where < 5; where++)
		meet_all(pids, where);
	full = weigh_daemon();
	meet_all(pids, 5);
	for (int i = 0; i < clients; i++)
		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			failed = 1;
	usleep(200000); /* the daemon sees them end */
	printf("regions %d\nqps %d\nfill_us %.2f\ndrain_us %.2f\n", regions, qps, board->fill_us,
	       board->drain_us);
	if (daemon_pid)
		printf("daemon_empty_bytes %llu\ndaemon_full_bytes %llu\ndaemon_after_bytes %llu\n",
		       (unsigned long long)empty, (unsigned long long)full,
		       (unsigned long long)weigh_daemon());
	free(pids);
	return failed;
}

int main(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "c:m:q:p:")) != -1) {
		if (option == 'c' && atoi(optarg) > 0)
			clients = atoi(optarg);
		else if (option == 'm')
			regions = atoi(optarg);
		else if (option == 'q')
			qps = atoi(optarg);
		else if (option == 'p')
			daemon_pid = atoi(optarg);
		else
			return 2;
	}
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED)
		give_up("mmap: %s", strerror(errno));
	return run();
}
