/* SPDX-License-Identifier: BSD-2-Clause */
/* See heap.h. No state. */
#define VERBENA_HEAP_ITSELF
#include "base/heap.h"

#include "base/signals.h"

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

void heap_free(void *at)
{
	sigset_t old;

	if (!at)
		return;
	signals_hold(&old);
	free(at);
	signals_release(&old);
}

void *heap_malloc(size_t size)
{
	WITH_SIGNALS_HELD(void *, malloc(size));
}

void *heap_calloc(size_t count, size_t size)
{
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
