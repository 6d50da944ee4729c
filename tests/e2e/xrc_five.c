/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xrc_five [-n ROUNDS] [-s SEED]
 *
 * Five processes share an XRC domain. Each has an SRQ, and an initiator whose target queue pair
 * another one of them has made and all have open; each sends to all SRQs at once. In each round one
 * or two of them are killed at a random instant, and are started again for the next round.
 *
 * What must hold when the others have come to rest: a request that completed well to a process that
 * lives was received once, by the SRQ that it named; no message was received twice; messages of one
 * initiator to one SRQ came in order. A request may only fail if it, or one before it, was for a
 * process that was killed. At the end nothing is left: the domain doesn't exist any more.
 *
 * A round has stages, which this process gives out and each member answers:
 *   MAKE     initiators and targets that are to be made anew, SRQs of members that were started
 *   CONNECT  the new ones are connected, and opened by all
 *   GO       traffic, and the kill
 *   REST     no new requests; what is outstanding completes
 * This process calls no verb.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xrc_side.h"

enum { FIVE = 5, MESSAGES = 1 << 14, OUTSTANDING = 8, PLACE = 4096, KILL_MAX_US = 20000 };
enum stage { MAKE, CONNECT, GO, REST, STAGES, END = UINT32_MAX };
enum fate { NOT_SENT, POSTED, SUCCEEDED, FAILED };

struct message {
	uint32_t round, from, to, number, length;
};

/* What became of a message, from one member to another. */
struct pair {
	uint32_t next;
	uint8_t fate[MESSAGES];
	_Atomic uint8_t received[MESSAGES];
};

static struct page {
	_Atomic uint32_t stage;		 /* round * STAGES + stage; END */
	_Atomic uint32_t answered[FIVE]; /* the stage */
	bool anew[FIVE];		 /* its initiator and target are to be made */
	uint32_t maker[FIVE];		 /* of its target */
	uint32_t target[FIVE], initiator[FIVE], srqn[FIVE];
	_Atomic bool killed[FIVE]; /* in this round */
	_Atomic bool broken[FIVE]; /* its initiator is in ERR */
	_Atomic uint32_t posted;   /* in this round */
	union ibv_gid gid;
	struct pair pair[FIVE][FIVE];
} * page;
static char file[] = "/tmp/verbena-xrc-five-XXXXXX";
static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(random_state >> 33) % limit;
}

/* ------------------------------------------------------------------ a member */

static struct member {
	struct side side; /* .qp is the initiator */
	uint32_t me, round;
	struct ibv_qp *target[FIVE]; /* handles, by whose it is */
	uint32_t outstanding;
	bool busy[OUTSTANDING];
	struct message sent[OUTSTANDING];
} m;

static void answer(uint32_t stage)
{
	atomic_store(&page->answered[m.me], stage);
}

/* A request is buffer SIDE_RECEIVES + its place; completions of requests have this bit. */
#define REQUEST (1ull << 32)

static void post(void)
{
	uint32_t at = 0, to = random_below(FIVE);
	struct pair *pair = &page->pair[m.me][to];

	while (m.busy[at])
		at++;
	if (pair->next == MESSAGES)
		return;
	struct message *message = &m.sent[at];
	uint8_t *buf = m.side.buf + (size_t)(SIDE_RECEIVES + at) * PLACE;

	*message = (struct message){m.round, m.me, to, pair->next++, sizeof(*message)};
	if (!random_below(4)) /* several packets */
		message->length += random_below(PLACE - sizeof(*message));
	memset(buf, (uint8_t)message->number, message->length);
	memcpy(buf, message, sizeof(*message));
	struct ibv_sge sge = {(uintptr_t)buf, message->length, m.side.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = REQUEST | at,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .sg_list = &sge,
				 .num_sge = 1};
	struct ibv_send_wr *bad;

	wr.qp_type.xrc.remote_srqn = page->srqn[to];
	pair->fate[message->number] = POSTED;
	m.busy[at] = true;
	m.outstanding++;
	MUST(!ibv_post_send(m.side.qp, &wr, &bad));
	atomic_fetch_add(&page->posted, 1);
}

static void request_done(const struct ibv_wc *wc)
{
	uint32_t at = (uint32_t)wc->wr_id;
	const struct message *message = &m.sent[at];

	m.busy[at] = false;
	m.outstanding--;
	page->pair[m.me][message->to].fate[message->number] =
		wc->status == IBV_WC_SUCCESS ? SUCCEEDED : FAILED;
	if (wc->status == IBV_WC_SUCCESS)
		return;
	if (!atomic_load(&page->broken[m.me]) && !atomic_load(&page->killed[message->to]))
		side_fail(__LINE__,
			  "round %u: message %u to %u, which lives: %s; by 0x%x, made by %u",
			  m.round, message->number, message->to, ibv_wc_status_str(wc->status),
			  page->target[m.me], page->maker[m.me]);
	atomic_store(&page->broken[m.me], true);
}

static void message_came(const struct ibv_wc *wc, uint32_t last[FIVE])
{
	const uint8_t *buf = m.side.buf + wc->wr_id * PLACE;
	struct message message;

	MUST(wc->status == IBV_WC_SUCCESS && wc->byte_len >= sizeof(message));
	memcpy(&message, buf, sizeof(message));
	MUST(message.from < FIVE && message.to == m.me && message.number < MESSAGES);
	MUST(message.length == wc->byte_len && wc->qp_num == m.target[message.from]->qp_num);
	for (uint32_t i = sizeof(message); i < message.length; i++)
		MUST(buf[i] == (uint8_t)message.number);
	MUST(message.round == m.round);
	if (message.number < last[message.from])
		side_fail(__LINE__, "message %u of %u after %u", message.number, message.from,
			  last[message.from] - 1);
	last[message.from] = message.number + 1;
	if (atomic_fetch_add(&page->pair[message.from][m.me].received[message.number], 1))
		side_fail(__LINE__, "message %u of %u came twice", message.number, message.from);
	side_offer(&m.side, wc->wr_id);
}

static bool poll_once(uint32_t last[FIVE])
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(m.side.cq, 1, &wc);

	MUST(n >= 0);
	if (n && wc.wr_id & REQUEST)
		request_done(&wc);
	else if (n)
		message_came(&wc, last);
	return n;
}

static void member_make(void)
{
	for (uint32_t i = 0; i < FIVE; i++) {
		if (!page->anew[i])
			continue;
		if (m.target[i])
			MUST(!ibv_destroy_qp(m.target[i]));
		m.target[i] = NULL;
		if (i == m.me && m.side.qp)
			MUST(!ibv_destroy_qp(m.side.qp));
		if (i == m.me) {
			m.side.qp = side_initiator_make(&m.side, OUTSTANDING);
			side_to_init(m.side.qp);
			page->initiator[i] = m.side.qp->qp_num;
		}
		if (page->maker[i] == m.me) {
			m.target[i] = side_target_make(&m.side);
			side_to_init(m.target[i]);
			page->target[i] = m.target[i]->qp_num;
		}
	}
}

static void member_connect(void)
{
	for (uint32_t i = 0; i < FIVE; i++) {
		if (!m.target[i])
			m.target[i] = side_target_open(&m.side, page->target[i]);
		else if (page->anew[i] && page->maker[i] == m.me)
			side_target_to_rtr(m.target[i], page->initiator[i], &page->gid);
		if (page->anew[i] && i == m.me)
			side_initiator_to_rts(m.side.qp, page->target[i], &page->gid);
	}
}

static void member_go(uint32_t stage)
{
	uint32_t last[FIVE] = {0};
	bool more;

	m.round = stage / STAGES;
	answer(stage);
	do {
		more = atomic_load(&page->stage) == stage;
		if (more && m.outstanding < OUTSTANDING && !atomic_load(&page->broken[m.me]))
			post();
		else if (!more && !m.outstanding && atomic_load(&page->answered[m.me]) == stage)
			answer(stage + 1);
		if (!poll_once(last))
			sched_yield();
	} while (atomic_load(&page->stage) <= stage + 1);
}

static void member_end(void)
{
	for (int i = 0; i < FIVE; i++)
		MUST(!ibv_destroy_qp(m.target[i]));
	MUST(!ibv_destroy_qp(m.side.qp));
	side_close(&m.side);
	exit(0);
}

_Noreturn static void member_run(uint32_t me, uint64_t seed)
{
	uint32_t stage = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* it doesn't outlive a test that is ended */
	snprintf(side_name, sizeof(side_name), "member %u", me);
	random_state = seed;
	m.me = me;
	side_open(&m.side, PLACE, OUTSTANDING * PLACE);
	side_share(&m.side, file);
	page->gid = m.side.gid;
	page->srqn[me] = side_srq_ready(&m.side);
	for (;;) {
		uint64_t until = side_clock_ms() + SIDE_SOON_MS;

		while (atomic_load(&page->stage) == stage) {
			MUST(side_clock_ms() < until);
			usleep(100);
		}
		stage = atomic_load(&page->stage);
		if (stage == END)
			member_end();
		if (stage % STAGES == MAKE)
			member_make();
		else if (stage % STAGES == CONNECT)
			member_connect();
		else if (stage % STAGES == GO)
			member_go(stage);
		if (stage % STAGES == GO)
			stage = atomic_load(&page->stage) - 1; /* handled at the head of the loop */
		else
			answer(stage);
	}
}

/* ------------------------------------------------------------------ the rounds */

static pid_t pids[FIVE];

static void start(uint32_t i)
{
	uint64_t seed = random_state ^ (uint64_t)i << 40;

	random_below(1);
	fflush(stdout);
	pids[i] = fork();
	if (!pids[i])
		member_run(i, seed);
}

/* Each member that runs is alive: only this process ends members. */
static void all_live(void)
{
	for (uint32_t i = 0; i < FIVE; i++)
		if (pids[i] && waitpid(pids[i], NULL, WNOHANG)) {
			fprintf(stderr, "member %u ended\n", i);
			for (uint32_t k = 0; k < FIVE; k++)
				if (pids[k] && k != i)
					kill(pids[k], SIGKILL);
			_exit(1);
		}
}

static void await_answers(uint32_t stage)
{
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;

	for (uint32_t i = 0; i < FIVE; i++)
		while (pids[i] && atomic_load(&page->answered[i]) != stage) {
			all_live();
			if (side_clock_ms() > until)
				side_fail(__LINE__, "member %u doesn't answer stage %u", i, stage);
			usleep(100);
		}
}

static void give_out(uint32_t round, enum stage stage)
{
	atomic_store(&page->stage, round * STAGES + (uint32_t)stage);
	if (stage != REST)
		await_answers(round * STAGES + (uint32_t)stage);
}

static void prepare(void)
{
	for (uint32_t i = 0; i < FIVE; i++) {
		page->anew[i] = !pids[i] || atomic_load(&page->broken[i]);
		page->broken[i] = page->killed[i] = false;
		page->maker[i] = (i + 1 + random_below(FIVE - 1)) % FIVE;
		if (!pids[i])
			start(i);
		for (uint32_t k = 0; k < FIVE; k++)
			memset(&page->pair[i][k], 0, sizeof(page->pair[i][k]));
	}
	page->posted = 0;
}

static void kill_some(void)
{
	uint32_t count = 1 + !random_below(3), before = 50 + random_below(2000);
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;

	while (atomic_load(&page->posted) < before && side_clock_ms() < until) {
		all_live();
		usleep(50);
	}
	while (count--) {
		uint32_t i = random_below(FIVE);

		if (!pids[i])
			continue;
		usleep(random_below(KILL_MAX_US));
		atomic_store(&page->killed[i], true);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		pids[i] = 0;
	}
	usleep(random_below(KILL_MAX_US));
}

/* Waits until all messages that were sent well have come, where the receiver lives. */
static uint32_t check_pair(uint32_t from, uint32_t to)
{
	struct pair *pair = &page->pair[from][to];
	uint64_t until = side_clock_ms() + SIDE_SOON_MS;
	uint32_t count = 0;

	for (uint32_t i = 0; pids[to] && i < pair->next; i++) {
		while (pair->fate[i] == SUCCEEDED && !atomic_load(&pair->received[i])) {
			all_live();
			if (side_clock_ms() > until)
				side_fail(__LINE__, "message %u of %u never came to %u", i, from,
					  to);
			usleep(100);
		}
		count += atomic_load(&pair->received[i]);
	}
	return count;
}

static uint32_t run_round(uint32_t round)
{
	uint32_t count = 0;

	prepare();
	give_out(round, MAKE);
	give_out(round, CONNECT);
	give_out(round, GO);
	kill_some();
	give_out(round, REST);
	await_answers(round * STAGES + REST);
	for (uint32_t from = 0; from < FIVE; from++)
		for (uint32_t to = 0; to < FIVE; to++)
			count += check_pair(from, to);
	return count;
}

/* In a process of its own: the domain has gone with its last handle. */
static void check_nothing_left(void)
{
	struct side s = {0};
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(file, O_RDONLY | O_CLOEXEC),
	};

	side_open(&s, PLACE, 0);
	MUST(!ibv_open_xrcd(s.ctx, &attr) && errno == EAGAIN);
	side_close(&s);
	exit(0);
}

int main(int argc, char **argv)
{
	uint32_t rounds = 20, kills = 0;
	uint64_t seed = (uint64_t)getpid(), received = 0;
	int option, fd = mkstemp(file);
	bool well = true;

	while ((option = getopt(argc, argv, "n:s:")) != -1)
		if (option == 'n')
			rounds = (uint32_t)strtoul(optarg, NULL, 0);
		else if (option == 's')
			seed = strtoull(optarg, NULL, 0);
		else
			return 2;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || page == MAP_FAILED)
		return 2;
	random_state = seed;
	for (uint32_t round = 1; round <= rounds; round++) {
		received += run_round(round);
		for (int i = 0; i < FIVE; i++)
			kills += !pids[i];
		if (round % 100 == 0) {
			printf("%u rounds, %u killed\n", round, kills);
			fflush(stdout);
		}
	}
	/* One more without a kill, so that five end by themselves. */
	prepare();
	give_out(rounds + 1, MAKE);
	give_out(rounds + 1, CONNECT);
	atomic_store(&page->stage, END);
	for (int i = 0; i < FIVE; i++)
		well = side_ended_well(pids[i]) && well;
	pid_t last = fork();

	if (!last)
		check_nothing_left();
	well = side_ended_well(last) && well;
	unlink(file);
	printf("%s: seed %llu, %u killed, %llu messages received by processes that lived\n",
	       well ? "passed" : "failed", (unsigned long long)seed, kills,
	       (unsigned long long)received);
	return !well;
}
