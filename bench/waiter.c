/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected processes that do nothing, for somebody who measures what nothing costs.
 *
 * usage: waiter event|idle
 * event: both wait in ibv_get_cq_event() with an armed CQ; idle: both sleep. A message went each
 * way before. Prints "ready PID PID", and stays until standard input ends.
 */
#include "scale.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Gives `mine` to the other process and returns what it gives. */
static uint32_t swap(int sock, uint32_t mine)
{
	uint32_t theirs;

	if (write(sock, &mine, sizeof(mine)) != sizeof(mine) ||
	    read(sock, &theirs, sizeof(theirs)) != sizeof(theirs))
		give_up("the other process has ended");
	return theirs;
}

static void be_an_end(int sock, int by_events)
{
	struct node node;

	node_open(&node, 16, 4096);
	struct ibv_qp *qp = node_qp(&node, 16);

	qp_connect(&node, qp, swap(sock, qp->qp_num));
	qp_recv(&node, qp, 1, 0, 64);
	swap(sock, 0);
	qp_send(&node, qp, 2, 64, 64);
	node_wait(&node, by_events);
	node_wait(&node, by_events);
	qp_recv(&node, qp, 1, 0, 64);
	swap(sock, 0);
	if (by_events)
		node_wait(&node, 1); /* for ever */
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int by_events = argc == 2 && !strcmp(argv[1], "event"), sock[2];
	pid_t pid[2], parent = getpid();
	char byte;

	if (argc != 2 || (!by_events && strcmp(argv[1], "idle")))
		give_up("usage: waiter event|idle");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
		give_up("socketpair failed");
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			be_an_end(sock[i], by_events);
		_exit(1);
	}
	printf("ready %d %d\n", pid[0], pid[1]);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	return 0;
}
