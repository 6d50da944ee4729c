/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads topology files: ibsim's format, which is also what ibnetdiscover prints.
 *
 * Each line is read once: nodes and ports are stored at once, cables as halves, which are joined
 * at the end (parse_cables.c), since a line may name a node that follows later. A line that is
 * wrong is reported, and reading goes on. Owns the parser until it returns. One thread at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/parse.h"

#define TITLE_MARK "# Topology: "

/* Settings --------------------------------------------------------------------------------- */

/* `switchguid=0x200000(200001)`, `caguid+5`: for the nodes that follow. */
static bool setting_guid(struct parser *parser, enum topology_kind kind, struct topology_slice rest)
{
	struct guid_counter *counter = &parser->guids[kind];
	bool is_relative = slice_take(&rest, "+");
	uint64_t value;

	if ((!is_relative && !slice_take(&rest, "=")) || !slice_take_number(&rest, 16, &value))
		return false;
	if (!is_relative)
		counter->base = 0;
	if (value > UINT64_MAX - counter->base)
		return false;
	counter->next = counter->base + value;
	if (!is_relative)
		counter->base = value;
	counter->is_given = true;
	parser->port_guid = 0;
	if (slice_take(&rest, "(") &&
	    (!slice_take_number(&rest, 16, &parser->port_guid) || !slice_take(&rest, ")")))
		return false;
	return !rest.bytes;
}

static bool setting_number(struct topology_slice rest, uint64_t least, uint64_t most, uint64_t *out)
{
	uint64_t value;

	if (!slice_take(&rest, "=") || !slice_take_number(&rest, 10, &value) || rest.bytes ||
	    value < least || value > most)
		return false;
	*out = value;
	return true;
}

/* Takes a line `word=value`. 0: it is none; -1: the value is wrong. */
static int setting_parse(struct parser *parser, struct topology_slice line)
{
	static const struct {
		const char *word;
		enum topology_kind kind;
	} guids[] = {{"switchguid", TOPOLOGY_SWITCH},
		     {"hcaguids", TOPOLOGY_CA},
		     {"caguid", TOPOLOGY_CA},
		     {"rtguid", TOPOLOGY_ROUTER}};
	uint64_t value;

	for (size_t i = 0; i < sizeof(guids) / sizeof(guids[0]); i++)
		if (slice_take(&line, guids[i].word))
			return setting_guid(parser, guids[i].kind, line) ? 1 : -1;
	if (slice_take(&line, "vendid")) {
		if (!setting_number(line, 0, 0xffffff, &value))
			return -1;
		parser->vendor_id = (uint32_t)value;
	} else if (slice_take(&line, "devid")) {
		if (!setting_number(line, 0, UINT32_MAX, &value))
			return -1;
		parser->device_id = (uint32_t)value;
	} else if (slice_take(&line, "sysimgguid")) {
		return setting_number(line, 0, UINT64_MAX, &parser->system_guid) ? 1 : -1;
	} else if (slice_take(&line, "width")) {
		if (!setting_number(line, 1, 31, &value))
			return -1;
		parser->width = (uint8_t)value;
	} else if (slice_take(&line, "speed")) {
		if (!setting_number(line, 1, 7, &value))
			return -1;
		parser->speed = (uint8_t)value;
	} else if (slice_take(&line, "extspeed")) {
		if (!setting_number(line, 0, 15, &value))
			return -1;
		parser->speed_extended = (uint8_t)value;
	} else {
		return 0;
	}
	return 1;
}

/* Lines --------------------------------------------------------------------------------------- */

static int shown_bytes(struct topology_slice line)
{
	/* Not beyond the first byte that isn't plain text. */
	int n = 0;

	while (n < 60 && (size_t)n < line.bytes && line.text[n] >= ' ' && line.text[n] <= '~')
		n++;
	return n;
}

/* A line that is none of a node, a port, a setting or a comment. */
static void parse_other(struct parser *parser, struct topology_slice line)
{
	int known;

	parser->node = TOPOLOGY_NONE;
	parser->skips_ports = false;
	if (slice_take(&line, "include")) {
		parse_include(parser, line);
		return;
	}
	if (slice_take(&line, "module")) {
		parse_module(parser, line);
		return;
	}
	known = setting_parse(parser, line);
	if (known > 0)
		return;
	if (known < 0) {
		topology_remark_error(parser->report, parser->line, "no valid value in `%.*s`",
				      shown_bytes(line), line.text);
		return;
	}
	/* What ibnetdiscover prints between groups of nodes. */
	if (slice_begins(&line, "Chassis") || slice_begins(&line, "Non-Chassis"))
		return;
	topology_remark_warning(parser->report, parser->line,
				"this line isn't understood, and left out: `%.*s`",
				shown_bytes(line), line.text);
}

static void parse_comment(struct parser *parser, struct topology_slice line)
{
	struct topology *topology = parser->topology;

	if (!slice_begins(&line, TITLE_MARK) || topology->node_count)
		return;
	line.text += strlen(TITLE_MARK);
	line.bytes -= strlen(TITLE_MARK);
	slice_trim(&line);
	if (!topology_text_is_name(line.text, line.bytes))
		return;
	topology->title = topology_text_copy(topology, line.text, line.bytes);
	if (!topology->title)
		parser->failure = -ENOMEM;
}

static void parse_line(struct parser *parser, struct topology_slice line)
{
	static const struct {
		const char *word;
		enum topology_kind kind;
	} nodes[] = {{"Switch", TOPOLOGY_SWITCH},
		     {"Hca", TOPOLOGY_CA},
		     {"Ca", TOPOLOGY_CA},
		     {"Rt", TOPOLOGY_ROUTER}};
	struct topology_slice rest;

	slice_trim(&line);
	if (!line.bytes) {
		parser->node = TOPOLOGY_NONE;
		parser->skips_ports = false;
		return;
	}
	if (*line.text == '#') {
		parse_comment(parser, line);
		return;
	}
	if (*line.text == '[' || *line.text == '@') {
		parse_port(parser, line);
		return;
	}
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		rest = line;
		if (slice_take(&rest, nodes[i].word) && rest.bytes &&
		    strchr(" \t0123456789", *rest.text)) {
			parse_node(parser, nodes[i].kind, rest);
			return;
		}
	}
	parse_other(parser, line);
}

void parse_lines(struct parser *parser, const char *text, size_t bytes)
{
	while (bytes && !parser->failure) {
		const char *end = memchr(text, '\n', bytes);
		size_t length = end ? (size_t)(end - text) : bytes;

		/* Lines of an included file count there only. */
		if (parser->depth)
			parser->report->file_line++;
		else
			parser->line++;
		parse_line(parser, (struct topology_slice){text, length});
		length += end != NULL;
		text += length;
		bytes -= length;
	}
}

/* What topology_parse() does, with a parser that knows where included files are. */
static int parser_run(struct parser *parser, const char *text, size_t bytes, const char *title)
{
	struct topology *topology = parser->topology;
	struct topology_report *report = parser->report;
	int err;

	topology_init(topology);
	memset(report, 0, sizeof(*report));
	parse_lines(parser, text, bytes);
	if (!parser->failure)
		parse_cables(parser);
	if (!parser->failure)
		parse_check(parser);
	if (!parser->failure && !*topology->title)
		topology->title = topology_text_copy(topology, title, strlen(title));
	if (!topology->title)
		parser->failure = -ENOMEM;
	if (!parser->failure && !topology->node_count && !report->errors)
		topology_remark_error(
			report, 0, "there is no node in it; a node's line is: Switch 8 \"name\"");
	free(parser->halves);
	modules_free(parser);
	err = parser->failure ? parser->failure : report->errors ? -EINVAL : 0;
	if (err)
		topology_free(topology);
	return err;
}

int topology_parse(struct topology *topology, const char *text, size_t bytes, const char *title,
		   struct topology_report *report)
{
	struct parser parser = {.topology = topology, .report = report, .node = TOPOLOGY_NONE};

	return parser_run(&parser, text, bytes, title);
}

/* Files --------------------------------------------------------------------------------------- */

int topology_file_read(int fd, size_t most, char **text, size_t *bytes)
{
	size_t room = 1u << 20;
	ssize_t n;

	*bytes = 0;
	*text = malloc(room);
	while (*text) {
		n = read(fd, *text + *bytes, room - *bytes);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return 0;
		*bytes += n > 0 ? (size_t)n : 0;
		if (*bytes > most)
			return -EFBIG;
		if (*bytes < room)
			continue;
		room *= 2;
		char *more = realloc(*text, room);

		if (!more)
			return -ENOMEM;
		*text = more;
	}
	return -ENOMEM;
}

int topology_read(struct topology *topology, const char *path, struct topology_report *report)
{
	struct parser parser = {
		.topology = topology, .report = report, .node = TOPOLOGY_NONE, .may_include = true};
	bool is_stdin = !strcmp(path, "-");
	const char *name = is_stdin ? NULL : strrchr(path, '/');
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	char *text;
	size_t bytes;
	int err;

	topology_init(topology);
	memset(report, 0, sizeof(*report));
	if (fd < 0)
		return -errno;
	if (name && (size_t)(name - path) < sizeof(parser.directory))
		memcpy(parser.directory, path, (size_t)(name - path));
	err = topology_file_read(fd, TOPOLOGY_BYTES_MAX, &text, &bytes);
	if (!is_stdin)
		close(fd);
	if (!err)
		err = parser_run(&parser, text, bytes,
				 is_stdin ? "standard input"
				 : name	  ? name + 1
					  : path);
	free(text);
	return err;
}
