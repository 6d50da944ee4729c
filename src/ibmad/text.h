/* SPDX-License-Identifier: BSD-2-Clause */
/* Text that is written piece by piece into a buffer of the caller's; what doesn't fit is cut off.
 */
#ifndef VERBENA_IBMAD_TEXT_H
#define VERBENA_IBMAD_TEXT_H

#include <stdarg.h>
#include <stdio.h>

struct text {
	char *at; /* where the next piece goes; a NUL is there */
	int room; /* bytes from `at` to the buffer's end, the NUL's included */
};

static inline struct text text_begin(char *buf, int size)
{
	if (size > 0)
		buf[0] = 0;
	return (struct text){.at = buf, .room = size};
}

__attribute__((format(printf, 2, 3))) static inline void text_append(struct text *text,
								     const char *format, ...)
{
	va_list arguments;
	int length;

	if (text->room <= 0)
		return;
	va_start(arguments, format);
	length = vsnprintf(text->at, text->room, format, arguments);
	va_end(arguments);
	if (length >= text->room)
		length = text->room - 1;
	text->at += length;
	text->room -= length;
}

#endif
