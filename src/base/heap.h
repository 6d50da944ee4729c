/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc() and what calls it, with signals held. glibc's fork() waits for malloc's locks in a
 * process with several threads, which every process with a device is. So if a signal handler calls
 * fork() while its thread is in malloc(), it waits for ever. A program with one thread of its own
 * has no reason to expect that of a call of ours (its own calls of malloc() it must mind itself).
 *
 * The build includes this file before each source of the libraries, so malloc(), free() and their
 * kind mean the functions below. Holding signals costs two system calls, so small blocks that are
 * freed are kept as spares, a few of each size, and one hold gets or frees eight of them (making
 * and ending a CQ took a twentieth and a quarter longer with a hold for each call). Spares are
 * blocks of malloc(): what a program or a driver frees needn't come back here, and the other way
 * round. Not for fast paths.
 */
#ifndef VERBENA_BASE_HEAP_H
#define VERBENA_BASE_HEAP_H

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void heap_free(void *at);
void *heap_malloc(size_t size) __attribute__((malloc, alloc_size(1), warn_unused_result));
void *heap_calloc(size_t count, size_t size)
	__attribute__((malloc, alloc_size(1, 2), warn_unused_result));
void *heap_realloc(void *at, size_t size) __attribute__((alloc_size(2), warn_unused_result));
void *heap_aligned_alloc(size_t alignment, size_t size)
	__attribute__((malloc, alloc_align(1), alloc_size(2), warn_unused_result));
int heap_posix_memalign(void **at, size_t alignment, size_t size);
char *heap_strdup(const char *text);
FILE *heap_fopen(const char *path, const char *mode);
int heap_fclose(FILE *file);
DIR *heap_opendir(const char *path);
int heap_closedir(DIR *dir);

#ifndef VERBENA_HEAP_ITSELF
#define free(at) heap_free(at)
#define malloc(size) heap_malloc(size)
#define calloc(count, size) heap_calloc(count, size)
#define realloc(at, size) heap_realloc(at, size)
#define aligned_alloc(alignment, size) heap_aligned_alloc(alignment, size)
#define posix_memalign(at, alignment, size) heap_posix_memalign(at, alignment, size)
#undef strdup
#define strdup(text) heap_strdup(text)
#define fopen(path, mode) heap_fopen(path, mode)
#define fclose(file) heap_fclose(file)
#define opendir(path) heap_opendir(path)
#define closedir(dir) heap_closedir(dir)
#endif

#endif
