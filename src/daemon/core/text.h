/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A growing text buffer, and JSON written into it piece by piece. Answers can be long (each of
 * 100,000 regions is an entry), so they are written directly, without a tree in between, and the
 * longest in parts: text_drop() makes room for the next one.
 */
#ifndef VERBENA_DAEMON_CORE_TEXT_H
#define VERBENA_DAEMON_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *data;
	size_t length, room;
	bool failed; /* out of memory: further additions are dropped */
	char last;   /* what was before `data` and has been dropped; 0: nothing */
};

void text_free(struct text *text);
/* Drops all of it, to be continued: commas are added as if it were still there. */
void text_drop(struct text *text);
/* Appends as printf() does. */
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * JSON. `key` is NULL for an element of an array. Commas are added as needed. Keys are the daemon's
 * own and not escaped; values may be anything (bytes that aren't printable ASCII are escaped).
 */
void json_open(struct text *text, const char *key, char bracket);
void json_close(struct text *text, char bracket);
void json_number(struct text *text, const char *key, uint64_t value);
void json_words(struct text *text, const char *key, const char *value);
void json_flag(struct text *text, const char *key, bool value);

#endif
