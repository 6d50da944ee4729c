/* SPDX-License-Identifier: BSD-2-Clause */
/* Users. See user.h. Users are few, so a plain list keeps them. */
#include "daemon/core/user.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/core/loop.h"
#include "proto/limits.h"

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

static void user_free_unused(struct user *user)
{
	if (user->connections || user->ending)
		return;
	list_del(&user->node);
	if (user->xrc_memory >= 0)
		close(user->xrc_memory);
	free(user);
}

void user_put(struct user *user)
{
	user->connections--;
	user_free_unused(user);
}

void user_put_ended(struct user *user)
{
	user->ending--;
	user_free_unused(user);
}

static const struct {
	const char *name;
	uint32_t size;
} pool_table[POOL_KINDS] = {
	[POOL_GROUPS] = {"multicast groups", LIMIT_MCAST_GROUPS},
	[POOL_ATTACHMENTS] = {"attachments to groups", LIMIT_MCAST_ATTACHED},
	[POOL_TARGETS] = {"XRC target queue pairs", LIMIT_XRC_TARGETS},
	[POOL_FLOWS] = {"flow rules", LIMIT_FLOWS},
};

uint32_t pool_size(enum pool_kind kind)
{
	return pool_table[kind].size;
}

const char *pool_name(enum pool_kind kind)
{
	return pool_table[kind].name;
}

bool share_allows(const struct user *user, uint32_t all, uint32_t others, uint32_t own)
{
	if (user->uid == 0 || user->uid == geteuid())
		return others + own < all;
	return others < all && own + 1 <= (all - others + 1) / 2;
}

bool pool_allows(const struct pools *pools, const struct user *user, enum pool_kind kind)
{
	uint32_t own = user->taken[kind];

	return share_allows(user, pool_table[kind].size, pools->taken[kind] - own, own);
}

void pool_take(struct pools *pools, struct user *user, enum pool_kind kind)
{
	pools->taken[kind]++;
	user->taken[kind]++;
}

void pool_give(struct pools *pools, struct user *user, enum pool_kind kind)
{
	pools->taken[kind]--;
	user->taken[kind]--;
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
