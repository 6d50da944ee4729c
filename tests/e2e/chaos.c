/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A long-lived host process and short-lived peers. The host stays for the whole test; in each round
 * it connects queue pairs with a new peer process, both send what a seed determines, and a fault is
 * injected during the traffic: the peer is killed or stopped, or the host deregisters memory that
 * is in use, ends queue pairs, cancels its posting thread, or forks. The host then destroys all
 * objects of the round. chaos.py runs one host for each carrier at the same time and kills the
 * daemon meanwhile.
 *
 * What the host checks in each round:
 *   order      completions come in posting order, each once; after an error only flushes
 *   data       message N follows message N - 1, and its bytes are those of message N
 *   time       nothing hangs: each round ends within ROUND_SECONDS
 *   memory     deregistered memory belongs to the program: no byte of it changes any more
 *   no error   where nothing failed (a short stop, a fork, a daemon's death) there is none
 * When no request is outstanding it prints `quiet ROUND FDS ANON_KIB SHMEM_KIB THREADS` (FDS
 * without the sockets of the RoCE carrier's sender, of which there are 32 at most): chaos.py
 * requires that these don't grow.
 *
 * usage: chaos host self|process|shared SECONDS SEED [ACTION...]
 *        chaos peer SOCKET SEED (started by the host)
 * self: the peer is a thread of the host, with a device context of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

enum {
	QPS = 3,
	WINDOW = 16,   /* requests in flight */
	RECEIVES = 32, /* posted */
	SLOT = 65536,  /* bytes of the longest message */
	QUIET_EVERY = 5,
	ROUNDS_MIN = 8 * QUIET_EVERY, /* at least so many rounds, for a comparison */
	ROUND_SECONDS = 180,
	WIRE_PORT = 4791,
	SENDERS_MOST = 32,
	FDS_MOST = 4096,
};

/* A queue pair's buffer: receives, sends, the peer's writes, the host's reads. */
enum {
	AT_RECV = 0,
	AT_SEND = RECEIVES * SLOT,
	AT_REMOTE = AT_SEND + WINDOW * SLOT,
	AT_READ = AT_REMOTE + SLOT,
	BYTES = AT_READ + SLOT
};

enum action {
	POLITE,	    /* no fault: both stop, and compare what was sent and received */
	STOP,	    /* the peer is stopped for a moment */
	FORK,	    /* children of the host, which run on or exec */
	KILL,	    /* the peer ends at once */
	LEAVE,	    /* the peer exits without destroying anything */
	DEREGISTER, /* of the host's region, with requests and receives that use it */
	DESTROY,    /* of the host's QPs, with requests in flight */
	FAIL,	    /* the host's QPs go to ERR, then to RESET */
	CANCEL,	    /* of the host's posting thread */
	ACTIONS,
};

static const char *const action_names[ACTIONS] = {"polite",	"stop",	   "fork", "kill",  "leave",
						  "deregister", "destroy", "fail", "cancel"};
/* Actions without a fault, after which no request may fail. */
static const bool is_harmless[ACTIONS] = {[POLITE] = true, [STOP] = true, [FORK] = true};
/* A thread of the host can't be killed. */
static const bool needs_process[ACTIONS] = {[STOP] = true, [KILL] = true, [LEAVE] = true};

struct flow {
	struct end end;
	uint64_t posted, done;	    /* requests */
	uint64_t sent;		    /* messages among them */
	uint64_t offered, received; /* receives; messages */
	struct ibv_mr gone;	    /* the keys of end.mr, kept when it is deregistered */
	bool failed;		    /* the send queue: a request completed with an error */
	bool flushed;		    /* the receive queue; either error may be seen first */
};

struct round {
	struct rig rig;
	struct flow flow[QPS];
	unsigned int count, seed;
	enum action action;
	_Atomic bool enough;  /* no further request is posted */
	_Atomic bool cleared; /* the action removes the QPs or the memory: errors are expected */
};

static const struct end_options options = {.bytes = BYTES,
					   .send_depth = WINDOW,
					   .recv_depth = RECEIVES,
					   .timeout = 16,
					   .retry_cnt = 7};

/* ------------------------------------------------------------------ traffic */

static void offer(struct flow *f)
{
	for (; f->offered - f->received < RECEIVES; f->offered++)
		OK(f->end.rig,
		   end_recv(&f->end, f->offered, AT_RECV + f->offered % RECEIVES * SLOT, SLOT));
}

/* A message: its number, then bytes that depend on it. */
static uint32_t message_fill(struct flow *f, unsigned int *state, size_t at)
{
	static const uint32_t sizes[] = {8, 64, 1000, 8000, 40000, SLOT};
	uint32_t size = sizes[(unsigned int)rand_r(state) % 6];

	memcpy(f->end.buf + at, &f->sent, sizeof(f->sent));
	pattern_fill(f->end.buf + at + 8, size - 8, (uint32_t)f->sent);
	f->sent++;
	return size;
}

static void post_one(struct flow *f, unsigned int *state)
{
	size_t at = AT_SEND + f->posted % WINDOW * SLOT;
	uint32_t size = 1u << (unsigned int)rand_r(state) % 16;

	switch ((unsigned int)rand_r(state) % 6) {
	case 0:
		OK(f->end.rig,
		   end_send(&f->end, IBV_WR_RDMA_WRITE, f->posted, at, size, AT_REMOTE));
		break;
	case 1:
		OK(f->end.rig,
		   end_send(&f->end, IBV_WR_RDMA_READ, f->posted, AT_READ, size, AT_REMOTE));
		break;
	case 2:
		OK(f->end.rig, end_send(&f->end, IBV_WR_ATOMIC_FETCH_AND_ADD, f->posted, AT_READ, 8,
					AT_REMOTE));
		break;
	default:
		size = message_fill(f, state, at);
		OK(f->end.rig, end_send(&f->end, IBV_WR_SEND, f->posted, at, size, 0));
	}
	f->posted++;
}

/* An error of one queue, marked in `failed`: the first may be any, those that follow are
 * flushes. */
static void judge_error(struct round *r, bool *failed, const struct ibv_wc *wc)
{
	bool expected = !is_harmless[r->action] || r->cleared;

	if (!expected)
		rig_fail(&r->rig, __FILE__, __LINE__, "%s: request %llu: \"%s\"",
			 action_names[r->action], (unsigned long long)wc->wr_id,
			 ibv_wc_status_str(wc->status));
	if (*failed && wc->status != IBV_WC_WR_FLUSH_ERR)
		rig_fail(&r->rig, __FILE__, __LINE__, "%s: \"%s\" after an error",
			 action_names[r->action], ibv_wc_status_str(wc->status));
	*failed = true;
}

static bool poll_requests(struct round *r, struct flow *f)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(f->end.scq, 1, &wc) != 1)
		return false;
	CHECK_EQ(&r->rig, wc.wr_id, f->done++);
	if (wc.status != IBV_WC_SUCCESS)
		judge_error(r, &f->failed, &wc);
	else if (f->failed)
		rig_fail(&r->rig, __FILE__, __LINE__, "%s: request %llu succeeds after an error",
			 action_names[r->action], (unsigned long long)wc.wr_id);
	return true;
}

static void check_message(struct round *r, struct flow *f, const struct ibv_wc *wc)
{
	uint8_t *at = f->end.buf + AT_RECV + wc->wr_id % RECEIVES * SLOT;
	uint64_t number;

	if (r->cleared)
		return; /* the memory doesn't belong to the message any more */
	memcpy(&number, at, sizeof(number));
	CHECK_EQ(&r->rig, number, f->received);
	if (!pattern_holds(at + 8, wc->byte_len - 8, (uint32_t)number) && !r->cleared)
		rig_fail(&r->rig, __FILE__, __LINE__, "message %llu has other bytes",
			 (unsigned long long)number);
}

static bool poll_messages(struct round *r, struct flow *f)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(f->end.rcq, 1, &wc) != 1)
		return false;
	CHECK_EQ(&r->rig, wc.wr_id, f->received);
	if (wc.status == IBV_WC_SUCCESS)
		check_message(r, f, &wc);
	else
		judge_error(r, &f->flushed, &wc);
	f->received++;
	if (!f->failed && !f->flushed)
		offer(f);
	return true;
}

static bool is_over(const struct round *r)
{
	for (unsigned int i = 0; i < r->count; i++)
		if (r->flow[i].posted != r->flow[i].done)
			return false;
	return r->enough;
}

/* Posts and polls until `enough` is set and all requests have completed. */
static void *traffic(void *argument)
{
	struct round *r = argument;
	unsigned int state = r->seed;

	while (!is_over(r)) {
		for (unsigned int i = 0; i < r->count; i++) {
			struct flow *f = &r->flow[i];

			while (!r->enough && !f->failed && !f->flushed &&
			       f->posted - f->done < WINDOW)
				post_one(f, &state);
			poll_requests(r, f);
			poll_messages(r, f);
		}
	}
	return NULL;
}

/* ------------------------------------------------------------------ rounds: both sides */

static void round_open(struct round *r)
{
	for (unsigned int i = 0; i < r->count; i++) {
		end_open(&r->flow[i].end, &r->rig, &options);
		end_init(&r->flow[i].end);
		offer(&r->flow[i]);
		end_meet(&r->flow[i].end);
		end_rtr(&r->flow[i].end);
		end_rts(&r->flow[i].end);
	}
	rig_sync(&r->rig);
}

/* Takes the other side's count of messages, if it has arrived. */
static bool take_count(const struct round *r, uint64_t *count)
{
	return recv(r->rig.sock, count, sizeof(*count), MSG_DONTWAIT) == sizeof(*count);
}

/* Checks that each side has received what the other sent. Receives are posted until both know that,
 * because the other side may still wait for one. */
static void round_compare(struct round *r)
{
	for (unsigned int i = 0; i < r->count; i++) {
		struct flow *f = &r->flow[i];
		uint64_t theirs = UINT64_MAX;
		bool told = false;
		struct patience patience = patience_of(RIG_SOON_MS);

		if (send(r->rig.sock, &f->sent, sizeof(f->sent), MSG_NOSIGNAL) != sizeof(f->sent))
			rig_fail(&r->rig, __FILE__, __LINE__, "the other side is gone");
		while (!told || f->received != theirs) {
			for (unsigned int k = 0; k < r->count; k++)
				poll_messages(r, &r->flow[k]);
			told = told || take_count(r, &theirs);
			if (patience_over(&patience))
				rig_fail(&r->rig, __FILE__, __LINE__, "%llu of %llu messages came",
					 (unsigned long long)f->received,
					 (unsigned long long)theirs);
		}
	}
	rig_sync(&r->rig);
}

static void device_open(struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(rig, list && list[0]);
	CHECK(rig, (rig->ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
}

/* ------------------------------------------------------------------ the peer */

static void on_term(int signal)
{
	(void)signal;
	_exit(0);
}

/* The host sends 'e' to end the traffic, or closes the socket: then a peer that is a process exits
 * at once. */
static void *listen_host(void *argument)
{
	struct round *r = argument;
	char word;

	if (recv(r->rig.sock, &word, 1, 0) != 1) {
		if (r->rig.carrier != RIG_SELF_TWO)
			_exit(0);
		r->cleared = true;
	}
	r->enough = true;
	return NULL;
}

static bool any_failed(const struct round *r)
{
	for (unsigned int i = 0; i < r->count; i++)
		if (r->flow[i].failed || r->flow[i].flushed)
			return true;
	return false;
}

/* One round as the peer, in a process or a thread of its own. */
static void *peer(void *argument)
{
	struct round *r = argument;
	pthread_t listener;

	r->action = KILL; /* the host judges all errors */
	device_open(&r->rig);
	round_open(r);
	if (pthread_create(&listener, NULL, listen_host, r))
		rig_fail(&r->rig, __FILE__, __LINE__, "no thread");
	traffic(r);
	pthread_join(listener, NULL);
	if (!any_failed(r) && !r->cleared) {
		r->action = POLITE;
		round_compare(r);
	} else if (r->rig.carrier != RIG_SELF_TWO) {
		_exit(0);
	}
	for (unsigned int i = 0; i < r->count; i++)
		end_close(&r->flow[i].end);
	OK(&r->rig, ibv_close_device(r->rig.ctx));
	close(r->rig.sock);
	return NULL;
}

static struct round peer_round(int sock, unsigned int seed, enum rig_carrier carrier)
{
	return (struct round){
		.rig = {.name = "chaos peer", .role = RIG_B, .sock = sock, .carrier = carrier},
		.count = 1 + seed % QPS,
		.seed = seed ^ 0x5555};
}

static int peer_process(int sock, unsigned int seed, enum rig_carrier carrier)
{
	static struct round round;

	signal(SIGTERM, on_term);
	round = peer_round(sock, seed, carrier);
	peer(&round);
	return 0;
}

/* ------------------------------------------------------------------ the host */

static pid_t start_peer(int *sock, unsigned int seed, enum rig_carrier carrier)
{
	int pair[2];
	char number[16], word[16];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -1;
	snprintf(number, sizeof(number), "%d", pair[1]);
	snprintf(word, sizeof(word), "%u", seed);
	pid_t pid = fork();

	if (pid == 0) {
		fcntl(pair[1], F_SETFD, 0);
		execl("/proc/self/exe", "chaos", "peer", number, word,
		      carrier == RIG_FOUND ? "shared" : "process", (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	*sock = pair[0];
	return pid;
}

static void wait_a_moment(unsigned int *state, unsigned int most_us)
{
	usleep((unsigned int)rand_r(state) % most_us);
}

static void do_fork(unsigned int *state)
{
	pid_t pid[4];

	for (int i = 0; i < 4; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			if (i % 2)
				execl("/bin/true", "true", (char *)NULL);
			usleep(1000u * (unsigned int)i);
			_exit(0);
		}
		wait_a_moment(state, 3000);
	}
	for (int i = 0; i < 4; i++)
		waitpid(pid[i], NULL, 0);
}

/* From now on the memory is the program's: it writes, and its bytes must stay. */
static void do_deregister(struct round *r)
{
	r->cleared = true;
	for (unsigned int i = 0; i < r->count; i++) {
		struct end *end = &r->flow[i].end;

		struct ibv_mr *mr = end->mr;

		r->flow[i].gone = *mr;
		end->mr = &r->flow[i].gone;
		OK(&r->rig, ibv_dereg_mr(mr));
		memset(end->buf, 0xA5, BYTES);
	}
}

static void check_area(struct round *r, const struct end *end, size_t from, size_t to)
{
	for (size_t at = from; at < to; at++)
		if (end->buf[at] != 0xA5)
			rig_fail(&r->rig, __FILE__, __LINE__, "byte %zu changed after ibv_dereg_mr",
				 at);
}

/* The posting thread itself may still have filled a message to send. */
static void check_untouched(struct round *r)
{
	for (unsigned int i = 0; i < r->count; i++) {
		check_area(r, &r->flow[i].end, AT_RECV, AT_SEND);
		check_area(r, &r->flow[i].end, AT_REMOTE, BYTES);
		r->flow[i].end.mr = NULL;
	}
}

static void do_fail(struct round *r)
{
	r->cleared = true;
	for (unsigned int i = 0; i < r->count; i++)
		OK(&r->rig, end_move(&r->flow[i].end, IBV_QPS_ERR));
}

/* Executes the round's action. */
static void act(struct round *r, pid_t pid, unsigned int *state, pthread_t thread)
{
	switch (r->action) {
	case STOP:
		kill(pid, SIGSTOP);
		wait_a_moment(state, 40000);
		kill(pid, SIGCONT);
		break;
	case FORK:
		do_fork(state);
		break;
	case KILL:
		kill(pid, SIGKILL);
		break;
	case LEAVE:
		kill(pid, SIGTERM);
		break;
	case DEREGISTER:
		do_deregister(r);
		break;
	case FAIL:
		do_fail(r);
		break;
	case CANCEL:
		pthread_cancel(thread);
		break;
	default:
		break;
	}
}

/* Ends the traffic: tells the peer, if it is still there. */
static void end_traffic(struct round *r, pthread_t thread)
{
	if (r->action == DESTROY)
		r->cleared = true;
	r->enough = true;
	if (is_harmless[r->action] && send(r->rig.sock, "e", 1, MSG_NOSIGNAL) != 1)
		rig_fail(&r->rig, __FILE__, __LINE__, "the peer is gone");
	pthread_join(thread, NULL);
	if (is_harmless[r->action])
		round_compare(r);
}

/* DESTROY: the posting thread has stopped posting but not waited. */
static void *posting(void *argument)
{
	struct round *r = argument;

	if (r->action != DESTROY)
		return traffic(r);
	unsigned int state = r->seed;

	while (!r->enough)
		for (unsigned int i = 0; i < r->count; i++) {
			struct flow *f = &r->flow[i];

			while (f->posted - f->done < WINDOW && !f->failed && !f->flushed)
				post_one(f, &state);
			poll_requests(r, f);
			poll_messages(r, f);
		}
	return NULL;
}

/* A peer of the host's own: a thread with a device context of its own. */
static pthread_t start_peer_thread(struct round *theirs, int *sock, unsigned int seed)
{
	pthread_t thread;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		abort();
	*theirs = peer_round(pair[1], seed, RIG_SELF_TWO);
	*sock = pair[0];
	if (pthread_create(&thread, NULL, peer, theirs))
		abort();
	return thread;
}

/* A peer that found a fault has printed it and exits with 1. It exits when the socket is closed,
 * unless it was killed. */
static void end_peer(struct round *r, pid_t pid)
{
	int status = 0;

	if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1)
		rig_fail(&r->rig, __FILE__, __LINE__, "%s: the peer failed",
			 action_names[r->action]);
}

static void play(struct round *r, unsigned int seed)
{
	static struct round theirs;
	bool self = r->rig.carrier == RIG_SELF_TWO;
	unsigned int state = seed;
	pthread_t thread, peer_thread = 0;
	int sock = -1;
	pid_t pid = 0;

	if (self)
		peer_thread = start_peer_thread(&theirs, &sock, seed);
	else
		pid = start_peer(&sock, seed, r->rig.carrier);
	r->rig.sock = sock;
	r->count = 1 + seed % QPS;
	r->seed = seed;
	round_open(r);
	if (pid < 0 || pthread_create(&thread, NULL, posting, r))
		rig_fail(&r->rig, __FILE__, __LINE__, "no peer, or no thread");
	wait_a_moment(&state, 30000);
	act(r, pid, &state, thread);
	if (!is_harmless[r->action])
		wait_a_moment(&state, 5000);
	end_traffic(r, thread);
	if (r->action == DEREGISTER)
		check_untouched(r);
	if (self)
		shutdown(sock, SHUT_WR);
	else
		close(sock);
	for (unsigned int i = 0; i < r->count; i++)
		end_close(&r->flow[i].end);
	if (self) {
		pthread_join(peer_thread, NULL);
		close(sock);
		return;
	}
	end_peer(r, pid);
}

/* ------------------------------------------------------------------ what it uses */

static unsigned int count_entries(const char *path)
{
	unsigned int n = 0;
	DIR *dir = opendir(path);

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Whether it is one of the sockets by which the RoCE carrier sends (net/sender.h): opened when a
 * queue pair first needs the socket's place, and kept. */
static bool sends_packets(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in ipv4;
		struct sockaddr_in6 ipv6;
	} name;
	socklen_t size = sizeof(name), int_size = sizeof(int);
	int type = 0;

	if (getsockname(fd, &name.any, &size) ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_size) || type != SOCK_DGRAM)
		return false;
	return (name.any.sa_family == AF_INET && ntohs(name.ipv4.sin_port) != WIRE_PORT) ||
	       (name.any.sa_family == AF_INET6 && ntohs(name.ipv6.sin6_port) != WIRE_PORT);
}

/* All but these sockets, whose number grows to its bound in the first hundreds of rounds. */
static unsigned int count_descriptors(void)
{
	unsigned int n = count_entries("/proc/self/fd"), senders = 0;

	for (int fd = 0; fd < FDS_MOST; fd++)
		senders += sends_packets(fd);
	return n - (senders < SENDERS_MOST ? senders : SENDERS_MOST);
}

/* A number of /proc/self/status, such as "RssAnon:", in KiB. */
static long status_kib(const char *name)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	long kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			kib = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

static void say_quiet(unsigned int rounds)
{
	printf("quiet %u %u %ld %ld %u\n", rounds, count_descriptors(), status_kib("RssAnon:"),
	       status_kib("RssShmem:"), count_entries("/proc/self/task"));
	fflush(stdout);
}

static struct round *watched;
static unsigned int watched_seed;

static void on_alarm(int signal)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "  a round hangs: action %s, seed %u\n",
			 action_names[watched->action], watched_seed);

	(void)signal;
	if (write(STDERR_FILENO, text, (size_t)n) < 0 || getenv("RIG_HOLD"))
		pause();
	abort();
}

static enum action choose(unsigned int *seed, enum rig_carrier carrier, unsigned int allowed)
{
	enum action action;

	do
		action = (enum action)((unsigned int)rand_r(seed) % ACTIONS);
	while (!(allowed & 1u << action) || (carrier == RIG_SELF_TWO && needs_process[action]));
	return action;
}

/* The set of actions that the command line names; all if it names none. */
static unsigned int actions_named(char **names)
{
	unsigned int set = 0;

	for (; *names; names++)
		for (unsigned int i = 0; i < ACTIONS; i++)
			if (strcmp(*names, action_names[i]) == 0)
				set |= 1u << i;
	return set ? set : (1u << ACTIONS) - 1;
}

static int host(double seconds, unsigned int seed, enum rig_carrier carrier, unsigned int allowed)
{
	struct rig rig = {.name = "chaos", .role = RIG_A, .carrier = carrier};
	double until = now_ms() + seconds * 1000;
	unsigned int rounds = 0, times[ACTIONS] = {0};

	signal(SIGALRM, on_alarm);
	device_open(&rig);
	while (now_ms() < until || rounds < ROUNDS_MIN) {
		struct round r = {.rig = rig};

		r.action = choose(&seed, carrier, allowed);
		watched = &r;
		watched_seed = seed;
		alarm((unsigned int)(ROUND_SECONDS * rig_slowness()));
		play(&r, (unsigned int)rand_r(&seed));
		alarm(0);
		times[r.action]++;
		if (++rounds % QUIET_EVERY == 0)
			say_quiet(rounds);
	}
	OK(&rig, ibv_close_device(rig.ctx));
	printf("rounds %u:", rounds);
	for (int i = 0; i < ACTIONS; i++)
		printf(" %s %u", action_names[i], times[i]);
	printf("\n");
	return 0;
}

static enum rig_carrier carrier_named(const char *kind)
{
	return strcmp(kind, "self") == 0     ? RIG_SELF_TWO
	       : strcmp(kind, "shared") == 0 ? RIG_FOUND
					     : RIG_LOCAL;
}

int main(int argc, char **argv)
{
	if (argc >= 5 && strcmp(argv[1], "host") == 0)
		return host(strtod(argv[3], NULL), (unsigned int)strtoul(argv[4], NULL, 10),
			    carrier_named(argv[2]), actions_named(argv + 5));
	if (argc == 5 && strcmp(argv[1], "peer") == 0)
		return peer_process((int)strtol(argv[2], NULL, 10),
				    (unsigned int)strtoul(argv[3], NULL, 10),
				    carrier_named(argv[4]));
	fprintf(stderr, "usage: chaos host self|process|shared SECONDS SEED [ACTION...]\n");
	return 2;
}
