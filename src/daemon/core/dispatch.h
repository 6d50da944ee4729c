/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests: checks a packet's header as the kernel does, finds the command, runs it, makes the
 * reply.
 *
 * A command is called only when the packet holds its whole structure; its return value is the
 * reply's result. No number from the packet is trusted, here or in the commands.
 */
#ifndef VERBENA_DAEMON_CORE_DISPATCH_H
#define VERBENA_DAEMON_CORE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/proto.h"

struct conn;

struct request {
	struct conn *conn;
	const void *body; /* the command's structure, then udata; 8-byte aligned */
	size_t size;	  /* bytes of the command's structure, without udata */
	const void *udata;
	size_t udata_size;
	size_t response_size; /* bytes of the response structure for which the client has room */
	const struct proto_return *old; /* names at the last daemon; NULL: it is new */
	/* PROTO_MAX_FDS places; a command that keeps one sets its place to -1, and closes it by
	 * closer_close() later. */
	int *fds;
	/* Set by a command that answers with descriptors; the connection closes them. */
	int reply_fds[PROTO_MAX_FDS];
	unsigned int reply_fd_count;
	bool posted; /* the client expects no answer */
	bool later;  /* set by a command to be retried later, see conn.h */
};

struct reply {
	size_t size;
	int fds[PROTO_MAX_FDS];
	unsigned int fd_count;
	_Alignas(8) uint8_t data[PROTO_MAX_MESSAGE];
};

/* Answers one packet. `fds`: see struct request; the caller closes what is left in it. Returns
 * whether there is an answer now; an answer of 0 bytes is not sent. */
bool conn_dispatch(struct conn *conn, const void *packet, size_t size, int *fds,
		   struct reply *reply);

/* A reply that consists of `result` alone. */
void reply_error(struct reply *reply, int result);

#endif
