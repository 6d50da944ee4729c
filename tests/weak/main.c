/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the scenarios. First the litmus tests, which show that the checker detects forbidden
 * outcomes and finds allowed ones. Then the protocol's scenarios on the source as it is: none may
 * fail. Then each labelled operation that was reached is relaxed, and if it is seq_cst, also
 * weakened to acquire and release: some scenario must fail. If none does, the label names a barrier
 * that isn't needed, or a scenario is missing.
 *
 * usage: weak [-v] [-s] [SCENARIO]
 *   -v: also prints failures that are expected
 *   -s: the scenarios only, without weakened operations; they take minutes under an emulator, and
 *       the model's results don't depend on the processor
 */
#include <stdio.h>
#include <string.h>

#include "scenarios.h"

/* In src/abi, which isn't linked. */
const char *ibv_wc_status_str(int status);
const char *ibv_wc_status_str(int status)
{
	return status ? "error" : "success";
}

/* Scenarios with few executions first: each mutant tries them in this order. */
static const struct model_scenario *const lists[] = {
	copy_scenarios,	  mapped_scenarios, ring_scenarios,   tap_scenarios,
	groups_scenarios, flows_scenarios,  mcast_scenarios,  window_scenarios,
	mr_scenarios,	  link_scenarios,   engine_scenarios, lock_scenarios,
};
static const char *only;
static bool verbose;

/* Returns how many scenarios had another result than their name says. */
static unsigned int run_list(const struct model_scenario *s)
{
	unsigned int wrong = 0;

	for (; s->name; s++) {
		if (only && strcmp(only, s->name))
			continue;
		bool must_fail = strchr(s->name, '!') != NULL;
		struct model_result r =
			model_explore(s, NULL, MODEL_AS_IT_IS, !must_fail || verbose);

		printf("%-20s %8llu executions%s%s\n", s->name, (unsigned long long)r.executions,
		       r.failed ? ", fails: " : "", r.message);
		wrong += r.failed != must_fail;
		if (r.failed != must_fail)
			printf("%s: WRONG\n", s->name);
	}
	return wrong;
}

/* A scenario that fails with the site's operation weakened, or NULL. */
static const struct model_scenario *
catcher(const struct model_site *site, enum model_weakening weakening, struct model_result *result)
{
	for (unsigned int l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
		for (const struct model_scenario *s = lists[l]; s->name; s++) {
			if (strchr(s->name, '!'))
				continue; /* fails anyway */
			*result = model_explore(s, site, weakening, verbose);
			if (result->failed)
				return s;
		}
	}
	return NULL;
}

static unsigned int weaken(const struct model_site *site, enum model_weakening weakening)
{
	const char *how = weakening == MODEL_RELAXED ? "relaxed" : "acquire/release";
	const char *file = strstr(site->file, "src/");
	struct model_result result;
	const struct model_scenario *by = catcher(site, weakening, &result);

	printf("[%s] %s, %s:%d: ", site->label, how, file ? file : site->file, site->line);
	printf("%s%s%s\n", by ? by->name : "NOTHING", " fails: ", by ? result.message : "");
	return !by;
}

static unsigned int run_mutations(void)
{
	unsigned int survived = 0;

	for (const struct model_site *site = model_sites(); site; site = site->next) {
		survived += weaken(site, MODEL_RELAXED);
		if (site->is_seq_cst)
			survived += weaken(site, MODEL_ACQUIRE_RELEASE);
	}
	return survived;
}

int main(int argc, char **argv)
{
	int at = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	bool weakens = true;

	for (; at < argc && argv[at][0] == '-'; at++) {
		verbose |= !strcmp(argv[at], "-v");
		weakens &= strcmp(argv[at], "-s") != 0;
	}
	only = at < argc ? argv[at] : NULL;
	unsigned int wrong = run_list(litmus_scenarios);

	for (unsigned int l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
		wrong += run_list(lists[l]);
	if (!wrong && !only && weakens)
		wrong = run_mutations();
	printf(wrong ? "%u WRONG\n" : "all right\n", wrong);
	return wrong != 0;
}
