/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers that are quarantined before reuse: a number that was given back is taken again as late as
 * possible, so that nothing in flight reaches the new object of that number by mistake.
 *
 * Numbers that were given back wait in a queue, the oldest first. A fresh number is preferred while
 * fewer than `age` wait, so that a program which makes and destroys one object over and over uses a
 * bounded part of whatever the number indexes. All operations are O(1). Memory grows with the
 * numbers in use.
 */
#ifndef VERBENA_DAEMON_CORE_IDS_H
#define VERBENA_DAEMON_CORE_IDS_H

#include <stdint.h>

struct ids {
	uint32_t first, count; /* numbers are first .. first + count - 1 */
	uint32_t start;	       /* place within the range where fresh numbers begin */
	uint32_t age;
	uint32_t fresh;		      /* places that were ever taken */
	uint32_t head, tail, waiting; /* queue of places, linked through `next` */
	uint32_t *next;
	uint32_t room;
	uint8_t *claimed; /* one bit for each place, from ids_claim() to ids_claimed(); else NULL */
	uint32_t claimed_bytes;
};

/* `start`: any number; usually another range's ids_mark(), or 0. */
void ids_init(struct ids *ids, uint32_t first, uint32_t count, uint32_t age, uint32_t start);
void ids_fini(struct ids *ids);

/* Takes a number. Returns 0; -ENOSPC: all are in use; -ENOMEM. */
int ids_take(struct ids *ids, uint32_t *number);
/* Gives back `number`, which ids_take() returned. Cannot fail. */
void ids_give(struct ids *ids, uint32_t number);

/*
 * Rebuilds a range with numbers in use: ids_claim() for each, in any order, then ids_claimed(),
 * with no other call in between. Memory grows with the highest place. Returns 0; -EINVAL: not a
 * number of the range; -EEXIST: claimed before; -ENOMEM.
 */
int ids_claim(struct ids *ids, uint32_t number);
void ids_claimed(struct ids *ids);

/* The `start` for a successor of this range, so that it begins with numbers that this one hasn't
 * used. */
uint32_t ids_mark(const struct ids *ids);

#endif
