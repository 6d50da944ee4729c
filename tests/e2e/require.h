/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a test program that isn't one of a rig's (rig.h), where something isn't so. */
#ifndef VERBENA_E2E_REQUIRE_H
#define VERBENA_E2E_REQUIRE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                  \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition, \
				strerror(errno));                                           \
			_exit(1);                                                           \
		}                                                                           \
	} while (0)

#endif
