/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's queue pair and memory, and the private data that the peers exchange. See rs.h. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "rsocket/rs.h"

/* ------------------------------------------------------------------ memory */

static size_t size_round_up(size_t size)
{
	enum { PAGE = 4096 };

	return (size + PAGE - 1) / PAGE * PAGE;
}

static uint8_t *alloc_pages(size_t size)
{
	void *memory = aligned_alloc(size_round_up(1), size_round_up(size));

	if (memory)
		memset(memory, 0, size);
	return memory;
}

static size_t table_size(const struct rs *rs) REQUIRES(rs->lock)
{
	return RS_SGL_SIZE * sizeof(struct rs_sge) + rs->iomap_size * sizeof(struct rs_iomap);
}

/* Makes a memory file of `size` bytes, which can't shrink. Returns the descriptor, or -1. */
static int make_file(size_t size)
{
	int fd = memfd_create("rsocket", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && (ftruncate(fd, (off_t)size) ||
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))) {
		sys_close(fd);
		fd = -1;
	}
	return fd;
}

/*
 * The memory that the peer writes to (`size` bytes at rs->rbuf) is in a memory file: a peer on this
 * host maps it, so its writes are copies without a system call.
 */
static struct ibv_mr *rs_make_shared(struct rs *rs, size_t size, int access) REQUIRES(rs->lock)
{
	int fd = make_file(size);
	struct ibv_mr *mr = NULL;

	if (fd < 0)
		return NULL;
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (pages != MAP_FAILED)
		mr = ibv_reg_dmabuf_mr(rs->id->pd, 0, size, (uintptr_t)pages, fd, access);
	if (mr) {
		rs->rbuf = pages;
		rs->shared_size = size;
	} else if (pages != MAP_FAILED) {
		munmap(pages, size);
	}
	sys_close(fd);
	return mr;
}

/* The receive buffer and the table behind it. */
static int make_target(struct rs *rs) REQUIRES(rs->lock)
{
	size_t size = size_round_up(rs->rbuf_size) + table_size(rs);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	rs->rmr = rs_make_shared(rs, size, access);
	if (!rs->rmr) {
		rs->rbuf = alloc_pages(size);
		if (!rs->rbuf)
			return -ENOMEM;
		rs->rmr = ibv_reg_mr(rs->id->pd, rs->rbuf, size, access);
	}
	if (!rs->rmr)
		return -errno;
	rs->table = (struct rs_sge *)(void *)(rs->rbuf + size_round_up(rs->rbuf_size));
	rs->iomap = (struct rs_iomap *)(rs->table + RS_SGL_SIZE);
	return 0;
}

static int make_memory(struct rs *rs) REQUIRES(rs->lock)
{
	/* Both halves have the same size. */
	rs->rbuf_size &= ~1u;
	int err = make_target(rs);

	if (err)
		return err;
	rs->sbuf = alloc_pages(rs->sbuf_size);
	if (!rs->sbuf)
		return -ENOMEM;
	rs->smr = ibv_reg_mr(rs->id->pd, rs->sbuf, rs->sbuf_size, IBV_ACCESS_LOCAL_WRITE);
	if (!rs->smr)
		return -errno;
	rs->sbuf_free = rs->sbuf_size;
	rs->rbuf_free = rs->rbuf_offer = rs->rbuf_size / 2;
	return 0;
}

static void drop_region(struct ibv_mr **mr)
{
	if (*mr)
		ibv_dereg_mr(*mr);
	*mr = NULL;
}

static void free_memory(struct rs *rs) REQUIRES(rs->lock)
{
	drop_region(&rs->smr);
	drop_region(&rs->rmr);
	free(rs->sbuf);
	if (rs->shared_size) {
		/* A peer may keep the file mapped for some time, so its pages are freed now. */
		madvise(rs->rbuf, rs->shared_size, MADV_REMOVE);
		munmap(rs->rbuf, rs->shared_size);
	} else {
		free(rs->rbuf);
	}
	rs->shared_size = 0;
	rs->sbuf = rs->rbuf = NULL;
	rs->table = NULL;
}

/* ------------------------------------------------------------------ queues */

int rs_make_cq(struct rs *rs, struct ibv_context *verbs, int entries)
{
	rs->completions = ibv_create_comp_channel(verbs);
	if (!rs->completions)
		return -errno;
	if (fcntl(rs->completions->fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	rs->cq = ibv_create_cq(verbs, entries, rs, rs->completions, 0);
	if (!rs->cq)
		return -errno;
	return -ibv_req_notify_cq(rs->cq, 0);
}

static int rs_make_qp(struct rs *rs) REQUIRES(rs->lock)
{
	uint32_t inline_size =
		rs->inline_size > RS_INLINE_LEAST ? rs->inline_size : RS_INLINE_LEAST;
	struct ibv_qp_init_attr attr = {
		.qp_context = rs,
		.send_cq = rs->cq,
		.recv_cq = rs->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = rs->sq_size + RS_CONTROL_MAX,
			.max_recv_wr = rs->rq_size,
			.max_send_sge = RS_SEND_SGE,
			.max_recv_sge = 1,
			.max_inline_data = inline_size},
	};

	return rdma_create_qp(rs->id, NULL, &attr) ? -errno : 0;
}

/* Receives carry immediate data only. */
static int post_receives(struct rs *rs) REQUIRES(rs->lock)
{
	for (uint32_t i = 0; i < rs->rq_size; i++) {
		struct ibv_recv_wr wr = {.wr_id = 0}, *bad;
		int err = ibv_post_recv(rs->id->qp, &wr, &bad);

		if (err)
			return -err;
	}
	return 0;
}

int rs_endpoint_make(struct rs *rs)
{
	int err = rs_make_cq(rs, rs->id->verbs, (int)(rs->sq_size + rs->rq_size + RS_CONTROL_MAX));

	if (!err)
		err = rs_make_qp(rs);
	if (!err)
		err = make_memory(rs);
	if (!err)
		err = post_receives(rs);
	rs->sq_free = rs->sq_size;
	rs->granted = (uint16_t)(rs->rq_size / 2);
	rs->chunk = RS_CHUNK_FIRST;
	if (err)
		rs_endpoint_free(rs);
	return err;
}

void rs_endpoint_free(struct rs *rs)
{
	if (rs->id && rs->id->qp)
		rdma_destroy_qp(rs->id);
	rs_iomap_free(rs);
	free_memory(rs);
	if (rs->cq)
		ibv_destroy_cq(rs->cq);
	if (rs->completions)
		ibv_destroy_comp_channel(rs->completions);
	rs->cq = NULL;
	rs->completions = NULL;
}

/* ------------------------------------------------------------------ hello */

/* Encodes a table's size in eight bits: up to 128 as it is, beyond that in units of 256. */
static uint8_t size_scale(uint32_t value)
{
	return (uint8_t)(value <= 128 ? value : 128 | value >> 8);
}

static uint32_t size_unscale(uint8_t value)
{
	return value <= 128 ? value : (uint32_t)(value & 127) << 8;
}

static struct rs_sge sge_swap(struct rs_sge sge)
{
	return (struct rs_sge){htobe64(sge.addr), htobe32(sge.key), htobe32(sge.length)};
}

void rs_hello_make(const struct rs *rs, struct rs_hello *hello)
{
	*hello = (struct rs_hello){
		.version = RS_VERSION,
		.flags = RS_HELLO_IOMAP | (__BYTE_ORDER == __BIG_ENDIAN ? RS_HELLO_BIG_ENDIAN : 0),
		.credits = htobe16((uint16_t)rs->rq_size),
		.iomap_size = size_scale(rs->iomap_size),
		.sgl = sge_swap((struct rs_sge){(uintptr_t)rs->table, rs->rmr->rkey, RS_SGL_SIZE}),
		.buffer = sge_swap(
			(struct rs_sge){(uintptr_t)rs->rbuf, rs->rmr->rkey, rs->rbuf_size / 2}),
	};
}

int rs_hello_take(struct rs *rs, const void *data, size_t size)
{
	struct rs_hello hello;
	bool big = __BYTE_ORDER == __BIG_ENDIAN;

	if (size < sizeof(hello))
		return -EPROTO;
	memcpy(&hello, data, sizeof(hello));
	if (hello.version != RS_VERSION || !!(hello.flags & RS_HELLO_BIG_ENDIAN) != big)
		return -EPROTO;
	rs->peer_sgl = sge_swap(hello.sgl);
	if (!rs->peer_sgl.length)
		return -EPROTO;
	rs->peer_entry = rs->peer_sgl.length > 1;
	if (hello.flags & RS_HELLO_IOMAP)
		rs->peer_iomap_size = size_unscale(hello.iomap_size);
	rs->target[0] = sge_swap(hello.buffer);
	rs->target_next = 1;
	rs->credit = be16toh(hello.credits);
	return 0;
}
