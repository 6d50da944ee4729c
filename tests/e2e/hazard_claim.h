/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of the end of access: this process says, as its peers read it, that it copies. */
#ifndef VERBENA_E2E_HAZARD_CLAIM_H
#define VERBENA_E2E_HAZARD_CLAIM_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"

/* Sets a hazard, which no real copy uses, in this process's regions' file: it copies by `rkey` of
 * the peer's process. Returns the hazard; storing 0 there ends the claim. */
static inline _Atomic uint64_t *hazard_claim(const struct end *end, uint32_t rkey)
{
	/* As in src/shm/pub.h and src/proto/limits.h. */
	enum { HAZARDS_AT = 64, HAZARD = 64, LAST_HAZARD = 55, QP_BITS = 14 };
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	char line[512];

	CHECK(end->rig, maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:verbena-regions") && strstr(line, " rw-s "))
			start = strtoul(line, NULL, 16);
	fclose(maps);
	CHECK(end->rig, start);
	_Atomic uint64_t *hazard =
		(_Atomic uint64_t *)(start + HAZARDS_AT + LAST_HAZARD * HAZARD); /* NOLINT */

	*hazard = (uint64_t)(end->peer.qpn >> QP_BITS) << 32 | rkey;
	return hazard;
}

#endif
