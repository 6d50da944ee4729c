/* SPDX-License-Identifier: BSD-2-Clause */
/* See maps.h. */
#include "maps.h"

#include <stdio.h>
#include <string.h>

struct line maps_find(const void *at, const struct line *like)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct line found = {0};
	char text[512];

	while (maps && !found.rights[0] && fgets(text, sizeof(text), maps)) {
		unsigned long long from, to, number = 0;
		struct line line = {0};

		if (sscanf(text, "%llx-%llx %4s %*x %*x:%*x %llu %63[^\n]", &from, &to, line.rights,
			   &number, line.name) < 4)
			continue;
		line.inode = number;
		if (at ? (uintptr_t)at >= from && (uintptr_t)at < to
		       : number == like->inode && !strcmp(line.name, like->name))
			found = line;
	}
	if (maps)
		fclose(maps);
	return found;
}

bool is_converted(const void *at)
{
	struct line line = maps_find(at, NULL);

	return line.inode && strstr(line.name, "verbena-memory") && line.rights[3] == 's';
}

bool is_private(const void *at)
{
	return maps_find(at, NULL).rights[3] == 'p';
}
