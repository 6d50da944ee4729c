/* SPDX-License-Identifier: BSD-2-Clause */
/* A region of end B's that end A maps, or may map: what found.c and converted.c share. */
#ifndef VERBENA_E2E_FOUND_H
#define VERBENA_E2E_FOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "maps.h"
#include "rig.h"

enum { PAGE = 4096, BYTES = 8 * PAGE, SKIP = 3 * PAGE + 40, SEED = 9, OLD = 0x55, NEW = 0xaa };

enum {
	ALL_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC
};

/* A's knowledge of B's region. */
struct found {
	uint8_t *at; /* B's */
	struct ibv_mr *mr;
	struct {
		uint64_t addr;
		struct line line;
		uint32_t rkey;
		pid_t pid;
	} mine, theirs;
};

/* Whether A has mapped the region's file. */
bool is_mapped(const struct found *found);
/* B registers BYTES at `at`, and A learns of it. */
void found_register(struct found *found, struct end *end, uint8_t *at, unsigned int rights);
/* A: one operation at an offset of the region; waits for its completion. */
void operate(struct end *end, const struct found *found, enum ibv_wr_opcode opcode, uint64_t id,
	     uint32_t length, uint64_t at, enum ibv_wc_status status);
/* A operates until the region is mapped here. */
void await_mapping(struct end *end, const struct found *found, enum ibv_wr_opcode opcode);
/* WRITE, READ, and both atomics, at both ends and across the middle. */
void use_all(struct end *end, const struct found *found);
/* The region ends: A's mapping of it goes away, and its key is refused. */
void end_region(struct end *end, struct found *found, bool was_mapped);

/* Private memory (converted.c). */
uint8_t *private_pages(struct rig *rig, size_t bytes);
/* Connects the end, and returns BYTES of private memory with the pattern of SEED. NULL: the carrier
 * isn't `converted`, and nothing was done. */
uint8_t *convertible_pages(struct rig *rig, struct end *end);

#endif
