/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Node patterns; see fabric_pattern.h.
 *
 * Brackets are replaced first, one after the other from the left, which gives names and, where
 * there are wildcards, patterns of fnmatch(). One thread.
 */
#include "cli/fabric_pattern.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/ctl.h"

/* A name after its brackets were replaced, and how many a pattern may stand for: more than nodes
 * that a fabric can have. */
#define NAME_BYTES 256
#define NAMES_MAX 100000u

#define NUMBER_DIGITS 9
#define NUMBER_MAX 999999999

/* Names that aren't there are shown up to this number, near ones up to the other. */
#define ABSENT_MAX 64
#define NEAR_MAX 3

#define SPECIAL "[]*?,\\"

int node_choice_begin(struct node_choice *choice, const json_t *nodes)
{
	const json_t *node;
	size_t i, count = json_array_size(nodes);

	*choice = (struct node_choice){
		.nodes = nodes,
		.index_of = json_object(),
		.is_chosen = calloc(count + 1, sizeof(bool)),
		.chosen = calloc(count + 1, sizeof(size_t)),
	};
	if (!choice->index_of || !choice->is_chosen || !choice->chosen) {
		node_choice_free(choice);
		return -ENOMEM;
	}
	json_array_foreach(nodes, i, node)
		json_object_set_new(choice->index_of, ctl_string(node, "name"),
				    json_integer((json_int_t)i));
	return 0;
}

void node_choice_free(struct node_choice *choice)
{
	json_decref(choice->index_of);
	free(choice->is_chosen);
	free(choice->chosen);
	*choice = (struct node_choice){0};
}

const char *node_choice_name(const struct node_choice *choice, size_t i)
{
	return ctl_string(json_array_get(choice->nodes, choice->chosen[i]), "name");
}

static void choice_take(struct node_choice *choice, size_t index)
{
	if (index >= json_array_size(choice->nodes) || choice->is_chosen[index])
		return;
	choice->is_chosen[index] = true;
	choice->chosen[choice->count++] = index;
}

void node_choice_add_all(struct node_choice *choice, bool adapters_only)
{
	const json_t *node;
	size_t i;

	json_array_foreach(choice->nodes, i, node)
		if (!adapters_only || !strcmp(ctl_string(node, "type"), "ca"))
			choice_take(choice, i);
}

/* Names that aren't there ---------------------------------------------------------------------- */

/* How many characters must be inserted, deleted or replaced to make one name of the other. */
static unsigned int name_distance(const char *one, const char *other)
{
	unsigned int row[NAME_BYTES], left, corner, length = (unsigned int)strlen(other);

	if (length >= NAME_BYTES)
		return NAME_BYTES;
	for (unsigned int k = 0; k <= length; k++)
		row[k] = k;
	for (unsigned int i = 0; one[i]; i++) {
		corner = row[0];
		row[0] = left = i + 1;
		for (unsigned int k = 0; k < length; k++) {
			unsigned int best = corner + (tolower((unsigned char)one[i]) !=
						      tolower((unsigned char)other[k]));

			corner = row[k + 1];
			if (corner + 1 < best)
				best = corner + 1;
			if (left + 1 < best)
				best = left + 1;
			row[k + 1] = left = best;
		}
	}
	return row[length];
}

struct near_name {
	const char *name;
	unsigned int distance;
};

/* Puts a name among the nearest ones, which are in order. */
static void near_insert(struct near_name *best, const char *name, unsigned int distance)
{
	unsigned int at = NEAR_MAX;

	while (at && (!best[at - 1].name || distance < best[at - 1].distance))
		at--;
	if (at == NEAR_MAX)
		return;
	memmove(best + at + 1, best + at, (NEAR_MAX - 1 - at) * sizeof(*best));
	best[at] = (struct near_name){name, distance};
}

/* ": did you mean A, B?", or nothing where no name is near. */
static void near_text(const json_t *nodes, const char *name, char *text, size_t size)
{
	struct near_name best[NEAR_MAX] = {0};
	unsigned int limit = (unsigned int)strlen(name) / 3 + 1;
	const json_t *node;
	size_t used = 0, i;

	json_array_foreach(nodes, i, node) {
		unsigned int distance = name_distance(name, ctl_string(node, "name"));

		if (distance <= limit)
			near_insert(best, ctl_string(node, "name"), distance);
	}
	*text = '\0';
	for (i = 0; i < NEAR_MAX && best[i].name && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s",
					 i ? ", " : ": did you mean ", best[i].name);
	if (used && used + 1 < size)
		strcpy(text + used, "?");
	else if (!used)
		snprintf(text, size, "; `verbena fabric show` lists them");
}

void node_absent_say(const json_t *nodes, const char *name)
{
	char text[512];

	near_text(nodes, name, text, sizeof(text));
	cli_error("the fabric has no node `%s`%s", name, text);
}

/* Expanding ------------------------------------------------------------------------------------ */

/* One call of node_choice_add(). */
struct expansion {
	struct node_choice *choice;
	const char *pattern;
	unsigned int names;	   /* that came of it so far */
	char *absent[ABSENT_MAX];  /* those that aren't there */
	unsigned int absent_count; /* how many aren't, kept or not */
};

static int pattern_refuse(const struct expansion *expansion, const char *why)
{
	cli_error("`%s`: %s", expansion->pattern, why);
	return -EINVAL;
}

static bool has_wildcard(const char *pattern)
{
	for (; *pattern; pattern++) {
		if (*pattern == '\\' && pattern[1])
			pattern++;
		else if (*pattern == '*' || *pattern == '?')
			return true;
	}
	return false;
}

static void backslashes_remove(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (*text == '\\' && text[1])
			text++;
		*to++ = *text;
	}
	*to = '\0';
}

/* Takes the node of that name or GUID, if there is one. */
static bool name_take(struct node_choice *choice, const char *name)
{
	const json_t *found = json_object_get(choice->index_of, name), *node;
	uint64_t guid;
	size_t i;

	if (found) {
		choice_take(choice, (size_t)json_integer_value(found));
		return true;
	}
	if (strncmp(name, "0x", 2) != 0 || !quantity_number(name, 1, UINT64_MAX, &guid))
		return false;
	json_array_foreach(choice->nodes, i, node)
		if (strtoull(ctl_string(node, "guid"), NULL, 16) == guid) {
			choice_take(choice, i);
			return true;
		}
	return false;
}

static bool wildcard_take(struct node_choice *choice, const char *pattern)
{
	const json_t *node;
	bool found = false;
	size_t i;

	json_array_foreach(choice->nodes, i, node)
		if (!fnmatch(pattern, ctl_string(node, "name"), 0)) {
			choice_take(choice, i);
			found = true;
		}
	return found;
}

/* What a pattern without brackets names. */
static int plain_take(struct expansion *expansion, char *name)
{
	bool found;

	if (++expansion->names > NAMES_MAX)
		return pattern_refuse(expansion, "it stands for too many names");
	if (has_wildcard(name)) {
		found = wildcard_take(expansion->choice, name);
	} else {
		backslashes_remove(name);
		found = name_take(expansion->choice, name);
	}
	if (found)
		return 0;
	if (expansion->absent_count < ABSENT_MAX) {
		expansion->absent[expansion->absent_count] = strdup(name);
		if (!expansion->absent[expansion->absent_count])
			return -ENOMEM;
	}
	expansion->absent_count++;
	return 0;
}

static int pattern_expand(struct expansion *expansion, const char *done, const char *rest);

/* `done`, one item of a bracket and what follows the bracket. */
static int item_join(struct expansion *expansion, const char *done, const char *item, size_t length,
		     const char *rest)
{
	char name[NAME_BYTES];

	if (snprintf(name, sizeof(name), "%s%.*s", done, (int)length, item) >= (int)sizeof(name))
		return pattern_refuse(expansion, "a name in it is too long");
	return pattern_expand(expansion, name, rest);
}

/* first-last, each with its width. */
static int numbers_expand(struct expansion *expansion, const char *done, const char *item,
			  const char *rest)
{
	int width = (int)strspn(item, "0123456789"), padded = *item == '0' ? width : 1;
	unsigned long first = strtoul(item, NULL, 10), last = strtoul(item + width + 1, NULL, 10);
	char number[32];
	int error = 0;

	if (last < first || last > NUMBER_MAX || width > NUMBER_DIGITS)
		return pattern_refuse(expansion, "a range goes up, such as [0-15], and numbers "
						 "in it have 9 digits at most");
	for (unsigned long at = first; !error && at <= last; at++) {
		int length = snprintf(number, sizeof(number), "%0*lu", padded, at);

		error = item_join(expansion, done, number, (size_t)length, rest);
	}
	return error;
}

static int letters_expand(struct expansion *expansion, const char *done, char first, char last,
			  const char *rest)
{
	int error = 0;

	if (last < first)
		return pattern_refuse(expansion, "a range goes up, such as [a-d]");
	for (char at = first; !error && at <= last; at++)
		error = item_join(expansion, done, &at, 1, rest);
	return error;
}

/* One item between brackets: a number, a range, or a word. */
static int item_expand(struct expansion *expansion, const char *done, const char *item,
		       size_t length, const char *rest)
{
	size_t digits = strspn(item, "0123456789");

	if (digits && digits < length && item[digits] == '-' &&
	    digits + 1 + strspn(item + digits + 1, "0123456789") == length && length > digits + 1)
		return numbers_expand(expansion, done, item, rest);
	if (length == 3 && item[1] == '-' && isalpha((unsigned char)item[0]) &&
	    isalpha((unsigned char)item[2]))
		return letters_expand(expansion, done, item[0], item[2], rest);
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)item[i]) && !strchr("_.-", item[i]))
			return pattern_refuse(expansion, "between brackets there are numbers, "
							 "ranges such as 0-15, and words");
	if (!length)
		return pattern_refuse(expansion, "something is missing between brackets");
	return item_join(expansion, done, item, length, rest);
}

/* The first bracket that no backslash precedes; NULL: there is none. */
static const char *bracket_find(const char *text)
{
	for (; *text; text++) {
		if (*text == '\\' && text[1])
			text++;
		else if (*text == '[')
			return text;
	}
	return NULL;
}

/* `done` has no brackets any more. */
static int pattern_expand(struct expansion *expansion, const char *done, const char *rest)
{
	const char *open = bracket_find(rest), *end, *item;
	size_t before = open ? (size_t)(open - rest) : strlen(rest);
	char name[NAME_BYTES];
	int error = 0;

	if (snprintf(name, sizeof(name), "%s%.*s", done, (int)before, rest) >= (int)sizeof(name))
		return pattern_refuse(expansion, "a name in it is too long");
	if (!open)
		return plain_take(expansion, name);
	end = strchr(open, ']');
	if (!end)
		return pattern_refuse(expansion, "a bracket isn't closed");
	for (item = open + 1; !error && item <= end;) {
		size_t length = strcspn(item, ",]");

		error = item_expand(expansion, name, item, length, end + 1);
		item += length + 1;
	}
	return error;
}

/* Where the name that begins at `text` ends: at a comma outside brackets. */
static size_t name_length(const char *text)
{
	bool inside = false;
	size_t i;

	for (i = 0; text[i] && (inside || text[i] != ','); i++) {
		if (text[i] == '\\' && text[i + 1])
			i++;
		else if (text[i] == '[')
			inside = true;
		else if (text[i] == ']')
			inside = false;
	}
	return i;
}

static int list_expand(struct expansion *expansion)
{
	const char *at = expansion->pattern;
	char *name;
	int error = 0;

	if (!*at)
		return pattern_refuse(expansion, "a node's name is missing");
	while (!error) {
		size_t length = name_length(at);

		name = strndup(at, length);
		if (!name)
			return -ENOMEM;
		if (!length)
			error = pattern_refuse(expansion, "a node's name is missing");
		else if (!name_take(expansion->choice, name))
			error = pattern_expand(expansion, "", name);
		free(name);
		at += length;
		if (!*at)
			break;
		at++;
	}
	return error;
}

static void absent_report(const struct expansion *expansion)
{
	unsigned int kept =
		expansion->absent_count < ABSENT_MAX ? expansion->absent_count : ABSENT_MAX;
	char *names;

	if (expansion->absent_count == 1) {
		if (has_wildcard(expansion->absent[0]))
			cli_error("no node's name is like `%s`; `verbena fabric show` lists them",
				  expansion->absent[0]);
		else
			node_absent_say(expansion->choice->nodes, expansion->absent[0]);
		return;
	}
	names = names_fold((const char *const *)expansion->absent, kept);
	cli_error("the fabric has no nodes %s%s; `verbena fabric show` lists those that it has",
		  names ? names : "of these names",
		  kept < expansion->absent_count ? " and further ones" : "");
	free(names);
}

int node_choice_add(struct node_choice *choice, const char *pattern)
{
	struct expansion expansion = {.choice = choice, .pattern = pattern};
	int error = name_take(choice, pattern) ? 0 : list_expand(&expansion);

	if (!error && expansion.absent_count) {
		absent_report(&expansion);
		error = -ENOENT;
	}
	for (unsigned int i = 0; i < ABSENT_MAX; i++)
		free(expansion.absent[i]);
	return error;
}

/* Folding -------------------------------------------------------------------------------------- */

/* A name's part before its last number, and that number; false: it doesn't end with a number that
 * could be written otherwise in a range. */
static bool number_split(const char *name, size_t *prefix, unsigned long *number)
{
	size_t length = strlen(name), at = length;

	while (at && isdigit((unsigned char)name[at - 1]))
		at--;
	*prefix = at;
	if (at == length || length - at > NUMBER_DIGITS || (name[at] == '0' && at + 1 < length))
		return false;
	*number = strtoul(name + at, NULL, 10);
	return true;
}

static void name_write(FILE *out, const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (strchr(SPECIAL, name[i]))
			fputc('\\', out);
		fputc(name[i], out);
	}
}

/* How many names from the first on differ in their last number only, and go up. */
static size_t fold_count(const char *const *names, size_t count)
{
	size_t prefix, other, n = 1;
	unsigned long number, next;

	if (!number_split(names[0], &prefix, &number))
		return 1;
	for (; n < count; n++) {
		if (!number_split(names[n], &other, &next) || other != prefix || next <= number ||
		    strncmp(names[0], names[n], prefix) != 0)
			break;
		number = next;
	}
	return n;
}

/* The numbers of names that fold_count() counted, as 1-3,7. */
static void numbers_write(FILE *out, const char *const *names, size_t count)
{
	unsigned long first, last;
	size_t prefix;

	for (size_t i = 0; i < count;) {
		size_t end = i + 1;

		number_split(names[i], &prefix, &first);
		last = first;
		for (unsigned long next; end < count; end++) {
			number_split(names[end], &prefix, &next);
			if (next != last + 1)
				break;
			last = next;
		}
		fprintf(out, "%s%lu", i ? "," : "", first);
		if (last > first)
			fprintf(out, "-%lu", last);
		i = end;
	}
}

char *names_fold(const char *const *names, size_t count)
{
	char *text = NULL;
	size_t size, prefix;
	unsigned long number;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; i < count;) {
		size_t alike = fold_count(names + i, count - i);

		if (i)
			fputc(',', out);
		if (alike == 1) {
			name_write(out, names[i], strlen(names[i]));
		} else {
			number_split(names[i], &prefix, &number);
			name_write(out, names[i], prefix);
			fputc('[', out);
			numbers_write(out, names + i, alike);
			fputc(']', out);
		}
		i += alike;
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
