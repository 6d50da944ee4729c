/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library's side of verbenad: find or start it, attach this process, open contexts, and one
 * function for each command. All calls block for one round trip; none may be made on a fast path.
 *
 * Threads: calls on one struct daemon_conn are serialized by its lock; different connections are
 * independent. Every function returns 0 (or what its comment says) or a negative errno; output
 * parameters are written only on success. A daemon that hangs up gives -EIO (logged once).
 *
 * A function without a result posts its command (PROTO_POSTED): the daemon executes it before the
 * connection's later commands, and the caller doesn't wait. The caller knows that nothing uses the
 * object; without a daemon there is nothing to end.
 */
#ifndef VERBENA_CLIENT_DAEMON_H
#define VERBENA_CLIENT_DAEMON_H

#include "base/mutex.h"
#include "proto/proto.h"
#include <pthread.h>
#include <stdint.h>

/* Called around each command of a connection whose objects the process lists, so that it can return
 * to another daemon (hca/process/books.h). */
struct daemon_owner {
	void (*enter)(void *owner);
	void (*leave)(void *owner);
	int (*lost)(void *owner); /* the daemon hung up: 0 if the command may be sent again */
};

struct daemon_conn {
	int fd;
	struct mutex lock;			/* held from a request's send to its reply */
	const struct daemon_owner *owner_calls; /* NULL: no callbacks */
	void *owner;
	const struct proto_return *old; /* names for what the command makes; NULL: new ones */
};

/* A connection that isn't open: commands on it give -EIO, and daemon_close() accepts it. */
#define DAEMON_CONN_CLOSED                                            \
	{                                                             \
		.fd = -1, .lock = MUTEX_INITIALIZER(RANK_DAEMON_CONN) \
	}

/* Lists the devices of this host; starts the daemon when none runs. Returns their number (0 to
 * max). */
int daemon_list_devices(struct proto_device *list, unsigned int max);

/* The UDP socket and the multicast table of a process; see struct proto_attach_resp. */
struct daemon_wire {
	int socket, park; /* -1: none. Close-on-exec; owned by the process */
	int groups;	  /* the table of multicast groups; likewise */
	uint32_t flags;	  /* enum proto_wire: the descriptors that came */
};

/*
 * Opens the process connection. `table_fd` and `regions_fd` (this process's published memory, see
 * shm/pub.h) and `doorbell_fd` (an eventfd) stay the caller's. On success `event_fd` is the
 * caller's to close. `old`: the request of a process that is returning, else NULL; `park`: the park
 * that it kept for this daemon, or -1 (stays the caller's). `wire` is always written.
 */
int daemon_attach(struct daemon_conn *conn, const struct proto_attach *old, int table_fd,
		  int doorbell_fd, int regions_fd, int park, struct proto_attach_resp *resp,
		  int *event_fd, struct daemon_wire *wire);

/* Names the source port of packets to this host, to which the UDP socket `fd` is bound; it stays
 * the caller's. -EINVAL: the daemon doesn't accept the socket. */
int daemon_source(struct daemon_conn *conn, int fd);

/* Requests a link to `slot`, which arrives as an event. -ENOENT: the slot is free; -EALREADY: the
 * event was sent already. */
int daemon_link(struct daemon_conn *conn, uint32_t slot);

/* Ends a link whose peer broke its rules. -ENOENT: the daemon doesn't know the link. */
int daemon_unlink(struct daemon_conn *conn, uint32_t slot, uint64_t link_id);

/* For a process that is returning: daemon_link_return() names a link that it has; daemon_returned()
 * says that it has named all that it holds. */
int daemon_link_return(struct daemon_conn *conn, uint64_t link_id, uint32_t slot, uint32_t side);
int daemon_returned(struct daemon_conn *conn);

/*
 * Receives the next event; never blocks. -EAGAIN: none now; -EPIPE: the daemon has ended. `fds`
 * (PROTO_MAX_FDS places, -1 where none came) become the caller's, close-on-exec.
 */
int daemon_event_next(int event_fd, struct proto_event *event, int *fds);

/* Opens a context connection to node `uverbsN`, bound to the process by its cookie. `token`: see
 * struct proto_get_context. */
int daemon_context_open(struct daemon_conn *conn, const char *node, uint64_t cookie,
			const uint64_t token[2], uint32_t *num_comp_vectors);
/* In a forked child: gives up the connection, which is its parent's. Commands give -EIO from then
 * on. */
void daemon_leave(struct daemon_conn *conn);
/* Whether daemon_leave() was called. */
bool daemon_is_left(const struct daemon_conn *conn);
/* Closes any connection, also one that isn't open; the daemon frees what it held for it. */
void daemon_close(struct daemon_conn *conn);

/* Queries. -EINVAL: no such port or index; -ENODATA: no GID at the index. */
int daemon_query_device(struct daemon_conn *conn, struct ib_uverbs_query_device_resp *resp);
int daemon_query_port(struct daemon_conn *conn, uint8_t port,
		      struct ib_uverbs_query_port_resp *resp);
int daemon_query_gid(struct daemon_conn *conn, uint32_t port, uint32_t index,
		     struct proto_query_gid_resp *resp);

/* Objects, named by handles of the connection's context. Further errors of all of these: -EINVAL or
 * -ENOENT: no such handle; -EINVAL: a bad argument; -EBUSY: in use; -ENOMEM: no memory or a limit
 * is reached. */
int daemon_alloc_pd(struct daemon_conn *conn, uint32_t *handle);
int daemon_dealloc_pd(struct daemon_conn *conn, uint32_t handle);

/* Sharing: `shared` is a handle of a context with the same token. -ENOENT: there is no such
 * object. */
int daemon_import_pd(struct daemon_conn *conn, uint32_t shared, uint32_t *handle);
/* -EBUSY: objects of this context use it. */
int daemon_unimport_pd(struct daemon_conn *conn, uint32_t handle);
/* Describes a region. -EOPNOTSUPP: it belongs to another process. */
int daemon_query_mr(struct daemon_conn *conn, uint32_t shared, struct proto_query_mr_resp *resp);

/* Makes keys of this process for a region of another one. daemon_dereg_mr() ends them. */
int daemon_import_mr(struct daemon_conn *conn, uint32_t pd, uint32_t shared,
		     struct proto_import_mr_resp *resp);

/* Logs, once for each kind of object, that the daemon makes no more of what this command makes. For
 * registrations, whose caller knows whether it is that; for others daemon_* do it. */
void daemon_explain_limit(uint32_t command);

/* `access` is enum ibv_access_flags. The keys' index is below LIMIT_MRS_PER_SLOT. */
int daemon_reg_mr(struct daemon_conn *conn, uint32_t pd, uint64_t addr, uint64_t length,
		  uint64_t iova, uint32_t access, struct proto_reg_mr reach,
		  struct ib_uverbs_reg_mr_resp *resp);
int daemon_rereg_mr(struct daemon_conn *conn, uint32_t handle, uint32_t flags, uint64_t addr,
		    uint64_t length, uint64_t iova, uint32_t pd, uint32_t access,
		    struct proto_reg_mr reach, struct ib_uverbs_rereg_mr_resp *resp);
/* Keys for a null region of the PD. daemon_dereg_mr() ends them. */
int daemon_alloc_null_mr(struct daemon_conn *conn, uint32_t pd, struct ib_uverbs_reg_mr_resp *resp);

/* Device memory. `fd` stays the caller's. */
int daemon_alloc_dm(struct daemon_conn *conn, uint64_t length, int fd, uint32_t *handle);
/* -EBUSY: it has regions. */
int daemon_free_dm(struct daemon_conn *conn, uint32_t handle);
/* `shared` is a handle of a context with the same token. *fd becomes the caller's. */
int daemon_import_dm(struct daemon_conn *conn, uint32_t shared, uint64_t *length, int *fd);
/* daemon_dereg_mr() ends the region. */
int daemon_reg_dm_mr(struct daemon_conn *conn, const struct proto_reg_dm_mr *body,
		     struct ib_uverbs_reg_mr_resp *resp);

int daemon_dereg_mr(struct daemon_conn *conn, uint32_t handle);

/* `type` is enum ibv_mw_type. The key's index is one of the regions'. */
int daemon_alloc_mw(struct daemon_conn *conn, uint32_t pd, uint8_t type,
		    struct ib_uverbs_alloc_mw_resp *resp);
int daemon_dealloc_mw(struct daemon_conn *conn, uint32_t handle);

int daemon_create_channel(struct daemon_conn *conn, uint32_t *handle);
void daemon_destroy_channel(struct daemon_conn *conn, uint32_t handle);

/* `channel` is a handle, or -1. */
int daemon_create_cq(struct daemon_conn *conn, uint32_t cqe, int64_t channel, uint32_t comp_vector,
		     uint32_t *handle);
/* Makes both in one round trip. */
int daemon_create_channel_cq(struct daemon_conn *conn, uint32_t cqe, uint32_t comp_vector,
			     struct proto_create_channel_cq_resp *resp);
int daemon_resize_cq(struct daemon_conn *conn, uint32_t handle, uint32_t cqe);
void daemon_destroy_cq(struct daemon_conn *conn, uint32_t handle);

/* `srq` is a handle, or -1. resp->qpn's upper bits are this process's slot. */
int daemon_create_qp(struct daemon_conn *conn, const struct ib_uverbs_create_qp *cmd,
		     struct ib_uverbs_create_qp_resp *resp);
/* As daemon_create_qp(), and makes one or both of its CQs in the same round trip. */
int daemon_create_qp_cqs(struct daemon_conn *conn, const struct proto_create_qp_cqs *cmd,
			 struct proto_create_qp_cqs_resp *resp);
void daemon_destroy_qp(struct daemon_conn *conn, uint32_t handle);

/* `gid`: a multicast GID. Attaching returns 0, also when the QP is attached already; -EINVAL: the
 * QP isn't UD, or the GID no group's; -ENOMEM: a limit is reached. Detaching: -EINVAL: it isn't
 * attached. */
int daemon_attach_mcast(struct daemon_conn *conn, uint32_t qp, const uint8_t gid[16], uint16_t lid);
int daemon_detach_mcast(struct daemon_conn *conn, uint32_t qp, const uint8_t gid[16], uint16_t lid);

/* A flow rule; results as proto.h says. */
int daemon_create_flow(struct daemon_conn *conn, const struct proto_create_flow *body,
		       uint32_t *handle);
int daemon_destroy_flow(struct daemon_conn *conn, uint32_t handle);

int daemon_create_srq(struct daemon_conn *conn, uint32_t pd, uint32_t max_wr, uint32_t max_sge,
		      uint32_t *handle);
int daemon_create_xsrq(struct daemon_conn *conn, const struct ib_uverbs_create_xsrq *body,
		       struct ib_uverbs_create_srq_resp *resp);
int daemon_modify_srq(struct daemon_conn *conn, uint32_t handle, uint32_t max_wr);
/* XRC: proto/proto.h describes each. */
int daemon_open_xrcd(struct daemon_conn *conn, const struct proto_open_xrcd *body,
		     struct proto_open_xrcd_resp *resp);
int daemon_close_xrcd(struct daemon_conn *conn, uint32_t handle);
/* As daemon_destroy_qp() for a handle of a target queue pair, and waits: when it returns, the queue
 * pair has ended for other processes as well, if it was the last handle. */
int daemon_close_target(struct daemon_conn *conn, uint32_t handle);
int daemon_open_qp(struct daemon_conn *conn, uint32_t xrcd, uint32_t qpn, uint8_t type,
		   uint32_t *handle);
/* By handle, on a context's connection; by number, on the process's. The other is 0. */
int daemon_xrc_query(struct daemon_conn *conn, uint32_t handle, uint32_t qpn,
		     struct proto_xrc_state *state);
int daemon_xrc_modify(struct daemon_conn *conn, uint32_t handle, const struct proto_xrc_state *to,
		      struct proto_xrc_state *now);
/* `status`: for the path before, of queue pair `qpn`; *next gets another one. */
int daemon_alternate(struct daemon_conn *conn, uint32_t qpn, uint32_t status,
		     struct proto_alternate_resp *next);
int daemon_xrc_report(struct daemon_conn *conn, const struct proto_xrc_report *report);
int daemon_xrc_returns(struct daemon_conn *conn, uint32_t xrcd, const struct proto_xrc_state *was,
		       struct proto_xrc_state *now);
/* The descriptor becomes the caller's. */
int daemon_xrc_memory(struct daemon_conn *conn, int *fd);
int daemon_xrc_socket(struct daemon_conn *conn, uint32_t slot, int *fd);
/* `fd` stays the caller's. */
int daemon_xrc_memory_returns(struct daemon_conn *conn, int fd);
int daemon_destroy_srq(struct daemon_conn *conn, uint32_t handle);

/* Finds the way to a GID. A GID that can't be reached is no error: resp->flags is 0 then. -EINVAL:
 * no such port, or no GID at the source index. */
int daemon_route(struct daemon_conn *conn, const struct proto_route *request,
		 struct proto_route_resp *resp);

/* Errors as those of daemon_route(). */
int daemon_create_ah(struct daemon_conn *conn, uint32_t pd, const struct ib_uverbs_ah_attr *attr,
		     struct proto_create_ah_resp *resp);
int daemon_destroy_ah(struct daemon_conn *conn, uint32_t handle);

#endif
