/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that the peer writes to directly: riomap(), riounmap(), riowrite(). See rs.h.
 *
 * The side that maps memory writes an entry with its address into a table in the peer's memory
 * (whose size is the peer's RDMA_IOMAPSIZE) and announces it by a message; the peer looks an offset
 * up in the table and writes. An entry is announced when there is room for a control message; until
 * then no message is sent after it that could refer to it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "base/mutex.h"
#include "rsocket/rs.h"

static int iomap_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* ------------------------------------------------------------------ mapping */

static int iomap_tell_peer(struct rs *rs, const struct rs_mapping *mapping) REQUIRES(rs->lock)
{
	struct rs_iomap entry = {
		.offset = mapping->offset,
		.sge = {(uintptr_t)mapping->mr->addr, mapping->mr->rkey,
			(uint32_t)mapping->mr->length},
	};
	struct ibv_sge sge = {(uintptr_t)&entry, sizeof(entry), 0};
	uint32_t message = rs_message(RS_OP_IOMAP, mapping->index);
	uint64_t addr = rs->peer_sgl.addr + rs->peer_sgl.length * sizeof(struct rs_sge) +
			mapping->index * sizeof(entry);

	return rs_post_write(rs, &sge, 1, &message, IBV_SEND_INLINE, addr, rs->peer_sgl.key,
			     rs_wr_control());
}

void rs_iomap_tell(struct rs *rs)
{
	while (!list_empty(&rs->pending) && rs->control < RS_CONTROL_MAX) {
		struct list *node = list_pop(&rs->pending);
		int err = iomap_tell_peer(rs, container_of(node, struct rs_mapping, node));

		list_add_tail(&rs->mapped, node);
		if (err) {
			rs_fail(rs, -err);
			return;
		}
		rs->control++;
	}
}

static bool iomap_peer_is_told(const struct rs *rs) REQUIRES(rs->lock)
{
	return list_empty(&rs->pending) || rs->state != RS_CONNECTED;
}

/* Finds the first index without a mapping. */
static int choose_index(const struct rs *rs, uint32_t *index) REQUIRES(rs->lock)
{
	for (*index = 0; *index < rs->peer_iomap_size; (*index)++) {
		bool taken = false;

		list_for_each(node, &rs->mapped)
			taken |= container_of(node, struct rs_mapping, node)->index == *index;
		if (!taken)
			return 0;
	}
	return -ENOBUFS;
}

static int map_locked(struct rs *rs, void *buf, size_t size, int prot, int64_t *offset)
	REQUIRES(rs->lock)
{
	struct rs_mapping *mapping;
	uint32_t index = 0;
	int err = 0;

	if (rs->state != RS_CONNECTED)
		return -ENOTCONN;
	if (prot & PROT_WRITE)
		err = choose_index(rs, &index);
	if (err)
		return err;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return -ENOMEM;
	mapping->mr = ibv_reg_mr(rs->id->pd, buf, size,
				 IBV_ACCESS_LOCAL_WRITE |
					 (prot & PROT_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0));
	if (!mapping->mr) {
		err = -errno;
		free(mapping);
		return err;
	}
	if (*offset == -1)
		*offset = (int64_t)(uintptr_t)buf;
	mapping->offset = (uint64_t)*offset;
	mapping->index = prot & PROT_WRITE ? index : UINT32_MAX;
	list_add_tail(prot & PROT_WRITE ? &rs->pending : &rs->mapped, &mapping->node);
	rs_progress(rs);
	return rs_wait(rs, iomap_peer_is_told, false, -1);
}

EXPORT off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rs *rs = rs_table_get(socket);
	int64_t at = offset;

	if (!rs)
		return iomap_result(-EBADF);
	if (rs->ds)
		return iomap_result(-EOPNOTSUPP);
	if (!buf || !len || len > UINT32_MAX || flags || prot & ~(PROT_WRITE | PROT_NONE))
		return iomap_result(-EINVAL);
	mutex_take(&rs->lock);
	int err = map_locked(rs, buf, len, prot, &at);

	mutex_give(&rs->lock);
	return err ? iomap_result(err) : (off_t)at;
}

static void mapping_free(struct rs_mapping *mapping)
{
	ibv_dereg_mr(mapping->mr);
	free(mapping);
}

void rs_iomap_free(struct rs *rs)
{
	struct list *node;

	while ((node = list_pop(&rs->pending)) || (node = list_pop(&rs->mapped)))
		mapping_free(container_of(node, struct rs_mapping, node));
}

EXPORT int riounmap(int socket, void *buf, size_t len)
{
	struct rs *rs = rs_table_get(socket);
	int err = -EINVAL;

	if (!rs)
		return iomap_result(-EBADF);
	mutex_take(&rs->lock);
	list_for_each(node, &rs->mapped) {
		struct rs_mapping *mapping = container_of(node, struct rs_mapping, node);

		if (err && mapping->mr->addr == buf && mapping->mr->length == len) {
			list_del(node);
			mapping_free(mapping);
			err = 0;
		}
	}
	mutex_give(&rs->lock);
	return iomap_result(err);
}

/* ------------------------------------------------------------------ writing */

/* Finds the peer's memory for this offset: the address, and how many bytes follow. */
static bool iomap_find(const struct rs *rs, uint64_t offset, struct rs_sge *out) REQUIRES(rs->lock)
{
	for (uint32_t i = 0; i < rs->iomap_size; i++) {
		struct rs_iomap entry = rs->iomap[i];

		if (!entry.sge.length || offset < entry.offset ||
		    offset - entry.offset >= entry.sge.length)
			continue;
		uint32_t skip = (uint32_t)(offset - entry.offset);

		*out = (struct rs_sge){entry.sge.addr + skip, entry.sge.key,
				       entry.sge.length - skip};
		return true;
	}
	return false;
}

static bool write_ready(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->state != RS_CONNECTED || !rs->may_send || (rs->sq_free && rs->sbuf_free);
}

static ssize_t write_locked(struct rs *rs, const void *buf, size_t size, uint64_t offset,
			    bool nonblocking) REQUIRES(rs->lock)
{
	struct iovec vector = {(void *)buf, size};
	const struct iovec *iov = &vector;
	size_t done = 0, at = 0;

	if (rs->state != RS_CONNECTED)
		return -ENOTCONN;
	while (done < size) {
		struct ibv_sge sge[2];
		struct rs_sge target;
		int err = rs_wait(rs, write_ready, nonblocking, -1);

		if (!err && (rs->state != RS_CONNECTED || !rs->may_send))
			err = -EPIPE;
		if (!err && !iomap_find(rs, offset + done, &target))
			err = -EINVAL;
		if (err)
			return done ? (ssize_t)done : err;
		size_t left = size - done;
		uint32_t bytes = left < RS_CHUNK_MAX ? (uint32_t)left : RS_CHUNK_MAX;

		bytes = bytes < target.length ? bytes : target.length;
		bytes = bytes < rs->sbuf_free ? bytes : rs->sbuf_free;
		int count = rs_stage(rs, &iov, &at, bytes, sge);

		err = rs_post_write(rs, sge, count, NULL, 0, target.addr, target.key,
				    rs_wr_data(bytes));
		if (err) {
			rs_fail(rs, -err);
			return err;
		}
		rs->sq_free--;
		done += bytes;
	}
	return (ssize_t)done;
}

EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return (size_t)iomap_result(-EBADF);
	if (rs->ds)
		return (size_t)iomap_result(-EOPNOTSUPP);
	mutex_take(&rs->lock);
	ssize_t n = write_locked(rs, buf, count, (uint64_t)offset,
				 rs->nonblocking || flags & MSG_DONTWAIT);

	mutex_give(&rs->lock);
	return n < 0 ? (size_t)iomap_result((int)n) : (size_t)n;
}
