/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lines of a text file, and the names in a folder, read without the C library's streams: these
 * allocate memory, and so wait for locks that a thread which is stopped may hold
 * (hca/mem/warden.h). State: the caller's; the caller serialises.
 */
#ifndef VERBENA_BASE_LINES_H
#define VERBENA_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>

struct lines {
	int fd;		/* -1: the file couldn't be opened */
	bool failed;	/* the kernel has refused to read on */
	size_t at, end; /* what is left of the buffer */
	char buffer[4096];
};

/* Reads the lines of the open file from its present place on. The descriptor stays the caller's. */
void lines_begin(struct lines *lines, int fd);

/* The next line without its newline, always terminated; what is longer than `size` - 1 is left out.
 * False: the end, or `failed`. */
bool lines_next(struct lines *lines, char *line, size_t size);

struct names {
	int fd;
	bool failed;
	size_t at, end;
	char buffer[1024] __attribute__((aligned(8)));
};

/* Opens the folder. False: it can't be opened. */
bool names_open(struct names *names, const char *folder);
void names_close(struct names *names);

/* The next name that doesn't begin with a dot, valid until the next call. NULL: the end, or
 * `failed`. */
const char *names_next(struct names *names);

#endif
