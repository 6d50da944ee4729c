/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A growing text buffer, and JSON written into it piece by piece. Answers can be long (each of
 * 100,000 regions is an entry), so they are written directly, without a tree in between.
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
};

void text_free(struct text *text);
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
