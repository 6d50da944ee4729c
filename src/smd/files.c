/* SPDX-License-Identifier: BSD-2-Clause */
/* The manager's files. Lines that can't be are named and end reading partitions; in the file of
 * LIDs, which only this program writes, they are skipped. One thread. */
#include "smd/files.h"

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* LIDs ----------------------------------------------------------------------------------------- */

int lids_read(struct sm *sm, const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned long long guid;
	unsigned int lid, lmc;
	char line[128];

	if (!file && errno == ENOENT)
		return 0;
	if (!file) {
		log_error("cannot read %s: %s", path, strerror(errno));
		return -errno;
	}
	while (fgets(line, sizeof line, file)) {
		lmc = 0;
		if (sscanf(line, "%llx %x %u", &guid, &lid, &lmc) >= 2 && lid < 0xc000 && lmc < 8)
			sm_lid_restore(sm, guid, (uint16_t)lid, (uint8_t)lmc);
	}
	fclose(file);
	return 0;
}

struct lids_text {
	FILE *file;
	const char *path;
};

static void lid_visit(void *context, uint64_t guid, uint16_t lid, uint8_t lmc)
{
	struct lids_text *text = context;

	if (!text->file)
		text->file = fopen(text->path, "we");
	if (text->file)
		fprintf(text->file, "0x%016llx 0x%04x %u\n", (unsigned long long)guid, lid, lmc);
}

void lids_write(struct sm *sm, const char *path)
{
	char temporary[PATH_MAX];
	struct lids_text text = {.path = temporary};
	bool is_written;

	if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
		return;
	sm_lids_save(sm, lid_visit, &text);
	if (!text.file)
		return;
	is_written = !ferror(text.file);
	is_written &= !fclose(text.file);
	if (!is_written || rename(temporary, path))
		log_warn("cannot write %s: ports may get other LIDs when the manager is started "
			 "again",
			 path);
}

/* Partitions ----------------------------------------------------------------------------------- */

static int member_read(struct sm *sm, unsigned long pkey, char *word)
{
	char *kind = strchr(word, '='), *end = word;
	bool is_full = true;
	uint64_t guid = 0;

	if (kind) {
		*kind++ = '\0';
		is_full = !strcmp(kind, "full");
		if (!is_full && strcmp(kind, "limited") != 0)
			return -EINVAL;
	}
	if (strcmp(word, "ALL") != 0) {
		guid = strtoull(word, &end, 16);
		if (*end || !guid)
			return -EINVAL;
	}
	return sm_partition_add(sm, (uint16_t)((pkey & 0x7fff) | (is_full ? 0x8000 : 0)), guid);
}

static int partition_read(struct sm *sm, char *line)
{
	char *rest = NULL, *word, *end;
	unsigned long pkey;
	int result = 0;

	line[strcspn(line, "#\n")] = '\0';
	word = strtok_r(line, " \t", &rest);
	if (!word)
		return 0;
	pkey = strtoul(word, &end, 16);
	if (*end || pkey > 0xffff)
		return -EINVAL;
	while (!result && (word = strtok_r(NULL, " \t", &rest)))
		result = member_read(sm, pkey, word);
	return result;
}

int partitions_read(struct sm *sm, const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned int number = 0;
	char line[4096];
	int result = 0;

	if (!file) {
		log_error("cannot read %s: %s", path, strerror(errno));
		return -errno;
	}
	while (!result && fgets(line, sizeof line, file)) {
		number++;
		result = partition_read(sm, line);
	}
	fclose(file);
	if (result)
		log_error("%s:%u: a line is a P_Key (not the default one) and its members: port "
			  "GUIDs or ALL, each may have `=limited`",
			  path, number);
	return result;
}
