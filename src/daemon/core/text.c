/* SPDX-License-Identifier: BSD-2-Clause */
/* Growing text and JSON. See text.h. */
#include "daemon/core/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_free(struct text *text)
{
	free(text->data);
	*text = (struct text){0};
}

void text_drop(struct text *text)
{
	if (text->length)
		text->last = text->data[text->length - 1];
	text->length = 0;
}

static bool text_make_room(struct text *text, size_t more)
{
	if (text->failed)
		return false;
	if (text->room - text->length > more)
		return true;
	size_t room = text->room ? text->room : 1024;

	while (room - text->length <= more)
		room *= 2;
	char *data = realloc(text->data, room);

	if (!data) {
		text->failed = true;
		return false;
	}
	text->data = data;
	text->room = room;
	return true;
}

void text_add(struct text *text, const char *format, ...)
{
	size_t left = text->room - text->length;
	va_list args;

	if (text->failed)
		return;
	va_start(args, format);
	int n = vsnprintf(left ? text->data + text->length : NULL, left, format, args);

	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n >= left) {
		if (!text_make_room(text, (size_t)n))
			return;
		va_start(args, format);
		vsnprintf(text->data + text->length, (size_t)n + 1, format, args);
		va_end(args);
	}
	text->length += (size_t)n;
}

static void add_string(struct text *text, const char *value)
{
	text_add(text, "\"");
	for (const unsigned char *c = (const unsigned char *)value; *c; c++) {
		if (*c == '"' || *c == '\\')
			text_add(text, "\\%c", *c);
		else if (*c < 0x20 || *c > 0x7e)
			text_add(text, "\\u%04x", *c);
		else
			text_add(text, "%c", *c);
	}
	text_add(text, "\"");
}

static void text_begin_value(struct text *text, const char *key)
{
	char last = text->length ? text->data[text->length - 1] : text->last ? text->last : '{';

	if (last != '{' && last != '[')
		text_add(text, ",");
	if (key)
		text_add(text, "\"%s\":", key);
}

void json_open(struct text *text, const char *key, char bracket)
{
	text_begin_value(text, key);
	text_add(text, "%c", bracket);
}

void json_close(struct text *text, char bracket)
{
	text_add(text, "%c", bracket);
}

void json_number(struct text *text, const char *key, uint64_t value)
{
	text_begin_value(text, key);
	text_add(text, "%" PRIu64, value);
}

void json_words(struct text *text, const char *key, const char *value)
{
	text_begin_value(text, key);
	add_string(text, value);
}

void json_flag(struct text *text, const char *key, bool value)
{
	text_begin_value(text, key);
	text_add(text, value ? "true" : "false");
}
