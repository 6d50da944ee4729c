/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying: between segment lists and flat memory, and between processes.
 * "Last byte last": where a remote program may poll memory that is written, its final byte is
 * copied last, separately. Segments may be of foreign regions (foreign.h), marked by their
 * addresses in the lists; flat memory never is.
 */
#ifndef VERBENA_HCA_MEM_COPY_H
#define VERBENA_HCA_MEM_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

struct peer_process;

/*
 * Copies flat bytes from (to) a list of segments, beginning `offset` bytes into the list. False:
 * some of the memory isn't mapped with the needed rights (see guard.h); part may have been copied.
 */
bool copy_gather(void *to, const struct iovec *from, int count, size_t offset, size_t length)
	__attribute__((warn_unused_result));
bool copy_scatter(const struct iovec *to, int count, size_t offset, const void *from, size_t length)
	__attribute__((warn_unused_result));

/* The same where the bytes are in this core's caches, as those of a packet are that was received,
 * or is about to be sent, by a system call. Quicker there. */
bool copy_gather_cached(void *to, const struct iovec *from, int count, size_t offset, size_t length)
	__attribute__((warn_unused_result));
bool copy_scatter_cached(const struct iovec *to, int count, size_t offset, const void *from,
			 size_t length) __attribute__((warn_unused_result));

/* Copies memory of the library's own, which is always mapped. */
void copy_own(void *to, const void *from, size_t length);

/* Copies `length` flat bytes, few in general, to one segment of this process's, which isn't
 * foreign. False: as above. */
bool copy_piece(void *to, const void *from, size_t length) __attribute__((warn_unused_result));

/* Copies a list to [to, to + length), the last byte last. */
bool copy_gather_ordered(void *to, const struct iovec *from, int count, size_t length)
	__attribute__((warn_unused_result));

/* The same into memory that a program on another core reads: bypasses the caches if it is long. */
bool copy_gather_far(void *to, const struct iovec *from, int count, size_t length)
	__attribute__((warn_unused_result));

/*
 * Copies a segment list of this process to flat memory of another one (and back). 0; -EFAULT: one
 * side isn't mapped with the needed rights; -EPERM; -ESRCH: the peer has ended or is ending, see
 * peer.h. Remote memory is written in order, its last byte last.
 */
int copy_to_process(const struct peer_process *peer, uint64_t remote, const struct iovec *local,
		    int count, size_t length);
int copy_from_process(const struct peer_process *peer, uint64_t remote, const struct iovec *local,
		      int count, size_t length);
/* Copies from a list of segments in the peer to a list in this process. Results as above. */
int copy_lists_from_process(const struct peer_process *peer, const struct iovec *remote,
			    int remote_count, const struct iovec *local, int count, size_t length);

/* After -EFAULT: whether this process's own segments are mapped (tests the ends of each). */
bool copy_reachable(const struct iovec *local, int count);

#endif
