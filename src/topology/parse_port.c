/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port's line: `[7](200001) "S2"[7](200002) w=2 s=7 e=7 # lid 6 lmc 0 "S2" lid 3 4xHDR
 * delay=200ns`, of which number and name are needed; `@[7] "up"` gives the port an alias. No state
 * but the parser's.
 */
#include <errno.h>
#include <string.h>

#include "topology/parse.h"

static int port_shown_bytes(struct topology_slice slice)
{
	return (int)(slice.bytes < 60 ? slice.bytes : 60);
}

/* `[7]`, and anything else in brackets behind it, such as `[ext 5]` of a chassis. */
static bool take_port_number(struct topology_slice *rest, uint64_t *number)
{
	const char *end;

	if (!slice_take(rest, "[") || !slice_take_number(rest, 10, number) ||
	    !slice_take(rest, "]"))
		return false;
	while (slice_take(rest, "[")) {
		end = memchr(rest->text, ']', rest->bytes);
		if (!end)
			return false;
		rest->bytes -= (size_t)(end + 1 - rest->text);
		rest->text = end + 1;
	}
	return true;
}

/* `(100007)`, in hexadecimal; 0 when there is none. False: it isn't closed, or no number. */
static bool take_guid(struct topology_slice *rest, uint64_t *guid)
{
	*guid = 0;
	return !slice_take(rest, "(") ||
	       (slice_take_number(rest, 16, guid) && slice_take(rest, ")"));
}

/* The highest width among bits of enabled ones, in lanes' order. */
static uint8_t width_highest(uint64_t enabled)
{
	static const uint8_t order[] = {8, 4, 2, 16, 1};

	for (size_t i = 0; i < sizeof(order); i++)
		if (enabled & order[i])
			return order[i];
	return 0;
}

static uint8_t speed_highest(uint64_t basic, uint64_t extended)
{
	if (extended & 8)
		return TOPOLOGY_NDR;
	if (extended & 4)
		return TOPOLOGY_HDR;
	if (extended & 2)
		return TOPOLOGY_EDR;
	if (extended & 1)
		return TOPOLOGY_FDR;
	return basic & 4 ? TOPOLOGY_QDR : basic & 2 ? TOPOLOGY_DDR : basic & 1 ? TOPOLOGY_SDR : 0;
}

/* `w=2 s=7 e=7`: bits of what is enabled. */
static void port_options_parse(struct parser *parser, struct topology_slice rest,
			       struct topology_port *port)
{
	uint64_t width = parser->width, basic = parser->speed, extended = parser->speed_extended;
	struct topology_slice word;

	while (slice_take_word(&rest, &word)) {
		char letter = *word.text;
		uint64_t value = 0;
		struct topology_slice number = {word.text + 2, word.bytes - 2};

		if (word.bytes < 3 || !strchr("wse", letter) || word.text[1] != '=' ||
		    !slice_take_number(&number, 10, &value) || number.bytes ||
		    value > (letter == 'w'   ? 31
			     : letter == 's' ? 7
					     : 15)) {
			topology_remark_error(
				parser->report, parser->line,
				"`%.*s` isn't w=1..31 (width), s=1..7 or e=0..15 (speed)",
				port_shown_bytes(word), word.text);
			return;
		}
		*(letter == 'w' ? &width : letter == 's' ? &basic : &extended) = value;
	}
	port->width = width_highest(width);
	port->speed = speed_highest(basic, extended);
}

/* `4xHDR`. False: it is something else. */
static bool link_parse(struct topology_slice word, struct topology_port *port)
{
	static const uint8_t widths[] = {1, 2, 4, 8, 16};
	uint64_t lanes;

	if (*word.text < '1' || *word.text > '9' || !slice_take_number(&word, 10, &lanes) ||
	    !slice_take(&word, "x"))
		return false;
	for (size_t i = 0; i < sizeof(widths); i++) {
		if (topology_lanes(widths[i]) != lanes)
			continue;
		port->width = widths[i];
		for (unsigned int speed = 1; speed < TOPOLOGY_SPEEDS; speed++) {
			const char *name = topology_speed_name(speed);

			if (strlen(name) == word.bytes && slice_begins(&word, name))
				port->speed = (uint8_t)speed;
		}
		return true;
	}
	return false;
}

static void port_address_parse(struct parser *parser, uint32_t row, struct topology_slice text)
{
	struct topology_address address;

	if (!topology_address_parse(&address, text.text, text.bytes))
		topology_remark_error(parser->report, parser->line,
				      "`ip=%.*s` is no IP address such as ip=10.0.0.3/8",
				      port_shown_bytes(text), text.text);
	else if (parser->topology->nodes[parser->node].kind == TOPOLOGY_SWITCH)
		topology_remark_warning(parser->report, parser->line,
					"a switch has no use for an IP address");
	else if (topology_set_address(parser->topology, row, &address))
		parser->failure = -ENOMEM;
}

/* One of Verbena's own: `delay=200ns`, `mtu=2048`, `ip=10.0.0.3/8`. */
static void port_attribute_parse(struct parser *parser, uint32_t row, struct topology_slice word)
{
	struct topology_port *port = &parser->topology->ports[row];
	struct topology_slice value = word;
	uint64_t number;

	if (slice_take(&value, "ip=")) {
		port_address_parse(parser, row, value);
	} else if (slice_take(&value, "delay=")) {
		if (!topology_delay_parse(&port->delay_ns, value.text, value.bytes))
			topology_remark_error(parser->report, parser->line,
					      "`%.*s` is no time up to 1s, such as delay=200ns",
					      port_shown_bytes(word), word.text);
	} else if (slice_take(&value, "mtu=")) {
		port->mtu = slice_take_number(&value, 10, &number) && !value.bytes
				    ? (uint8_t)topology_mtu_code(number)
				    : 0;
		if (!port->mtu)
			topology_remark_error(
				parser->report, parser->line,
				"`%.*s`: an MTU is 256, 512, 1024, 2048 or 4096 bytes",
				port_shown_bytes(word), word.text);
	}
}

/* `# lid 6 lmc 0 "S2" lid 3 4xHDR`: what is before the name is this port's, behind it the
 * other's, but for the link. */
static void port_comment_parse(struct parser *parser, uint32_t row, struct topology_slice rest)
{
	struct topology_port *port = &parser->topology->ports[row];
	bool is_own = parser->topology->nodes[port->node].kind != TOPOLOGY_SWITCH;
	struct topology_slice word;
	uint64_t lid = 0, lmc = 0;

	while (rest.bytes) {
		if (slice_take_quoted(&rest, &word)) {
			is_own = false;
			continue;
		}
		if (!slice_take_word(&rest, &word))
			break;
		if (is_own && word.bytes == 3 && slice_begins(&word, "lid"))
			slice_take_number(&rest, 10, &lid);
		else if (is_own && word.bytes == 3 && slice_begins(&word, "lmc"))
			slice_take_number(&rest, 10, &lmc);
		else if (!link_parse(word, port))
			port_attribute_parse(parser, row, word);
	}
	if (lid > TOPOLOGY_LID_MAX || lmc > 7) {
		topology_remark_error(parser->report, parser->line,
				      "LID %llu with LMC %llu: LIDs end at %u, LMCs at 7",
				      (unsigned long long)lid, (unsigned long long)lmc,
				      TOPOLOGY_LID_MAX);
		return;
	}
	port->lid = (uint16_t)lid;
	port->lmc = (uint8_t)lmc;
}

/* The row of the port that the line is about; TOPOLOGY_NONE: there is none, which was said. */
static uint32_t port_row(struct parser *parser, uint64_t number)
{
	const struct topology_node *node = &parser->topology->nodes[parser->node];
	const struct topology_port *port;
	uint32_t row;

	if (!number || number > node->ports) {
		topology_remark_error(parser->report, parser->line,
				      "port %llu: \"%.60s\" has ports 1 to %u",
				      (unsigned long long)number, node->name, node->ports);
		return TOPOLOGY_NONE;
	}
	row = node->first_port + (uint32_t)number;
	port = &parser->topology->ports[row];
	if (port->line) {
		topology_remark_error(parser->report, parser->line,
				      "port %llu of \"%.60s\" has a cable already, in line %u",
				      (unsigned long long)number, node->name, port->line);
		return TOPOLOGY_NONE;
	}
	return row;
}

static void half_add(struct parser *parser, uint32_t row, struct topology_slice remote,
		     uint64_t remote_port)
{
	if (topology_rows_grow((void **)&parser->halves, &parser->half_room, parser->half_count,
			       sizeof(*parser->halves))) {
		parser->failure = -ENOMEM;
		return;
	}
	parser->halves[parser->half_count++] = (struct half_cable){
		.remote = remote,
		.port = row,
		.line = parser->line,
		.remote_port = (uint16_t)(remote_port < UINT16_MAX ? remote_port : UINT16_MAX),
	};
}

void parse_port(struct parser *parser, struct topology_slice rest)
{
	struct topology_slice comment, remote;
	uint64_t number, remote_port = 1, guid, remote_guid;
	uint32_t row;
	bool is_alias;

	if (parser->skips_ports)
		return;
	if (parser->node == TOPOLOGY_NONE) {
		topology_remark_error(parser->report, parser->line,
				      "a port that belongs to no node: the node's line is missing, "
				      "or there is an empty line before this one");
		return;
	}
	slice_split_comment(&rest, &comment);
	is_alias = slice_take(&rest, "@");
	if (!take_port_number(&rest, &number) || !take_guid(&rest, &guid) ||
	    !slice_take_quoted(&rest, &remote) ||
	    (rest.bytes && *rest.text == '[' && !take_port_number(&rest, &remote_port)) ||
	    !take_guid(&rest, &remote_guid)) {
		topology_remark_error(parser->report, parser->line,
				      "not a port's line such as: [1] \"name\"[7]");
		return;
	}
	row = port_row(parser, number);
	if (row == TOPOLOGY_NONE)
		return;
	parser->topology->ports[row].line = parser->line;
	parser->topology->ports[row].guid = guid;
	port_options_parse(parser, rest, &parser->topology->ports[row]);
	port_comment_parse(parser, row, comment);
	if (is_alias)
		alias_add(parser, row, remote);
	else
		half_add(parser, row, module_name(parser, remote), remote_port);
}
