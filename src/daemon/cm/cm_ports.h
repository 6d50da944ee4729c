/* SPDX-License-Identifier: BSD-2-Clause */
/* Port spaces: who has which port of TCP, UDP, IPOIB and IB, which have nothing in common with the
 * host's ports but the range of ephemeral ones. */
#ifndef VERBENA_DAEMON_CM_CM_PORTS_H
#define VERBENA_DAEMON_CM_CM_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/index.h"

struct cm_client;
struct cm_id;

/* In each identifier. */
struct cm_port {
	struct list node;	    /* on its binding's list */
	struct cm_binding *binding; /* NULL: it has no port */
};

/* Who asked for a connection, as far as can be told: an address, and on this host its process. */
struct cm_asker {
	uint8_t gid[16];
	uint32_t slot; /* 0: of another host, or unknown */
};

/* A listener that has ended, though its program goes on. */
struct cm_ended {
	uint64_t at_ms; /* 0: none */
	uint16_t port;
	const struct cm_client *client; /* its program */
	struct cm_asker asker;		/* the last one whom it heard */
};

enum { CM_ENDED_MAX = 64 };

struct cm_ports {
	struct index bindings;
	struct cm_ended ended[CM_ENDED_MAX]; /* the last ones */
	uint32_t ended_next;
	uint16_t first, last; /* ephemeral */
	uint16_t unprivileged;
	bool v6_only; /* the host's default for IPv6 addresses */
};

int cm_ports_init(struct cm_ports *ports);
void cm_ports_fini(struct cm_ports *ports);

/*
 * Gives the identifier the port of its source address; 0: any. 0; -EADDRINUSE another one has it
 * and they can't share it; -EACCES only root may have it; -EADDRNOTAVAIL none is free; -ENOMEM.
 */
int cm_ports_bind(struct cm_ports *ports, struct cm_id *id, bool privileged);
void cm_ports_unbind(struct cm_ports *ports, struct cm_id *id);

/* One that is about to listen doesn't share it with others. 0 or -EADDRINUSE. */
int cm_ports_check_listen(const struct cm_id *id);

/* Who listens there: one with this address rather than one with all. NULL: nobody. */
struct cm_id *cm_ports_listener(const struct cm_ports *ports, uint16_t port_space, uint16_t port,
				const uint8_t gid[16]);

/* Whether the asker was heard there, in any port space, by a listener that has ended a moment ago,
 * and whose program goes on. */
bool cm_ports_heard(const struct cm_ports *ports, uint16_t port, const struct cm_asker *asker);
/* The program doesn't go on. */
void cm_ports_forget(struct cm_ports *ports, const struct cm_client *client);

#endif
