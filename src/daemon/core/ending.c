/* SPDX-License-Identifier: BSD-2-Clause */
/* See ending.h. Owns the list of connections that have ended. */
#include "daemon/core/ending.h"

#include "base/clock.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/objects/xrc.h"

#define SLICE_NS 1000000ull

/* One step. False: nothing is left to be done. */
static bool ending_step(struct server *server)
{
	struct ending *ending = &server->ending;

	if (xrc_tell_one(&server->xrc))
		return true;
	if (list_empty(&ending->conns))
		return false;
	conn_free_some(container_of(ending->conns.next, struct conn, node));
	return true;
}

static bool slice_is_used(const struct ending *ending)
{
	return ending->used_ns >= SLICE_NS ||
	       (ending->steps_max && ending->steps >= ending->steps_max);
}

static bool has_work(const struct server *server)
{
	return !list_empty(&server->ending.conns) || xrc_has_to_tell(&server->xrc);
}

/* Does what is left of this turn's slice. */
static void ending_slice(struct server *server)
{
	struct ending *ending = &server->ending;
	uint64_t begin = clock_ns(), before = ending->used_ns;

	if (ending->running)
		return;
	ending->running = true;
	while (!slice_is_used(ending) && ending_step(server)) {
		ending->steps++;
		ending->used_ns = before + (clock_ns() - begin);
	}
	ending->running = false;
	if (server->cm)
		cm_service_run(server->cm);
}

/* Called by the loop at the end of each turn. */
static bool ending_turn(struct loop *loop)
{
	struct server *server = container_of(loop, struct server, loop);
	struct ending *ending = &server->ending;

	if (has_work(server)) {
		if (!list_empty(&ending->conns))
			list_add_tail(&ending->conns, list_pop(&ending->conns));
		ending_slice(server);
	}
	ending->used_ns = 0;
	ending->steps = 0;
	if (ending->waiting)
		conn_resume(server);
	return has_work(server);
}

void ending_init(struct server *server)
{
	list_init(&server->ending.conns);
	server->loop.turn = ending_turn;
}

void ending_begin(struct server *server)
{
	ending_slice(server);
}

void ending_add(struct conn *conn)
{
	struct server *server = conn->server;

	list_add_tail(server->ending.conns.next, &conn->node); /* the first one */
	conn->user->ending++;
	ending_slice(server);
}

void ending_finish(struct server *server)
{
	while (ending_step(server))
		;
	if (server->cm)
		cm_service_run(server->cm);
}

bool ending_may_help(struct conn *conn, bool anybody)
{
	struct server *server = conn->server;

	if (anybody ? list_empty(&server->ending.conns) : !conn->user->ending)
		return false;
	if (!conn->waits && conn->postponed)
		server->ending.waiting++;
	conn->waits = true;
	return true;
}
