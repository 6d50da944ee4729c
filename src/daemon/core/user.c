/* SPDX-License-Identifier: BSD-2-Clause */
/* Users. See user.h. Users are few, so a plain list keeps them. */
#include "daemon/core/user.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/core/loop.h"
#include "proto/limits.h"

enum { LINES_BURST = 50, LINE_EVERY_MS = 200 };

/* Whether the user may cause as many log lines as one that has just come. */
static bool user_lines_are_full(const struct user *user)
{
	return user->lines + (now_ms() - user->lines_at_ms) / LINE_EVERY_MS >= LINES_BURST;
}

/* A user without connections is kept while its log lines count: a program that connects anew for
 * each line would otherwise have no limit. */
static void user_free_unused(struct user *user)
{
	if (user->connections || user->ending)
		return;
	if (user->xrc_memory >= 0)
		close(user->xrc_memory);
	user->xrc_memory = -1;
	if (!user_lines_are_full(user))
		return;
	list_del(&user->node);
	free(user);
}

static void users_forget(struct list *users)
{
	for (struct list *node = users->next, *next; node != users; node = next) {
		next = node->next;
		user_free_unused(container_of(node, struct user, node));
	}
}

struct user *user_get(struct list *users, uid_t uid)
{
	list_for_each(node, users) {
		struct user *user = container_of(node, struct user, node);

		if (user->uid == uid) {
			user->connections++;
			return user;
		}
	}
	users_forget(users);
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
	[POOL_FILES] = {"device memory and event channels of the CM", 0},
};

uint32_t pool_size(const struct pools *pools, enum pool_kind kind)
{
	return kind == POOL_FILES ? pools->files : pool_table[kind].size;
}

const char *pool_name(enum pool_kind kind)
{
	return pool_table[kind].name;
}

static bool user_is_trusted(const struct user *user)
{
	return user->uid == 0 || user->uid == geteuid();
}

bool share_allows(const struct user *user, uint32_t all, uint32_t others, uint32_t own)
{
	if (user_is_trusted(user))
		return others + own < all;
	return others < all && own + 1 <= (all - others + 1) / 2;
}

bool pool_allows(const struct pools *pools, const struct user *user, enum pool_kind kind)
{
	uint32_t own = user->taken[kind];

	if (kind == POOL_FILES && user_is_trusted(user))
		return true;
	return share_allows(user, pool_size(pools, kind), pools->taken[kind] - own, own);
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
