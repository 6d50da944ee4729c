/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects of a context: protection domains, regions, queues. Each object belongs to one context
 * and is named by a handle of that context's table; no other context's handle leads to it.
 *
 * `users` counts the objects that need this one (a PD's regions, a CQ's queue pairs, ...); while it
 * isn't 0, destroying the object gives -EBUSY. A context that ends frees users before what they
 * use.
 */
#ifndef VERBENA_DAEMON_OBJECTS_OBJECTS_H
#define VERBENA_DAEMON_OBJECTS_OBJECTS_H

#include <rdma/ib_user_verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/proto.h"

struct context;
struct domain;
struct proto_create_channel_cq_resp;
struct request;
struct target;
struct xrc_domain;
struct xrc_member;

/* In the order in which a context's objects are freed: users before what they use. */
enum object_kind {
	OBJECT_AH,
	OBJECT_FLOW,
	OBJECT_QP,
	OBJECT_SRQ,
	OBJECT_MW,
	OBJECT_MR,
	OBJECT_DM,
	OBJECT_CQ,
	OBJECT_CHANNEL,
	OBJECT_XRCD,
	OBJECT_PD,
	OBJECT_KINDS,
};

struct object {
	enum object_kind kind;
	uint32_t handle;
	uint32_t users;
	struct context *context;
	struct list node; /* on context->objects[kind] */
};

struct pd {
	struct object object;
	struct domain *domain; /* shared with other contexts' PDs; NULL: not shared (share.h) */
	struct list sibling;   /* on domain->pds: those in use come first */
	bool imported;	       /* made by PROTO_IMPORT_PD */
	/* Of object.users, null regions: the program may end the domain before them. */
	uint32_t null_regions;
};

struct channel {
	struct object object;
};

struct mr {
	struct object object;
	struct pd *pd;
	uint64_t addr, length, iova;
	uint64_t pinned; /* bytes, whole pages */
	uint32_t access; /* enum ib_uverbs_access_flags */
	uint32_t key;
	struct proto_reg_mr reach; /* the process's word */
	bool imported;		   /* made by PROTO_IMPORT_MR: it has keys only */
	bool without_memory;	   /* made by PROTO_ALLOC_NULL_MR */
	bool is_device;		   /* made by PROTO_REG_DM_MR */
	struct dm *dm;		   /* the buffer that it is of; NULL: none, or it has ended */
	struct list by_dm;	   /* on dm->regions */
};

/* Device memory: a buffer, which regions of any context with its token may be of. */
struct dm {
	struct object object;
	uint64_t length;
	int file;	     /* from the client: closed by closer_close() */
	struct list regions; /* struct mr.by_dm */
};

/* A memory window. To which region it is bound is the process's own matter. */
struct mw {
	struct object object;
	struct pd *pd;
	uint32_t rkey; /* as it was allocated: binding changes the tag */
	uint8_t type;  /* enum ib_uverbs_mw_type's numbers: 1 or 2 */
};

struct cq {
	struct object object;
	struct channel *channel; /* NULL: none */
	uint32_t cqe, comp_vector;
};

/* A handle of an XRC domain (xrc.h). */
struct xrcd {
	struct object object;
	struct xrc_member *member; /* its context's, of the domain */
};

struct srq {
	struct object object;
	struct pd *pd;
	uint32_t max_wr, max_sge;
	struct cq *cq;	   /* of an XRC or a tag-matching SRQ, else NULL */
	uint32_t max_tags; /* of a tag-matching SRQ, else 0 */
	/* XRC; else NULL and 0 */
	struct xrcd *xrcd;
	uint32_t srqn; /* a number of its process's, like a QPN */
};

struct qp {
	struct object object;
	struct pd *pd;		      /* NULL: an XRC target's handle */
	struct cq *send_cq, *recv_cq; /* NULL: none */
	struct srq *srq;	      /* NULL: none */
	uint32_t qpn;
	uint8_t type;	    /* enum ib_uverbs_qp_type */
	struct list groups; /* struct attachment.by_qp (mcast.h) */
	/* A handle of an XRC target queue pair; else NULL */
	struct xrcd *xrcd;
	struct target *target;
	struct list by_target; /* on target->handles */
};

/* A flow rule. */
struct flow {
	struct object object;
	struct qp *qp;
	uint32_t place; /* in the table (shm/flow_rules.h) */
};

struct ah {
	struct object object;
	struct pd *pd;
	struct ib_uverbs_ah_attr attr;
};

/* "pd", "mr", ...: the kinds' names in the control protocol. */
const char *object_kind_name(enum object_kind kind);

/*
 * Makes an object of `size` bytes, zero after its struct object, in the request's context, and
 * gives it a handle (that of request->old, if it isn't new). Returns 0; -ENOMEM: no memory, or the
 * process has as many as it may (logged); -EAGAIN: it may get it later (request->later is set);
 * -EINVAL, -EEXIST: the old handle isn't possible.
 */
int object_make(struct request *request, enum object_kind kind, size_t size, struct object **out);

/* The context's object with this handle; NULL when there is none or it is of another kind. */
struct object *object_find(struct context *context, enum object_kind kind, uint32_t handle);

/* Makes a CQ together with a channel of its own; writes their handles. Returns 0, or as
 * object_make(); -EINVAL: `cqe` or `comp_vector` is out of range. */
int cq_make_with_channel(struct request *request, uint32_t cqe, uint32_t comp_vector,
			 struct proto_create_channel_cq_resp *resp, struct cq **out);
/* Undoes it, before the client has got the handles. */
void cq_unmake_with_channel(struct cq *cq);

/* The context's PD with this handle, to make an object in it; NULL: none, or its domain has
 * ended. */
struct pd *pd_find(struct context *context, uint32_t handle);

/* Makes a region with keys, in a PD, and nothing else. 0 or as object_make(). */
int mr_make(struct request *request, struct pd *pd, struct mr **out);
void mr_respond(const struct mr *mr, struct ib_uverbs_reg_mr_resp *resp);

/* Gives the object's handle back and frees it. The caller has released what it holds. */
void object_free(struct object *object);

/* The request is to be refused for a share or a range of numbers. Whether it is postponed instead,
 * because its user's ended clients still hold some (ending.h); sets request->later. */
bool request_may_wait(struct request *request);

/* Takes a number from the process's range of QPNs, or the old one of a process that returns. 0;
 * -ENOMEM: all are taken; -EAGAIN: likewise, see object_make(); -EINVAL, -EEXIST: the old one isn't
 * possible. */
int qpn_take(struct request *request, uint32_t *qpn);

/* Releases what the object's kind holds (numbers, use counts of others), then frees it. */
void object_destroy(struct object *object);

/* Destroys an object as the commands do. Returns 0; -ENOENT: no such handle; -EBUSY: in use. */
int object_destroy_handle(struct context *context, enum object_kind kind, uint32_t handle);

/* Each kind's part of object_destroy(), without freeing the structure. */
void mr_release(struct mr *mr);
void mw_release(struct mw *mw);
void dm_release(struct dm *dm);
/* Takes one of its regions from it, as dm_release() does with all. False: it has none. */
bool dm_lose_one(struct dm *dm);
void pd_release(struct pd *pd);
void cq_release(struct cq *cq);
void srq_release(struct srq *srq);
void qp_release(struct qp *qp);
void xrcd_release(struct xrcd *xrcd);
void flow_release(struct flow *flow);
void ah_release(struct ah *ah);

#endif
