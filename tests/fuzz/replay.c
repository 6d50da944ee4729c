/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a target over files and directories of inputs, without a fuzzer, so that known findings are
 * tested with any compiler. usage: PROGRAM FILE|FOLDER... */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "input.h"

static unsigned int inputs;

static void run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;

	if (!f || fstat(fileno(f), &st) < 0) {
		fprintf(stderr, "replay: can't read %s\n", path);
		exit(2);
	}
	/* In a block of the input's exact size, so that reads beyond its end are detected. */
	uint8_t *data = malloc((size_t)st.st_size + !st.st_size);

	if (!data || fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		exit(2);
	fclose(f);
	if (getenv("REPLAY_VERBOSE"))
		fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	free(data);
	inputs++;
}

static void run(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char name[4096];

	if (!dir) {
		run_file(path);
		return;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		run_file(name);
	}
	closedir(dir);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		run(argv[i]);
	printf("%u inputs\n", inputs);
	return inputs ? 0 : 1;
}
