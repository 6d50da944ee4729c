/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports: opening and closing, and the agents of their classes. */
#include <infiniband/umad.h>

#include "ibmad/ibmad.h"

#include "base/env.h"
#include "base/export.h"

#include <errno.h>
#include <string.h>

struct ibmad_port default_port;

EXPORT int madrpc_portid(void)
{
	return default_port.fd;
}

EXPORT int mad_rpc_portid(struct ibmad_port *srcport)
{
	return srcport->fd;
}

EXPORT int mad_rpc_class_agent(struct ibmad_port *srcport, int cls)
{
	if (cls < 1 || cls >= CLASS_COUNT)
		return -1;
	return srcport->class_agents[cls];
}

EXPORT int mad_class_agent(int mgmt)
{
	return mad_rpc_class_agent(&default_port, mgmt);
}

EXPORT int mad_register_client_via(int mgmt, uint8_t rmpp_version, struct ibmad_port *srcport)
{
	int version = class_version(mgmt);
	int agent;

	if (!srcport)
		return -1;
	if (!version) {
		TRACE("class 0x%x is unknown", mgmt);
		return -1;
	}
	agent = umad_register(srcport->fd, mgmt, version, rmpp_version, NULL);
	if (agent < 0) {
		TRACE("no agent for class 0x%x", mgmt);
		return agent;
	}
	srcport->class_agents[mgmt] = agent;
	return 0;
}

EXPORT int mad_register_client(int mgmt, uint8_t rmpp_version)
{
	return mad_register_client_via(mgmt, rmpp_version, &default_port);
}

EXPORT int mad_register_server_via(int mgmt, uint8_t rmpp_version,
				   long method_mask[16 / sizeof(long)], uint32_t class_oui,
				   struct ibmad_port *srcport)
{
	uint8_t oui[3] = {class_oui >> 16, class_oui >> 8, class_oui};
	long methods[16 / sizeof(long)];
	int version = class_version(mgmt);
	int agent;

	if (!srcport)
		return -1;
	if (!version) {
		TRACE("class 0x%x is unknown", mgmt);
		return -1;
	}
	if (srcport->class_agents[mgmt] >= 0) {
		TRACE("class 0x%x has the agent %d", mgmt, srcport->class_agents[mgmt]);
		return -1;
	}
	if (method_mask)
		memcpy(methods, method_mask, sizeof methods);
	else
		memset(methods, 0xff, sizeof methods);
	if (mad_is_vendor_range2(mgmt))
		agent = umad_register_oui(srcport->fd, mgmt, rmpp_version, oui, methods);
	else
		agent = umad_register(srcport->fd, mgmt, version, rmpp_version, methods);
	if (agent < 0) {
		TRACE("no agent for class 0x%x", mgmt);
		return -1;
	}
	srcport->class_agents[mgmt] = agent;
	return agent;
}

EXPORT int mad_register_server(int mgmt, uint8_t rmpp_version, long method_mask[16 / sizeof(long)],
			       uint32_t class_oui)
{
	return mad_register_server_via(mgmt, rmpp_version, method_mask, class_oui, &default_port);
}

/*
 * Opens the port and registers a client for each class. Returns NULL, or what failed; errno then
 * says why, and the port isn't open.
 */
static const char *port_open(struct ibmad_port *port, const char *device, int number,
			     const int *classes, int count)
{
	if (count < 0 || count >= CLASS_COUNT) {
		errno = EINVAL;
		return "too many classes";
	}
	if (umad_init() < 0) {
		errno = ENODEV;
		return "can't init UMAD library";
	}
	errno = 0;
	port->fd = umad_open_port(device, number);
	if (port->fd < 0) {
		if (!errno)
			errno = port->fd < -1 ? -port->fd : EIO;
		return "can't open UMAD port";
	}
	memset(port->class_agents, 0xff, sizeof port->class_agents);
	for (int i = 0; i < count; i++) {
		if (mad_register_client_via(classes[i], classes[i] == IB_SA_CLASS, port) >= 0)
			continue;
		int error = errno ? errno : EINVAL;

		umad_close_port(port->fd);
		errno = error;
		return "can't register a client of a class";
	}
	return NULL;
}

EXPORT void madrpc_init(char *dev_name, int dev_port, int *mgmt_classes, int num_classes)
{
	const char *failed =
		port_open(&default_port, dev_name, dev_port, mgmt_classes, num_classes);

	if (failed)
		IBPANIC("%s (%s:%d): %s", failed, dev_name ? dev_name : "(nil)", dev_port,
			strerror(errno));
}

EXPORT struct ibmad_port *mad_rpc_open_port(char *dev_name, int dev_port, int *mgmt_classes,
					    int num_classes)
{
	const char *level = env_get("LIBIBMAD_DEBUG_LEVEL");
	struct ibmad_port *port = calloc(1, sizeof *port);
	const char *failed;

	if (!port)
		return NULL;
	if (level)
		ibdebug = atoi(level);
	failed = port_open(port, dev_name, dev_port, mgmt_classes, num_classes);
	if (failed) {
		int error = errno;

		IBWARN("%s (%s:%d): %s", failed, dev_name ? dev_name : "(null)", dev_port,
		       strerror(errno));
		free(port);
		errno = error;
		return NULL;
	}
	return port;
}

EXPORT void mad_rpc_close_port(struct ibmad_port *srcport)
{
	umad_close_port(srcport->fd);
	free(srcport);
}
