/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that are killed or stopped at random instants. A victim has queue pairs with one or
 * more survivors, all of them in traffic; it dies by SIGKILL, and each survivor must get
 * RETRY_EXC_ERR for its oldest request, WR_FLUSH_ERR for all others and for its receives, in time,
 * and must be able to destroy all objects. Afterwards the daemon must have no client, and exit. A
 * short stop has no visible effect; a longer one counts as death.
 *
 * This process never calls a verb: it starts, kills and judges. It shares one page with the others.
 * Random choices come from a seed that is printed; -s SEED repeats them.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

enum { SURVIVORS = 4, QPS = 12, WINDOW = 16, RECEIVES = 32, SLOT = 65536 };
/* All bounds of time are for what hangs: a loaded machine takes many times as long as an idle one,
 * and all processes may be stopped for a minute or two meanwhile. */
enum { LATE_MS = 180000, SOON_MS = 60000 };

/* The page that all processes share. */
struct page {
	unsigned int started;	/* processes in traffic; atomic */
	_Atomic double struck;	/* when the victim was killed or stopped; 0: not yet */
	_Atomic bool stopping;	/* the victim is about to be stopped for long */
	_Atomic bool enough;	/* stop posting */
	_Atomic uint64_t moved; /* numbered messages that were sent or received */
};

static struct page *page;
static unsigned int seed;

static unsigned int chance(unsigned int below)
{
	return (unsigned int)rand_r(&seed) % below;
}

/* The processes of a round. */
struct plan {
	unsigned int survivors, qps;
	bool events, ring, shared;
	struct end_options opt;
};

static bool all_there(const struct plan *plan)
{
	return __atomic_load_n(&page->started, __ATOMIC_SEQ_CST) == plan->survivors + 1;
}

/* One queue pair in traffic ------------------------------------------------------------------ */

struct flow {
	struct end end;
	uint64_t posted, done;	    /* sends */
	uint64_t received, offered; /* receives */
	bool failed;
	double failed_at;
};

static void flow_offer(struct flow *flow)
{
	for (; flow->offered - flow->received < RECEIVES; flow->offered++)
		OK(flow->end.rig,
		   end_recv(&flow->end, flow->offered, flow->offered % RECEIVES * 1024, SLOT));
}

static void flow_post(struct flow *flow, unsigned int *state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,
						     IBV_WR_SEND,
						     IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ,
						     IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_RDMA_WRITE_WITH_IMM};
	static const uint32_t sizes[] = {0, 8, 500, 8000, 40000, SLOT};

	for (; flow->posted - flow->done < WINDOW; flow->posted++) {
		enum ibv_wr_opcode opcode = opcodes[(unsigned int)rand_r(state) % 6];
		uint32_t size = sizes[(unsigned int)rand_r(state) % 6];

		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			size = 8;
		OK(flow->end.rig,
		   end_send(&flow->end, opcode, flow->posted, 2 * SLOT, size, 4 * SLOT));
	}
}

/* The first error must be RETRY_EXC_ERR at the right time, and all other requests are flushed. */
static void flow_fail(struct flow *flow, const struct ibv_wc *first)
{
	struct end *end = &flow->end;
	struct rig *rig = end->rig;

	flow->failed_at = now_ms();
	if (page->struck == 0)
		rig_fail(rig, __FILE__, __LINE__, "\"%s\" before anything happened",
			 ibv_wc_status_str(first->status));
	if (first->status != IBV_WC_RETRY_EXC_ERR)
		rig_fail(rig, __FILE__, __LINE__, "request %llu completed with \"%s\"",
			 (unsigned long long)first->wr_id, ibv_wc_status_str(first->status));
	if (flow->failed_at - page->struck > LATE_MS * rig_slowness())
		rig_fail(rig, __FILE__, __LINE__, "the error came after %.0f ms",
			 flow->failed_at - page->struck);
	CHECK_EQ(rig, first->wr_id, flow->done++);
	for (; flow->done < flow->posted; flow->done++)
		wc_expect(end, end->scq, flow->done, IBV_WC_WR_FLUSH_ERR);
	/* Messages that arrived before may still be in the CQ. */
	for (; flow->received < flow->offered; flow->received++) {
		struct ibv_wc wc = wc_wait(end, end->rcq);

		CHECK_EQ(rig, wc.wr_id, flow->received);
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		CHECK_EQ(rig, wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_EQ(rig, end_state(end), IBV_QPS_ERR);
	flow->failed = true;
}

/* Takes completions; returns whether there were any. */
static bool flow_poll(struct flow *flow)
{
	struct end *end = &flow->end;
	struct ibv_wc wc;
	bool any = false;

	while (!flow->failed && ibv_poll_cq(end->scq, 1, &wc) == 1) {
		any = true;
		if (wc.status != IBV_WC_SUCCESS)
			flow_fail(flow, &wc);
		else
			CHECK_EQ(end->rig, wc.wr_id, flow->done++);
	}
	while (!flow->failed && ibv_poll_cq(end->rcq, 1, &wc) == 1) {
		any = true;
		CHECK_EQ(end->rig, wc.wr_id, flow->received);
		/* The send queue's error is in the CQ as well, and is judged first. */
		if (wc.status == IBV_WC_WR_FLUSH_ERR) {
			flow->received++;
			wc = wc_wait(end, end->scq);
			while (wc.status == IBV_WC_SUCCESS) {
				CHECK_EQ(end->rig, wc.wr_id, flow->done++);
				wc = wc_wait(end, end->scq);
			}
			flow_fail(flow, &wc);
			break;
		}
		CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
		flow->received++;
	}
	return any;
}

/* Sleeps until a channel has an event; completions that arrive while arming aren't lost. */
static void flows_sleep(struct flow *flows, unsigned int count)
{
	struct pollfd ready[SURVIVORS * QPS];

	for (unsigned int i = 0; i < count; i++) {
		ready[i] = (struct pollfd){.fd = flows[i].end.channel->fd, .events = POLLIN};
		OK(flows[i].end.rig, ibv_req_notify_cq(flows[i].end.scq, 0));
		OK(flows[i].end.rig, ibv_req_notify_cq(flows[i].end.rcq, 0));
	}
	for (unsigned int i = 0; i < count; i++)
		if (flow_poll(&flows[i]))
			return;
	if (rig_poll(ready, count, LATE_MS * rig_slowness()) == 0)
		rig_fail(flows[0].end.rig, __FILE__, __LINE__, "no event for %d ms", LATE_MS);
	for (unsigned int i = 0; i < count; i++) {
		struct ibv_cq *cq;
		void *context;

		if (!(ready[i].revents & POLLIN))
			continue;
		OK(flows[i].end.rig, ibv_get_cq_event(flows[i].end.channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
}

/* Traffic until every flow has failed. */
static void flows_run(struct flow *flows, unsigned int count, const struct plan *plan)
{
	unsigned int state = (unsigned int)getpid() ^ seed, left = count;

	/* All begin together; otherwise those that begin early would have peers that don't poll. */
	__atomic_fetch_add(&page->started, 1, __ATOMIC_SEQ_CST);
	while (!all_there(plan) && page->struck == 0)
		usleep(100);
	while (left) {
		bool any = false;

		left = 0;
		for (unsigned int i = 0; i < count; i++) {
			if (flows[i].failed)
				continue;
			left++;
			flow_offer(&flows[i]);
			flow_post(&flows[i], &state);
			any |= flow_poll(&flows[i]);
		}
		if (plan->events && !any && left)
			flows_sleep(flows, count);
	}
}

/* Processes ---------------------------------------------------------------------------------- */

/* A stopped program posts no receives, and rnr_retry 7 would wait without limit, so 6 times 0.5
 * s. `tolerant` is for stops of some milliseconds; on a loaded machine they take as long as the
 * scheduler likes, so its QPs wait for half a minute. */
static const struct end_options killed = {.bytes = 8 * SLOT,
					  .recv_depth = RECEIVES,
					  .timeout = 10,
					  .retry_cnt = 1,
					  .rnr_retry = 6,
					  .min_rnr_timer = 31};
static const struct end_options tolerant = {.bytes = 8 * SLOT,
					    .recv_depth = RECEIVES,
					    .timeout = 20,
					    .retry_cnt = 7,
					    .min_rnr_timer = 1};

static struct ibv_context *device(struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	CHECK(rig, ctx);
	ibv_free_device_list(list);
	return ctx;
}

/* Whether the region can be deregistered: a peer that was stopped during a copy ends it only when
 * it continues. */
static bool region_ends(struct end *end)
{
	int error = ibv_dereg_mr(end->mr);

	if (error == EBUSY && page->stopping)
		return false;
	OK(end->rig, error);
	end->mr = NULL;
	return true;
}

/* A process: QPs over each socket (one socket for each peer), traffic, the end. */
static void process_run(const struct plan *plan, int role, const int *socks, unsigned int peers)
{
	struct rig rig[SURVIVORS];
	struct flow *flows = calloc(SURVIVORS * QPS, sizeof(*flows));
	unsigned int count = 0;

	rig[0] = (struct rig){.name = "kill", .role = role, .carrier = RIG_LOCAL};
	rig[0].carrier = plan->ring ? RIG_RING : plan->shared ? RIG_FOUND : RIG_LOCAL;
	rig[0].ctx = device(&rig[0]);
	for (unsigned int peer = 0; peer < peers; peer++) {
		rig[peer] = rig[0];
		rig[peer].sock = socks[peer];
		for (unsigned int i = 0; i < plan->qps; i++) {
			end_pair(&flows[count].end, &rig[peer], &plan->opt);
			flow_offer(&flows[count++]);
		}
	}
	flows_run(flows, count, plan);
	for (unsigned int i = 0; i < count; i++) {
		if (!region_ends(&flows[i].end))
			exit(0);
		end_close(&flows[i].end);
	}
	OK(&rig[0], ibv_close_device(rig[0].ctx));
	free(flows);
	exit(0);
}

struct group {
	pid_t victim, survivor[SURVIVORS];
	unsigned int survivors;
};

static void group_start(struct group *group, const struct plan *plan)
{
	int socks[SURVIVORS][2], mine[SURVIVORS];

	*page = (struct page){0};
	if (plan->ring)
		setenv("VERBENA_LOCAL_COPY", "ring", 1);
	else
		setenv("VERBENA_LOCAL_COPY", "", 1);
	group->survivors = plan->survivors;
	fflush(NULL);
	for (unsigned int i = 0; i < plan->survivors; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks[i]))
			abort();
		mine[i] = socks[i][0];
	}
	group->victim = fork();
	if (group->victim == 0) {
		for (unsigned int i = 0; i < plan->survivors; i++)
			close(socks[i][1]);
		process_run(plan, RIG_A, mine, plan->survivors);
	}
	for (unsigned int i = 0; i < plan->survivors; i++) {
		group->survivor[i] = fork();
		if (group->survivor[i])
			continue;
		for (unsigned int k = 0; k < plan->survivors; k++) {
			close(socks[k][0]);
			if (k != i)
				close(socks[k][1]);
		}
		process_run(plan, RIG_B, &socks[i][1], 1);
	}
	for (unsigned int i = 0; i < plan->survivors; i++) {
		close(socks[i][0]);
		close(socks[i][1]);
	}
}

/* Waits for a process; returns its exit status, or -1 when it hangs or was ended by a signal. It
 * hangs if no numbered message moves, and it doesn't end, for so long. */
static int process_wait(pid_t pid, double ms, const char *what)
{
	struct patience patience = patience_of(ms * rig_slowness());
	uint64_t moved = page->moved;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (moved != page->moved) {
			moved = page->moved;
			patience = patience_of(ms * rig_slowness());
		}
		if (patience_over(&patience)) {
			fprintf(stderr, "  %s (%d) hangs\n", what, (int)pid);
			if (getenv("RIG_HOLD"))
				pause();
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		usleep(500);
	}
	if (WIFSIGNALED(status))
		fprintf(stderr, "  %s was ended by signal %d\n", what, WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool all_in_traffic(const struct plan *plan)
{
	struct patience patience = patience_of(SOON_MS * rig_slowness());

	while (!all_there(plan)) {
		if (patience_over(&patience))
			return false;
		usleep(200);
	}
	return true;
}

/* Survivors exit with success, or (killed during connection set-up) because their peer is gone. */
static bool survivors_fine(const struct group *group, bool met)
{
	bool fine = true;

	for (unsigned int i = 0; i < group->survivors; i++) {
		int status = process_wait(group->survivor[i], 4 * LATE_MS, "a survivor");

		fine &= status == 0 || (status == 2 && !met);
	}
	return fine;
}

static struct plan plan_random(void)
{
	bool many = chance(8) == 0;

	return (struct plan){.survivors = many ? SURVIVORS : 1,
			     .qps = many	     ? 4
				    : chance(6) == 0 ? QPS
						     : 1,
			     .events = chance(2),
			     .ring = chance(3) == 0,
			     .shared = chance(2) == 0,
			     .opt = killed};
}

static bool round_kill(void)
{
	struct plan plan = plan_random();
	bool met = chance(4) != 0;
	struct group group;

	group_start(&group, &plan);
	if (met && !all_in_traffic(&plan)) {
		fprintf(stderr, "  no traffic: %u of %u are there\n", page->started,
			plan.survivors + 1);
		if (getenv("RIG_HOLD"))
			pause();
		kill(group.victim, SIGKILL);
		waitpid(group.victim, NULL, 0);
		survivors_fine(&group, true);
		return false;
	}
	usleep(chance(met ? 15000 : 25000));
	page->struck = now_ms();
	kill(group.victim, SIGKILL);
	waitpid(group.victim, NULL, 0);
	return survivors_fine(&group, met);
}

/* Stopping ----------------------------------------------------------------------------------- */

/* Stops longer than the QPs' timeout: both sides find their QPs in error, in time, and end well. */
static bool round_stop_long(void)
{
	struct plan plan = plan_random();
	struct group group;
	bool fine;

	group_start(&group, &plan);
	fine = all_in_traffic(&plan);
	usleep(chance(10000));
	page->stopping = true;
	page->struck = now_ms();
	kill(group.victim, SIGSTOP);
	fine &= survivors_fine(&group, true);
	/* Set only now: the survivors must not need it. */
	page->struck = now_ms();
	kill(group.victim, SIGCONT);
	fine &= process_wait(group.victim, 4 * LATE_MS, "the stopped one") == 0;
	return fine;
}

/* Numbered messages both ways while one process is stopped repeatedly, always briefly. */
static void numbered_run(struct end *end, unsigned int count)
{
	struct rig *rig = end->rig;
	unsigned int posted = 0, done = 0, received = 0;

	for (unsigned int i = 0; i < RECEIVES; i++)
		OK(rig, end_recv(end, i, (size_t)i * 256, 256));
	rig_sync(rig);
	__atomic_fetch_add(&page->started, 1, __ATOMIC_SEQ_CST);
	while (done < count || received < count) {
		struct ibv_wc wc;
		uint32_t number;

		if (posted < count && posted - done < WINDOW) {
			memcpy(end->buf + SLOT + posted % WINDOW * 256, &posted, sizeof(posted));
			OK(rig, end_send(end, IBV_WR_SEND, posted, SLOT + posted % WINDOW * 256,
					 256, 0));
			posted++;
		}
		if (ibv_poll_cq(end->scq, 1, &wc) == 1) {
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(rig, wc.wr_id, done++);
			page->moved++;
		}
		if (ibv_poll_cq(end->rcq, 1, &wc) == 1) {
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			memcpy(&number, end->buf + wc.wr_id * 256, sizeof(number));
			CHECK_EQ(rig, number, received++);
			page->moved++;
			OK(rig, end_recv(end, wc.wr_id, wc.wr_id * 256, 256));
		}
	}
}

static void stop_process(int role, int sock)
{
	struct rig rig = {.name = "stop", .role = role, .carrier = RIG_LOCAL, .sock = sock};
	struct end end;

	rig.ctx = device(&rig);
	end_pair(&end, &rig, &tolerant);
	numbered_run(&end, 40000);
	rig_sync(&rig);
	end_close(&end);
	OK(&rig, ibv_close_device(rig.ctx));
	exit(0);
}

static bool round_stop_short(void)
{
	struct plan plan = {.survivors = 1};
	int sock[2], status;
	pid_t pid[2];
	bool fine;

	*page = (struct page){0};
	setenv("VERBENA_LOCAL_COPY", "", 1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		abort();
	fflush(NULL);
	for (int role = 0; role < 2; role++) {
		pid[role] = fork();
		if (pid[role] == 0) {
			close(sock[!role]);
			stop_process(role, sock[role]);
		}
	}
	close(sock[0]);
	close(sock[1]);
	fine = all_in_traffic(&plan);
	for (int i = 0; i < 12; i++) {
		kill(pid[0], SIGSTOP);
		usleep(1000 + chance(40000));
		kill(pid[0], SIGCONT);
		usleep(chance(3000));
	}
	for (int role = 0; role < 2; role++) {
		status = process_wait(pid[role], SOON_MS, "a process");
		fine &= status == 0;
	}
	return fine;
}

/* The daemon afterwards ---------------------------------------------------------------------- */

/* Reads the output of `verbena status --json`, without white space. */
static bool status_read(char *text, size_t size)
{
	const char *build = getenv("VERBENA_BUILD_DIR");
	char command[4200];
	size_t n = 0;
	int c;

	snprintf(command, sizeof(command), "'%s/bin/verbena' status --json", build ? build : ".");
	FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c) */

	if (!pipe)
		return false;
	while ((c = fgetc(pipe)) != EOF)
		if (c > ' ' && n < size - 1)
			text[n++] = (char)c;
	text[n] = 0;
	return pclose(pipe) == 0;
}

/* Whether the daemon soon has no client. */
static bool daemon_empty(void)
{
	static char text[1 << 20];
	struct patience patience = patience_of(SOON_MS * rig_slowness());

	do {
		if (status_read(text, sizeof(text)) && strstr(text, "\"clients\":[]"))
			return true;
		usleep(20000);
	} while (!patience_over(&patience));
	fprintf(stderr, "  the daemon still has clients: %.600s\n", text);
	return false;
}

/* Locks, the log and the roster (which numbers are in quarantine) stay; lock files are empty when
 * they aren't held. */
static bool is_left(const char *path, const char *name)
{
	char file[4200];
	struct stat stat_;

	if (strcmp(name, "log") == 0 || strcmp(name, "roster") == 0 || strcmp(name, "devices") == 0)
		return true;
	if (strcmp(name, "lock") && strcmp(name, "verbenad.pid"))
		return false;
	snprintf(file, sizeof(file), "%s/%s", path, name);
	return stat(file, &stat_) == 0 && stat_.st_size == 0;
}

/* Whether the daemon exits when idle, and what it leaves behind. */
static bool daemon_leaves(void)
{
	const char *path = getenv("VERBENA_RUNTIME_DIR"), *idle = getenv("VERBENA_IDLE_MS");
	struct patience patience =
		patience_of((idle ? strtod(idle, NULL) : 10000) + SOON_MS * rig_slowness());
	const char *left = "?";
	struct dirent *entry;
	char name[256] = "";

	while (left && !patience_over(&patience)) {
		DIR *dir = opendir(path);

		left = NULL;
		while (dir && (entry = readdir(dir)))
			if (entry->d_name[0] != '.' && !is_left(path, entry->d_name))
				left = strcpy(name, entry->d_name);
		if (dir)
			closedir(dir);
		usleep(20000);
	}
	if (left)
		fprintf(stderr, "  %s is left in %s\n", left, path);
	return !left;
}

struct kind {
	const char *name;
	bool (*round)(void);
	unsigned int rounds;
	double seconds;
};

static bool kind_run(const struct kind *kind, unsigned int rounds)
{
	double began = now_ms(), end = began + kind->seconds * 1000;
	unsigned int i;

	for (i = 0; i < rounds && (now_ms() < end || i < 3); i++) {
		unsigned int before = seed;

		if (!kind->round() || (i % 16 == 0 && !daemon_empty())) {
			printf("FAIL  %s, round %u (-s %u)\n", kind->name, i, before);
			return false;
		}
	}
	printf("ok    %s: %u rounds in %.1f s\n", kind->name, i, (now_ms() - began) / 1e3);
	fflush(stdout);
	return true;
}

int main(int argc, char **argv)
{
	static const struct kind kinds[] = {
		{"kill", round_kill, 400, 50},
		{"stop_short", round_stop_short, 5, 15},
		{"stop_long", round_stop_long, 40, 15},
	};
	unsigned int rounds = 0;
	bool fine = true;
	int option;

	if (!getenv("VERBENA_RUNTIME_DIR")) {
		fprintf(stderr, "VERBENA_RUNTIME_DIR isn't set: run this by own-daemon\n");
		return 2;
	}
	seed = (unsigned int)now_ms() ^ (unsigned int)getpid();
	while ((option = getopt(argc, argv, "s:n:")) != -1) {
		if (option == 's')
			seed = (unsigned int)strtoul(optarg, NULL, 10);
		else if (option == 'n')
			rounds = (unsigned int)strtoul(optarg, NULL, 10);
		else
			return 2;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 1;
	printf("seed %u\n", seed);
	for (unsigned int i = 0; i < 3 && fine; i++)
		if (optind >= argc || strcmp(argv[optind], kinds[i].name) == 0)
			fine = kind_run(&kinds[i], rounds ? rounds : kinds[i].rounds);
	fine = fine && daemon_empty() && daemon_leaves();
	printf("%s\n", fine ? "passed" : "FAILED");
	return fine ? 0 : 1;
}
