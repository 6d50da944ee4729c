/* SPDX-License-Identifier: BSD-2-Clause */
/* Single rows of the state machine's tables, which a simulation reaches but can't judge: the answer
 * to each message, and what a third party can't do. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cm/cm.h"

static const struct cm_path peer = {.local = {1}, .remote = {2}, .node = 1};
static const struct cm_path other_port = {.local = {4}, .remote = {5}, .node = 1};
static const struct cm_path stranger = {.local = {1}, .remote = {3}};
static const struct cm_path same_host = {.local = {1}, .remote = {2}, .on_host = true};

static struct cm cm;
static struct cm_mad sent; /* the last one */
static struct cm_path sent_by;
static int sent_count, events, last_event, last_status;
static uint32_t last_reason;
static struct cm_endpoint *passive;

static void on_send(void *arg, const struct cm_path *path, const uint8_t bytes[MAD_SIZE])
{
	(void)arg;
	sent_by = *path;
	assert_int_equal(cm_mad_decode(bytes, &sent), CM_MAD_OK);
	sent_count++;
}

static void on_event(void *arg, struct cm_endpoint *e, const struct cm_event *event)
{
	(void)arg, (void)e;
	events++;
	last_event = event->type;
	last_status = event->status;
	last_reason = event->mad ? event->mad->reason : 0;
}

static int on_request(void *arg, struct cm_endpoint *e, const struct cm_mad *mad)
{
	(void)arg;
	if (mad->service_id != 7)
		return CM_REJECT_SERVICE_ID;
	passive = e;
	return 0;
}

static const struct cm_ops ops = {.send = on_send, .event = on_event, .request = on_request};

static int set_up(void **state)
{
	const struct cm_config config = {CM_CONFIG_DEFAULT, .guid = 1, .seed = 5};

	(void)state;
	sent_count = events = 0;
	return cm_init(&cm, &config, &ops, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	cm_fini(&cm);
	return 0;
}

static void give_at(const struct cm_path *path, const struct cm_mad *mad, uint64_t now)
{
	uint8_t bytes[MAD_SIZE];

	cm_mad_encode(mad, bytes);
	cm_receive(&cm, path, bytes, now);
}

static void give(const struct cm_path *path, const struct cm_mad *mad)
{
	give_at(path, mad, 0);
}

/* Executes what is due until then; each message that this causes gets `answer`. */
static void pass_time(uint64_t until, const struct cm_mad *answer)
{
	for (uint64_t now; cm_deadline(&cm, &now) && now < until;) {
		int before = sent_count;

		cm_tick(&cm, now);
		if (answer && sent_count > before)
			give_at(&peer, answer, now);
	}
}

/* The n-th message so far, and the only one of this step. */
static void expect_sent(int count, enum cm_message message)
{
	assert_int_equal(sent_count, count);
	assert_int_equal(sent.message, message);
}

static const struct cm_mad request = {
	.message = CM_REQ, .local_id = 77, .ca_guid = 9, .qpn = 5, .mtu = 3, .service_id = 7};

static void test_repeated_request(void **state)
{
	(void)state;
	give(&peer, &request);
	assert_int_equal(sent_count, 0);
	give(&peer, &request);
	expect_sent(1, CM_MRA);
	assert_int_equal(sent.remote_id, 77);
	assert_int_equal(sent.service_timeout, 24);
	const struct cm_accept accept = {.qpn = 6};

	assert_int_equal(cm_accept(&cm, passive, &accept, 0), 0);
	expect_sent(2, CM_REP);
	give(&peer, &request);
	expect_sent(3, CM_REP);
	assert_int_equal(cm.endpoints, 1);
}

/* A peer's RTU may be lost after its MRA: the REP is repeated, and confirmed again; all that time
 * counts as one interval. */
static void test_lost_rtu_after_mra(void **state)
{
	struct cm_mad mad = {
		.message = CM_MRA, .about = CM_ABOUT_REP, .service_timeout = 24, .local_id = 77};
	const struct cm_accept accept = {.qpn = 6};
	struct cm_mad patient = request;

	(void)state;
	patient.max_retries = 15;
	patient.local_timeout = 20; /* 4.3 s */
	give(&peer, &patient);
	assert_int_equal(cm_accept(&cm, passive, &accept, 0), 0);
	expect_sent(1, CM_REP);
	uint8_t retries = passive->retries_left;

	mad.remote_id = passive->local_id;
	give(&peer, &mad);
	pass_time(60000, &mad);
	assert_int_equal(passive->state, CM_MRA_REP_RCVD);
	assert_true(sent_count > 10);
	assert_int_equal(sent.message, CM_REP);
	assert_int_equal(passive->retries_left, retries);
	/* Its time is limited: from here on the repetitions are counted. */
	pass_time(100000, NULL);
	assert_true(passive->retries_left < retries);
	mad.message = CM_RTU;
	give(&peer, &mad);
	assert_int_equal(passive->state, CM_ESTABLISHED);
}

static void test_stale(void **state)
{
	struct cm_mad again = request;

	(void)state;
	give(&peer, &request);
	again.local_id = 78;
	give(&peer, &again);
	expect_sent(1, CM_REJ);
	assert_int_equal(sent.reason, CM_REJECT_STALE);
	/* A sender that only claims to be this adapter isn't: it gets a connection of its own. */
	again.local_id = 77;
	give(&stranger, &again);
	give(&same_host, &again);
	assert_int_equal(sent_count, 1);
	assert_int_equal(cm.endpoints, 3);
}

static void test_strangers(void **state)
{
	struct cm_mad mad = {.local_id = 77};

	(void)state;
	give(&peer, &request);
	const struct cm_accept accept = {.qpn = 6};

	cm_accept(&cm, passive, &accept, 0);
	assert_int_equal(cm_establish(&cm, passive), 0);
	mad.remote_id = passive->local_id;
	mad.qpn = 6;
	for (int message = CM_MRA; message < CM_MESSAGES; message++) {
		if (message == CM_SIDR_REQ)
			continue;
		mad.message = message;
		give(&stranger, &mad);
		give(&same_host, &mad);
	}
	assert_int_equal(passive->state, CM_ESTABLISHED);
	assert_int_equal(events, 1);
	assert_int_equal(sent_count, 1);
	/* Nor can its peer, for another queue pair or connection. */
	mad.message = CM_DREQ;
	mad.qpn = 8;
	give(&peer, &mad);
	mad.qpn = 6;
	mad.local_id = 79;
	give(&peer, &mad);
	assert_int_equal(passive->state, CM_ESTABLISHED);
	mad.message = CM_LAP;
	mad.local_id = 77;
	give(&peer, &mad);
	assert_int_equal(last_event, CM_EVENT_LOAD);
	mad.message = CM_DREQ;
	give(&peer, &mad);
	assert_int_equal(last_event, CM_EVENT_DISCONNECTED);
	assert_int_equal(passive->state, CM_DREQ_RCVD);
}

static void test_unknown(void **state)
{
	static const struct {
		enum cm_message message, answer;
		uint32_t reason;
	} rows[] = {
		{CM_REP, CM_REJ, CM_REJECT_INVALID_ID},
		{CM_RTU, CM_REJ, CM_REJECT_INVALID_ID},
		{CM_DREQ, CM_DREP, 0},
		{CM_LAP, CM_APR, 1},
	};

	(void)state;
	for (int i = 0; i < 4; i++) {
		const struct cm_mad mad = {.message = rows[i].message,
					   .local_id = 4,
					   .remote_id = 8,
					   .transaction = 3};

		give(&peer, &mad);
		expect_sent(i + 1, rows[i].answer);
		assert_int_equal(sent.reason, rows[i].reason);
		assert_int_equal(sent.local_id, 8);
		assert_int_equal(sent.remote_id, 4);
		assert_int_equal(sent.transaction, 3);
	}
	for (int i = 0; i < CM_MESSAGES; i++) {
		const struct cm_mad mad = {.message = i, .local_id = 4, .remote_id = 8};

		if (i == CM_MRA || i == CM_REJ || i == CM_DREP || i == CM_APR || i == CM_SIDR_REP)
			give(&peer, &mad);
	}
	assert_int_equal(sent_count, 4);
	assert_int_equal(cm.counters.unexpected, 9);
	assert_int_equal(cm.endpoints, 0);
}

/* Establishes a connection whose REQ this side sent. */
static struct cm_endpoint *connect_to_peer(void)
{
	const struct cm_connect connect = {
		.path = peer, .service_id = 7, .qp = {.local_qpn = 4, .mtu = 3}};
	struct cm_endpoint *e = cm_open(&cm, NULL);
	struct cm_mad mad = {.message = CM_REP, .local_id = 77, .ca_guid = 9, .qpn = 5};

	assert_int_equal(cm_connect(&cm, e, &connect, 0), 0);
	mad.remote_id = e->local_id;
	give(&peer, &mad);
	assert_int_equal(cm_confirm(&cm, e), 0);
	expect_sent(2, CM_RTU);
	return e;
}

static const struct cm_mad_path other_path = {
	.local_lid = 1, .remote_lid = 2, .sl = 3, .rate = 5, .ack_timeout = 9};

/* A LAP, its answer, and what isn't an answer. */
static void test_load(void **state)
{
	(void)state;
	struct cm_endpoint *e = connect_to_peer();
	struct cm_mad mad = {.message = CM_APR,
			     .local_id = 77,
			     .remote_id = e->local_id,
			     .reason = CM_APR_IS_CURRENT};

	give(&peer, &mad); /* to no question */
	assert_int_equal(events, 1);
	for (int i = 0; i < 2; i++) {
		uint64_t first = mad.transaction;

		assert_int_equal(cm_load_alternate(&cm, e, &other_path, 0), 0);
		assert_int_equal(cm_load_alternate(&cm, e, &other_path, 0), -EINVAL);
		expect_sent(3 + i, CM_LAP);
		assert_int_equal(sent.qpn, 5);
		assert_memory_equal(&sent.alternate, &other_path, sizeof(other_path));
		assert_int_not_equal(sent.transaction, first);
		give(&peer, &mad); /* to the question before */
		assert_int_equal(events, 1 + i);
		mad.transaction = sent.transaction;
		give(&peer, &mad);
		give(&peer, &mad);
		assert_int_equal(events, 2 + i);
		assert_int_equal(last_event, CM_EVENT_LOADED);
		assert_int_equal(last_reason, CM_APR_IS_CURRENT);
	}
	assert_int_equal(e->state, CM_ESTABLISHED);
	assert_false(cm_deadline(&cm, &(uint64_t){0}));
}

/* A peer that asks for more time gets it; one that never answers ends the exchange only. */
static void test_load_unanswered(void **state)
{
	(void)state;
	struct cm_endpoint *e = connect_to_peer();
	struct cm_mad mad = {.message = CM_MRA,
			     .about = CM_ABOUT_LAP,
			     .service_timeout = 24,
			     .local_id = 77,
			     .remote_id = e->local_id};

	assert_int_equal(cm_load_alternate(&cm, e, &other_path, 0), 0);
	give(&peer, &mad);
	pass_time(60000, NULL);
	expect_sent(3, CM_LAP);
	assert_int_equal(e->lap, CM_LAP_MRA_RCVD);
	pass_time(200000, NULL);
	assert_int_equal(e->state, CM_ESTABLISHED);
	assert_int_equal(events, 2);
	assert_int_equal(last_event, CM_EVENT_LOADED);
	assert_int_equal(last_status, -ETIMEDOUT);
	assert_int_equal(sent_count, 18);
	/* The end of the connection ends the exchange without an event of its own. */
	assert_int_equal(cm_load_alternate(&cm, e, &other_path, 200000), 0);
	assert_int_equal(cm_disconnect(&cm, e, 200000), 0);
	assert_int_equal(e->lap, CM_LAP_NONE);
	assert_int_equal(sent.message, CM_DREQ);
}

/* The peer's LAP is answered once the owner does; meanwhile the peer is asked for time. */
static void test_be_loaded(void **state)
{
	const struct cm_accept accept = {.qpn = 6};
	struct cm_mad mad = {.message = CM_LAP, .local_id = 77, .qpn = 8, .transaction = 9};

	(void)state;
	give(&peer, &request);
	cm_accept(&cm, passive, &accept, 0);
	assert_int_equal(cm_establish(&cm, passive), 0);
	mad.remote_id = passive->local_id;
	mad.alternate = other_path;
	give(&peer, &mad);
	expect_sent(2, CM_APR);
	assert_int_equal(sent.reason, CM_APR_INVALID_QPN);
	mad.qpn = 6;
	for (int i = 0; i < 2; i++) {
		give(&peer, &mad);
		assert_int_equal(events, 2 + i);
		assert_int_equal(last_event, CM_EVENT_LOAD);
		give(&peer, &mad);
		expect_sent(3 + 2 * i, CM_MRA);
		assert_int_equal(sent.about, CM_ABOUT_LAP);
		assert_int_equal(cm_answer_alternate(&cm, passive, CM_APR_INVALID_LID), 0);
		expect_sent(4 + 2 * i, CM_APR);
		assert_int_equal(sent.reason, CM_APR_INVALID_LID);
		assert_int_equal(sent.transaction, 9);
		assert_int_equal(cm_answer_alternate(&cm, passive, 0), -EINVAL);
	}
	/* One that was sent before has no effect; the transactions count up over their end. */
	mad.transaction = 8;
	give(&peer, &mad);
	mad.transaction = UINT32_MAX;
	give(&peer, &mad);
	assert_int_equal(events, 3);
	expect_sent(6, CM_APR);
	mad.transaction = 0x7700000000 | 10; /* the upper half is the agent's */
	give(&peer, &mad);
	assert_int_equal(events, 4);
	mad.transaction = 9;
	give(&peer, &mad);
	expect_sent(6, CM_APR);
	/* The passive side sends none. */
	assert_int_equal(cm_load_alternate(&cm, passive, &other_path, 0), -EINVAL);
}

/* On Ethernet there are no LAPs: none is sent, and one that comes has no effect. */
static void test_load_on_ethernet(void **state)
{
	const struct cm_path ethernet = {.local = {1}, .remote = {2}};
	const struct cm_accept accept = {.qpn = 6};
	struct cm_mad mad = {.message = CM_LAP, .local_id = 77, .qpn = 6, .transaction = 9};

	(void)state;
	give(&ethernet, &request);
	cm_accept(&cm, passive, &accept, 0);
	assert_int_equal(cm_establish(&cm, passive), 0);
	mad.remote_id = passive->local_id;
	mad.alternate = other_path;
	give(&ethernet, &mad);
	expect_sent(1, CM_REP);
	assert_int_equal(events, 1);
	assert_int_equal(cm.counters.unexpected, 1);
	assert_int_equal(cm_answer_alternate(&cm, passive, CM_APR_LOADED), -EINVAL);
	passive->passive = false; /* as if it had connected */
	assert_int_equal(cm_load_alternate(&cm, passive, &other_path, 0), -EINVAL);
	mad.message = CM_APR;
	give(&ethernet, &mad);
	assert_int_equal(events, 1);
}

/* When the queue pair has migrated to other ports, the messages go between these. */
static void test_migrate(void **state)
{
	(void)state;
	struct cm_endpoint *e = connect_to_peer();
	const struct cm_mad lap = {
		.message = CM_LAP, .local_id = 77, .remote_id = e->local_id, .qpn = 3};

	cm_migrate(e); /* there is no other path */
	give(&other_port, &lap);
	expect_sent(2, CM_RTU);
	assert_int_equal(cm.counters.unexpected, 1);
	cm_set_alternate(e, &other_port);
	give(&other_port, &lap); /* the peer has migrated, this side not yet */
	expect_sent(3, CM_APR);
	assert_memory_equal(&sent_by, &peer, sizeof(peer));
	cm_migrate(e);
	give(&peer, &lap); /* it was on the way */
	expect_sent(4, CM_APR);
	assert_memory_equal(&sent_by, &other_port, sizeof(peer));
	give(&stranger, &lap);
	assert_int_equal(sent_count, 4);
	assert_int_equal(cm_disconnect(&cm, e, 0), 0);
	assert_memory_equal(&sent_by, &other_port, sizeof(peer));
	cm_migrate(e); /* back: what is repeated, too */
	pass_time(2000, NULL);
	assert_int_equal(sent_count, 7);
	assert_memory_equal(&sent_by, &peer, sizeof(peer));
}

/* 4.6 s for an answer, 16 times; repeated twice more within the first. */
static void test_no_answer(void **state)
{
	const struct cm_connect connect = {.path = peer, .service_id = 7, .qp = {.mtu = 3}};
	struct cm_endpoint *e = cm_open(&cm, NULL);
	uint64_t at = 0;

	(void)state;
	assert_int_equal(cm_connect(&cm, e, &connect, 0), 0);
	for (int i = 1; i <= 18; i++) {
		expect_sent(i, CM_REQ);
		assert_true(cm_deadline(&cm, &at));
		assert_int_equal(at, i == 1 ? 4608 / 16 : i == 2 ? 4608 / 4 : (i - 2) * 4608);
		cm_tick(&cm, at - 1);
		assert_int_equal(sent_count, i);
		cm_tick(&cm, at);
	}
	expect_sent(19, CM_REJ);
	assert_int_equal(sent.reason, CM_REJECT_TIMEOUT);
	assert_int_equal(events, 1);
	assert_int_equal(last_event, CM_EVENT_UNREACHABLE);
	assert_int_equal(e->state, CM_IDLE);
	assert_false(cm_deadline(&cm, &at));
}

/* Makes a connection, whose peer disconnects at `now`, and closes it. */
static void end_one(const struct cm_path *path, uint64_t now)
{
	const struct cm_accept accept = {.qpn = 6};
	struct cm_mad mad = {.message = CM_DREQ, .local_id = 77, .qpn = 6};

	give(path, &request);
	assert_int_equal(cm_accept(&cm, passive, &accept, 0), 0);
	assert_int_equal(cm_establish(&cm, passive), 0);
	mad.remote_id = passive->local_id;
	give_at(path, &mad, now);
	cm_close(&cm, passive, now);
	assert_int_equal(sent.message, CM_DREP);
}

/* The DREP may be lost: the peer repeats its DREQ after 4.6 s and after 9.2 s. A peer on the same
 * host can't lose it. */
static void test_needed_for_answer(void **state)
{
	(void)state;
	end_one(&same_host, 100);
	assert_int_equal(cm_needed_until(&cm), 0);
	end_one(&peer, 100);
	pass_time(5000, NULL);
	assert_int_equal(cm.endpoints, 0);
	assert_int_equal(cm_needed_until(&cm), 100 + 2 * 4608 + 4608 / 2);
}

/* The peer repeats its REQ when the REJ is lost. */
static void test_needed_for_reject(void **state)
{
	(void)state;
	give(&peer, &request);
	cm_close(&cm, passive, 100);
	expect_sent(1, CM_REJ);
	assert_int_equal(cm.endpoints, 0);
	assert_int_equal(cm_needed_until(&cm), 100 + 2 * 4608 + 4608 / 2);
}

/* A closed connection's DREQ is repeated until it is answered, or given up. */
static void test_needed_for_repeats(void **state)
{
	const struct cm_accept accept = {.qpn = 6};
	struct cm_mad mad = {.message = CM_DREP, .local_id = 77};

	(void)state;
	for (int answered = 0; answered < 2; answered++) {
		give(&peer, &request);
		assert_int_equal(cm_accept(&cm, passive, &accept, 0), 0);
		assert_int_equal(cm_establish(&cm, passive), 0);
		mad.remote_id = passive->local_id;
		assert_int_equal(cm_needed_until(&cm), 0);
		cm_close(&cm, passive, 0);
		expect_sent(answered ? 21 : 2, CM_DREQ);
		assert_int_equal(cm_needed_until(&cm), 4608 / 16 + 1);
		if (answered)
			give_at(&peer, &mad, 10);
		else
			for (uint64_t at; cm.endpoints && cm_deadline(&cm, &at);) {
				if (at < 16 * 4608)
					assert_true(cm_needed_until(&cm) > at);
				cm_tick(&cm, at);
			}
		assert_int_equal(cm_needed_until(&cm), 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_repeated_request),
		TEST(test_lost_rtu_after_mra),
		TEST(test_stale),
		TEST(test_strangers),
		TEST(test_unknown),
		TEST(test_load),
		TEST(test_load_unanswered),
		TEST(test_be_loaded),
		TEST(test_load_on_ethernet),
		TEST(test_migrate),
		TEST(test_no_answer),
		TEST(test_needed_for_answer),
		TEST(test_needed_for_reject),
		TEST(test_needed_for_repeats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
