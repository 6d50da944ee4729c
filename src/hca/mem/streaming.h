/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying that bypasses the caches, into memory that a program on another core reads next.
 *
 * The reader's cache holds the lines that it read there before, so an ordinary store first requests
 * the line from that cache, and a core can have few such requests open. A streaming store makes no
 * request, and the reader's prefetcher hides where the bytes come from. A ring of 128 KiB between
 * two cores, copied in by one and out by the other in pieces of 16 KiB (AMD EPYC 9004): 8 GB/s by
 * ordinary stores where the cores share their last-level cache and 2 GB/s where they don't; by
 * streaming stores 14 GB/s in either case. A single piece whose reader waits for it arrives later
 * by streaming (16 KiB in 2.7 us instead of 2.2, within one cache), so short ones aren't streamed.
 */
#ifndef VERBENA_HCA_MEM_STREAMING_H
#define VERBENA_HCA_MEM_STREAMING_H

#include <stddef.h>

/* The least number of bytes for which streaming pays. */
#define STREAMING_LEAST 16384

/* Like memcpy(), but without any order among its bytes, or with later stores, until
 * streaming_end(). */
void streaming_copy(void *to, const void *from, size_t length);

/* Orders all that this thread has copied before its later stores. */
void streaming_end(void);

#endif
