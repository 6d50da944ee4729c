/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two users' programs: end A owns memory, end B belongs to another user (users.py starts them so)
 * and tries to access what A did not register for it. Granted accesses work; every other attempt
 * fails, and not a byte of A's memory changes or arrives at B. See rig.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rig.h"

enum { BYTES = 4 * 4096, SECRET = 0x5ec4e7, EMPTY = 0x77, LENGTH = 4096, LARGE = 4 << 20 };
enum { OTHER = 60002, LOOK_MS = 300 };

static const int read_only = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

/* A's memory, described to B in more detail than a program would. */
struct offer {
	uint64_t addr;	    /* of `bytes` registered ones, in a larger mapping */
	uint64_t neighbour; /* memory outside every region */
	uint32_t bytes, rkey, lkey;
	int32_t pid;
};

struct attempt {
	const char *what;
	enum ibv_wr_opcode opcode;
	int mr_access;	   /* of A's region */
	bool other_pd;	   /* A's region is of another PD than A's QP */
	bool deregistered; /* before B tries */
	bool neighbour;	   /* B uses the neighbour's address */
	int64_t shift;	   /* added to the address */
	uint32_t key_xor;
	bool lkey;	 /* B uses the lkey */
	uint32_t length; /* 0: LENGTH */
	enum ibv_wc_status wanted;
};

#define READ IBV_WR_RDMA_READ
#define WRITE IBV_WR_RDMA_WRITE
#define ADD IBV_WR_ATOMIC_FETCH_AND_ADD
#define REFUSED IBV_WC_REM_ACCESS_ERR

static const struct attempt attempts[] = {
	{.what = "a granted READ", .opcode = READ, .mr_access = read_only},
	{.what = "READ without remote read",
	 .opcode = READ,
	 .mr_access = IBV_ACCESS_LOCAL_WRITE,
	 .wanted = REFUSED},
	{.what = "READ of a region for writing",
	 .opcode = READ,
	 .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	 .wanted = REFUSED},
	{.what = "WRITE into a region for reading",
	 .opcode = WRITE,
	 .mr_access = read_only,
	 .wanted = REFUSED},
	{.what = "atomic in a region for reading",
	 .opcode = ADD,
	 .mr_access = read_only,
	 .length = 8,
	 .wanted = REFUSED},
	{.what = "READ with another tag",
	 .opcode = READ,
	 .mr_access = read_only,
	 .key_xor = 2,
	 .wanted = REFUSED},
	{.what = "READ with another index",
	 .opcode = READ,
	 .mr_access = read_only,
	 .key_xor = 0x100,
	 .wanted = REFUSED},
	{.what = "READ with an index beyond all",
	 .opcode = READ,
	 .mr_access = read_only,
	 .key_xor = 0xf0000000,
	 .wanted = REFUSED},
	{.what = "READ with the lkey", .opcode = READ, .mr_access = read_only, .lkey = true},
	{.what = "READ with the lkey, without remote read",
	 .opcode = READ,
	 .mr_access = IBV_ACCESS_LOCAL_WRITE,
	 .lkey = true,
	 .wanted = REFUSED},
	{.what = "WRITE with the lkey into a region for reading",
	 .opcode = WRITE,
	 .mr_access = read_only,
	 .lkey = true,
	 .wanted = REFUSED},
	{.what = "READ from a byte before",
	 .opcode = READ,
	 .mr_access = read_only,
	 .shift = -1,
	 .wanted = REFUSED},
	{.what = "READ to a byte beyond",
	 .opcode = READ,
	 .mr_access = read_only,
	 .shift = BYTES - LENGTH + 1,
	 .wanted = REFUSED},
	{.what = "READ of more than there is",
	 .opcode = READ,
	 .mr_access = read_only,
	 .length = BYTES + 1,
	 .wanted = REFUSED},
	{.what = "READ of address 0",
	 .opcode = READ,
	 .mr_access = read_only,
	 .shift = INT64_MIN,
	 .wanted = REFUSED},
	{.what = "READ of memory that isn't registered",
	 .opcode = READ,
	 .mr_access = read_only,
	 .neighbour = true,
	 .wanted = REFUSED},
	{.what = "large READ that ends outside",
	 .opcode = READ,
	 .mr_access = read_only,
	 .length = LARGE,
	 .wanted = REFUSED},
	{.what = "READ of another PD's region",
	 .opcode = READ,
	 .mr_access = read_only,
	 .other_pd = true,
	 .wanted = REFUSED},
	{.what = "READ after deregistration",
	 .opcode = READ,
	 .mr_access = read_only,
	 .deregistered = true,
	 .wanted = REFUSED},
};

/* B asks the kernel directly: a user's program can't read another user's memory. */
static void reach_directly(struct rig *rig, const struct offer *offer)
{
	uint8_t byte = EMPTY;
	struct iovec local = {&byte, 1}, remote = {(void *)(uintptr_t)offer->addr, 1}; /* NOLINT */

	if (geteuid() == 0)
		return; /* the kernel permits root */
	CHECK_EQ(rig, process_vm_readv(offer->pid, &local, 1, &remote, 1, 0), -1);
	CHECK_EQ(rig, errno, EPERM);
	CHECK_EQ(rig, byte, EMPTY);
}

static void try_for_it(struct end *end, const struct attempt *attempt, const struct offer *offer)
{
	uint32_t length = attempt->length ? attempt->length : LENGTH;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	memset(end->buf, EMPTY, end->opt.bytes);
	end_request(end, attempt->opcode, 7, 0, length, 0, &wr, &sge);
	uint64_t at = attempt->neighbour ? offer->neighbour : offer->addr;
	uint32_t key = (attempt->lkey ? offer->lkey : offer->rkey) ^ attempt->key_xor;

	at = attempt->shift == INT64_MIN ? 0 : at + (uint64_t)attempt->shift;
	if (attempt->opcode == ADD) {
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = at;
		wr.wr.rdma.rkey = key;
	}
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	wc = wc_wait(end, end->scq);
	if (wc.status != attempt->wanted)
		rig_fail(end->rig, __FILE__, __LINE__, "%s: %s", attempt->what,
			 ibv_wc_status_str(wc.status));
	if (attempt->wanted == IBV_WC_SUCCESS) {
		CHECK(end->rig, pattern_holds(end->buf, length, SECRET));
		return;
	}
	for (size_t i = 0; i < end->opt.bytes; i++)
		if (end->buf[i] != EMPTY)
			rig_fail(end->rig, __FILE__, __LINE__, "%s: byte %zu arrived",
				 attempt->what, i);
}

static void one_attempt(struct rig *rig, const struct attempt *attempt)
{
	const struct end_options options = {.bytes = LARGE};
	struct offer mine = {.pid = getpid()}, theirs;
	struct ibv_pd *other = NULL;
	struct ibv_mr *mr = NULL;
	uint8_t *memory = NULL;
	struct end end;

	end_pair(&end, rig, &options);
	if (rig->role == RIG_A) {
		memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
		CHECK(rig, memory != MAP_FAILED);
		pattern_fill(memory, LARGE, SECRET);
		uint8_t *at = memory + LARGE / 2;

		pattern_fill(at, BYTES, SECRET);
		CHECK(rig, (other = ibv_alloc_pd(rig->ctx)));
		CHECK(rig, (mr = ibv_reg_mr(attempt->other_pd ? other : end.pd, at, BYTES,
					    attempt->mr_access)));
		mine.addr = (uintptr_t)at;
		mine.neighbour = (uintptr_t)memory;
		mine.rkey = mr->rkey;
		mine.lkey = mr->lkey;
		if (attempt->deregistered)
			OK(rig, ibv_dereg_mr(mr));
	}
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	if (rig->role == RIG_B) {
		reach_directly(rig, &theirs);
		try_for_it(&end, attempt, &theirs);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		CHECK(rig, pattern_holds(memory + LARGE / 2, BYTES, SECRET));
		if (!attempt->deregistered)
			OK(rig, ibv_dereg_mr(mr));
		OK(rig, ibv_dealloc_pd(other));
		munmap(memory, LARGE);
	}
	end_close(&end);
}

static void only_what_is_granted(struct rig *rig)
{
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
		one_attempt(rig, &attempts[i]);
}

/* Whether a value is in memory that other processes have shared with this one. */
static bool is_shared_with_us(struct rig *rig, const char *name, uint64_t value, bool own)
{
	unsigned long start, stop;
	char line[512], mode[8];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");

	CHECK(rig, maps);
	while (!found && fgets(line, sizeof(line), maps)) {
		if (!strstr(line, name) || sscanf(line, "%lx-%lx %7s", &start, &stop, mode) != 3 ||
		    mode[0] != 'r')
			continue;
		/* Memory shared by peers is mapped read-only here; it is sparse, so only existing
		 * pages are read. */
		if ((mode[1] == 'w') != own)
			continue;
		for (unsigned long at = start; !found && at < stop; at += 4)
			found = *(const volatile uint32_t *)at == value; /* NOLINT */
	}
	fclose(maps);
	return found;
}

/* A queue pair of A connected to itself, so that A's requests use a key of its own. */
static void connect_to_itself(struct end *loop, struct rig *rig)
{
	const struct end_options options = {.bytes = LARGE};

	end_open(loop, rig, &options);
	end_init(loop);
	loop->peer = (struct end_peer){.qpn = loop->qp->qp_num,
				       .psn = loop->psn,
				       .rkey = loop->mr->rkey,
				       .addr = (uintptr_t)loop->buf};
	OK(rig, ibv_query_gid(rig->ctx, 1, 0, &loop->peer.gid));
	end_rtr(loop);
	end_rts(loop);
}

/* A's keys aren't in any memory that B can read: neither an unused one, nor one in use. */
static void look_for_keys(struct rig *rig)
{
	struct end end, loop;
	uint32_t mine = 0, theirs;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_A) {
		connect_to_itself(&loop, rig);
		mine = loop.mr->rkey;
	}
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	double stop = now_ms() + LOOK_MS;

	if (rig->role == RIG_B) {
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 64, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		CHECK(rig, is_shared_with_us(rig, "verbena-", end.mr->rkey, true));
		CHECK(rig, !is_shared_with_us(rig, "verbena-", end.peer.rkey, false));
		while (now_ms() < stop)
			CHECK(rig, !is_shared_with_us(rig, "verbena-", theirs, false));
	} else {
		while (now_ms() < stop) {
			OK(rig, end_send(&loop, IBV_WR_RDMA_WRITE, 2, 0, LARGE / 2, LARGE / 2));
			wc_expect(&loop, loop.scq, 2, IBV_WC_SUCCESS);
		}
	}
	rig_sync(rig);
	if (rig->role == RIG_A)
		end_close(&loop);
	end_close(&end);
}

/* Between two users. */
static void keys_are_not_shown(struct rig *rig)
{
	look_for_keys(rig);
}

/* ------------------------------------------------------------------ a peer that is stopped */

static _Noreturn void stand_still(int signal)
{
	(void)signal;
	for (;;)
		pause();
}

/* Blocks this process's library thread, in a handler of a signal that the thread accepts. */
static void stop_engine(struct rig *rig)
{
	const struct sigaction action = {.sa_handler = stand_still};
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	bool found = false;

	CHECK(rig, tasks != NULL);
	OK(rig, sigaction(SIGBUS, &action, NULL));
	while ((task = readdir(tasks))) {
		char path[300], name[32] = {0};

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *file = fopen(path, "r");

		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "verbena-engine\n")) {
			OK(rig, tgkill(getpid(), atoi(task->d_name), SIGBUS));
			found = true;
		}
		if (file)
			fclose(file);
	}
	closedir(tasks);
	CHECK(rig, found);
}

/* Makes every descriptor of this process that a peer might write to block its writer. */
static void block_writers(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		const uint64_t full = UINT64_MAX - 1;
		char path[64], target[64] = {0};

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0)
			continue;
		if (!strstr(target, "eventfd") && !strstr(target, "timerfd"))
			continue;
		int flags = fcntl(fd, F_GETFL);
		eventfd_t value;

		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
		(void)!read(fd, &value, sizeof(value));
		(void)!write(fd, &full, sizeof(full)); /* a timer can't be written to */
		fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	}
}

/*
 * For A, B seems to sleep, and B's descriptors block a process that writes to them. A posts and
 * polls without delay nevertheless.
 */
static void no_stranger_stops_the_other(struct rig *rig)
{
	const struct end_options options = {.timeout = TIMEOUT_NONE};
	struct end end;

	end_pair(&end, rig, &options);
	if (rig->role == RIG_B) {
		OK(rig, ibv_req_notify_cq(end.rcq, 0)); /* from now on A must ring the bell */
		stop_engine(rig);
		block_writers();
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (int i = 0; i < 32; i++) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 64, 0));
			CHECK_EQ(rig, ibv_poll_cq(end.scq, 1, &(struct ibv_wc){0}), 0);
		}
		end_close(&end);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		rig_sync(rig); /* the swap that follows each body */
		_exit(0);      /* this process is no longer usable */
	}
}

/* ------------------------------------------------------------------ forged senders */

/* Finds the address handle's source address, which the library keeps after the public part, with
 * the destination after it. Here the two are equal. */
static uint8_t *find_source(struct rig *rig, struct ibv_ah *ah, const union ibv_gid *gid)
{
	enum { REACH = 256 };
	uint8_t *at = (uint8_t *)ah + sizeof(*ah);

	for (size_t i = 0; i < REACH; i++)
		if (!memcmp(at + i, gid, sizeof(*gid)) &&
		    !memcmp(at + i + sizeof(*gid), gid, sizeof(*gid)))
			return at + i;
	CHECK(rig, !"the source address is somewhere near");
	return NULL;
}

/* Finds the number that the library sends with the queue pair's datagrams, which it keeps after the
 * public part. */
static uint32_t *find_number(struct rig *rig, struct ibv_qp *qp)
{
	enum { REACH = 1024 };
	uint32_t *at = (uint32_t *)((uint8_t *)qp + sizeof(struct ibv_qp_ex));

	for (size_t i = 0; i < REACH / sizeof(*at); i++)
		if (at[i] == qp->qp_num)
			return at + i;
	CHECK(rig, !"the number is somewhere near");
	return NULL;
}

static int datagram(struct end *end, uint32_t imm)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, IBV_WR_SEND_WITH_IMM, imm, 0, 64, 0, &wr, &sge);
	wr.imm_data = imm;
	wr.send_flags = 0;
	return ibv_post_send(end->qp, &wr, &bad);
}

/* B's honest datagrams arrive; those with another QPN or a foreign source address don't, and later
 * honest ones do again. */
static void nobody_is_taken_for_another(struct rig *rig)
{
	const struct end_options options = {.type = IBV_QPT_UD};
	struct end end;
	uint32_t mine, theirs = 0;

	end_pair(&end, rig, &options);
	mine = end.qp->qp_num;
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	for (int round = 0; round < 2; round++) {
		if (rig->role == RIG_A)
			OK(rig, end_recv(&end, (uint64_t)round, 0, 256));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			struct ibv_wc wc =
				wc_expect(&end, end.rcq, (uint64_t)round, IBV_WC_SUCCESS);

			CHECK_EQ(rig, wc.src_qp, theirs);
			CHECK_EQ(rig, wc.imm_data, (uint32_t)round);
		} else if (round) {
			uint8_t *source = find_source(rig, end.ah, &end.gid), real[16];
			uint32_t *number = find_number(rig, end.qp);

			*number = theirs; /* A's own */
			OK(rig, datagram(&end, 77));
			*number = mine ^ 1 << 14; /* a third process's */
			OK(rig, datagram(&end, 78));
			*number = mine;
			memcpy(real, source, sizeof(real));
			memset(source, 0x5a, sizeof(real));
			OK(rig, datagram(&end, 79));
			memcpy(source, real, sizeof(real));
			OK(rig, datagram(&end, (uint32_t)round));
		} else {
			OK(rig, datagram(&end, (uint32_t)round));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

/* Both ends start as one user, but B has changed its user before the two are connected. */
static void who_became_another_sees_no_keys(struct rig *rig)
{
	if (rig->role == RIG_B) {
		OK(rig, setresgid(OTHER, OTHER, OTHER));
		OK(rig, setresuid(OTHER, OTHER, OTHER));
	}
	rig_sync(rig);
	look_for_keys(rig);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"only_what_is_granted", only_what_is_granted},
		{"keys_are_not_shown", keys_are_not_shown},
		{"no_stranger_stops_the_other", no_stranger_stops_the_other},
		{"nobody_is_taken_for_another", nobody_is_taken_for_another},
		{"who_became_another_sees_no_keys", who_became_another_sees_no_keys},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
