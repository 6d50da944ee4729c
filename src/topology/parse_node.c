/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A node's line: `Switch 8 "S1" # "a description" enhanced port 0 lid 3 lmc 0 ip=10.0.0.1/8`.
 * No state but the parser's. One thread at a time.
 */
#include <errno.h>
#include <string.h>

#include "topology/parse.h"

static const char *kind_word(enum topology_kind kind)
{
	return kind == TOPOLOGY_SWITCH ? "a switch"
	       : kind == TOPOLOGY_CA   ? "an adapter"
				       : "a router";
}

/* What the comment of a node's line says. */
struct node_comment {
	struct topology_slice description;
	struct topology_address address;
	uint64_t lid, lmc;
	bool has_base_port0, has_enhanced_port0, has_address;
};

static const char *slice_search(const struct topology_slice *slice, const char *word)
{
	return slice->bytes ? memmem(slice->text, slice->bytes, word, strlen(word)) : NULL;
}

/* Takes a description without quotation marks: it ends before one of these words. */
static void take_plain_description(struct topology_slice *rest, struct topology_slice *text)
{
	static const char *const ends[] = {"enhanced port 0", "base port 0", "lid ", "lmc ", "ip="};

	*text = *rest;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const char *end = slice_search(text, ends[i]);

		if (end && (end == text->text || end[-1] == ' ' || end[-1] == '\t'))
			text->bytes = (size_t)(end - text->text);
	}
	rest->text += text->bytes;
	rest->bytes -= text->bytes;
	slice_trim(text);
}

static void node_address_parse(struct parser *parser, struct topology_slice word,
			       struct node_comment *out)
{
	out->has_address = topology_address_parse(&out->address, word.text + 3, word.bytes - 3);
	if (!out->has_address)
		topology_remark_error(parser->report, parser->line,
				      "`%.*s` is no IP address such as ip=10.0.0.3/8",
				      (int)(word.bytes < 60 ? word.bytes : 60), word.text);
}

static void node_comment_parse(struct parser *parser, struct topology_slice rest,
			       struct node_comment *out)
{
	struct topology_slice word;

	memset(out, 0, sizeof(*out));
	if (!slice_take_quoted(&rest, &out->description))
		take_plain_description(&rest, &out->description);
	out->has_base_port0 = slice_search(&rest, "base port 0") != NULL;
	out->has_enhanced_port0 = slice_search(&rest, "enhanced port 0") != NULL;
	while (slice_take_word(&rest, &word)) {
		if (word.bytes == 3 && slice_begins(&word, "lid"))
			slice_take_number(&rest, 10, &out->lid);
		else if (word.bytes == 3 && slice_begins(&word, "lmc"))
			slice_take_number(&rest, 10, &out->lmc);
		else if (slice_begins(&word, "ip="))
			node_address_parse(parser, word, out);
	}
}

/* Sets what lines before the node gave it. */
static void node_take_settings(struct parser *parser, struct topology_node *node)
{
	struct guid_counter *counter = &parser->guids[node->kind];
	struct topology_port *ports = &parser->topology->ports[node->first_port];

	if (counter->is_given) {
		node->guid = counter->next;
		counter->next += node->kind == TOPOLOGY_SWITCH ? 1 : node->ports + 1u;
	}
	if (node->kind == TOPOLOGY_SWITCH)
		ports[0].guid = parser->port_guid;
	node->system_guid = parser->system_guid;
	node->vendor_id = parser->vendor_id;
	node->device_id = parser->device_id;
	parser->system_guid = parser->port_guid = 0;
	parser->vendor_id = parser->device_id = 0;
}

/* A description may have any bytes in a real cluster; those that aren't text are replaced. */
static const char *description_clean(struct parser *parser, struct topology_slice slice)
{
	char copy[TOPOLOGY_NAME_MAX + 1];
	size_t bytes = slice.bytes < TOPOLOGY_NAME_MAX ? slice.bytes : TOPOLOGY_NAME_MAX;

	memcpy(copy, slice.text, bytes);
	if (bytes && !topology_text_is_name(copy, bytes))
		for (size_t i = 0; i < bytes; i++)
			if (copy[i] < ' ' || copy[i] > '~' || copy[i] == '"')
				copy[i] = '.';
	return topology_text_copy(parser->topology, copy, bytes);
}

static void node_take_comment(struct parser *parser, uint32_t row, struct topology_slice text)
{
	struct topology *topology = parser->topology;
	struct topology_node *node = &topology->nodes[row];
	struct topology_port *port = &topology->ports[node->first_port];
	struct node_comment comment;

	node_comment_parse(parser, text, &comment);
	if (comment.description.bytes)
		node->description = description_clean(parser, comment.description);
	if (!node->description)
		parser->failure = -ENOMEM;
	node->has_base_port0 = comment.has_base_port0;
	if (comment.lid > TOPOLOGY_LID_MAX || comment.lmc > 7)
		topology_remark_error(parser->report, parser->line,
				      "LID %llu with LMC %llu: LIDs end at %u, LMCs at 7",
				      (unsigned long long)comment.lid,
				      (unsigned long long)comment.lmc, TOPOLOGY_LID_MAX);
	else if (node->kind == TOPOLOGY_SWITCH) {
		port->lid = (uint16_t)comment.lid;
		port->lmc = (uint8_t)comment.lmc;
	}
	if (comment.has_address && node->kind != TOPOLOGY_SWITCH &&
	    topology_set_address(topology, node->first_port + 1, &comment.address))
		parser->failure = -ENOMEM;
	else if (comment.has_address && node->kind == TOPOLOGY_SWITCH)
		topology_remark_warning(parser->report, parser->line,
					"a switch has no use for an IP address");
}

static void node_add(struct parser *parser, enum topology_kind kind, struct topology_slice name,
		     unsigned int ports, struct topology_slice comment)
{
	char text[TOPOLOGY_NAME_MAX + 1];
	uint32_t row, first;
	int err;

	if (!topology_text_is_name(name.text, name.bytes)) {
		topology_remark_error(parser->report, parser->line,
				      "a name is 1 to %u bytes of printable UTF-8",
				      TOPOLOGY_NAME_MAX);
		return;
	}
	memcpy(text, name.text, name.bytes);
	text[name.bytes] = '\0';
	first = topology_find_slice(parser->topology, name.text, name.bytes);
	if (first != TOPOLOGY_NONE) {
		topology_remark_error(parser->report, parser->line,
				      "a second node with the name \"%s\"; the first is in line %u",
				      text, parser->topology->nodes[first].line);
		return;
	}
	err = topology_add_node(parser->topology, kind, text, NULL, ports, &row);
	if (err == -ENOSPC)
		topology_remark_error(parser->report, parser->line,
				      "more than %u nodes: a subnet hasn't got more LIDs",
				      TOPOLOGY_NODES_MAX);
	if (err) {
		parser->failure = err == -ENOSPC ? -EINVAL : err;
		return;
	}
	parser->topology->nodes[row].line = parser->line;
	parser->node = row;
	parser->skips_ports = false;
	node_take_settings(parser, &parser->topology->nodes[row]);
	node_take_comment(parser, row, comment);
}

void parse_node(struct parser *parser, enum topology_kind kind, struct topology_slice rest)
{
	struct topology_slice comment, name;
	uint64_t ports;

	parser->node = TOPOLOGY_NONE;
	parser->skips_ports = true;
	slice_split_comment(&rest, &comment);
	if (!slice_take_number(&rest, 10, &ports) || !ports || ports > TOPOLOGY_PORTS_MAX)
		topology_remark_error(parser->report, parser->line,
				      "the number of %s's ports is missing or not in 1 to %u, as "
				      "in: %s 8 \"name\"",
				      kind_word(kind), TOPOLOGY_PORTS_MAX,
				      kind == TOPOLOGY_SWITCH ? "Switch"
				      : kind == TOPOLOGY_CA   ? "Hca"
							      : "Rt");
	else if (!slice_take_quoted(&rest, &name))
		topology_remark_error(parser->report, parser->line,
				      "%s's name is missing: it stands in quotation marks",
				      kind_word(kind));
	else
		node_add(parser, kind, module_name(parser, name), (unsigned int)ports, comment);
}
