/* SPDX-License-Identifier: BSD-2-Clause */
/* Copying a segment of a work request into a WQE. */
#ifndef VERBENA_HCA_VERBS_SGE_H
#define VERBENA_HCA_VERBS_SGE_H

#include <infiniband/verbs.h>
#include <stdint.h>

/*
 * Copies a segment in two halves, as programs write them: the address, which often changes from one
 * request to the next, and what seldom does. A copy as a whole, which the compiler would make of a
 * plain assignment, waits until the program's store of the address has left the store buffer.
 */
static inline void sge_copy(struct ibv_sge *to, const struct ibv_sge *from)
{
	uint64_t addr = from->addr;

	__asm__("" : "+r"(addr)); /* keeps the halves apart */
	to->addr = addr;
	to->length = from->length;
	to->lkey = from->lkey;
}

#endif
