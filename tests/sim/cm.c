/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager's state machine under a simulated network: two hosts whose programs
 * connect, accept, reject, confirm, disconnect and close at random, over a network that loses,
 * repeats and reorders. One seed determines one run.
 *
 * Checks: an endpoint gets only events that may follow one another, each at most once; an endpoint
 * that waits for an outcome, also that of a LAP, gets its own, although a listener's program may
 * be deaf for a while, so that its requests find no room; a LAP that comes late, after its
 * successor, isn't loaded; both ends of a connection know the same queue pairs; a connection that
 * one side ends, ends on the other; nothing times out, as at most one packet in five is lost; when
 * all endpoints are closed, no state is left.
 *
 * At the end all programs of one host close their endpoints, and this host's daemon leaves as soon
 * as cm_needed_until() allows. At most one packet in a hundred is lost in that phase, and still
 * nothing may time out on the other host, and no connection may stay there.
 *
 * Its options are in seeds.h.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cm/cm.h"
#include "seeds.h"

enum { USERS_MAX = 128, FLIGHT_MAX = 512, CONNECTS = 24, LASTING = 12, LISTENED = 7 };

/* A program's side of an endpoint. */
struct user {
	struct cm_endpoint *e; /* NULL: closed */
	int host;
	bool passive, sidr;
	bool answered; /* passive: accepted */
	bool ended;    /* it disconnected */
	bool ends;     /* it closes the endpoint at its next action */
	bool outcome;  /* its outcome was reported */
	int got[CM_EVENTS];
	uint32_t asked; /* the path that its peer's LAP asks for; 0: none is to be answered */
	uint32_t loads; /* the path for which it sent a LAP; 0: it waits for no outcome */
	uint32_t path;	/* the last one that it sent a LAP for, or was asked for; they count up */
	uint32_t qpn;
	uint64_t act_at; /* when it acts next; 0: it waits for an event */
};

struct flight {
	uint64_t at;
	int to;
	struct cm_path path;
	uint8_t mad[MAD_SIZE];
	bool used;
};

static struct {
	uint64_t seed, random, now;
	bool verbose, calm;
	uint32_t lose, repeat, slow;	      /* packets of a thousand */
	uint64_t deaf_from[2], deaf_until[2]; /* when each host's listener takes no request */
	struct cm cm[2];
	int leaving;  /* the host whose daemon leaves once no program uses it; -1: none */
	bool lasting; /* programs don't disconnect */
	bool left;    /* that daemon has left: `cm` is empty, and packets to it are lost */
	struct user user[USERS_MAX];
	int users, connects;
	struct flight flight[FLIGHT_MAX];
	uint32_t next_qpn;
	uint64_t connections, events, paths, unanswered;
} sim;

static void broken(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void broken(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "seed %llu, at %llu ms: ", (unsigned long long)sim.seed,
		(unsigned long long)sim.now);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

#define HOLD(condition, ...)                 \
	do {                                 \
		if (!(condition))            \
			broken(__VA_ARGS__); \
	} while (0)

static uint32_t below(uint32_t limit)
{
	sim.random = index_mix(sim.random + 0x9e3779b97f4a7c15ull);
	return (uint32_t)((sim.random >> 32) % limit);
}

/* ------------------------------------------------------------------ the network */

static void put_in_flight(int to, const struct cm_path *path, const uint8_t *mad)
{
	for (int i = 0; i < FLIGHT_MAX; i++) {
		struct flight *f = &sim.flight[i];

		if (f->used)
			continue;
		*f = (struct flight){.used = true, .to = to, .path = *path};
		f->at = sim.now + 1 + (below(1000) < sim.slow ? below(9000) : below(3));
		memcpy(f->path.local, path->remote, 16);
		memcpy(f->path.remote, path->local, 16);
		memcpy(f->mad, mad, MAD_SIZE);
		return;
	}
	broken("the network is full: somebody sends without end");
}

static void on_send(void *arg, const struct cm_path *path, const uint8_t *bytes)
{
	int from = arg == &sim.cm[1];
	bool lost = below(1000) < sim.lose;
	struct cm_mad mad;

	HOLD(cm_mad_decode(bytes, &mad) == CM_MAD_OK, "host %d sends what isn't a message", from);
	if (sim.verbose)
		printf("%8llu  %d -> %d  %s %08x %08x%s\n", (unsigned long long)sim.now, from,
		       !from, cm_message_name(mad.message), mad.local_id, mad.remote_id,
		       lost ? "  (lost)" : "");
	if (!lost)
		put_in_flight(!from, path, bytes);
	if (below(1000) < sim.repeat)
		put_in_flight(!from, path, bytes);
}

/* ------------------------------------------------------------------ programs */

static struct user *add_user(int host, bool passive, bool sidr)
{
	HOLD(sim.users < USERS_MAX, "too many connections: a request is told again and again");
	struct user *u = &sim.user[sim.users++];

	*u = (struct user){.host = host, .passive = passive, .sidr = sidr, .qpn = ++sim.next_qpn};
	return u;
}

static void act_soon(struct user *u)
{
	u->act_at = sim.now + 1 + (below(8) ? below(50) : below(30000));
}

/* Whether the listener's backlog is full: now and then, for a part of the peer's patience (74 s).
 */
static bool is_deaf(int host)
{
	enum { DEAF_MS = 20000, PAUSE_MS = 100000 };

	if (!sim.calm && sim.now >= sim.deaf_from[host] && !below(8)) {
		sim.deaf_until[host] = sim.now + below(DEAF_MS);
		sim.deaf_from[host] = sim.deaf_until[host] + PAUSE_MS;
	}
	return sim.now < sim.deaf_until[host];
}

static int on_request(void *arg, struct cm_endpoint *e, const struct cm_mad *mad)
{
	int host = arg == &sim.cm[1];

	if (mad->service_id != LISTENED)
		return mad->message == CM_REQ ? CM_REJECT_SERVICE_ID : CM_SIDR_UNSUPPORTED;
	if (is_deaf(host)) {
		sim.unanswered += mad->message == CM_REQ;
		return mad->message == CM_REQ ? -1 : CM_SIDR_REJECT;
	}
	struct user *u = add_user(host, true, mad->message == CM_SIDR_REQ);

	u->e = e;
	e->owner = u;
	act_soon(u);
	return 0;
}

static void check_pair(const struct user *u)
{
	const struct cm_endpoint *e = u->e;

	for (int i = 0; i < sim.users; i++) {
		const struct cm_endpoint *o = sim.user[i].e;

		if (!o || sim.user[i].host == u->host || o->local_id != e->remote_id ||
		    o->remote_id != e->local_id)
			continue;
		HOLD(o->qp.local_qpn == e->qp.remote_qpn && e->qp.local_qpn == o->qp.remote_qpn,
		     "two ends don't know one another's queue pairs");
		HOLD(o->qp.local_psn == e->qp.remote_psn && e->qp.local_psn == o->qp.remote_psn,
		     "two ends don't agree on where to begin");
		HOLD(o->qp.initiator_depth == e->qp.responder_resources || !e->passive,
		     "two ends don't agree on READs");
		return;
	}
}

/* Whether the event may come now. */
static bool fits(const struct user *u, enum cm_event_type type)
{
	bool over = u->got[CM_EVENT_REJECTED] || u->got[CM_EVENT_UNREACHABLE] ||
		    u->got[CM_EVENT_SIDR_REP];

	if ((u->got[type] && type != CM_EVENT_LOAD && type != CM_EVENT_LOADED) ||
	    u->got[CM_EVENT_TIMEWAIT_EXIT])
		return false;
	switch (type) {
	case CM_EVENT_REP:
		return !u->passive && !u->sidr && !over;
	case CM_EVENT_ESTABLISHED:
		return u->passive && u->answered && !over && !u->got[CM_EVENT_DISCONNECTED];
	case CM_EVENT_REJECTED:
	case CM_EVENT_UNREACHABLE:
		return !over && !u->got[CM_EVENT_ESTABLISHED] && !u->got[CM_EVENT_DISCONNECTED];
	case CM_EVENT_DISCONNECTED:
		return !over && (u->passive ? u->answered : u->got[CM_EVENT_REP]);
	case CM_EVENT_TIMEWAIT_EXIT:
		return u->got[CM_EVENT_DISCONNECTED] || u->got[CM_EVENT_REJECTED];
	case CM_EVENT_SIDR_REP:
		return !u->passive && u->sidr && !over;
	case CM_EVENT_LOAD: /* perhaps again */
		return u->passive && u->got[CM_EVENT_ESTABLISHED] && !u->asked &&
		       !u->got[CM_EVENT_DISCONNECTED];
	case CM_EVENT_LOADED:
		return u->loads && !u->got[CM_EVENT_DISCONNECTED];
	case CM_EVENTS:
		break;
	}
	return false;
}

/* What each side answers when it is asked for this path. */
static enum cm_apr_status answer_for(uint32_t path)
{
	return path % 3 ? CM_APR_LOADED : CM_APR_REJECTED;
}

static void on_path_event(struct user *u, const struct cm_event *event)
{
	if (event->type == CM_EVENT_LOAD) {
		u->asked = event->mad->alternate.remote_lid;
		HOLD(u->asked, "a LAP without its path");
		HOLD(u->asked >= u->path, "path %u is to be loaded after path %u", u->asked,
		     u->path);
		u->path = u->asked;
	}
	if (event->type == CM_EVENT_LOADED) {
		HOLD(event->mad->reason == answer_for(u->loads),
		     "the answer to the LAP is another path's");
		u->loads = 0;
		sim.paths++;
	}
}

static void on_event(void *arg, struct cm_endpoint *e, const struct cm_event *event)
{
	struct user *u = e->owner;

	HOLD(u && u->e == e && arg == &sim.cm[u->host], "an event for nobody");
	if (sim.verbose)
		printf("%8llu  user %d of host %d: event %d, status %d\n",
		       (unsigned long long)sim.now, (int)(u - sim.user), u->host, event->type,
		       event->status);
	HOLD(fits(u, event->type), "user %d: event %d can't be now", (int)(u - sim.user),
	     event->type);
	HOLD(event->status != -ETIMEDOUT,
	     "user %d: the peer was there, and most packets arrive, but it timed out",
	     (int)(u - sim.user));
	u->got[event->type]++;
	u->outcome = true;
	sim.events++;
	on_path_event(u, event);
	if (event->type == CM_EVENT_ESTABLISHED || event->type == CM_EVENT_REP)
		check_pair(u);
	if (event->type == CM_EVENT_ESTABLISHED)
		sim.connections++;
	/* Some programs react inside the event's callback. */
	if (!below(4)) {
		if (event->type == CM_EVENT_REP)
			HOLD(!cm_confirm(&sim.cm[u->host], e), "can't confirm");
		if (event->type == CM_EVENT_DISCONNECTED)
			cm_disconnect(&sim.cm[u->host], e, sim.now);
		if (event->type == CM_EVENT_REJECTED && !below(2)) {
			u->e = NULL;
			cm_close(&sim.cm[u->host], e, sim.now);
			return;
		}
	}
	act_soon(u);
}

static const struct cm_ops ops = {.send = on_send, .event = on_event, .request = on_request};

static void begin_one(void)
{
	int host = (int)below(2);
	bool sidr = !below(4);
	struct user *u = add_user(host, false, sidr);
	struct cm *cm = &sim.cm[host];
	struct cm_connect c = {
		.path = {.local = {[15] = (uint8_t)(host + 1)},
			 .remote = {[15] = (uint8_t)(2 - host)},
			 .node = 1},
		.service_id = below(8) ? LISTENED : 8,
		.qp = {.local_qpn = u->qpn,
		       .local_psn = u->qpn * 3,
		       .responder_resources = 4,
		       .initiator_depth = 4,
		       .mtu = 3},
	};

	u->e = cm_open(cm, u);
	HOLD(u->e, "no memory");
	int err = sidr ? cm_sidr_request(cm, u->e, &c.path, c.service_id, NULL, sim.now)
		       : cm_connect(cm, u->e, &c, sim.now);

	HOLD(!err, "can't connect: %d", err);
	if (!below(10)) /* gives up waiting */
		u->act_at = sim.now + 1 + below(20000);
}

static void close_user(struct user *u)
{
	struct cm_endpoint *e = u->e;

	u->e = NULL;
	cm_close(&sim.cm[u->host], e, sim.now);
}

static void answer_request(struct user *u)
{
	struct cm *cm = &sim.cm[u->host];
	const struct cm_accept accept = {.qpn = u->qpn,
					 .psn = u->qpn * 3,
					 .responder_resources = u->e->qp.responder_resources,
					 .initiator_depth = u->e->qp.initiator_depth};
	uint32_t choice = below(10);

	if (choice == 0)
		close_user(u);
	else if (u->sidr)
		cm_sidr_answer(cm, u->e, choice > 2 ? CM_SIDR_SUCCESS : CM_SIDR_REJECT, 1, 2, NULL,
			       sim.now);
	else if (choice < 3)
		cm_reject(cm, u->e, CM_REJECT_CONSUMER, NULL, sim.now);
	else
		u->answered = !cm_accept(cm, u->e, &accept, sim.now);
	if (u->e && !u->answered)
		act_soon(u);
}

/* Answers the peer's LAP, or sends one. Whether it did. */
static bool act_on_paths(struct user *u)
{
	struct cm_mad_path path = {0};

	if (u->asked) {
		HOLD(!cm_answer_alternate(&sim.cm[u->host], u->e, answer_for(u->asked)),
		     "can't answer a LAP");
		u->asked = 0;
		act_soon(u);
		return true;
	}
	if (u->passive || u->loads || sim.leaving >= 0 || below(3))
		return false;
	path.remote_lid = u->path += 1 + below(3);
	HOLD(!cm_load_alternate(&sim.cm[u->host], u->e, &path, sim.now), "can't send a LAP");
	u->loads = path.remote_lid;
	return true;
}

/* The endpoint's time has come: does something that its state allows, or closes it. */
static void act(struct user *u)
{
	struct cm *cm = &sim.cm[u->host];

	u->act_at = 0;
	if (!u->e)
		return;
	if (u->ends) {
		close_user(u);
		return;
	}
	if (u->e->state == CM_ESTABLISHED && (act_on_paths(u) || sim.lasting))
		return;
	switch (u->e->state) {
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_SIDR_REQ_RCVD:
		answer_request(u);
		return;
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		if (below(8))
			cm_confirm(cm, u->e);
		else
			close_user(u);
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_RCVD:
		if (below(3)) {
			u->ended = true;
			HOLD(!cm_disconnect(cm, u->e, sim.now), "can't disconnect");
		} else {
			close_user(u);
		}
		break;
	case CM_REP_SENT:
		if (!below(8))
			cm_establish(cm, u->e); /* data arrived before the RTU */
		else if (!below(8))
			close_user(u);
		return; /* waits for the RTU or the timeout */
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
		if (below(4))
			return; /* waits for the remaining events */
				/* fall through */
	default:
		close_user(u);
		return;
	}
	if (u->e && below(2))
		act_soon(u);
}

/* ------------------------------------------------------------------ the clock */

/* When the daemon that is leaving may do so. False: never (yet). */
static bool leaves_at(uint64_t *at)
{
	if (sim.leaving < 0 || sim.left)
		return false;
	for (int i = 0; i < sim.users; i++)
		if (sim.user[i].host == sim.leaving && sim.user[i].e)
			return false;
	*at = cm_needed_until(&sim.cm[sim.leaving]);
	return true;
}

static bool earliest(uint64_t *at)
{
	uint64_t first = UINT64_MAX, deadline;

	for (int i = 0; i < FLIGHT_MAX; i++)
		if (sim.flight[i].used && sim.flight[i].at < first)
			first = sim.flight[i].at;
	for (int i = 0; i < sim.users; i++)
		if (sim.user[i].act_at && sim.user[i].act_at < first)
			first = sim.user[i].act_at;
	for (int host = 0; host < 2; host++)
		if (cm_deadline(&sim.cm[host], &deadline) && deadline < first)
			first = deadline;
	if (leaves_at(&deadline) && deadline < first)
		first = deadline;
	*at = first;
	return first != UINT64_MAX;
}

static void leave_when_allowed(void)
{
	uint64_t at;

	if (!leaves_at(&at) || at > sim.now)
		return;
	if (sim.verbose)
		printf("%8llu  host %d's daemon leaves\n", (unsigned long long)sim.now,
		       sim.leaving);
	cm_fini(&sim.cm[sim.leaving]);
	sim.cm[sim.leaving] = (struct cm){0};
	sim.left = true;
}

static void step(void)
{
	for (int i = 0; i < FLIGHT_MAX; i++) {
		struct flight f = sim.flight[i];

		if (!f.used || f.at > sim.now)
			continue;
		sim.flight[i].used = false;
		if (!sim.left || f.to != sim.leaving)
			cm_receive(&sim.cm[f.to], &f.path, f.mad, sim.now);
	}
	for (int i = 0; i < sim.users; i++)
		if (sim.user[i].act_at && sim.user[i].act_at <= sim.now)
			act(&sim.user[i]);
	for (int host = 0; host < 2; host++)
		cm_tick(&sim.cm[host], sim.now);
	leave_when_allowed();
}

/* Runs until no timer or packet is left. */
static void settle(void)
{
	const uint64_t limit = sim.now + 3600 * 1000;
	uint64_t at;

	while (earliest(&at)) {
		HOLD(at < limit, "an hour, and it isn't quiet");
		if (at > sim.now)
			sim.now = at;
		step();
	}
}

/* ------------------------------------------------------------------ a run */

/* No event comes any more: an endpoint that still waits has lost its outcome. */
static void check_outcomes(void)
{
	for (int i = 0; i < sim.users; i++) {
		const struct user *u = &sim.user[i];

		if (!u->e)
			continue;
		enum cm_state state = u->e->state;

		HOLD(u->passive || u->outcome, "user %d connected and heard nothing", i);
		HOLD(state == CM_IDLE || state == CM_REQ_RCVD || state == CM_MRA_REQ_SENT ||
			     state == CM_SIDR_REQ_RCVD || state == CM_REP_RCVD ||
			     state == CM_MRA_REP_SENT || state == CM_ESTABLISHED ||
			     state == CM_DREQ_RCVD,
		     "user %d waits for ever: %s", i, cm_state_name(state));
		HOLD(!u->ended || u->got[CM_EVENT_DISCONNECTED],
		     "user %d disconnected and heard nothing", i);
		HOLD(state != CM_ESTABLISHED || !u->loads, "user %d's LAP has no outcome", i);
		HOLD(!u->answered || state == CM_ESTABLISHED || u->outcome,
		     "user %d accepted and heard nothing", i);
	}
}

/* Checks that both ends of an established connection are established. */
static void check_ends(void)
{
	for (int i = 0; i < sim.users; i++) {
		const struct user *u = &sim.user[i];
		bool found = false;

		if (!u->e || u->e->state != CM_ESTABLISHED)
			continue;
		for (int j = 0; j < sim.users && !found; j++) {
			const struct cm_endpoint *o = sim.user[j].e;

			found = o && o->local_id == u->e->remote_id && o->state == CM_ESTABLISHED &&
				sim.user[j].host != u->host;
		}
		HOLD(found, "user %d is connected with nobody", i);
	}
}

/* Makes connections that last until sim.leaving is set. */
static void connect_to_last(void)
{
	sim.lasting = true;
	for (int i = 0; i < LASTING; i++)
		begin_one();
	settle();
}

/* The programs of one host end, about when those of the other disconnect, and its daemon leaves. */
static void leave(void)
{
	int host = (int)below(2);

	sim.lose = sim.calm ? 0 : below(10);
	sim.leaving = host;
	sim.lasting = false;
	for (int i = 0; i < sim.users; i++) {
		struct user *u = &sim.user[i];

		u->ends = u->host == host;
		if (!u->e)
			continue;
		if (u->ends)
			u->act_at = sim.now + 1 + below(20);
		else if (u->e->state == CM_ESTABLISHED && below(4))
			u->act_at = sim.now + 1 + below(20);
	}
	settle();
	HOLD(sim.left, "host %d's daemon doesn't leave", host);
	check_outcomes();
	check_ends();
}

static void run(uint64_t seed, bool verbose)
{
	uint64_t connections = sim.connections, events = sim.events, paths = sim.paths;
	uint64_t unanswered = sim.unanswered;

	memset(&sim, 0, sizeof(sim));
	sim.seed = sim.random = seed;
	sim.verbose = verbose;
	sim.connections = connections;
	sim.events = events;
	sim.paths = paths;
	sim.unanswered = unanswered;
	sim.leaving = -1;
	sim.calm = seed % 4 == 0;
	sim.lose = sim.calm ? 0 : below(200);
	sim.repeat = sim.calm ? 0 : below(300);
	sim.slow = sim.calm ? 0 : below(200);
	for (int host = 0; host < 2; host++) {
		const struct cm_config config = {CM_CONFIG_DEFAULT, .guid = (uint64_t)host + 1,
						 .seed = seed + (uint64_t)host};

		HOLD(!cm_init(&sim.cm[host], &config, &ops, &sim.cm[host]), "no memory");
	}
	for (int i = 0; i < CONNECTS; i++) {
		uint64_t at;

		begin_one();
		for (uint32_t n = below(20); n && earliest(&at); n--) {
			sim.now = at > sim.now ? at : sim.now;
			step();
		}
	}
	settle();
	check_outcomes();
	check_ends();
	connect_to_last();
	leave();
	for (int i = 0; i < sim.users; i++)
		if (sim.user[i].e)
			close_user(&sim.user[i]);
	settle();
	for (int host = 0; host < 2; host++) {
		HOLD(!sim.cm[host].endpoints && !sim.cm[host].by_id.count &&
			     !sim.cm[host].by_peer.count && !sim.cm[host].by_qpn.count,
		     "host %d has %u endpoints left", host, sim.cm[host].endpoints);
		cm_fini(&sim.cm[host]);
	}
}

static bool totals_print(void)
{
	printf("%llu connections, %llu events, %llu alternate paths, %llu requests without room\n",
	       (unsigned long long)sim.connections, (unsigned long long)sim.events,
	       (unsigned long long)sim.paths, (unsigned long long)sim.unanswered);
	return sim.connections && sim.events && sim.paths && sim.unanswered;
}

int main(int argc, char **argv)
{
	static const struct seeds seeds = {"cm_sim", run, totals_print};

	return seeds_main(argc, argv, &seeds);
}
