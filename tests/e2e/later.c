/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of rdma-core 59 to 65 (infiniband/later.h): buffers, registration by fields, ports; and
 * what isn't supported, which fails and is not advertised. See rig.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/later.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { SEED = 5, BYTES = 16384, PAGE = 4096 };

/* A sends from a part of its buffer to a part of B's. */
static void later_buffer(struct rig *rig)
{
	struct end end;
	struct ibv_buf *buf;
	struct ibv_wc wc;

	end_pair(&end, rig, NULL);
	uint8_t *memory = ibv_alloc_buf(end.pd, BYTES, &buf);

	CHECK(rig, memory && !((uintptr_t)memory % PAGE));
	struct ibv_mr *mr =
		ibv_reg_buf_mr(end.pd, buf, memory + PAGE, BYTES - PAGE, IBV_ACCESS_LOCAL_WRITE);

	CHECK(rig, mr && mr->addr == memory + PAGE && mr->length == BYTES - PAGE);
	struct ibv_sge sge = {(uintptr_t)memory + PAGE, BYTES - PAGE, mr->lkey};
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = 2,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;

	if (rig->role == RIG_B)
		OK(rig, ibv_post_recv(end.qp, &recv, &bad_recv));
	else
		pattern_fill(memory + PAGE, BYTES - PAGE, SEED);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, ibv_post_send(end.qp, &send, &bad_send));
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	} else {
		wc = wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.byte_len, BYTES - PAGE);
		CHECK(rig, pattern_holds(memory + PAGE, BYTES - PAGE, SEED));
	}
	rig_sync(rig);
	CHECK(rig, ibv_export_buf_dmabuf_fd(buf) == -1 && errno == ENODATA);
	OK(rig, ibv_dereg_mr(mr));
	ibv_free_buf(buf);
	end_close(&end);
}

static void refused(struct rig *rig, struct ibv_pd *pd, struct ibv_mr_init_attr attr, int error)
{
	errno = 0;
	CHECK(rig, !ibv_reg_mr_ex(pd, &attr));
	CHECK_EQ(rig, errno, error);
}

static void later_registration(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx), *other = ibv_alloc_pd(rig->ctx);
	struct ibv_buf *buf;
	uint8_t *memory = ibv_alloc_buf(pd, BYTES, &buf);
	struct ibv_mr_init_attr attr = {.length = PAGE,
					.access = IBV_ACCESS_LOCAL_WRITE,
					.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA,
					.addr = memory,
					.iova = 1 << 20,
					.buf = buf};

	CHECK(rig, pd && other && memory);
	struct ibv_mr *mr = ibv_reg_mr_ex(pd, &attr);

	CHECK(rig, mr && mr->addr == memory && mr->length == PAGE);
	OK(rig, ibv_dereg_mr(mr));
	attr.comp_mask = 0;
	refused(rig, pd, attr, EINVAL); /* no memory */
	attr.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH;
	refused(rig, pd, attr, EINVAL); /* no handle */
	attr.comp_mask = IBV_REG_MR_MASK_ADDR | 1ull << 40;
	refused(rig, pd, attr, EOPNOTSUPP);
	attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_IOVA;
	refused(rig, pd, attr, EINVAL); /* no offset */
	attr.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD_OFFSET;
	refused(rig, pd, attr, EINVAL);
	attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
	attr.fd = -1;
	refused(rig, pd, attr, EBADF);
	attr.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
	refused(rig, other, attr, EINVAL); /* another protection domain's */
	attr.addr = memory + BYTES - PAGE + 1;
	refused(rig, pd, attr, EINVAL);
	attr.addr = memory - 1;
	refused(rig, pd, attr, EINVAL);
	attr.comp_mask = IBV_REG_MR_MASK_BUF;
	refused(rig, pd, attr, EINVAL); /* no address in it */
	ibv_free_buf(buf);
	OK(rig, ibv_dealloc_pd(other));
	OK(rig, ibv_dealloc_pd(pd));
}

static void no_dmah(struct rig *rig, uint32_t mask, uint32_t cpu, uint8_t ph, uint8_t type,
		    int error)
{
	struct ibv_dmah_init_attr attr = {mask, cpu, ph, type};

	errno = 0;
	CHECK(rig, !ibv_alloc_dmah(rig->ctx, &attr));
	CHECK_EQ(rig, errno, error);
}

static void later_dmah(struct rig *rig)
{
	enum {
		PH = IBV_DMAH_INIT_ATTR_MASK_PH,
		CPU = IBV_DMAH_INIT_ATTR_MASK_CPU_ID,
		TYPE = IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
		ALL = PH | CPU | TYPE,
	};
	struct ibv_dmah_init_attr right = {ALL, (uint32_t)sched_getcpu(), 3, IBV_TPH_MEM_TYPE_PM};
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	static uint8_t memory[PAGE];
	struct ibv_mr_init_attr attr = {.length = PAGE,
					.access = IBV_ACCESS_LOCAL_WRITE,
					.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH,
					.addr = memory};

	attr.dmah = ibv_alloc_dmah(rig->ctx, &right);
	CHECK(rig, attr.dmah && attr.dmah->context == rig->ctx);
	struct ibv_mr *mr = ibv_reg_mr_ex(pd, &attr);

	CHECK(rig, mr);
	CHECK_EQ(rig, ibv_dealloc_dmah(attr.dmah), EBUSY);
	attr.access |= IBV_ACCESS_ON_DEMAND;
	refused(rig, pd, attr, EOPNOTSUPP);
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_dealloc_dmah(attr.dmah));
	right.comp_mask = PH;
	CHECK(rig, (attr.dmah = ibv_alloc_dmah(rig->ctx, &right)));
	OK(rig, ibv_dealloc_dmah(attr.dmah));
	no_dmah(rig, ALL | 8, 0, 0, 0, EOPNOTSUPP);
	no_dmah(rig, CPU | TYPE, right.cpu_id, 0, 0, EINVAL);
	no_dmah(rig, PH | CPU, right.cpu_id, 0, 0, EINVAL);
	no_dmah(rig, ALL, right.cpu_id, 4, 0, EINVAL);
	no_dmah(rig, ALL, right.cpu_id, 0, 2, EINVAL);
	no_dmah(rig, ALL, 0xffff, 0, 0, EINVAL);
	OK(rig, ibv_dealloc_pd(pd));
}

static void later_port_speed(struct rig *rig)
{
	uint64_t speed = 0;

	OK(rig, ibv_query_port_speed(rig->ctx, 1, &speed));
	CHECK_EQ(rig, speed, 1000); /* 100 Gb/s */
	struct ibv_port_attr port;

	OK(rig, ibv_query_port(rig->ctx, 1, &port));
	CHECK_EQ(rig, port.active_speed_ex, 32); /* EDR */
	CHECK(rig, ibv_query_port_speed(rig->ctx, 9, &speed));
	CHECK_EQ(rig, ibv_query_port_speed(rig->ctx, 257, &speed), EINVAL);
}

/* A sends from device memory by a region of its descriptor, when the memory's object is gone. */
static void later_dm_export(struct rig *rig)
{
	struct ibv_alloc_dm_attr dm_attr = {.length = BYTES};
	struct ibv_dm *dm = ibv_alloc_dm(rig->ctx, &dm_attr);
	static uint8_t data[BYTES];
	struct end end;

	end_pair(&end, rig, NULL);
	CHECK(rig, dm);
	pattern_fill(data, BYTES, SEED);
	OK(rig, ibv_memcpy_to_dm(dm, 0, data, BYTES));
	int fd = ibv_dm_export_dmabuf_fd(dm);

	CHECK(rig, fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	struct ibv_mr *mr =
		ibv_reg_dmabuf_mr(end.pd, PAGE, BYTES - PAGE, 0x7000, fd, IBV_ACCESS_LOCAL_WRITE);

	CHECK(rig, mr);
	OK(rig, close(fd));
	OK(rig, ibv_free_dm(dm));
	struct ibv_sge from = {0x7000, BYTES - PAGE, mr->lkey};
	struct ibv_send_wr send = {.wr_id = 2,
				   .sg_list = &from,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_mr *to = ibv_reg_mr(end.pd, data, BYTES, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge into = {(uintptr_t)data, BYTES, to->lkey};
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &into, .num_sge = 1}, *bad_recv;

	memset(data, 0, BYTES);
	if (rig->role == RIG_B)
		OK(rig, ibv_post_recv(end.qp, &recv, &bad_recv));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, ibv_post_send(end.qp, &send, &bad));
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc = wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		static uint8_t expected[BYTES];

		pattern_fill(expected, BYTES, SEED);
		CHECK_EQ(rig, wc.byte_len, BYTES - PAGE);
		CHECK(rig, !memcmp(data, expected + PAGE, BYTES - PAGE));
	}
	rig_sync(rig);
	OK(rig, ibv_dereg_mr(to));
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

static void later_unsupported(struct rig *rig)
{
	struct ibv_comp_cntr_caps caps = {1, 1, 1};

	CHECK_EQ(rig, ibv_query_comp_cntr_caps(rig->ctx, &caps), EOPNOTSUPP);
	CHECK(rig, !caps.max_value && !caps.max_counters && !caps.supported_qp_attach_ops);
	errno = 0;
	CHECK(rig, !ibv_create_comp_cntr(rig->ctx, NULL) && errno == EOPNOTSUPP);
}

const struct rig_test later_tests[] = {
	{"later_buffer", later_buffer},
	{"later_registration", later_registration},
	{"later_dmah", later_dmah},
	{"later_port_speed", later_port_speed},
	{"later_dm_export", later_dm_export},
	{"later_unsupported", later_unsupported},
	{0},
};
