/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices and their ports: lists, descriptions, and which port is meant by a program that names
 * none. Nothing is kept between calls.
 */
#include "umad/device.h"

#include "umad/backend.h"
#include "umad/debug.h"

#include "base/export.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NODE_SWITCH 2
#define STATE_ACTIVE 4
#define CAPABILITY_SM_DISABLED 0x400
#define PHYS_DISABLED 3
#define PHYS_LINK_UP 5

static int names_get(char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN])
{
	return backend_current()->devices_list(names, UMAD_MAX_DEVICES);
}

/* Ports ---------------------------------------------------------------------------------------- */

EXPORT int umad_release_port(umad_port_t *port)
{
	if (!port)
		return -ENODEV;
	free(port->pkeys);
	port->pkeys = NULL;
	port->pkeys_size = 0;
	return 0;
}

EXPORT int umad_release_ca(umad_ca_t *ca)
{
	if (!ca)
		return -ENODEV;
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (!ca->ports[i])
			continue;
		umad_release_port(ca->ports[i]);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
	return 0;
}

static int device_describe(const char *name, struct umad_ca *ca)
{
	memset(ca, 0, sizeof *ca);
	return backend_current()->device_query(name, ca);
}

/* The default port ----------------------------------------------------------------------------- */

/* How well a port suits a program that asked for none in particular. */
enum suitability { SUITS_NOT, SUITS_ENABLED, SUITS_LINK_UP, SUITS_ACTIVE };

static bool port_is_infiniband(const struct umad_port *port)
{
	return !strcmp(port->link_layer, "InfiniBand") || !strcmp(port->link_layer, "IB");
}

bool port_smi_is_disabled(const struct umad_port *port)
{
	return be32toh(port->capmask) & CAPABILITY_SM_DISABLED;
}

static enum suitability port_judge(const struct umad_port *port, bool smi)
{
	if (!port || !port_is_infiniband(port) || (smi && port_smi_is_disabled(port)))
		return SUITS_NOT;
	if (port->state == STATE_ACTIVE)
		return SUITS_ACTIVE;
	if (port->phys_state == PHYS_LINK_UP)
		return SUITS_LINK_UP;
	return port->phys_state == PHYS_DISABLED ? SUITS_NOT : SUITS_ENABLED;
}

/* The best port of a device, or the given one if `*number` isn't 0. A switch has port 0 only. */
static enum suitability device_judge(const char *name, int *number, bool smi)
{
	enum suitability best = SUITS_NOT;
	struct umad_ca ca;

	if (device_describe(name, &ca) < 0)
		return SUITS_NOT;
	if (ca.node_type == NODE_SWITCH) {
		*number = 0;
		best = SUITS_ACTIVE;
	} else if (*number) {
		if (*number > 0 && *number < UMAD_CA_MAX_PORTS)
			best = port_judge(ca.ports[*number], smi);
	} else {
		for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
			enum suitability suits = port_judge(ca.ports[i], smi);

			if (suits <= best)
				continue;
			best = suits;
			*number = i;
		}
	}
	umad_release_ca(&ca);
	return best;
}

int device_resolve(const char *name, int *number, bool smi, char found[UMAD_CA_NAME_LEN])
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	enum suitability best = SUITS_NOT;
	int wanted = *number;
	int count;

	if (name) {
		if (strlen(name) >= UMAD_CA_NAME_LEN)
			return -ENODEV;
		strcpy(found, name);
		if (*number && !smi)
			return 0;
		return device_judge(name, number, smi) == SUITS_NOT ? -ENODEV : 0;
	}
	count = names_get(names);
	for (int i = 0; i < count; i++) {
		int candidate = wanted;
		enum suitability suits = device_judge(names[i], &candidate, smi);

		if (suits <= best)
			continue;
		best = suits;
		*number = candidate;
		strcpy(found, names[i]);
	}
	return best == SUITS_NOT ? -ENODEV : 0;
}

/* The device that is meant; `name` is NULL for the default one. */
static int device_named(const char *name, char found[UMAD_CA_NAME_LEN])
{
	int number = 0;

	if (!name)
		return device_resolve(NULL, &number, false, found);
	if (strlen(name) >= UMAD_CA_NAME_LEN)
		return -ENODEV;
	strcpy(found, name);
	return 0;
}

/* Descriptions --------------------------------------------------------------------------------- */

EXPORT int umad_get_ca(const char *ca_name, umad_ca_t *ca)
{
	char found[UMAD_CA_NAME_LEN];
	int result = device_named(ca_name, found);

	if (!result)
		result = device_describe(found, ca);
	UMAD_TRACE("%s: %d", ca_name ? ca_name : "default", result);
	return result;
}

EXPORT int umad_get_port(const char *ca_name, int portnum, umad_port_t *port)
{
	char found[UMAD_CA_NAME_LEN];
	struct umad_ca ca;
	int result = device_resolve(ca_name, &portnum, false, found);

	if (!result)
		result = device_describe(found, &ca);
	if (result)
		return result;
	if (portnum < 0 || portnum >= UMAD_CA_MAX_PORTS || !ca.ports[portnum]) {
		result = -EIO;
	} else {
		*port = *ca.ports[portnum];
		ca.ports[portnum]->pkeys = NULL; /* the caller's now */
	}
	umad_release_ca(&ca);
	return result;
}

/* Entry 0 is port 0, which adapters don't have: its GUID is 0 then. */
EXPORT int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max)
{
	struct umad_ca ca;
	int count = 0;

	if (umad_get_ca(ca_name, &ca))
		return -ENODEV;
	if (portguids && ca.numports + 1 > max) {
		count = -ENOMEM;
	} else if (portguids) {
		for (; count <= ca.numports && count < UMAD_CA_MAX_PORTS; count++)
			portguids[count] = ca.ports[count] ? ca.ports[count]->port_guid : 0;
	}
	umad_release_ca(&ca);
	return count;
}

EXPORT int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	char found[UMAD_CA_NAME_LEN];
	int result = device_resolve(ca_name, &portnum, false, found);

	if (result)
		return result;
	return max > 0 ? backend_current()->issm_path(found, portnum, path, max) : -EINVAL;
}

/* Lists ---------------------------------------------------------------------------------------- */

static int names_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

EXPORT int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	int count = names_get(names);

	qsort(names, count, sizeof names[0], names_compare);
	if (count > max)
		count = max > 0 ? max : 0;
	memcpy(cas, names, count * sizeof names[0]);
	UMAD_TRACE("%d devices", count);
	return count;
}

EXPORT void umad_free_ca_device_list(struct umad_device_node *head)
{
	while (head) {
		struct umad_device_node *next = head->next;

		free(head);
		head = next;
	}
}

/* A node with its name behind it, so that one free() suffices. */
static struct umad_device_node *node_create(const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct umad_device_node *node = malloc(sizeof *node + bytes);

	if (!node)
		return NULL;
	node->next = NULL;
	node->ca_name = memcpy(node + 1, name, bytes);
	return node;
}

/* NULL with errno 0: there are no devices. */
EXPORT struct umad_device_node *umad_get_ca_device_list(void)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	struct umad_device_node *head = NULL;
	struct umad_device_node **end = &head;
	int count = names_get(names);

	for (int i = 0; i < count; i++) {
		*end = node_create(names[i]);
		if (!*end) {
			umad_free_ca_device_list(head);
			errno = ENOMEM;
			return NULL;
		}
		end = &(*end)->next;
	}
	errno = 0;
	return head;
}

static int nodes_compare(const void *a, const void *b)
{
	struct umad_device_node *const *left = a;
	struct umad_device_node *const *right = b;

	return strcmp((*left)->ca_name, (*right)->ca_name);
}

/* Sorts by name. A `size` that isn't 0 must be the list's length. Returns 0 or a positive errno. */
EXPORT int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	struct umad_device_node **nodes;
	size_t count = 0;

	for (struct umad_device_node *node = *head; node; node = node->next)
		count++;
	/* A list that is said to have one node is left alone, however long it is. */
	if (size == 1 || (!size && count < 2))
		return 0;
	if (size && size != count)
		return EINVAL;
	nodes = malloc(count * sizeof(*nodes));
	if (!nodes)
		return ENOMEM;
	count = 0;
	for (struct umad_device_node *node = *head; node; node = node->next)
		nodes[count++] = node;
	qsort(nodes, count, sizeof(*nodes), nodes_compare);
	for (size_t i = 0; i < count; i++)
		nodes[i]->next = i + 1 < count ? nodes[i + 1] : NULL;
	*head = nodes[0];
	free(nodes);
	return 0;
}
