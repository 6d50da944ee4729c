/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomic operations. See atomic.h. No state. */
#include "hca/mem/atomic.h"

#include <stdatomic.h>

#include "hca/mem/guard.h"

GUARDED static uint64_t atomic_apply(_Atomic uint64_t *word, const struct record_atomic *op)
{
	uint64_t old = op->compare_add;

	switch (op->operation) {
	case RECORD_ADD:
		/* [X1], pairs with the program's own atomic operations */
		return atomic_fetch_add(word, op->compare_add);
	case RECORD_STORE:
		/* [X1], pairs with the program's own atomic operations */
		atomic_store(word, op->swap);
		return 0;
	default:
		/* [X1], pairs with the program's own atomic operations */
		atomic_compare_exchange_strong(word, &old, op->swap);
		return old;
	}
}

bool atomic_execute(uint64_t addr, const struct record_atomic *op, uint64_t *old)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	*old = atomic_apply((_Atomic uint64_t *)(uintptr_t)addr, op);
	guard_leave();
	return true;
}
