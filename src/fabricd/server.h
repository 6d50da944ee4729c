/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbena-fabric: a fabric (src/fabric) as a process. One thread with one epoll; each watched
 * descriptor is part of the object that it belongs to. What the fabric and the agents' state
 * machine (src/mad) send is queued, and handled after the event that caused it.
 */
#ifndef VERBENA_FABRICD_SERVER_H
#define VERBENA_FABRICD_SERVER_H

#include "base/list.h"
#include "base/spin.h"
#include "fabric/clocks.h"
#include "fabric/fabric.h"
#include "mad/mad.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Connections that may be open at once, and what a program may leave unread. */
#define SERVER_CONNECTIONS_MAX 4096u
#define SERVER_UNREAD_MAX (16u << 20)

struct server;

struct watched {
	int fd; /* -1: none */
	void (*ready)(struct server *server, struct watched *watched, uint32_t events);
};

/* A port that programs have opened, or that gets a datagram. Its row is its place in `ports`. */
struct server_port {
	struct mad_port mad;
	uint32_t row;
	struct list node;    /* on server.open_ports */
	struct watched issm; /* the end for writing of its issm file, while a program has it open */
};

/* A datagram that a port is about to send. */
struct outgoing {
	uint32_t port;
	int qpn;
	struct ib_mad_addr to;
	uint8_t mad[MAD_BYTES];
};

/* Errors that a port makes by itself, `verbena fabric errors --per-second`. */
struct error_rate {
	uint32_t port;
	enum fabric_error error;
	double per_second, rest;
};

/* The clocks that processes on nodes share (timing.h). */
struct timing {
	struct clocks clocks; /* slow 0: there are none */
	uint64_t *taken;      /* by port and lane: ticks that are in PortVLXmitWait */
	int file;	      /* of the clocks */
};

struct server {
	struct fabric fabric;
	struct mad_system mads;
	struct server_port **ports; /* by row; NULL: not in use */
	struct list open_ports;
	struct outgoing *outgoing; /* a queue: [first, first + count) modulo room */
	size_t outgoing_first, outgoing_count, outgoing_room;
	int epoll;
	int directory; /* the run-time directory */
	char directory_path[256];
	struct watched listener, control, files;
	struct watched timer; /* of what is postponed (postponed.h) */
	struct postponed **postponed;
	size_t postponed_count, postponed_room;
	uint64_t postponed_order, postponed_due_ns;
	struct spin spin; /* waiting for the next event */
	struct list connections, controls;
	struct list members; /* processes with verbs on nodes (members.h) */
	uint64_t fold_ns;    /* when their counts may be read again */
	int tables;	     /* the state's file, open for reading: what such processes map */
	struct list taps;    /* captures (tap.h) */
	struct timing timing;
	unsigned int connection_count;
	void *memory;
	size_t bytes;
	struct error_rate *rates;
	unsigned int rate_count;
	uint64_t rates_ms; /* when rates were last applied */
	uint64_t started_ms;
	uint64_t random;
	bool is_resumed;
	bool is_over;
};

uint64_t server_now_ms(void);

/* Watches a descriptor for EPOLLIN and so on. 0 or -errno. */
int server_watch(struct server *server, struct watched *watched, int fd, uint32_t events);
void server_watch_change(struct server *server, struct watched *watched, uint32_t events);
/* Ends the watch and closes the descriptor. */
void server_unwatch(struct server *server, struct watched *watched);

/* Opens the sockets in the directory. 0 or -errno, with the reason in the log. */
int server_open(struct server *server);
/* Runs until is_over. Signals that the caller has blocked may come while it waits. */
int server_serve(struct server *server);
void server_close(struct server *server);

/* Sends all that is queued, and what follows from it. */
void server_pump(struct server *server);

/* The port's state for agents; NULL: no memory. */
struct server_port *server_port_get(struct server *server, uint32_t row);
void server_agents_init(struct server *server);
/* When agents or faults need the next call of server_expire(). */
uint64_t server_deadline(const struct server *server);
void server_expire(struct server *server, uint64_t now_ms);

/* Connections of libibumad (connection.c), of `verbena fabric` (control.c), issm files (issm.c). */
void connection_accept(struct server *server, int fd);
void connections_close(struct server *server);
void control_accept(struct server *server, int fd);
void controls_close(struct server *server);
int issm_open(struct server *server);
int issm_make(struct server *server, uint32_t port, char *path, size_t size);

/* A node by its name or GUID ("0x..."), or FABRIC_NONE. */
uint32_t server_node_find(const struct server *server, const char *name);

#endif
