/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The policy of service levels, a file of lines of words; `#` begins a comment:
 *
 *   level 1 lane 1               service level 1 uses lane 1
 *   lane 0 low 64                lane 0's weight, 0 to 255, beside the other lanes
 *   lane 1 high 192              the same at high priority
 *   high-limit 10                so many times 4 KiB at high priority before others get a turn
 *   path pkey 0x5 level 1        paths of the partition get service level 1
 *   path service 0x1000-0x10ff source 0x100001 target 0x100003 class 3 level 2
 *
 * The first `path` whose conditions all hold counts. One thread.
 */
#include "base/quantity.h"
#include "smd/files.h"

#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct policy {
	struct sm *sm;
	struct sm_qos_lanes lanes;
	char *rest; /* of the line */
};

static const char *policy_word(struct policy *policy)
{
	const char *word = strtok_r(NULL, " \t\n", &policy->rest);

	return word ? word : "";
}

static bool policy_level(struct policy *policy)
{
	uint64_t level, lane;

	if (!quantity_number(policy_word(policy), 0, SM_LEVELS - 1, &level) ||
	    strcmp(policy_word(policy), "lane") != 0 ||
	    !quantity_number(policy_word(policy), 0, SM_LANES - 1, &lane))
		return false;
	policy->lanes.lane[level] = (uint8_t)lane;
	return !*policy_word(policy);
}

static bool policy_lane(struct policy *policy)
{
	uint64_t lane, weight;
	const char *kind;

	if (!quantity_number(policy_word(policy), 0, SM_LANES - 1, &lane))
		return false;
	kind = policy_word(policy);
	if (!quantity_number(policy_word(policy), 0, 255, &weight) ||
	    (strcmp(kind, "low") != 0 && strcmp(kind, "high") != 0))
		return false;
	*(*kind == 'l' ? &policy->lanes.low[lane] : &policy->lanes.high[lane]) = (uint8_t)weight;
	return !*policy_word(policy);
}

static bool policy_limit(struct policy *policy)
{
	uint64_t limit;

	if (!quantity_number(policy_word(policy), 0, 255, &limit))
		return false;
	policy->lanes.high_limit = (uint8_t)limit;
	return !*policy_word(policy);
}

/* "0x1000" or "0x1000-0x10ff". */
static bool service_read(const char *word, struct sm_qos_rule *rule)
{
	const char *dash = strchr(word, '-');
	char first[24];

	if (!dash) {
		if (!quantity_number(word, 0, UINT64_MAX, &rule->service_first))
			return false;
		rule->service_last = rule->service_first;
		return true;
	}
	if ((size_t)(dash - word) >= sizeof(first))
		return false;
	memcpy(first, word, (size_t)(dash - word));
	first[dash - word] = '\0';
	return quantity_number(first, 0, UINT64_MAX, &rule->service_first) &&
	       quantity_number(dash + 1, rule->service_first, UINT64_MAX, &rule->service_last);
}

static bool condition_read(const char *name, const char *value, struct sm_qos_rule *rule)
{
	uint64_t number;

	if (!strcmp(name, "service")) {
		rule->has_service = true;
		return service_read(value, rule);
	}
	if (!quantity_number(value, 0, UINT64_MAX, &number))
		return false;
	if (!strcmp(name, "pkey") && number <= 0xffff && (number & 0x7fff)) {
		rule->pkey = (uint16_t)number;
	} else if (!strcmp(name, "source") && number) {
		rule->source = number;
	} else if (!strcmp(name, "target") && number) {
		rule->target = number;
	} else if (!strcmp(name, "class") && number < 1 << 12) {
		rule->has_class = true;
		rule->qos_class = (uint16_t)number;
	} else {
		return false;
	}
	return true;
}

static bool policy_path(struct policy *policy)
{
	struct sm_qos_rule rule = {0};
	const char *name;
	uint64_t level;

	for (name = policy_word(policy); *name && strcmp(name, "level") != 0;
	     name = policy_word(policy))
		if (!condition_read(name, policy_word(policy), &rule))
			return false;
	if (!*name || !quantity_number(policy_word(policy), 0, SM_LEVELS - 1, &level))
		return false;
	rule.level = (uint8_t)level;
	return !*policy_word(policy) && !sm_qos_rule_add(policy->sm, &rule);
}

static bool policy_line(struct policy *policy, char *line)
{
	static const struct {
		const char *name;
		bool (*read)(struct policy *policy);
	} kinds[] = {
		{"level", policy_level},
		{"lane", policy_lane},
		{"high-limit", policy_limit},
		{"path", policy_path},
	};
	const char *word;

	line[strcspn(line, "#\n")] = '\0';
	word = strtok_r(line, " \t\n", &policy->rest);
	if (!word)
		return true;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strcmp(kinds[i].name, word))
			return kinds[i].read(policy);
	return false;
}

int policy_read(struct sm *sm, const char *path)
{
	struct policy policy = {.sm = sm};
	FILE *file = fopen(path, "re");
	unsigned int number = 0;
	char line[1024];
	bool is_good = true;

	if (!file) {
		int result = -errno;

		log_error("cannot read %s: %s", path, strerror(errno));
		return result;
	}
	/* A level that isn't named uses the lane of its number, a lane has the usual share. */
	for (unsigned int i = 0; i < SM_LEVELS; i++)
		policy.lanes.lane[i] = (uint8_t)i;
	for (unsigned int i = 0; i < SM_LANES; i++)
		policy.lanes.low[i] = 64;
	while (is_good && fgets(line, sizeof line, file)) {
		number++;
		is_good = policy_line(&policy, line);
	}
	fclose(file);
	if (is_good) {
		sm_qos_lanes_set(sm, &policy.lanes);
		return 0;
	}
	log_error("%s:%u: a line is `level N lane N', `lane N low|high WEIGHT', `high-limit N', or "
		  "`path' with conditions (pkey, service, source, target, class) and `level N'",
		  path, number);
	return -EINVAL;
}
