/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the parser's files only: what is known while a topology file is read. */
#ifndef VERBENA_TOPOLOGY_PARSE_H
#define VERBENA_TOPOLOGY_PARSE_H

#include "topology/private.h"

/* What a port's line says of the other end of its cable. */
struct half_cable {
	struct topology_slice remote; /* name; of the file's text */
	uint32_t port;		      /* row */
	uint32_t line;
	uint16_t remote_port; /* number */
};

/* GUIDs of nodes of a kind: given by lines such as `switchguid=`, and counted on from there. */
struct guid_counter {
	uint64_t base, next;
	bool is_given;
};

/* `@[3] "up"`: "module@up" is this port. */
struct port_alias {
	struct topology_slice name; /* of the topology's texts */
	uint32_t port;		    /* row */
	uint32_t line;
};

#define TOPOLOGY_MODULE_MAX 31u
#define TOPOLOGY_PATH_MAX 4096u
#define TOPOLOGY_BYTES_MAX (512u << 20) /* of a file, and of all that it includes */

struct parser {
	struct topology *topology;
	struct topology_report *report;
	struct half_cable *halves;
	uint32_t half_count, half_room;
	struct port_alias *aliases;
	uint32_t alias_count, alias_room;
	/* Included files: their texts, where names are looked up, how deep reading is. */
	char **included;
	uint32_t included_count, included_room;
	size_t included_bytes;
	char directory[TOPOLOGY_PATH_MAX];
	uint32_t depth;
	bool may_include;
	char module[TOPOLOGY_MODULE_MAX + 1]; /* before names; "": none */
	uint32_t line;
	/* The node that port lines belong to; TOPOLOGY_NONE: none. */
	uint32_t node;
	/* After a node's line that was wrong, its port lines mean nothing. */
	bool skips_ports;
	int failure; /* -ENOMEM: reading ends */
	/* Settings for nodes that follow. */
	struct guid_counter guids[4]; /* by enum topology_kind */
	uint64_t system_guid, port_guid;
	uint32_t vendor_id, device_id;
	uint8_t width, speed, speed_extended; /* bits of what is enabled; 0: not given */
};

/* parse_text.c: pieces of a line. Each takes what it names from the front of `rest`. */
void slice_trim(struct topology_slice *slice);
bool slice_begins(const struct topology_slice *slice, const char *word);
bool slice_take(struct topology_slice *rest, const char *word);
bool slice_take_number(struct topology_slice *rest, int base, uint64_t *value);
bool slice_take_quoted(struct topology_slice *rest, struct topology_slice *text);
/* The next word that ends at white space. False: there is none. */
bool slice_take_word(struct topology_slice *rest, struct topology_slice *word);
/* Splits at the first `#` that isn't in quotes: `comment` is what follows it. */
void slice_split_comment(struct topology_slice *line, struct topology_slice *comment);

/* parse_node.c: the line that begins a node. */
void parse_node(struct parser *parser, enum topology_kind kind, struct topology_slice rest);
/* parse_port.c: a line `[1](guid) "name"[2]`. */
void parse_port(struct parser *parser, struct topology_slice rest);
/* parse.c */
void parse_lines(struct parser *parser, const char *text, size_t bytes);
/* Reads to the end of the file. *text is to be freed, after an error, too. 0 or a negative errno:
 * -EFBIG: it has more than `most` bytes. */
int topology_file_read(int fd, size_t most, char **text, size_t *bytes);
/* parse_modules.c: lines `module=`, `include`, aliases; names with the module's before them. */
void parse_module(struct parser *parser, struct topology_slice rest);
void parse_include(struct parser *parser, struct topology_slice rest);
struct topology_slice module_name(struct parser *parser, struct topology_slice name);
void alias_add(struct parser *parser, uint32_t port, struct topology_slice name);
/* Between the last alias_add() and the first alias_find(): reports aliases that two ports have. */
void aliases_sort(struct parser *parser);
uint32_t alias_find(const struct parser *parser, struct topology_slice name);
void modules_free(struct parser *parser);
/* parse_cables.c: joins all half cables, or says what is wrong with them. */
void parse_cables(struct parser *parser);
/* parse_check.c: what no single line shows: GUIDs and LIDs that two have; better names. */
void parse_check(struct parser *parser);

#endif
