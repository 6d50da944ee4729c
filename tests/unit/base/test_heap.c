/* SPDX-License-Identifier: BSD-2-Clause */
/* The spares of heap.h: how often signals are held, and that no block has two users. */
#define VERBENA_HEAP_ITSELF
#include "base/heap.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/signals.h"

static atomic_uint holds;

void __wrap_signals_hold(sigset_t *old);
void __real_signals_hold(sigset_t *old);

void __wrap_signals_hold(sigset_t *old)
{
	atomic_fetch_add(&holds, 1);
	__real_signals_hold(old);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { LOT = 8 };
#else
enum { LOT = 1 };
#endif

static void one_hold_is_for_a_lot(void **state)
{
	enum { BLOCKS = 800 };
	static void *blocks[BLOCKS];

	(void)state;
	atomic_store(&holds, 0);
	for (int i = 0; i < BLOCKS; i++)
		assert_non_null(blocks[i] = heap_malloc(600));
	for (int i = 0; i < BLOCKS; i++)
		heap_free(blocks[i]);
	assert_true(holds <= 2 * BLOCKS / LOT);
	atomic_store(&holds, 0);
	for (int i = 0; LOT > 1 && i < BLOCKS; i++)
		heap_free(heap_malloc(600));
	assert_int_equal(holds, 0);
}

static void sizes_and_zeros(void **state)
{
	(void)state;
	for (size_t size = 0; size < 5000; size++) {
		uint8_t *at = heap_malloc(size);

		assert_non_null(at);
		memset(at, 0xff, size);
		heap_free(at);
		at = heap_calloc(1, size);
		for (size_t i = 0; i < size; i++)
			assert_int_equal(at[i], 0);
		heap_free(at);
	}
	volatile size_t half = SIZE_MAX / 2;

	assert_null(heap_calloc(half, 3));
	for (size_t size = 8192; size <= 1 << 18; size *= 2) {
		uint8_t *at = memset(heap_malloc(size), 0xff, size);

		heap_free(at);
		assert_int_equal((at = heap_calloc(1, size))[size - 1], 0);
		heap_free(at);
	}
	heap_free(NULL);
}

/* Programs and drivers free what is ours, and the other way round. */
static void blocks_are_those_of_malloc(void **state)
{
	(void)state;
	for (size_t size = 1; size < 5000; size += 7) {
		free(heap_malloc(size));
		heap_free(malloc(size));
		heap_free(heap_realloc(malloc(size), 2 * size));
		free(realloc(heap_malloc(size), 2 * size));
	}
}

static void *takes_and_gives(void *number)
{
	enum { ROUNDS = 20000, OWN = 12 };
	uintptr_t *own[OWN] = {0};

	for (unsigned int i = 0; i < ROUNDS; i++) {
		uintptr_t **place = &own[i * 7 % OWN];

		if (*place)
			assert_int_equal(**place, (uintptr_t)number);
		heap_free(*place);
		*place = heap_malloc(64 + i % 3 * 64);
		**place = (uintptr_t)number;
	}
	for (int i = 0; i < OWN; i++)
		heap_free(own[i]);
	return NULL;
}

static void a_block_has_one_user(void **state)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];

	(void)state;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, takes_and_gives, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_hold_is_for_a_lot),
		cmocka_unit_test(sizes_and_zeros),
		cmocka_unit_test(blocks_are_those_of_malloc),
		cmocka_unit_test(a_block_has_one_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
