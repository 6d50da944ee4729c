/* SPDX-License-Identifier: BSD-2-Clause */
/* Users. See user.h. Users are few, so a plain list keeps them. */
#include "daemon/core/user.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/core/loop.h"

enum { LINES_BURST = 50, LINE_EVERY_MS = 200 };

struct user *user_get(struct list *users, uid_t uid)
{
	list_for_each(node, users) {
		struct user *user = container_of(node, struct user, node);

		if (user->uid == uid) {
			user->connections++;
			return user;
		}
	}
	struct user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	user->uid = uid;
	user->connections = 1;
	user->xrc_memory = -1;
	user->lines = LINES_BURST;
	user->lines_at_ms = now_ms();
	list_add_tail(users, &user->node);
	return user;
}

void user_put(struct user *user)
{
	if (--user->connections)
		return;
	list_del(&user->node);
	if (user->xrc_memory >= 0)
		close(user->xrc_memory);
	free(user);
}

bool user_may_log(struct user *user)
{
	if (!log_enabled(LOG_LEVEL_WARN))
		return false;
	uint64_t now = now_ms();
	uint64_t more = (now - user->lines_at_ms) / LINE_EVERY_MS;

	if (more) {
		user->lines = more < LINES_BURST - user->lines ? user->lines + (uint32_t)more
							       : LINES_BURST;
		user->lines_at_ms = now;
	}
	if (!user->lines) {
		user->suppressed++;
		return false;
	}
	user->lines--;
	if (user->suppressed) {
		log_warn("%u more lines because of user %u's programs were left out",
			 user->suppressed, user->uid);
		user->suppressed = 0;
	}
	return true;
}
