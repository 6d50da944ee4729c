/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_share.h. Owns each user's memory file. */
#include "daemon/objects/xrc_share.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/memory.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/objects/xrc.h"
#include "shm/xrc_shared.h"

/* ------------------------------------------------------------------ places */

static bool place_mark(struct xrc *xrc, uint32_t place)
{
	uint64_t bit = 1ull << place % 64, *word = &xrc->places[place / 64];

	if (*word & bit)
		return false;
	*word |= bit;
	return true;
}

uint32_t xrc_place_take(struct xrc *xrc)
{
	for (uint32_t i = 0; i < XRC_SHARED_PLACES; i++) {
		uint32_t place = xrc->next_place++ % XRC_SHARED_PLACES;

		if (place_mark(xrc, place))
			return place;
	}
	return UINT32_MAX;
}

uint32_t xrc_place_again(struct xrc *xrc, uint32_t place)
{
	if (place < XRC_SHARED_PLACES && place_mark(xrc, place))
		return place;
	return xrc_place_take(xrc);
}

void xrc_place_give(struct xrc *xrc, const struct user *user, uint32_t place)
{
	if (place >= XRC_SHARED_PLACES)
		return;
	xrc->places[place / 64] &= ~(1ull << place % 64);
	/* A place that stays as it was is recognized by its epoch; only its memory isn't freed. */
	if (user->xrc_memory >= 0)
		(void)fallocate(user->xrc_memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)(place * sizeof(struct xrc_shared)),
				sizeof(struct xrc_shared));
}

/* ------------------------------------------------------------------ commands */

/* Replies with a copy of `fd`, because descriptors in a reply are closed after sending. */
static int give_copy(struct request *request, int fd)
{
	int copy = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	if (copy < 0)
		return -errno;
	request->reply_fds[request->reply_fd_count++] = copy;
	return 0;
}

int command_xrc_memory(struct request *request, void *response)
{
	struct user *user = request->conn->user;

	(void)response;
	if (user->xrc_memory < 0) {
		int fd = memory_make("verbena-xrc", XRC_SHARED_BYTES);

		if (fd < 0)
			return fd;
		user->xrc_memory = fd;
	}
	return give_copy(request, user->xrc_memory);
}

/* All processes of the user bring the same file; the first one's is kept. */
int command_xrc_memory_returns(struct request *request, void *response)
{
	struct user *user = request->conn->user;

	(void)response;
	if (request->fds[0] < 0 || !memory_is_shared(request->fds[0], XRC_SHARED_BYTES))
		return -EINVAL;
	if (user->xrc_memory < 0) {
		user->xrc_memory = request->fds[0];
		request->fds[0] = -1;
	}
	return 0;
}

int command_xrc_socket(struct request *request, void *response)
{
	const struct proto_xrc_socket *body = request->body;
	const struct process *process = request->conn->process;
	struct server *server = process->server;

	(void)response;
	if (body->reserved || body->slot >= LIMIT_SLOTS || body->slot == process->slot ||
	    xrc_dispatcher(server, body->slot) != process->slot)
		return -EINVAL;
	return give_copy(request,
			 udp_slots_inherited(&server->wire, body->slot, process->user->uid));
}
