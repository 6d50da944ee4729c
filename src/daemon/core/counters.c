/* SPDX-License-Identifier: BSD-2-Clause */
/* See counters.h. The table is read, never mapped, as in process.c. */
#include "daemon/core/counters.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/show.h"
#include "daemon/core/text.h"
#include "daemon/core/user.h"

struct name {
	const char *group, *name;
};

#define NAME(place, group, name) [PUB_##place] = {group, name},
static const struct name names[PUB_COUNTERS] = {PUB_COUNTER_LIST(NAME)};

/* More than any counter can reach honestly; LIMIT_SLOTS times this still fits a JSON reader's
 * signed 64-bit integer. */
#define MOST ((uint64_t)INT64_MAX / (2 * LIMIT_SLOTS))

static struct counters read_counters(const struct process *process)
{
	struct counters counters;

	_Static_assert(sizeof(counters) == sizeof(struct pub_counters), "the same numbers");
	if (pread(process->table, &counters, sizeof(counters), offsetof(struct pub, counters)) !=
	    sizeof(counters))
		memset(&counters, 0, sizeof(counters));
	for (int i = 0; i < PUB_COUNTERS; i++)
		counters.value[i] = counters.value[i] < MOST ? counters.value[i] : MOST;
	return counters;
}

static void counters_sum(struct counters *sum, const struct counters *more)
{
	for (int i = 0; i < PUB_COUNTERS; i++) {
		if (i != PUB_SENT_ERROR)
			sum->value[i] += more->value[i];
		else if (more->value[i])
			sum->value[i] = more->value[i];
	}
}

static void counters_show_as_text(const struct counters *counters, struct text *out)
{
	json_open(out, "counters", '{');
	for (int i = 0; i < PUB_COUNTERS; i++) {
		if (i && strcmp(names[i].group, names[i - 1].group) != 0)
			json_close(out, '}');
		if (!i || strcmp(names[i].group, names[i - 1].group) != 0)
			json_open(out, names[i].group, '{');
		json_number(out, names[i].name, counters->value[i]);
	}
	json_close(out, '}');
	json_close(out, '}');
}

void counters_show_process(const struct process *process, struct text *out)
{
	const struct counters counters = read_counters(process);

	counters_show_as_text(&counters, out);
}

void counters_show_sum(const struct server *server, const struct show_for *who, struct text *out)
{
	struct counters sum = {{0}};

	if (who->all)
		sum = server->ended;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		const struct process *process = server->slots.process[slot];

		if (!process || (!who->all && process->user->uid != who->uid))
			continue;
		const struct counters counters = read_counters(process);

		counters_sum(&sum, &counters);
	}
	counters_show_as_text(&sum, out);
}

void counters_keep(struct process *process)
{
	const struct counters counters = read_counters(process);

	counters_sum(&process->server->ended, &counters);
	for (int i = 0; i < PUB_COUNTERS; i++)
		if (process->server->ended.value[i] > (uint64_t)INT64_MAX / 2)
			process->server->ended.value[i] = (uint64_t)INT64_MAX / 2;
}
