/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two libraries with the same interface in one program: ours and Debian's. Each function is found
 * in both by name, called with the same arguments, and must do the same.
 */
#ifndef VERBENA_TESTS_ABI_COMPARE_H
#define VERBENA_TESTS_ABI_COMPARE_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SKIPPED 77

enum { OURS, DEBIANS, LIBRARIES };

static void *libraries[LIBRARIES];
static unsigned long compared;

/* Opens both; ends the program if they aren't two libraries. */
static inline void compare_open(char *const paths[LIBRARIES])
{
	struct stat files[LIBRARIES];

	for (int i = 0; i < LIBRARIES; i++) {
		if (stat(paths[i], &files[i]) < 0) {
			printf("skipped: %s is missing\n", paths[i]);
			exit(SKIPPED);
		}
		libraries[i] = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
		if (!libraries[i]) {
			printf("%s\n", dlerror());
			exit(1);
		}
	}
	if (files[OURS].st_ino == files[DEBIANS].st_ino || libraries[OURS] == libraries[DEBIANS]) {
		printf("Both files are the same one: that compares nothing.\n");
		exit(1);
	}
}

static inline void *compare_symbol(int library, const char *name)
{
	void *symbol = dlsym(libraries[library], name);

	if (!symbol) {
		printf("%s\n", dlerror());
		exit(1);
	}
	return symbol;
}

/* Calls `function` of library `which`; its type is that of the header. */
#define CALL(which, function) ((__typeof__(function) *)compare_symbol(which, #function))

__attribute__((format(printf, 1, 2), noreturn)) static inline void differ(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	exit(1);
}

static inline void same_bytes(const void *ours, const void *theirs, size_t size, const char *what,
			      long number)
{
	compared++;
	for (size_t i = 0; i < size; i++)
		if (((const uint8_t *)ours)[i] != ((const uint8_t *)theirs)[i])
			differ("%s (%ld): byte %zu is %02x with our library, %02x with Debian's",
			       what, number, i, ((const uint8_t *)ours)[i],
			       ((const uint8_t *)theirs)[i]);
}

static inline void same_text(const char *ours, const char *theirs, const char *what, long number)
{
	compared++;
	if (strcmp(ours, theirs))
		differ("%s (%ld):\n`%s` with our library,\n`%s` with Debian's", what, number, ours,
		       theirs);
}

static inline void same_number(long ours, long theirs, const char *what, long number)
{
	compared++;
	if (ours != theirs)
		differ("%s (%ld): %ld with our library, %ld with Debian's", what, number, ours,
		       theirs);
}

/* What is written to standard error (or output) between begin and end. */
struct captured {
	FILE **stream;
	FILE *kept;
	char *text;
	size_t size;
};

static inline void capture_begin(struct captured *captured, FILE **stream)
{
	captured->stream = stream;
	captured->kept = *stream;
	*stream = open_memstream(&captured->text, &captured->size);
}

/* Returns the text, which the caller frees. */
static inline char *capture_end(struct captured *captured)
{
	fclose(*captured->stream);
	*captured->stream = captured->kept;
	return captured->text;
}

static inline void fill_random(void *buffer, size_t size)
{
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)random();
}

#endif
