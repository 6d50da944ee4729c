/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connecting, accepting, rejecting, disconnecting. See rdmacm.h.
 *
 * The accepting side moves its QP to RTS before it answers, so that it is ready for the peer's
 * first message; the connecting side does so after the answer (connect_finish()), and then
 * confirms. The daemon checks the limits of private data. No state.
 */
#include "rdmacm/rdmacm.h"

#include <string.h>

#include "base/log.h"
#include "base/refused.h"

/* Reasons of a REJ that a program may give. */
enum { REJECT_CONSUMER = 28, REJECT_VENDOR_OPTION = 35 };

enum { RETRIES_MAX = 7 };

/* Writes the endpoint's prefix, then the program's data. */
static int put_private_data(const struct id *id, uint8_t out[RDMA_MAX_PRIVATE_DATA], uint8_t *size,
			    const void *data, size_t data_size)
{
	size_t total = id->prefix_size + data_size;

	if (total > UINT8_MAX || (data_size && !data)) {
		log_warn_few("rdma_cm: %zu bytes of private data at %p can't be sent", data_size,
			     data);
		return -EINVAL;
	}
	if (id->prefix_size)
		memcpy(out, id->prefix, id->prefix_size);
	if (data_size)
		memcpy(out + id->prefix_size, data, data_size);
	*size = (uint8_t)total;
	return 0;
}

static int put_param(const struct id *id, struct rdma_ucm_conn_param *out,
		     const struct rdma_conn_param *in)
{
	const struct ibv_qp *qp = id->pub.qp;

	out->qp_num = qp ? qp->qp_num : in->qp_num;
	out->srq = qp ? qp->srq != NULL : in->srq;
	out->qkey = id->pub.qp_type == IBV_QPT_UD ? RDMA_UDP_QKEY : 0;
	out->responder_resources = id->responder_resources;
	out->initiator_depth = id->initiator_depth;
	out->flow_control = in->flow_control;
	out->retry_count = in->retry_count & RETRIES_MAX;
	out->rnr_retry_count = in->rnr_retry_count & RETRIES_MAX;
	out->valid = 1;
	return put_private_data(id, out->private_data, &out->private_data_len, in->private_data,
				in->private_data_len);
}

/* `max`: the value that stands for the device's limit. An explicit value above the device's limit
 * is an error. */
static int depth_limit(const char *name, uint8_t wanted, uint8_t device, uint8_t *out)
{
	if (wanted != UINT8_MAX && wanted > device) {
		log_warn_few("rdma_cm: %s of struct rdma_conn_param is %u, and the device's limit "
			     "%u (which %u stands for)",
			     name, wanted, device, UINT8_MAX);
		return -EINVAL;
	}
	*out = wanted == UINT8_MAX ? device : wanted;
	return 0;
}

static int take_limits(struct id *id, const struct rdma_conn_param *param)
{
	uint8_t resources, depth;

	if (id->pub.qp_type == IBV_QPT_UD)
		return 0;
	int err = depth_limit("responder_resources", param->responder_resources,
			      id->device->max_responder_resources, &resources);

	if (!err)
		err = depth_limit("initiator_depth", param->initiator_depth,
				  id->device->max_initiator_depth, &depth);
	if (err)
		return err;
	id->responder_resources = resources;
	id->initiator_depth = depth;
	return 0;
}

/* The QP's ECE, unless the program has set one. */
static struct rdma_ucm_ece local_ece(struct id *id)
{
	struct ibv_ece ece = {0};

	if (!id->ece_set && id->pub.qp && !ibv_query_ece(id->pub.qp, &ece))
		id->local_ece = (struct rdma_ucm_ece){ece.vendor_id, ece.options};
	return id->local_ece;
}

/* ------------------------------------------------------------------ refusals */

/* Private data that fits into each message. A request has an IP header in front, unless the
 * addresses are InfiniBand's. */
enum {
	REQ_DATA = 92,
	SIDR_REQ_DATA = 216,
	IP_HEADER = 36,
	REP_DATA = 196,
	SIDR_REP_DATA = 136,
	REJ_DATA = 148,
};

static bool say_too_long(const char *call, uint32_t size, uint32_t most)
{
	if (size > most)
		log_warn_few("%s: %u bytes of private data; %u at most", call, size, most);
	return size > most;
}

static bool is_datagram_id(const struct id *id)
{
	return id->pub.qp_type == IBV_QPT_UD;
}

static void say_no_connect(const struct id *id, uint32_t size)
{
	uint32_t header = id->pub.route.addr.src_addr.sa_family == AF_IB ? 0 : IP_HEADER;

	if (!say_too_long("rdma_connect", size,
			  (is_datagram_id(id) ? SIDR_REQ_DATA : REQ_DATA) - header))
		log_warn_few("rdma_connect: the identifier must have a resolved route and no "
			     "connection yet, and its queue pair must be this process's");
}

/* Another reason than the length is ordinary: the peer has given up. */
static void say_no_accept(const struct id *id, uint32_t size)
{
	if (!say_too_long("rdma_accept", size, is_datagram_id(id) ? SIDR_REP_DATA : REP_DATA))
		log_info("rdma_accept: the request was answered, or has ended");
}

/* ------------------------------------------------------------------ the active side */

EXPORT int rdma_connect(struct rdma_cm_id *pub, struct rdma_conn_param *conn_param)
{
	static const struct rdma_conn_param usual = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = RETRIES_MAX,
		.rnr_retry_count = RETRIES_MAX,
	};
	struct id *id = id_of(pub);
	struct rdma_ucm_connect body = {.id = id->handle};

	if (!id->device) {
		log_warn_few("rdma_connect: the identifier has no device before an address is "
			     "resolved");
		return cm_result(-EINVAL);
	}
	const struct rdma_conn_param *param = conn_param ? conn_param : &usual;
	int err = take_limits(id, param);

	if (!err)
		err = put_param(id, &body.conn_param, param);
	if (err)
		return cm_result(err);
	body.ece = local_ece(id);
	id_forget_event(id);
	qp_note_connection(id);
	err = cm_call(id->generation, RDMA_USER_CM_CMD_CONNECT, &body, sizeof(body), NULL, 0, NULL);
	if (err == -EINVAL)
		say_no_connect(id, body.conn_param.private_data_len);
	return cm_result(err ? err : id_complete(id));
}

/* ACCEPT without parameters confirms the connection. */
static int request_confirm(struct id *id)
{
	struct rdma_ucm_accept body = {.uid = registry_uid(&id->object), .id = id->handle};

	return cm_call(id->generation, RDMA_USER_CM_CMD_ACCEPT, &body, sizeof(body), NULL, 0, NULL);
}

int connect_finish(struct id *id)
{
	struct ibv_qp *qp = id_hold_qp(id);

	if (!qp)
		return CONNECT_NO_QP;
	int err = qp_to_rts(id, qp, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);

	id_release_qp(id);
	if (!err)
		err = request_confirm(id);
	if (err) {
		/* Rejects, so that the peer doesn't wait for the confirmation. */
		struct rdma_ucm_reject body = {.id = id->handle, .reason = REJECT_CONSUMER};

		qp_to_error(id);
		if (cm_call(id->generation, RDMA_USER_CM_CMD_REJECT, &body, sizeof(body), NULL, 0,
			    NULL))
			return -EALREADY;
	}
	return err;
}

EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	if (id->qp)
		return cm_result(refused(-EINVAL, "rdma_establish: the identifier has a queue pair "
						  "(rdma_create_qp), which rdma_cm brings to RTS "
						  "itself"));
	return cm_result(request_confirm(id_of(id)));
}

/* ------------------------------------------------------------------ the passive side */

static int accept_ready(struct id *id, const struct rdma_conn_param *param)
{
	if (id->pub.qp_type == IBV_QPT_UD)
		return 0;
	int err = param ? take_limits(id, param) : 0;

	if (err)
		return err;
	if (!param) {
		/* As the request asked, limited by the device. */
		const struct device *device = id->device;

		if (id->responder_resources > device->max_responder_resources)
			id->responder_resources = device->max_responder_resources;
		if (id->initiator_depth > device->max_initiator_depth)
			id->initiator_depth = device->max_initiator_depth;
	}
	struct ibv_qp *qp = id_hold_qp(id);

	if (!qp)
		return 0;
	err = qp_to_rts(id, qp, id->responder_resources, id->initiator_depth);
	id_release_qp(id);
	return err;
}

EXPORT int rdma_accept(struct rdma_cm_id *pub, struct rdma_conn_param *conn_param)
{
	static const struct rdma_conn_param usual = {
		.retry_count = RETRIES_MAX,
		.rnr_retry_count = RETRIES_MAX,
	};
	struct id *id = id_of(pub);
	struct rdma_ucm_accept body = {.uid = registry_uid(&id->object), .id = id->handle};

	if (!id->device)
		return cm_result(-EINVAL);
	int err = accept_ready(id, conn_param);

	if (!err)
		err = put_param(id, &body.conn_param, conn_param ? conn_param : &usual);
	if (err)
		goto out_error;
	/* A peer that sent none may have no ECE at all: rdma-core's library ends a connection whose
	 * answer has one that its device can't set, as Soft-RoCE can't. */
	if (id->ece_set || id->remote_ece.vendor_id)
		body.ece = local_ece(id);
	/* The program may pass the event's private data as the answer's, so the event is released
	 * after that. */
	id_forget_event(id);
	qp_note_connection(id);
	err = cm_call(id->generation, RDMA_USER_CM_CMD_ACCEPT, &body, sizeof(body), NULL, 0, NULL);
	if (err == -EINVAL)
		say_no_accept(id, body.conn_param.private_data_len);
	if (err)
		goto out_error;
	/* For a datagram service no event follows the answer. */
	return cm_result(pub->qp_type == IBV_QPT_UD ? 0 : id_complete(id));

out_error:
	if (pub->qp_type != IBV_QPT_UD)
		qp_to_error(id);
	return cm_result(err);
}

static int request_reject(struct id *id, const void *data, uint8_t size, uint8_t reason)
{
	struct rdma_ucm_reject body = {.id = id->handle, .reason = reason};
	int err = put_private_data(id, body.private_data, &body.private_data_len, data, size);

	if (err)
		return err;
	id_forget_event(id);
	err = cm_call(id->generation, RDMA_USER_CM_CMD_REJECT, &body, sizeof(body), NULL, 0, NULL);
	if (err == -EINVAL)
		say_too_long("rdma_reject", body.private_data_len,
			     is_datagram_id(id) ? SIDR_REP_DATA : REJ_DATA);
	return err;
}

EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return cm_result(
		request_reject(id_of(id), private_data, private_data_len, REJECT_CONSUMER));
}

EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
			   uint8_t private_data_len)
{
	return cm_result(
		request_reject(id_of(id), private_data, private_data_len, REJECT_VENDOR_OPTION));
}

EXPORT int rdma_notify(struct rdma_cm_id *pub, enum ibv_event_type event)
{
	struct id *id = id_of(pub);
	struct rdma_ucm_notify body = {id->handle, event};

	return cm_result(cm_call(id->generation, RDMA_USER_CM_CMD_NOTIFY, &body, sizeof(body), NULL,
				 0, NULL));
}

/* ------------------------------------------------------------------ either side */

/* A disconnection can't fail on a connection that was established, even if the peer has ended it
 * meanwhile. */
static int tell_disconnected(struct id *id)
{
	struct rdma_ucm_disconnect body = {.id = id->handle};

	/* A reply to rdma_connect() may be handled by another thread, which sets this. */
	if (!__atomic_exchange_n(&id->established, false, __ATOMIC_RELAXED))
		return cm_call(id->generation, RDMA_USER_CM_CMD_DISCONNECT, &body, sizeof(body),
			       NULL, 0, NULL);
	return cm_post(id->generation, RDMA_USER_CM_CMD_DISCONNECT, &body, sizeof(body));
}

EXPORT int rdma_disconnect(struct rdma_cm_id *pub)
{
	struct id *id = id_of(pub);

	qp_to_error(id);
	id_forget_event(id);
	int err = tell_disconnected(id);

	return cm_result(err ? err : id_complete(id));
}

EXPORT int rdma_set_local_ece(struct rdma_cm_id *pub, struct ibv_ece *ece)
{
	struct id *id = id_of(pub);

	if (!ece || ece->comp_mask)
		return cm_result(-EINVAL);
	id->local_ece = (struct rdma_ucm_ece){ece->vendor_id, ece->options};
	id->ece_set = true;
	return 0;
}

EXPORT int rdma_get_remote_ece(struct rdma_cm_id *pub, struct ibv_ece *ece)
{
	struct id *id = id_of(pub);

	if (!ece)
		return cm_result(-EINVAL);
	*ece = (struct ibv_ece){.vendor_id = id->remote_ece.vendor_id,
				.options = id->remote_ece.attr_mod};
	return 0;
}
