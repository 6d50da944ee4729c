/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hundreds of processes at once on one device: do all of them get their data, and when?
 *
 * usage: manyprocs [-n PROCESSES] [-k PEERS] [-r ROUNDS]
 *
 * Each process opens the device and connects an RC QP to each of the PEERS processes after it in a
 * circle, and is connected to by the PEERS before it. Over every connection, in every round, go a
 * SEND and its answer, an RDMA WRITE and an RDMA READ of what was written; all is checked. Every
 * second process waits by events, the others poll. They start at the same moment, with no daemon
 * running unless somebody else started it.
 *
 * Prints "name value" lines:
 *   processes, connections
 *   open_s       until the last one had its QPs
 *   talk_s       all rounds of everybody
 *   total_s      until all had given everything back and ended
 *   link_bytes   memory (Pss) of all processes for one link between two, after they talked
 */
#include "scale.h"

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

enum { SMALL = 1000, LARGE = 6000, PLACE = 2 * SMALL + 3 * LARGE };

static int processes = 200, peers = 8, rounds = 5;

/* What the processes tell each other; in memory that all share. */
static struct board {
	_Atomic uint32_t arrived[8]; /* at each meeting */
	double opened, talked;
	_Atomic uint64_t before, after; /* bytes */
} * board;
static struct card { /* of process p: 2 * peers connections, out and in */
	uint64_t addr;
	uint32_t rkey;
	uint32_t qpn[];
} * cards;

static struct card *card(int p)
{
	size_t size = sizeof(struct card) + 2 * peers * sizeof(uint32_t);

	size = (size + 63) & ~(size_t)63;
	return (struct card *)((char *)cards + p * size);
}

static void meet(int where)
{
	atomic_fetch_add(&board->arrived[where], 1);
	while (atomic_load(&board->arrived[where]) < (uint32_t)processes) {
		usleep(2000);
	}
}

/* Connection c < peers goes out, to the process c + 1 further; the others come in from there. */
static int peer_of(int me, int c)
{
	int step = c < peers ? c + 1 : peers - c - 1;

	return ((me + step) % processes + processes) % processes;
}

/* The other side's name for our connection c. */
static int other(int c)
{
	return c < peers ? c + peers : c - peers;
}

static uint8_t pattern(int from, int c, int round, int i)
{
	return from * 31 + c * 7 + round * 3 + i + (i >> 8);
}

static void fill(uint8_t *at, int size, int from, int c, int round)
{
	for (int i = 0; i < size; i++)
		at[i] = pattern(from, c, round, i);
}

static void check(const uint8_t *at, int size, int from, int c, int round, const char *what)
{
	for (int i = 0; i < size; i++)
		if (at[i] != pattern(from, c, round, i))
			give_up("round %d, connection %d: byte %d of a %s from process %d is wrong",
				round, c, i, what, from);
}

struct process {
	int me, sleeping;
	int requests, receives; /* completions that are due; below zero: came early */
	struct node node;
	struct ibv_qp **qps;
};

/* Where connection c keeps: what it sends, receives, writes from, is written to, reads into. */
static size_t place(int c, int what)
{
	static const size_t at[] = {0, SMALL, 2 * SMALL, 2 * SMALL + LARGE, 2 * SMALL + 2 * LARGE};

	return (size_t)c * PLACE + at[what];
}

/* So many requests and receives more. A quick peer's next message may come early. */
static void finish(struct process *p, int requests, int receives)
{
	p->requests += requests;
	p->receives += receives;
	while (p->requests > 0 || p->receives > 0) {
		if (node_wait(&p->node, p->sleeping).opcode == IBV_WC_RECV)
			p->receives--;
		else
			p->requests--;
	}
}

/* Everybody sends and is sent to on all its connections, writes and reads what it wrote. */
static void talk(struct process *p, int round)
{
	int links = 2 * peers;
	uint8_t *buf = p->node.buf;

	for (int c = 0; c < links; c++) {
		fill(buf + place(c, 0), SMALL, p->me, c, round);
		fill(buf + place(c, 2), LARGE, p->me, c, round + 1000);
		qp_send(&p->node, p->qps[c], c, place(c, 0), SMALL);
	}
	finish(p, links, links);
	for (int c = 0; c < links; c++) {
		int from = peer_of(p->me, c);

		check(buf + place(c, 1), SMALL, from, other(c), round, "message");
		qp_recv(&p->node, p->qps[c], c, place(c, 1), SMALL);
	}
	for (int c = 0; c < links; c++) {
		const struct card *theirs = card(peer_of(p->me, c));
		uint64_t remote = theirs->addr + place(other(c), 3);

		qp_rdma(&p->node, p->qps[c], IBV_WR_RDMA_WRITE, c, place(c, 2), LARGE, remote,
			theirs->rkey);
		qp_rdma(&p->node, p->qps[c], IBV_WR_RDMA_READ, c, place(c, 4), LARGE, remote,
			theirs->rkey);
	}
	finish(p, 2 * links, 0);
	for (int c = 0; c < links; c++)
		check(buf + place(c, 4), LARGE, p->me, c, round + 1000, "read");
}

static void be_a_process(int me)
{
	int links = 2 * peers;
	struct process p = {
		.me = me, .sleeping = me & 1, .qps = calloc(links, sizeof(struct ibv_qp *))};
	struct card *mine = card(me);

	node_open(&p.node, links * 8, (size_t)links * PLACE);
	mine->addr = (uintptr_t)p.node.buf;
	mine->rkey = p.node.mr->rkey;
	for (int c = 0; c < links; c++) {
		p.qps[c] = node_qp(&p.node, 8);
		mine->qpn[c] = p.qps[c]->qp_num;
		qp_recv(&p.node, p.qps[c], c, place(c, 1), SMALL);
		fill(p.node.buf + place(c, 0), PLACE, 0, 0, 0); /* it is weighed from here on */
		fill(p.node.buf + place(c, 1), SMALL, 0, 0, 0);
	}
	atomic_fetch_add(&board->before, process_bytes(0));
	meet(0);
	board->opened = now_seconds();
	for (int c = 0; c < links; c++)
		qp_connect(&p.node, p.qps[c], card(peer_of(me, c))->qpn[other(c)]);
	for (int round = 0; round < rounds; round++)
		talk(&p, round);
	meet(1);
	board->talked = now_seconds();
	for (int c = 0; c < links; c++) /* written by others, who are through now */
		check(p.node.buf + place(c, 3), LARGE, peer_of(me, c), other(c), rounds + 999,
		      "write");
	atomic_fetch_add(&board->after, process_bytes(0));
	meet(2);
	for (int c = 0; c < links; c++)
		if (ibv_destroy_qp(p.qps[c]))
			give_up("ibv_destroy_qp failed");
	node_close(&p.node);
	free(p.qps);
}

static void *share(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		give_up("no memory");
	return p;
}

static pid_t start(pid_t parent, int me)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork of process %d failed", me); /* PDEATHSIG ends the others */
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent) {
		be_a_process(me);
		exit(0);
	}
	_exit(1);
}

int main(int argc, char **argv)
{
	int option, status, failed = 0;
	pid_t *pids;

	while ((option = getopt(argc, argv, "n:k:r:")) != -1) {
		int value = atoi(optarg ? optarg : "0");

		if (option == 'n')
			processes = value;
		else if (option == 'k')
			peers = value;
		else if (option == 'r')
			rounds = value;
		else
			return 2;
	}
	if (peers > (processes - 1) / 2)
		peers = (processes - 1) / 2; /* all to all */
	pids = calloc(processes, sizeof(*pids));
	board = share(sizeof(*board));
	cards = share((size_t)processes * (sizeof(struct card) + 8 * peers + 64));
	double began = now_seconds();

	for (int i = 0; i < processes; i++)
		pids[i] = start(getpid(), i);
	for (int i = 0; i < processes; i++) {
		pid_t pid = wait(&status);

		for (int k = 0; k < processes; k++) {
			if (pids[k] == pid)
				pids[k] = 0;
			else if (status && pids[k] && !failed)
				kill(pids[k], SIGKILL); /* what the first says is enough */
		}
		if (status && !failed)
			fprintf(stderr, "manyprocs: process %d ended with status 0x%x\n", pid,
				status);
		failed |= status;
	}
	if (failed)
		give_up("a process failed");
	free(pids);
	double links = (double)processes * peers;

	printf("processes %d\nconnections %.0f\nopen_s %.2f\ntalk_s %.2f\ntotal_s %.2f\n"
	       "link_bytes %.0f\n",
	       processes, links, board->opened - began, board->talked - board->opened,
	       now_seconds() - began, (double)(board->after - board->before) / links);
	return 0;
}
