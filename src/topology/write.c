/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes a topology in ibsim's format, with Verbena's additions in comments. No state. */
#include <inttypes.h>
#include <string.h>

#include "topology/private.h"

static void write_settings(const struct topology *topology, const struct topology_node *node,
			   FILE *out)
{
	static const char *const words[] = {[TOPOLOGY_CA] = "caguid",
					    [TOPOLOGY_SWITCH] = "switchguid",
					    [TOPOLOGY_ROUTER] = "rtguid"};
	uint64_t port_guid = topology->ports[node->first_port].guid;

	if (node->vendor_id)
		fprintf(out, "vendid=0x%x\n", node->vendor_id);
	if (node->device_id)
		fprintf(out, "devid=0x%x\n", node->device_id);
	if (node->system_guid)
		fprintf(out, "sysimgguid=0x%" PRIx64 "\n", node->system_guid);
	if (node->guid)
		fprintf(out, "%s=0x%" PRIx64, words[node->kind], node->guid);
	if (node->guid && node->kind == TOPOLOGY_SWITCH && port_guid)
		fprintf(out, "(%" PRIx64 ")", port_guid);
	if (node->guid)
		fputc('\n', out);
}

static void write_node(const struct topology *topology, const struct topology_node *node, FILE *out)
{
	static const char *const words[] = {
		[TOPOLOGY_CA] = "Hca", [TOPOLOGY_SWITCH] = "Switch", [TOPOLOGY_ROUTER] = "Rt"};
	const struct topology_port *port0 = &topology->ports[node->first_port];

	fprintf(out, "%s\t%u \"%s\"", words[node->kind], node->ports, node->name);
	if (strcmp(node->name, node->description) != 0 || node->has_base_port0 || port0->lid)
		fprintf(out, "\t\t# \"%s\"", node->description);
	if (node->has_base_port0)
		fputs(" base port 0", out);
	if (port0->lid)
		fprintf(out, " lid %u lmc %u", port0->lid, port0->lmc);
	fputc('\n', out);
}

/* ibsim's options are bits of what is enabled: the width alone, and all speeds up to this one. */
static void write_link(const struct topology_port *port, FILE *out)
{
	unsigned int extended = topology_speed_extended(port->speed);
	unsigned int basic = topology_speed_basic(port->speed);

	if (port->width)
		fprintf(out, " w=%u", port->width);
	if (port->speed)
		fprintf(out, " s=%u e=%u", 2 * basic - 1, extended ? 2 * extended - 1 : 0);
}

static void write_port(const struct topology *topology, const struct topology_port *port, FILE *out)
{
	const struct topology_port *peer = &topology->ports[port->peer];
	char address[TOPOLOGY_ADDRESS_BYTES];

	fprintf(out, "[%u]", port->number);
	if (port->guid)
		fprintf(out, "(%" PRIx64 ")", port->guid);
	fprintf(out, "\t\"%s\"[%u]", topology->nodes[peer->node].name, peer->number);
	write_link(port, out);
	if (!port->lid && !(port->width && port->speed) && !port->mtu && !port->delay_ns &&
	    port->address == TOPOLOGY_NONE) {
		fputc('\n', out);
		return;
	}
	fputs("\t#", out);
	if (port->lid)
		fprintf(out, " lid %u lmc %u", port->lid, port->lmc);
	if (port->width && port->speed)
		fprintf(out, " %ux%s", topology_lanes(port->width),
			topology_speed_name(port->speed));
	if (port->mtu)
		fprintf(out, " mtu=%u", 128u << port->mtu);
	if (port->delay_ns)
		fprintf(out, " delay=%uns", port->delay_ns);
	if (port->address != TOPOLOGY_NONE)
		fprintf(out, " ip=%s",
			topology_address_text(address, &topology->addresses[port->address]));
	fputc('\n', out);
}

void topology_write(const struct topology *topology, FILE *out)
{
	if (*topology->title)
		fprintf(out, "# Topology: %s\n\n", topology->title);
	for (uint32_t i = 0; i < topology->node_count; i++) {
		const struct topology_node *node = &topology->nodes[i];

		write_settings(topology, node, out);
		write_node(topology, node, out);
		for (uint32_t number = 1; number <= node->ports; number++)
			if (topology->ports[node->first_port + number].peer != TOPOLOGY_NONE)
				write_port(topology, &topology->ports[node->first_port + number],
					   out);
		fputc('\n', out);
	}
}
