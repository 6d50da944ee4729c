/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside librdmacm.so.1: what stands behind the program's identifiers, channels and events.
 *
 * The connection manager itself is in verbenad (node `rdma_cm`, proto/cm.h). The library turns
 * calls into its commands and its packets into events, makes QPs, and moves them through their
 * states.
 *
 *   conn.c      the process's connection to the daemon, and event channels' handles
 *   device.c    contexts and protection domains that all ids share
 *   registry.c  ids and joins by the number that the daemon puts into events
 *   id.c        create, destroy, migrate, addresses, routes, options
 *   qp.c        QPs, SRQs and CQs of an id, and a QP's states
 *   private.c   what only our own libibverbs has
 *   connect.c   connect, accept, reject, disconnect, ECE
 *   event.c     channels and events
 *   multicast.c joins
 *   ep.c        endpoints: rdma_create_ep(), rdma_get_request()
 *   addrinfo.c  rdma_getaddrinfo()
 *
 * Inside, functions return 0 or a negative errno; only what is exported uses errno.
 *
 * Threads and locks: any thread may call anything. `registry_lock` guards the registry and each
 * object's counters; `conn.lock` is held for one round trip; the devices and the lists of joins
 * have locks of their own, and so have the end of an event channel and that of a QP
 * (id_hold_qp()). No two are held together. One
 * id's calls aren't serialized against one another, as in the manual pages: that is the program's
 * part. So the fields of struct id that have no lock are written by the id's own calls and by the
 * thread that handles its event, which the program orders; registry_pass() orders a call before the
 * events that it causes.
 */
#ifndef VERBENA_RDMACM_RDMACM_H
#define VERBENA_RDMACM_RDMACM_H

#include "rdmacm/kernel.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/list.h"
#include "base/mutex.h"

/* Converts an internal result to the program's convention. */
static inline int cm_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* ------------------------------------------------------------------ conn.c */

/*
 * Sends one command and waits for its response. `generation` is that of the connection over which
 * the object was made; -ENODEV when that connection is gone (its daemon ended, or it was the
 * parent's). `fd`: receives the reply's descriptor; NULL: none is expected.
 */
int cm_call(uint32_t generation, uint32_t command, const void *body, size_t size, void *reply,
	    size_t reply_size, int *fd);
/*
 * Sends a command that can't fail (PROTO_POSTED) without waiting for an answer; it is executed
 * before later ones. 0; -ENODEV as above.
 */
int cm_post(uint32_t generation, uint32_t command, const void *body, size_t size);
/* Whether the process is on a node of a fabric: its devices are InfiniBand's. */
bool cm_is_on_node(void);
/* Opens the connection if there is none, for a new object; *generation is its number. 0 or
 * -errno. */
int cm_conn_open(uint32_t *generation);

/* ------------------------------------------------------------------ device.c */

extern struct mutex devices_lock;

/* The fields without a lock are written before the device is in the list, and never again. */
struct device {
	struct device *next GUARDED_BY(devices_lock);
	struct ibv_context *verbs;
	struct ibv_pd *pd GUARDED_BY(devices_lock);	/* the default PD; made on demand */
	struct ibv_xrcd *xrcd GUARDED_BY(devices_lock); /* the default XRC domain; likewise */
	__be64 guid;
	uint8_t max_initiator_depth, max_responder_resources;
};

/* The device with this GUID, opened if need be. NULL: there is none, or it can't be opened
 * (errno). */
struct device *device_of_guid(__be64 guid);
/* The device's default PD, or NULL with errno. */
struct ibv_pd *device_pd(struct device *device);
/* The device's default XRC domain, an anonymous one, or NULL with errno. */
struct ibv_xrcd *device_xrcd(struct device *device);

/* ------------------------------------------------------------------ registry.c */

enum object_kind { OBJECT_ID, OBJECT_JOIN };

extern struct mutex registry_lock;

/* An object that events refer to. */
struct object {
	uint64_t uid GUARDED_BY(registry_lock); /* 0: not in the registry */
	enum object_kind kind;			/* written before registry_add() */
	/* Events that the program holds. */
	unsigned int unacknowledged GUARDED_BY(registry_lock);
};

/* Gives the object a number. 0 or -ENOMEM. */
int registry_add(struct object *object);
/* The object's number, for the daemon. */
uint64_t registry_uid(const struct object *object);
/* Drops further events for the object; returns when the program has acknowledged all it has. */
void registry_remove(struct object *object);
/* Returns when the program has acknowledged all events of the object. */
void registry_wait(struct object *object);
/* The object, with one more event to acknowledge. NULL: it is gone. */
struct object *registry_get(uint64_t uid);
void registry_put(struct object *object);
/*
 * Makes this thread's writes to an object visible to each thread that gets the object later
 * (registry_get()). The daemon's round trip between a command and its event orders them in any
 * case, but neither C nor a race detector knows that order.
 */
void registry_pass(void);

/* ------------------------------------------------------------------ id.c */

extern struct mutex joins_lock, channels_lock, qps_lock;

/* Changes in a forked child, which has none of its parent's threads. */
extern uint32_t rdmacm_forks;

struct channel {
	struct rdma_event_channel pub;
	uint32_t handle, generation;			 /* written once */
	unsigned int readers GUARDED_BY(channels_lock);	 /* threads in event_get() */
	uint32_t readers_fork GUARDED_BY(channels_lock); /* the process whose threads these are */
	bool destroyed GUARDED_BY(channels_lock);	 /* by the program; readers may remain */
};

/*
 * The state of a connection is the daemon's (daemon/cm/cm_id.h). An id has six flags. Each is a
 * fact of another object: the channel; the QP (which the program may not have, or end before the
 * connection); the connection; the program's options; a look-up of addresses. Where no lock guards
 * them see the head of this file.
 *
 *   flag        | set by                           | cleared by
 *   ------------+----------------------------------+------------------------------------------
 *   sync        | id_create(), id_migrate(): the   | id_migrate() to the program's channel
 *               | channel is the id's own          |
 *   connected   | rdma_connect(), rdma_accept(),   | the same without a QP; id_destroy_qp()
 *               | if the id has a QP               |
 *   qp_ends     | id_destroy_qp() when it begins   | the same when the QP has ended
 *   established | take_id_event(), by the thread   | rdma_disconnect(), which then needs no
 *               | that handles the event; atomic   | answer; another thread may disconnect
 *   ece_set     | rdma_set_local_ece()             | never
 *   resolving   | rdma_resolve_addrinfo(); atomic  | rdma_query_addrinfo(), when it takes the
 *               |                                  | result; a look-up that fails
 */
struct id {
	struct rdma_cm_id pub;
	struct object object;
	uint32_t handle, generation;
	struct device *device;
	/* Facts, each of another object, that change independently: see above. */
	bool sync; /* the channel is the id's own */
	/* accept() or connect() moved the QP: an error ends it. */
	bool connected GUARDED_BY(qps_lock);
	bool established; /* atomic: the event said so, and the program hasn't disconnected */
	uint8_t initiator_depth, responder_resources;
	struct rdma_ucm_ece local_ece, remote_ece;
	bool ece_set; /* local_ece is the program's; else it is taken from the QP */
	/* The thread that handles an event uses the QP (id_hold_qp()), and another one may end it
	 * meanwhile, which waits then. */
	unsigned int qp_users GUARDED_BY(qps_lock);
	uint32_t qp_users_fork GUARDED_BY(qps_lock); /* the process whose threads these are */
	bool qp_ends GUARDED_BY(qps_lock);	     /* id_destroy_qp() has begun: no new user */
	uint32_t known; /* enum proto_cm_known: which attributes came with an event */
	struct ib_uverbs_qp_attr init, rtr, rts;
	struct list joins GUARDED_BY(joins_lock); /* of struct join */
	bool resolving;				  /* atomic */
	struct rdma_addrinfo *resolved; /* atomic; its owner is who exchanges it for NULL */
	/* Endpoints only: */
	struct ibv_qp_init_attr *ep_init; /* for the QPs of a listener's connections */
	struct ibv_pd *ep_pd;
	uint8_t *prefix; /* precedes the private data */
	size_t prefix_size;
};

struct event {
	struct rdma_cm_event pub;
	struct object *owner; /* the object that counts the acknowledgement */
	uint8_t private_data[RDMA_MAX_PRIVATE_DATA];
};

static inline struct id *id_of(struct rdma_cm_id *id)
{
	return container_of(id, struct id, pub);
}

static inline struct channel *event_channel_of(struct rdma_event_channel *channel)
{
	return container_of(channel, struct channel, pub);
}

int event_channel_create(struct channel **channel);
/* The channel ends when the last thread has left event_get(). */
void event_channel_destroy(struct channel *channel);

/* The QP type of a port space: connected for RDMA_PS_TCP and RDMA_PS_IB, datagrams for the
 * others. */
enum ibv_qp_type id_default_type(enum rdma_port_space ps);
int id_create(struct channel *channel, void *context, enum rdma_port_space ps,
	      enum ibv_qp_type type, struct id **out);
/* Makes the id of a connection request, whose `handle` exists at the daemon. 0 or -errno. */
int id_adopt(struct id *listener, uint32_t handle, struct id **out);
void id_destroy(struct id *id);
/* Sets addresses and device. `event`: carries what is known; the daemon is asked for the rest.
 * NULL: everything is asked for. 0 or -errno. */
int id_learn_addr(struct id *id, const struct proto_cm_event *event);
int id_learn_path(struct id *id, const struct proto_cm_event *event);
int id_migrate(struct id *id, struct channel *channel);

/*
 * Synchronous operation: waits for the event of the step that was just begun, stores it in the id,
 * and returns its status. Asynchronous: returns 0 at once.
 */
int id_complete(struct id *id);
/* Acknowledges the stored event of the last synchronous call. */
void id_forget_event(struct id *id);

/* ------------------------------------------------------------------ qp.c */

/* Stores attributes for the QP's next states that came with an event. */
void qp_learn(struct id *id, const struct proto_cm_event *event);
int qp_to_init(struct id *id, struct ibv_qp *qp);
/*
 * The id's QP, which exists until id_release_qp(); NULL: it has none, or it ends. Programs destroy
 * a QP (rdma_destroy_qp()) while another thread of theirs handles an event of the same id, for
 * example the answer to rdma_connect(), which moves the QP on.
 */
struct ibv_qp *id_hold_qp(struct id *id);
void id_release_qp(struct id *id);
/* Moves the QP to RTS. RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH keep the daemon's values. 0 or
 * -errno. */
int qp_to_rts(struct id *id, struct ibv_qp *qp, uint8_t responder_resources,
	      uint8_t initiator_depth);
void qp_to_error(struct id *id);
/* connect() or accept() is about to be asked for: whether the id has a QP that an error then ends.
 */
void qp_note_connection(struct id *id);
/* The connection is over: its QP, if qp_note_connection() found one, goes to ERR. */
void qp_of_connection_to_error(struct id *id);
/* Waits until no event's handler uses the QP. */
void id_destroy_qp(struct id *id);

/* private.c: creates a CQ for one QP only (abi/private.h); beside another libibverbs an ordinary
 * one. */
struct ibv_cq *private_create_cq_for_qp(struct ibv_context *context,
					struct ibv_cq_init_attr_ex *attr);

/* Whether the context's device was removed; beside another libibverbs never. */
bool private_context_removed(struct ibv_context *context);

/* ------------------------------------------------------------------ connect.c */

enum { CONNECT_NO_QP = 1 };
/* Active side, after the peer accepted: moves the QP on and confirms. -EALREADY: the connection has
 * ended, and its last event follows. CONNECT_NO_QP: the program moves its own QP on, or has
 * destroyed the id's. */
int connect_finish(struct id *id);

/* ------------------------------------------------------------------ event.c */

/* Waits for an event. 0 or -errno; -EBADF: the channel is destroyed. */
int event_get(struct channel *channel, struct event **out);

/* ------------------------------------------------------------------ multicast.c */

struct join {
	struct object object;
	struct list node GUARDED_BY(joins_lock); /* in id->joins */
	struct id *id;
	void *context;
	uint32_t handle;
	uint32_t flags; /* enum rdma_cm_mc_join_flags */
	/* Written by the thread that handles the join's event, which counts as unacknowledged
	 * meanwhile; so read after registry_remove(). */
	bool attached; /* the library has attached the QP */
	bool lost_qp;  /* the QP that it had attached was destroyed: attach the id's next one */
	union ibv_gid gid;
	uint16_t lid;
	struct sockaddr_storage addr;
};

/* Attaches the id's QP to a group that was joined. 0 or -errno. */
int join_attach(struct join *join, const struct ibv_ah_attr *group);
/* The id's QP is about to be destroyed: detaches it, or it couldn't end. */
void joins_lose_qp(struct id *id);
/* The id has a new QP: attaches it to the groups that its last one was attached to. 0 or -errno:
 * the caller destroys the QP by id_destroy_qp(). */
int joins_take_qp(struct id *id, struct ibv_qp *qp);
/* Sets up a new id's list. */
void joins_init(struct id *id);
/* Frees the joins of an id that ends. */
void join_free_all(struct id *id);

/* The size of the address; 0: unknown family. */
size_t addr_size(const struct sockaddr *addr);

#endif
