/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment. See env.h. Owns the copies; they are made before main() and never change. */
#include "base/env.h"

#include <string.h>
#include <unistd.h>

enum { KEPT_MAX = 64 };

/* As in the environment: NAME=VALUE. */
static char *kept[KEPT_MAX];

static bool is_kept(const char *name)
{
	return !strncmp(name, "VERBENA_", 8) || !strncmp(name, "XDG_RUNTIME_DIR", 15);
}

__attribute__((constructor(101))) static void env_keep(void)
{
	unsigned int n = 0;

	for (char **at = env_is_callers() ? NULL : environ; at && *at && n < KEPT_MAX; at++)
		if (is_kept(*at) && (kept[n] = strdup(*at)))
			n++;
}

const char *env_get(const char *name)
{
	const char *value = secure_getenv(name);
	size_t length = strlen(name);

	if (value || !is_kept(name))
		return value;
	for (unsigned int i = 0; i < KEPT_MAX && kept[i]; i++)
		if (!strncmp(kept[i], name, length) && kept[i][length] == '=')
			return kept[i] + length + 1;
	return NULL;
}
