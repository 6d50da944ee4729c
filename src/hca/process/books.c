/* SPDX-License-Identifier: BSD-2-Clause */
/* The books. See books.h. The lists change under hca.lock; entries are readers of hca.books. */
#include "hca/process/books.h"

#include <errno.h>

#include "base/mutex.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"

static _Thread_local unsigned int depth __attribute__((tls_model("initial-exec")));

/* Not analysed, nor is books_leave(): a thread takes the lock with the first of its entries. */
void books_enter(struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (!depth++)
		rwlock_read(&hca->books);
}

void books_leave(struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (!--depth)
		rwlock_give(&hca->books);
}

void books_add(struct context *context, enum held_kind kind, struct list *held)
{
	mutex_take(&context->hca->lock);
	list_add_tail_whole(&context->held[kind], held);
	mutex_give(&context->hca->lock);
}

void books_drop(struct context *context, struct list *held)
{
	mutex_take(&context->hca->lock);
	list_del_whole(held);
	mutex_give(&context->hca->lock);
}

/* ------------------------------------------------------------------ commands */

static void command_begin(void *owner)
{
	books_enter(owner);
}

static void command_end(void *owner)
{
	books_leave(owner);
}

/* A command found the daemon gone, within its entry: the entry is interrupted for the return. Not
 * analysed: the lock is the entry's. */
static int command_daemon_lost(void *owner) NO_THREAD_SAFETY_ANALYSIS
{
	struct hca *hca = owner;
	uint32_t seen = hca->generation;

	rwlock_give(&hca->books);
	int err = return_to_daemon(hca, seen, true);

	rwlock_read(&hca->books);
	return err;
}

static const struct daemon_owner owner_calls = {
	.enter = command_begin, .leave = command_end, .lost = command_daemon_lost};

void books_own(struct hca *hca, struct daemon_conn *conn)
{
	conn->owner = hca;
	conn->owner_calls = &owner_calls;
}

int books_open_context(struct hca *hca, struct context *context, const char *node,
		       uint32_t *num_comp_vectors)
{
	books_enter(hca);
	int err = daemon_context_open(&context->conn, node, hca->cookie, context->token,
				      num_comp_vectors);

	/* -ESTALE: a daemon that doesn't know this process, because it is new. */
	if ((err == -EIO || err == -ESTALE) && !command_daemon_lost(hca))
		err = daemon_context_open(&context->conn, node, hca->cookie, context->token,
					  num_comp_vectors);
	if (!err)
		books_own(hca, &context->conn);
	books_leave(hca);
	return err;
}
