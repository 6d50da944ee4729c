/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An identifier of the RDMA CM (struct rdma_cm_id): its addresses, its port, its part in a
 * connection. It belongs to a client and reports on one of its channels.
 */
#ifndef VERBENA_DAEMON_CM_CM_ID_H
#define VERBENA_DAEMON_CM_CM_ID_H

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "cm/cm.h"
#include "daemon/cm/cm_channel.h"
#include "daemon/cm/cm_object.h"
#include "daemon/cm/cm_ports.h"
#include "daemon/net/neighbour.h"

struct cm_request;
struct cm_service;
struct device;
struct host_address;

union cm_address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
	struct sockaddr_storage storage;
};

/* rdma_create_qp()'s types: what of them a connection can be of. */
enum cm_id_type { CM_ID_RC = 2, CM_ID_UC = 3, CM_ID_UD = 4 };

/* What its program may do next. */
enum cm_id_state {
	ID_IDLE,
	ID_BOUND,	   /* has a port; resolve an address, or listen */
	ID_ADDR_QUERY,	   /* waits whether the host is there */
	ID_ADDR_RESOLVED,  /* has a device; resolve a route */
	ID_ROUTE_RESOLVED, /* connect */
	ID_CONNECT,	   /* connecting, connected, or no more so */
	ID_LISTEN,
	ID_REMOVED, /* its device is gone: it can only end */
};

struct cm_id {
	struct cm_object object;
	struct cm_channel *channel;
	uint64_t uid; /* 0: a request that isn't accepted yet; its events are dropped */
	enum cm_id_state state;
	uint16_t port_space;		      /* enum rdma_ucm_port_space */
	uint8_t type;			      /* enum cm_id_type */
	union cm_address source, destination; /* family 0: none */
	const struct device *device;	      /* NULL: none yet */
	struct cm_path path;		      /* of the device */
	uint32_t card_ifindex;		      /* of the interface that has path.local, */
	uint8_t card_mac[6];		      /* as it was when the device was taken */
	uint8_t gid_index;		      /* then, of path.local */
	bool reuse, family_only, family_set, has_ack_timeout;
	uint8_t tos, ack_timeout;
	uint32_t qpn, psn;
	struct cm_port port;
	struct neighbour_question question; /* in ID_ADDR_QUERY */
	struct cm_endpoint *endpoint;	    /* NULL: no connection yet */
	uint32_t reported;		    /* events that its program got, or gets next */
	struct list joins;		    /* struct cm_join.node (cm_mcast.h) */
	uint64_t last_place;		    /* in the channel, of the last one that was sent */
	/* A listener's. */
	uint32_t backlog;
	struct list requests; /* identifiers whose CONNECT_REQUEST its program may not have read */
	uint32_t request_count;
	bool was_asked;
	struct cm_asker asker; /* the last one */
	/* A request's. */
	struct cm_id *listener; /* on whose list it is; NULL: none */
	struct list request_node;
	uint64_t request_place; /* of its event in the channel; 0: not sent yet */
};

struct cm_id *cm_id_find(const struct cm_request *request, uint32_t handle);

/* 0 or -errno. */
int cm_id_make(struct cm_channel *channel, uint16_t port_space, uint8_t type, struct cm_id **out);
void cm_id_free(struct cm_id *id);

/* The event goes to its channel, with its handle and uid; nowhere if it has no uid yet. */
void cm_id_event(struct cm_id *id, uint32_t type, int status);
void cm_id_event_with(struct cm_id *id, struct rdma_ucm_event_resp *event);
/* One that has a handle and uid already: those of a group that it has joined. */
void cm_id_post(struct cm_id *id, const struct rdma_ucm_event_resp *event);

/* Takes the device that has the address path.local. False: none has it. */
bool cm_id_take_device(struct cm_id *id);
/* The host's interfaces may be others: tells the program what that means for the identifier. */
void cm_id_network_changed(struct cm_id *id);

/* A listener that takes another request now: its program has read, or has place for, those before.
 */
bool cm_id_has_backlog(struct cm_id *listener);
void cm_id_add_request(struct cm_id *listener, struct cm_id *id);
/* It was answered, or read. */
void cm_id_drop_request(struct cm_id *id);

struct cm_service *cm_id_service(const struct cm_id *id);

/* Addresses */

/* False: neither IPv4 nor IPv6, or of the wrong size. */
bool cm_address_take(const void *bytes, size_t size, union cm_address *out);
socklen_t cm_address_size(const union cm_address *address);
uint16_t cm_address_port(const union cm_address *address);
void cm_address_set_port(union cm_address *address, uint16_t port);
bool cm_address_is_any(const union cm_address *address);
void cm_address_gid(const union cm_address *address, uint8_t gid[16]);
/* `version`: 4 or 6. `scope`: for link-local ones. */
void cm_address_from_gid(const uint8_t gid[16], uint32_t version, uint16_t port, uint32_t scope,
			 union cm_address *out);

#endif
