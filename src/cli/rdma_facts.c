/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's answers in the terms of iproute2's rdma(8); see rdma.h. What a kernel doesn't report
 * of a RoCE device (LIDs, subnet prefix, capabilities of the port) is absent here as well. One
 * thread.
 */
#include <net/if.h>
#include <stdint.h>
#include <string.h>

#include "cli/ctl.h"
#include "cli/rdma.h"

/* Names of enum ib_device_cap_flags by bit, as iproute2 prints them; NULL: it has none. */
static const char *const capability_names[] = {
	[0] = "RESIZE_MAX_WR",
	[1] = "BAD_PKEY_CNTR",
	[2] = "BAD_QKEY_CNTR",
	[3] = "RAW_MULTI",
	[4] = "AUTO_PATH_MIG",
	[5] = "CHANGE_PHY_PORT",
	[6] = "UD_AV_PORT_ENFORCE_PORT_ENFORCE",
	[7] = "CURR_QP_STATE_MOD",
	[8] = "SHUTDOWN_PORT",
	[9] = "INIT_TYPE",
	[10] = "PORT_ACTIVE_EVENT",
	[11] = "SYS_IMAGE_GUID",
	[12] = "RC_RNR_NAK_GEN",
	[13] = "SRQ_RESIZE",
	[14] = "N_NOTIFY_CQ",
	[15] = "LOCAL_DMA_LKEY",
	[17] = "MEM_WINDOW",
	[18] = "UD_IP_CSUM",
	[19] = "UD_TSO",
	[20] = "XRC",
	[21] = "MEM_MGT_EXTENSIONS",
	[22] = "BLOCK_MULTICAST_LOOPBACK",
	[23] = "MEM_WINDOW_TYPE_2A",
	[24] = "MEM_WINDOW_TYPE_2B",
	[25] = "RC_IP_CSUM",
	[26] = "RAW_IP_CSUM",
	[27] = "CROSS_CHANNEL",
	[29] = "MANAGED_FLOW_STEERING",
	[30] = "SIGNATURE_HANDOVER",
	[31] = "ON_DEMAND_PAGING",
};

enum { CAPABILITY_NAMES = sizeof(capability_names) / sizeof(capability_names[0]) };

static json_t *capability_list(uint64_t bits)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < CAPABILITY_NAMES; i++)
		if (bits >> i & 1)
			json_array_append_new(
				list,
				json_string(capability_names[i] ? capability_names[i] : "UNKNOWN"));
	return list;
}

static json_t *device_entry(int index, const json_t *device, bool details)
{
	const char *guid = ctl_string(device, "guid");
	json_t *entry =
		json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:s}", "ifindex", index, "ifname",
			  ctl_string(device, "name"), "node_type", "ca", "protocol", "roce", "fw",
			  ctl_string(device, "fw_ver"), "node_guid", guid, "sys_image_guid", guid);

	if (entry && details)
		json_object_set_new(
			entry, "caps",
			capability_list((uint64_t)ctl_integer(device, "device_cap_flags")));
	return entry;
}

static json_t *link_entry(int index, const json_t *device)
{
	bool up = !strcmp(ctl_string(device, "state"), "ACTIVE");
	const char *name =
		json_string_value(json_array_get(json_object_get(device, "interfaces"), 0));
	unsigned int number = name ? if_nametoindex(name) : 0;
	json_t *entry =
		json_pack("{s:i,s:s,s:I,s:s,s:s}", "ifindex", index, "ifname",
			  ctl_string(device, "name"), "port", ctl_integer(device, "port"), "state",
			  up ? "ACTIVE" : "DOWN", "physical_state", up ? "LINK_UP" : "DISABLED");

	/* An interface that is configured but doesn't exist isn't reported. */
	if (entry && number) {
		json_object_set_new(entry, "netdev", json_string(name));
		json_object_set_new(entry, "netdev_index", json_integer(number));
	}
	return entry;
}

static json_int_t count_of(const json_t *resources, const char *kind, const char *device)
{
	const json_t *entry;
	json_int_t count = 0;
	size_t i;

	json_array_foreach(json_object_get(resources, kind), i, entry)
		count += !strcmp(ctl_string(entry, "device"), device);
	return count;
}

static json_t *resource_entry(int index, const json_t *device, const json_t *resources)
{
	static const struct {
		const char *name, *kind; /* iproute2's name, and the daemon's */
	} kinds[] = {{"pd", "pd"}, {"cq", "cq"},       {"qp", "qp"},  {"cm_id", "cm_id"},
		     {"mr", "mr"}, {"ctx", "context"}, {"srq", "srq"}};
	const char *name = ctl_string(device, "name");
	json_t *entry = json_pack("{s:i,s:s}", "ifindex", index, "ifname", name);

	for (size_t i = 0; entry && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		json_object_set_new(entry, kinds[i].name,
				    json_integer(count_of(resources, kinds[i].kind, name)));
	return entry;
}

json_t *rdma_entries(enum rdma_object object, const json_t *status, const json_t *resources,
		     bool details)
{
	json_t *list = json_array();
	const json_t *device;
	size_t i;

	/* The index is that of ibv_get_device_index(). */
	json_array_foreach(json_object_get(status, "devices"), i, device) {
		json_t *entry = object == RDMA_DEV    ? device_entry((int)i, device, details)
				: object == RDMA_LINK ? link_entry((int)i, device)
						      : resource_entry((int)i, device, resources);

		if (json_array_append_new(list, entry) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
