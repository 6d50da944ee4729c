/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which sockets become rsockets: lines "PROGRAM DOMAIN TYPE PROTOCOL" of preload_config, in
 * upstream's format, with "*" for any. Without the file, all TCP sockets. UDP sockets do only where
 * a line names them explicitly, because their peers must be rsockets as well, and a DNS server
 * isn't one.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rspreload/preload.h"

#define FILE_NAME "/etc/rdma/rsocket/preload_config"

enum { RULES_MAX = 64, WORD = 64 };

struct rule {
	char program[WORD];	    /* the beginning of its name; empty: any */
	int domain, type, protocol; /* 0: any */
};

static struct rule rules[RULES_MAX];
static unsigned int rule_count;
static bool present;

static const struct word {
	const char *name;
	int value;
} domains[] = {{"INET", AF_INET}, {"INET6", AF_INET6}, {NULL, 0}},
  types[] = {{"STREAM", SOCK_STREAM}, {"DGRAM", SOCK_DGRAM}, {NULL, 0}},
  protocols[] = {{"TCP", IPPROTO_TCP}, {"UDP", IPPROTO_UDP}, {NULL, 0}};

/* The value of "INET", "AF_INET", "PF_INET" and so on; "*" is 0. False: an unknown word. */
static bool word_value(const char *text, const struct word *words, int *value)
{
	const char *end = strrchr(text, '_');

	*value = 0;
	if (!strcmp(text, "*"))
		return true;
	for (; words->name; words++) {
		if (!strcasecmp(end ? end + 1 : text, words->name)) {
			*value = words->value;
			return true;
		}
	}
	return false;
}

static void read_line(const char *line)
{
	char program[WORD], domain[WORD], type[WORD], protocol[WORD];
	struct rule rule = {0};

	if (line[0] == '#' ||
	    sscanf(line, "%63s%63s%63s%63s", program, domain, type, protocol) != 4 ||
	    !word_value(domain, domains, &rule.domain) || !word_value(type, types, &rule.type) ||
	    !word_value(protocol, protocols, &rule.protocol) || rule_count == RULES_MAX)
		return;
	if (strcmp(program, "*"))
		memcpy(rule.program, program, sizeof(rule.program));
	rules[rule_count++] = rule;
}

static void read_file(void)
{
	char line[4 * WORD];
	FILE *file = fopen(FILE_NAME, "rec");

	if (!file)
		return;
	present = true;
	while (fgets(line, sizeof(line), file))
		read_line(line);
	fclose(file);
	present = rule_count != 0;
}

static bool rule_fits(const struct rule *rule, int domain, int type, int protocol)
{
	if (strncasecmp(rule->program, program_invocation_short_name, strlen(rule->program)) != 0)
		return false;
	if (type == SOCK_DGRAM && rule->type != SOCK_DGRAM && rule->protocol != IPPROTO_UDP)
		return false;
	return (!rule->domain || rule->domain == domain) && (!rule->type || rule->type == type) &&
	       (!rule->protocol || rule->protocol == protocol);
}

bool config_wants(int domain, int type, int protocol)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	type &= ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (domain != AF_INET && domain != AF_INET6)
		return false;
	if (type != SOCK_STREAM && type != SOCK_DGRAM)
		return false;
	if (!protocol)
		protocol = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	if (protocol != (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
		return false;
	pthread_once(&once, read_file);
	if (!present)
		return type == SOCK_STREAM;
	for (unsigned int i = 0; i < rule_count; i++)
		if (rule_fits(&rules[i], domain, type, protocol))
			return true;
	return false;
}
