/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process changes and ends registered memory at random while a peer WRITEs to it and executes
 * atomics on it without pause, by loads and stores of its own: the peer has mapped the memory,
 * which is in a memory file, a System V segment, an anonymous shared mapping, or converted
 * (docs/memory.md).
 *
 * usage: under_fire SECONDS [SEED]
 * Each game is a pair of new processes: an owner and a peer. In each of its rounds the owner has a
 * new region, and waits until it is under fire. Then it forks, moves, protects and unmaps the
 * memory, gives its addresses out again, stops the peer, and deregisters; at last it may kill the
 * peer. It requires:
 *   - Memory that it mapped in place of registered memory keeps its bytes.
 *   - After ibv_dereg_mr() has returned 0, all bytes stay as the owner has set them, also when a
 *     stopped peer goes on, and when the peer is killed. EBUSY is for a stopped peer only.
 *   - A child's copy of private memory doesn't change, and the parent doesn't see its stores.
 * The peer's operations succeed until one is refused, because the region has ended.
 * VERBENA_MEMORY=shared converts; without it private memory is reached by system calls.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "found.h"

enum { ROUNDS = 6, GIVEN_MOST = 16, MINE = NEW, LIST = 16 };

enum kind { FILE_, SEGMENT, ANONYMOUS, PRIVATE, KINDS };
static const char *const kind_names[KINDS] = {"memory file", "segment", "anonymous", "private"};

enum step { FORK, MOVE, CUT, REPLACE, PROTECT, STOP, NOTHING, STEPS };
static const char *const step_names[STEPS] = {"fork",	 "move", "cut",	   "replace",
					      "protect", "stop", "nothing"};

struct owner {
	struct end end;
	struct found found;
	unsigned int random;
	enum kind kind;
	int fd;	      /* of a memory file, or -1 */
	bool mapped;  /* by the peer; else it reaches what is at the addresses */
	bool stopped; /* the peer */
	uint8_t *at;  /* the region's memory, where it is now */
	size_t size;
	struct {
		uint8_t *at;
		size_t size;
	} given[GIVEN_MOST]; /* mapped in place of registered memory, all MINE */
	unsigned int given_count;
	char story[256];
};

/* What the processes count, shared with main(). */
static struct counts {
	_Atomic unsigned int rounds[KINDS], steps[STEPS], mapped, killed, held_up, operations;
} * counts;

static unsigned int chance(unsigned int *random, unsigned int below)
{
	return (unsigned int)rand_r(random) % below;
}

static void say(struct owner *o, const char *what)
{
	size_t length = strlen(o->story);

	snprintf(o->story + length, sizeof(o->story) - length, " %s", what);
}

/* ------------------------------------------------------------------ the peer */

static struct ibv_wc post_and_wait(struct end *end, struct found *found, unsigned int *random)
{
	static const uint32_t sizes[] = {8, 64, 500, 8000, BYTES};
	bool atomic = chance(random, 4) == 0, many = chance(random, 4) == 0;
	uint32_t size = atomic || many ? 8 : sizes[chance(random, 5)];
	struct ibv_send_wr wr[LIST], *bad;
	struct ibv_sge sge[LIST];
	unsigned int count = many ? LIST : 1;
	struct ibv_wc wc = {0};

	memset(end->buf, (int)chance(random, 100), size);
	for (unsigned int i = 0; i < count; i++) {
		uint64_t place = chance(random, (BYTES - size) / 8 + 1) * 8;

		end_request(end, atomic ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_WRITE, i, 0,
			    size, 0, &wr[i], &sge[i]);
		if (atomic) {
			wr[i].wr.atomic.remote_addr = found->theirs.addr + place;
			wr[i].wr.atomic.rkey = found->theirs.rkey;
			wr[i].wr.atomic.compare_add = 1;
		} else {
			wr[i].wr.rdma.remote_addr = found->theirs.addr + place;
			wr[i].wr.rdma.rkey = found->theirs.rkey;
		}
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
	}
	OK(end->rig, ibv_post_send(end->qp, wr, &bad));
	for (unsigned int i = 0; i < count; i++) {
		struct ibv_wc one = wc_wait(end, end->scq);

		if (wc.status == IBV_WC_SUCCESS)
			wc = one;
	}
	counts->operations += count;
	return wc;
}

static void peer_run(struct rig *rig, unsigned int random)
{
	const struct end_options opt = {.may_fail = true, .timeout = 18};
	struct found found;
	struct end end;
	bool more = true;

	end_pair(&end, rig, &opt);
	while (more) {
		struct ibv_wc wc;

		found_register(&found, &end, NULL, ALL_RIGHTS);
		if (found.theirs.line.inode)
			await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
		rig_sync(rig);
		do
			wc = post_and_wait(&end, &found, &random);
		while (wc.status == IBV_WC_SUCCESS);
		/* After a deregistration that was held up, there is no link. */
		CHECK(rig, wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_RETRY_EXC_ERR);
		rig_swap(rig, &more, &more, sizeof(more));
		if (!more)
			break;
		OK(rig, end_move(&end, IBV_QPS_RESET));
		rig_sync(rig);
		end_connect(&end);
	}
	end_close(&end);
}

/* ------------------------------------------------------------------ the owner's memory */

static uint8_t *pages_map(struct rig *rig, uint8_t *at, size_t size, int flags, int fd)
{
	at = mmap(at, size, PROT_READ | PROT_WRITE, flags | (at ? MAP_FIXED : 0), fd, 0);
	CHECK(rig, at != MAP_FAILED);
	return at;
}

static uint8_t *memory_of(struct owner *o)
{
	struct rig *rig = o->end.rig;
	uint8_t *at = NULL;
	int fd;

	switch (o->kind) {
	case FILE_:
		fd = memfd_create("under_fire", MFD_CLOEXEC);
		CHECK(rig, fd >= 0);
		OK(rig, ftruncate(fd, BYTES));
		at = pages_map(rig, NULL, BYTES, MAP_SHARED, fd);
		o->fd = fd;
		break;
	case SEGMENT:
		fd = shmget(IPC_PRIVATE, BYTES, 0600);
		CHECK(rig, fd >= 0);
		at = shmat(fd, NULL, 0);
		OK(rig, shmctl(fd, IPC_RMID, NULL));
		break;
	case ANONYMOUS:
		at = pages_map(rig, NULL, BYTES, MAP_SHARED | MAP_ANONYMOUS, -1);
		break;
	default:
		at = pages_map(rig, NULL, BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	}
	memset(at, 0, BYTES);
	return at;
}

/* New memory at an address that was the region's: given out again. */
static void give(struct owner *o, uint8_t *at, size_t size)
{
	CHECK(o->end.rig, o->given_count < GIVEN_MOST);
	pages_map(o->end.rig, at, size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memset(at, MINE, size);
	o->given[o->given_count].at = at;
	o->given[o->given_count++].size = size;
}

static void all_mine(struct owner *o, const uint8_t *at, size_t size, const char *what)
{
	for (size_t i = 0; i < size; i++)
		if (((const volatile uint8_t *)at)[i] != MINE)
			rig_fail(o->end.rig, __FILE__, __LINE__,
				 "byte %zu of %zu of %s is 0x%x; %s:%s", i, size, what, at[i],
				 kind_names[o->kind], o->story);
}

static void given_look(struct owner *o)
{
	for (unsigned int i = 0; i < o->given_count; i++)
		all_mine(o, o->given[i].at, o->given[i].size, "memory that was given out again");
}

/* The device writes meanwhile, as an adapter does, so this isn't a data race of the program. */
__attribute__((no_sanitize("thread"))) static void await_fire(struct owner *o)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	unsigned int changes = 1 + chance(&o->random, 50);
	const volatile uint64_t *word =
		(const volatile uint64_t *)(const volatile void *)(o->at + PAGE);

	for (uint64_t before = *word; changes;) {
		uint64_t now = *word;

		CHECK(o->end.rig, !patience_over(&patience));
		changes -= now != before;
		before = now;
	}
}

/* ------------------------------------------------------------------ steps */

/* The child's private memory is as of the fork, and stays so. */
__attribute__((no_sanitize("thread"))) static int child_looks(const struct owner *o)
{
	static uint8_t copy[BYTES];

	if (o->kind != PRIVATE)
		return 0;
	memcpy(copy, o->at, o->size);
	for (int i = 0; i < 5; i++) {
		usleep(500);
		if (memcmp(copy, o->at, o->size))
			return 3;
	}
	memset(o->at, 0xee, o->size);
	return 0;
}

static void step_fork(struct owner *o)
{
	struct rig *rig = o->end.rig;
	pid_t pid = fork();
	int status;

	CHECK(rig, pid >= 0);
	if (!pid)
		_exit(child_looks(o));
	CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
	if (status)
		rig_fail(rig, __FILE__, __LINE__, "a child ended with 0x%x; %s:%s", status,
			 kind_names[o->kind], o->story);
	/* What was converted is private now, and reached by system calls. */
	if (o->kind == PRIVATE)
		o->mapped = false;
}

static void step_move(struct owner *o)
{
	uint8_t *to = pages_map(o->end.rig, NULL, o->size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	uint8_t *from = o->at;

	CHECK(o->end.rig, mremap(from, o->size, o->size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	o->at = to;
	give(o, from, o->size);
}

static void step_cut(struct owner *o)
{
	if (o->size <= 2 * PAGE)
		return;
	o->size -= PAGE;
	CHECK(o->end.rig, !munmap(o->at + o->size, PAGE));
	give(o, o->at + o->size, PAGE);
}

static void peer_signal(struct owner *o, int number)
{
	OK(o->end.rig, kill(o->found.theirs.pid, number));
	if (number == SIGSTOP)
		rig_await_stop(o->found.theirs.pid);
	o->stopped = number == SIGSTOP;
}

static void step_take(struct owner *o)
{
	enum step step = chance(&o->random, STEPS);

	/* Where system calls reach the region, they reach what is at its addresses: so they do
	 * after the fork of a program whose memory was converted. */
	if (!o->mapped && (step == MOVE || step == CUT || step == REPLACE))
		return;
	if (step == FORK && o->kind == PRIVATE && o->given_count)
		return;
	counts->steps[step]++;
	say(o, step_names[step]);
	if (step == FORK) {
		step_fork(o);
	} else if (step == MOVE) {
		step_move(o);
	} else if (step == CUT) {
		step_cut(o);
	} else if (step == REPLACE) {
		give(o, o->at, o->size);
		o->size = 0;
	} else if (step == PROTECT && o->mapped) {
		OK(o->end.rig, mprotect(o->at, o->size, PROT_READ));
		OK(o->end.rig, mprotect(o->at, o->size, PROT_READ | PROT_WRITE));
	} else if (step == STOP) {
		peer_signal(o, SIGSTOP);
		if (chance(&o->random, 2))
			peer_signal(o, SIGCONT);
	}
	usleep(chance(&o->random, 1000));
	given_look(o);
}

/* ------------------------------------------------------------------ the end */

/* The peer may be stopped in the middle of a copy: then the region's end says so, and comes when
 * the peer goes on. */
static void deregister(struct owner *o)
{
	struct rig *rig = o->end.rig;
	int error = ibv_dereg_mr(o->found.mr);

	if (error == EBUSY && o->stopped) {
		counts->held_up++;
		peer_signal(o, SIGCONT);
		error = ibv_dereg_mr(o->found.mr);
	}
	if (error)
		rig_fail(rig, __FILE__, __LINE__, "ibv_dereg_mr() gave %d; %s:%s", error,
			 kind_names[o->kind], o->story);
}

static void look_for_ms(struct owner *o, int ms)
{
	for (int i = 0; i < ms; i++) {
		all_mine(o, o->at, o->size, "deregistered memory");
		given_look(o);
		usleep(1000);
	}
}

/* Whether there is another round: the peer lives. */
static bool round_end(struct owner *o, bool last)
{
	bool killed = false, early = o->mapped && o->size && chance(&o->random, 4) == 0;
	uint8_t *at = o->at;

	if (!o->stopped && chance(&o->random, 3) == 0)
		peer_signal(o, SIGSTOP);
	if (last && chance(&o->random, 2)) {
		killed = true;
		peer_signal(o, SIGKILL);
		counts->killed++;
	}
	if (early) { /* unmapped before it is deregistered */
		say(o, "unmap");
		give(o, at, o->size);
		o->size = 0;
	}
	deregister(o);
	memset(o->at, MINE, o->size);
	look_for_ms(o, 3);
	if (o->size) { /* freed, and given out again */
		munmap(o->at, o->size);
		give(o, o->at, o->size);
		o->size = 0;
	}
	if (o->stopped)
		peer_signal(o, SIGCONT);
	look_for_ms(o, 5);
	for (unsigned int i = 0; i < o->given_count; i++)
		munmap(o->given[i].at, o->given[i].size);
	o->given_count = 0;
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
	return !killed;
}

static void *idle(void *arg)
{
	while (!atomic_load((_Atomic bool *)arg))
		usleep(200);
	return NULL;
}

/* In some rounds there is another thread when the region ends. */
static bool round_play(struct owner *o, bool last)
{
	_Atomic bool stop = false;
	bool threads = chance(&o->random, 3) == 0;
	struct rig *rig = o->end.rig;
	pthread_t thread;

	o->kind = chance(&o->random, KINDS);
	if (o->kind == ANONYMOUS && geteuid()) /* only root's peers open it */
		o->kind = FILE_;
	o->story[0] = 0;
	o->at = memory_of(o);
	o->size = BYTES;
	found_register(&o->found, &o->end, o->at, ALL_RIGHTS);
	o->mapped = o->found.mine.line.inode;
	counts->rounds[o->kind]++;
	counts->mapped += o->mapped;
	if (threads)
		OK(rig, pthread_create(&thread, NULL, idle, &stop));
	rig_sync(rig);
	await_fire(o);
	for (unsigned int i = chance(&o->random, 4); i && o->size && !o->stopped; i--)
		step_take(o);
	bool lives = round_end(o, last);

	stop = true;
	if (threads)
		OK(rig, pthread_join(thread, NULL));
	return lives;
}

static void owner_run(struct rig *rig, unsigned int random)
{
	const struct end_options opt = {.may_fail = true};
	static struct owner o;
	bool more = true, other;

	o.random = random;
	o.fd = -1;
	end_pair(&o.end, rig, &opt);
	for (int round = 1; more; round++) {
		if (!round_play(&o, round == ROUNDS))
			break;
		more = round < ROUNDS;
		rig_swap(rig, &more, &other, sizeof(more));
		if (!more)
			break;
		OK(rig, end_move(&o.end, IBV_QPS_RESET));
		rig_sync(rig);
		end_connect(&o.end);
	}
	end_close(&o.end);
}

/* ------------------------------------------------------------------ games */

static void process_run(int role, int sock, unsigned int random)
{
	struct rig rig = {.name = "under_fire", .role = role, .carrier = RIG_LOCAL, .sock = sock};
	struct ibv_device **list = ibv_get_device_list(NULL);

	signal(SIGPIPE, SIG_IGN);
	rig.ctx = list && *list ? ibv_open_device(*list) : NULL;
	CHECK(&rig, rig.ctx);
	ibv_free_device_list(list);
	if (role == RIG_A)
		peer_run(&rig, random);
	else
		owner_run(&rig, random);
	OK(&rig, ibv_close_device(rig.ctx));
	exit(0);
}

static bool game_play(unsigned int seed)
{
	int sock[2], status[2];
	pid_t pid[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		return false;
	for (int role = 0; role < 2; role++) {
		pid[role] = fork();
		if (pid[role] < 0)
			return false;
		if (!pid[role]) {
			close(sock[!role]);
			process_run(role, sock[role], seed * 2 + (unsigned int)role);
		}
	}
	close(sock[0]);
	close(sock[1]);
	waitpid(pid[RIG_B], &status[RIG_B], 0);
	if (status[RIG_B])
		kill(pid[RIG_A], SIGCONT);
	waitpid(pid[RIG_A], &status[RIG_A], 0);
	bool was_killed = WIFSIGNALED(status[RIG_A]) && WTERMSIG(status[RIG_A]) == SIGKILL;

	if (!status[RIG_B] && (!status[RIG_A] || was_killed))
		return true;
	fprintf(stderr, "  the game with seed %u failed: owner 0x%x, peer 0x%x\n", seed,
		(unsigned int)status[RIG_B], (unsigned int)status[RIG_A]);
	return false;
}

int main(int argc, char **argv)
{
	double until = now_ms() + (argc > 1 ? strtod(argv[1], NULL) : 10) * 1000;
	unsigned int seed = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10)
				     : (unsigned int)now_ms() ^ (unsigned int)getpid();
	unsigned int games = 0;
	bool fine = true;

	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (counts == MAP_FAILED)
		return 1;
	printf("seed %u\n", seed);
	fflush(NULL);
	for (; fine && (now_ms() < until || !games); games++)
		fine = game_play(seed + games);
	printf("%u games, %u operations; %u regions were mapped, %u peers killed, %u held up\n",
	       games, counts->operations, counts->mapped, counts->killed, counts->held_up);
	for (int i = 0; i < KINDS; i++)
		printf("  %s: %u\n", kind_names[i], counts->rounds[i]);
	for (int i = 0; i < STEPS; i++)
		printf("  %s: %u\n", step_names[i], counts->steps[i]);
	return fine ? 0 : 1;
}
