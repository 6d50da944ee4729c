/* SPDX-License-Identifier: BSD-2-Clause */
/* A played client of the daemon: what it knows, and the requests that it can make of it. */
#ifndef VERBENA_TESTS_FUZZ_COMMANDS_H
#define VERBENA_TESTS_FUZZ_COMMANDS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/proto.h"

struct input;

enum { CLIENTS = 8, KNOWN = 32 };

/* An object that the daemon said it made: its command, handle, and number (QPN, lkey). */
struct known {
	uint32_t command, handle, number;
};

struct client {
	int fd, event_fd; /* -1: none */
	uint32_t slot;
	uint64_t cookie, link_id;
	/* Requests that aren't answered: the commands, oldest first. */
	uint32_t asked[16], asked_count;
	struct known known[KNOWN];
	uint32_t count; /* of `known` */
};

struct packet {
	size_t size;
	_Alignas(8) uint8_t bytes[512];
};

/* A request that `client` may well send; some name what `other` has. */
void command_make(struct packet *packet, const struct client *client, const struct client *other,
		  struct input *in);

/* Sends any packet; a legacy command's number is noted, for its reply. Never blocks. */
void client_send(struct client *client, const void *packet, size_t size, const int *fds,
		 unsigned int count);
/* The same with a header around `body`. */
void client_request(struct client *client, uint32_t command, const void *body, size_t size,
		    const int *fds, unsigned int count);
/* Takes all replies and events, and learns from them. */
void client_read(struct client *client);

#endif
