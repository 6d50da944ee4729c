/* SPDX-License-Identifier: BSD-2-Clause */
/* Conditions of a test that is one program: what isn't so is said, and the program ends with 1. */
#ifndef VERBENA_E2E_MUST_H
#define VERBENA_E2E_MUST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, \
				#condition, strerror(errno));                           \
			exit(1);                                                        \
		}                                                                       \
	} while (0)
/* The call fails with this errno. */
#define REFUSED(call, number)            \
	do {                             \
		errno = 0;               \
		MUST((call) == -1);      \
		MUST(errno == (number)); \
	} while (0)

#endif
