/* SPDX-License-Identifier: BSD-2-Clause */
/* Where counters begin (base/counter.h): an input decides, as a simulator's seed does. */
#ifndef VERBENA_TESTS_FUZZ_COUNTERS_H
#define VERBENA_TESTS_FUZZ_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

/* Before the input's first step. Only its first bytes count, so that the rest can be changed, or
 * left out, with the same beginning. */
void counters_draw(const uint8_t *data, size_t size);

#endif
