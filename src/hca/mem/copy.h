/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moving bytes: between segment lists and flat memory, and between processes.
 * "Last byte last": whatever is written for a remote program to poll ends with its final byte as
 * a copy of its own, after all others. Segments may be of foreign regions (foreign.h), which the
 * lists say by marked addresses; flat memory never is.
 */
#ifndef VERBENA_HCA_MEM_COPY_H
#define VERBENA_HCA_MEM_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

struct peer_process;

/*
 * Flat bytes from (to) a list of segments, starting `offset` bytes into the list. False: some of
 * the memory isn't mapped as it should be (see guard.h); part of it may have been copied.
 */
bool copy_gather(void *to, const struct iovec *from, int count, size_t offset, size_t length)
	__attribute__((warn_unused_result));
bool copy_scatter(const struct iovec *to, int count, size_t offset, const void *from, size_t length)
	__attribute__((warn_unused_result));

/* [memory, memory + length) from a list, the last byte last. */
bool copy_gather_ordered(void *to, const struct iovec *from, int count, size_t length)
	__attribute__((warn_unused_result));

/* The same into memory that a program on another core reads: a long one past the caches. */
bool copy_gather_far(void *to, const struct iovec *from, int count, size_t length)
	__attribute__((warn_unused_result));

/*
 * A segment list here to flat memory of another process (and back): 0, -EFAULT (one side isn't
 * mapped as it should be), -EPERM, -ESRCH (the peer has ended or is ending, see peer.h). Remote
 * memory is written in order, its last byte last.
 */
int copy_to_process(const struct peer_process *peer, uint64_t remote, const struct iovec *local,
		    int count, size_t length);
int copy_from_process(const struct peer_process *peer, uint64_t remote, const struct iovec *local,
		      int count, size_t length);
/* From a list of segments there to a list here. */
int copy_lists_from_process(const struct peer_process *peer, const struct iovec *remote,
			    int remote_count, const struct iovec *local, int count, size_t length);

/* After an -EFAULT: whether this process's own segments are mapped (looks at their ends). */
bool copy_reachable(const struct iovec *local, int count);

#endif
