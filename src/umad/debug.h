/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of libibumad on standard error, which umad_debug() switches on. */
#ifndef VERBENA_UMAD_DEBUG_H
#define VERBENA_UMAD_DEBUG_H

#include <stdio.h>
#include <unistd.h>

#include <infiniband/umad.h>

/* "ibwarn: [process] function: ...", as rdma-core's libraries write it. */
#define UMAD_WARN(format, ...) \
	fprintf(stderr, "ibwarn: [%d] %s: " format "\n", (int)getpid(), __func__, ##__VA_ARGS__)

#define UMAD_TRACE(...)                         \
	do {                                    \
		if (umad_debug(-1))             \
			UMAD_WARN(__VA_ARGS__); \
	} while (0)

#endif
