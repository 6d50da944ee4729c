/* SPDX-License-Identifier: BSD-2-Clause */
/* Flow rules' specifications: from the program's layout to the kernel's. */
#ifndef VERBENA_KVERBS_FLOW_SPECS_H
#define VERBENA_KVERBS_FLOW_SPECS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes of one specification in the kernel's layout. */
enum { FLOW_SPEC_MAX = 88 };

/* What a program names by pointers: each function writes the number that stands for it. 0 or a
 * positive errno. */
struct flow_handles {
	int (*counters)(void *arg, struct ibv_counters *counters, uint32_t *handle);
	int (*action)(void *arg, const struct ibv_flow_action *action,
		      uint32_t *handle); /* or NULL */
	void *arg;
};

/* Writes all specifications behind `attr` to `to`, which has FLOW_SPEC_MAX bytes for each: *size
 * has their bytes. 0, or a positive errno as ibv_create_flow(3) says. */
int flow_specs_encode(uint8_t *to, const struct ibv_flow_attr *attr,
		      const struct flow_handles *handles, size_t *size);

#endif
