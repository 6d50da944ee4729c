/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port that is opened by two devices: subnet management goes by one, all else by the other (see
 * umad_get_smi_gsi_pair_by_ca_name()). Where one device is both, it is opened twice.
 */
#include <infiniband/umad.h>

#include "ibmad/ibmad.h"

#include "base/env.h"
#include "base/export.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

_Static_assert(sizeof((struct ibmad_ports_item){0}.ca_name) == UMAD_CA_NAME_LEN,
	       "a device's name fits");

static void item_close(struct ibmad_ports_item *item)
{
	if (item->port && item->port->fd >= 0)
		umad_close_port(item->port->fd);
	free(item->port);
}

/* Returns 0 or a negative errno; a name that is empty isn't opened. */
static int item_open(struct ibmad_ports_item *item, const char *name, int number)
{
	item->port = calloc(1, sizeof *item->port);
	if (!item->port)
		return -ENOMEM;
	memcpy(item->ca_name, name, sizeof item->ca_name);
	memset(item->port->class_agents, 0xff, sizeof item->port->class_agents);
	item->port->fd = name[0] ? umad_open_port(name, number) : -ENODEV;
	return item->port->fd < 0 ? item->port->fd : 0;
}

/* Looked up at run time, so that this library can be used with a libibumad that is older than the
 * function. Returns 0 or a negative errno. */
static int pair_find(const char *device, int number, struct umad_ca_pair *names,
		     unsigned enforce_smi)
{
	__typeof__(umad_get_smi_gsi_pair_by_ca_name) *find;

	*(void **)&find = dlsym(RTLD_DEFAULT, "umad_get_smi_gsi_pair_by_ca_name");
	return find ? find(device, number, names, enforce_smi) : -EOPNOTSUPP;
}

/* Opens both; subnet management only if there is any, or `enforce_smi`. */
static int pair_open(struct ibmad_ports_pair *pair, const char *device, int number,
		     unsigned enforce_smi)
{
	struct umad_ca_pair names;
	int result = number < 0 || number > UINT8_MAX ? -EINVAL : 0;

	if (!result)
		result = pair_find(device, number, &names, enforce_smi);
	if (result < 0)
		return result;
	result = item_open(&pair->smi, names.smi_name, names.smi_preferred_port);
	if (result == -ENOMEM || (result < 0 && enforce_smi))
		return result;
	return item_open(&pair->gsi, names.gsi_name, names.gsi_preferred_port);
}

static int pair_register(struct ibmad_ports_pair *pair, const int *classes, int count)
{
	for (int i = 0; i < count; i++) {
		bool is_smi = class_is_smi(classes[i]) && pair->smi.port->fd >= 0;

		errno = 0;
		if (mad_register_client_via(classes[i], classes[i] == IB_SA_CLASS,
					    is_smi ? pair->smi.port : pair->gsi.port) < 0)
			return errno ? -errno : -EINVAL;
	}
	return 0;
}

EXPORT void mad_rpc_close_port2(struct ibmad_ports_pair *srcport)
{
	item_close(&srcport->smi);
	item_close(&srcport->gsi);
	free(srcport);
}

EXPORT struct ibmad_ports_pair *mad_rpc_open_port2(char *dev_name, int dev_port, int *mgmt_classes,
						   int num_classes, unsigned enforce_smi)
{
	const char *level = env_get("LIBIBMAD_DEBUG_LEVEL");
	struct ibmad_ports_pair *pair;
	int result = -EINVAL;

	if (level)
		ibdebug = atoi(level);
	pair = calloc(1, sizeof *pair);
	if (!pair)
		return NULL;
	if (num_classes >= 0 && num_classes < CLASS_COUNT)
		result = umad_init() < 0 ? -ENODEV
					 : pair_open(pair, dev_name, dev_port, enforce_smi);
	if (!result)
		result = pair_register(pair, mgmt_classes, num_classes);
	if (!result)
		return pair;
	IBWARN("can't open the pair of UMAD ports (%s:%d): %s", dev_name ? dev_name : "(null)",
	       dev_port, strerror(-result));
	mad_rpc_close_port2(pair);
	errno = -result;
	return NULL;
}
