/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links: training, going down, and what is done to cables and nodes. A link is up when both ends'
 * physical states allow it; it comes up in state Init at once, since training takes no time here.
 */
#include "fabric/internal.h"

#include <errno.h>

/* The better of widths is the one with more lanes; their numbers aren't in that order. */
static uint8_t width_best(uint8_t common)
{
	static const uint8_t order[] = {8, 4, 2, 16, 1};

	for (unsigned int i = 0; i < sizeof order; i++)
		if (common & order[i])
			return order[i];
	return 0;
}

static uint8_t bit_highest(uint8_t bits)
{
	uint8_t highest = 0;

	for (uint8_t bit = 1; bit; bit <<= 1)
		if (bits & bit)
			highest = bit;
	return highest;
}

struct link_rate {
	uint8_t width;
	struct fabric_speed speed;
};

/* What the ports can do over their cable. False: nothing, so the link doesn't train. */
static bool rate_negotiate(const struct fabric_port *a, const struct fabric_port *b,
			   struct link_rate *rate)
{
	uint8_t widths = a->info[INFO_WIDTH_ENABLED] & b->info[INFO_WIDTH_ENABLED];
	struct fabric_speed speed = {
		.basic = octet_low(a->info[INFO_SPEED_ACTIVE_ENABLED] &
				   b->info[INFO_SPEED_ACTIVE_ENABLED]),
		.ext = a->info[INFO_EXT_ENABLED] & b->info[INFO_EXT_ENABLED] & 0xf,
		.ext2 = port_ext2_enabled(a) & port_ext2_enabled(b) & 3,
	};

	if (a->is_limited) {
		widths &= a->limit_width;
		speed.basic &= a->limit_speed;
		speed.ext &= a->limit_ext;
		speed.ext2 &= a->limit_ext2;
	}
	rate->width = width_best(widths);
	rate->speed.basic = bit_highest(speed.basic);
	rate->speed.ext = bit_highest(speed.ext);
	rate->speed.ext2 = bit_highest(speed.ext2);
	return rate->width && (speed.basic || speed.ext || speed.ext2);
}

static bool end_is_willing(const struct fabric *fabric, const struct fabric_port *port)
{
	uint8_t physical = port_physical(port);

	return !fabric->nodes[port->node].is_off && !port->is_cut && physical != PHYSICAL_SLEEP &&
	       physical != PHYSICAL_DISABLED;
}

/* The switch remembers that a port's state changed, and its manager gets a trap. */
static void state_announce(struct fabric *fabric, const struct fabric_port *port)
{
	struct fabric_node *node = &fabric->nodes[port->node];

	if (node->type != FABRIC_SWITCH || node->is_off)
		return;
	node->switch_info_flags |= 4;
	trap_link_state(fabric, node->first_port);
}

static void end_up(struct fabric *fabric, struct fabric_port *port, const struct link_rate *rate)
{
	port_set_physical(port, PHYSICAL_LINK_UP);
	port_set_state(port, PORT_INIT);
	port->info[INFO_WIDTH_ACTIVE] = rate->width;
	octet_set_high(&port->info[INFO_SPEED_ACTIVE_ENABLED], rate->speed.basic);
	octet_set_high(&port->info[INFO_EXT_ACTIVE_SUPPORTED], rate->speed.ext);
	port_set_ext2(port, rate->speed.ext2, port_ext2_supported(port), port_ext2_enabled(port));
	state_announce(fabric, port);
}

static void end_down(struct fabric *fabric, uint32_t row, bool counts)
{
	struct fabric_port *port = &fabric->ports[row];
	bool was_active = port_state(port) == PORT_ACTIVE;

	if (port_state(port) == PORT_DOWN)
		return;
	port_set_state(port, PORT_DOWN);
	if (port_physical(port) == PHYSICAL_LINK_UP)
		port_set_physical(port, PHYSICAL_POLLING);
	if (counts)
		fabric_error_add(fabric, row, ERROR_LINK_DOWNED, 1);
	if (was_active && port->is_end_port)
		fabric->functions->event(fabric->context, row, EVENT_PORT_ERROR);
	state_announce(fabric, port);
}

void link_drop(struct fabric *fabric, uint32_t port, bool blames_peer)
{
	uint32_t peer = fabric->ports[port].cable;

	if (!fabric->ports[port].number)
		return;
	end_down(fabric, port, !blames_peer);
	if (peer != FABRIC_NONE)
		end_down(fabric, peer, true);
	fabric_touch(fabric);
}

void link_settle(struct fabric *fabric, uint32_t port, bool is_failure)
{
	struct fabric_port *a = &fabric->ports[port];
	struct fabric_port *b = port_at(fabric, a->cable);
	struct link_rate rate;
	bool can, is_up;

	if (!a->number)
		return;
	can = b && end_is_willing(fabric, a) && end_is_willing(fabric, b) &&
	      rate_negotiate(a, b, &rate);
	is_up = port_state(a) != PORT_DOWN || (b && port_state(b) != PORT_DOWN);
	if (can && !is_up) {
		end_up(fabric, a, &rate);
		end_up(fabric, b, &rate);
		fabric_touch(fabric);
	} else if (!can && is_up) {
		link_drop(fabric, port, !is_failure);
	}
}

/* What `verbena fabric` does ------------------------------------------------------------------- */

int fabric_cable_set(struct fabric *fabric, uint32_t port, bool is_cut, uint64_t now_ms)
{
	struct fabric_port *peer = port_at(fabric, fabric->ports[port].cable);

	if (!peer)
		return -ENOTCONN;
	fabric->now_ms = now_ms;
	fabric->ports[port].is_cut = peer->is_cut = is_cut;
	link_settle(fabric, port, true);
	return 0;
}

/* Whether a link over the cable can be that good. */
static bool rate_is_possible(const struct fabric_port *port, uint8_t width,
			     struct fabric_speed speed)
{
	return (port->info[INFO_WIDTH_SUPPORTED] & width) == width &&
	       (octet_high(port->info[INFO_SPEED_SUPPORTED_STATE]) & speed.basic) == speed.basic &&
	       (octet_low(port->info[INFO_EXT_ACTIVE_SUPPORTED]) & speed.ext) == speed.ext &&
	       (port_ext2_supported(port) & speed.ext2) == speed.ext2;
}

static void rate_limit(struct fabric_port *port, uint8_t widths, const struct fabric_speed *speeds)
{
	port->is_limited = widths != 0;
	port->limit_width = widths;
	port->limit_speed = speeds->basic;
	port->limit_ext = speeds->ext;
	port->limit_ext2 = speeds->ext2;
}

int fabric_rate_set(struct fabric *fabric, uint32_t port, uint8_t width, struct fabric_speed speed,
		    uint64_t now_ms)
{
	struct fabric_port *peer = port_at(fabric, fabric->ports[port].cable);
	uint8_t widths = widths_upto(width);
	struct fabric_speed speeds = speeds_upto(speed);

	if (!peer)
		return -ENOTCONN;
	if (width && (!widths || !rate_is_possible(&fabric->ports[port], width, speed) ||
		      !rate_is_possible(peer, width, speed)))
		return -EINVAL;
	fabric->now_ms = now_ms;
	rate_limit(&fabric->ports[port], widths, &speeds);
	rate_limit(peer, widths, &speeds);
	link_drop(fabric, port, false);
	link_settle(fabric, port, true);
	return 0;
}

void fabric_power_set(struct fabric *fabric, uint32_t node, bool is_on, uint64_t now_ms)
{
	struct fabric_node *row = &fabric->nodes[node];

	if (row->is_off == !is_on)
		return;
	fabric->now_ms = now_ms;
	if (is_on)
		node_tables_clear(fabric, node);
	row->is_off = !is_on;
	for (unsigned int number = 1; number <= row->ports; number++)
		link_settle(fabric, row->first_port + number, true);
	fabric_touch(fabric);
}

void fabric_issm_set(struct fabric *fabric, uint32_t port, bool is_open, uint64_t now_ms)
{
	struct fabric_port *row = &fabric->ports[port];
	uint32_t capabilities = octets_get32(row->info + INFO_CAPABILITIES);

	if (row->has_issm == is_open)
		return;
	fabric->now_ms = now_ms;
	row->has_issm = is_open;
	octets_put32(row->info + INFO_CAPABILITIES,
		     is_open ? capabilities | CAPABILITY_IS_SM : capabilities & ~CAPABILITY_IS_SM);
	trap_local_change(fabric, port, CHANGE_CAPABILITIES);
}

void fabric_description_set(struct fabric *fabric, uint32_t node, const char *text, uint64_t now_ms)
{
	struct fabric_node *row = &fabric->nodes[node];

	fabric->now_ms = now_ms;
	description_store(row, text);
	trap_local_change(fabric, row->first_port + (row->type != FABRIC_SWITCH),
			  CHANGE_DESCRIPTION);
}

void fabric_system_guid_set(struct fabric *fabric, uint32_t node, uint64_t guid, uint64_t now_ms)
{
	struct fabric_node *row = &fabric->nodes[node];

	fabric->now_ms = now_ms;
	row->system_guid = guid;
	trap_system_guid(fabric, row->first_port + (row->type != FABRIC_SWITCH));
}

/* Counters ------------------------------------------------------------------------------------- */

void fabric_error_add(struct fabric *fabric, uint32_t port, enum fabric_error error, uint32_t count)
{
	static const uint32_t limits[ERRORS] = {
		[ERROR_SYMBOL] = 0xffff,
		[ERROR_LINK_RECOVERY] = 0xff,
		[ERROR_LINK_DOWNED] = 0xff,
		[ERROR_RCV] = 0xffff,
		[ERROR_RCV_REMOTE_PHYSICAL] = 0xffff,
		[ERROR_RCV_SWITCH_RELAY] = 0xffff,
		[ERROR_XMIT_DISCARDS] = 0xffff,
		[ERROR_XMIT_CONSTRAINT] = 0xff,
		[ERROR_RCV_CONSTRAINT] = 0xff,
		[ERROR_LOCAL_INTEGRITY] = 0xf,
		[ERROR_BUFFER_OVERRUN] = 0xf,
		[ERROR_QP1_DROPPED] = 0xffff,
		[ERROR_VL15_DROPPED] = 0xffff,
		[ERROR_XMIT_WAIT] = UINT32_MAX,
		[ERROR_FLOW_CONTROL] = 3,
	};
	struct fabric_counters *counters = &fabric->counters[port];
	uint32_t room = limits[error] - counters->errors_short[error];

	counters->errors[error] += count;
	counters->errors_short[error] += count < room ? count : room;
	if (count && error == ERROR_LOCAL_INTEGRITY)
		trap_threshold(fabric, port, 129);
	if (count && error == ERROR_BUFFER_OVERRUN)
		trap_threshold(fabric, port, 130);
	if (count && error == ERROR_FLOW_CONTROL)
		trap_threshold(fabric, port, 131);
}

void fabric_wait_add(struct fabric *fabric, uint32_t port, uint8_t vl, uint32_t ticks)
{
	uint16_t *lane = &fabric->lane_waits[(size_t)port * FABRIC_VLS + vl];
	uint32_t room = UINT16_MAX - *lane;

	*lane += (uint16_t)(ticks < room ? ticks : room);
	fabric_error_add(fabric, port, ERROR_XMIT_WAIT, ticks);
}

void detail_count(struct fabric *fabric, uint32_t port, enum fabric_detail detail)
{
	uint16_t *value = &fabric->counters[port].details[detail];

	*value += *value < UINT16_MAX;
}

void fabric_counters_clear(struct fabric *fabric, uint32_t port)
{
	memset(&fabric->counters[port], 0, sizeof fabric->counters[port]);
	memset(&fabric->sl_words[(size_t)port * 2 * FABRIC_SLS], 0,
	       2 * FABRIC_SLS * sizeof *fabric->sl_words);
	memset(&fabric->lane_waits[(size_t)port * FABRIC_VLS], 0,
	       FABRIC_VLS * sizeof *fabric->lane_waits);
}

static void end_count(struct fabric_counters *counters, bool is_receiver, uint64_t packets,
		      uint64_t words, bool is_multicast)
{
	uint64_t *traffic = counters->traffic;
	uint32_t *words_short = &counters->traffic_short[TRAFFIC_XMIT_WORDS + is_receiver];
	uint32_t *packets_short = &counters->traffic_short[TRAFFIC_XMIT_PACKETS + is_receiver];
	int kind = is_multicast ? TRAFFIC_MULTICAST_XMIT : TRAFFIC_UNICAST_XMIT;

	traffic[TRAFFIC_XMIT_WORDS + is_receiver] += words;
	traffic[TRAFFIC_XMIT_PACKETS + is_receiver] += packets;
	traffic[kind + is_receiver] += packets;
	*words_short =
		words < UINT32_MAX - *words_short ? *words_short + (uint32_t)words : UINT32_MAX;
	*packets_short = packets < UINT32_MAX - *packets_short ? *packets_short + (uint32_t)packets
							       : UINT32_MAX;
}

static void sl_count(uint32_t *words, uint64_t more)
{
	*words = more < UINT32_MAX - *words ? *words + (uint32_t)more : UINT32_MAX;
}

void traffic_count(struct fabric *fabric, const struct route_hop *hop, uint64_t packets,
		   uint64_t words, bool is_multicast)
{
	end_count(&fabric->counters[hop->egress], false, packets, words, is_multicast);
	end_count(&fabric->counters[hop->ingress], true, packets, words, is_multicast);
	if (hop->vl == 15)
		return;
	sl_count(&fabric->sl_words[(size_t)hop->egress * 2 * FABRIC_SLS + hop->sl], words);
	sl_count(&fabric->sl_words[((size_t)hop->ingress * 2 + 1) * FABRIC_SLS + hop->sl], words);
}
