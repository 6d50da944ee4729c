/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon that is stopped, starts slowly, or never answers: calls that need no daemon don't wait
 * for it, and what has ended has ended for all. See rig.h. Both ends are threads of one process, so
 * they share its engine.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tags.h"

enum { ROUNDS = 50, NOBODYS_QPN = 900 << 14 | 5 };

/* The daemon -------------------------------------------------------------------------------- */

static const char *in_run_time_directory(char path[108], const char *name)
{
	snprintf(path, 108, "%s/%s", getenv("VERBENA_RUNTIME_DIR"), name);
	return path;
}

static struct sockaddr_un node(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	in_run_time_directory(at.sun_path, "uverbs0");
	return at;
}

static pid_t daemon_pid(struct rig *rig)
{
	struct sockaddr_un at = node();
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct ucred who;
	socklen_t size = sizeof(who);

	OK(rig, connect(fd, (struct sockaddr *)&at, sizeof(at)));
	OK(rig, getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size));
	close(fd);
	return who.pid;
}

/* Kills the daemon; returns when its socket has no listener any more. */
static void daemon_kill(struct rig *rig)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct sockaddr_un at = node();
	bool gone = false;

	OK(rig, kill(daemon_pid(rig), SIGKILL));
	while (!gone) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		gone = connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0;
		close(fd);
		CHECK(rig, !patience_over(&patience));
	}
}

/* Calls that may hang ------------------------------------------------------------------------ */

struct work {
	pthread_t thread;
	struct rig *rig;
	void (*run)(struct work *work);
	struct end *end;
};

static void *work_thread(void *arg)
{
	struct work *work = arg;

	work->run(work);
	return NULL;
}

static void work_start(struct work *work, void (*run)(struct work *work))
{
	work->run = run;
	OK(work->rig, pthread_create(&work->thread, NULL, work_thread, work));
}

/* Whether the call returns within ms. */
static bool work_over(struct work *work, int ms)
{
	struct patience patience = patience_of(ms);
	int err;

	while ((err = pthread_tryjoin_np(work->thread, NULL)) == EBUSY && !patience_over(&patience))
		usleep(1000);
	return !err;
}

/* Needs the daemon. */
static void make_cq(struct work *work)
{
	struct ibv_cq *cq = ibv_create_cq(work->rig->ctx, 16, NULL, NULL, 0);

	CHECK(work->rig, cq);
	OK(work->rig, ibv_destroy_cq(cq));
}

static void fork_once(struct work *work)
{
	pid_t child = fork();
	int status;

	CHECK(work->rig, child >= 0);
	if (!child)
		_exit(0);
	CHECK_EQ(work->rig, waitpid(child, &status, 0), child);
	CHECK_EQ(work->rig, status, 0);
}

static void end_qp(struct work *work)
{
	OK(work->rig, end_move(work->end, IBV_QPS_ERR));
}

static void fork_and_end_qp(struct rig *rig, struct end *end)
{
	struct work forks = {.rig = rig}, ends = {.rig = rig, .end = end};

	work_start(&forks, fork_once);
	CHECK(rig, work_over(&forks, RIG_SOON_MS));
	work_start(&ends, end_qp);
	CHECK(rig, work_over(&ends, RIG_SOON_MS));
}

/* Messages whose completions come as events, so that only the engine thread can deliver them. */
static void messages_by_event(struct end *end)
{
	struct rig *rig = end->rig;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		if (rig->role == RIG_B) {
			OK(rig, end_recv(end, i, 0, 64));
			OK(rig, ibv_req_notify_cq(end->rcq, 0));
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(end, IBV_WR_SEND, i, 0, 64, 0));
		} else {
			struct ibv_cq *cq;
			void *context;
			struct ibv_wc wc;

			CHECK(rig, channel_readable(end->channel, RIG_SOON_MS));
			OK(rig, ibv_get_cq_event(end->channel, &cq, &context));
			ibv_ack_cq_events(cq, 1);
			CHECK_EQ(rig, ibv_poll_cq(end->rcq, 1, &wc), 1);
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		if (rig->role == RIG_A)
			wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
	}
}

/* Tests -------------------------------------------------------------------------------------- */

/* One QP needs a link while the daemon is stopped: established QPs continue. */
static void link_is_wanted(struct rig *rig)
{
	struct end end, lonely;
	pid_t pid = 0;

	end_pair(&end, rig, NULL);
	messages_by_event(&end);
	end_open(&lonely, rig, NULL);
	end_init(&lonely);
	rig_sync(rig); /* neither end needs the daemon now */
	if (rig->role == RIG_A) {
		lonely.peer = end.peer;
		lonely.peer.qpn = NOBODYS_QPN;
		pid = daemon_pid(rig);
		OK(rig, kill(pid, SIGSTOP));
		end_rtr(&lonely);
	}
	rig_sync(rig);
	messages_by_event(&end);
	if (rig->role == RIG_A)
		OK(rig, kill(pid, SIGCONT));
	rig_sync(rig);
	end_close(&lonely);
	end_close(&end);
}

/* A daemon that waits before it starts; `release` lets it start. */
static void slow_daemon(struct rig *rig)
{
	char path[108], fifo[108];
	FILE *script = fopen(in_run_time_directory(path, "slow-daemon"), "we");

	CHECK(rig, script && getenv("VERBENA_DAEMON"));
	OK(rig, mkfifo(in_run_time_directory(fifo, "slow-fifo"), 0600));
	fprintf(script, "#!/bin/sh\nread word <%s\nexec %s \"$@\"\n", fifo,
		getenv("VERBENA_DAEMON"));
	OK(rig, fclose(script));
	OK(rig, chmod(path, 0700));
	OK(rig, setenv("VERBENA_DAEMON", path, 1));
}

static void release(struct rig *rig)
{
	char fifo[108];
	FILE *word = fopen(in_run_time_directory(fifo, "slow-fifo"), "we");

	CHECK(rig, word && fputs("go\n", word) >= 0);
	OK(rig, fclose(word));
}

static void daemon_starts_slowly(struct rig *rig)
{
	struct work maker = {.rig = rig};
	struct end end;

	end_pair(&end, rig, NULL);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		daemon_kill(rig);
		slow_daemon(rig);
		work_start(&maker, make_cq);
		CHECK(rig, !work_over(&maker, RIG_NEVER_MS));
		fork_and_end_qp(rig, &end);
		CHECK(rig, !work_over(&maker, RIG_NEVER_MS));
		release(rig);
		CHECK(rig, work_over(&maker, RIG_SOON_MS));
	}
	rig_sync(rig);
	end_close(&end);
}

/* A listener that accepts connections and never answers, so that the process's return to it doesn't
 * finish. */
static int silent_daemon(struct rig *rig)
{
	struct sockaddr_un at = node();
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	unlink(at.sun_path);
	OK(rig, bind(fd, (struct sockaddr *)&at, sizeof(at)));
	OK(rig, listen(fd, 16));
	return fd;
}

static void daemon_never_answers(struct rig *rig)
{
	struct work maker = {.rig = rig};
	struct end end;

	end_pair(&end, rig, NULL);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		daemon_kill(rig);
		int fd = silent_daemon(rig);

		work_start(&maker, make_cq);
		CHECK(rig, !work_over(&maker, RIG_NEVER_MS));
		fork_and_end_qp(rig, &end);
		CHECK(rig, !work_over(&maker, RIG_NEVER_MS));
		close(fd); /* closes the waiting connections, too: there is no listener any more */
		CHECK(rig, work_over(&maker, RIG_SOON_MS));
	}
	rig_sync(rig);
	end_close(&end);
}

/* What the daemon lists of shared receive queues. */
static void list_srqs(struct rig *rig, char text[4096])
{
	char command[512];

	snprintf(command, sizeof(command), "%s/bin/verbena resources --json srq",
		 getenv("VERBENA_BUILD_DIR"));
	FILE *out = popen(command, "re");
	size_t n = out ? fread(text, 1, 4095, out) : 0;

	text[n] = 0;
	CHECK(rig, out && !pclose(out) && n);
}

/* A rendezvous and an eager message to posted tags, which were there before. */
static void tags_exchange(struct tm_end *tm, unsigned int tag)
{
	if (tm->end.rig->role == RIG_A) {
		tm_eager(tm, 0, tag, 100, tag);
		tm_sent(tm, 0);
		tm_rendezvous(tm, 2, tag + 1, 3, 5000, tag + 1);
		tm_sent(tm, 2);
		tm_fin(tm, 2);
		return;
	}
	tm_expect_data(tm, tag, tag, 100);
	tm_expect(tm, tag + 1, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
	tm_expect(tm, tag + 1, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
	CHECK(tm->end.rig, pattern_holds(tm_at(tm, tag + 1), 5000, tag + 1));
}

/* An SRQ with a list of tags goes on without a daemon, and comes back at the next one as it was. */
static void tags_come_back(struct rig *rig)
{
	char before[4096], after[4096];
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		for (unsigned int tag = 4; tag < 10; tag++)
			tm_add(&tm, tag, TM_SLOT, tag, UINT64_MAX, 0);
	rig_sync(rig);
	tags_exchange(&tm, 4);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		list_srqs(rig, before);
		CHECK(rig, strstr(before, "\"max_tags\": 32"));
		daemon_kill(rig);
	}
	rig_sync(rig);
	tags_exchange(&tm, 6);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct ibv_cq *cq = ibv_create_cq(rig->ctx, 16, NULL, NULL, 0); /* needs a daemon */

		CHECK(rig, cq);
		OK(rig, ibv_destroy_cq(cq));
		list_srqs(rig, after);
		if (strcmp(before, after) != 0)
			rig_fail(rig, __FILE__, __LINE__, "%s\nbecame\n%s", before, after);
	}
	rig_sync(rig);
	tags_exchange(&tm, 8);
	rig_sync(rig);
	tm_close(&tm);
}

/* A domain that two contexts have open, each by a connection of its own. */
struct shared_domain {
	struct ibv_context *ctx[2];
	struct ibv_xrcd *xrcd[2];
	struct ibv_cq *cq[3];
	struct ibv_qp *target;
	uint32_t qpn;
	_Atomic bool ended;
	struct ibv_qp *opened;
};

static struct shared_domain shared;

static void domain_open(struct rig *rig)
{
	char path[] = "/tmp/verbena-liveness-XXXXXX";
	struct ibv_xrcd_init_attr attr = {.comp_mask =
						  IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = mkstemp(path),
					  .oflags = O_CREAT};
	struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV,
					     .comp_mask = IBV_QP_INIT_ATTR_XRCD};

	CHECK(rig, attr.fd >= 0);
	for (int i = 0; i < 2; i++) {
		CHECK(rig, (shared.ctx[i] = ibv_open_device(rig->ctx->device)));
		CHECK(rig, (shared.xrcd[i] = ibv_open_xrcd(shared.ctx[i], &attr)));
	}
	for (int i = 0; i < 3; i++)
		CHECK(rig, (shared.cq[i] = ibv_create_cq(shared.ctx[0], 1, NULL, NULL, 0)));
	target.xrcd = shared.xrcd[0];
	CHECK(rig, (shared.target = ibv_create_qp_ex(shared.ctx[0], &target)));
	shared.qpn = shared.target->qp_num;
	close(attr.fd);
	unlink(path);
}

/* The daemon takes one request of a connection after the other: the CQs are in the target's way. */
static void end_target(struct work *work)
{
	for (int i = 0; i < 3; i++)
		OK(work->rig, ibv_destroy_cq(shared.cq[i]));
	OK(work->rig, ibv_destroy_qp(shared.target));
	atomic_store(&shared.ended, true);
}

static void open_target(struct work *work)
{
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						     IBV_QP_OPEN_ATTR_TYPE,
					.qp_num = shared.qpn,
					.xrcd = shared.xrcd[1],
					.qp_type = IBV_QPT_XRC_RECV};

	(void)work;
	while (!atomic_load(&shared.ended))
		usleep(1000);
	shared.opened = ibv_open_qp(shared.ctx[1], &attr);
}

/* An XRC target queue pair that has ended can't be opened by another connection, though the daemon
 * was late: the end is over when the call returns. */
static void target_has_ended(struct rig *rig)
{
	struct work ender = {.rig = rig}, opener = {.rig = rig};

	if (rig->role == RIG_A) {
		domain_open(rig);
		pid_t pid = daemon_pid(rig);

		OK(rig, kill(pid, SIGSTOP));
		work_start(&ender, end_target);
		work_start(&opener, open_target);
		CHECK(rig, !work_over(&opener, RIG_NEVER_MS));
		OK(rig, kill(pid, SIGCONT));
		CHECK(rig, work_over(&ender, RIG_SOON_MS) && work_over(&opener, RIG_SOON_MS));
		CHECK(rig, !shared.opened);
		for (int i = 0; i < 2; i++) {
			OK(rig, ibv_close_xrcd(shared.xrcd[i]));
			OK(rig, ibv_close_device(shared.ctx[i]));
		}
	}
	rig_sync(rig);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"link_is_wanted", link_is_wanted},
		{"target_has_ended", target_has_ended},
		{"tags_come_back", tags_come_back},
		{"daemon_starts_slowly", daemon_starts_slowly},
		{"daemon_never_answers", daemon_never_answers},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
