/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying that bypasses the caches, into memory that a program on another core reads next.
 *
 * The reader's cache holds the lines that it read there before, so an ordinary store first requests
 * the line from that cache, and a core can have few such requests open. A streaming store makes no
 * request, and the reader's prefetcher hides where the bytes come from. Whether that is quicker
 * depends on the processor, so its vendor decides.
 *
 * AMD EPYC 9004: a ring of 128 KiB between two cores, copied in by one and out by the other in
 * pieces of 16 KiB: 8 GB/s by ordinary stores where the cores share their last-level cache and
 * 2 GB/s where they don't; by streaming stores 14 GB/s in either case. A single piece whose reader
 * waits for it arrives later by streaming (16 KiB in 2.7 us instead of 2.2, within one cache), so
 * short ones aren't streamed.
 *
 * Intel Xeon with 2 MiB of second-level cache for each core (virtual machine): memcpy(), which
 * stores whole lines without requesting them there (rep movsb), against streaming stores:
 *
 *                                           64 KiB              1 MiB
 *   nothing reads, the same bytes again     41 | 20 GB/s        27 | 21 GB/s
 *   another core reads all, in turns        11.5 | 11.9 us      107 | 163 us
 *   another core reads behind, 8 buffers    18 | 10 GB/s        13.4 | 13.1 GB/s
 *
 * So it doesn't stream. Pieces of 16 KiB in turns are an exception (3.9 | 3.3 us).
 *
 * AMD EPYC 9005 (virtual machine, one last-level cache), ordinary against streaming stores:
 *
 *                                           64 KiB              1 MiB
 *   nothing reads, the same bytes again     110 | 66 GB/s       63 | 78 GB/s
 *   another core reads all, in turns        5.4 | 5.8 us        63.5 | 61.5 us
 *   ib_write_bw on converted memory         -                   62 | 41 GB/s
 *
 * An RDMA WRITE doesn't say whether a program on another core has read the old bytes. Its time
 * does: a core that has to take the lines from another one copies 2 to 8 GB/s. So WRITEs are tried
 * by ordinary stores, and streamed for a while if that was slow (streaming_choose()).
 */
#ifndef VERBENA_HCA_MEM_STREAMING_H
#define VERBENA_HCA_MEM_STREAMING_H

#include <stddef.h>
#include <stdint.h>

/* The least number of bytes for which streaming pays. */
#define STREAMING_LEAST 16384

/* How to write so many bytes to memory that a program on another core may have read. */
enum streaming_way {
	STREAMING_NOT,
	STREAMING_TRY, /* not; streaming_tried() must follow */
	STREAMING_DO,
};

enum streaming_way streaming_choose(size_t length);
/* `length` bytes took `ns` by ordinary stores. */
void streaming_tried(size_t length, uint64_t ns);

/* Like memcpy(), but without any order among its bytes, or with later stores, until
 * streaming_end(). */
void streaming_copy(void *to, const void *from, size_t length);

/* Orders all that this thread has copied before its later stores. */
void streaming_end(void);

#endif
