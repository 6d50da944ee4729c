/* SPDX-License-Identifier: BSD-2-Clause */
/* The manager's own files: LIDs and the M_Key. In the file of LIDs, which only this program writes,
 * lines that can't be are skipped. One thread. */
#include "smd/files.h"

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
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

/* M_Key ---------------------------------------------------------------------------------------- */

int m_key_make(const char *path, uint64_t *key)
{
	FILE *file = fopen(path, "re");
	unsigned long long found = 0;
	bool is_written;

	if (file) {
		if (fscanf(file, "%llx", &found) != 1)
			found = 0;
		fclose(file);
	}
	*key = found;
	if (found)
		return 0;
	while (!*key)
		if (getrandom(key, sizeof *key, 0) != sizeof *key)
			return -EIO;
	file = fopen(path, "we");
	is_written = file && fprintf(file, "0x%016llx\n", (unsigned long long)*key) > 0;
	if (file)
		is_written &= !fclose(file);
	if (is_written)
		return 0;
	/* Ports would keep a key that nobody knows any more. */
	log_error("cannot write the M_Key into %s: %s", path, strerror(errno));
	return -EIO;
}
