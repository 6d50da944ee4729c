/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See heap.h. Owns the spares: places for pointers to blocks of malloc(), which no part of the
 * process uses now. Any thread takes or fills a place by one exchange, so there is no lock, and at
 * any point of it a fork leaves places that are right: a child may lose the block that a thread was
 * taking.
 */
#define VERBENA_HEAP_ITSELF
#include "base/heap.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/signals.h"

/*
 * Blocks of k * STEP bytes at least are spares of kind k, for the small kinds. The large ones are
 * of LARGE bytes, twice that, and so on, for those sizes only: CQs' rings have them. A lot is what
 * one hold of the signals is for, and half of a kind's places.
 */
enum { STEP = 64, SMALL_KINDS = 49, LARGE = 4096, LARGE_KINDS = 5, LOT = 8, LARGE_LOT = 4 };
enum { KINDS = SMALL_KINDS + LARGE_KINDS, PLACES = 2 * LOT };

static _Atomic(void *) spares[KINDS][PLACES];
static bool are_kept; /* written by the constructor */
static int perturb;   /* what malloc() fills freed blocks with, by MALLOC_PERTURB_; 0: nothing */

#define WITH_SIGNALS_HELD(type, call)       \
	do {                                \
		sigset_t old;               \
                                            \
		signals_hold(&old);         \
		type const result = (call); \
                                            \
		signals_release(&old);      \
		return result;              \
	} while (0)

/* ------------------------------------------------------------------ spares */

static bool is_small(size_t kind)
{
	return kind < SMALL_KINDS;
}

static size_t kind_bytes(size_t kind)
{
	return is_small(kind) ? kind * STEP : (size_t)LARGE << (kind - SMALL_KINDS);
}

static int kind_lot(size_t kind)
{
	return is_small(kind) ? LOT : LARGE_LOT;
}

static void *spare_take(size_t kind)
{
	for (int i = 0; i < 2 * kind_lot(kind); i++) {
		void *at = atomic_load_explicit(&spares[kind][i], memory_order_relaxed);

		if (at &&
		    (at = atomic_exchange_explicit(&spares[kind][i], NULL, memory_order_acquire)))
			return at;
	}
	return NULL;
}

static bool spare_put(size_t kind, void *at)
{
	for (int i = 0; i < 2 * kind_lot(kind); i++) {
		void *none = NULL;

		if (!atomic_load_explicit(&spares[kind][i], memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(&spares[kind][i], &none, at,
							    memory_order_release,
							    memory_order_relaxed))
			return true;
	}
	return false;
}

/* Returns one block, and makes the rest of a lot spares. */
static void *lot_malloc(size_t kind)
{
	sigset_t old;

	signals_hold(&old);
	void *const first = malloc(kind_bytes(kind));

	for (int i = 1; first && i < kind_lot(kind); i++) {
		void *at = malloc(kind_bytes(kind));

		if (!at || !spare_put(kind, at)) {
			free(at);
			break;
		}
	}
	signals_release(&old);
	return first;
}

static void lot_free(size_t kind, void *at)
{
	sigset_t old;

	signals_hold(&old);
	for (int i = 0; at && i < kind_lot(kind); i++) {
		free(at);
		at = spare_take(kind);
	}
	free(at);
	signals_release(&old);
}

/* The large kind of at least `bytes`, which differ from its size by less than `slack`; else 0. */
static size_t spare_kind_large(size_t bytes, size_t slack)
{
	for (size_t kind = SMALL_KINDS; kind < KINDS; kind++)
		if (bytes - kind_bytes(kind) < slack)
			return kind;
	return 0;
}

/* The kind whose blocks have room for `size` bytes; 0: there are no spares of that size. */
static size_t spare_kind_for(size_t size)
{
	size_t kind = (size + STEP - 1) / STEP;

	if (!are_kept)
		return 0;
	return is_small(kind) ? kind : spare_kind_large(size, 1);
}

/* The kind that a block is a spare of; 0: of none. */
static size_t spare_kind_of(void *at)
{
	size_t bytes = are_kept ? malloc_usable_size(at) : 0;

	return is_small(bytes / STEP) ? bytes / STEP : spare_kind_large(bytes, STEP);
}

static void *base_of(const char *function)
{
	Dl_info info;
	void *at = dlsym(RTLD_DEFAULT, function);

	return at && dladdr(at, &info) ? info.dli_fbase : NULL;
}

/* No spares where the sanitizers watch malloc(), nor with a malloc() of the program's own that
 * has no malloc_usable_size(). */
__attribute__((constructor)) static void spares_begin(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	const char *fill = env_get("MALLOC_PERTURB_");

	perturb = fill ? atoi(fill) & 0xff : 0;
	are_kept = base_of("malloc") == base_of("malloc_usable_size");
#endif
}

/* ------------------------------------------------------------------ calls */

void heap_free(void *at)
{
	sigset_t old;
	size_t kind = at ? spare_kind_of(at) : 0;

	if (!at)
		return;
	if (kind) {
		if (perturb)
			memset(at, perturb, kind_bytes(kind));
		if (!spare_put(kind, at))
			lot_free(kind, at);
		return;
	}
	signals_hold(&old);
	free(at);
	signals_release(&old);
}

void *heap_malloc(size_t size)
{
	size_t kind = spare_kind_for(size);

	if (kind) {
		void *at = spare_take(kind);

		return at ? at : lot_malloc(kind);
	}
	WITH_SIGNALS_HELD(void *, malloc(size));
}

void *heap_calloc(size_t count, size_t size)
{
	size_t bytes;

	if (!__builtin_mul_overflow(count, size, &bytes) && spare_kind_for(bytes)) {
		void *at = heap_malloc(bytes);

		return at ? memset(at, 0, bytes) : NULL;
	}
	WITH_SIGNALS_HELD(void *, calloc(count, size));
}

void *heap_realloc(void *at, size_t size)
{
	WITH_SIGNALS_HELD(void *, realloc(at, size));
}

void *heap_aligned_alloc(size_t alignment, size_t size)
{
	WITH_SIGNALS_HELD(void *, aligned_alloc(alignment, size));
}

int heap_posix_memalign(void **at, size_t alignment, size_t size)
{
	WITH_SIGNALS_HELD(int, posix_memalign(at, alignment, size));
}

char *heap_strdup(const char *text)
{
	WITH_SIGNALS_HELD(char *, strdup(text));
}

FILE *heap_fopen(const char *path, const char *mode)
{
	WITH_SIGNALS_HELD(FILE *, fopen(path, mode));
}

int heap_fclose(FILE *file)
{
	WITH_SIGNALS_HELD(int, fclose(file));
}

DIR *heap_opendir(const char *path)
{
	WITH_SIGNALS_HELD(DIR *, opendir(path));
}

int heap_closedir(DIR *dir)
{
	WITH_SIGNALS_HELD(int, closedir(dir));
}
