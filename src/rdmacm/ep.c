/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endpoints: an id on which rdma_create_ep() performs the steps that rdma_getaddrinfo()'s answer
 * asks for. See rdmacm.h. A passive endpoint keeps the QP's attributes, and each request from
 * rdma_get_request() gets a QP with them.
 *
 * The id owns everything that is kept here.
 */
#include "base/refused.h"
#include "rdmacm/rdmacm.h"

#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

enum { RESOLVE_TIMEOUT_MS = 2000 };

static int keep_prefix(struct id *id, const struct rdma_addrinfo *res)
{
	if (!res->ai_connect_len)
		return 0;
	id->prefix = malloc(res->ai_connect_len);
	if (!id->prefix)
		return -ENOMEM;
	memcpy(id->prefix, res->ai_connect, res->ai_connect_len);
	id->prefix_size = res->ai_connect_len;
	return 0;
}

static int ep_make_passive(struct id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			   const struct ibv_qp_init_attr *init)
{
	if (rdma_bind_addr(&id->pub, res->ai_src_addr))
		return -errno;
	if (!init)
		return 0;
	id->ep_init = malloc(sizeof(*init));
	if (!id->ep_init)
		return -ENOMEM;
	*id->ep_init = *init;
	id->ep_init->qp_type = id->pub.qp_type;
	id->ep_pd = pd;
	return 0;
}

static int set_route(struct id *id, const struct rdma_addrinfo *res)
{
	if (rdma_set_option(&id->pub, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route,
			    res->ai_route_len))
		return -errno;
	/* Waits for the event "route resolved". */
	return id_complete(id);
}

static int ep_make_active(struct id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *init)
{
	int err;

	if (rdma_resolve_addr(&id->pub, res->ai_src_addr, res->ai_dst_addr, RESOLVE_TIMEOUT_MS))
		return -errno;
	if (res->ai_route_len)
		err = set_route(id, res);
	else
		err = rdma_resolve_route(&id->pub, RESOLVE_TIMEOUT_MS) ? -errno : 0;
	if (err || !init)
		return err;
	init->qp_type = id->pub.qp_type;
	return rdma_create_qp(&id->pub, pd, init) ? -errno : 0;
}

EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *qp_init_attr)
{
	struct id *id;
	int err = id_create(NULL, NULL, (enum rdma_port_space)res->ai_port_space,
			    (enum ibv_qp_type)res->ai_qp_type, &id);

	if (err)
		return cm_result(err);
	err = keep_prefix(id, res);
	if (!err)
		err = res->ai_flags & RAI_PASSIVE ? ep_make_passive(id, res, pd, qp_init_attr)
						  : ep_make_active(id, res, pd, qp_init_attr);
	if (err)
		id_destroy(id);
	else
		*out = &id->pub;
	return cm_result(err);
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	id_destroy(id_of(id));
}

/* Takes a request; its id gets a QP if the listener was given QP attributes. */
static int ep_take_request(struct id *listener, struct event *event)
{
	if (event->pub.status)
		return -abs(event->pub.status);
	if (event->pub.event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return refused(-EINVAL,
			       "rdma_get_request: the listener's next event is %s, not a "
			       "connection request",
			       rdma_event_str(event->pub.event));
	struct id *id = id_of(event->pub.id);
	int err = id_migrate(id, NULL);

	if (!err && listener->ep_init) {
		struct ibv_qp_init_attr init = *listener->ep_init;

		err = rdma_create_qp(&id->pub, listener->ep_pd, &init) ? -errno : 0;
	}
	if (err) {
		rdma_reject(&id->pub, NULL, 0);
		id_destroy(id);
	}
	return err;
}

EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct id *listener = id_of(listen);
	struct event *event;

	if (!listener->sync)
		return cm_result(-EINVAL);
	id_forget_event(listener);
	int err = event_get(event_channel_of(listen->channel), &event);

	if (err)
		return cm_result(err);
	err = ep_take_request(listener, event);
	if (err) {
		rdma_ack_cm_event(&event->pub);
		return cm_result(err);
	}
	event->pub.id->event = &event->pub;
	*out = event->pub.id;
	return 0;
}
