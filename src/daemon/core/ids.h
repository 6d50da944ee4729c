/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers that age: a number that was given back is handed out again as late as can be, so that
 * nothing in flight names its new owner by mistake.
 *
 * Given-back numbers wait in a queue, the oldest in front. A fresh number is preferred while fewer
 * than `age` wait, so that a program which makes and destroys one object over and over touches a
 * bounded part of whatever is indexed by the number. O(1). Memory grows with the numbers in use.
 */
#ifndef VERBENA_DAEMON_CORE_IDS_H
#define VERBENA_DAEMON_CORE_IDS_H

#include <stdint.h>

struct ids {
	uint32_t first, count; /* numbers are first .. first + count - 1 */
	uint32_t start;	       /* place within the range where fresh numbers begin */
	uint32_t age;
	uint32_t fresh;		      /* so many places were ever taken */
	uint32_t head, tail, waiting; /* queue of places, linked through `next` */
	uint32_t *next;
	uint32_t room;
	uint8_t *claimed; /* a bit for each place, from ids_claim() to ids_claimed(); else NULL */
	uint32_t claimed_bytes;
};

/* `start` is any number: where another range's ids_mark() left off, or 0. */
void ids_init(struct ids *ids, uint32_t first, uint32_t count, uint32_t age, uint32_t start);
void ids_fini(struct ids *ids);

/* 0; -ENOSPC all are in use; -ENOMEM. */
int ids_take(struct ids *ids, uint32_t *number);
/* `number` was taken and is given back once. Cannot fail. */
void ids_give(struct ids *ids, uint32_t number);

/*
 * A range that is made anew with numbers in use: ids_claim() each, in any order, then
 * ids_claimed(); no other call in between. Memory grows with the highest place. 0; -EINVAL no
 * number of the range; -EEXIST claimed before; -ENOMEM.
 */
int ids_claim(struct ids *ids, uint32_t number);
void ids_claimed(struct ids *ids);

/* Where a successor should start, so that it begins with numbers that this one hasn't used. */
uint32_t ids_mark(const struct ids *ids);

#endif
