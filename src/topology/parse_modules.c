/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lets a topology be written in pieces, as ibsim has it: `module="A"` puts `A#` before the
 * names that follow, `@[3] "up"` gives a port an alias to which a cable of another piece may lead
 * ("A@up"), and `include "piece.net"` reads another file in place of the line. No state but the
 * parser's. One thread at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/parse.h"

#define INCLUDE_DEPTH_MAX 8u
#define INCLUDES_MAX 4096u

/* Names ------------------------------------------------------------------------------------ */

/* `prefix`, `mark` and `name` as a text of the topology. */
static struct topology_slice name_join(struct parser *parser, const char *mark,
				       struct topology_slice name)
{
	char text[2 * TOPOLOGY_NAME_MAX + 2];
	size_t bytes = name.bytes < TOPOLOGY_NAME_MAX ? name.bytes : TOPOLOGY_NAME_MAX;
	int n = snprintf(text, sizeof(text), "%s%s%.*s", parser->module, mark, (int)bytes,
			 name.text);
	const char *copy = topology_text_copy(parser->topology, text, (size_t)n);

	if (!copy) {
		parser->failure = -ENOMEM;
		return name;
	}
	return (struct topology_slice){copy, (size_t)n};
}

static bool slice_has(struct topology_slice slice, char c)
{
	return memchr(slice.text, c, slice.bytes) != NULL;
}

struct topology_slice module_name(struct parser *parser, struct topology_slice name)
{
	if (name.bytes && *name.text == '@')
		return name_join(parser, "", name);
	if (!*parser->module || slice_has(name, '#') || slice_has(name, '@'))
		return name;
	return name_join(parser, "#", name);
}

void parse_module(struct parser *parser, struct topology_slice rest)
{
	struct topology_slice name;

	slice_take(&rest, "=");
	if (!slice_take_quoted(&rest, &name) || rest.bytes || name.bytes > TOPOLOGY_MODULE_MAX ||
	    slice_has(name, '#') || slice_has(name, '@') ||
	    (name.bytes && !topology_text_is_name(name.text, name.bytes))) {
		topology_remark_error(parser->report, parser->line,
				      "a module is written module=\"A\": up to %u bytes without # "
				      "and @",
				      TOPOLOGY_MODULE_MAX);
		return;
	}
	memcpy(parser->module, name.text, name.bytes);
	parser->module[name.bytes] = '\0';
}

/* Aliases ---------------------------------------------------------------------------------- */

void alias_add(struct parser *parser, uint32_t port, struct topology_slice name)
{
	if (!topology_text_is_name(name.text, name.bytes) || slice_has(name, '#') ||
	    slice_has(name, '@')) {
		topology_remark_error(parser->report, parser->line,
				      "an alias is written @[3] \"name\", without # and @");
		return;
	}
	if (topology_rows_grow((void **)&parser->aliases, &parser->alias_room, parser->alias_count,
			       sizeof(*parser->aliases))) {
		parser->failure = -ENOMEM;
		return;
	}
	parser->aliases[parser->alias_count++] = (struct port_alias){
		.name = name_join(parser, "@", name),
		.port = port,
		.line = parser->line,
	};
}

static int slice_compare(struct topology_slice a, struct topology_slice b)
{
	int order = memcmp(a.text, b.text, a.bytes < b.bytes ? a.bytes : b.bytes);

	if (order || a.bytes == b.bytes)
		return order;
	return a.bytes < b.bytes ? -1 : 1;
}

static int alias_compare(const void *a, const void *b)
{
	return slice_compare(((const struct port_alias *)a)->name,
			     ((const struct port_alias *)b)->name);
}

void aliases_sort(struct parser *parser)
{
	if (parser->alias_count)
		qsort(parser->aliases, parser->alias_count, sizeof(*parser->aliases),
		      alias_compare);
	for (uint32_t i = 1; i < parser->alias_count; i++)
		if (!alias_compare(&parser->aliases[i - 1], &parser->aliases[i]))
			topology_remark_error(parser->report, parser->aliases[i].line,
					      "two ports have the alias \"%.*s\"",
					      (int)parser->aliases[i].name.bytes,
					      parser->aliases[i].name.text);
}

uint32_t alias_find(const struct parser *parser, struct topology_slice name)
{
	const struct port_alias wanted = {.name = name};
	const struct port_alias *found = NULL;

	if (parser->alias_count)
		found = bsearch(&wanted, parser->aliases, parser->alias_count,
				sizeof(*parser->aliases), alias_compare);
	return found ? found->port : TOPOLOGY_NONE;
}

/* Files ------------------------------------------------------------------------------------ */

/* A file's text: a pipe would make the program wait, a device might never end. */
static int include_try(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
		return fd;
	close(fd);
	errno = ENOTSUP;
	return -1;
}

/* Beside the file that includes it, or where the program is. A descriptor or a negative errno. */
static int include_open(const struct parser *parser, const char *name)
{
	char path[TOPOLOGY_PATH_MAX];
	int fd = -1;

	errno = 0;
	if (*name != '/' && *parser->directory &&
	    snprintf(path, sizeof(path), "%s/%s", parser->directory, name) < (int)sizeof(path))
		fd = include_try(path);
	if (fd < 0 && errno != ENOTSUP)
		fd = include_try(name);
	return fd < 0 ? -errno : fd;
}

/* The text is kept until the parser ends, since cables have parts of it. 0 or a negative errno. */
static int include_read(struct parser *parser, const char *name, struct topology_slice *text)
{
	char *data = NULL;
	size_t bytes = 0;
	int fd = include_open(parser, name);
	int err;

	if (fd < 0)
		return fd;
	err = topology_rows_grow((void **)&parser->included, &parser->included_room,
				 parser->included_count, sizeof(*parser->included));
	if (!err)
		err = topology_file_read(fd, TOPOLOGY_BYTES_MAX - parser->included_bytes, &data,
					 &bytes);
	close(fd);
	if (err) {
		free(data);
		return err;
	}
	parser->included[parser->included_count++] = data;
	parser->included_bytes += bytes;
	*text = (struct topology_slice){data, bytes};
	return 0;
}

/* Lines of an included file are named in the remark's text; its line is that of the include. */
static void include_parse(struct parser *parser, const char *name, struct topology_slice text)
{
	const char *outer = parser->report->file;
	uint32_t outer_line = parser->report->file_line;

	parser->report->file = name;
	parser->report->file_line = 0;
	parser->depth++;
	parse_lines(parser, text.text, text.bytes);
	parser->depth--;
	parser->report->file = outer;
	parser->report->file_line = outer_line;
	parser->node = TOPOLOGY_NONE;
}

void parse_include(struct parser *parser, struct topology_slice rest)
{
	struct topology_slice quoted, text;
	const char *name;
	int err;

	if (!slice_take_quoted(&rest, &quoted) || !quoted.bytes ||
	    memchr(quoted.text, '\0', quoted.bytes)) {
		topology_remark_error(parser->report, parser->line,
				      "a file is included so: include \"piece.net\"");
		return;
	}
	if (!parser->may_include) {
		topology_remark_error(parser->report, parser->line,
				      "only a topology that is a file can include others");
		return;
	}
	if (parser->depth == INCLUDE_DEPTH_MAX || parser->included_count == INCLUDES_MAX) {
		topology_remark_error(parser->report, parser->line,
				      "files include one another more than %u deep, or %u times",
				      INCLUDE_DEPTH_MAX, INCLUDES_MAX);
		parser->failure = -EINVAL;
		return;
	}
	name = topology_text_copy(parser->topology, quoted.text, quoted.bytes);
	err = name ? include_read(parser, name, &text) : -ENOMEM;
	if (err == -ENOMEM)
		parser->failure = -ENOMEM;
	else if (err)
		topology_remark_error(parser->report, parser->line, "cannot include %.100s: %s",
				      name, err == -ENOTSUP ? "it is no file" : strerror(-err));
	else
		include_parse(parser, name, text);
}

void modules_free(struct parser *parser)
{
	for (uint32_t i = 0; i < parser->included_count; i++)
		free(parser->included[i]);
	free(parser->included);
	free(parser->aliases);
	parser->report->file = NULL;
}
