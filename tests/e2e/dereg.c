/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a region: once ibv_dereg_mr() has returned, no thread and no peer accesses the memory,
 * whichever side of an operation it was on; and a peer that doesn't end its copy delays neither
 * ibv_dereg_mr() nor fork() without bound. See rig.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "hazard_claim.h"
#include "maps.h"

enum { OLD = 0x55, REUSED = 0xaa };

/* The longest copy possible: a user other than root may register 8 MiB only, both ends together. */
static uint32_t bytes(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur < 256 << 20 ? 2 << 20
										: 64 << 20;
}

/* ------------------------------------------------------------------ the requester's own memory */

/* A request that another thread posts, because posting may take as long as the copy. */
struct posting {
	pthread_t thread;
	struct end *end;
	enum ibv_wr_opcode opcode;
	int error;
};

static void *post(void *arg)
{
	struct posting *p = arg;

	p->error = end_send(p->end, p->opcode, 1, 0, bytes(), 0);
	return NULL;
}

static void posting_begin(struct posting *p, struct end *end, enum ibv_wr_opcode opcode)
{
	*p = (struct posting){.end = end, .opcode = opcode};
	OK(end->rig, pthread_create(&p->thread, NULL, post, p));
}

/* Waits until the request has completed, with success or error. */
static void posting_end(struct posting *p)
{
	struct rig *rig = p->end->rig;

	OK(rig, pthread_join(p->thread, NULL));
	OK(rig, p->error);
	struct ibv_wc wc = wc_wait(p->end, p->end->scq);

	CHECK(rig, wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_PROT_ERR);
}

/* The device writes meanwhile, as an adapter does, so this isn't a data race of the program. */
__attribute__((no_sanitize("thread"))) static void wait_for_byte(struct end *end, uint8_t wanted)
{
	struct patience patience = patience_of(RIG_SOON_MS);

	while (*(volatile uint8_t *)end->buf != wanted)
		CHECK(end->rig, !patience_over(&patience));
}

static bool all_are(const uint8_t *at, size_t length, uint8_t value)
{
	return *at == value && !memcmp(at, at + 1, length - 1);
}

static void dereg_now(struct end *end)
{
	OK(end->rig, ibv_dereg_mr(end->mr));
	end->mr = NULL;
}

/* A deregisters the region that its READ writes into, and reuses the memory. */
static void dereg_under_own_read(struct rig *rig)
{
	struct end_options opt = {.bytes = bytes(), .timeout = 18};
	struct posting posting;
	struct end end;

	end_pair(&end, rig, &opt);
	memset(end.buf, rig->role == RIG_B ? OLD : 0, bytes());
	rig_sync(rig);
	if (rig->role == RIG_A) {
		posting_begin(&posting, &end, IBV_WR_RDMA_READ);
		wait_for_byte(&end, OLD);
		dereg_now(&end);
		memset(end.buf + bytes() / 2, REUSED, bytes() / 2);
		posting_end(&posting);
		CHECK(rig, all_are(end.buf + bytes() / 2, bytes() / 2, REUSED));
	}
	rig_sync(rig);
	end_close(&end);
}

/* A deregisters the region that its WRITE reads from. */
static void dereg_under_own_write(struct rig *rig)
{
	struct end_options opt = {.bytes = bytes(), .timeout = 18};
	struct posting posting;
	struct end end;

	end_pair(&end, rig, &opt);
	memset(end.buf, rig->role == RIG_A ? OLD : 0, bytes());
	rig_sync(rig);
	if (rig->role == RIG_A)
		posting_begin(&posting, &end, IBV_WR_RDMA_WRITE);
	else
		wait_for_byte(&end, OLD);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		dereg_now(&end);
		memset(end.buf, REUSED, bytes());
		posting_end(&posting);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK(rig, !memchr(end.buf, REUSED, bytes()));
	end_close(&end);
}

/* B deregisters the region into which a message is being received. */
static void dereg_under_own_receive(struct rig *rig)
{
	struct end_options opt = {.bytes = bytes(), .timeout = 18};
	struct end end;

	end_pair(&end, rig, &opt);
	memset(end.buf, rig->role == RIG_A ? OLD : 0, bytes());
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, 100, 0, bytes()));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, bytes(), 0));
		wc_wait(&end, end.scq);
	} else {
		wait_for_byte(&end, OLD);
		dereg_now(&end);
		memset(end.buf + bytes() / 2, REUSED, bytes() / 2);
		wc_wait(&end, end.rcq);
		CHECK(rig, all_are(end.buf + bytes() / 2, bytes() / 2, REUSED));
	}
	rig_sync(rig);
	end_close(&end);
}

/* B deregisters the region that a WRITE is being placed into: A learns that the access isn't
 * granted, unless all of it was in place before, however much of it A had sent. */
static void dereg_under_peers_write(struct rig *rig)
{
	struct end_options opt = {.bytes = bytes(), .timeout = 18};
	struct end end;

	end_pair(&end, rig, &opt);
	memset(end.buf, rig->role == RIG_A ? OLD : 0, bytes());
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, bytes(), 0));
		struct ibv_wc wc = wc_wait(&end, end.scq);

		if (wc.status != IBV_WC_SUCCESS)
			CHECK_EQ(rig, wc.status, IBV_WC_REM_ACCESS_ERR);
	} else {
		wait_for_byte(&end, OLD);
		dereg_now(&end);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Over the wire, a B that got no processor may find the whole message in its socket only after A
 * deregistered the memory, and posts its receive before it looks: then the message is received, as
 * it was before. */
static bool may_be_received(const struct rig *rig)
{
	return rig->carrier == RIG_WIRE;
}

/* A deregisters the region of a message that waits for a receive at B: it can't be sent any
 * more. */
static void dereg_under_waiting_send(struct rig *rig)
{
	enum { LONG = 100000 };
	struct end_options opt = {.bytes = LONG};
	struct ibv_wc wc = {0};
	struct end end;

	end_pair(&end, rig, &opt);
	memset(end.buf, rig->role == RIG_A ? OLD : 0, LONG);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, LONG, 0));
		wc_none(&end, end.scq);
		dereg_now(&end);
		memset(end.buf, REUSED, LONG);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		wc = wc_wait(&end, end.scq);
		CHECK(rig, wc.status == IBV_WC_LOC_PROT_ERR ||
				   (wc.status == IBV_WC_SUCCESS && may_be_received(rig)));
	} else {
		OK(rig, end_recv(&end, 100, 0, LONG));
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		if (may_be_received(rig) && ibv_poll_cq(end.rcq, 1, &wc) == 1)
			CHECK(rig, wc.status == IBV_WC_SUCCESS && all_are(end.buf, LONG, OLD));
		else
			wc_none(&end, end.rcq);
		CHECK(rig, !memchr(end.buf, REUSED, LONG));
	}
	rig_sync(rig);
	end_close(&end);
}

/* ------------------------------------------------------------------ a peer that never ends */

static void *dereg(void *arg)
{
	return (void *)(intptr_t)ibv_dereg_mr(arg); /* NOLINT */
}

/* fork() isn't delayed by a deregistration, unless the memory is converted: then it waits itself,
 * with the same bound, for the peer's copy. */
static void fork_once(struct rig *rig)
{
	int status;
	pid_t child = fork();

	CHECK(rig, child >= 0);
	if (!child)
		_exit(0);
	CHECK(rig, waitpid(child, &status, 0) == child && !status);
}

/* `verbena status` and `resources mr` name the process that keeps its hazard. */
static void status_names(struct rig *rig, pid_t culprit)
{
	const char *build = getenv("VERBENA_BUILD_DIR");
	char command[512];

	if (!build)
		return;
	snprintf(command, sizeof(command),
		 "%s/bin/verbena status | grep -q 'held up by a copy of process %d, key 0x'", build,
		 culprit);
	CHECK_EQ(rig, system(command), 0); /* NOLINT */
	snprintf(command, sizeof(command),
		 "%s/bin/verbena resources mr --pid %d | grep -q 'process %d'", build, getpid(),
		 culprit);
	CHECK_EQ(rig, system(command), 0); /* NOLINT */
	snprintf(command, sizeof(command),
		 "%s/bin/verbena resources mr --pid %d --json | grep -A3 held_up | grep -q "
		 "'\"pid\": %d,'",
		 build, getpid(), culprit);
	CHECK_EQ(rig, system(command), 0); /* NOLINT */
}

static void dereg_held_up(struct end *end, pid_t culprit)
{
	bool converted = is_converted(end->buf);
	struct rig *rig = end->rig;
	pthread_t thread;
	void *result;

	OK(rig, pthread_create(&thread, NULL, dereg, end->mr));
	for (int i = 0; i < 10; i++) {
		fork_once(rig);
		usleep(20000);
	}
	if (!converted)
		CHECK_EQ(rig, pthread_tryjoin_np(thread, &result), EBUSY); /* it still waits */
	OK(rig, pthread_join(thread, &result));
	CHECK_EQ(rig, (intptr_t)result, EBUSY);
	status_names(rig, culprit);
	/* The link between the two is down. */
	OK(rig, end_send(end, IBV_WR_RDMA_WRITE, 1, 0, 0, 0));
	CHECK(rig, wc_wait(end, end->scq).status != IBV_WC_SUCCESS);
}

/* B's hazard stays set although B runs: A's deregistration fails, and may be tried again. */
static void dereg_with_stuck_peer(struct rig *rig)
{
	_Atomic uint64_t *hazard = NULL;
	pid_t mine = getpid(), theirs;
	struct end end;

	if (rig->carrier != RIG_LOCAL && rig->carrier != RIG_FOUND && rig->carrier != RIG_CONVERTED)
		return;
	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	if (rig->role == RIG_B)
		hazard = hazard_claim(&end, end.peer.rkey);
	rig_sync(rig);
	if (rig->role == RIG_A)
		dereg_held_up(&end, theirs);
	rig_sync(rig);
	if (rig->role == RIG_B)
		*hazard = 0;
	rig_sync(rig);
	if (rig->role == RIG_A)
		dereg_now(&end);
	end_close(&end);
}

const struct rig_test dereg_tests[] = {
	{"dereg_under_own_read", dereg_under_own_read},
	{"dereg_under_own_write", dereg_under_own_write},
	{"dereg_under_own_receive", dereg_under_own_receive},
	{"dereg_under_peers_write", dereg_under_peers_write},
	{"dereg_under_waiting_send", dereg_under_waiting_send},
	{"dereg_with_stuck_peer", dereg_with_stuck_peer},
	{NULL, NULL},
};
