/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes, ports and cables in memory: rows that grow by doubling, names in blocks that never move,
 * and a hash table that finds a node by its name. Owns all of that. One thread at a time.
 */
#include "topology/topology.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topology/private.h"

#define TEXT_BLOCK_BYTES 65536u

/* A block of texts; the list begins with the newest. */
struct topology_text {
	struct topology_text *next;
	size_t used, room;
	char bytes[];
};

void topology_init(struct topology *topology)
{
	memset(topology, 0, sizeof(*topology));
	topology->title = "";
}

void topology_free(struct topology *topology)
{
	for (struct topology_text *block = topology->texts, *next; block; block = next) {
		next = block->next;
		free(block);
	}
	free(topology->nodes);
	free(topology->ports);
	free(topology->addresses);
	free(topology->index);
	topology_init(topology);
}

int topology_rows_grow(void **rows, uint32_t *room, uint32_t count, size_t row_bytes)
{
	uint32_t wanted = *room ? *room * 2 : 64;
	void *more;

	if (count < *room)
		return 0;
	more = reallocarray(*rows, wanted, row_bytes);
	if (!more)
		return -ENOMEM;
	*rows = more;
	*room = wanted;
	return 0;
}

const char *topology_text_copy(struct topology *topology, const char *text, size_t bytes)
{
	struct topology_text *block = topology->texts;
	char *copy;

	if (!block || block->room - block->used < bytes + 1) {
		size_t room = bytes >= TEXT_BLOCK_BYTES ? bytes + 1 : TEXT_BLOCK_BYTES;

		block = malloc(sizeof(*block) + room);
		if (!block)
			return NULL;
		*block = (struct topology_text){.next = topology->texts, .room = room};
		topology->texts = block;
	}
	copy = block->bytes + block->used;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	block->used += bytes + 1;
	return copy;
}

/* Names -------------------------------------------------------------------------------------- */

static uint32_t name_hash(const char *name, size_t bytes)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	return hash ^ hash >> 15;
}

/* The table's place of a name: that of its node, or a free one. The table is never full. */
static uint32_t *index_place(const struct topology *topology, const char *name, size_t bytes)
{
	uint32_t mask = topology->index_room - 1;

	for (uint32_t i = name_hash(name, bytes) & mask;; i = (i + 1) & mask) {
		uint32_t *place = &topology->index[i];
		const char *other;

		if (!*place)
			return place;
		other = topology->nodes[*place - 1].name;
		if (!strncmp(other, name, bytes) && !other[bytes])
			return place;
	}
}

int topology_index_names(struct topology *topology)
{
	uint32_t room = 128, *index;

	while (room / 2 < topology->node_count + 1)
		room *= 2;
	index = calloc(room, sizeof(*index));
	if (!index)
		return -ENOMEM;
	free(topology->index);
	topology->index = index;
	topology->index_room = room;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		const char *name = topology->nodes[i].name;

		*index_place(topology, name, strlen(name)) = i + 1;
	}
	return 0;
}

uint32_t topology_find_slice(const struct topology *topology, const char *name, size_t bytes)
{
	uint32_t node = topology->index ? *index_place(topology, name, bytes) : 0;

	return node ? node - 1 : TOPOLOGY_NONE;
}

static uint32_t node_find_guid(const struct topology *topology, const char *text)
{
	char *end;
	uint64_t guid = strtoull(text, &end, 16);

	if (*end || !guid)
		return TOPOLOGY_NONE;
	for (uint32_t i = 0; i < topology->node_count; i++)
		if (topology->nodes[i].guid == guid)
			return i;
	return TOPOLOGY_NONE;
}

uint32_t topology_find(const struct topology *topology, const char *name)
{
	uint32_t found = topology_find_slice(topology, name, strlen(name));

	if (found != TOPOLOGY_NONE)
		return found;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		if (strcmp(topology->nodes[i].description, name) != 0)
			continue;
		if (found != TOPOLOGY_NONE)
			return TOPOLOGY_NONE;
		found = i;
	}
	if (found == TOPOLOGY_NONE && !strncmp(name, "0x", 2))
		found = node_find_guid(topology, name);
	return found;
}

/* Length of the UTF-8 sequence that begins here; 0: it is none, or a control character's. */
static size_t character_bytes(const unsigned char *text, size_t bytes)
{
	size_t length = *text < 0x80 ? 1 : *text < 0xe0 ? 2 : *text < 0xf0 ? 3 : 4;
	uint32_t value = length == 1 ? *text : *text & (0x7fu >> length);

	if (*text < ' ' || *text == 0x7f || (*text >= 0x80 && *text < 0xc2) || *text > 0xf4 ||
	    length > bytes)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (text[i] & 0x3f);
	}
	if ((length == 2 && value < 0xa0) || (length == 3 && value < 0x800) ||
	    (length == 4 && value < 0x10000) || value > 0x10ffff ||
	    (value >= 0xd800 && value < 0xe000))
		return 0;
	return length;
}

bool topology_text_is_name(const char *text, size_t bytes)
{
	if (!bytes || bytes > TOPOLOGY_NAME_MAX)
		return false;
	while (bytes) {
		size_t length = character_bytes((const unsigned char *)text, bytes);

		if (!length || *text == '"')
			return false;
		text += length;
		bytes -= length;
	}
	return true;
}

/* Building ----------------------------------------------------------------------------------- */

static int ports_add(struct topology *topology, uint32_t node, unsigned int ports)
{
	for (unsigned int number = 0; number <= ports; number++) {
		int err = topology_rows_grow((void **)&topology->ports, &topology->port_room,
					     topology->port_count, sizeof(*topology->ports));

		if (err)
			return err;
		topology->ports[topology->port_count++] = (struct topology_port){
			.node = node,
			.peer = TOPOLOGY_NONE,
			.address = TOPOLOGY_NONE,
			.number = (uint8_t)number,
		};
	}
	return 0;
}

static const char *description_copy(struct topology *topology, const char *name,
				    const char *description)
{
	if (!description || !strcmp(description, name))
		return name;
	return topology_text_copy(topology, description, strlen(description));
}

int topology_add_node(struct topology *topology, enum topology_kind kind, const char *name,
		      const char *description, unsigned int ports, uint32_t *node)
{
	uint32_t row = topology->node_count;
	struct topology_node *new;
	size_t bytes = strlen(name);
	int err;

	if (!ports || ports > TOPOLOGY_PORTS_MAX || !topology_text_is_name(name, bytes))
		return -EINVAL;
	if (row == TOPOLOGY_NODES_MAX)
		return -ENOSPC;
	if (topology_find_slice(topology, name, bytes) != TOPOLOGY_NONE)
		return -EEXIST;
	err = topology_rows_grow((void **)&topology->nodes, &topology->node_room, row,
				 sizeof(*topology->nodes));
	if (err)
		return err;
	new = &topology->nodes[row];
	*new = (struct topology_node){
		.kind = (uint8_t)kind,
		.ports = (uint8_t)ports,
		.first_port = topology->port_count,
		.name = topology_text_copy(topology, name, bytes),
	};
	if (!new->name)
		return -ENOMEM;
	new->description = description_copy(topology, new->name, description);
	if (!new->description)
		return -ENOMEM;
	err = ports_add(topology, row, ports);
	if (err) {
		topology->port_count = new->first_port;
		return err;
	}
	topology->node_count++;
	if (topology->node_count * 2 > topology->index_room)
		err = topology_index_names(topology);
	else
		*index_place(topology, new->name, bytes) = topology->node_count;
	if (err) {
		topology->node_count--;
		topology->port_count = new->first_port;
		return err;
	}
	*node = row;
	return 0;
}

int topology_connect(struct topology *topology, uint32_t a, uint32_t b)
{
	if (a == b || topology->ports[a].peer != TOPOLOGY_NONE ||
	    topology->ports[b].peer != TOPOLOGY_NONE)
		return -EBUSY;
	topology->ports[a].peer = b;
	topology->ports[b].peer = a;
	topology->cable_count++;
	return 0;
}

uint32_t topology_port(const struct topology *topology, uint32_t node, unsigned int number)
{
	const struct topology_node *row;

	if (node >= topology->node_count)
		return TOPOLOGY_NONE;
	row = &topology->nodes[node];
	if (number > row->ports || (!number && row->kind != TOPOLOGY_SWITCH))
		return TOPOLOGY_NONE;
	return row->first_port + number;
}

/* Speeds ------------------------------------------------------------------------------------- */

unsigned int topology_speed_basic(enum topology_speed speed)
{
	return speed == TOPOLOGY_SDR ? 1 : speed == TOPOLOGY_DDR ? 2 : speed ? 4 : 0;
}

unsigned int topology_speed_extended(enum topology_speed speed)
{
	if (speed == TOPOLOGY_XDR)
		speed = TOPOLOGY_NDR;
	return speed >= TOPOLOGY_FDR && speed < TOPOLOGY_SPEEDS ? 1u << (speed - TOPOLOGY_FDR) : 0;
}

unsigned int topology_speed_extended2(enum topology_speed speed)
{
	return speed == TOPOLOGY_XDR;
}

enum topology_speed topology_speed_find(const char *name)
{
	for (enum topology_speed speed = TOPOLOGY_SDR; speed < TOPOLOGY_SPEEDS; speed++)
		if (!strcasecmp(topology_speed_name(speed), name))
			return speed;
	return 0;
}

unsigned int topology_width_find(const char *text)
{
	static const struct {
		const char *text;
		unsigned int width;
	} widths[] = {{"1x", 1}, {"2x", 16}, {"4x", 2}, {"8x", 4}, {"12x", 8}};

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		if (!strcasecmp(widths[i].text, text))
			return widths[i].width;
	return 0;
}

const char *topology_speed_name(enum topology_speed speed)
{
	static const char *const names[TOPOLOGY_SPEEDS] = {
		"", "SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR",
	};

	return speed < TOPOLOGY_SPEEDS ? names[speed] : "";
}

unsigned int topology_lanes(unsigned int width)
{
	switch (width) {
	case 1:
		return 1;
	case 2:
		return 4;
	case 4:
		return 8;
	case 8:
		return 12;
	case 16:
		return 2;
	default:
		return 0;
	}
}

unsigned int topology_mtu_code(unsigned long bytes)
{
	for (unsigned int code = 1; code <= 5; code++)
		if (bytes == 128ul << code)
			return code;
	return 0;
}
