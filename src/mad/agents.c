/* SPDX-License-Identifier: BSD-2-Clause */
/* Agents: which registrations exclude one another, and which agent a datagram belongs to. */
#include "mad/agents.h"

#include <errno.h>

#define CLASS_VERSION_MAX 0x82
#define CLASS_LID_ROUTED_MAX 0x4f
#define ID_MASK 0xffffff

void mad_system_init(struct mad_system *system, const struct mad_functions *functions)
{
	*system = (struct mad_system){.functions = functions};
}

void mad_port_init(struct mad_port *port, struct mad_system *system, bool is_infiniband)
{
	port->system = system;
	port->is_infiniband = is_infiniband;
	list_init(&port->files);
}

void mad_file_open(struct mad_file *file, struct mad_port *port, void *reader)
{
	*file = (struct mad_file){.port = port, .reader = reader};
	list_init(&file->sends);
	list_init(&file->receives);
	list_add_tail(&port->files, &file->node);
}

/* Drops what the agent had under way, silently. */
static void agent_forget(struct mad_file *file, uint32_t agent)
{
	list_for_each(node, &file->sends) {
		struct mad_send *send = container_of(node, struct mad_send, node);

		if (send->agent == agent)
			send_free(send);
	}
	list_for_each(node, &file->receives) {
		struct mad_receive *receive = container_of(node, struct mad_receive, node);

		if (receive->agent == agent)
			rmpp_receive_free(file, receive);
	}
}

void mad_file_close(struct mad_file *file)
{
	for (uint32_t agent = 0; agent < UMAD_CA_MAX_AGENTS; agent++)
		agent_forget(file, agent);
	list_del(&file->node);
}

int mad_file_unregister(struct mad_file *file, uint32_t agent)
{
	if (agent >= UMAD_CA_MAX_AGENTS || !file->agents[agent].is_registered)
		return -EINVAL;
	agent_forget(file, agent);
	file->agents[agent].is_registered = false;
	return 0;
}

/* Registration --------------------------------------------------------------------------------- */

static bool class_exists(uint8_t mgmt_class)
{
	return mgmt_class == CLASS_SMI_DIRECTED ||
	       (mgmt_class && mgmt_class <= CLASS_LID_ROUTED_MAX);
}

static bool class_uses_qp0(uint8_t mgmt_class)
{
	return mgmt_class == CLASS_SMI || mgmt_class == CLASS_SMI_DIRECTED;
}

static bool agent_has_methods(const struct mad_agent *agent)
{
	return agent->methods[0] || agent->methods[1];
}

/* Whether a request could belong to both. Without methods an agent gets none. */
static bool agents_overlap(const struct mad_agent *a, const struct mad_agent *b)
{
	if (a->mgmt_class != b->mgmt_class || a->class_version != b->class_version)
		return false;
	if (class_is_vendor2(a->mgmt_class) && a->oui != b->oui)
		return false;
	return (a->methods[0] & b->methods[0]) || (a->methods[1] & b->methods[1]);
}

static bool port_has_overlap(const struct mad_port *port, const struct mad_agent *wanted)
{
	list_for_each(node, &port->files) {
		const struct mad_file *file = container_of(node, struct mad_file, node);

		for (int i = 0; i < UMAD_CA_MAX_AGENTS; i++)
			if (file->agents[i].is_registered &&
			    agents_overlap(&file->agents[i], wanted))
				return true;
	}
	return false;
}

static int agent_check(const struct mad_port *port, const struct mad_agent *wanted)
{
	if (!class_exists(wanted->mgmt_class) || wanted->class_version > CLASS_VERSION_MAX)
		return -EINVAL;
	if (wanted->rmpp_version > RMPP_VERSION)
		return -EINVAL;
	if (wanted->rmpp_version && !class_has_rmpp(wanted->mgmt_class))
		return -EINVAL;
	if (wanted->qpn != (class_uses_qp0(wanted->mgmt_class) ? 0 : 1))
		return -EINVAL;
	if (!wanted->qpn && !port->is_infiniband)
		return -EPROTONOSUPPORT;
	if (class_is_vendor2(wanted->mgmt_class) && agent_has_methods(wanted) && !wanted->oui)
		return -EINVAL;
	return port_has_overlap(port, wanted) ? -EINVAL : 0;
}

int mad_file_register(struct mad_file *file, int qpn, struct umad_reg_attr *attr, uint32_t *agent)
{
	struct mad_system *system = file->port->system;
	struct mad_agent wanted = {
		.is_registered = true,
		.mgmt_class = attr->mgmt_class,
		.class_version = attr->mgmt_class_version,
		.rmpp_version = attr->rmpp_version,
		.has_user_rmpp = attr->flags & UMAD_USER_RMPP,
		.qpn = qpn,
		.oui = attr->oui & 0xffffff,
		.methods = {attr->method_mask[0], attr->method_mask[1]},
	};
	uint32_t free_one = 0;
	int result;

	if (attr->flags & ~(uint32_t)UMAD_USER_RMPP) {
		attr->flags = UMAD_USER_RMPP;
		return -EINVAL;
	}
	while (free_one < UMAD_CA_MAX_AGENTS && file->agents[free_one].is_registered)
		free_one++;
	if (free_one == UMAD_CA_MAX_AGENTS)
		return -ENOMEM;
	result = agent_check(file->port, &wanted);
	if (result)
		return result;
	/* Unique for as long as no 16 million others are registered meanwhile; never 0. */
	system->next_id = system->next_id % ID_MASK + 1;
	wanted.tid_high = system->next_id;
	file->agents[free_one] = wanted;
	*agent = free_one;
	return 0;
}

/* Routing -------------------------------------------------------------------------------------- */

/* A response names its agent in the transaction id. */
static bool agent_takes_response(const struct mad_agent *agent, int qpn, const uint8_t *mad)
{
	return agent->qpn == qpn && agent->tid_high == header_get32(mad, OFFSET_TID);
}

static bool agent_takes_request(const struct mad_agent *agent, int qpn, const uint8_t *mad)
{
	uint8_t method = header_method(mad) & 0x7f;

	if (agent->qpn != qpn || agent->mgmt_class != header_class(mad) ||
	    agent->class_version != header_version(mad))
		return false;
	if (class_is_vendor2(agent->mgmt_class) &&
	    agent->oui != (header_get32(mad, OFFSET_OUI - 1) & 0xffffff))
		return false;
	return agent->methods[method / 64] >> (method % 64) & 1;
}

struct mad_file *agent_find(struct mad_port *port, int qpn, const uint8_t *mad, uint32_t *agent)
{
	bool is_response = header_is_response(mad);

	list_for_each(node, &port->files) {
		struct mad_file *file = container_of(node, struct mad_file, node);

		for (uint32_t i = 0; i < UMAD_CA_MAX_AGENTS; i++) {
			const struct mad_agent *candidate = &file->agents[i];

			if (!candidate->is_registered)
				continue;
			if (is_response ? agent_takes_response(candidate, qpn, mad)
					: agent_takes_request(candidate, qpn, mad)) {
				*agent = i;
				return file;
			}
		}
	}
	return NULL;
}
