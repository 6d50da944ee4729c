/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Aligned tables for people.
 *
 * Cells are added row by row, then the table is printed with each column as wide as its widest
 * cell. Texts may come from other processes (a program's name), so control characters in them are
 * replaced. One thread; running out of memory ends the program.
 */
#ifndef VERBENA_CLI_TABLE_H
#define VERBENA_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum table_style { TABLE_PLAIN, TABLE_GOOD, TABLE_BAD };

struct table_column {
	const char *title;
	bool right; /* numbers are aligned to the right */
};

struct table_cell {
	char *text;
	enum table_style style;
};

struct table {
	const struct table_column *columns; /* the caller's; must outlive the table */
	size_t width;			    /* columns */
	struct table_cell *cells;	    /* row by row */
	size_t count, space;
};

/* Initializes an empty table. table_free() frees its cells. */
void table_set_columns(struct table *table, const struct table_column *columns, size_t width);
void table_free(struct table *table);

/* Adds the next cell; a row is complete after `width` cells. An empty text is shown as "-". */
void table_add_cell(struct table *table, enum table_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prints titles and complete rows, with colours if `colour`; no spaces at line ends. */
void table_print(const struct table *table, FILE *out, bool colour);

/* Whether colours fit `out`: a terminal, TERM is not "dumb", and NO_COLOR is unset or empty. */
bool table_colour_wanted(FILE *out);

/* Replaces control characters by question marks, in place. */
void table_text_clean(char *text);

/* Prints `title` as a heading. */
void table_heading(FILE *out, bool colour, const char *title);

#endif
