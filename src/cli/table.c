/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Aligned tables for people; see table.h. A table owns its cells' texts. One thread.
 */
#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "cli/cli.h"

#define GAP 2 /* spaces between columns */

static const char *const style_start[] = {
	[TABLE_PLAIN] = "",
	[TABLE_GOOD] = "\033[32m",
	[TABLE_BAD] = "\033[31m",
};

static void memory_exhausted(void)
{
	cli_error("out of memory");
	exit(CLI_FAILURE);
}

/* C0 and DEL are one byte; C1 (U+0080 to U+009F) is 0xC2 and a byte below 0xA0 in UTF-8. */
void table_text_clean(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p; p++) {
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			p[0] = p[1] = '?';
	}
}

/* The number of characters, each one column wide: all bytes but UTF-8's continuation bytes. */
static size_t text_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

void table_set_columns(struct table *table, const struct table_column *columns, size_t width)
{
	*table = (struct table){.columns = columns, .width = width};
}

void table_free(struct table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i].text);
	free(table->cells);
	table_set_columns(table, table->columns, table->width);
}

static struct table_cell *table_grow(struct table *table)
{
	if (table->count == table->space) {
		size_t space = table->space ? table->space * 2 : 64;
		struct table_cell *cells = reallocarray(table->cells, space, sizeof(*cells));

		if (!cells)
			memory_exhausted();
		table->cells = cells;
		table->space = space;
	}
	return &table->cells[table->count++];
}

void table_add_cell(struct table *table, enum table_style style, const char *format, ...)
{
	struct table_cell *cell = table_grow(table);
	va_list args;
	int length;

	va_start(args, format);
	length = vasprintf(&cell->text, format, args);
	va_end(args);
	if (length < 0)
		memory_exhausted();
	if (length == 0) {
		free(cell->text);
		cell->text = strdup("-");
		if (!cell->text)
			memory_exhausted();
	}
	table_text_clean(cell->text);
	cell->style = style;
}

static void spaces_print(FILE *out, size_t count)
{
	for (; count > 0; count--)
		fputc(' ', out);
}

/* One cell of column `i`; the last column is not padded on its right. */
static void cell_print(const struct table *table, size_t i, const size_t *widths, const char *text,
		       const char *start, FILE *out)
{
	size_t padding = widths[i] - text_width(text);
	bool last = i + 1 == table->width;

	if (table->columns[i].right)
		spaces_print(out, padding);
	fprintf(out, "%s%s%s", start, text, *start ? "\033[0m" : "");
	if (last) {
		fputc('\n', out);
		return;
	}
	if (!table->columns[i].right)
		spaces_print(out, padding);
	spaces_print(out, GAP);
}

void table_print(const struct table *table, FILE *out, bool colour)
{
	size_t complete = table->count / table->width * table->width;
	size_t *widths = calloc(table->width, sizeof(*widths));

	if (!widths)
		memory_exhausted();
	for (size_t i = 0; i < table->width; i++)
		widths[i] = text_width(table->columns[i].title);
	for (size_t i = 0; i < complete; i++) {
		size_t width = text_width(table->cells[i].text);

		if (width > widths[i % table->width])
			widths[i % table->width] = width;
	}

	for (size_t i = 0; i < table->width; i++)
		cell_print(table, i, widths, table->columns[i].title, colour ? "\033[2m" : "", out);
	for (size_t i = 0; i < complete; i++)
		cell_print(table, i % table->width, widths, table->cells[i].text,
			   colour ? style_start[table->cells[i].style] : "", out);
	free(widths);
}

bool table_colour_wanted(FILE *out)
{
	const char *no_color = env_get("NO_COLOR");
	const char *term = env_get("TERM");

	if (no_color && *no_color)
		return false;
	return term && strcmp(term, "dumb") != 0 && isatty(fileno(out));
}

void table_heading(FILE *out, bool colour, const char *title)
{
	fprintf(out, "%s%s%s\n", colour ? "\033[1m" : "", title, colour ? "\033[0m" : "");
}
