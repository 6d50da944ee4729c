/* SPDX-License-Identifier: BSD-2-Clause */
/* Moving bytes. See copy.h. No state. */
#include "hca/copy.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "hca/guard.h"
#include "proto/limits.h"

GUARDED static void gather(void *to, const struct iovec *from, int count, size_t offset,
			   size_t length)
{
	uint8_t *out = to;

	for (int i = 0; i < count && length; i++) {
		if (offset >= from[i].iov_len) {
			offset -= from[i].iov_len;
			continue;
		}
		size_t n = from[i].iov_len - offset;

		if (n > length)
			n = length;
		memcpy(out, (const uint8_t *)from[i].iov_base + offset, n);
		out += n;
		length -= n;
		offset = 0;
	}
}

GUARDED static void scatter(const struct iovec *to, int count, size_t offset, const void *from,
			    size_t length)
{
	const uint8_t *in = from;

	for (int i = 0; i < count && length; i++) {
		if (offset >= to[i].iov_len) {
			offset -= to[i].iov_len;
			continue;
		}
		size_t n = to[i].iov_len - offset;

		if (n > length)
			n = length;
		memcpy((uint8_t *)to[i].iov_base + offset, in, n);
		in += n;
		length -= n;
		offset = 0;
	}
}

GUARDED static void gather_ordered(void *to, const struct iovec *from, int count, size_t length)
{
	uint8_t last;

	if (!length)
		return;
	gather(to, from, count, 0, length - 1);
	gather(&last, from, count, length - 1, 1);
	__atomic_store_n((uint8_t *)to + length - 1, last, __ATOMIC_RELEASE);
}

bool copy_gather(void *to, const struct iovec *from, int count, size_t offset, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	gather(to, from, count, offset, length);
	guard_leave();
	return true;
}

bool copy_scatter(const struct iovec *to, int count, size_t offset, const void *from, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	scatter(to, count, offset, from, length);
	guard_leave();
	return true;
}

bool copy_gather_ordered(void *to, const struct iovec *from, int count, size_t length)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	gather_ordered(to, from, count, length);
	guard_leave();
	return true;
}

/* Where byte `offset` of the list is; the list from there on is copied to `out`. */
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
static int split_last(const struct iovec *list, int count, struct iovec *out)
{
	memcpy(out, list, count * sizeof(*list));
	struct iovec *last = &out[count - 1];

	if (last->iov_len < 2)
		return count;
	last->iov_len--;
	out[count] = (struct iovec){(uint8_t *)last->iov_base + last->iov_len, 1};
	return count + 1;
}

typedef ssize_t transfer_fn(pid_t, const struct iovec *, unsigned long, const struct iovec *,
			    unsigned long, unsigned long);

/* process_vm_* may stop early at a segment's end; goes on until all is done or nothing moves. */
static int transfer(transfer_fn *call, pid_t pid, const struct iovec *local, int local_count,
		    const struct iovec *remote, int remote_count, size_t length)
{
	ssize_t n = call(pid, local, local_count, remote, remote_count, 0);

	if (__builtin_expect(n == (ssize_t)length, 1))
		return 0;
	size_t done = 0;
	struct iovec l[LIMIT_SGE + 1], r[LIMIT_SGE + 1];

	while (n > 0) {
		done += n;
		if (done == length)
			return 0;
		n = call(pid, l, list_from(local, local_count, done, l), r,
			 list_from(remote, remote_count, done, r), 0);
	}
	return n < 0 ? -errno : -EFAULT;
}

int copy_to_process(pid_t pid, uint64_t remote, const struct iovec *local, int count, size_t length)
{
	struct iovec ordered[LIMIT_SGE + 1];
	struct iovec r = {(void *)(uintptr_t)remote, length};

	return transfer(process_vm_writev, pid, ordered, split_last(local, count, ordered), &r, 1,
			length);
}

int copy_from_process(pid_t pid, uint64_t remote, const struct iovec *local, int count,
		      size_t length)
{
	struct iovec r = {(void *)(uintptr_t)remote, length};

	return transfer(process_vm_readv, pid, local, count, &r, 1, length);
}

int copy_lists_from_process(pid_t pid, const struct iovec *remote, int remote_count,
			    const struct iovec *local, int count, size_t length)
{
	return transfer(process_vm_readv, pid, local, count, remote, remote_count, length);
}

bool copy_reachable(const struct iovec *local, int count)
{
	uint8_t byte;
	struct iovec probe = {&byte, 1};

	for (int i = 0; i < count; i++) {
		struct iovec first = {local[i].iov_base, 1};
		struct iovec last = {(uint8_t *)local[i].iov_base + local[i].iov_len - 1, 1};

		if (process_vm_readv(getpid(), &probe, 1, &first, 1, 0) != 1 ||
		    process_vm_readv(getpid(), &probe, 1, &last, 1, 0) != 1)
			return false;
	}
	return true;
}
