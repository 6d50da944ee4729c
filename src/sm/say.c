/* SPDX-License-Identifier: BSD-2-Clause */
/* Sentences for the log. No state. */
#include <stdarg.h>
#include <stdio.h>

#include "sm/internal.h"

void sm_say(struct sm *sm, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	/* clang-tidy 14 doesn't see va_start().
	 * NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	sm->functions->say(sm->context, text);
}

const char *sm_state_text(enum sm_state state)
{
	static const char *const texts[] = {"not active", "discovering", "standby", "master"};

	return state <= SM_MASTER ? texts[state] : "unknown";
}
