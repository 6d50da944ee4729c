/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests: checks a packet's header as the kernel does, finds the command, runs it, makes the
 * reply.
 *
 * A command sees its structure only when the packet holds all of it; what a command returns is the
 * reply's result. Nothing here or below trusts a number from the packet.
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
	size_t size;	  /* bytes of the structure, that is without udata */
	const void *udata;
	size_t udata_size;
	size_t response_size; /* bytes of the response structure that the client has room for */
	const struct proto_return *old; /* what the object was before; NULL: it is new */
	int *fds; /* PROTO_MAX_FDS places; a command that keeps one sets its place to -1 */
	/* Set by a command that answers with descriptors; closed after sending. */
	int reply_fds[PROTO_MAX_FDS];
	unsigned int reply_fd_count;
	bool posted; /* nobody waits for an answer */
	bool later;  /* set by a command that can't be answered now: it comes again, see conn.h */
};

struct reply {
	size_t size;
	int fds[PROTO_MAX_FDS];
	unsigned int fd_count;
	_Alignas(8) uint8_t data[PROTO_MAX_MESSAGE];
};

/* Answers one packet. `fds`: see struct request; the caller closes what is left in it. Returns
 * whether there is an answer now; one of no bytes isn't sent. */
bool conn_dispatch(struct conn *conn, const void *packet, size_t size, int *fds,
		   struct reply *reply);

/* A reply that only says `result`. */
void reply_error(struct reply *reply, int result);

#endif
