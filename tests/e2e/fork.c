/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that forks during traffic. Each end has four queue pairs, each with a thread of its
 * own; two threads send first, two answer; two poll, two wait for events. Every message is checked
 * on both sides, every completion must be the next one. Meanwhile the ends' main threads make
 * children of every kind: children that exit, exec, write to the buffers, use the parent's objects,
 * or open a device of their own and exchange data with the parent and with its peer. See rig.h.
 *
 * With `rules` instead of the rig's arguments: ibv_fork_init() and the environment variables. Each
 * rule is tested in a process of its own, because it is evaluated once per process.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

/* Traffic ------------------------------------------------------------------------------------ */

enum {
	FLOWS = 4,
	SLOT = 65536,
	RECEIVES = 8,
	WRITTEN = 8, /* places for RDMA WRITEs: each is checked at most 4 rounds later */
	/* Offsets in a buffer. */
	OUT = RECEIVES * SLOT,
	FROM = OUT + SLOT,
	INTO = FROM + SLOT,
	TARGET = INTO + SLOT,
	COUNTER = TARGET + WRITTEN * SLOT,
	BYTES = COUNTER + 4096,
	FORK_EVERY = 16, /* rounds between two children of a traffic thread */
	NAP_AFTER = 1000,
};

/* fork() takes long on a loaded host, and delays the thread's traffic. */
#define PATIENCE_MS RIG_SOON_MS

/* Immediate data: what a message contains, and the round. */
enum { IS_MESSAGE = 1u << 24, HAS_WRITTEN = 2u << 24, IS_LAST = 3u << 24, SAYS = 0xffu << 24 };

static const uint32_t sizes[] = {8, 500, 4000, 20000, SLOT};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

struct flow {
	struct end end;
	bool events;
	uint64_t posted, done, received;
	_Atomic uint32_t rounds;
	pthread_t thread;
	const _Atomic bool *enough;
};

static uint32_t size_of(uint32_t round)
{
	return sizes[round % SIZES];
}

/* Returns the next completion, by polling or by waiting for an event. */
static struct ibv_wc next_wc(struct flow *flow, struct ibv_cq *cq)
{
	struct end *end = &flow->end;
	double until = now_ms() + PATIENCE_MS;
	unsigned int empty = 0;
	struct ibv_wc wc;
	struct ibv_cq *got;
	void *context;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
		if (now_ms() > until)
			rig_fail(end->rig, __FILE__, __LINE__, "no completion");
		if (!flow->events) {
			/* Threads that only poll would starve the child on a loaded host. */
			if (++empty % NAP_AFTER == 0)
				usleep(50);
			continue;
		}
		OK(end->rig, ibv_req_notify_cq(cq, 0));
		n = ibv_poll_cq(cq, 1, &wc);
		if (n)
			break;
		if (!channel_readable(end->channel, PATIENCE_MS))
			rig_fail(end->rig, __FILE__, __LINE__, "no event");
		OK(end->rig, ibv_get_cq_event(end->channel, &got, &context));
		ibv_ack_cq_events(got, 1);
	}
	CHECK_EQ(end->rig, n, 1);
	CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(end->rig, wc.qp_num, end->qp->qp_num);
	return wc;
}

static void post(struct flow *flow, enum ibv_wr_opcode opcode, size_t offset, uint32_t length,
		 size_t remote, uint32_t imm)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(&flow->end, opcode, flow->posted++, offset, length, remote, &wr, &sge);
	wr.imm_data = imm;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.compare_add = 1;
	OK(flow->end.rig, ibv_post_send(flow->end.qp, &wr, &bad));
}

static void wait_for_posted(struct flow *flow)
{
	while (flow->done < flow->posted)
		CHECK_EQ(flow->end.rig, next_wc(flow, flow->end.scq).wr_id, flow->done++);
}

/* One round of the end that sends first. */
static void round_begin(struct flow *flow)
{
	struct end *end = &flow->end;
	uint32_t round = flow->rounds, size = size_of(round);
	uint64_t old;

	pattern_fill(end->buf + OUT, size, round);
	post(flow, IBV_WR_RDMA_WRITE, OUT, size, TARGET + round % WRITTEN * SLOT, 0);
	post(flow, IBV_WR_SEND_WITH_IMM, OUT, 0, 0, HAS_WRITTEN | round);
	post(flow, IBV_WR_SEND_WITH_IMM, OUT, size, 0, IS_MESSAGE | round);
	post(flow, IBV_WR_RDMA_READ, INTO, size_of(round + 2), FROM, 0);
	post(flow, IBV_WR_ATOMIC_FETCH_AND_ADD, COUNTER, 8, COUNTER, 0);
	wait_for_posted(flow);
	CHECK(end->rig, pattern_holds(end->buf + INTO, size_of(round + 2), 7));
	memset(end->buf + INTO, 0, SLOT);
	memcpy(&old, end->buf + COUNTER, sizeof(old));
	CHECK_EQ(end->rig, old, round);
	flow->rounds++;
}

/* A child forked by a thread with traffic of its own. */
static void child_of_thread(const struct flow *flow)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(0);
	CHECK(flow->end.rig, pid > 0);
	while (waitpid(pid, &status, 0) < 0)
		CHECK_EQ(flow->end.rig, errno, EINTR);
	CHECK_EQ(flow->end.rig, status, 0);
}

static void *flow_begin(void *argument)
{
	struct flow *flow = argument;

	while (!*flow->enough) {
		round_begin(flow);
		if (flow->rounds % FORK_EVERY == 0 && flow->rounds < 4 * FORK_EVERY)
			child_of_thread(flow);
	}
	post(flow, IBV_WR_SEND_WITH_IMM, OUT, 0, 0, IS_LAST | flow->rounds);
	wait_for_posted(flow);
	return NULL;
}

static void *flow_answer(void *argument)
{
	struct flow *flow = argument;
	struct end *end = &flow->end;
	struct rig *rig = end->rig;
	uint64_t counter;

	for (;;) {
		struct ibv_wc wc = next_wc(flow, end->rcq);
		uint32_t says = wc.imm_data & SAYS, round = wc.imm_data & ~SAYS;

		CHECK_EQ(rig, wc.wr_id, flow->received++);
		CHECK_EQ(rig, round, flow->rounds);
		if (says == IS_LAST)
			break;
		if (says == HAS_WRITTEN) {
			CHECK(rig, pattern_holds(end->buf + TARGET + round % WRITTEN * SLOT,
						 size_of(round), round));
		} else {
			CHECK_EQ(rig, wc.byte_len, size_of(round));
			CHECK(rig, pattern_holds(end->buf + wc.wr_id % RECEIVES * SLOT, wc.byte_len,
						 round));
			flow->rounds++;
		}
		OK(rig, end_recv(end, wc.wr_id + RECEIVES, wc.wr_id % RECEIVES * SLOT, SLOT));
	}
	memcpy(&counter, end->buf + COUNTER, sizeof(counter));
	CHECK_EQ(rig, counter, flow->rounds);
	return NULL;
}

struct traffic {
	struct flow flows[FLOWS];
	_Atomic bool enough;
};

static void traffic_start(struct traffic *traffic, struct rig *rig)
{
	/* A loaded machine makes processes wait, so the timeout is long. */
	static const struct end_options opt = {.bytes = BYTES, .timeout = 16, .retry_cnt = 7};

	memset(traffic, 0, sizeof(*traffic));
	for (int i = 0; i < FLOWS; i++) {
		struct flow *flow = &traffic->flows[i];

		flow->events = i >= FLOWS / 2;
		flow->enough = &traffic->enough;
		end_open(&flow->end, rig, &opt);
		pattern_fill(flow->end.buf + FROM, SLOT, 7);
		end_connect(&flow->end);
		for (uint64_t k = 0; k < RECEIVES; k++)
			OK(rig, end_recv(&flow->end, k, k * SLOT, SLOT));
	}
	rig_sync(rig);
	for (int i = 0; i < FLOWS; i++)
		CHECK(rig, pthread_create(&traffic->flows[i].thread, NULL,
					  i % 2 == rig->role ? flow_begin : flow_answer,
					  &traffic->flows[i]) == 0);
}

/* Waits until every queue pair has completed some more rounds. */
static void traffic_goes_on(struct traffic *traffic, struct rig *rig)
{
	double until = now_ms() + PATIENCE_MS;

	for (int i = 0; i < FLOWS; i++) {
		struct flow *flow = &traffic->flows[i];
		uint32_t seen = flow->rounds;

		while (flow->rounds < seen + 2) {
			CHECK(rig, now_ms() < until);
			usleep(1000);
		}
	}
}

static void traffic_end(struct traffic *traffic, struct rig *rig)
{
	rig_sync(rig);
	traffic->enough = true;
	for (int i = 0; i < FLOWS; i++)
		pthread_join(traffic->flows[i].thread, NULL);
	rig_sync(rig);
	for (int i = 0; i < FLOWS; i++)
		end_close(&traffic->flows[i].end);
}

/* Children ----------------------------------------------------------------------------------- */

enum { FINE = 0, HANGS_AFTER_S = 120 };

static bool is_child;

/* For the leak sanitizer, at exit: memory to which only the stacks of the parent's other threads
 * pointed is leaked in a child, which isn't a fault. */
int __lsan_is_turned_off(void) __attribute__((visibility("default"))); /* NOLINT: its name */
int __lsan_is_turned_off(void)					       /* NOLINT */
{
	return is_child;
}

/* Forks; in the child an alarm ends it when it hangs. */
static pid_t child(struct rig *rig)
{
	fflush(NULL);
	pid_t pid = fork();

	CHECK(rig, pid >= 0);
	if (pid == 0) {
		is_child = true;
		alarm((unsigned int)(HANGS_AFTER_S * rig_slowness()));
	}
	return pid;
}

static int status_of(struct rig *rig, pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		CHECK_EQ(rig, errno, EINTR);
	return status;
}

static void expect_fine(struct rig *rig, pid_t pid, const char *what)
{
	int status = status_of(rig, pid);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != FINE)
		rig_fail(rig, __FILE__, __LINE__, "the child that %s: %s %d", what,
			 WIFEXITED(status) ? "exit" : "signal",
			 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static void child_exits(struct rig *rig, struct traffic *traffic)
{
	(void)traffic;
	for (int i = 0; i < 3; i++) {
		pid_t pid = child(rig);

		if (pid == 0)
			_exit(FINE);
		expect_fine(rig, pid, "exits");
	}
}

static void child_execs(struct rig *rig, struct traffic *traffic)
{
	(void)traffic;
	pid_t pid = child(rig);

	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	expect_fine(rig, pid, "execs");
}

/* The child's writes go to its own copy, or the memory isn't mapped there. */
static void child_touches(struct rig *rig, struct traffic *traffic)
{
	bool safe = getenv("RDMAV_USE_MADVISE") != NULL;
	pid_t pid = child(rig);

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		for (int n = 0; n < 20; n++) {
			for (int i = 0; i < FLOWS; i++)
				memset(traffic->flows[i].end.buf, 0xee, BYTES);
			usleep(1000);
		}
		_exit(FINE);
	}
	if (!safe) {
		expect_fine(rig, pid, "touches the buffers");
		return;
	}
	int status = status_of(rig, pid);

	CHECK(rig, WIFSIGNALED(status));
	CHECK_EQ(rig, WTERMSIG(status), SIGSEGV);
}

/* What a child does with its parent's objects must not affect them. */
static _Noreturn void use_objects(struct rig *rig, struct traffic *traffic)
{
	struct ibv_wc wc;

	for (int i = 0; i < FLOWS; i++) {
		struct end *end = &traffic->flows[i].end;

		CHECK_EQ(rig, ibv_poll_cq(end->scq, 1, &wc), 0);
		CHECK_EQ(rig, ibv_poll_cq(end->rcq, 1, &wc), 0);
		/* The queues may be full, as the parent's were. */
		end_send(end, IBV_WR_SEND, 1, OUT, 8, 0);
		end_send(end, IBV_WR_RDMA_WRITE, 1, OUT, SLOT, TARGET);
		end_send(end, IBV_WR_RDMA_READ, 1, INTO, SLOT, FROM);
		end_send(end, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, COUNTER, 8, COUNTER);
		end_recv(end, 1, 0, SLOT);
		ibv_req_notify_cq(end->rcq, 0);
		for (int n = 0; n < 1000; n++) {
			CHECK_EQ(rig, ibv_poll_cq(end->scq, 1, &wc), 0);
			CHECK_EQ(rig, ibv_poll_cq(end->rcq, 1, &wc), 0);
		}
		CHECK(rig, !channel_readable(end->channel, 0));
		CHECK(rig, !ibv_alloc_pd(rig->ctx));
		if (i % 2)
			OK(rig, end_move(end, IBV_QPS_ERR));
		end_close(end);
	}
	if (rig->carrier != RIG_SELF)
		OK(rig, ibv_close_device(rig->ctx));
	exit(FINE);
}

static void child_uses_objects(struct rig *rig, struct traffic *traffic)
{
	pid_t pid = child(rig);

	if (!pid)
		use_objects(rig, traffic);
	expect_fine(rig, pid, "uses its parent's objects");
}

/* The child gets no private memory in place of what it shares with its parent, whose converted
 * memory stays shared for now. Peers then use it as it is, and notice when the next fork makes it
 * private. */
static void child_under_limit(struct rig *rig, struct traffic *traffic)
{
	struct rlimit before, low;

	/* The limit is the process's, and a sanitizer ends the program when it gets no memory. */
	if (rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO || rig_slowness() > 1)
		return;
	OK(rig, getrlimit(RLIMIT_DATA, &before));
	low = (struct rlimit){4096, before.rlim_max};
	OK(rig, setrlimit(RLIMIT_DATA, &low));
	pid_t pid = child(rig);

	OK(rig, setrlimit(RLIMIT_DATA, &before));
	if (!pid)
		use_objects(rig, traffic);
	expect_fine(rig, pid, "uses its parent's objects after a fork under a limit");
	traffic_goes_on(traffic, rig);
	child_exits(rig, traffic);
	traffic_goes_on(traffic, rig);
}

/* A child that polls for long takes what only an engine of its own would have to give back: it must
 * not touch descriptors that it hasn't, and so has nothing to report. */
static void child_polls(struct rig *rig, struct traffic *traffic)
{
	pid_t pid = child(rig);
	char text[512] = {0};
	struct ibv_wc wc;

	if (pid) {
		expect_fine(rig, pid, "polls");
		return;
	}
	int log = memfd_create("log", 0), kept = dup(STDERR_FILENO);

	CHECK(rig, log >= 0 && kept >= 0 && dup2(log, STDERR_FILENO) >= 0);
	struct patience patience = patience_of(50);

	while (!patience_over(&patience))
		if (ibv_poll_cq(traffic->flows[0].end.rcq, 1, &wc))
			_exit(FINE + 1);
	dup2(kept, STDERR_FILENO);
	if (pread(log, text, sizeof(text) - 1, 0) > 0)
		rig_fail(rig, __FILE__, __LINE__, "the child logs: %s", text);
	_exit(FINE);
}

static struct ibv_context *device(struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(rig, list && list[0]);
	struct ibv_context *ctx = ibv_open_device(list[0]);

	CHECK(rig, ctx);
	ibv_free_device_list(list);
	return ctx;
}

/* Every operation in both directions, over new queue pairs. */
static void talk(struct rig *rig)
{
	static const struct end_options opt = {.bytes = BYTES, .timeout = 16, .retry_cnt = 7};
	struct end end;
	uint64_t old;

	end_open(&end, rig, &opt);
	pattern_fill(end.buf + FROM, SLOT, 7);
	pattern_fill(end.buf + OUT, SLOT, 11u + (unsigned int)rig->role);
	end_connect(&end);
	OK(rig, end_recv(&end, 1, 0, SLOT));
	rig_sync(rig);
	OK(rig, end_send(&end, IBV_WR_SEND, 1, OUT, SLOT, 0));
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 2, OUT, SLOT, TARGET));
	OK(rig, end_send(&end, IBV_WR_RDMA_READ, 3, INTO, SLOT, FROM));
	OK(rig, end_send(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, COUNTER + 8, 8, COUNTER));
	for (uint64_t id = 1; id <= 4; id++)
		wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
	wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	rig_sync(rig);
	CHECK(rig, pattern_holds(end.buf, SLOT, 11u + !rig->role));
	CHECK(rig, pattern_holds(end.buf + TARGET, SLOT, 11u + !rig->role));
	CHECK(rig, pattern_holds(end.buf + INTO, SLOT, 7));
	memcpy(&old, end.buf + COUNTER + 8, sizeof(old));
	CHECK_EQ(rig, old, 0);
	rig_sync(rig);
	end_close(&end);
}

/* A child of end A with a device of its own exchanges data with end B, over the ends' socket. */
static void child_talks_to_peer(struct rig *rig, struct traffic *traffic)
{
	(void)traffic;
	if (rig->role == RIG_B) {
		talk(rig);
		return;
	}
	pid_t pid = child(rig);

	if (pid == 0) {
		struct rig own = *rig;

		own.ctx = device(&own);
		talk(&own);
		OK(&own, ibv_close_device(own.ctx));
		exit(FINE);
	}
	expect_fine(rig, pid, "talks to its parent's peer");
}

/* Makes a child and a pair of rigs joined by a socket: `own` is the parent's as A, the child's as
 * B. */
static pid_t child_as_peer(struct rig *rig, struct rig *own)
{
	int sock[2];

	*own = *rig;
	CHECK(rig, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) == 0);
	pid_t pid = child(rig);

	own->role = pid ? RIG_A : RIG_B;
	own->sock = sock[!pid];
	close(sock[!!pid]);
	own->carrier = RIG_LOCAL;
	return pid;
}

/* The child exits without closing its device. */
static void child_talks_to_parent(struct rig *rig, struct traffic *traffic)
{
	struct rig own;
	pid_t pid = child_as_peer(rig, &own);

	(void)traffic;
	if (pid == 0)
		own.ctx = device(&own);
	talk(&own);
	close(own.sock);
	if (pid == 0)
		exit(FINE); /* without an end for its device */
	expect_fine(rig, pid, "talks to its parent");
}

/* The child's child continues as a daemon; its parent, which had a device, has exited. */
static void child_becomes_daemon(struct rig *rig, struct traffic *traffic)
{
	struct end old;
	struct rig own;
	pid_t pid = child_as_peer(rig, &own);

	(void)traffic;
	if (pid == 0) {
		own.ctx = device(&own);
		end_open(&old, &own, NULL);
		CHECK(&own, daemon(1, 1) == 0);
		alarm((unsigned int)(HANGS_AFTER_S * rig_slowness()));
		end_close(&old);
		OK(&own, ibv_close_device(own.ctx));
		own.ctx = device(&own);
	} else {
		expect_fine(rig, pid, "calls daemon()");
	}
	talk(&own);
	rig_sync(&own);
	close(own.sock);
	if (pid == 0)
		_exit(FINE);
}

/* A child with a device of its own shares its parent's protection domain, through the inherited
 * descriptor. */
static void child_imports(struct rig *rig, struct traffic *traffic)
{
	struct ibv_pd *pd = traffic->flows[0].end.pd;
	struct ibv_mr *mr = traffic->flows[0].end.mr;
	pid_t pid = child(rig);

	if (pid) {
		expect_fine(rig, pid, "imports its parent's device");
		return;
	}
	struct ibv_context *ctx = ibv_import_device(dup(rig->ctx->cmd_fd));

	CHECK(rig, ctx);
	struct ibv_pd *mine = ibv_import_pd(ctx, pd->handle);
	static uint8_t memory[64];

	CHECK(rig, mine);
	struct ibv_mr *region = ibv_import_mr(mine, mr->handle);

	/* A region of a process whose memory can't be accessed can't be imported. */
	CHECK_EQ(rig, region ? 0 : errno, rig_reaches_memory(rig) ? 0 : EOPNOTSUPP);
	struct ibv_mr *own = ibv_reg_mr(mine, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	CHECK(rig, own);
	CHECK_EQ(rig, ibv_dealloc_pd(mine), EBUSY);
	OK(rig, ibv_dereg_mr(own));
	if (region)
		ibv_unimport_mr(region);
	ibv_unimport_pd(mine);
	OK(rig, ibv_close_device(ctx));
	exit(FINE);
}

extern char **environ;

static void other_ways(struct rig *rig, struct traffic *traffic)
{
	char *const argv[] = {(char *)"true", NULL};
	pid_t pid;

	(void)traffic;
	pid = vfork();
	if (pid == 0) {
		execv("/bin/true", argv);
		_exit(1);
	}
	CHECK(rig, pid > 0);
	expect_fine(rig, pid, "is made by vfork()");
	OK(rig, posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ));
	expect_fine(rig, pid, "is made by posix_spawn()");
	CHECK_EQ(rig, system("exit 3"), 3 << 8);
	FILE *pipe = popen("echo 42", "re");
	int number = 0;

	CHECK(rig, pipe && fscanf(pipe, "%d", &number) == 1);
	CHECK_EQ(rig, number, 42);
	CHECK_EQ(rig, pclose(pipe), 0);
}

/* Connects and disconnects its QP continuously. */
struct changer {
	struct end *end;
	atomic_bool enough;
	unsigned int rounds;
};

static void *changer_run(void *argument)
{
	struct changer *changer = argument;
	struct end *end = changer->end;

	while (!atomic_load(&changer->enough)) {
		OK(end->rig, end_move(end, IBV_QPS_RESET));
		end_init(end);
		end_rtr(end);
		end_rts(end);
		changer->rounds++;
	}
	return NULL;
}

enum { CHANGING_CHILDREN = 150 };

/* Children that are forked while another thread connects and disconnects a QP: in the child's
 * memory this may be half done. */
static void child_of_changing(struct rig *rig)
{
	struct end end;
	struct changer changer = {.end = &end};
	pthread_t thread;

	end_pair(&end, rig, NULL);
	rig_sync(rig);
	CHECK_EQ(rig, pthread_create(&thread, NULL, changer_run, &changer), 0);
	for (int i = 0; i < CHANGING_CHILDREN; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(FINE);
		CHECK(rig, pid > 0);
		expect_fine(rig, pid, "is forked while a QP changes");
	}
	atomic_store(&changer.enough, true);
	CHECK_EQ(rig, pthread_join(thread, NULL), 0);
	CHECK(rig, changer.rounds > 0);
	rig_sync(rig);
	end_close(&end);
}

/* Makes one kind of child during traffic, at both ends. */
static void during(struct rig *rig, void (*what)(struct rig *rig, struct traffic *traffic))
{
	static struct traffic places[2]; /* both ends may be in one process */
	struct traffic *traffic = &places[rig->role];

	traffic_start(traffic, rig);
	traffic_goes_on(traffic, rig);
	what(rig, traffic);
	traffic_goes_on(traffic, rig);
	traffic_end(traffic, rig);
}

#define TEST(name)                                      \
	static void test_##name(struct rig *rig)        \
	{                                               \
		during(rig, name);                      \
	}                                               \
	static void test_##name##_safe(struct rig *rig) \
	{                                               \
		setenv("RDMAV_USE_MADVISE", "1", 1);    \
		OK(rig, ibv_fork_init());               \
		rig_sync(rig);                          \
		during(rig, name);                      \
	}

TEST(child_exits)
TEST(child_execs)
TEST(child_touches)
TEST(child_talks_to_peer)
TEST(child_talks_to_parent)
TEST(child_becomes_daemon)
TEST(child_imports)
TEST(child_uses_objects)
TEST(child_under_limit)
TEST(child_polls)
TEST(other_ways)

#define ENTRY(name)                               \
	{#name, test_##name},                     \
	{                                         \
#name "_safe", test_##name##_safe \
	}

static const struct rig_test tests[] = {
	ENTRY(child_exits),
	ENTRY(child_execs),
	ENTRY(child_touches),
	ENTRY(child_talks_to_peer),
	ENTRY(child_talks_to_parent),
	ENTRY(child_becomes_daemon),
	ENTRY(child_imports),
	ENTRY(child_uses_objects),
	ENTRY(child_under_limit),
	ENTRY(child_polls),
	ENTRY(other_ways),
	{"child_of_changing", child_of_changing},
	{NULL, NULL},
};

/* Rules -------------------------------------------------------------------------------------- */

static struct rig lone = {.name = "rules", .role = RIG_A, .carrier = RIG_SELF};

static struct ibv_pd *domain(void)
{
	lone.ctx = device(&lone);
	struct ibv_pd *pd = ibv_alloc_pd(lone.ctx);

	CHECK(&lone, pd);
	return pd;
}

static uint8_t *pages(size_t bytes, int flags)
{
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
			   -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Whether a child has this byte, with the parent's value. */
static bool child_has(const volatile uint8_t *at)
{
	pid_t pid = child(&lone);

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*at == 0x5a ? FINE : 2);
	}
	int status = status_of(&lone, pid);

	if (WIFSIGNALED(status)) {
		CHECK_EQ(&lone, WTERMSIG(status), SIGSEGV);
		return false;
	}
	CHECK_EQ(&lone, WEXITSTATUS(status), FINE);
	return true;
}

static struct ibv_mr *registered(struct ibv_pd *pd, void *at, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, bytes, IBV_ACCESS_LOCAL_WRITE);

	CHECK(&lone, mr);
	return mr;
}

/* Pages are counted: a page is inherited again when its last region ends. */
static void pages_are_counted(struct ibv_pd *pd)
{
	uint8_t *at = pages(4 * 4096, 0);

	memset(at, 0x5a, 4 * 4096);
	struct ibv_mr *one = registered(pd, at + 100, 100), *same = registered(pd, at + 300, 50);
	struct ibv_mr *wide = registered(pd, at + 4000, 4200); /* three pages */

	CHECK(&lone, !child_has(at) && !child_has(at + 4096) && !child_has(at + 2 * 4096));
	CHECK(&lone, child_has(at + 3 * 4096));
	OK(&lone, ibv_dereg_mr(one));
	OK(&lone, ibv_dereg_mr(wide));
	CHECK(&lone, !child_has(at));
	CHECK(&lone, child_has(at + 4096) && child_has(at + 2 * 4096));
	OK(&lone, ibv_dereg_mr(same));
	CHECK(&lone, child_has(at));
	munmap(at, 4 * 4096);
}

/* No page is pinned: a child keeps the memory, and ibv_fork_init() is never too late. */
static void rule_unneeded(void)
{
	struct ibv_pd *pd = domain();
	uint8_t *at = pages(2 * 4096, 0);

	CHECK_EQ(&lone, ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	memset(at, 0x5a, 2 * 4096);
	registered(pd, at, 4096);
	OK(&lone, ibv_fork_init());
	registered(pd, at + 4096, 4096);
	CHECK_EQ(&lone, ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	CHECK(&lone, child_has(at) && child_has(at + 4096));
}

static void madvise_asked_for(void)
{
	setenv("RDMAV_USE_MADVISE", "1", 1);
}

static void rule_madvise(void)
{
	madvise_asked_for();
	OK(&lone, ibv_fork_init());
	CHECK_EQ(&lone, ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	pages_are_counted(domain());
	OK(&lone, ibv_fork_init()); /* not too late: it was called before */
}

static void rule_variable(const char *name, const char *value, bool counts)
{
	setenv(name, value, 1);
	struct ibv_pd *pd = domain();
	uint8_t *at = pages(4096, 0);

	memset(at, 0x5a, 4096);
	registered(pd, at, 4096);
	CHECK_EQ(&lone, ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	CHECK_EQ(&lone, child_has(at), !counts);
}

static void rule_rdmav_alone(void)
{
	rule_variable("RDMAV_FORK_SAFE", "1", false);
}

static void rule_madvise_off(void)
{
	setenv("RDMAV_USE_MADVISE", "0", 1);
	rule_variable("RDMAV_FORK_SAFE", "1", false);
}

static void rule_rdmav(void)
{
	madvise_asked_for();
	rule_variable("RDMAV_FORK_SAFE", "1", true);
}

static void rule_ibv(void)
{
	madvise_asked_for();
	rule_variable("IBV_FORK_SAFE", "1", true);
}

static void rule_off(void)
{
	madvise_asked_for();
	rule_variable("RDMAV_FORK_SAFE", "0", false);
}

static void rule_too_late(void)
{
	struct ibv_pd *pd = domain();
	uint8_t *at = pages(4096, 0);

	madvise_asked_for();
	memset(at, 0x5a, 4096);
	struct ibv_mr *mr = registered(pd, at, 4096);

	CHECK_EQ(&lone, ibv_fork_init(), EINVAL);
	OK(&lone, ibv_dereg_mr(mr));
	CHECK_EQ(&lone, ibv_fork_init(), EINVAL);
	CHECK(&lone, child_has(at));
}

/* A hole can't be marked: the errno is madvise()'s. */
static void rule_errno(void)
{
	madvise_asked_for();
	OK(&lone, ibv_fork_init());
	struct ibv_pd *pd = domain();
	uint8_t *at = pages(3 * 4096, 0);

	munmap(at + 4096, 4096);
	CHECK(&lone, !ibv_reg_mr(pd, at, 3 * 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(&lone, errno, ENOMEM);
	memset(at, 0x5a, 4096);
	CHECK(&lone, child_has(at));
}

enum { HUGE_PAGE = 2 << 20 };

static long huge_pages_reserved(long wanted)
{
	const char *path = "/proc/sys/vm/nr_hugepages";
	FILE *file = fopen(path, "re");
	long number = -1;

	if (file && fscanf(file, "%ld", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	if (wanted < 0 || wanted == number)
		return number;
	file = fopen(path, "we");
	if (!file)
		return -1;
	fprintf(file, "%ld", wanted);
	return fclose(file) ? -1 : number;
}

/* madvise() refuses a part of a huge page; with the variable the whole page is marked. */
static void huge_page(bool variable)
{
	long before = huge_pages_reserved(-1);

	if (before >= 0 && before < 8)
		huge_pages_reserved(8);
	uint8_t *at = pages(2 * HUGE_PAGE, MAP_HUGETLB);

	if (at)
		memset(at, 0x5a, 2 * HUGE_PAGE);
	huge_pages_reserved(before);
	if (!at) {
		printf("      (this host gives no huge pages)\n");
		return;
	}
	if (variable)
		setenv("RDMAV_HUGEPAGES_SAFE", "1", 1);
	madvise_asked_for();
	OK(&lone, ibv_fork_init());
	struct ibv_pd *pd = domain();

	if (!variable) {
		CHECK(&lone, !ibv_reg_mr(pd, at + 8192, 100, IBV_ACCESS_LOCAL_WRITE));
		CHECK_EQ(&lone, errno, EINVAL);
		return;
	}
	struct ibv_mr *mr = registered(pd, at + 8192, 100);

	CHECK(&lone, !child_has(at) && !child_has(at + HUGE_PAGE - 1));
	CHECK(&lone, child_has(at + HUGE_PAGE));
	OK(&lone, ibv_dereg_mr(mr));
	CHECK(&lone, child_has(at));
	pages_are_counted(pd); /* small ones are still small */
}

static void rule_huge(void)
{
	huge_page(true);
}

static void rule_huge_unasked(void)
{
	huge_page(false);
}

static const struct {
	const char *name;
	void (*rule)(void);
} rules[] = {
	{"unneeded", rule_unneeded},
	{"RDMAV_USE_MADVISE", rule_madvise},
	{"RDMAV_FORK_SAFE alone", rule_rdmav_alone},
	{"RDMAV_USE_MADVISE=0", rule_madvise_off},
	{"RDMAV_FORK_SAFE", rule_rdmav},
	{"IBV_FORK_SAFE", rule_ibv},
	{"RDMAV_FORK_SAFE=0", rule_off},
	{"too late", rule_too_late},
	{"errno", rule_errno},
	{"RDMAV_HUGEPAGES_SAFE", rule_huge},
	{"huge pages without it", rule_huge_unasked},
};

static int rules_run(void)
{
	static const char *const variables[] = {"RDMAV_FORK_SAFE", "IBV_FORK_SAFE",
						"RDMAV_HUGEPAGES_SAFE", "RDMAV_USE_MADVISE"};
	int failed = 0;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		pid_t pid = child(&lone);

		if (pid == 0) {
			for (size_t k = 0; k < sizeof(variables) / sizeof(variables[0]); k++)
				unsetenv(variables[k]);
			rules[i].rule();
			exit(FINE);
		}
		int status = status_of(&lone, pid);

		printf("%s  %s\n", status ? "FAIL" : "ok  ", rules[i].name);
		failed += status != 0;
	}
	return failed ? 1 : 0;
}

/* The books ---------------------------------------------------------------------------------- */

static pid_t main_pid;

/* Whether the daemon has no client (or has exited). */
static bool nobody_left(void)
{
	static char reply[65536];
	const char *dir = getenv("VERBENA_RUNTIME_DIR"), *ask = "{\"op\":\"status\"}\n";
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t done = 0;
	ssize_t n;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/ctl", dir ? dir : "");
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		close(fd);
		return true;
	}
	if (write(fd, ask, strlen(ask)) < 0)
		perror("ctl");
	while ((n = read(fd, reply + done, sizeof(reply) - 1 - done)) > 0)
		done += (size_t)n;
	close(fd);
	reply[done] = 0;
	return strstr(reply, "\"clients\":[]") != NULL;
}

static void check_books(void)
{
	if (getpid() != main_pid)
		return;
	for (int i = 0; i < 300; i++) {
		if (nobody_left())
			return;
		usleep(10000);
	}
	fprintf(stderr, "  the daemon still has clients\n");
	fflush(NULL);
	_exit(1);
}

int main(int argc, char **argv)
{
	main_pid = getpid();
	if (getenv("VERBENA_RUNTIME_DIR"))
		atexit(check_books);
	if (argc == 2 && !strcmp(argv[1], "rules"))
		exit(rules_run());
	rig_main(argc, argv, tests);
}
