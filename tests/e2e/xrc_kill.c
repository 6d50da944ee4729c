/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An XRC target queue pair outlives the process that made it. The maker and the keeper share a
 * domain; both have an SRQ in it, and the keeper has the queue pair open. The initiator sends
 * numbered messages to both, then to the keeper only, and meanwhile the maker is killed: no message
 * is lost, doubled, or out of order. At last the initiator sends to the dead process's SRQ: the
 * request is refused, and the keeper has the event.
 *
 * -h HOSTS (RIG_HOSTS of rig.c) puts the initiator on another host. This process calls no verb.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BOTH = 200, ALONE = 1000, RECEIVES = 256, SOON_MS = 120000, PSN = 0x4321 };
enum role { MAKER, KEEPER, INITIATOR, ROLES };
static const char *const names[ROLES] = {"maker", "keeper", "initiator"};

/* What the processes tell one another. 0: not yet. */
struct page {
	_Atomic uint32_t target, initiator, srqn[2], kept, sent, received, half, over;
	union ibv_gid target_gid, initiator_gid;
};

static struct page *page;
static char file[] = "/tmp/verbena-xrc-kill-XXXXXX";
static enum role role;

_Noreturn static void fail(int line, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "  %s, line %d: ", names[role], line);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (%s)\n", strerror(errno));
	_exit(1);
}

#define MUST(condition)                                           \
	do {                                                      \
		if (!(condition))                                 \
			fail(__LINE__, "not so: %s", #condition); \
	} while (0)

static uint64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t await(_Atomic uint32_t *word)
{
	uint64_t until = clock_ms() + SOON_MS;

	while (!atomic_load(word)) {
		MUST(clock_ms() < until);
		usleep(500);
	}
	return atomic_load(word);
}

/* What each process has. */
struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint32_t *buf;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	union ibv_gid gid;
};

static void side_open(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	MUST((s->ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((s->pd = ibv_alloc_pd(s->ctx)));
	MUST((s->cq = ibv_create_cq(s->ctx, 1024, NULL, NULL, 0)));
	MUST((s->buf = calloc(RECEIVES, sizeof(*s->buf))));
	MUST((s->mr = ibv_reg_mr(s->pd, s->buf, RECEIVES * sizeof(*s->buf),
				 IBV_ACCESS_LOCAL_WRITE)));
	MUST(!ibv_query_gid(s->ctx, 1, 1, &s->gid));
}

static void side_share(struct side *s)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(file, O_RDONLY | O_CLOEXEC),
		.oflags = O_CREAT,
	};

	MUST(attr.fd >= 0 && (s->xrcd = ibv_open_xrcd(s->ctx, &attr)));
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = RECEIVES, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = s->pd,
		.xrcd = s->xrcd,
		.cq = s->cq,
	};

	MUST((s->srq = ibv_create_srq_ex(s->ctx, &srq)));
}

static void offer(struct side *s, uint64_t place)
{
	struct ibv_sge sge = {(uintptr_t)&s->buf[place], sizeof(*s->buf), s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &sge, .num_sge = 1}, *bad;

	MUST(!ibv_post_srq_recv(s->srq, &wr, &bad));
}

static void publish_srq(struct side *s)
{
	uint32_t number;

	for (uint64_t i = 0; i < RECEIVES; i++)
		offer(s, i);
	MUST(!ibv_get_srq_num(s->srq, &number));
	atomic_store(&page->srqn[role], number);
}

/* Receives messages, whose numbers rise by `step` to below `end`. */
static void receive(struct side *s, uint32_t first, uint32_t step, uint32_t end)
{
	uint64_t until = clock_ms() + SOON_MS;
	struct ibv_wc wc;

	for (uint32_t next = first; next < end;) {
		int n = ibv_poll_cq(s->cq, 1, &wc);

		MUST(n >= 0 && clock_ms() < until);
		if (!n) {
			sched_yield();
			continue;
		}
		MUST(wc.status == IBV_WC_SUCCESS && wc.qp_num == atomic_load(&page->target));
		if (s->buf[wc.wr_id] != next)
			fail(__LINE__, "message %u, not %u", s->buf[wc.wr_id], next);
		offer(s, wc.wr_id);
		next += step;
		atomic_store(&page->received, next);
	}
}

static void to_init(struct ibv_qp *qp)
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
		.rq_psn = PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = *gid, .sgid_index = 1, .hop_limit = 64}},
	};

	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | more));
}

static void run_maker(struct side *s)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV,
					   .comp_mask = IBV_QP_INIT_ATTR_XRCD};

	side_share(s);
	attr.xrcd = s->xrcd;
	MUST((s->qp = ibv_create_qp_ex(s->ctx, &attr)));
	to_init(s->qp);
	page->target_gid = s->gid;
	await(&page->initiator);
	to_rtr(s->qp, atomic_load(&page->initiator), &page->initiator_gid,
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	publish_srq(s);
	atomic_store(&page->target, s->qp->qp_num);
	receive(s, 0, 2, BOTH);
	for (;;)
		pause(); /* to be killed */
}

static void await_event(struct side *s)
{
	struct pollfd ready = {.fd = s->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	do {
		MUST(poll(&ready, 1, SOON_MS) == 1);
		MUST(!ibv_get_async_event(s->ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST); /* before, or as well */
	MUST(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == s->qp);
}

static void run_keeper(struct side *s)
{
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						     IBV_QP_OPEN_ATTR_TYPE,
					.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr is;

	attr.qp_num = await(&page->target);
	side_share(s);
	attr.xrcd = s->xrcd;
	MUST((s->qp = ibv_open_qp(s->ctx, &attr)));
	publish_srq(s);
	receive(s, 1, 2, BOTH);
	receive(s, BOTH, 1, BOTH + ALONE);
	MUST(!ibv_query_qp(s->qp, &is, IBV_QP_STATE, &init) && is.qp_state == IBV_QPS_RTR);
	atomic_store(&page->over, 1);
	await_event(s);
	MUST(!ibv_query_qp(s->qp, &is, IBV_QP_STATE, &init) && is.qp_state == IBV_QPS_ERR);
	MUST(!ibv_destroy_qp(s->qp) && !ibv_destroy_srq(s->srq) && !ibv_close_xrcd(s->xrcd));
	MUST(!ibv_destroy_cq(s->cq) && !ibv_dereg_mr(s->mr) && !ibv_dealloc_pd(s->pd));
	MUST(!ibv_close_device(s->ctx));
}

static enum ibv_wc_status send_number(struct side *s, uint32_t number, uint32_t srqn)
{
	struct ibv_sge sge = {(uintptr_t)&s->buf[0], sizeof(number), s->mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .sg_list = &sge,
				 .num_sge = 1};
	struct ibv_send_wr *bad;
	uint64_t until = clock_ms() + SOON_MS;
	struct ibv_wc wc;
	int n;

	s->buf[0] = number;
	wr.qp_type.xrc.remote_srqn = srqn;
	MUST(!ibv_post_send(s->qp, &wr, &bad));
	while (!(n = ibv_poll_cq(s->cq, 1, &wc))) {
		MUST(clock_ms() < until);
		sched_yield();
	}
	MUST(n == 1);
	atomic_store(&page->sent, number + 1);
	return wc.status;
}

static void run_initiator(struct side *s)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_SEND,
					   .comp_mask = IBV_QP_INIT_ATTR_PD,
					   .pd = s->pd,
					   .send_cq = s->cq,
					   .cap = {.max_send_wr = 8, .max_send_sge = 1}};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
				  .timeout = 19, /* 2 s: the machine may be busy */
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .sq_psn = PSN,
				  .max_rd_atomic = 1};
	uint32_t srqn[2];

	MUST((s->qp = ibv_create_qp_ex(s->ctx, &attr)));
	page->initiator_gid = s->gid;
	atomic_store(&page->initiator, s->qp->qp_num);
	await(&page->target);
	for (int i = 0; i < 2; i++)
		srqn[i] = await(&page->srqn[i]);
	to_init(s->qp);
	to_rtr(s->qp, atomic_load(&page->target), &page->target_gid, 0);
	MUST(!ibv_modify_qp(s->qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	for (uint32_t i = 0; i < BOTH + ALONE; i++) {
		enum ibv_wc_status status = send_number(s, i, srqn[i < BOTH ? i % 2 : 1]);

		if (status != IBV_WC_SUCCESS)
			fail(__LINE__, "message %u: %s", i, ibv_wc_status_str(status));
		if (i == BOTH + ALONE / 4)
			atomic_store(&page->half, 1);
	}
	await(&page->over);
	MUST(send_number(s, 0, srqn[0]) == IBV_WC_REM_ACCESS_ERR);
	MUST(!ibv_destroy_qp(s->qp) && !ibv_destroy_cq(s->cq));
}

static void enter(const char *space, const char *dir)
{
	int fd = open(space, O_RDONLY | O_CLOEXEC);

	MUST(fd >= 0 && !setns(fd, CLONE_NEWNET));
	close(fd);
	setenv("VERBENA_RUNTIME_DIR", dir, 1);
}

static pid_t start(enum role as, char **hosts)
{
	static void (*const run[ROLES])(struct side *) = {run_maker, run_keeper, run_initiator};
	struct side side = {0};
	pid_t pid = fork();

	if (pid)
		return pid;
	role = as;
	if (hosts)
		enter(hosts[as == INITIATOR ? 0 : 2], hosts[as == INITIATOR ? 1 : 3]);
	side_open(&side);
	run[as](&side);
	exit(0);
}

/* Whether the process ended with 0; kills it if it doesn't end. */
static bool ended_well(pid_t pid)
{
	uint64_t until = clock_ms() + SOON_MS;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_ms() > until) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return false;
		}
		usleep(1000);
	}
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	char *hosts[4];
	int count = 0, fd = mkstemp(file);

	for (char *rest = argc > 2 ? argv[2] : NULL; rest && count < 4;)
		hosts[count++] = strsep(&rest, ",");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || page == MAP_FAILED || (count && count != 4))
		return 2;
	pid_t pids[ROLES];

	for (enum role i = MAKER; i < ROLES; i++)
		pids[i] = start(i, count ? hosts : NULL);
	await(&page->half);
	kill(pids[MAKER], SIGKILL);
	waitpid(pids[MAKER], NULL, 0);
	bool well = ended_well(pids[INITIATOR]);

	well = ended_well(pids[KEEPER]) && well;
	unlink(file);
	printf("%s: sent %u, received %u\n", well ? "passed" : "failed", page->sent,
	       page->received);
	return !well;
}
