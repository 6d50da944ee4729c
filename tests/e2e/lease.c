/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lease: which thread takes what peers send. See rig.h, and engine/lease.c.
 *
 * A polling thread doesn't nap while there are signs of work for it (engine.h): completions of its
 * own one-sided requests, and its peer's writes into its memory. Naps are counted, by a filter of
 * system calls; time isn't measured. In each round there is a sign of work, and a round has fewer
 * empty polls than the poller makes between two decisions whether to nap. So no round, however long
 * it takes, may end in a nap. Nor does a poller nap that is alone on its processor. Whether it is
 * alone is what the time says that yields take; this program yields itself instead of the kernel.
 *
 * Beside an armed CQ: messages for another CQ, which is polled, ring no doorbell; the armed CQ's
 * event comes although the thread that polls has stopped. Doorbells are counted, and the watchdog
 * is taken away, by functions that this program puts before libc's.
 *
 * A poll that gives the processor away looks at what came meanwhile before it returns: what comes
 * while the library calls sched_yield() is decided by this program, which has that call, too.
 */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include "rig.h"

/* EMPTY_POLLS poll up to three rings each: 60 are fewer than YIELD_AFTER less LEASE_AFTER.
 * They are more than LEASE_AFTER. */
enum { EMPTY_POLLS = 60, ROUNDS = 100, BURST = 5, MANY = 48, EVENTS = 20 };

/* The rounds take at least this long: many times the 1 ms after which a poller naps. */
static const double LONG_MS = 30;

static volatile sig_atomic_t naps;

static void on_nap(int number)
{
	(void)number;
	naps++;
}

/* From now on this thread's calls of nanosleep() raise SIGSYS. */
static void count_naps(struct rig *rig)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_nanosleep, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

	CHECK(rig, signal(SIGSYS, on_nap) != SIG_ERR);
	OK(rig, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(rig, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
	naps = 0;
}

/* Each yield lets another thread run for some time; or none does. */
static _Atomic bool is_alone;
static _Thread_local unsigned int yields;
/* The test in which the other end sends while this thread yields next; or NULL. */
static _Thread_local struct rig *yields_in;

__attribute__((visibility("default"))) int sched_yield(void)
{
	double begun = now_ms();
	struct rig *rig = yields_in;

	yields++;
	if (rig) {
		yields_in = NULL;
		rig_sync(rig); /* the other end sends */
		rig_sync(rig); /* it has sent */
	}
	while (!is_alone && now_ms() < begun + 0.1)
		;
	return 0;
}

static void poll_in_vain(struct end *end, int polls)
{
	struct ibv_wc wc;

	for (int i = 0; i < polls; i++)
		CHECK_EQ(end->rig, ibv_poll_cq(end->rcq, 1, &wc), 0);
}

/* Checks the counter: a thread without a sign of work naps. */
static void naps_without_work(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct patience patience = patience_of(RIG_SOON_MS);

		count_naps(rig);
		while (!naps) {
			poll_in_vain(&end, EMPTY_POLLS);
			CHECK(rig, !patience_over(&patience));
		}
	}
	rig_sync(rig);
	end_close(&end);
}

static _Thread_local unsigned int settings; /* of timers */

/* A thread that is alone on its processor doesn't nap: the program may wait for something that
 * Verbena doesn't see. (It believes that it isn't alone if the machine takes the processor from it
 * just as it yields, which is rare.) Nor does it set the watchdog so often that this takes its
 * time: a setting costs up to 20 us. */
static void alone_without_work(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		double begun = now_ms();

		is_alone = true;
		count_naps(rig);
		settings = yields = 0;
		while (now_ms() < begun + LONG_MS || yields < 1000)
			poll_in_vain(&end, EMPTY_POLLS);
		CHECK(rig, naps < 500);
		CHECK(rig, settings < 5 + 2 * (now_ms() - begun));
	}
	rig_sync(rig);
	is_alone = false;
	end_close(&end);
}

/* A thread whose own requests complete has work, although it receives no records. */
static void own_completions(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		double begun = now_ms();

		count_naps(rig);
		for (uint64_t i = 0; i < ROUNDS || now_ms() < begun + LONG_MS; i++) {
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, i, 0, 8, 0));
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
			naps = 0; /* a completion that the peer sends may be waited for asleep */
			poll_in_vain(&end, EMPTY_POLLS);
			CHECK_EQ(rig, naps, 0);
		}
	}
	rig_sync(rig);
	end_close(&end);
}

/* A writes; the completion means that the write has been counted. */
static void write_rounds(struct end *end)
{
	bool none = false, last = false;

	for (uint64_t i = 0; !last; i++) {
		OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, i, 0, 8, 0));
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
		rig_sync(end->rig);
		rig_swap(end->rig, &none, &last, sizeof(last));
	}
}

/* B polls after each write. The ends take turns by blocking: threads that yield the processor in
 * turn may starve each other on a loaded machine. */
static void poll_rounds(struct end *end)
{
	double begun = now_ms();
	bool none, last = false;

	count_naps(end->rig);
	for (uint64_t i = 1; !last; i++) {
		rig_sync(end->rig);
		poll_in_vain(end, EMPTY_POLLS);
		last = i >= ROUNDS && now_ms() >= begun + LONG_MS;
		rig_swap(end->rig, &last, &none, sizeof(last));
	}
	CHECK_EQ(end->rig, naps, 0);
}

/* The same for a thread into whose process's memory the peer writes. */
static void writes_by_the_peer(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A)
		write_rounds(&end);
	else
		poll_rounds(&end);
	rig_sync(rig);
	end_close(&end);
}

/* ------------------------------------------------------------------ beside an armed CQ */

static _Thread_local unsigned int rings;
static _Atomic bool has_no_watchdog;

/* Counts the writes of eight bytes, which is how the library rings an eventfd. */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*_Atomic next)(long, ...);
	long arg[6];
	va_list args;

	if (!next)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	rings += number == SYS_write && arg[2] == sizeof(uint64_t);
	return next(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

/* The library's timers never run once has_no_watchdog is set. */
__attribute__((visibility("default"))) int
timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
	settings++;
	return has_no_watchdog ? 0 : (int)syscall(SYS_timerfd_settime, fd, flags, new, old);
}

/* Checks the count of doorbells: a message to a process that doesn't poll rings. */
static void rings_a_sleeper(struct rig *rig)
{
	struct end end;

	if (rig->carrier != RIG_LOCAL)
		return;
	end_pair(&end, rig, NULL);
	end_warm(&end);
	if (rig->role == RIG_B) {
		OK(rig, end_recv(&end, 0, 0, 8));
		OK(rig, ibv_req_notify_cq(end.rcq, 0));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		unsigned int before = rings;

		OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 8, 0));
		CHECK(rig, rings != before);
		wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

static void *poll_and_stop(void *end)
{
	poll_in_vain(end, EMPTY_POLLS);
	return NULL;
}

/* A thread of B's takes the lease by polling the receive CQ, and ends. It is a new one, which
 * hasn't waited before, so it doesn't nap. */
static void lease_is_taken(struct end *end)
{
	pthread_t poller;

	if (end->rig->role == RIG_A)
		return;
	OK(end->rig, pthread_create(&poller, NULL, poll_and_stop, end));
	OK(end->rig, pthread_join(poller, NULL));
}

/* The first request may kick A's own engine thread, because of the QP's timer. */
static void send_silently(struct end *end)
{
	unsigned int before = 0;

	for (uint64_t i = 0; i < BURST; i++) {
		OK(end->rig, end_send(end, IBV_WR_SEND, i, 0, 8, 0));
		if (i)
			CHECK_EQ(end->rig, rings, before);
		before = rings;
	}
}

/* While one CQ is armed, messages for another, which is polled, ring no doorbell. */
static void polled_beside_an_armed_cq(struct rig *rig)
{
	struct end_options options = {.timeout = TIMEOUT_NONE};
	struct end end, armed;

	if (rig->carrier != RIG_LOCAL)
		return; /* a process doesn't ring its own doorbell for each record */
	has_no_watchdog = rig->role == RIG_B;
	end_pair(&end, rig, &options);
	end_warm(&end);
	end_pair(&armed, rig, &options);
	OK(rig, ibv_req_notify_cq(armed.rcq, 0));
	for (uint64_t round = 0; round < EVENTS; round++) {
		for (uint64_t i = 0; i < BURST && rig->role == RIG_B; i++)
			OK(rig, end_recv(&end, i, 0, 8));
		lease_is_taken(&end);
		rig_sync(rig);
		if (rig->role == RIG_A)
			send_silently(&end);
		rig_sync(rig);
		for (uint64_t i = 0; i < BURST && rig->role == RIG_B; i++)
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
		lease_is_taken(&end); /* and the acknowledgements are sent */
		rig_sync(rig);
		for (uint64_t i = 0; i < BURST && rig->role == RIG_A; i++)
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	end_close(&armed);
	end_close(&end);
}

/* A sends one message; the event of B's armed CQ comes, though B doesn't poll. */
static void one_event(struct end *end, uint64_t id)
{
	struct rig *rig = end->rig;
	struct ibv_cq *cq;
	void *context;

	if (rig->role == RIG_A) {
		OK(rig, end_send(end, IBV_WR_SEND, id, 0, 8, 0));
	} else {
		CHECK(rig, channel_readable(end->channel, RIG_SOON_MS));
		OK(rig, ibv_get_cq_event(end->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		wc_expect(end, end->rcq, id, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_A)
		wc_expect(end, end->scq, id, IBV_WC_SUCCESS);
}

static void arm(struct end *end, uint64_t id)
{
	if (end->rig->role == RIG_A)
		return;
	OK(end->rig, end_recv(end, id, 0, 8));
	OK(end->rig, ibv_req_notify_cq(end->rcq, 0));
}

/* B's thread polls one CQ while another is armed, then stops, and only a doorbell can wake its
 * process: the armed CQ's event comes. So does the next one of the CQ that was polled. */
static void event_after_the_poller_stopped(struct rig *rig)
{
	struct end end, armed;

	has_no_watchdog = has_no_watchdog || rig->role == RIG_B;
	end_pair(&end, rig, NULL);
	end_pair(&armed, rig, NULL);
	for (uint64_t i = 0; i < EVENTS; i++) {
		arm(&armed, i);
		lease_is_taken(&end);
		rig_sync(rig);
		one_event(&armed, i);
		lease_is_taken(&end);
		arm(&end, i);
		rig_sync(rig);
		one_event(&end, i);
	}
	rig_sync(rig);
	end_close(&armed);
	end_close(&end);
}

/* A thread polls one CQ while packets come, so it looks at the timers of their socket, too. Then it
 * arms another CQ and goes on polling: the engine thread sends again, and gives up, without help.
 */
static void timers_after_arming(struct rig *rig)
{
	struct end_options options = {.timeout = 10, .retry_cnt = 1};
	struct end end;

	if (rig->carrier != RIG_WIRE)
		return; /* other carriers have no such timers */
	has_no_watchdog = rig->role == RIG_B;
	end_pair(&end, rig, &options);
	end_warm(&end);
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, 0, 0, 8));
	lease_is_taken(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 8, 0));
		wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
		OK(rig, end_move(&end, IBV_QPS_RESET));
		rig_sync(rig);
	} else {
		struct patience patience = patience_of(RIG_SOON_MS);

		wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
		poll_in_vain(&end, EMPTY_POLLS);
		rig_sync(rig);
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
		OK(rig, ibv_req_notify_cq(end.scq, 0));
		while (!channel_readable(end.channel, 0)) {
			poll_in_vain(&end, EMPTY_POLLS);
			CHECK(rig, !patience_over(&patience));
		}
	}
	rig_sync(rig);
	end_close(&end);
}

/* What the peer did while a poll had given the processor away is found by that poll. A program that
 * then looks at another source of news (a disconnection, another CQ, a socket), and finds there
 * what the peer did later, has found this first, as with an adapter, whose poll doesn't yield. */
static void a_poll_looks_after_it_yielded(struct rig *rig)
{
	struct end_options options = {.timeout = TIMEOUT_NONE};
	struct end end;
	struct ibv_wc wc;

	if (rig->carrier != RIG_LOCAL)
		return; /* a message within a process completes at once; packets: the same code */
	has_no_watchdog = rig->role == RIG_B;
	end_pair(&end, rig, &options);
	end_warm(&end);
	for (uint64_t i = 0; i < EVENTS; i++) {
		if (rig->role == RIG_A) {
			rig_sync(rig);
			OK(rig, end_send(&end, IBV_WR_SEND, i, 0, 8, 0));
			rig_sync(rig);
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		} else {
			OK(rig, end_recv(&end, i, 0, 8));
			yields_in = rig;
			int n = 0;

			while (yields_in)
				n = ibv_poll_cq(end.rcq, 1, &wc);
			CHECK_EQ(rig, n, 1);
			CHECK_EQ(rig, wc.wr_id, i);
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			lease_is_taken(&end); /* and the acknowledgement is sent */
		}
		rig_sync(rig);
	}
	end_close(&end);
}

static _Atomic bool is_over;

static void *poll_for_ever(void *cq)
{
	struct ibv_wc wc;

	while (!is_over)
		ibv_poll_cq(cq, 1, &wc);
	return NULL;
}

/* A thread of B's polls one CQ for ever; the events of another come. */
static void event_beside_a_poller(struct rig *rig)
{
	struct end end, armed;
	pthread_t poller;

	end_pair(&end, rig, NULL);
	end_pair(&armed, rig, NULL);
	if (rig->role == RIG_B)
		OK(rig, pthread_create(&poller, NULL, poll_for_ever, end.rcq));
	for (uint64_t i = 0; i < EVENTS; i++) {
		arm(&armed, i);
		rig_sync(rig);
		one_event(&armed, i);
	}
	is_over = true;
	if (rig->role == RIG_B)
		OK(rig, pthread_join(poller, NULL));
	rig_sync(rig);
	end_close(&armed);
	end_close(&end);
}

static void *poll_messages(void *arg)
{
	struct end *end = arg;

	for (uint64_t i = 0; i < MANY; i++)
		wc_expect(end, end->rcq, i, IBV_WC_SUCCESS);
	return NULL;
}

/* B's thread takes A's messages from one CQ as they come, while another is armed. */
static void messages_are_polled(struct end *end)
{
	struct rig *rig = end->rig;
	pthread_t poller;

	if (rig->role == RIG_B) {
		for (uint64_t i = 0; i < MANY; i++)
			OK(rig, end_recv(end, i, 0, 8));
		OK(rig, pthread_create(&poller, NULL, poll_messages, end));
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, pthread_join(poller, NULL));
	} else {
		for (uint64_t i = 0; i < MANY; i++) {
			OK(rig, end_send(end, IBV_WR_SEND, i, 0, 8, 0));
			wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
		}
	}
	rig_sync(rig);
}

/* The same, but the thread was left the socket of packets, too, since it polled quickly. */
static void event_after_a_quick_poller(struct rig *rig)
{
	struct end end, armed;

	end_pair(&end, rig, NULL);
	end_pair(&armed, rig, NULL);
	for (uint64_t i = 0; i < EVENTS; i++) {
		arm(&armed, i);
		messages_are_polled(&end);
		one_event(&armed, i);
	}
	rig_sync(rig);
	end_close(&armed);
	end_close(&end);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"naps_without_work", naps_without_work},
		{"alone_without_work", alone_without_work},
		{"own_completions", own_completions},
		{"writes_by_the_peer", writes_by_the_peer},
		{"rings_a_sleeper", rings_a_sleeper},
		{"polled_beside_an_armed_cq", polled_beside_an_armed_cq},
		{"event_after_the_poller_stopped", event_after_the_poller_stopped},
		{"event_beside_a_poller", event_beside_a_poller},
		{"event_after_a_quick_poller", event_after_a_quick_poller},
		{"timers_after_arming", timers_after_arming},
		{"a_poll_looks_after_it_yielded", a_poll_looks_after_it_yielded},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
