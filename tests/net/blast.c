/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Plain UDP through a network, as fast as possible: the limit for any protocol over UDP there.
 *
 *   blast recv PORT                        counts datagrams; ends after a second without any
 *   blast send HOST PORT SIZE SECONDS [MAX_IN_FLIGHT]
 *
 * The sender sends datagrams of SIZE bytes, up to 64 KiB of them in one call (UDP_SEGMENT); the
 * receiver takes them joined (UDP_GRO), and reports every MiB how many bytes it has, so that the
 * sender never has more than MAX_IN_FLIGHT bytes (8 MiB) in flight; after 20 ms without a report
 * they count as lost. Each datagram begins with its number. Both print one line of "name=value".
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif

enum { CALL_BYTES = 65000, CALL_SEGMENTS = 64, REPORT_BYTES = 1 << 20, LOST_MS = 20 };

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void socket_widen(int fd)
{
	int bytes = 32 << 20;

	/* Above the system's limit with CAP_NET_ADMIN, otherwise up to it. */
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/* The size of the datagrams that were joined in a message. */
static uint32_t segment_of(struct msghdr *message, uint32_t otherwise)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
			return (uint32_t) * (int *)(void *)CMSG_DATA(c);
	return otherwise;
}

struct tally {
	uint64_t bytes, packets, behind; /* behind: arrived after one with a higher number */
	uint64_t highest;
	double first, last;
};

static void message_count(struct tally *tally, const uint8_t *at, uint32_t length, uint32_t segment)
{
	for (uint32_t done = 0; done < length; done += segment) {
		uint64_t number;

		if (length - done < sizeof(number))
			break;
		memcpy(&number, at + done, sizeof(number));
		tally->packets++;
		tally->behind += number < tally->highest;
		if (number > tally->highest)
			tally->highest = number;
	}
	tally->bytes += length;
	tally->last = now_s();
	if (tally->first == 0)
		tally->first = tally->last;
}

static int receive(uint16_t port)
{
	struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(port)}, from;
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), one = 1;
	static uint8_t buffer[1 << 17];
	char control[64];
	struct tally tally = {0};
	uint64_t reported = 0;

	socket_widen(fd);
	if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&own, sizeof(own))) {
		perror("blast recv");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct iovec part = {buffer, sizeof(buffer)};
		struct msghdr message = {.msg_name = &from,
					 .msg_namelen = sizeof(from),
					 .msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = control,
					 .msg_controllen = sizeof(control)};
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		ssize_t length;

		if (poll(&ready, 1, tally.packets ? 1000 : 10000) == 0)
			break;
		length = recvmsg(fd, &message, MSG_DONTWAIT);
		if (length <= 0)
			continue;
		message_count(&tally, buffer, (uint32_t)length,
			      segment_of(&message, (uint32_t)length));
		if (tally.bytes - reported < REPORT_BYTES)
			continue;
		reported = tally.bytes;
		sendto(fd, &reported, sizeof(reported), MSG_DONTWAIT, (struct sockaddr *)&from,
		       message.msg_namelen);
	}
	printf("packets=%llu bytes=%llu behind=%llu GBs=%.3f\n", (unsigned long long)tally.packets,
	       (unsigned long long)tally.bytes, (unsigned long long)tally.behind,
	       tally.last > tally.first ? (double)tally.bytes / (tally.last - tally.first) / 1e9
					: 0);
	return 0;
}

/* Waits for the receiver's reports, or counts the bytes in flight as lost. */
static void window_wait(int fd, uint64_t sent, uint64_t *settled, uint64_t window, uint64_t *lost)
{
	uint64_t told;

	while (sent - *settled - *lost > window) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		if (poll(&ready, 1, LOST_MS) == 0)
			*lost = sent - *settled;
		else if (recv(fd, &told, sizeof(told), MSG_DONTWAIT) == sizeof(told))
			*settled = told;
		if (*settled + *lost > sent)
			*lost = sent - *settled;
	}
}

static int transmit(const char *host, const char *port, uint32_t size, double seconds,
		    uint64_t window)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *to;
	uint32_t segments = CALL_BYTES / size > CALL_SEGMENTS ? CALL_SEGMENTS : CALL_BYTES / size;
	uint64_t sent = 0, settled = 0, lost = 0, number = 0, refused = 0;
	static uint8_t buffer[1 << 16];
	int fd, segment = (int)size;
	double began;

	if (getaddrinfo(host, port, &hints, &to))
		return 1;
	fd = socket(to->ai_family, SOCK_DGRAM, 0);
	if (connect(fd, to->ai_addr, to->ai_addrlen) ||
	    setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment))) {
		perror("blast send");
		return 1;
	}
	freeaddrinfo(to);
	for (began = now_s(); now_s() - began < seconds;) {
		for (uint32_t i = 0; i < segments; i++, number++)
			memcpy(buffer + i * size, &number, sizeof(number));
		ssize_t done = send(fd, buffer, (size_t)segments * size, 0);

		if (done > 0)
			sent += (uint64_t)done;
		else
			refused++;
		window_wait(fd, sent, &settled, window, &lost);
	}
	printf("packets=%llu bytes=%llu refused=%llu GBs=%.3f\n", (unsigned long long)number,
	       (unsigned long long)sent, (unsigned long long)refused,
	       (double)sent / (now_s() - began) / 1e9);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "recv") == 0)
		return receive((uint16_t)atoi(argv[2]));
	if (argc >= 6 && strcmp(argv[1], "send") == 0 && atoi(argv[4]) >= 8)
		return transmit(argv[2], argv[3], (uint32_t)atoi(argv[4]), atof(argv[5]),
				argc > 6 ? strtoull(argv[6], NULL, 0) : 8 << 20);
	fprintf(stderr, "usage: %s recv PORT | send HOST PORT SIZE SECONDS [MAX_IN_FLIGHT]\n",
		argv[0]);
	return 2;
}
