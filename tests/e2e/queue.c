/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queues: completion queues and their channels, shared receive queues, what is refused when too
 * much is asked for, objects in use, and many threads on one queue. See rig.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"

/* What posting refuses ------------------------------------------------------------------------ */

/* A chain of three requests of which the second is wrong: the first is posted, *bad is the
 * second. */
static void send_chain(struct end *end, const struct ibv_send_wr *wrong, int wanted)
{
	struct rig *rig = end->rig;
	struct ibv_send_wr wr[3], *bad = NULL;
	struct ibv_sge sge[3];

	for (int i = 0; i < 3; i++) {
		end_request(end, IBV_WR_RDMA_WRITE, 20 + (uint64_t)i, 0, 8, 0, &wr[i], &sge[i]);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1] = *wrong;
	wr[1].next = &wr[2];
	CHECK_EQ(rig, ibv_post_send(end->qp, wr, &bad), wanted);
	CHECK(rig, bad == &wr[1]);
	wc_expect(end, end->scq, 20, IBV_WC_SUCCESS);
	CHECK_EQ(rig, end_state(end), IBV_QPS_RTS);
}

static void send_refused(struct rig *rig)
{
	struct end_options opt = {.sge = 2, .inline_bytes = 64};
	struct ibv_sge sge[40];
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		end_request(&end, IBV_WR_SEND, 1, 0, 8, 0, &wr, &sge[0]);
		for (int i = 1; i < 40; i++)
			sge[i] = sge[0];
		wr.num_sge = (int)end.cap.max_send_sge + 1;
		send_chain(&end, &wr, ENOMEM);
		wr.num_sge = -1;
		send_chain(&end, &wr, ENOMEM);
		wr.num_sge = 1;
		wr.opcode = (enum ibv_wr_opcode)200;
		send_chain(&end, &wr, EINVAL);
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = IBV_SEND_INLINE;
		sge[0].length = end.cap.max_inline_data + 1;
		send_chain(&end, &wr, ENOMEM);
		wr.opcode = IBV_WR_RDMA_WRITE;
		send_chain(&end, &wr, ENOMEM);
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = 0;
		sge[0].length = 0xffffffff;
		send_chain(&end, &wr, EINVAL);
		wc_none(&end, end.scq);
		CHECK_EQ(rig, ibv_poll_cq(end.rcq, 1, &wc), 0);
	}
	rig_sync(rig);
	end_close(&end);
}

static void recv_refused(struct rig *rig)
{
	struct end_options opt = {.sge = 2};
	struct ibv_recv_wr wr[3], *bad;
	struct ibv_sge sge[40];
	struct end end;

	for (unsigned int srq = 0; srq <= 16; srq += 16) {
		opt.srq_depth = srq;
		end_pair(&end, rig, &opt);
		for (int i = 0; i < 40; i++)
			sge[i] = end_sge(&end, 0, 1);
		for (uint64_t i = 0; i < 3; i++)
			wr[i] = (struct ibv_recv_wr){.wr_id = i,
						     .sg_list = sge,
						     .num_sge = 1,
						     .next = i < 2 ? &wr[i + 1] : NULL};
		wr[1].num_sge = 33;
		CHECK_EQ(rig,
			 srq ? ibv_post_srq_recv(end.srq, wr, &bad)
			     : ibv_post_recv(end.qp, wr, &bad),
			 EINVAL);
		CHECK(rig, bad == &wr[1]);
		if (srq) /* a QP with an SRQ has no queue of its own */
			CHECK_EQ(rig, ibv_post_recv(end.qp, &wr[2], &bad), EINVAL);
		rig_sync(rig);
		OK(rig, end_send(&end, IBV_WR_SEND, 5, 0, 1, 0));
		wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 5, IBV_WC_SUCCESS);
		rig_sync(rig);
		end_close(&end);
	}
}

/* With an SRQ, whatever is asked of the receive queue that the QP doesn't have is ignored. */
static void srq_ignores_receive_caps(struct rig *rig)
{
	static const uint32_t numbers[] = {0, 1, 100000, UINT32_MAX};
	struct end_options opt = {.srq_depth = 4};
	struct end end;

	end_open(&end, rig, &opt);
	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = end.scq,
			.recv_cq = end.rcq,
			.srq = end.srq,
			.qp_type = i % 2 ? IBV_QPT_RC : IBV_QPT_UD,
			.cap = {4, numbers[i], 1, numbers[i], 0},
		};
		struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
		struct ibv_qp *qp = ibv_create_qp(end.pd, &attr);

		CHECK(rig, qp);
		CHECK_EQ(rig, attr.cap.max_recv_wr, 0);
		CHECK_EQ(rig, attr.cap.max_recv_sge, 0);
		CHECK_EQ(rig, ibv_post_recv(qp, &wr, &bad), EINVAL);
		OK(rig, ibv_destroy_qp(qp));
	}
	end_close(&end);
}

/* The errors of ibv_rereg_mr() are those of libibverbs; the region stays as it was. */
static void rereg_errors(struct rig *rig)
{
	enum {
		MOVE = IBV_REREG_MR_CHANGE_TRANSLATION,
		PD = IBV_REREG_MR_CHANGE_PD,
		ACCESS = IBV_REREG_MR_CHANGE_ACCESS
	};
	struct end end;

	end_pair(&end, rig, NULL);
	const struct {
		int flags;
		void *addr;
		size_t length;
		int access, wanted;
	} cases[] = {
		{MOVE, end.buf, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{MOVE, end.buf + 16, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{MOVE, NULL, 4096, 0, IBV_REREG_MR_ERR_INPUT},
		{PD, NULL, 0, IBV_ACCESS_LOCAL_WRITE, IBV_REREG_MR_ERR_INPUT},
		{1 << 5, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{0, NULL, 0, 0, IBV_REREG_MR_ERR_CMD},
		{ACCESS, NULL, 0, IBV_ACCESS_REMOTE_WRITE, IBV_REREG_MR_ERR_CMD},
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		errno = 0;
		CHECK_EQ(rig,
			 ibv_rereg_mr(end.mr, cases[i].flags, end.pd, cases[i].addr,
				      cases[i].length, cases[i].access),
			 cases[i].wanted);
		CHECK_EQ(rig, errno, EINVAL);
	}
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 8, 0));
	wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

/* No more fit than was granted; a place becomes free when its completion is polled. */
static void queues_full(struct rig *rig)
{
	struct end_options opt = {.send_depth = 8, .recv_depth = 8};
	struct end end;

	for (unsigned int srq = 0; srq <= 8; srq += 8) {
		opt.srq_depth = srq;
		end_pair(&end, rig, &opt);
		for (int i = 0; i < 8; i++)
			OK(rig, end_recv(&end, (uint64_t)i, 0, 8));
		CHECK_EQ(rig, end_recv(&end, 8, 0, 8), ENOMEM);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			/* Eight fill B's receives and complete, eight more wait for receives. */
			for (int i = 0; i < 8; i++)
				OK(rig, end_send(&end, IBV_WR_SEND, (uint64_t)i, 0, 8, 0));
			for (int i = 0; i < 8; i++)
				wc_expect(&end, end.scq, (uint64_t)i, IBV_WC_SUCCESS);
			for (int i = 0; i < (int)end.cap.max_send_wr; i++)
				OK(rig, end_send(&end, IBV_WR_SEND, (uint64_t)i, 0, 8, 0));
			CHECK_EQ(rig, end_send(&end, IBV_WR_SEND, 99, 0, 8, 0), ENOMEM);
			rig_sync(rig);
			for (int i = 0; i < (int)end.cap.max_send_wr; i++)
				wc_expect(&end, end.scq, (uint64_t)i, IBV_WC_SUCCESS);
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 99, 0, 8, 0));
			wc_expect(&end, end.scq, 99, IBV_WC_SUCCESS);
		} else {
			for (int i = 0; i < 8; i++)
				wc_expect(&end, end.rcq, (uint64_t)i, IBV_WC_SUCCESS);
			rig_sync(rig);
			for (int i = 0; i < (int)end.cap.max_send_wr; i++) {
				OK(rig, end_recv(&end, (uint64_t)i, 0, 8));
				wc_expect(&end, end.rcq, (uint64_t)i, IBV_WC_SUCCESS);
			}
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* Making -------------------------------------------------------------------------------------- */

static void qp_refused(struct end *end, struct ibv_qp_init_attr attr, int wanted)
{
	errno = 0;
	CHECK(end->rig, !ibv_create_qp(end->pd, &attr));
	CHECK_EQ(end->rig, errno, wanted);
}

static void too_much(struct rig *rig)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1 << 24, .max_sge = 1}};
	struct ibv_qp_init_attr attr;
	struct ibv_device_attr device;
	struct end end;

	end_open(&end, rig, NULL);
	OK(rig, ibv_query_device(rig->ctx, &device));
	attr = (struct ibv_qp_init_attr){.send_cq = end.scq,
					 .recv_cq = end.rcq,
					 .qp_type = IBV_QPT_RC,
					 .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	attr.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
	qp_refused(&end, attr, EINVAL);
	attr.cap.max_send_wr = 1;
	attr.cap.max_recv_wr = 0xffffffff;
	qp_refused(&end, attr, EINVAL);
	attr.cap.max_recv_wr = 1;
	attr.cap.max_send_sge = (uint32_t)device.max_sge + 1;
	qp_refused(&end, attr, EINVAL);
	attr.cap.max_send_sge = 1;
	attr.cap.max_inline_data = 1 << 20;
	qp_refused(&end, attr, EINVAL);
	attr.cap.max_inline_data = 0;
	attr.recv_cq = NULL;
	qp_refused(&end, attr, EINVAL);
	attr.recv_cq = end.rcq;
	attr.qp_type = IBV_QPT_DRIVER;
	qp_refused(&end, attr, EOPNOTSUPP);

	CHECK(rig, !ibv_create_srq(end.pd, &srq) && errno == EINVAL);
	CHECK(rig, !ibv_create_cq(rig->ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(rig, !ibv_create_cq(rig->ctx, device.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(rig, !ibv_create_cq(rig->ctx, 1, NULL, NULL, 9999) && errno == EINVAL);
	CHECK(rig, !ibv_reg_mr(end.pd, end.buf, 0, 0) && errno == EINVAL);
	CHECK(rig, !ibv_reg_mr(end.pd, end.buf, 8, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(rig, !ibv_reg_mr(end.pd, (void *)64, 4096, 0) && errno == EFAULT);
	end_close(&end);
}

enum { LARGE = 2048 * 4096 };

static int registers(struct end *end, void *memory, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, memory, LARGE, access);

	return mr ? ibv_dereg_mr(mr) : errno;
}

static void *large_mapping(struct rig *rig, int flags, int fd)
{
	void *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, flags, fd, 0);

	CHECK(rig, memory != MAP_FAILED);
	return memory;
}

/* An unsuitable page must be detected wherever in the mapping it is. */
static void large_rights(struct end *end)
{
	struct rig *rig = end->rig;
	uint8_t *memory = large_mapping(rig, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	const int write = IBV_ACCESS_LOCAL_WRITE;

	OK(rig, registers(end, memory, write));
	/* Several suitable mappings. */
	OK(rig, madvise(memory + 300 * 4096, 4096, MADV_DONTDUMP));
	OK(rig, registers(end, memory, write));
	/* One page is read-only, then inaccessible. */
	OK(rig, mprotect(memory + 200 * 4096, 4096, PROT_READ));
	CHECK_EQ(rig, registers(end, memory, write), EFAULT);
	OK(rig, registers(end, memory, 0));
	OK(rig, mprotect(memory + 200 * 4096, 4096, PROT_NONE));
	CHECK_EQ(rig, registers(end, memory, 0), EFAULT);
	/* A hole; in one process, the other end may fill it. */
	OK(rig, munmap(memory + 200 * 4096, 4096));
	if (rig->carrier > RIG_SELF_TWO) {
		CHECK_EQ(rig, registers(end, memory, write), EFAULT);
		CHECK_EQ(rig, registers(end, memory, 0), EFAULT);
	}
	munmap(memory, 200 * 4096);
	munmap(memory + 201 * 4096, LARGE - 201 * 4096);
}

/* A file that is too short for its mapping. */
static void large_files(struct end *end)
{
	static const int flags[] = {MAP_SHARED, MAP_PRIVATE};
	struct rig *rig = end->rig;
	int fd = memfd_create("large", MFD_CLOEXEC);
	const int write = IBV_ACCESS_LOCAL_WRITE;

	CHECK(rig, fd >= 0);
	for (size_t i = 0; i < 2; i++) {
		OK(rig, ftruncate(fd, LARGE));
		void *memory = large_mapping(rig, flags[i], fd);

		OK(rig, registers(end, memory, write));
		OK(rig, registers(end, memory, 0));
		OK(rig, ftruncate(fd, LARGE - 4096));
		CHECK_EQ(rig, registers(end, memory, write), EFAULT);
		CHECK_EQ(rig, registers(end, memory, 0), EFAULT);
		OK(rig, ftruncate(fd, 0));
		CHECK_EQ(rig, registers(end, memory, write), EFAULT);
		munmap(memory, LARGE);
	}
	close(fd);
}

/* From here on this thread's kernel lacks PROCMAP_QUERY. */
static void older_kernel(struct rig *rig)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		/* PROCMAP_QUERY; the headers may be older than it */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xc0686611, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	OK(rig, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? errno : 0);
	OK(rig, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? errno : 0);
}

/* Regions so large that registration looks up mappings instead of populating pages: the result must
 * be the same. */
static void large_regions(struct rig *rig)
{
	struct end end;

	end_open(&end, rig, NULL);
	large_rights(&end);
	large_files(&end);
	older_kernel(rig);
	large_rights(&end);
	large_files(&end);
	end_close(&end);
}

/* A message between regions without any present page: zeros are sent, and all bytes are
 * received. */
static void large_untouched(struct rig *rig)
{
	static const uint32_t sizes[] = {8, 60000, LARGE};
	uint8_t *zeros = calloc(1, LARGE);
	struct end end;

	CHECK(rig, zeros);
	end_pair(&end, rig, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		uint8_t *memory = large_mapping(rig, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		struct ibv_mr *mr = ibv_reg_mr(end.pd, memory, LARGE, IBV_ACCESS_LOCAL_WRITE);
		struct ibv_sge sge = {(uintptr_t)memory, sizes[i], mr ? mr->lkey : 0};
		struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_recv;
		struct ibv_send_wr send = {.wr_id = 2,
					   .sg_list = &sge,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED},
				   *bad_send;

		CHECK(rig, mr);
		if (rig->role == RIG_B)
			OK(rig, ibv_post_recv(end.qp, &recv, &bad_recv));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, ibv_post_send(end.qp, &send, &bad_send));
			wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
			/* Now with memory that was written after its registration. */
			pattern_fill(memory, sizes[i], i);
			rig_sync(rig);
			OK(rig, ibv_post_send(end.qp, &send, &bad_send));
			wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
		} else {
			CHECK_EQ(rig, wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS).byte_len,
				 sizes[i]);
			CHECK(rig, !memcmp(memory, zeros, sizes[i]));
			OK(rig, ibv_post_recv(end.qp, &recv, &bad_recv));
			rig_sync(rig);
			wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(memory, sizes[i], i));
		}
		rig_sync(rig);
		OK(rig, ibv_dereg_mr(mr));
		munmap(memory, LARGE);
	}
	free(zeros);
	end_close(&end);
}

static void in_use(struct rig *rig)
{
	struct end_options opt = {.srq_depth = 8};
	struct end end;

	end_pair(&end, rig, &opt);
	CHECK_EQ(rig, ibv_dealloc_pd(end.pd), EBUSY);
	CHECK_EQ(rig, ibv_destroy_cq(end.scq), EBUSY);
	CHECK_EQ(rig, ibv_destroy_cq(end.rcq), EBUSY);
	CHECK_EQ(rig, ibv_destroy_srq(end.srq), EBUSY);
	CHECK_EQ(rig, ibv_destroy_comp_channel(end.channel), EBUSY);
	/* The refused calls changed nothing. */
	OK(rig, end_recv(&end, 1, 0, 8));
	rig_sync(rig);
	OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
	wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	rig_sync(rig);
	OK(rig, ibv_destroy_qp(end.qp));
	end.qp = NULL;
	CHECK_EQ(rig, ibv_dealloc_pd(end.pd), EBUSY);
	end_close(&end);
}

/* CQs ----------------------------------------------------------------------------------------- */

/* A completes more requests than its CQ has places. */
static void overrun(struct end *end)
{
	for (uint64_t id = 0; id < 2 * (uint64_t)end->scq->cqe; id++)
		OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, id, 0, 8, 0));
	event_expect(end->rig, IBV_EVENT_CQ_ERR, end->scq);
	event_expect(end->rig, IBV_EVENT_QP_FATAL, end->qp);
}

/* A CQ with few places and more completions: one CQ_ERR; those that fitted can be polled; the QP
 * fails. */
static void cq_overrun(struct rig *rig)
{
	struct end_options opt = {.cqe = 4};
	struct ibv_wc wc[16];
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		overrun(&end);
		CHECK(rig, !event_seen(rig, IBV_EVENT_CQ_ERR, end.scq, RIG_NEVER_MS));
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		CHECK_EQ(rig, ibv_poll_cq(end.scq, 16, wc), end.scq->cqe);
		for (uint64_t id = 0; id < (uint64_t)end.scq->cqe; id++)
			CHECK(rig, wc[id].wr_id == id && wc[id].status == IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* A CQ that has overrun stays so, though it was polled empty: a QP that comes to it from RESET
 * fails with its first completion, which is lost, if not before. */
static void cq_stays_overrun(struct rig *rig)
{
	struct end_options opt = {.cqe = 4};
	struct ibv_wc wc[16];
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		overrun(&end);
		CHECK_EQ(rig, ibv_poll_cq(end.scq, 16, wc), end.scq->cqe);
	}
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_RESET));
	rig_sync(rig);
	/* On the way the engine may fail it for the completions that were lost before. */
	end.opt.may_fail = rig->role == RIG_A;
	end_connect(&end);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 100, 0, 8, 0));
		event_expect(rig, IBV_EVENT_QP_FATAL, end.qp);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		wc_none(&end, end.scq);
		CHECK(rig, !event_seen(rig, IBV_EVENT_CQ_ERR, end.scq, RIG_NEVER_MS));
	}
	rig_sync(rig);
	end_close(&end);
}

/* A larger ring takes over the contents of the smaller; a smaller ring must have room for them. */
static void cq_resize(struct rig *rig)
{
	struct end_options opt = {.cqe = 16};
	struct end end;

	end_pair(&end, rig, &opt);
	end_warm(&end);
	for (uint64_t id = 0; id < 10; id++)
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, id, 0, 8, 0));
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 10, 0, 8, 0));
	end_settle(&end); /* polling would remove the completions */
	CHECK_EQ(rig, ibv_resize_cq(end.scq, 4), EINVAL);
	CHECK_EQ(rig, ibv_resize_cq(end.scq, 0), EINVAL);
	CHECK_EQ(rig, ibv_resize_cq(end.scq, 1 << 30), EINVAL);
	CHECK(rig, end.scq->cqe >= 16);
	OK(rig, ibv_resize_cq(end.scq, 11));
	OK(rig, ibv_resize_cq(end.scq, 100));
	CHECK(rig, end.scq->cqe >= 100);
	for (uint64_t id = 11; id < 60; id++)
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, id, 0, 8, 0));
	for (uint64_t id = 0; id < 60; id++)
		wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

static struct ibv_cq *event_take(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	OK(end->rig, ibv_get_cq_event(end->channel, &cq, &context));
	CHECK(end->rig, context == end);
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/* B is armed for solicited completions only: a plain message is silent, a solicited one and an
 * error are not. */
static void solicited(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_A) {
		for (int i = 0; i < 2; i++) {
			rig_sync(rig);
			end_request(&end, IBV_WR_SEND, 1, 0, 8, 0, &wr, &sge);
			wr.send_flags |= i ? IBV_SEND_SOLICITED : 0;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		end_close(&end);
		return;
	}
	for (uint64_t id = 0; id < 4; id++)
		OK(rig, end_recv(&end, id, 0, 8));
	OK(rig, ibv_req_notify_cq(end.rcq, 1));
	rig_sync(rig);
	wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
	CHECK(rig, !channel_readable(end.channel, RIG_NEVER_MS));
	rig_sync(rig);
	CHECK(rig, channel_readable(end.channel, RIG_SOON_MS));
	CHECK(rig, event_take(&end) == end.rcq);
	wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	/* It fired once; armed again it also fires for an error. */
	CHECK(rig, !channel_readable(end.channel, 0));
	OK(rig, ibv_req_notify_cq(end.rcq, 1));
	OK(rig, end_move(&end, IBV_QPS_ERR));
	CHECK(rig, event_take(&end) == end.rcq);
	wc_expect(&end, end.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	wc_expect(&end, end.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	rig_sync(rig);
	end_close(&end);
}

/* One channel, two CQs, both armed: two events, each names its CQ. */
static void one_channel(struct rig *rig)
{
	struct ibv_cq *first, *second;
	struct end end;

	end_pair(&end, rig, NULL);
	OK(rig, end_recv(&end, 1, 0, 8));
	OK(rig, ibv_req_notify_cq(end.scq, 0));
	OK(rig, ibv_req_notify_cq(end.rcq, 0));
	rig_sync(rig);
	OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
	first = event_take(&end);
	second = event_take(&end);
	CHECK(rig, first != second);
	CHECK(rig, first == end.scq || first == end.rcq);
	CHECK(rig, second == end.scq || second == end.rcq);
	wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	CHECK(rig, !channel_readable(end.channel, 0));
	rig_sync(rig);
	end_close(&end);
}

/* A completion from before the arming raises no event, which is why programs poll once more. */
static void arm_after(struct rig *rig)
{
	int flags;
	void *context;
	struct ibv_cq *cq;
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 0, 0));
	end_settle(&end);
	OK(rig, ibv_req_notify_cq(end.scq, 0));
	CHECK(rig, !channel_readable(end.channel, RIG_NEVER_MS));
	wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 2, 0, 8, 0));
	CHECK(rig, event_take(&end) == end.scq);
	wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	/* Arming once gives one event. */
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 3, 0, 8, 0));
	wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
	CHECK(rig, !channel_readable(end.channel, 0));
	flags = fcntl(end.channel->fd, F_GETFL);
	CHECK(rig, fcntl(end.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	CHECK(rig, ibv_get_cq_event(end.channel, &cq, &context) == -1 && errno == EAGAIN);
	rig_sync(rig);
	end_close(&end);
}

/* Arming while completions arrive: no wake-up is lost. */
static void arm_race(struct rig *rig)
{
	enum { ROUNDS = 3000 };
	struct ibv_wc wc;
	struct end end;

	end_pair(&end, rig, NULL);
	for (uint64_t id = 0; id < 32; id++)
		OK(rig, end_recv(&end, id, 0, 8));
	rig_sync(rig);
	if (rig->role == RIG_A)
		OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 8, 0));
	for (int round = 0; round < ROUNDS; round++) {
		while (ibv_poll_cq(end.rcq, 1, &wc) == 0) {
			OK(rig, ibv_req_notify_cq(end.rcq, 0));
			if (ibv_poll_cq(end.rcq, 1, &wc))
				break;
			CHECK(rig, channel_readable(end.channel, RIG_SOON_MS));
			event_take(&end);
		}
		CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
		OK(rig, end_recv(&end, 0, 0, 8));
		if (rig->role == RIG_A && round == ROUNDS - 1)
			break;
		OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 8, 0));
		while (ibv_poll_cq(end.scq, 1, &wc))
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	while (channel_readable(end.channel, 0))
		event_take(&end);
	end_close(&end);
}

struct late {
	struct ibv_cq *cq;
	double when;
};

static void *ack_later(void *argument)
{
	struct late *late = argument;

	usleep(80000);
	late->when = now_ms();
	ibv_ack_cq_events(late->cq, 1);
	return NULL;
}

/* ibv_destroy_cq waits for the acknowledgement of an event that was taken. */
static void destroy_waits(struct rig *rig)
{
	struct late late = {0};
	pthread_t thread;
	void *context;
	struct end end;

	end_pair(&end, rig, NULL);
	OK(rig, ibv_req_notify_cq(end.scq, 0));
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 3, 0, 8, 0));
	OK(rig, ibv_get_cq_event(end.channel, &late.cq, &context));
	CHECK(rig, late.cq == end.scq);
	rig_sync(rig);
	OK(rig, ibv_destroy_qp(end.qp));
	end.qp = NULL;
	CHECK_EQ(rig, pthread_create(&thread, NULL, ack_later, &late), 0);
	OK(rig, ibv_destroy_cq(end.scq));
	CHECK(rig, late.when > 0 && now_ms() >= late.when);
	pthread_join(thread, NULL);
	end.scq = end.rcq;
	end.rcq = end.scq;
	end_close(&end);
}

/* SRQs ---------------------------------------------------------------------------------------- */

/* The limit event is raised once for each arming, when fewer receives are left than the limit. */
static void srq_limit(struct rig *rig)
{
	struct end_options opt = {.srq_depth = 16};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_B) {
		for (uint64_t id = 0; id < 8; id++)
			OK(rig, end_recv(&end, id, 0, 8));
		OK(rig, ibv_modify_srq(end.srq, &attr, IBV_SRQ_LIMIT));
		OK(rig, ibv_query_srq(end.srq, &attr));
		CHECK_EQ(rig, attr.srq_limit, 4);
		attr.srq_limit = 100000;
		CHECK_EQ(rig, ibv_modify_srq(end.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
		CHECK_EQ(rig, ibv_modify_srq(end.srq, &attr, 1 << 9), EINVAL);
	}
	rig_sync(rig);
	for (uint64_t id = 0; id < 7; id++) {
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, id, 0, 8, 0));
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		} else {
			wc_expect(&end, end.rcq, id, IBV_WC_SUCCESS);
			if (id == 4)
				event_expect(rig, IBV_EVENT_SRQ_LIMIT_REACHED, end.srq);
			else
				CHECK(rig,
				      !event_seen(rig, IBV_EVENT_SRQ_LIMIT_REACHED, end.srq, 2));
		}
		rig_sync(rig);
	}
	if (rig->role == RIG_B) {
		OK(rig, ibv_query_srq(end.srq, &attr));
		CHECK_EQ(rig, attr.srq_limit, 0);
		/* One is left: that is enough for a limit of 1; a higher one is reached at once. */
		attr.srq_limit = 1;
		OK(rig, ibv_modify_srq(end.srq, &attr, IBV_SRQ_LIMIT));
		CHECK(rig, !event_seen(rig, IBV_EVENT_SRQ_LIMIT_REACHED, end.srq, 2));
		attr.srq_limit = 4;
		OK(rig, ibv_modify_srq(end.srq, &attr, IBV_SRQ_LIMIT));
		event_expect(rig, IBV_EVENT_SRQ_LIMIT_REACHED, end.srq);
		OK(rig, ibv_query_srq(end.srq, &attr));
		CHECK_EQ(rig, attr.srq_limit, 0);
	}
	end_close(&end);
}

/* Two QPs of one SRQ both wait: receives that are posted later serve both. */
static void srq_shared(struct rig *rig)
{
	enum { ROUNDS = 300 };
	struct end_options opt = {.srq_depth = 64};
	struct end first, second;
	unsigned int done[2] = {0, 0};

	end_open(&first, rig, &opt);
	end_open(&second, rig, &opt);
	if (rig->role == RIG_B) { /* the second QP of B on the SRQ and CQs of the first */
		struct ibv_qp_init_attr attr = {.send_cq = first.scq,
						.recv_cq = first.rcq,
						.srq = first.srq,
						.qp_type = IBV_QPT_RC,
						.cap = {.max_send_wr = 8, .max_send_sge = 1}};

		OK(rig, ibv_destroy_qp(second.qp));
		CHECK(rig, (second.qp = ibv_create_qp(first.pd, &attr)));
	}
	end_connect(&first);
	end_connect(&second);
	for (int round = 0; round < ROUNDS; round++) {
		struct end *sender = round % 3 ? &first : &second;

		if (rig->role == RIG_A)
			OK(rig, end_send(sender, IBV_WR_SEND, 1, 0, round % 7 ? 8 : 20000, 0));
		if (rig->role == RIG_B && round % 2)
			for (int i = 0; i < 2; i++)
				OK(rig, end_recv(&first, 9, 0, 65536));
		if (round % 2 == 0)
			continue;
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc;

			if (rig->role == RIG_A) {
				wc_wait(round - 1 + i == round ? sender
					: (round - 1) % 3      ? &first
							       : &second,
					(round - 1 + i) % 3 ? first.scq : second.scq);
				continue;
			}
			wc = wc_wait(&first, first.rcq);
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			done[wc.qp_num == second.qp->qp_num]++;
		}
	}
	if (rig->role == RIG_B)
		CHECK(rig, done[0] == ROUNDS / 3 * 2 && done[1] == ROUNDS / 3);
	rig_sync(rig);
	end_close(&second);
	end_close(&first);
}

/* Threads ------------------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 2000, AHEAD = 256 };

struct crowd {
	struct end *end;
	uint64_t seen[THREADS]; /* under `lock`: the next number of each poster */
	unsigned int posted;	/* atomic; no more than AHEAD beyond `done`, or the CQ overruns */
	unsigned int done;	/* atomic */
	pthread_mutex_t lock;
};

struct member {
	struct crowd *crowd;
	uint64_t number;
	pthread_t thread;
};

static void *member_post(void *argument)
{
	struct member *me = argument;
	struct end *end = me->crowd->end;

	for (uint64_t i = 0; i < EACH; i++) {
		unsigned int place = __atomic_fetch_add(&me->crowd->posted, 1, __ATOMIC_RELAXED);
		int error;

		while ((int)(place - __atomic_load_n(&me->crowd->done, __ATOMIC_RELAXED)) >= AHEAD)
			usleep(20);
		while ((error = end_send(end, i % 5 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
					 me->number << 32 | i, me->number * 64, 8,
					 4096 + me->number * 64)) == ENOMEM)
			usleep(20);
		OK(end->rig, error);
	}
	return NULL;
}

/* Polls one CQ together with other threads; the receiving side posts as many receives as it has
 * consumed. */
static void *member_poll(void *argument)
{
	struct member *me = argument;
	struct crowd *crowd = me->crowd;
	struct end *end = crowd->end;
	bool sender = end->rig->role == RIG_A;
	struct ibv_wc wc[8];

	while (__atomic_load_n(&crowd->done, __ATOMIC_RELAXED) < THREADS * EACH) {
		int got = ibv_poll_cq(sender ? end->scq : end->rcq, 8, wc);

		CHECK(end->rig, got >= 0);
		for (int i = 0; i < got; i++) {
			CHECK_EQ(end->rig, wc[i].status, IBV_WC_SUCCESS);
			if (!sender)
				OK(end->rig, end_recv(end, 0, 0, 8));
		}
		if (got && sender) {
			pthread_mutex_lock(&crowd->lock);
			for (int i = 0; i < got; i++)
				crowd->seen[wc[i].wr_id >> 32]++;
			pthread_mutex_unlock(&crowd->lock);
		}
		__atomic_fetch_add(&crowd->done, (unsigned int)got, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Several threads post to one QP, several poll one CQ, at both ends. */
static void threads(struct rig *rig)
{
	struct end_options opt = {.send_depth = 128, .recv_depth = 128, .cqe = 512};
	struct member member[2 * THREADS];
	struct crowd crowd = {.lock = PTHREAD_MUTEX_INITIALIZER};
	struct end end;

	end_pair(&end, rig, &opt);
	crowd.end = &end;
	if (rig->role == RIG_B)
		for (int i = 0; i < 100; i++)
			OK(rig, end_recv(&end, 0, 0, 8));
	rig_sync(rig);
	for (uint64_t i = 0; i < 2 * THREADS; i++) {
		member[i] = (struct member){.crowd = &crowd, .number = i % THREADS};
		if (i >= THREADS && rig->role == RIG_B)
			continue; /* B only polls */
		CHECK_EQ(rig,
			 pthread_create(&member[i].thread, NULL,
					i < THREADS ? member_poll : member_post, &member[i]),
			 0);
	}
	for (int i = 0; i < (rig->role == RIG_A ? 2 * THREADS : THREADS); i++)
		pthread_join(member[i].thread, NULL);
	for (int i = 0; rig->role == RIG_A && i < THREADS; i++)
		CHECK_EQ(rig, crowd.seen[i], EACH);
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test queue_tests[] = {
	{"send_refused", send_refused},
	{"recv_refused", recv_refused},
	{"srq_ignores_receive_caps", srq_ignores_receive_caps},
	{"rereg_errors", rereg_errors},
	{"queues_full", queues_full},
	{"too_much", too_much},
	{"large_regions", large_regions},
	{"large_untouched", large_untouched},
	{"in_use", in_use},
	{"cq_overrun", cq_overrun},
	{"cq_stays_overrun", cq_stays_overrun},
	{"cq_resize", cq_resize},
	{"solicited", solicited},
	{"one_channel", one_channel},
	{"arm_after", arm_after},
	{"arm_race", arm_race},
	{"destroy_waits", destroy_waits},
	{"srq_limit", srq_limit},
	{"srq_shared", srq_shared},
	{"threads", threads},
	{NULL, NULL},
};
