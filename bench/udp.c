/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What plain UDP does through loopback: the limits of the wire carrier, which adds RoCEv2 to the
 * same path. Two processes, each pinned to a core of its own, and one line "name value" for each
 * figure:
 *
 *   udp_ns           64 bytes, both sides spinning on their sockets, one way (half a round trip)
 *   udp_4096_MBs     payloads of 4096 bytes, cut and joined by the kernel (UDP_SEGMENT, UDP_GRO),
 * in 10^6 bytes a second that arrive udp_1024_MBs     the same of 1024 bytes
 *
 * The latency is the median of short runs; the bandwidths are the best of a few, since a sender
 * that outruns its receiver loses what both did.
 *
 * usage: udp [CORE_A CORE_B]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum {
	RUNS = 300,
	TURNS = 100,
	BURST = 64000,
	BUFFER = 4 << 20,
	AHEAD = 1 << 20, /* bytes that the sender may be ahead, so that little is lost */
	TRIES = 2,
};

static int core_a, core_b = 1;

static void connect_pair(int s[2])
{
	struct sockaddr_in at[2];
	int size = BUFFER;

	for (int i = 0; i < 2; i++) {
		socklen_t length = sizeof(at[i]);

		at[i] = (struct sockaddr_in){.sin_family = AF_INET,
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		s[i] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		if (s[i] < 0 || bind(s[i], (struct sockaddr *)&at[i], length) < 0 ||
		    getsockname(s[i], (struct sockaddr *)&at[i], &length) < 0)
			give_up("a UDP socket");
		setsockopt(s[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		setsockopt(s[i], SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
		setsockopt(s[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	}
	for (int i = 0; i < 2; i++)
		if (connect(s[i], (struct sockaddr *)&at[!i], sizeof(at[0])) < 0)
			give_up("connect");
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(core_b);
	}
	return pid;
}

static void end(pid_t pid, const int s[2])
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(s[0]);
	close(s[1]);
}

/* ------------------------------------------------------------------ latency */

static void turn_of(int s, char *bytes)
{
	while (recv(s, bytes, 64, 0) < 0)
		;
}

static double latency(void)
{
	static double result[RUNS];
	char bytes[64] = {0};
	int s[2];

	connect_pair(s);
	pid_t pid = child();

	if (pid == 0)
		for (;;) {
			turn_of(s[1], bytes);
			if (send(s[1], bytes, 64, 0) < 0)
				give_up("send");
		}
	for (int run = 0; run < RUNS; run++) {
		double start = now();

		for (int i = 0; i < TURNS; i++) {
			if (send(s[0], bytes, 64, 0) < 0)
				give_up("send");
			turn_of(s[0], bytes);
		}
		result[run] = (now() - start) / TURNS / 2;
	}
	end(pid, s);
	qsort(result, RUNS, sizeof(result[0]), compare);
	return result[RUNS / 2];
}

/* ------------------------------------------------------------------ bandwidth */

struct count {
	_Alignas(256) _Atomic uint64_t got;
};

static _Noreturn void receive_all(int s, struct count *count)
{
	static char bytes[65536];
	int one = 1;

	setsockopt(s, SOL_UDP, UDP_GRO, &one, sizeof(one));
	for (;;) {
		ssize_t n = recv(s, bytes, sizeof(bytes), 0);

		if (n > 0)
			atomic_fetch_add_explicit(&count->got, (uint64_t)n, memory_order_relaxed);
	}
}

static void send_burst(int s, uint16_t payload, char *bytes, size_t size)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(payload))] = {0};
	struct iovec all = {bytes, size};
	struct msghdr m = {.msg_iov = &all,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(sizeof(payload));
	memcpy(CMSG_DATA(c), &payload, sizeof(payload));
	while (sendmsg(s, &m, 0) < 0)
		if (errno != EAGAIN)
			give_up("sendmsg (UDP_SEGMENT)");
}

static double bandwidth_once(uint16_t payload, struct count *count)
{
	static char bytes[BURST];
	size_t packets = BURST / payload < 62 ? BURST / payload : 62, size = packets * payload;
	uint64_t sent = 0;
	int s[2];

	connect_pair(s);
	atomic_store(&count->got, 0);
	pid_t pid = child();

	if (pid == 0)
		receive_all(s[1], count);
	double start = now(), last = start + 1.5e8;

	while (now() < last) {
		uint64_t ahead = sent - atomic_load_explicit(&count->got, memory_order_relaxed);

		/* What was lost never comes: nobody waits for it for long. */
		if (ahead > AHEAD && now() < last - 1e7)
			continue;
		send_burst(s[0], payload, bytes, size);
		sent += size;
	}
	double rate = (double)atomic_load(&count->got) / (now() - start) * 1000;

	end(pid, s);
	return rate;
}

static double bandwidth(uint16_t payload, struct count *count)
{
	double best = 0;

	for (int i = 0; i < TRIES; i++) {
		double rate = bandwidth_once(payload, count);

		best = rate > best ? rate : best;
	}
	return best;
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		core_a = atoi(argv[1]);
		core_b = atoi(argv[2]);
	} else if (argc != 1) {
		fprintf(stderr, "usage: udp [CORE_A CORE_B]\n");
		return 2;
	}
	struct count *count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (count == MAP_FAILED)
		give_up("mmap");
	pin(core_a);
	printf("udp_ns %.0f\n", latency());
	printf("udp_4096_MBs %.0f\n", bandwidth(4096, count));
	printf("udp_1024_MBs %.0f\n", bandwidth(1024, count));
	return 0;
}
