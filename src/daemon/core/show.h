/* SPDX-License-Identifier: BSD-2-Clause */
/* What `verbena status`, `verbena resources` and a port's files of sysfs show, as JSON. */
#ifndef VERBENA_DAEMON_CORE_SHOW_H
#define VERBENA_DAEMON_CORE_SHOW_H

#include <stdbool.h>
#include <sys/types.h>

struct server;
struct text;

/* The asking user: it sees its own programs, or all. */
struct show_for {
	uid_t uid;
	bool all;
};

void show_status(const struct server *server, const struct show_for *who, struct text *out);
void show_resources(const struct server *server, const struct show_for *who, struct text *out);
/* The sum of all users' counters, which everybody may see, as those of a card. */
void show_sum(const struct server *server, struct text *out);

#endif
