/* SPDX-License-Identifier: BSD-2-Clause */
/* See counters.h. */
#include "counters.h"

#include <string.h>

#include "base/counter.h"

enum { BYTES = 8 };

uint32_t counter_lead;

/* An input has some hundred steps: three of four pass the end of what rises by 2, 16 or 128. */
void counters_draw(const uint8_t *data, size_t size)
{
	static const uint32_t most[] = {2, 16, 128, UINT32_MAX};
	uint64_t z = 0;

	memcpy(&z, data, size < BYTES ? size : BYTES);
	z = (z + 1) * 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9ull;
	counter_lead = (uint32_t)(z >> 32) % most[z >> 30 & 3];
}
