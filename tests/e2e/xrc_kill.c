/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An XRC target queue pair outlives the process that made it. The maker and the keeper share a
 * domain; both have an SRQ in it, and the keeper has the queue pair open. The initiator sends
 * numbered messages to both, then to the keeper only, and meanwhile the maker is killed: no message
 * is lost, doubled, or out of order. At last the initiator sends to the dead process's SRQ: the
 * request is refused, and the keeper has the event.
 *
 * -u: the last request is under way when its process dies: the maker is stopped before the request
 * is sent, and killed after it.
 * -w m, -w k: the maker, or the keeper, attaches and shares the domain while another socket has
 * port 4791, so that the daemon has no wire. Then the daemon is killed, and the next one has the
 * wire. -h HOSTS (RIG_HOSTS of rig.c) puts the initiator on another host. This process calls no
 * verb.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon_kill.h"
#include "xrc_side.h"

enum { BOTH = 200, ALONE = 1000 };
enum role { MAKER, KEEPER, INITIATOR, ROLES };
static const char *const names[ROLES] = {"maker", "keeper", "initiator"};

/* What the processes tell one another. 0: not yet. */
struct page {
	_Atomic uint32_t target, initiator, srqn[2], kept, sent, received, half, over, last, posted;
	_Atomic uint32_t early, wired;
	union ibv_gid target_gid, initiator_gid;
};

static struct page *page;
static int port = -1; /* a socket at port 4791 */
static char file[] = "/tmp/verbena-xrc-kill-XXXXXX";

/* Receives messages, whose numbers rise by `step` to below `end`. */
static void receive(struct side *s, uint32_t first, uint32_t step, uint32_t end)
{
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;
	const uint32_t *numbers = (const uint32_t *)s->buf;
	struct ibv_wc wc;

	for (uint32_t next = first; next < end;) {
		int n = ibv_poll_cq(s->cq, 1, &wc);

		MUST(n >= 0 && side_clock_ms() < until);
		if (!n) {
			sched_yield();
			continue;
		}
		MUST(wc.status == IBV_WC_SUCCESS && wc.qp_num == atomic_load(&page->target));
		if (numbers[wc.wr_id] != next)
			side_fail(__LINE__, "message %u, not %u", numbers[wc.wr_id], next);
		side_offer(s, wc.wr_id);
		next += step;
		atomic_store(&page->received, next);
	}
}

static void publish_srq(struct side *s, enum role role)
{
	atomic_store(&page->srqn[role], side_srq_ready(s));
}

/* There is no wire yet: shares the domain, and waits until the daemon is gone. */
static void share_early(struct side *s)
{
	side_share(s, file);
	atomic_store(&page->early, 1);
	side_await(&page->wired);
}

static void run_maker(struct side *s)
{
	if (!s->xrcd)
		side_share(s, file);
	s->qp = side_target_make(s);
	side_to_init(s->qp);
	page->target_gid = s->gid;
	side_await(&page->initiator);
	side_target_to_rtr(s->qp, atomic_load(&page->initiator), &page->initiator_gid);
	publish_srq(s, MAKER);
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
		MUST(poll(&ready, 1, SIDE_SOON_MS) == 1);
		MUST(!ibv_get_async_event(s->ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST); /* before, or as well */
	MUST(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == s->qp);
}

static void run_keeper(struct side *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr is;
	uint32_t target = side_await(&page->target);

	if (!s->xrcd)
		side_share(s, file);
	s->qp = side_target_open(s, target);
	publish_srq(s, KEEPER);
	receive(s, 1, 2, BOTH);
	receive(s, BOTH, 1, BOTH + ALONE);
	MUST(!ibv_query_qp(s->qp, &is, IBV_QP_STATE, &init) && is.qp_state == IBV_QPS_RTR);
	atomic_store(&page->over, 1);
	await_event(s);
	MUST(!ibv_query_qp(s->qp, &is, IBV_QP_STATE, &init) && is.qp_state == IBV_QPS_ERR);
	MUST(!ibv_destroy_qp(s->qp));
	side_close(s);
}

static void post_number(struct side *s, uint32_t number, uint32_t srqn)
{
	struct ibv_sge sge = {(uintptr_t)s->buf, sizeof(number), s->mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .sg_list = &sge,
				 .num_sge = 1};
	struct ibv_send_wr *bad;

	memcpy(s->buf, &number, sizeof(number));
	wr.qp_type.xrc.remote_srqn = srqn;
	MUST(!ibv_post_send(s->qp, &wr, &bad));
}

static enum ibv_wc_status number_status(struct side *s)
{
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(s->cq, 1, &wc))) {
		MUST(side_clock_ms() < until);
		sched_yield();
	}
	MUST(n == 1);
	return wc.status;
}

static void run_initiator(struct side *s)
{
	uint32_t srqn[2];

	s->qp = side_initiator_make(s, 8);
	page->initiator_gid = s->gid;
	atomic_store(&page->initiator, s->qp->qp_num);
	side_await(&page->target);
	for (int i = 0; i < 2; i++)
		srqn[i] = side_await(&page->srqn[i]);
	side_to_init(s->qp);
	side_initiator_to_rts(s->qp, atomic_load(&page->target), &page->target_gid);
	for (uint32_t i = 0; i < BOTH + ALONE; i++) {
		post_number(s, i, srqn[i < BOTH ? i % 2 : 1]);
		enum ibv_wc_status status = number_status(s);

		atomic_store(&page->sent, i + 1);
		if (status != IBV_WC_SUCCESS)
			side_fail(__LINE__, "message %u: %s", i, ibv_wc_status_str(status));
		if (i == BOTH + ALONE / 4)
			atomic_store(&page->half, 1);
	}
	side_await(&page->last);
	post_number(s, 0, srqn[0]);
	atomic_store(&page->posted, 1);
	enum ibv_wc_status status = number_status(s);

	if (status != IBV_WC_REM_ACCESS_ERR)
		side_fail(__LINE__, "to the SRQ of a dead process: %s", ibv_wc_status_str(status));
	MUST(!ibv_destroy_qp(s->qp));
	side_close(s);
}

static void enter(const char *space, const char *dir)
{
	int fd = open(space, O_RDONLY | O_CLOEXEC);

	MUST(fd >= 0 && !setns(fd, CLONE_NEWNET));
	close(fd);
	setenv("VERBENA_RUNTIME_DIR", dir, 1);
}

static pid_t start(enum role as, char **hosts, bool early)
{
	static void (*const run[ROLES])(struct side *) = {run_maker, run_keeper, run_initiator};
	struct side side = {0};
	pid_t pid = fork();

	if (pid)
		return pid;
	if (port >= 0)
		close(port);
	snprintf(side_name, sizeof(side_name), "%s", names[as]);
	if (hosts)
		enter(hosts[as == INITIATOR ? 0 : 2], hosts[as == INITIATOR ? 1 : 3]);
	side_open(&side, sizeof(uint32_t), 0);
	if (early)
		share_early(&side);
	run[as](&side);
	exit(0);
}

static void end_maker(pid_t maker)
{
	kill(maker, SIGKILL);
	MUST(waitpid(maker, NULL, 0) == maker);
}

/* The initiator's last request comes to the process, which doesn't execute it, and dies. */
static void end_maker_under_way(pid_t maker)
{
	int status;

	side_await(&page->over);
	kill(maker, SIGSTOP);
	MUST(waitpid(maker, &status, WUNTRACED) == maker && WIFSTOPPED(status));
	atomic_store(&page->last, 1);
	side_await(&page->posted);
	end_maker(maker);
}

/* Takes port 4791, at all addresses. */
static int take_port(void)
{
	const struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(4791)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	MUST(fd >= 0 && !bind(fd, (const struct sockaddr *)&at, sizeof(at)));
	return fd;
}

/* One process attaches before there is a wire. The next daemon has it. */
static pid_t start_early(enum role as)
{
	port = take_port();
	pid_t pid = start(as, NULL, true);

	side_await(&page->early);
	MUST(daemon_kill());
	close(port);
	port = -1;
	atomic_store(&page->wired, 1);
	return pid;
}

int main(int argc, char **argv)
{
	char *hosts[4], *rest = NULL;
	int count = 0, fd = mkstemp(file), option;
	enum role early = ROLES;
	bool under_way = false;

	while ((option = getopt(argc, argv, "uw:h:")) != -1)
		if (option == 'u')
			under_way = true;
		else if (option == 'w')
			early = *optarg == 'm' ? MAKER : KEEPER;
		else if (option == 'h')
			rest = optarg;
		else
			return 2;
	while (rest && count < 4)
		hosts[count++] = strsep(&rest, ",");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || page == MAP_FAILED || (count && count != 4))
		return 2;
	pid_t pids[ROLES];

	if (early != ROLES)
		pids[early] = start_early(early);
	for (enum role i = MAKER; i < ROLES; i++)
		if (i != early)
			pids[i] = start(i, count ? hosts : NULL, false);
	side_await(&page->half);
	if (under_way) {
		end_maker_under_way(pids[MAKER]);
	} else {
		end_maker(pids[MAKER]);
		side_await(&page->over);
		atomic_store(&page->last, 1);
	}
	bool well = side_ended_well(pids[INITIATOR]);

	well = side_ended_well(pids[KEEPER]) && well;
	unlink(file);
	printf("%s: sent %u, received %u\n", well ? "passed" : "failed", page->sent,
	       page->received);
	return !well;
}
