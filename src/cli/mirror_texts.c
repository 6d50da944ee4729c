/* SPDX-License-Identifier: BSD-2-Clause */
/* The texts of a node's files in sysfs; see mirror_texts.h. One thread. */
#include "cli/mirror_texts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/ctl.h"
#include "cli/mirror.h"

/* As many as an adapter has (GUIDInfo); a kernel's file is there for each, set or not. */
#define GIDS 8

/* The version of umad's interface, as in <infiniband/umad.h>. */
#define MADS_ABI_VERSION "5"

struct giver {
	mirror_take *take;
	void *context;
	char directory[64];
};

static void text_give(const struct giver *giver, bool is_common, const char *name,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));

static void text_give(const struct giver *giver, bool is_common, const char *name,
		      const char *format, ...)
{
	char path[128], text[128];
	va_list args;

	snprintf(path, sizeof(path), "%s/%s", giver->directory, name);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	giver->take(giver->context, path, text, is_common);
}

static const char *state_text(uint32_t state)
{
	static const char *const texts[] = {"0: NOP",	"1: DOWN",   "2: INIT",
					    "3: ARMED", "4: ACTIVE", "5: ACTIVE_DEFER"};

	return state < sizeof(texts) / sizeof(texts[0]) ? texts[state] : texts[0];
}

static const char *physical_text(uint32_t state)
{
	static const char *const texts[] = {
		"0: <unknown>",
		"1: Sleep",
		"2: Polling",
		"3: Disabled",
		"4: PortConfigurationTraining",
		"5: LinkUp",
		"6: LinkErrorRecovery",
		"7: Phy Test",
	};

	return state < sizeof(texts) / sizeof(texts[0]) ? texts[state] : texts[0];
}

static void guid_give(const struct giver *giver, const char *name, uint64_t guid)
{
	text_give(giver, false, name, "%04x:%04x:%04x:%04x", (unsigned int)(guid >> 48),
		  (unsigned int)(guid >> 32 & 0xffff), (unsigned int)(guid >> 16 & 0xffff),
		  (unsigned int)(guid & 0xffff));
}

/* "200 Gb/sec (4X HDR)". A port without a link has what Linux shows then: 4x SDR. */
static void rate_give(const struct giver *giver, const json_t *port)
{
	double gbps = json_number_value(json_object_get(port, "gbps"));

	if (gbps > 0)
		text_give(giver, true, "rate", "%g Gb/sec (%s %s)", gbps, ctl_string(port, "width"),
			  ctl_string(port, "speed"));
	else
		text_give(giver, true, "rate", "10 Gb/sec (4X SDR)");
}

/* Further GIDs are those that are set, without the places between them that aren't. */
static void gids_give(struct giver *giver, const json_t *port, uint64_t prefix)
{
	const json_t *gids = json_object_get(port, "gids");
	char name[32];

	for (size_t i = 0; i < GIDS; i++) {
		const char *gid = json_string_value(json_array_get(gids, i));

		snprintf(name, sizeof(name), "gids/%zu", i);
		if (gid)
			text_give(giver, false, name, "%s", gid);
		else
			text_give(giver, true, name, "%04x:%04x:%04x:%04x:0000:0000:0000:0000",
				  (unsigned int)(prefix >> 48),
				  (unsigned int)(prefix >> 32 & 0xffff),
				  (unsigned int)(prefix >> 16 & 0xffff),
				  (unsigned int)(prefix & 0xffff));
	}
}

static void counters_give(const struct giver *giver, const json_t *counters)
{
	static const struct {
		const char *file, *counter;
	} files[] = {
		{"VL15_dropped", "vl15_dropped"},
		{"excessive_buffer_overrun_errors", "buffer_overrun"},
		{"link_downed", "link_downed"},
		{"link_error_recovery", "link_recovery"},
		{"local_link_integrity_errors", "local_integrity"},
		{"multicast_rcv_packets", "multicast_rcv"},
		{"multicast_xmit_packets", "multicast_xmit"},
		{"port_rcv_constraint_errors", "rcv_constraint"},
		{"port_rcv_data", "rcv_words"},
		{"port_rcv_errors", "rcv_errors"},
		{"port_rcv_packets", "rcv_packets"},
		{"port_rcv_remote_physical_errors", "rcv_remote_physical"},
		{"port_rcv_switch_relay_errors", "rcv_switch_relay"},
		{"port_xmit_constraint_errors", "xmit_constraint"},
		{"port_xmit_data", "xmit_words"},
		{"port_xmit_discards", "xmit_discards"},
		{"port_xmit_packets", "xmit_packets"},
		{"port_xmit_wait", "xmit_wait"},
		{"symbol_error", "symbol"},
		{"unicast_rcv_packets", "unicast_rcv"},
		{"unicast_xmit_packets", "unicast_xmit"},
	};
	char name[64];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		json_int_t value = ctl_integer(counters, files[i].counter);

		snprintf(name, sizeof(name), "counters/%s", files[i].file);
		text_give(giver, !value, name, "%" JSON_INTEGER_FORMAT, value);
	}
}

/* A port in words; NULL: it isn't there. */
static const json_t *port_words(const struct node_facts *facts, uint32_t number)
{
	const json_t *port;
	size_t i;

	json_array_foreach(json_object_get(facts->node, "ports"), i, port)
		if (ctl_integer(port, "port") == (json_int_t)number)
			return port;
	return NULL;
}

static void port_give(struct giver *giver, const struct node_facts *facts,
		      const struct proto_fabric_port *port)
{
	const json_t *words = port_words(facts, port->number);
	char name[32];

	snprintf(giver->directory, sizeof(giver->directory), MIRROR_OF_DEVICE "/ports/%u",
		 port->number);
	text_give(giver, true, "state", "%s", state_text(port->state));
	text_give(giver, true, "phys_state", "%s", physical_text(port->physical));
	text_give(giver, true, "link_layer", "InfiniBand");
	text_give(giver, true, "cap_mask", "0x%08x", port->capabilities);
	text_give(giver, false, "lid", "0x%x", port->lid);
	text_give(giver, true, "lid_mask_count", "%u", port->lmc);
	text_give(giver, true, "sm_lid", "0x%x", port->sm_lid);
	text_give(giver, true, "sm_sl", "%u", port->sm_sl);
	rate_give(giver, words);
	gids_give(giver, words, port->prefix);
	for (uint32_t i = 0; i < port->pkeys; i++) {
		snprintf(name, sizeof(name), "pkeys/%u", i);
		text_give(giver, true, name, "0x%04x", port->pkey[i]);
	}
	counters_give(giver, json_object_get(words, "counters"));
}

/* infiniband_mad: umadN and issmN of each port. */
static void mads_give(struct giver *giver, const struct proto_fabric_device *device)
{
	static const char *const kinds[] = {"umad", "issm"};
	char name[32];

	snprintf(giver->directory, sizeof(giver->directory), "%s", MIRROR_OF_MADS);
	text_give(giver, true, "abi_version", "%s", MADS_ABI_VERSION);
	for (uint32_t i = 0; i < device->ports; i++)
		for (size_t k = 0; k < 2; k++) {
			snprintf(name, sizeof(name), "%s%u/ibdev", kinds[k], i);
			text_give(giver, true, name, "%s", MIRROR_DEVICE);
			snprintf(name, sizeof(name), "%s%u/port", kinds[k], i);
			text_give(giver, true, name, "%u", device->port[i].number);
		}
}

void mirror_texts_give(const struct node_facts *facts, mirror_take *take, void *context)
{
	static const char *const types[] = {"1: CA", "2: switch", "3: router"};
	const struct proto_fabric_device *device = &facts->device;
	struct giver giver = {.take = take, .context = context, .directory = MIRROR_OF_DEVICE};

	text_give(&giver, true, "node_type", "%s",
		  types[device->type >= 1 && device->type <= 3 ? device->type - 1 : 0]);
	guid_give(&giver, "node_guid", device->guid);
	guid_give(&giver, "sys_image_guid", device->system_guid);
	text_give(&giver, true, "fw_ver", "%s", VERBENA_VERSION);
	text_give(&giver, true, "hw_rev", "0");
	text_give(&giver, true, "hca_type", "Verbena");
	/* No NUMA node is preferred. */
	text_give(&giver, true, "device/numa_node", "-1");
	for (uint32_t i = 0; i < device->ports; i++)
		port_give(&giver, facts, &device->port[i]);
	mads_give(&giver, device);
}
