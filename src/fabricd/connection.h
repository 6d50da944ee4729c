/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of libibumad: questions, and ports that programs have open. */
#ifndef VERBENA_FABRICD_CONNECTION_H
#define VERBENA_FABRICD_CONNECTION_H

#include "fabricd/server.h"

struct connection {
	struct list node; /* on server.connections */
	struct server *server;
	struct watched watched;
	struct server_port *port; /* NULL: not open yet */
	struct member *member;	  /* of a process on a node; NULL: it isn't one's */
	struct mad_file file;
	struct list unread; /* struct message: what didn't fit into the socket */
	size_t unread_bytes;
	uint64_t sent, received, dropped; /* MADs, seen from the program */
	pid_t pid;
	uid_t uid;
	bool is_over; /* to be closed after the event under way */
};

/* A message for the program (struct mad_functions). */
void connection_deliver(void *reader, const struct ib_user_mad *header, const uint8_t *mad,
			size_t bytes);

extern const struct fabric_functions server_fabric_functions;

#endif
