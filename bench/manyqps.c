/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thousands of queue pairs in one process: do they work, and what does an idle one cost?
 *
 * usage: manyqps [-n QPS] [-d WQES] [-m self|peer] [-p DAEMON_PID]
 *
 * Makes QPS RC queue pairs with WQES send and as many receive WQEs, connects them (self: to one
 * another in this process; peer: each to one of a second process, so there are twice as many),
 * weighs them idle, posts every receive that fits, weighs again, sends a message over each pair in
 * both directions, checks what arrives, and destroys everything. Weight is the growth of memory
 * (Pss) of these processes and, with -p, of the daemon, since the last moment without QPs; it
 * includes the published tables and links.
 *
 * Prints "name value" lines:
 *   qps               made
 *   create_us         to create and connect one
 *   idle_bytes        memory of an idle one
 *   filled_bytes      of one whose receive queue is full
 *   message_us        for a message over one, both ways, completions included
 *   destroy_us        to destroy one
 */
#include "scale.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 32 };

static unsigned int count = 10000, depth = 128;
static int daemon_pid;

/* One of the two ends; over `self` there is only one. */
struct side {
	struct node node;
	struct ibv_qp **qps;
	int sock; /* to the other side, or -1 */
};

static void exchange(const struct side *side, const void *mine, void *theirs, size_t size)
{
	size_t done = 0;

	if (side->sock < 0) {
		memcpy(theirs, mine, size);
		return;
	}
	/* Less than a socket buffer at a time, so that both may write first. */
	while (done < size) {
		size_t n = size - done < 4096 ? size - done : 4096;

		if (write(side->sock, (const char *)mine + done, n) != (ssize_t)n)
			give_up("the other process has ended");
		for (size_t got = 0; got < n;) {
			ssize_t r = read(side->sock, (char *)theirs + done + got, n - got);

			if (r <= 0)
				give_up("the other process has ended");
			got += r;
		}
		done += n;
	}
}

/* All sides are here; returns the sum of what they give. */
static double meet(const struct side *side, double value)
{
	double other = 0;

	if (side->sock >= 0)
		exchange(side, &value, &other, sizeof(value));
	return value + other;
}

/* Memory of both sides and the daemon. Whoever is `first` counts the daemon. */
static double weigh(const struct side *side, int first)
{
	meet(side, 0); /* the other side has stopped to make things, and goes on after this: */
	double bytes = process_bytes(0);

	if (first && daemon_pid)
		bytes += process_bytes(daemon_pid);
	return meet(side, bytes);
}

/* With one side, QP i is connected to its neighbour; with two, to the other side's QP i. */
static unsigned int partner(const struct side *side, unsigned int i)
{
	return side->sock < 0 ? i ^ 1 : i;
}

static void make(struct side *side)
{
	uint32_t *mine = calloc(count, sizeof(*mine)), *theirs = calloc(count, sizeof(*theirs));

	for (unsigned int i = 0; i < count; i++) {
		side->qps[i] = node_qp(&side->node, depth);
		mine[i] = side->qps[i]->qp_num;
	}
	exchange(side, mine, theirs, count * sizeof(*mine));
	for (unsigned int i = 0; i < count; i++)
		qp_connect(&side->node, side->qps[i], theirs[partner(side, i)]);
	free(mine);
	free(theirs);
}

static void fill(struct side *side)
{
	for (unsigned int i = 0; i < count; i++)
		for (unsigned int k = 0; k < depth; k++)
			qp_recv(&side->node, side->qps[i], i, (size_t)i * 2 * BYTES, BYTES);
}

static uint8_t pattern(int first, unsigned int i, unsigned int k)
{
	return i * 7 + (i >> 8) + k * 13 + first;
}

/* A message over each QP; its partner's must arrive, whole. Some are under way at a time. */
static void talk(struct side *side, int first)
{
	enum { WINDOW = 256 };
	unsigned int sent = 0, done = 0, got = 0;
	uint8_t *buf = side->node.buf;

	while (done < count || got < count) {
		while (sent < count && sent - done < WINDOW) {
			size_t at = (size_t)sent * 2 * BYTES + BYTES;

			for (unsigned int k = 0; k < BYTES; k++)
				buf[at + k] = pattern(first, sent, k);
			qp_send(&side->node, side->qps[sent], sent, at, BYTES);
			sent++;
		}
		struct ibv_wc wc = node_wait(&side->node, 0);

		if (wc.opcode != IBV_WC_RECV) {
			done++;
			continue;
		}
		got++;
		int from_first = side->sock < 0 ? first : !first;

		for (unsigned int k = 0; k < BYTES; k++)
			if (buf[wc.wr_id * 2 * BYTES + k] !=
			    pattern(from_first, partner(side, wc.wr_id), k))
				give_up("QP %u received something else than was sent",
					(unsigned int)wc.wr_id);
	}
}

static void run(int sock, int first)
{
	struct side side = {.qps = calloc(count, sizeof(struct ibv_qp *)), .sock = sock};
	int ends = sock < 0 ? 1 : 2;

	/* Room for all receives' flushes too. */
	node_open(&side.node, 65536, (size_t)count * 2 * BYTES);
	memset(side.node.buf, 0, (size_t)count * 2 * BYTES);
	double empty = weigh(&side, first), start = now_seconds();

	make(&side);
	double made = now_seconds(), idle = weigh(&side, first);

	fill(&side);
	double filled = weigh(&side, first), began = now_seconds();

	talk(&side, first);
	meet(&side, 0);
	double talked = now_seconds();

	for (unsigned int i = 0; i < count; i++)
		if (ibv_destroy_qp(side.qps[i]))
			give_up("ibv_destroy_qp failed");
	if (first)
		printf("qps %u\ncreate_us %.1f\nidle_bytes %.0f\nfilled_bytes %.0f\n"
		       "message_us %.2f\ndestroy_us %.1f\n",
		       count * ends, (made - start) / count * 1e6, (idle - empty) / count / ends,
		       (filled - empty) / count / ends, (talked - began) / count * 1e6,
		       (now_seconds() - talked) / count * 1e6);
	node_close(&side.node);
	free(side.qps);
}

static int run_two(void)
{
	int sock[2], status;
	pid_t parent = getpid();

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
		give_up("socketpair failed");
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork failed");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(sock[0]);
		run(sock[1], 0);
		_exit(0);
	}
	close(sock[1]);
	run(sock[0], 1);
	return waitpid(pid, &status, 0) != pid || status != 0;
}

int main(int argc, char **argv)
{
	int option, two = 0;

	while ((option = getopt(argc, argv, "n:d:m:p:")) != -1) {
		if (option == 'n')
			count = (atoi(optarg) + 1) & ~1u;
		else if (option == 'd')
			depth = atoi(optarg);
		else if (option == 'p')
			daemon_pid = atoi(optarg);
		else if (option == 'm')
			two = !strcmp(optarg, "peer");
		else
			return 2;
	}
	if (two)
		return run_two();
	run(-1, 1);
	return 0;
}
