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
#include "daemon/cm/cm_alternate.h"
#include "daemon/cm/cm_channel.h"
#include "daemon/cm/cm_node.h"
#include "daemon/cm/cm_numbers.h"
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
	struct cm_sockaddr_ib ib; /* of clients on a node of a fabric only */
	struct sockaddr_storage storage;
};

/* The types of rdma_create_qp() that a connection can have. */
enum cm_id_type {
	CM_ID_RC = 2,
	CM_ID_UC = 3,
	CM_ID_UD = 4,
	CM_ID_XRC_SEND = 9,
	CM_ID_XRC_RECV = 10
};

/* What the program may do next. */
enum cm_id_state {
	ID_IDLE,
	ID_BOUND,	   /* has a port; resolve an address, or listen */
	ID_ADDR_QUERY,	   /* waits until the neighbour answers */
	ID_ADDR_RESOLVED,  /* has a device; resolve a route */
	ID_ROUTE_QUERY,	   /* of a node: waits for the subnet administration */
	ID_ROUTE_RESOLVED, /* ready to connect */
	ID_CONNECT,	   /* connecting, connected or disconnected */
	ID_LISTEN,
	ID_REMOVED, /* its device is gone: it can only be destroyed */
};

struct cm_id {
	struct cm_object object;
	struct cm_channel *channel;
	uint64_t uid; /* 0: a request that isn't accepted yet: its events are dropped */
	enum cm_id_state state;
	uint16_t port_space;		      /* enum rdma_ucm_port_space */
	uint8_t type;			      /* enum cm_id_type */
	union cm_address source, destination; /* family 0: none */
	const struct device *device;	      /* NULL: none yet */
	struct cm_path path;		      /* the addresses; path.local is the device's */
	uint32_t card_ifindex;		      /* the interface that has path.local, and */
	uint8_t card_mac[6];		      /* its MAC address, when the device was taken */
	uint8_t gid_index;		      /* likewise, index of path.local */
	/* The program's options; each may be set in any state, so none is part of it: the address
	 * may be reused; its own family only; the program has chosen that (else it is so for IPv4,
	 * and for IPv6 the host's default);
	 * the program has chosen ack_timeout. */
	bool reuse, family_only, family_set, has_ack_timeout;
	uint8_t tos, ack_timeout;
	uint32_t qpn, psn;
	struct cm_port port;
	struct neighbour_question question; /* while in ID_ADDR_QUERY */
	struct cm_query query;		    /* while in ID_ROUTE_QUERY */
	uint64_t asked_at;		    /* likewise: the fabric's epoch then */
	struct cm_endpoint *endpoint;	    /* NULL: no connection yet */
	uint32_t reported;		    /* events that the program got, or gets next */
	struct cm_alternate alternate;	    /* while in ID_CONNECT */
	struct list joins;		    /* struct cm_join.node (cm_mcast.h) */
	uint64_t last_place;		    /* in the channel, of its last event that was sent */
	/* Of a listener. */
	uint32_t backlog;
	struct list requests; /* identifiers whose CONNECT_REQUEST the program may not have read */
	uint32_t request_count;
	bool was_asked;	       /* a request has come, and `asker` is filled; never cleared */
	struct cm_asker asker; /* the last request's sender */
	/* Of a request. */
	struct cm_id *listener; /* the listener on whose list it is; NULL: none */
	struct list request_node;
	uint64_t request_place; /* of its event in the channel; 0: not sent yet */
};

/* The client's identifier with this handle; NULL: none. */
struct cm_id *cm_id_find(const struct cm_request *request, uint32_t handle);

/* Makes an identifier on the channel. Returns 0 or -errno. */
int cm_id_make(struct cm_channel *channel, uint16_t port_space, uint8_t type, struct cm_id **out);
void cm_id_free(struct cm_id *id);

/* Sends an event to the identifier's channel, with its handle and uid; drops it while the
 * identifier has no uid. */
void cm_id_event(struct cm_id *id, uint32_t type, int status);
void cm_id_event_with(struct cm_id *id, struct rdma_ucm_event_resp *event);
/* Sends an event that has a handle and uid already: one of a group that the identifier has
 * joined. */
void cm_id_post(struct cm_id *id, const struct rdma_ucm_event_resp *event);

/* Sets the device that has the address path.local. False: no device has it. */
bool cm_id_take_device(struct cm_id *id);
/* The devices were refreshed: reports to the program what that means for the identifier. */
void cm_id_network_changed(struct cm_id *id);

/* Whether a listener takes another request now: fewer than its backlog are unread. */
bool cm_id_has_backlog(struct cm_id *listener);
/* Counts a request against the listener's backlog. */
void cm_id_add_request(struct cm_id *listener, struct cm_id *id);
/* The request was answered or read: it doesn't count against the backlog any more. */
void cm_id_drop_request(struct cm_id *id);

struct cm_service *cm_id_service(const struct cm_id *id);
/* The node of a fabric whose identifier it is; NULL: the host's. */
struct cm_node *cm_id_node(const struct cm_id *id);
/* The port spaces that it belongs to. */
struct cm_ports *cm_id_ports(const struct cm_id *id);

/* Whether it stands for an address of the loopback interface. */
bool cm_gid_is_loopback(const uint8_t gid[16]);

/* Addresses. */

/* Copies an address. False: none that an identifier can have (IPv4, IPv6, AF_IB), or of the wrong
 * size. */
bool cm_address_take(const void *bytes, size_t size, union cm_address *out);
bool cm_address_is_ib(const union cm_address *address);
socklen_t cm_address_size(const union cm_address *address);
uint16_t cm_address_port(const union cm_address *address);
void cm_address_set_port(union cm_address *address, uint16_t port);
bool cm_address_is_any(const union cm_address *address);
void cm_address_gid(const union cm_address *address, uint8_t gid[16]);
/* `version`: 4 or 6. `scope`: for link-local addresses. */
void cm_address_from_gid(const uint8_t gid[16], uint32_t version, uint16_t port, uint32_t scope,
			 union cm_address *out);
/* The address AF_IB of a port with this GID, and a service id of the RDMA CM. */
void cm_address_from_ib(const uint8_t gid[16], uint16_t pkey, uint64_t service_id,
			union cm_address *out);
/* Decides the port space of an AF_IB address that an identifier of the port space `wanted` binds,
 * by the bits of its service id that count; writes the whole service id. 0; -EPROTONOSUPPORT: it
 * is of another port space. */
int cm_address_choose_space(union cm_address *address, uint16_t wanted, uint16_t *port_space);

#endif
