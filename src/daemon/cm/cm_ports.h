/* SPDX-License-Identifier: BSD-2-Clause */
/* Port spaces: which identifiers have which ports of TCP, UDP, IPOIB and IB. They are independent
 * of the host's ports but share the range of ephemeral ones. Of each space's ephemeral ports a user
 * has no more than half of what the others leave (core/user.h). */
#ifndef VERBENA_DAEMON_CM_CM_PORTS_H
#define VERBENA_DAEMON_CM_CM_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/index.h"

struct cm_client;
struct cm_id;

/* A member of each identifier. */
struct cm_port {
	struct list node;	    /* on its binding's list */
	struct cm_binding *binding; /* NULL: the identifier has no port */
};

/* The sender of a connection request, as far as it is known: an address, and on this host the slot
 * of its process. */
struct cm_asker {
	uint8_t gid[16];
	uint32_t slot; /* 0: on another host, or unknown */
};

/* A listener that has ended while its program goes on. */
struct cm_ended {
	uint64_t at_ms; /* 0: none */
	uint16_t port;
	const struct cm_client *client; /* its program */
	struct cm_asker asker;		/* of the last request that it got */
};

enum { CM_ENDED_MAX = 64 };

/* Identifiers that share one port: of them a user has no more than half of what the others leave.
 * It bounds what one bind, or one request for a listener, looks at. */
enum { CM_PORT_IDS = 4096 };

struct cm_ports {
	struct index bindings;
	struct list shares;		     /* struct cm_port_share.node */
	struct cm_ended ended[CM_ENDED_MAX]; /* the latest, a ring */
	uint32_t ended_next;
	uint16_t first, last; /* the range of ephemeral ports */
	uint16_t unprivileged;
	bool v6_only; /* the host's default for IPv6 addresses */
};

int cm_ports_init(struct cm_ports *ports);
void cm_ports_fini(struct cm_ports *ports);

/*
 * Gives the identifier the port of its source address; 0: any free one. Returns 0; -EADDRINUSE:
 * another identifier has the same address and port, and the two can't share it; -EADDRNOTAVAIL:
 * likewise, and one of the two is bound to all addresses, or no port is free, or the user has its
 * share of the ephemeral ones, or of the identifiers on this port; -EAGAIN: likewise, until what
 * the user's ended clients had is freed (the request is then retried, ending.h); -EACCES: the port
 * needs `privileged`; -ENOMEM.
 */
int cm_ports_bind(struct cm_ports *ports, struct cm_id *id, bool privileged);
void cm_ports_unbind(struct cm_ports *ports, struct cm_id *id);

/* Checks that an identifier which is about to listen shares its port with no other. Returns 0,
 * -EADDRINUSE or -EADDRNOTAVAIL, as above. */
int cm_ports_check_listen(const struct cm_id *id);

/* The listener for an IP address and port: one bound to this address before one bound to all. NULL:
 * none. */
struct cm_id *cm_ports_listener(const struct cm_ports *ports, uint16_t port_space, uint16_t port,
				const uint8_t gid[16]);
/* The same among those that are bound to addresses of the family AF_IB; `gid`: the port's. */
struct cm_id *cm_ports_listener_ib(const struct cm_ports *ports, uint16_t port_space, uint16_t port,
				   const uint8_t gid[16]);

/* Whether a listener on this port, in any port space, that ended a moment ago got a request from
 * the asker, and its program goes on. */
bool cm_ports_heard(const struct cm_ports *ports, uint16_t port, const struct cm_asker *asker);
/* The program ends: forgets its listeners that have ended. */
void cm_ports_forget(struct cm_ports *ports, const struct cm_client *client);

#endif
