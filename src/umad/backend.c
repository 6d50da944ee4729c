/* SPDX-License-Identifier: BSD-2-Clause */
/* Which backend the library uses, and the one that has no devices. */
#include "umad/backend.h"

#include <errno.h>

static int none_list(__attribute__((unused)) char names[][UMAD_CA_NAME_LEN],
		     __attribute__((unused)) int max)
{
	return 0;
}

static int none_query(__attribute__((unused)) const char *name,
		      __attribute__((unused)) struct umad_ca *ca)
{
	return -ENOENT;
}

static int none_issm_path(__attribute__((unused)) const char *name,
			  __attribute__((unused)) int port, __attribute__((unused)) char *path,
			  __attribute__((unused)) size_t size)
{
	return -ENODEV;
}

static int none_open(__attribute__((unused)) const char *name, __attribute__((unused)) int port)
{
	return -EOPNOTSUPP;
}

/* No descriptor is a port of this backend's. */

static int none_close(__attribute__((unused)) int fd)
{
	return -EBADF;
}

static int none_register(__attribute__((unused)) int fd, __attribute__((unused)) int qpn,
			 __attribute__((unused)) struct umad_reg_attr *attr,
			 __attribute__((unused)) uint32_t *agent)
{
	return -EBADF;
}

static int none_unregister(__attribute__((unused)) int fd, __attribute__((unused)) uint32_t agent)
{
	return -EBADF;
}

static int none_send(__attribute__((unused)) int fd, __attribute__((unused)) const void *packet,
		     __attribute__((unused)) size_t bytes)
{
	return -EBADF;
}

static ssize_t none_receive(__attribute__((unused)) int fd, __attribute__((unused)) void *packet,
			    __attribute__((unused)) size_t bytes)
{
	return -EBADF;
}

const struct umad_backend backend_none = {
	.devices_list = none_list,
	.device_query = none_query,
	.issm_path = none_issm_path,
	.port_open = none_open,
	.port_close = none_close,
	.agent_register = none_register,
	.agent_unregister = none_unregister,
	.packet_send = none_send,
	.packet_receive = none_receive,
};

static const struct umad_backend *chosen = &backend_none;

const struct umad_backend *backend_current(void)
{
	return chosen;
}

void backend_choose(const struct umad_backend *backend)
{
	chosen = backend;
}
