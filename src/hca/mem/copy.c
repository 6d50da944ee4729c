/* SPDX-License-Identifier: BSD-2-Clause */
/* Copying. See copy.h. No state. */
#include "hca/mem/copy.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/string_move.h"
#include "hca/local/peer.h"
#include "hca/mem/foreign.h"
#include "hca/mem/guard.h"
#include "hca/mem/hazard.h"
#include "hca/mem/streaming.h"
#include "proto/limits.h"

enum { BOUNCE_BYTES = 16384 };

/* Copies of STRING_LEAST to STRING_MOST bytes are made by string instructions, which are quicker
 * than vectors where the bytes come from another core's cache: a SEND of 4 KiB through a ring takes
 * 14 % less time. Where the bytes are in this core's caches, vectors are three times as quick (80
 * ns for 4 KiB instead of 230). For longer ones glibc's choice is as good. */
enum { STRING_LEAST = 768, STRING_MOST = 4096 };

/* AMD's processors (Zen 4) execute string instructions fifteen times as slowly where `to` is less
 * than 16 bytes ahead of `from`, modulo 4096: as a packet's payload behind a header at a page's
 * beginning is, against a buffer that begins with a page. */
static inline bool copy_is_aliased(const uint8_t *to, const uint8_t *from)
{
	return ((uintptr_t)to - (uintptr_t)from) % 4096 < 16;
}

/* GCC would use string instructions if it knew that this is short. */
static inline void vector_copy(uint8_t *to, const uint8_t *from, size_t n)
{
	__asm__("" : "+r"(n));
	memcpy(to, from, n);
}

static __attribute__((noinline)) void vector_copy_pieces(uint8_t *to, const uint8_t *from, size_t n)
{
	for (; n > STRING_MOVE_NEVER; n -= STRING_MOVE_NEVER) {
		vector_copy(to, from, STRING_MOVE_NEVER);
		to += STRING_MOVE_NEVER;
		from += STRING_MOVE_NEVER;
	}
	vector_copy(to, from, n);
}

typedef uint8_t vector __attribute__((vector_size(16), aligned(1), may_alias));

/* Copies 16 to 64 bytes: by vectors from both ends, that may overlap. Shorter than a call. */
static inline void vectors_copy(uint8_t *to, const uint8_t *from, size_t n)
{
	const vector *in = (const vector *)from, *in_end = (const vector *)(from + n);
	vector *out = (vector *)to, *out_end = (vector *)(to + n);

	if (n <= 32) {
		vector first = in[0], last = in_end[-1];

		out[0] = first;
		out_end[-1] = last;
		return;
	}
	vector first = in[0], second = in[1], third = in_end[-2], last = in_end[-1];

	out[0] = first;
	out[1] = second;
	out_end[-2] = third;
	out_end[-1] = last;
}

/* Up to STRING_LEAST - 1 bytes. */
static inline void short_copy(uint8_t *to, const uint8_t *from, size_t n)
{
	if (n >= 8 && n <= 16) { /* two words that may overlap */
		uint64_t first, last;

		memcpy(&first, from, 8);
		memcpy(&last, from + n - 8, 8);
		memcpy(to, &first, 8);
		memcpy(to + n - 8, &last, 8);
		return;
	}
	if (n > 16 && n <= 64)
		vectors_copy(to, from, n);
	else
		vector_copy(to, from, n);
}

static inline void bytes_copy(uint8_t *to, const uint8_t *from, size_t n)
{
	if (n < STRING_LEAST)
		short_copy(to, from, n);
	else if (unlikely(string_move_is_slow()))
		vector_copy_pieces(to, from, n);
	else if (n > STRING_MOST)
		memcpy(to, from, n);
	else if (unlikely(copy_is_aliased(to, from)))
		vector_copy_pieces(to, from, n);
	else
		string_move(to, from, n);
}

/* The same where the bytes are in this core's caches. */
static inline void cached_copy(uint8_t *to, const uint8_t *from, size_t n)
{
	if (n < STRING_LEAST)
		short_copy(to, from, n);
	else if (n > STRING_MOST)
		memcpy(to, from, n);
	else
		vector_copy_pieces(to, from, n);
}

typedef void copy_fn(uint8_t *to, const uint8_t *from, size_t n);

/* Whether the list is one buffer of this process's, and [offset, offset + length) lies in it and
 * isn't empty, as with nearly every request. */
static inline bool is_one_piece(const struct iovec *list, int count, size_t offset, size_t length)
{
	return count == 1 && length && offset <= list->iov_len &&
	       length <= list->iov_len - offset && !foreign_is(list->iov_base);
}

static inline __attribute__((always_inline)) bool gather_by(copy_fn *copy, void *to,
							    const struct iovec *from, int count,
							    size_t offset, size_t length)
{
	uint8_t *out = to;

	if (likely(is_one_piece(from, count, offset, length))) {
		copy(out, (const uint8_t *)from->iov_base + offset, length);
		return true;
	}
	for (int i = 0; i < count && length; i++) {
		if (offset >= from[i].iov_len) {
			offset -= from[i].iov_len;
			continue;
		}
		size_t n = from[i].iov_len - offset;

		if (n > length)
			n = length;
		const uint8_t *at = (const uint8_t *)from[i].iov_base + offset;

		if (likely(!foreign_is(at)))
			copy(out, at, n);
		else if (!foreign_get(out, at, n))
			return false;
		out += n;
		length -= n;
		offset = 0;
	}
	return true;
}

static inline __attribute__((always_inline)) bool scatter_by(copy_fn *copy, const struct iovec *to,
							     int count, size_t offset,
							     const void *from, size_t length)
{
	const uint8_t *in = from;

	if (likely(is_one_piece(to, count, offset, length))) {
		copy((uint8_t *)to->iov_base + offset, in, length);
		return true;
	}
	for (int i = 0; i < count && length; i++) {
		if (offset >= to[i].iov_len) {
			offset -= to[i].iov_len;
			continue;
		}
		size_t n = to[i].iov_len - offset;

		if (n > length)
			n = length;
		uint8_t *at = (uint8_t *)to[i].iov_base + offset;

		if (likely(!foreign_is(at)))
			copy(at, in, n);
		else if (!foreign_put(at, in, n))
			return false;
		in += n;
		length -= n;
		offset = 0;
	}
	return true;
}

GUARDED static bool iovec_gather(void *to, const struct iovec *from, int count, size_t offset,
				 size_t length)
{
	return gather_by(bytes_copy, to, from, count, offset, length);
}

GUARDED static bool iovec_scatter(const struct iovec *to, int count, size_t offset,
				  const void *from, size_t length)
{
	return scatter_by(bytes_copy, to, count, offset, from, length);
}

/* Copies between flat memory and a list: what copy_by_guarded() guards. */
typedef bool list_copy_fn(void *flat, const struct iovec *list, int count, size_t offset,
			  size_t length);

GUARDED static bool gather_cached(void *to, const struct iovec *from, int count, size_t offset,
				  size_t length)
{
	return gather_by(cached_copy, to, from, count, offset, length);
}

GUARDED static bool scatter_cached(void *from, const struct iovec *to, int count, size_t offset,
				   size_t length)
{
	return scatter_by(cached_copy, to, count, offset, from, length);
}

GUARDED static bool gather_ordered(void *to, const struct iovec *from, int count, size_t length)
{
	uint8_t last;

	if (!length)
		return true;
	if (!iovec_gather(to, from, count, 0, length - 1) ||
	    !iovec_gather(&last, from, count, length - 1, 1))
		return false;
	/* [L1], pairs with the program's look at its last byte */
	__atomic_store_n((uint8_t *)to + length - 1, last, __ATOMIC_RELEASE);
	return true;
}

/* As gather_ordered(), bypassing the caches. Fenced, since gather_ordered() relies on the
 * processor's order of ordinary stores. */
GUARDED static bool gather_far(void *to, const struct iovec *from, int count, size_t length)
{
	uint8_t *out = to;
	uint8_t last;

	for (size_t left = length - 1; left; from++, count--) {
		size_t n = from->iov_len < left ? from->iov_len : left;

		if (likely(!foreign_is(from->iov_base)))
			streaming_copy(out, from->iov_base, n);
		else if (!foreign_get(out, from->iov_base, n))
			return false;
		out += n;
		left -= n;
		if (!left && !iovec_gather(&last, from, count, n, 1))
			return false;
	}
	streaming_end();
	/* [L1], pairs with the program's look at its last byte */
	__atomic_store_n(out, last, __ATOMIC_RELEASE);
	return true;
}

bool copy_gather(void *to, const struct iovec *from, int count, size_t offset, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	bool ok = iovec_gather(to, from, count, offset, length);

	guard_leave();
	return ok;
}

bool copy_scatter(const struct iovec *to, int count, size_t offset, const void *from, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	bool ok = iovec_scatter(to, count, offset, from, length);

	guard_leave();
	return ok;
}

static bool copy_by_guarded(list_copy_fn *copy, void *flat, const struct iovec *list, int count,
			    size_t offset, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	bool ok = copy(flat, list, count, offset, length);

	guard_leave();
	return ok;
}

bool copy_gather_cached(void *to, const struct iovec *from, int count, size_t offset, size_t length)
{
	return copy_by_guarded(gather_cached, to, from, count, offset, length);
}

bool copy_scatter_cached(const struct iovec *to, int count, size_t offset, const void *from,
			 size_t length)
{
	return copy_by_guarded(scatter_cached, (void *)from, to, count, offset, length);
}

void copy_own(void *to, const void *from, size_t length)
{
	bytes_copy(to, from, length);
}

GUARDED static bool piece_copy(void *to, const void *from, size_t length)
{
	bytes_copy(to, from, length);
	return true;
}

bool copy_piece(void *to, const void *from, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	bool ok = piece_copy(to, from, length);

	guard_leave();
	return ok;
}

bool copy_gather_ordered(void *to, const struct iovec *from, int count, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	bool ok = gather_ordered(to, from, count, length);

	guard_leave();
	return ok;
}

bool copy_gather_far(void *to, const struct iovec *from, int count, size_t length)
{
	guard_place_t place;

	if (length < STREAMING_LEAST)
		return copy_gather_ordered(to, from, count, length);
	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	bool ok = gather_far(to, from, count, length);

	guard_leave();
	return ok;
}

/* Copies the part of the list from byte `offset` on to `out`. Returns its number of segments. */
static int list_from(const struct iovec *list, int count, size_t offset, struct iovec *out)
{
	int n = 0;

	for (int i = 0; i < count; i++) {
		if (offset >= list[i].iov_len) {
			offset -= list[i].iov_len;
			continue;
		}
		out[n].iov_base = (uint8_t *)list[i].iov_base + offset;
		out[n++].iov_len = list[i].iov_len - offset;
		offset = 0;
	}
	return n;
}

/*
 * The list with its final byte split off. The kernel copies one local segment after the other, each
 * by a copy of its own, and x86 keeps separate copies in order; the remote side stays one segment,
 * so the split costs no second page lookup.
 */
static inline int split_last(const struct iovec *list, int count, struct iovec *out)
{
	out[0] = list[0];
	if (unlikely(count > 1))
		memcpy(out + 1, list + 1, (count - 1) * sizeof(*list));
	struct iovec *last = &out[count - 1];

	if (last->iov_len < 2)
		return count;
	last->iov_len--;
	out[count] = (struct iovec){(uint8_t *)last->iov_base + last->iov_len, 1};
	return count + 1;
}

typedef ssize_t transfer_fn(pid_t, const struct iovec *, unsigned long, const struct iovec *,
			    unsigned long, unsigned long);

/* Makes one call if the peer is alive before it; the result counts if the peer is alive after it
 * (peer.h). Inlined, as peer_transfer() is, so that the call is a direct one. */
static inline __attribute__((always_inline)) ssize_t
call_alive(transfer_fn *call, const struct peer_process *peer, const struct iovec *local,
	   int local_count, const struct iovec *remote, int remote_count)
{
	ssize_t n = -1;

	if (likely(peer_alive(peer)))
		n = call(peer->pid, local, local_count, remote, remote_count, 0);
	if (likely(peer_alive(peer)))
		return n;
	errno = ESRCH;
	return -1;
}

/* The kernel copies up to 2 GiB less a page by one call. It stops earlier only at memory that isn't
 * there, so the call isn't repeated for the rest: the owner of the memory counts on that
 * (hazard.h). */
_Static_assert(LIMIT_MSG_BYTES <= (1u << 31) - 4096, "one call copies a whole message");

/* Copies all by one call. */
static inline __attribute__((always_inline)) int
peer_transfer(transfer_fn *call, const struct peer_process *peer, const struct iovec *local,
	      int local_count, const struct iovec *remote, int remote_count, size_t length)
{
	ssize_t n = call_alive(call, peer, local, local_count, remote, remote_count);

	if (likely(n == (ssize_t)length))
		return 0;
	return n < 0 ? -errno : -EFAULT;
}

/* Whether other processors see the copies of one thread in the order in which it made them. Where
 * they don't, the last byte is written by a call of its own, behind a fence. */
#ifndef COPIES_STAY_IN_ORDER
#if defined(__x86_64__) || defined(__i386__)
#define COPIES_STAY_IN_ORDER true
#else
#define COPIES_STAY_IN_ORDER false
#endif
#endif

/* Writes the list, its final byte last, by a call of its own. */
static int write_last_apart(const struct peer_process *peer, const struct iovec *local, int count,
			    const struct iovec *remote, int remote_count, size_t length)
{
	struct iovec ordered[LIMIT_SGE + 1], end[LIMIT_SGE + 1];
	int n = split_last(local, count, ordered);

	n = n > count ? count : count - 1;
	struct iovec last = {(uint8_t *)local[count - 1].iov_base + local[count - 1].iov_len - 1,
			     1};
	int err = peer_transfer(process_vm_writev, peer, ordered, n, remote, remote_count,
				length - 1);

	if (err)
		return err;
	/* [L1], pairs with the program's look at its last byte */
	atomic_thread_fence(memory_order_seq_cst);
	return peer_transfer(process_vm_writev, peer, &last, 1, end,
			     list_from(remote, remote_count, length - 1, end), 1);
}

/* Writes the list, its final byte last. */
static inline __attribute__((always_inline)) int write_ordered(const struct peer_process *peer,
							       const struct iovec *local, int count,
							       const struct iovec *remote,
							       int remote_count, size_t length)
{
	struct iovec ordered[LIMIT_SGE + 1];

	while (unlikely(count > 1 && !local[count - 1].iov_len))
		count--;
	if (!COPIES_STAY_IN_ORDER && length >= 2)
		return write_last_apart(peer, local, count, remote, remote_count, length);
	return peer_transfer(process_vm_writev, peer, ordered, split_last(local, count, ordered),
			     remote, remote_count, length);
}

/* Copies segments of which some are foreign, and so not mapped here: piece by piece through a
 * buffer. */
static __attribute__((cold, noinline)) int
peer_bounce(transfer_fn *call, const struct peer_process *peer, const struct iovec *local,
	    int count, const struct iovec *remote, int remote_count, size_t length)
{
	uint8_t buffer[BOUNCE_BYTES];
	struct iovec r[LIMIT_SGE + 1], whole = {buffer, 0};
	size_t at, n;
	int err = 0;

	for (at = 0; !err && at < length; at += n) {
		n = length - at < sizeof(buffer) ? length - at : sizeof(buffer);
		whole.iov_len = n;
		int from = list_from(remote, remote_count, at, r);

		if (call == process_vm_writev && !copy_gather(buffer, local, count, at, n))
			return -EFAULT;
		err = call == process_vm_writev ? write_ordered(peer, &whole, 1, r, from, n)
						: peer_transfer(call, peer, &whole, 1, r, from, n);
		if (!err && call == process_vm_readv && !copy_scatter(local, count, at, buffer, n))
			return -EFAULT;
	}
	return err;
}

/* Says so if the copy may take several calls: a segment is foreign, or its last byte is written
 * apart. */
static inline void announce_calls(const struct iovec *local, int count, bool apart)
{
	bool several = apart;

	for (int i = 0; i < count; i++)
		several = several || foreign_is(local[i].iov_base);
	if (unlikely(several))
		hazard_takes_several();
}

int copy_to_process(const struct peer_process *peer, uint64_t remote, const struct iovec *local,
		    int count, size_t length)
{
	struct iovec r = {(void *)(uintptr_t)remote, length};

	announce_calls(local, count, !COPIES_STAY_IN_ORDER);
	int err = write_ordered(peer, local, count, &r, 1, length);

	if (unlikely(err == -EFAULT && foreign_among(local, count)))
		err = peer_bounce(process_vm_writev, peer, local, count, &r, 1, length);
	return err;
}

int copy_from_process(const struct peer_process *peer, uint64_t remote, const struct iovec *local,
		      int count, size_t length)
{
	struct iovec r = {(void *)(uintptr_t)remote, length};

	return copy_lists_from_process(peer, &r, 1, local, count, length);
}

int copy_lists_from_process(const struct peer_process *peer, const struct iovec *remote,
			    int remote_count, const struct iovec *local, int count, size_t length)
{
	announce_calls(local, count, false);
	int err = peer_transfer(process_vm_readv, peer, local, count, remote, remote_count, length);

	if (unlikely(err == -EFAULT && foreign_among(local, count)))
		err = peer_bounce(process_vm_readv, peer, local, count, remote, remote_count,
				  length);
	return err;
}

/* Whether one byte is mapped: tested by a system call, which doesn't fault. */
static bool byte_there(const void *at)
{
	uint8_t byte;
	struct iovec probe = {&byte, 1}, there = {(void *)at, 1};

	return foreign_is(at) ? foreign_get(&byte, at, 1)
			      : process_vm_readv(getpid(), &probe, 1, &there, 1, 0) == 1;
}

bool copy_reachable(const struct iovec *local, int count)
{
	for (int i = 0; i < count; i++)
		if (!byte_there(local[i].iov_base) ||
		    !byte_there((uint8_t *)local[i].iov_base + local[i].iov_len - 1))
			return false;
	return true;
}
