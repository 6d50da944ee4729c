/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs of devices: a port's subnet management (SMI, QP 0) may be by another device than all else
 * (GSI, QP 1). Two devices whose first ports have the same GUID are such a pair: the one whose port
 * has subnet management is the SMI. Any other device is both, or only the GSI if its subnet
 * management is disabled. Nothing is kept between calls.
 *
 * The results are those of rdma-core 56, with what later releases mended: switches have port 0
 * only, devices without a GUID aren't paired, and a port that the program names needn't be up.
 */
#include "umad/device.h"

#include "base/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STATE_DOWN 1

/* The device's first port, or NULL. */
static const struct umad_port *first_port(const struct umad_ca *ca)
{
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++)
		if (ca->ports[i])
			return ca->ports[i];
	return NULL;
}

/* What pairs are made of: a device and its first port. */
struct half {
	char name[UMAD_CA_NAME_LEN];
	__be64 guid;
	bool smi_is_disabled;
};

/* All devices that have a port with a GUID, sorted by name; returns how many. */
static int halves_list(struct half halves[UMAD_MAX_DEVICES])
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	int devices = umad_get_cas_names(names, UMAD_MAX_DEVICES);
	int count = 0;

	for (int i = 0; i < devices; i++) {
		const struct umad_port *port;
		struct umad_ca ca;

		if (umad_get_ca(names[i], &ca) < 0)
			continue;
		port = first_port(&ca);
		if (port && port->port_guid) {
			strcpy(halves[count].name, names[i]);
			halves[count].guid = port->port_guid;
			halves[count++].smi_is_disabled = port_smi_is_disabled(port);
		}
		umad_release_ca(&ca);
	}
	return count;
}

/* The first of the first `count` halves that has this GUID; `count`: none has. */
static int half_find(const struct half *halves, int count, __be64 guid)
{
	int i = 0;

	while (i < count && halves[i].guid != guid)
		i++;
	return i;
}

static void pair_add(struct umad_ca_pair *pair, const struct half *half, bool is_alone)
{
	if (!half->smi_is_disabled)
		strcpy(pair->smi_name, half->name);
	if (half->smi_is_disabled || is_alone)
		strcpy(pair->gsi_name, half->name);
}

EXPORT int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max)
{
	struct half halves[UMAD_MAX_DEVICES];
	int pairs[UMAD_MAX_DEVICES]; /* by half: its pair in `cas` */
	int count = halves_list(halves);
	int added = 0;

	memset(cas, 0, max * sizeof *cas);
	for (int i = 0; i < count; i++) {
		int first = half_find(halves, i, halves[i].guid);
		bool has_later =
			half_find(halves + i + 1, count - i - 1, halves[i].guid) < count - i - 1;

		pairs[i] = first < i ? pairs[first] : -1;
		if (first == i && (size_t)added < max)
			pairs[i] = added++;
		if (pairs[i] >= 0)
			pair_add(&cas[pairs[i]], &halves[i], first == i && !has_later);
	}
	return added;
}

/* The preferred port ------------------------------------------------------------------------------
 */

static bool pair_has_device(const struct umad_ca_pair *pair, const char *name)
{
	return !name || !strcmp(pair->gsi_name, name) || !strcmp(pair->smi_name, name);
}

/* Port `*number` of the device if it is usable; with `*number` 0 the first that isn't down. */
static bool port_prefer(const char *name, bool is_named, uint32_t *number)
{
	bool is_found = false;
	struct umad_ca ca;

	if (umad_get_ca(name, &ca) < 0)
		return false;
	if (!*number && first_port(&ca) && ca.numports == 1)
		*number = first_port(&ca)->portnum;
	if (*number) {
		is_found = *number < UMAD_CA_MAX_PORTS && ca.ports[*number] &&
			   (is_named || ca.ports[*number]->state > STATE_DOWN);
	} else {
		for (uint32_t i = 0; i < UMAD_CA_MAX_PORTS && !is_found; i++) {
			if (!ca.ports[i] || ca.ports[i]->state <= STATE_DOWN)
				continue;
			*number = i;
			is_found = true;
		}
	}
	umad_release_ca(&ca);
	return is_found;
}

/* Chooses the ports of a pair; `name` and `number` (0: any) are what the program asked for. */
static bool pair_complete(struct umad_ca_pair *pair, const char *name, uint32_t number)
{
	bool is_gsi = !pair->smi_name[0] || (name && !strcmp(pair->gsi_name, name));
	uint32_t *port = is_gsi ? &pair->gsi_preferred_port : &pair->smi_preferred_port;
	uint32_t *other = is_gsi ? &pair->smi_preferred_port : &pair->gsi_preferred_port;
	const char *other_name = is_gsi ? pair->smi_name : pair->gsi_name;

	*port = number;
	if (!port_prefer(is_gsi ? pair->gsi_name : pair->smi_name, name && number, port))
		return false;
	if (!other_name[0])
		return true;
	if (!strcmp(pair->smi_name, pair->gsi_name)) {
		*other = *port;
		return true;
	}
	/* What the program named is enough: the other device may be down. */
	return port_prefer(other_name, false, other) || (name && number);
}

EXPORT int umad_get_smi_gsi_pair_by_ca_name(const char *devname, uint8_t portnum,
					    struct umad_ca_pair *ca_pair, unsigned enforce_smi)
{
	struct umad_ca_pair pairs[UMAD_MAX_DEVICES];
	int count;

	if (!ca_pair)
		return -1;
	count = umad_get_smi_gsi_pairs(pairs, UMAD_MAX_DEVICES);
	for (int i = 0; i < count; i++) {
		if ((enforce_smi && !pairs[i].smi_name[0]) || !pairs[i].gsi_name[0] ||
		    !pair_has_device(&pairs[i], devname) ||
		    !pair_complete(&pairs[i], devname, portnum))
			continue;
		*ca_pair = pairs[i];
		return 0;
	}
	memset(ca_pair, 0, sizeof *ca_pair);
	errno = ENODEV;
	return -ENODEV;
}
