/* SPDX-License-Identifier: BSD-2-Clause */
/* A simulated client of the daemon: its state, and the requests that it can send. */
#ifndef VERBENA_TESTS_FUZZ_COMMANDS_H
#define VERBENA_TESTS_FUZZ_COMMANDS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/proto.h"

struct input;

enum { CLIENTS = 8, KNOWN = 32 };

/* An object that the daemon has created: its command, handle, and number (QPN, lkey). */
struct known {
	uint32_t command, handle, number;
};

struct client {
	int fd, event_fd; /* -1: none */
	uint32_t slot;
	uint64_t cookie, link_id;
	/* Requests without a reply yet: the commands, oldest first. */
	uint32_t asked[16], asked_count;
	struct known known[KNOWN];
	uint32_t count; /* of `known` */
};

struct packet {
	size_t size;
	_Alignas(8) uint8_t bytes[1024];
};

/* Makes a request that `client` could send; some name objects of `other`. */
void command_make(struct packet *packet, const struct client *client, const struct client *other,
		  struct input *in);

/* Sends any packet without blocking; records a legacy command's number, to interpret its reply. */
void client_send(struct client *client, const void *packet, size_t size, const int *fds,
		 unsigned int count);
/* Sends `body` with a header. */
void client_request(struct client *client, uint32_t command, const void *body, size_t size,
		    const int *fds, unsigned int count);
/* Takes all replies and events, and records the objects in them. */
void client_read(struct client *client);

#endif
