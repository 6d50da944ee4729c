/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One-sided operations between two processes, on memory that is mapped by the initiator (shared,
 * the default) or reached by system calls (-m private).
 *
 * usage: onesided [-m shared|private] [-n ITERATIONS] [-c CORE,CORE]
 * Prints lines "name value":
 *   write_ns          8-byte WRITE, one way: ping-pong, the waiter polls its memory
 *   write_cq_ns       the same; the waiter polls its empty CQ in between
 *   empty_poll_ns     one ibv_poll_cq() of an empty CQ, while the other process sleeps
 *   read_ns, add_ns   one READ of 8 bytes, one fetch-and-add, from posting to its completion
 *   writes_s          64-byte WRITEs a second, one posted at a time, one in 64 signaled
 *   writes_signaled_s the same, each of them signaled
 *   writes_list_s     the same in lists of 32, the last of each signaled
 *   window_writes_s   as writes_s, by the key of a type 2 window over the same memory
 *   window_write_ns   as write_ns, by that key
 *   binds_s           times a second that a window is invalidated and bound anew, by lists of 32
 *                     work requests of which the last is signaled
 *   write_64k_MBs     64-KiB WRITEs, 10^6 bytes a second
 *   window_write_64k_MBs  the same by the window's key
 *   memcpy_64k_MBs    memcpy() of 64 KiB into memory shared with the other process
 *   write_1m_MBs
 *   handed_64k_ns, handed_1m_ns  such a WRITE, one way: ping-pong, the waiter polls the last byte
 *                     and then reads all
 */
#include "scale.h"

#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 8 << 20, LIST = 32, DEPTH = 128, WARM = 20000 };
enum {
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

struct peer {
	uint64_t addr;
	uint32_t rkey, window_rkey, qpn;
};

struct side {
	struct node node;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_mw *window;
	uint8_t *bytes;
	struct peer peer;
	uint32_t rkey; /* of the peer, for requests: the region's or the window's */
	int sock, child;
	int iterations;
};

/* ns */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void side_swap(const struct side *side, const void *mine, void *theirs, size_t size)
{
	if (write(side->sock, mine, size) != (ssize_t)size ||
	    read(side->sock, theirs, size) != (ssize_t)size)
		give_up("the other process has ended");
}

static void side_meet(const struct side *side)
{
	char byte = 0;

	side_swap(side, &byte, &byte, 1);
}

static void complete(struct side *side)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(side->node.cq, 1, &wc)))
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		give_up("a request failed");
}

static struct ibv_send_wr bind_request(const struct side *side, uint32_t rkey)
{
	return (struct ibv_send_wr){
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = side->window,
			    .rkey = rkey,
			    .bind_info = {side->mr, (uintptr_t)side->bytes, BYTES, REMOTE}}};
}

/* Binds the window to all of the memory. */
static void window_bind(struct side *side, uint32_t rkey)
{
	struct ibv_send_wr wr = bind_request(side, rkey), *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(side->qp, &wr, &bad))
		give_up("can't bind a window");
	complete(side);
}

static void side_open(struct side *side, bool shared)
{
	int fd = memfd_create("onesided", MFD_CLOEXEC);
	struct peer mine;

	node_open(&side->node, 2 * DEPTH, 4096);
	if (fd < 0 || ftruncate(fd, BYTES) < 0)
		give_up("no memory file");
	side->bytes =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	if (side->bytes == MAP_FAILED)
		give_up("no memory");
	memset(side->bytes, 0, BYTES);
	side->mr = ibv_reg_mr(side->node.pd, side->bytes, BYTES,
			      REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	side->window = ibv_alloc_mw(side->node.pd, IBV_MW_TYPE_2);
	side->qp = node_qp(&side->node, DEPTH);
	if (!side->mr || !side->qp || !side->window)
		give_up("can't register");
	mine = (struct peer){(uintptr_t)side->bytes, side->mr->rkey,
			     ibv_inc_rkey(side->window->rkey), side->qp->qp_num};
	side_swap(side, &mine, &side->peer, sizeof(mine));
	qp_connect(&side->node, side->qp, side->peer.qpn);
	side->rkey = side->peer.rkey;
	window_bind(side, mine.window_rkey);
	side_meet(side);
}

/* Equal requests, which are made once and posted often, as by perftest. */
struct requests {
	struct ibv_sge sge;
	struct ibv_send_wr wr[LIST];
	int count;
};

static void requests_make(struct requests *list, const struct side *side, enum ibv_wr_opcode opcode,
			  uint32_t length, uint64_t offset, int count)
{
	list->sge = (struct ibv_sge){(uintptr_t)side->bytes + offset, length, side->mr->lkey};
	list->count = count;
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &list->wr[i];

		*wr = (struct ibv_send_wr){.next = i + 1 < count ? wr + 1 : NULL,
					   .sg_list = &list->sge,
					   .num_sge = 1,
					   .opcode = opcode};
		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr->wr.atomic.remote_addr = side->peer.addr + offset;
			wr->wr.atomic.rkey = side->rkey;
			wr->wr.atomic.compare_add = 1;
		} else {
			wr->wr.rdma.remote_addr = side->peer.addr + offset;
			wr->wr.rdma.rkey = side->rkey;
		}
	}
}

/* Posts them as one list; the last one is signaled if `signaled`. */
static void requests_post(struct requests *list, struct side *side, bool signaled)
{
	struct ibv_send_wr *bad;

	list->wr[list->count - 1].send_flags = signaled ? IBV_SEND_SIGNALED : 0;
	if (ibv_post_send(side->qp, list->wr, &bad))
		give_up("ibv_post_send failed");
}

/* Makes and posts one that is signaled. */
static void post(struct side *side, enum ibv_wr_opcode opcode, uint32_t length, uint64_t offset)
{
	struct requests one;

	requests_make(&one, side, opcode, length, offset, 1);
	requests_post(&one, side, true);
}

static void show(const struct side *side, const char *name, double value)
{
	if (!side->child)
		printf("%s %.1f\n", name, value);
	fflush(stdout);
}

/* ------------------------------------------------------------------ latencies */

/* Median of half the round trip, ns. */
static double ping_pong(struct side *side, bool polls)
{
	_Atomic uint64_t *in = (_Atomic uint64_t *)(void *)side->bytes;
	_Atomic uint64_t *out = in + 512;
	double *took = calloc((size_t)side->iterations, sizeof(*took));
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;

	if (!took)
		give_up("no memory");
	atomic_store(in, 0);
	side_meet(side);
	for (int i = 1; i <= side->iterations; i++) {
		double began = now();

		for (int turn = 0; turn < 2; turn++) {
			if (turn != side->child) {
				while (atomic_load_explicit(in, memory_order_acquire) !=
				       (uint64_t)i)
					if (polls && ibv_poll_cq(side->node.cq, 1, &wc) > 0 &&
					    wc.status)
						give_up("a WRITE failed");
				continue;
			}
			atomic_store_explicit(out, (uint64_t)i, memory_order_relaxed);
			struct ibv_sge sge = {(uintptr_t)out, 8, side->mr->lkey};

			wr = (struct ibv_send_wr){.sg_list = &sge,
						  .num_sge = 1,
						  .opcode = IBV_WR_RDMA_WRITE,
						  .send_flags = IBV_SEND_SIGNALED};
			wr.wr.rdma.remote_addr = side->peer.addr;
			wr.wr.rdma.rkey = side->rkey;
			if (ibv_post_send(side->qp, &wr, &bad))
				give_up("ibv_post_send failed");
			if (!polls)
				complete(side);
		}
		took[i - 1] = (now() - began) / 2;
	}
	while (polls && ibv_poll_cq(side->node.cq, 1, &wc) > 0)
		;
	double middle = median(took, side->iterations);

	free(took);
	return middle;
}

static double round_of(struct side *side, enum ibv_wr_opcode opcode)
{
	double began = now();

	for (int i = 0; i < side->iterations; i++) {
		post(side, opcode, 8, 8192);
		complete(side);
	}
	return (now() - began) / side->iterations;
}

static double empty_poll(struct side *side)
{
	struct ibv_wc wc;
	double best = 1e9;

	/* Short runs: a poller that waits for long gives way. */
	for (int run = 0; run < 200; run++) {
		post(side, IBV_WR_RDMA_WRITE, 8, 8192);
		complete(side);
		double began = now();

		for (int i = 0; i < 1000; i++)
			ibv_poll_cq(side->node.cq, 1, &wc);
		double each = (now() - began) / 1000;

		best = each < best ? each : best;
	}
	return best;
}

/* Reads all of it. */
static uint64_t sum_of(const uint8_t *at, uint32_t length)
{
	uint64_t sum = 0, word;

	for (uint32_t i = 0; i < length; i += 8) {
		memcpy(&word, at + i, 8);
		sum += word;
	}
	return sum;
}

/* Median of half the round trip of `length` bytes, which the receiver reads, ns. */
static double hand_over(struct side *side, uint32_t length)
{
	enum { ROUNDS = 400, FROM = 2 << 20 };
	uint8_t *last = side->bytes + FROM + length - 1;
	uint64_t sum = 0;
	double took[ROUNDS];

	*last = 0;
	side_meet(side);
	for (int i = 0; i < ROUNDS; i++) {
		/* The bytes come and go at the same place; the last one is the turn's number. */
		uint8_t here = (uint8_t)(2 * i + 1 + !side->child);
		double began = now();

		for (int turn = 0; turn < 2; turn++) {
			if (turn == side->child) {
				*last = (uint8_t)(2 * i + 1 + side->child);
				post(side, IBV_WR_RDMA_WRITE, length, FROM);
				complete(side);
				continue;
			}
			while (*(volatile uint8_t *)last != here)
				;
			atomic_thread_fence(memory_order_acquire);
			sum += sum_of(side->bytes + FROM, length);
		}
		took[i] = (now() - began) / 2;
	}
	__asm__ volatile("" : : "r"(sum)); /* the bytes are read though no caller wants the sum */
	return median(took, ROUNDS);
}

/* ------------------------------------------------------------------ rates */

/* Requests a second. */
static double rate(struct side *side, uint32_t length, int list, int every, int count)
{
	struct requests requests;
	double began = now();
	int open = 0;

	requests_make(&requests, side, IBV_WR_RDMA_WRITE, length, 65536, list);
	for (int i = 0; i < count; i += list) {
		bool signaled = (i / list + 1) % every == 0;

		requests_post(&requests, side, signaled);
		open += signaled;
		while (open) {
			complete(side);
			open--;
		}
	}
	post(side, IBV_WR_RDMA_WRITE, length, 65536);
	complete(side);
	return count / (now() - began) * 1e9;
}

/* Windows bound and invalidated a second. The window is bound with `rkey`. */
static double bind_rate(struct side *side, uint32_t rkey, int count)
{
	struct ibv_send_wr wr[LIST], *bad;
	double began = now();

	for (int done = 0; done < count; done += LIST / 2) {
		for (int i = 0; i < LIST; i += 2) {
			wr[i] = (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV,
						     .invalidate_rkey = rkey,
						     .next = &wr[i + 1]};
			rkey = ibv_inc_rkey(rkey);
			wr[i + 1] = bind_request(side, rkey);
			wr[i + 1].next = i + 2 < LIST ? &wr[i + 2] : NULL;
		}
		wr[LIST - 1].send_flags = IBV_SEND_SIGNALED;
		if (ibv_post_send(side->qp, wr, &bad))
			give_up("can't bind a window");
		complete(side);
	}
	return count / (now() - began) * 1e9;
}

static double copy_rate(const struct side *side, uint8_t *to)
{
	double began = now();
	int count = 20000;

	for (int i = 0; i < count; i++) {
		memcpy(to, side->bytes + 65536, 65536);
		__asm__ volatile("" ::: "memory");
	}
	return 65536.0 * count / (now() - began) * 1e3;
}

static void measure_alone(struct side *side, uint8_t *shared)
{
	show(side, "empty_poll_ns", empty_poll(side));
	show(side, "read_ns", round_of(side, IBV_WR_RDMA_READ));
	show(side, "add_ns", round_of(side, IBV_WR_ATOMIC_FETCH_AND_ADD));
	int many = 20 * side->iterations;

	show(side, "writes_s", rate(side, 64, 1, 64, many));
	side->rkey = side->peer.window_rkey;
	show(side, "window_writes_s", rate(side, 64, 1, 64, many));
	show(side, "window_write_64k_MBs", rate(side, 65536, 1, 16, 20000) * 65536 / 1e6);
	side->rkey = side->peer.rkey;
	show(side, "writes_signaled_s", rate(side, 64, 1, 1, many));
	show(side, "writes_list_s", rate(side, 64, LIST, 1, many));
	show(side, "write_64k_MBs", rate(side, 65536, 1, 16, 20000) * 65536 / 1e6);
	show(side, "binds_s",
	     bind_rate(side, ibv_inc_rkey(side->window->rkey), 20 * side->iterations));
	show(side, "memcpy_64k_MBs", copy_rate(side, shared));
	show(side, "write_1m_MBs", rate(side, 1 << 20, 1, 16, 1000) * (1 << 20) / 1e6);
}

static void run(struct side *side, bool shared, const int *core, uint8_t *between)
{
	run_on_core(0, core[side->child]);
	side_open(side, shared);
	for (int i = 0; i < WARM; i++) {
		post(side, IBV_WR_RDMA_WRITE, 8, 8192);
		complete(side);
	}
	usleep(100000); /* the mapping is made meanwhile */
	side_meet(side);
	show(side, "write_ns", ping_pong(side, false));
	side_meet(side);
	side->rkey = side->peer.window_rkey;
	show(side, "window_write_ns", ping_pong(side, false));
	side_meet(side);
	side->rkey = side->peer.rkey;
	show(side, "write_cq_ns", ping_pong(side, true));
	side_meet(side);
	show(side, "handed_64k_ns", hand_over(side, 65536));
	side_meet(side);
	show(side, "handed_1m_ns", hand_over(side, 1 << 20));
	side_meet(side);
	if (!side->child)
		measure_alone(side, between);
	side_meet(side);
}

int main(int argc, char **argv)
{
	struct side side = {.iterations = 50000};
	int sock[2], core[2] = {0, 1}, option;
	bool shared = true;

	while ((option = getopt(argc, argv, "m:n:c:")) != -1) {
		if (option == 'm')
			shared = strcmp(optarg, "private") != 0;
		else if (option == 'n')
			side.iterations = (int)strtol(optarg, NULL, 10);
		else if (option != 'c' || sscanf(optarg, "%d,%d", &core[0], &core[1]) != 2)
			give_up("usage: onesided [-m shared|private] [-n ITERATIONS] [-c "
				"CORE,CORE]");
	}
	uint8_t *between =
		mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (between == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
		give_up("can't begin");
	pid_t pid = fork();

	side.child = pid == 0;
	side.sock = sock[side.child];
	close(sock[!side.child]);
	if (side.child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	run(&side, shared, core, between);
	if (!side.child)
		waitpid(pid, NULL, 0);
	return 0;
}
