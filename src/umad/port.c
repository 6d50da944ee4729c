/* SPDX-License-Identifier: BSD-2-Clause */
/* Open ports: agents, sending and receiving. A port is the backend's descriptor. */
#include "umad/backend.h"
#include "umad/debug.h"
#include "umad/device.h"

#include "base/clock.h"
#include "base/export.h"
#include "base/spin.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

/* The OUI of agents that give none, see <infiniband/umad_types.h>. */
#define OPENIB_OUI 0x001405

EXPORT int umad_init(void)
{
	return 0;
}

EXPORT int umad_done(void)
{
	return 0;
}

static int descriptor_open(const char *ca_name, int portnum, bool smi)
{
	char found[UMAD_CA_NAME_LEN];
	int fd;

	if (backend_current() == &backend_none)
		return -EOPNOTSUPP;
	fd = device_resolve(ca_name, &portnum, smi, found);
	if (!fd)
		fd = backend_current()->port_open(found, portnum);
	UMAD_TRACE("%s port %d: %d", ca_name ? ca_name : "default", portnum, fd);
	return fd;
}

EXPORT int umad_open_port(const char *ca_name, int portnum)
{
	return descriptor_open(ca_name, portnum, false);
}

EXPORT int umad_open_smi_port(const char *ca_name, int portnum)
{
	return descriptor_open(ca_name, portnum, true);
}

EXPORT int umad_close_port(int portid)
{
	backend_current()->port_close(portid);
	return 0;
}

EXPORT int umad_get_fd(int portid)
{
	return portid;
}

/* Agents --------------------------------------------------------------------------------------- */

static bool class_is_vendor_range2(int mgmt_class)
{
	return mgmt_class >= 0x30 && mgmt_class <= 0x4f;
}

/* Subnet management uses QP 0, all else QP 1. */
static int class_qpn(int mgmt_class)
{
	return mgmt_class == 0x01 || mgmt_class == 0x81 ? 0 : 1;
}

/* Registers as the old calls do: all errors are -EPERM; errno says more, as that of the kernel's
 * call does. */
static int agent_create(int fd, struct umad_reg_attr *attr, long method_mask[16 / sizeof(long)])
{
	uint32_t agent;

	if (method_mask)
		memcpy(attr->method_mask, method_mask, sizeof attr->method_mask);
	int result =
		backend_current()->agent_register(fd, class_qpn(attr->mgmt_class), attr, &agent);

	if (result >= 0)
		return (int)agent;
	errno = -result;
	return -EPERM;
}

EXPORT int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
			 long method_mask[16 / sizeof(long)])
{
	struct umad_reg_attr attr = {
		.mgmt_class = mgmt_class,
		.mgmt_class_version = mgmt_version,
		.oui = OPENIB_OUI,
		.rmpp_version = rmpp_version,
	};

	return agent_create(portid, &attr, method_mask);
}

EXPORT int umad_register_oui(int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3],
			     long method_mask[16 / sizeof(long)])
{
	struct umad_reg_attr attr = {
		.mgmt_class = mgmt_class,
		.mgmt_class_version = 1,
		.oui = (uint32_t)oui[0] << 16 | (uint32_t)oui[1] << 8 | oui[2],
		.rmpp_version = rmpp_version,
	};

	if (!class_is_vendor_range2(mgmt_class))
		return -EINVAL;
	return agent_create(portid, &attr, method_mask);
}

EXPORT int umad_register2(int port_fd, struct umad_reg_attr *attr, uint32_t *agent_id)
{
	if (!attr || !agent_id)
		return EINVAL;
	if (class_is_vendor_range2(attr->mgmt_class) && (!attr->oui || attr->oui >> 24))
		return EINVAL;
	return -backend_current()->agent_register(port_fd, class_qpn(attr->mgmt_class), attr,
						  agent_id);
}

EXPORT int umad_unregister(int portid, int agentid)
{
	int result = backend_current()->agent_unregister(portid, agentid);

	if (result >= 0)
		return 0;
	errno = -result;
	return -1;
}

/* Messages ------------------------------------------------------------------------------------- */

EXPORT int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms, int retries)
{
	struct ib_user_mad *packet = umad;
	int result;

	if (length < 0) {
		errno = EINVAL;
		return -EIO;
	}
	packet->agent_id = agentid;
	packet->timeout_ms = timeout_ms;
	packet->retries = retries;
	if (umad_debug(-1) > 1)
		umad_dump(packet);
	result = backend_current()->packet_send(portid, packet, umad_size() + length);
	errno = result < 0 ? -result : 0;
	return result < 0 ? -EIO : 0;
}

/* Waiting awake, see base/spin.h. */
static struct spin port_spin;

static ssize_t port_look(void *arg)
{
	return poll(arg, 1, 0) == 1;
}

/* Whether a message is there, or comes within a moment. */
static bool port_is_soon_ready(int portid)
{
	struct pollfd port = {.fd = portid, .events = POLLIN};

	return backend_current()->is_near && spin_look(&port_spin, port_look, &port, false);
}

static int port_wait(int portid, int timeout_ms)
{
	struct pollfd port = {.fd = portid, .events = POLLIN};
	int ready = poll(&port, 1, timeout_ms);

	if (ready == 1)
		return 0;
	return ready ? -EIO : -ETIMEDOUT;
}

EXPORT int umad_poll(int portid, int timeout_ms)
{
	return timeout_ms && port_is_soon_ready(portid) ? 0 : port_wait(portid, timeout_ms);
}

struct reception {
	int portid;
	void *packet;
	size_t bytes;
};

static ssize_t reception_look(void *arg)
{
	const struct reception *r = arg;

	return backend_current()->packet_receive(r->portid, r->packet, r->bytes);
}

/* The next message, if it is there or comes within a moment; else -EAGAIN, or an error that
 * umad_poll() tells, too. */
static ssize_t port_receive_soon(int portid, void *packet, size_t bytes)
{
	struct reception reception = {portid, packet, bytes};

	return backend_current()->is_near
		       ? spin_look(&port_spin, reception_look, &reception, -EAGAIN)
		       : -EAGAIN;
}

/* The next message, if it comes within the time. Sets errno only to say more than the result. */
static ssize_t port_receive_in_time(int portid, void *packet, size_t bytes, int timeout_ms)
{
	ssize_t got = timeout_ms ? port_receive_soon(portid, packet, bytes) : -EAGAIN;
	int result;

	errno = 0;
	if (got >= 0 || got == -ENOSPC || got == -ENOTCONN)
		return got;
	result = timeout_ms ? port_wait(portid, timeout_ms) : 0;
	if (result)
		return result;
	got = backend_current()->packet_receive(portid, packet, bytes);
	errno = 0;
	return got;
}

static int ms_left_of(int timeout_ms, uint64_t began_ns)
{
	uint64_t passed = (clock_ns() - began_ns) / 1000000;

	if (timeout_ms < 0)
		return timeout_ms;
	return passed < (uint64_t)timeout_ms ? timeout_ms - (int)passed : 0;
}

/*
 * Waits until the port's device is back: 0; or -ETIMEDOUT; -EIO: it can't come back. Linux fails
 * each call from then on. A program that waits for messages without end (OpenSM) takes that for the
 * failure of one message, and calls again and again. The wait is a cancellation point, as
 * umad_recv() always has one: that is how OpenSM ends.
 */
static int port_await_return(int portid, int timeout_ms, uint64_t began_ns)
{
	enum { LOOK_MS = 1000 }; /* where changes can't be watched */

	if (!backend_current()->port_return)
		return -EIO;
	for (;;) {
		struct pollfd changed = {.fd = -1, .events = POLLIN};
		int result = backend_current()->port_return(portid, &changed.fd);
		int left = ms_left_of(timeout_ms, began_ns);

		if (result != -EAGAIN)
			return result;
		if (!left)
			return -ETIMEDOUT;
		if (poll(&changed, 1, left > 0 && left < LOOK_MS ? left : LOOK_MS) < 0)
			return -EIO;
	}
}

EXPORT int umad_recv(int portid, void *umad, int *length, int timeout_ms)
{
	struct ib_user_mad *packet = umad;
	uint64_t began_ns = timeout_ms > 0 ? clock_ns() : 0;
	ssize_t bytes;

	if (!umad || !length || *length < 0) {
		errno = EINVAL;
		return -EINVAL;
	}
	do {
		bytes = port_receive_in_time(portid, umad, umad_size() + *length,
					     ms_left_of(timeout_ms, began_ns));
		if (bytes != -ENOTCONN)
			break;
		bytes = timeout_ms ? port_await_return(portid, timeout_ms, began_ns) : -EIO;
		errno = 0;
	} while (!bytes);
	if (bytes >= (ssize_t)umad_size()) {
		*length = (int)(bytes - (ssize_t)umad_size());
		return (int)packet->agent_id;
	}
	if (bytes >= 0)
		bytes = -EIO;
	if (!errno)
		errno = (int)-bytes;
	if (bytes == -ENOSPC)
		*length = (int)(packet->length - umad_size());
	UMAD_TRACE("fd %d: %s", portid, strerror(errno));
	return (int)bytes;
}
