/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying past the caches, into memory that a program on another core reads next.
 *
 * What that reader has read there before is in its cache, so an ordinary store first asks that
 * cache for the line, and a core can have few such questions open. A streaming store asks nobody,
 * and the reader's prefetcher hides where the bytes come from. A ring of 128 KiB between two cores,
 * copied in by one and out by the other in pieces of 16 KiB (AMD EPYC 9004): 8 GB/s by ordinary
 * stores where the cores share their last cache and 2 GB/s where they don't; by streaming ones
 * 14 GB/s in either case. A single piece that is waited for is there later by streaming (16 KiB in
 * 2.7 us instead of 2.2, within one cache), so short ones aren't streamed.
 */
#ifndef VERBENA_HCA_MEM_STREAMING_H
#define VERBENA_HCA_MEM_STREAMING_H

#include <stddef.h>

/* From so many bytes on it is worth it. */
#define STREAMING_LEAST 16384

/* Like memcpy(); without order among its bytes, and to what is stored later, until
 * streaming_end(). */
void streaming_copy(void *to, const void *from, size_t length);

/* All that this thread has copied comes before what it stores from here on. */
void streaming_end(void);

#endif
