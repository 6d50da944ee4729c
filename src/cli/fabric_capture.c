/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena capture --port`: what crosses a port of the fabric. verbena-fabric makes the pcapng
 * blocks of management datagrams, on a stream; data's packets come from the processes that send
 * them, by rings that verbenad introduces, as in any capture (capture_session.h). This file puts
 * both together.
 */
#include "cli/fabric.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "cli/capture_session.h"

enum { BLOCK_HEAD = 8, BLOCK_PACKET = 6 };

/* Blocks on their way from the stream to the file. */
struct blocks {
	struct capture_session session;
	size_t used;
	uint8_t data[2 * CAPTURE_BLOCK_MAX];
};

/* Writes the blocks that are whole. Returns the number of packets; -EPROTO: they can't be blocks;
 * or why writing failed. */
static int blocks_write(struct blocks *blocks)
{
	struct capture_session *session = &blocks->session;
	size_t at = 0;
	int packets = 0, err = 0;

	while (!err && session->left && blocks->used - at >= BLOCK_HEAD) {
		uint32_t type, bytes;

		memcpy(&type, blocks->data + at, sizeof(type));
		memcpy(&bytes, blocks->data + at + 4, sizeof(bytes));
		if (bytes < BLOCK_HEAD + 4 || bytes % 4 || bytes > CAPTURE_BLOCK_MAX)
			return -EPROTO;
		if (blocks->used - at < bytes)
			break;
		err = capture_file_block(session->file, blocks->data + at, bytes);
		at += bytes;
		if (type != BLOCK_PACKET)
			continue;
		packets++;
		session->left--;
		session->file->packets++;
	}
	memmove(blocks->data, blocks->data + at, blocks->used - at);
	blocks->used -= at;
	return err ? err : packets;
}

/* capture_session.stream_take. -ESHUTDOWN: the fabric has ended. */
static int blocks_take(struct capture_session *session)
{
	struct blocks *blocks = container_of(session, struct blocks, session);
	ssize_t n = recv(session->stream, blocks->data + blocks->used,
			 sizeof(blocks->data) - blocks->used, MSG_DONTWAIT);

	if (!n)
		return -ESHUTDOWN;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	blocks->used += (size_t)n;
	return blocks_write(blocks);
}

/* The section and the interface, which come first. */
static int blocks_begin(struct blocks *blocks)
{
	struct pollfd wait = {.fd = blocks->session.stream, .events = POLLIN};

	blocks->session.file->interfaces = 1;
	while (!blocks->session.file->used) {
		int n = poll(&wait, 1, -1) < 0 ? -errno : blocks_take(&blocks->session);

		if (n < 0 && n != -EINTR)
			return n;
	}
	return 0;
}

static int capture_run_at(struct blocks *blocks, const struct fabric_capture *wish,
			  unsigned int port, const sigset_t *stop)
{
	struct capture_session *session = &blocks->session;
	int err = blocks_begin(blocks);
	enum capture_end end = CAPTURE_FAILED;

	if (!err) {
		fprintf(stderr, "capturing %s/%u into %s\n", wish->port, port,
			session->file->is_stdout ? "standard output" : wish->path);
		session->end_ns = capture_deadline_ns(wish->seconds);
		end = capture_session_run(session, stop, &err);
	}
	if (err == -ESHUTDOWN)
		cli_error("the fabric ended, and the capture with it");
	else if (end == CAPTURE_FAILED)
		cli_error("cannot write %s: %s", wish->path, strerror(-err));
	else if (end == CAPTURE_DAEMON_GONE)
		cli_error("the daemon ended, and the capture with it");
	capture_file_flush(session->file);
	fprintf(stderr, "%" PRIu64 " packets captured\n", session->file->packets);
	if (capture_session_lost(session))
		fprintf(stderr,
			"%" PRIu64 " packets of data were lost: they came faster than they could "
			"be written\n",
			capture_session_lost(session));
	return end == CAPTURE_DONE ? CLI_OK : CLI_FAILURE;
}

/* Asks the fabric for the port's stream, and the daemon for what its programs send. */
static int ask_both(struct capture_session *session, const char *node, unsigned int port)
{
	int connection;
	json_t *reply = NULL;
	int code = fabric_request_fd(
		json_pack("{s:s, s:s, s:i}", "op", "capture", "node", node, "port", (int)port),
		&reply, &session->stream);

	if (code != CLI_OK)
		return code;
	json_int_t row = json_integer_value(json_object_get(reply, "row"));

	json_decref(reply);
	if (session->stream < 0) {
		cli_error("the fabric sent no stream; are `verbena` and verbena-fabric of one "
			  "version?");
		return CLI_FAILURE;
	}
	code = capture_find_daemon(&connection);
	if (code != CLI_OK)
		return code;
	code = capture_ask_daemon(json_pack("{s:s, s:I}", "op", "capture", "fabric_port", row),
				  &session->events);
	close(connection);
	return code;
}

int fabric_capture_run(const struct fabric_capture *wish)
{
	static struct capture_file file;
	static struct blocks blocks;
	struct capture_session *session = &blocks.session;
	unsigned int port;
	sigset_t stop;

	if (!fabric_port_parse(wish->port, &port))
		return CLI_USAGE;
	*session = (struct capture_session){
		.file = &file,
		.events = -1,
		.bells = -1,
		.stream = -1,
		.stream_take = blocks_take,
		.left = wish->count ? wish->count : UINT64_MAX,
	};
	capture_block_signals(&stop);
	signal(SIGPIPE, SIG_IGN);
	int code = ask_both(session, wish->port, port);
	int err = code == CLI_OK ? capture_file_open(&file, wish->path) : 0;

	if (err) {
		cli_error("cannot open %s: %s", wish->path, strerror(-err));
		code = CLI_FAILURE;
	} else if (code == CLI_OK) {
		code = capture_run_at(&blocks, wish, port, &stop);
		capture_file_close(&file);
	}
	if (session->stream >= 0)
		close(session->stream);
	capture_session_free(session);
	return code;
}
