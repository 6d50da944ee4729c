/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of flow rules. Thread 0 is the daemon's; thread 1 a process: what it reads is one rule
 * or none, never parts of two, and with the new count of changes it sees the change. Rules are made
 * small: their first and last words only are looked at.
 */
#include "scenarios.h"

#include "shm/flow_rules.c"

enum { TOLD };

static struct flow_rules table;
static const struct flow_rule old_rule = {.qpn = 1, .specs[PROTO_FLOW_BYTES - 1] = 1};
static const struct flow_rule new_rule = {.qpn = 2, .specs[PROTO_FLOW_BYTES - 1] = 2};

static void setup(void)
{
	memset(&table, 0, sizeof(table));
	flows_add(&table, 1, &old_rule);
	model_word(&table.place[0].name, 8, "name");
	model_word(&table.place[0].word[0], 8, "word[0]");
	model_word(&table.place[0].word[FLOW_WORDS - 1], 8, "word[last]");
	model_word(&table.changes, 8, "changes");
}

static void replace_rule(void)
{
	flows_remove(&table, 0);
	flows_add(&table, 2, &new_rule);
	model_event_set(TOLD);
}

static bool is_whole(const struct flow_rule *rule)
{
	return rule->qpn == rule->specs[PROTO_FLOW_BYTES - 1];
}

static void read_rule(void)
{
	struct flow_rule rule;

	if (flows_read(&table, 0, &rule) && !is_whole(&rule))
		model_fail("parts of two rules were read as one");
}

/* The last change is seen by a process that sees the last count. */
static void read_counted(void)
{
	struct flow_rule rule;

	if (flows_changes(&table) == 3 &&
	    (!flows_read(&table, 0, &rule) || rule.qpn != new_rule.qpn))
		model_fail("the count is new, the rule isn't");
}

const struct model_scenario flows_scenarios[] = {
	{"flows.whole", setup, {replace_rule, read_rule}, NULL},
	{"flows.counted", setup, {replace_rule, read_counted}, NULL},
	{0},
};
