/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_side.h. */
#include "xrc_side.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char side_name[32] = "test";

_Noreturn void side_fail(int line, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "  %s, line %d: ", side_name, line);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (%s)\n", strerror(errno));
	if (getenv("RIG_HOLD"))
		pause();
	_exit(1);
}

uint64_t side_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint32_t side_await(_Atomic uint32_t *word)
{
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;

	while (!atomic_load(word)) {
		MUST(side_clock_ms() < until);
		usleep(500);
	}
	return atomic_load(word);
}

bool side_ended_well(pid_t pid)
{
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (side_clock_ms() > until) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return false;
		}
		usleep(1000);
	}
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

void side_open(struct side *s, uint32_t place, uint32_t more)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t size = (size_t)SIDE_RECEIVES * place + more;

	MUST(list && list[0]);
	MUST((s->ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	s->place = place;
	MUST((s->pd = ibv_alloc_pd(s->ctx)));
	MUST((s->cq = ibv_create_cq(s->ctx, 1024, NULL, NULL, 0)));
	MUST((s->buf = calloc(1, size)));
	MUST((s->mr = ibv_reg_mr(s->pd, s->buf, size, IBV_ACCESS_LOCAL_WRITE)));
	MUST(!ibv_query_gid(s->ctx, 1, 0, &s->gid));
}

void side_share(struct side *s, const char *file)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(file, O_RDONLY | O_CLOEXEC),
		.oflags = O_CREAT,
	};

	MUST(attr.fd >= 0 && (s->xrcd = ibv_open_xrcd(s->ctx, &attr)));
	close(attr.fd);
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = SIDE_RECEIVES, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = s->pd,
		.xrcd = s->xrcd,
		.cq = s->cq,
	};

	MUST((s->srq = ibv_create_srq_ex(s->ctx, &srq)));
}

void side_offer(struct side *s, uint64_t place)
{
	struct ibv_sge sge = {(uintptr_t)s->buf + place * s->place, s->place, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &sge, .num_sge = 1}, *bad;

	MUST(!ibv_post_srq_recv(s->srq, &wr, &bad));
}

uint32_t side_srq_ready(struct side *s)
{
	uint32_t number;

	for (uint64_t i = 0; i < SIDE_RECEIVES; i++)
		side_offer(s, i);
	MUST(!ibv_get_srq_num(s->srq, &number));
	return number;
}

struct ibv_qp *side_target_make(struct side *s)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = s->xrcd};
	struct ibv_qp *qp = ibv_create_qp_ex(s->ctx, &attr);

	MUST(qp);
	return qp;
}

struct ibv_qp *side_target_open(struct side *s, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						     IBV_QP_OPEN_ATTR_TYPE,
					.qp_num = qpn,
					.xrcd = s->xrcd,
					.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *qp = ibv_open_qp(s->ctx, &attr);

	MUST(qp);
	return qp;
}

struct ibv_qp *side_initiator_make(struct side *s, uint32_t depth)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_SEND,
					   .comp_mask = IBV_QP_INIT_ATTR_PD,
					   .pd = s->pd,
					   .send_cq = s->cq,
					   .cap = {.max_send_wr = depth, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp_ex(s->ctx, &attr);

	MUST(qp);
	return qp;
}

void side_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void to_rtr(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid, int more)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = SIDE_PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = *gid, .sgid_index = 0, .hop_limit = 64}},
	};

	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | more));
}

void side_target_to_rtr(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	to_rtr(qp, peer, gid, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

void side_initiator_to_rts(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
				  .timeout = 19, /* 2 s: the machine may be busy */
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .sq_psn = SIDE_PSN,
				  .max_rd_atomic = 1};

	to_rtr(qp, peer, gid, 0);
	MUST(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

void side_close(struct side *s)
{
	MUST(!s->srq || !ibv_destroy_srq(s->srq));
	MUST(!s->xrcd || !ibv_close_xrcd(s->xrcd));
	MUST(!ibv_destroy_cq(s->cq) && !ibv_dereg_mr(s->mr) && !ibv_dealloc_pd(s->pd));
	MUST(!ibv_close_device(s->ctx));
	free(s->buf);
}
