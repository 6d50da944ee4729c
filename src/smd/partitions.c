/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Partitions in the format that OpenSM has for them. A definition is a name with its P_Key and
 * flags, a colon, members, and a semicolon; it may have several lines:
 *
 *   Default=0x7fff, ipoib : ALL=limited, SELF=full ;
 *   Storage=0x0005, ipoib, mtu=5, sl=1, defmember=full : 0x100001, 0x100003=limited ;
 *
 * What OpenSM ignores with a warning (an unknown flag, a membership that is none) is an error here,
 * and a partition has to name its P_Key: made-up ones would change with the file. One thread.
 */
#include "base/quantity.h"
#include "smd/files.h"

#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 64
#define DEFAULT_KEY 0x7fffu

struct reader {
	FILE *file;
	struct sm *sm;
	const char *path;
	unsigned int line;
	const char *wrong; /* what the message says; NULL: nothing is wrong */
	char word[WORD_MAX];
};

/* A word that is cut in two by an equals sign, as name and value. */
struct pair {
	char name[WORD_MAX], value[WORD_MAX];
	bool has_value;
};

/* Characters and words ------------------------------------------------------------------------- */

/* The next character that is no space, comment or end of line; EOF. */
static int character_next(struct reader *reader)
{
	int c = getc(reader->file);

	while (c != EOF && (isspace(c) || c == '#')) {
		while (c == '#' && c != EOF) {
			do
				c = getc(reader->file);
			while (c != EOF && c != '\n');
		}
		reader->line += c == '\n';
		if (c != EOF)
			c = getc(reader->file);
	}
	return c;
}

/* Takes a word; returns the character that ended it: one of `=,:;`, or EOF. */
static int word_take(struct reader *reader, char word[WORD_MAX])
{
	size_t length = 0;
	int c;

	while ((c = character_next(reader)) != EOF && !strchr("=,:;", c)) {
		if (length + 1 == WORD_MAX) {
			reader->wrong = "a word is too long";
			return EOF;
		}
		word[length++] = (char)c;
	}
	word[length] = '\0';
	return c;
}

static int pair_take(struct reader *reader, struct pair *pair)
{
	int end = word_take(reader, pair->name);

	*pair->value = '\0';
	pair->has_value = end == '=';
	return pair->has_value ? word_take(reader, pair->value) : end;
}

/* A definition --------------------------------------------------------------------------------- */

struct definition {
	uint16_t pkey; /* without bit 15 */
	bool is_full;  /* members that don't say */
	bool has_ipoib;
	struct sm_ipoib ipoib;
};

/* Whether members are full ones; false, with a message: it is neither word. */
static bool membership_read(struct reader *reader, const char *word, bool *is_full)
{
	*is_full = !strcmp(word, "full");
	if (!*is_full && strcmp(word, "limited") != 0)
		reader->wrong = "a member is `full' or `limited'";
	return !reader->wrong;
}

static void flag_read(struct reader *reader, const struct pair *pair, struct definition *definition)
{
	struct sm_ipoib *ipoib = &definition->ipoib;
	uint64_t number = 0;
	bool is_number = pair->has_value && quantity_number(pair->value, 0, UINT32_MAX, &number);

	if (!strcmp(pair->name, "ipoib") && !pair->has_value)
		definition->has_ipoib = true;
	else if (!strcmp(pair->name, "defmember") && pair->has_value)
		membership_read(reader, pair->value, &definition->is_full);
	else if (!strcmp(pair->name, "rate") && is_number && number < 64)
		ipoib->rate = (uint8_t)number;
	else if (!strcmp(pair->name, "mtu") && is_number && number <= 5)
		ipoib->mtu = (uint8_t)number;
	else if (!strcmp(pair->name, "sl") && is_number && number < SM_LEVELS)
		ipoib->level = (uint8_t)number;
	else if (!strcmp(pair->name, "scope") && is_number && number < 16)
		ipoib->scope = (uint8_t)number;
	else if (!strcmp(pair->name, "Q_Key") && is_number)
		ipoib->qkey = (uint32_t)number;
	else if (!strcmp(pair->name, "TClass") && is_number && number < 256)
		ipoib->traffic_class = (uint8_t)number;
	else if (!strcmp(pair->name, "FlowLabel") && is_number && number < 1 << 20)
		ipoib->flow_label = (uint32_t)number;
	else
		reader->wrong = "a flag is ipoib, defmember=full|limited, or rate, mtu, sl, scope, "
				"Q_Key, TClass or FlowLabel with a number";
}

static void partition_member_add(struct reader *reader, const struct pair *pair,
				 const struct definition *definition)
{
	static const struct {
		const char *name;
		enum sm_member_kind kind;
	} groups[] = {
		{"ALL", SM_MEMBER_ALL},
		{"ALL_CAS", SM_MEMBER_ADAPTERS},
		{"ALL_SWITCHES", SM_MEMBER_SWITCHES},
		{"ALL_ROUTERS", SM_MEMBER_ROUTERS},
		{"SELF", SM_MEMBER_SELF},
	};
	enum sm_member_kind kind = SM_MEMBER_PORT;
	bool is_full = definition->is_full;
	uint64_t guid = 0;

	if (pair->has_value && !membership_read(reader, pair->value, &is_full))
		return;
	for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
		if (!strcmp(pair->name, groups[i].name))
			kind = groups[i].kind;
	if (kind == SM_MEMBER_PORT &&
	    (!quantity_number(pair->name, 0, UINT64_MAX, &guid) || !guid)) {
		reader->wrong = "a member is a port's GUID (0x...), ALL, ALL_CAS, ALL_SWITCHES, "
				"ALL_ROUTERS or SELF";
		return;
	}
	if (sm_partition_add(reader->sm, (uint16_t)(definition->pkey | (is_full ? 0x8000 : 0)),
			     kind, guid))
		reader->wrong = "no memory is left";
}

/* What a definition's flags mean beside its members. */
static void definition_apply(struct reader *reader, struct definition *definition)
{
	const struct sm_qos_rule rule = {
		.pkey = definition->pkey,
		.level = definition->ipoib.level,
	};

	definition->ipoib.pkey = definition->pkey;
	if (definition->has_ipoib && sm_ipoib_add(reader->sm, &definition->ipoib))
		reader->wrong = "there is no such rate, or MTU: they are InfiniBand's codes, such "
				"as rate=3, mtu=4";
	else if (rule.level && sm_qos_rule_add(reader->sm, &rule))
		reader->wrong = "no memory is left";
}

static int key_read(struct reader *reader, struct definition *definition, int end)
{
	uint64_t pkey = 0;

	if (end == '=')
		end = word_take(reader, reader->word);
	else if (!strcmp(reader->word, "Default"))
		strcpy(reader->word, "0x7fff");
	if (!quantity_number(reader->word, 0, 0xffff, &pkey) || !(pkey & 0x7fff))
		reader->wrong = "a partition begins with its name and P_Key, such as Name=0x0005";
	definition->pkey = (uint16_t)(pkey & 0x7fff);
	return end;
}

/* False: the file has ended, or something is wrong. */
static bool definition_read(struct reader *reader)
{
	struct definition definition = {
		.ipoib = {.mtu = 4, .rate = 3, .scope = 2, .qkey = 0x0b1b},
	};
	struct pair pair;
	int end = word_take(reader, reader->word);

	if (end == EOF && !*reader->word)
		return false;
	end = key_read(reader, &definition, end);
	while (!reader->wrong && end == ',') {
		end = pair_take(reader, &pair);
		flag_read(reader, &pair, &definition);
	}
	if (!reader->wrong && end != ':')
		reader->wrong = "after a partition's flags comes a colon, then its members";
	if (!reader->wrong)
		definition_apply(reader, &definition);
	while (!reader->wrong && (end == ':' || end == ',')) {
		end = pair_take(reader, &pair);
		if (*pair.name || end == ',')
			partition_member_add(reader, &pair, &definition);
	}
	if (!reader->wrong && end != ';')
		reader->wrong = "a partition ends with a semicolon";
	return !reader->wrong;
}

int partitions_read(struct sm *sm, const char *path)
{
	struct reader reader = {.sm = sm, .path = path, .line = 1};
	int result = 0;

	reader.file = fopen(path, "re");
	if (!reader.file) {
		result = -errno;
		log_error("cannot read %s: %s", path, strerror(errno));
		return result;
	}
	/* A file without a rule for the default partition has this one. */
	if (sm_partition_add(sm, DEFAULT_KEY, SM_MEMBER_ALL, 0))
		reader.wrong = "no memory is left";
	while (!reader.wrong && definition_read(&reader))
		;
	fclose(reader.file);
	if (!reader.wrong)
		return 0;
	log_error("%s:%u: %s", path, reader.line, reader.wrong);
	return -EINVAL;
}
