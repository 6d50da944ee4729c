/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_alternate.h. */
#include "daemon/cm/cm_alternate.h"

#include <errno.h>
#include <string.h>

#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_node.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "proto/limits.h"

_Static_assert((int)PROTO_ALTERNATE_REJECTED == CM_APR_REJECTED &&
		       (int)PROTO_ALTERNATE_IS_CURRENT == CM_APR_IS_CURRENT &&
		       (int)PROTO_ALTERNATE_QPN == CM_APR_INVALID_QPN &&
		       (int)PROTO_ALTERNATE_LID == CM_APR_INVALID_LID &&
		       (int)PROTO_ALTERNATE_GID == CM_APR_INVALID_GID,
	       "processes answer by the numbers of an APR");

static struct cm *machine_of(const struct cm_id *id)
{
	return &cm_id_service(id)->cm;
}

static bool is_supported(const struct cm_id *id)
{
	return id->path.node && (id->type == CM_ID_RC || id->type == CM_ID_UC);
}

/* Has the process that has the queue pair load id.alternate. False: there is no such process. */
static bool ask_process(struct cm_id *id)
{
	struct cm_service *service = cm_id_service(id);
	struct process *process = process_by_slot(service->server, id->qpn >> LIMIT_QP_BITS);

	if (!process || events_alternate(&process->events))
		return false;
	list_add_tail(&service->alternates, &id->alternate.node);
	return true;
}

/* ------------------------------------------------------------------ the program's wish */

static struct cm_mad_path path_of_record(const struct cm_id *id, const uint8_t record[64])
{
	struct cm_mad_path path = {
		.remote_lid = (uint32_t)(record[40] << 8 | record[41]),
		.local_lid = (uint32_t)(record[42] << 8 | record[43]),
		.flow_label =
			(uint32_t)(record[44] & 15) << 16 | (uint32_t)record[45] << 8 | record[46],
		.hop_limit = record[47],
		.traffic_class = record[48],
		.sl = record[53] & 15,
		.rate = record[55] & 0x3f,
		.subnet_local = record[47] <= 1,
		.ack_timeout = cm_ack_timeout(machine_of(id)->config.ack_delay, record[56] & 0x3f),
	};

	memcpy(path.remote_gid, record + 8, 16);
	memcpy(path.local_gid, record + 24, 16);
	return path;
}

int cm_alternate_begin(struct cm_id *id, const uint8_t record[64])
{
	if (!id->endpoint || !list_empty(&id->alternate.node))
		return -EINVAL;
	if (!is_supported(id))
		return -EOPNOTSUPP;
	if (!list_empty(&id->channel->queue))
		return -EAGAIN;
	cm_alternate_follow(id);
	const struct cm_mad_path path = path_of_record(id, record);
	int err = cm_load_alternate(machine_of(id), id->endpoint, &path, now_ms());

	if (err)
		return err;
	id->alternate.own = true;
	id->alternate.path = path;
	return 0;
}

static void tell_program(struct cm_id *id, int status)
{
	cm_id_event(id, status ? REPORT_ROUTE_ERROR : REPORT_ROUTE_RESOLVED, status);
}

void cm_alternate_on_loaded(struct cm_id *id, const struct cm_mad *mad)
{
	if (!mad)
		tell_program(id, -ETIMEDOUT);
	else if (mad->reason)
		tell_program(id, (int)mad->reason);
	else if (!ask_process(id))
		tell_program(id, CM_APR_REJECTED);
}

/* ------------------------------------------------------------------ the peer's wish */

void cm_alternate_on_load(struct cm_id *id, const struct cm_mad *mad)
{
	const struct cm_mad_path *theirs = &mad->alternate;
	struct cm_mad_path path = *theirs;

	cm_alternate_follow(id);
	path.local_lid = theirs->remote_lid;
	path.remote_lid = theirs->local_lid;
	memcpy(path.local_gid, theirs->remote_gid, 16);
	memcpy(path.remote_gid, theirs->local_gid, 16);
	if (!is_supported(id)) {
		cm_answer_alternate(machine_of(id), id->endpoint, CM_APR_UNSUPPORTED);
		return;
	}
	/* This side's own path is being loaded, which the peer has accepted. */
	if (!list_empty(&id->alternate.node)) {
		cm_answer_alternate(machine_of(id), id->endpoint, CM_APR_REJECTED);
		return;
	}
	id->alternate.own = false;
	id->alternate.path = path;
	if (!ask_process(id))
		cm_answer_alternate(machine_of(id), id->endpoint, CM_APR_REJECTED);
}

/* The queue pair has the path. */
static void note_loaded(const struct cm_id *id)
{
	const struct cm_mad_path *loaded = &id->alternate.path;
	struct cm_path path = id->endpoint->path;

	path.sl = (uint8_t)loaded->sl;
	path.rate = (uint8_t)loaded->rate;
	if (cm_node_path_by_lids(cm_id_node(id), (uint16_t)loaded->local_lid,
				 (uint16_t)loaded->remote_lid, &path))
		cm_set_alternate(id->endpoint, &path);
}

void cm_alternate_follow(struct cm_id *id)
{
	const struct cm_node *node = cm_id_node(id);
	const struct cm_node_port *port;
	const struct process *process;

	if (!node || !id->endpoint || !id->endpoint->has_alternate)
		return;
	port = cm_node_port_by_lid(node, id->endpoint->alternate.local_lid);
	process = process_by_slot(cm_id_service(id)->server, id->qpn >> LIMIT_QP_BITS);
	if (!port || !process)
		return;
	struct pub_qp_view qp = process_read_qp(process, id->qpn);

	if (qp.lid == id->endpoint->alternate.remote_lid &&
	    qp.port == node->tables.ports[port->row].number)
		cm_migrate(id->endpoint);
}

void cm_alternate_end(struct cm_id *id)
{
	list_del(&id->alternate.node);
	list_init(&id->alternate.node);
}

/* ------------------------------------------------------------------ the process */

/* The first path that the process is to load, of this queue pair or, 0, of any. */
static struct cm_id *find_for(struct cm_service *service, uint32_t slot, uint32_t qpn)
{
	list_for_each(node, &service->alternates) {
		struct cm_id *id = container_of(node, struct cm_id, alternate.node);

		if (id->qpn >> LIMIT_QP_BITS == slot && (!qpn || id->qpn == qpn))
			return id;
	}
	return NULL;
}

static void take_result(struct cm_id *id, uint32_t status)
{
	cm_alternate_end(id);
	if (!status)
		note_loaded(id);
	if (id->alternate.own)
		tell_program(id, (int)status);
	else
		cm_answer_alternate(machine_of(id), id->endpoint, (enum cm_apr_status)status);
}

static void fill_response(const struct cm_id *id, struct proto_alternate_resp *resp)
{
	const struct cm_mad_path *path = &id->alternate.path;

	*resp = (struct proto_alternate_resp){
		.qpn = id->qpn,
		.flow_label = path->flow_label,
		.local_lid = (uint16_t)path->local_lid,
		.remote_lid = (uint16_t)path->remote_lid,
		.sl = (uint8_t)path->sl,
		.rate = (uint8_t)path->rate,
		.ack_timeout = (uint8_t)path->ack_timeout,
		.traffic_class = (uint8_t)path->traffic_class,
		.hop_limit = (uint8_t)path->hop_limit,
		.is_global = !path->subnet_local,
	};
	memcpy(resp->local_gid, path->local_gid, 16);
	memcpy(resp->remote_gid, path->remote_gid, 16);
}

int command_alternate(struct request *request, void *response)
{
	const struct proto_alternate *body = request->body;
	struct cm_service *service = request->conn->server->cm;
	uint32_t slot = request->conn->process->slot;

	if (body->status >= CM_APR_STATUSES)
		return -EINVAL;
	struct cm_id *id = body->qpn && service ? find_for(service, slot, body->qpn) : NULL;

	if (id) {
		take_result(id, body->status);
		cm_service_run(service);
	}
	id = service ? find_for(service, slot, 0) : NULL;
	if (!id)
		return -ENOENT;
	fill_response(id, response);
	return 0;
}
