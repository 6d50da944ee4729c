/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which devices the program gets, by VERBENA_DEVICES: `all` (as without it), `verbena`, `kernel`,
 * or names of devices separated by commas. No state.
 */
#include <string.h>

#include "base/env.h"
#include "kverbs/kernel.h"

struct device_choice device_choice_get(void)
{
	const char *text = env_get("VERBENA_DEVICES");
	struct device_choice choice = {.verbena = true, .kernel = true};

	if (!text || !*text || !strcmp(text, "all"))
		return choice;
	if (!strcmp(text, "verbena"))
		choice.kernel = false;
	else if (!strcmp(text, "kernel"))
		choice.verbena = false;
	else
		choice.names = text;
	return choice;
}

bool device_choice_has(const struct device_choice *choice, const char *name)
{
	size_t length = strlen(name);
	const char *at = choice->names;

	if (!at)
		return true;
	for (;;) {
		size_t word = strcspn(at, ",");

		if (word == length && !memcmp(at, name, length))
			return true;
		if (!at[word])
			return false;
		at += word + 1;
	}
}
