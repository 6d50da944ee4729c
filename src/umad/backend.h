/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What libibumad asks of whatever has the devices: one table of functions, chosen once. The
 * library itself keeps nothing but this choice; a port is a descriptor that the backend returns.
 *
 * All functions return 0 or a negative errno where nothing else is said, and may be called from
 * several threads at once, as programs do with one port.
 */
#ifndef VERBENA_UMAD_BACKEND_H
#define VERBENA_UMAD_BACKEND_H

#include <infiniband/umad.h>

#include <stdbool.h>
#include <sys/types.h>

struct umad_backend {
	/*
	 * Writes the names of up to `max` devices, in an order of the backend's own that doesn't
	 * change while the devices don't. Returns how many.
	 */
	int (*devices_list)(char names[][UMAD_CA_NAME_LEN], int max);

	/*
	 * Describes a device. `ca` is zero before; its ports and their P_Keys are allocated by
	 * malloc(), and on an error there are none. -ENOENT: there is no such device.
	 */
	int (*device_query)(const char *name, struct umad_ca *ca);

	/* The path of the file that makes the port claim to have an SM while it is open. */
	int (*issm_path)(const char *name, int port, char *path, size_t size);

	/*
	 * A new descriptor, non-blocking, readable while a message waits, POLLERR once its
	 * device is gone. Closing it ends its agents.
	 */
	int (*port_open)(const char *name, int port);
	int (*port_close)(int fd);

	/* With -EINVAL for unknown flags, attr->flags has those that are known. */
	int (*agent_register)(int fd, int qpn, struct umad_reg_attr *attr, uint32_t *agent);
	int (*agent_unregister)(int fd, uint32_t agent);

	/* A struct ib_user_mad with `bytes` in all. */
	int (*packet_send)(int fd, const void *packet, size_t bytes);

	/*
	 * The next message, up to `bytes`; never blocks. Returns its length; -EAGAIN: there is
	 * none; -ENOSPC: it is longer, its header was written (with the length) and it stays;
	 * -ENOTCONN: the device is gone, port_return() may bring it back.
	 */
	ssize_t (*packet_receive)(int fd, void *packet, size_t bytes);

	/*
	 * Tries to bring a device back that is gone, with the port's agents. -EAGAIN: not now, and
	 * `changed` is a descriptor that can be read when it may have come back, or -1. NULL:
	 * there is no such thing.
	 */
	int (*port_return)(int fd, int *changed);

	/* Its messages come from a process of this machine, often within microseconds. */
	bool is_near;
};

/* No devices, and nothing that could be opened. */
extern const struct umad_backend backend_none;

const struct umad_backend *backend_current(void);

/* Before the first call of the library; for what brings devices. */
void backend_choose(const struct umad_backend *backend);

#endif
