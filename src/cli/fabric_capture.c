/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena capture --port`: management datagrams that cross a port of the fabric. verbena-fabric
 * makes the pcapng blocks; this file writes them, whole ones only, and counts the packets.
 */
#include "cli/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

enum { BLOCK_HEAD = 8, BLOCK_PACKET = 6, BLOCK_BYTES_MAX = 65536 };

/* Blocks on their way from the stream to the file. */
struct blocks {
	int to;
	uint64_t packets, most; /* written; how many are wanted */
	size_t used;
	uint8_t data[2 * BLOCK_BYTES_MAX];
};

static int all_write(int fd, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, data, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		data += n > 0 ? n : 0;
		bytes -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Writes the blocks that are whole. 0; -EPROTO: they can't be blocks; or why writing failed. */
static int blocks_write(struct blocks *blocks)
{
	size_t at = 0;
	int err = 0;

	while (!err && blocks->packets < blocks->most && blocks->used - at >= BLOCK_HEAD) {
		uint32_t type, bytes;

		memcpy(&type, blocks->data + at, sizeof(type));
		memcpy(&bytes, blocks->data + at + 4, sizeof(bytes));
		if (bytes < BLOCK_HEAD + 4 || bytes % 4 || bytes > BLOCK_BYTES_MAX)
			return -EPROTO;
		if (blocks->used - at < bytes)
			break;
		blocks->packets += type == BLOCK_PACKET;
		err = all_write(blocks->to, blocks->data + at, bytes);
		at += bytes;
	}
	memmove(blocks->data, blocks->data + at, blocks->used - at);
	blocks->used -= at;
	return err;
}

/* The stop signals as a descriptor. */
static int stop_signals(void)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &stop, SFD_CLOEXEC);
}

static int left_ms(uint64_t end_ns)
{
	uint64_t now = clock_ns();

	if (end_ns == UINT64_MAX)
		return -1;
	if (end_ns <= now)
		return 0;
	return (end_ns - now) / 1000000 < 60000 ? (int)((end_ns - now) / 1000000 + 1) : 60000;
}

/* Until a signal, a limit, or the fabric's end (-ESHUTDOWN). */
static int stream_copy(struct blocks *blocks, int from, int stop, uint64_t end_ns)
{
	int err = 0;

	while (!err && blocks->packets < blocks->most && clock_ns() < end_ns) {
		struct pollfd waits[] = {{.fd = from, .events = POLLIN},
					 {.fd = stop, .events = POLLIN}};
		ssize_t n;

		if (poll(waits, 2, left_ms(end_ns)) < 0 && errno != EINTR)
			return -errno;
		if (waits[1].revents)
			return 0;
		if (!waits[0].revents)
			continue;
		n = read(from, blocks->data + blocks->used, sizeof(blocks->data) - blocks->used);
		if (!n)
			return -ESHUTDOWN;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		blocks->used += n > 0 ? (size_t)n : 0;
		err = blocks_write(blocks);
	}
	return err;
}

static int capture_to(int to, int from, const struct fabric_capture *wish)
{
	static struct blocks blocks;
	int stop = stop_signals(), err;

	blocks = (struct blocks){.to = to, .most = wish->count ? wish->count : UINT64_MAX};
	err = stop < 0 ? -errno
		       : stream_copy(&blocks, from, stop,
				     wish->seconds ? clock_ns() + wish->seconds * 1000000000
						   : UINT64_MAX);
	if (stop >= 0)
		close(stop);
	if (err == -ESHUTDOWN)
		cli_error("the fabric ended, and the capture with it");
	else if (err)
		cli_error("cannot write %s: %s", wish->path, strerror(-err));
	fprintf(stderr, "%" PRIu64 " datagrams captured\n", blocks.packets);
	return err ? CLI_FAILURE : CLI_OK;
}

int fabric_capture_run(const struct fabric_capture *wish)
{
	unsigned int port;
	json_t *reply = NULL;
	int from, to, code;

	if (!fabric_port_parse(wish->port, &port))
		return CLI_USAGE;
	code = fabric_request_fd(json_pack("{s:s, s:s, s:i}", "op", "capture", "node", wish->port,
					   "port", (int)port),
				 &reply, &from);
	if (code != CLI_OK)
		return code;
	json_decref(reply);
	if (from < 0) {
		cli_error("the fabric sent no stream; are `verbena` and verbena-fabric of one "
			  "version?");
		return CLI_FAILURE;
	}
	to = strcmp(wish->path, "-") != 0
		     ? open(wish->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
		     : dup(STDOUT_FILENO);
	if (to < 0) {
		cli_error("cannot open %s: %s", wish->path, strerror(errno));
		close(from);
		return CLI_FAILURE;
	}
	fprintf(stderr, "capturing %s/%u into %s\n", wish->port, port,
		strcmp(wish->path, "-") != 0 ? wish->path : "standard output");
	code = capture_to(to, from, wish);
	close(to);
	close(from);
	return code;
}
