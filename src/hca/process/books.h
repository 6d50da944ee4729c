/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The books: what this process holds at the daemon, so that it can tell the next daemon when this
 * one is gone (return.c).
 *
 * Every object that has a handle is on its context's list of its kind. Whoever makes or ends one
 * asks the daemon and changes the list within one *entry* (books_enter to books_leave); many
 * threads may have one at a time. Returning needs that nobody has: so the lists and the daemon
 * agree then, and an object that is being made or ended is wholly there or not at all.
 * An entry may be nested. No lock of hca.h's list may be held when the outermost one begins, except
 * the public mutex of a CQ and channel.first.
 *
 * A command that finds the daemon gone returns to the next one and is sent again, within its entry
 * (handles stay the same, so what it names is still right).
 */
#ifndef VERBENA_HCA_PROCESS_BOOKS_H
#define VERBENA_HCA_PROCESS_BOOKS_H

#include "hca/process/context.h"

struct hca;

void books_enter(struct hca *hca);
void books_leave(struct hca *hca);

/* Within an entry. */
void books_add(struct context *context, enum held_kind kind, struct list *held);
void books_drop(struct context *context, struct list *held);

/* Commands over this connection are entries, and return to the next daemon. */
void books_own(struct hca *hca, struct daemon_conn *conn);

/* Opens a context's connection; returns to the next daemon if need be. As daemon_context_open(). */
int books_open_context(struct hca *hca, struct context *context, const char *node,
		       uint32_t *num_comp_vectors);

/*
 * Attaches to the next daemon (starts it when there is none, if it may) with all that is held.
 * `seen`: the generation that was lost; another thread may have returned meanwhile. 0; -errno, said
 * in the log.
 */
int return_to_daemon(struct hca *hca, uint32_t seen, bool may_start);

/*
 * The daemon is gone (hca.lost): the control thread watches for the next one and joins it; with
 * `start` it starts one. Doesn't wait.
 */
void return_seek(struct hca *hca, bool start);
/* Something happened in the run-time directory, which is watched. Engine thread. */
void return_watched(struct hca *hca);

/* The control thread's part: what return_seek() asked for, if it did. */
void return_sought(struct hca *hca);
/*
 * A wish for a link found the daemon gone, and is WISHED again: the next daemon is started. Not
 * before the engine thread has taken what the last daemon said (hca.lost), since the link may be
 * among that; the engine thread then looks for wishes itself. Control thread.
 */
void return_for_link(struct hca *hca);

/* In a forked child: connections of a return that was under way are closed. */
void return_leave(struct hca *hca);

#endif
