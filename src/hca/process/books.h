/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The books: the list of what this process holds at the daemon, so that it can hand it to the next
 * daemon when this one is gone (return.c).
 *
 * Every object that has a handle is on its context's list of its kind. A thread that makes or ends
 * an object calls the daemon and changes the list within one *entry* (books_enter to books_leave);
 * many threads may have one at a time. An entry holds hca.books as a reader; a return holds it as
 * the writer, so no command is in flight then, and the lists and the daemon agree: an object that
 * is being made or ended exists either in both or in neither.
 * Entries may be nested. No lock of hca.h's list may be held when the outermost one begins, except
 * the public mutex of a CQ and channel.first.
 *
 * If a command finds the daemon gone, its thread returns to the next one and sends the command
 * again, within the same entry (handles stay the same, so the command still names the right
 * objects).
 */
#ifndef VERBENA_HCA_PROCESS_BOOKS_H
#define VERBENA_HCA_PROCESS_BOOKS_H

#include "hca/process/context.h"

struct hca;

/* Begin and end an entry of the calling thread. books_enter() waits while a return is under way. */
void books_enter(struct hca *hca);
void books_leave(struct hca *hca);

/* Adds an object to its context's list, or takes it off. Within an entry. */
void books_add(struct context *context, enum held_kind kind, struct list *held);
void books_drop(struct context *context, struct list *held);

/* Makes each command over this connection an entry, which returns to the next daemon if need be. */
void books_own(struct hca *hca, struct daemon_conn *conn);

/* Opens a context's connection; returns to the next daemon if need be. Result as of
 * daemon_context_open(). */
int books_open_context(struct hca *hca, struct context *context, const char *node,
		       uint32_t *num_comp_vectors);

/*
 * Attaches to the next daemon with all that is held. If there is none, starts one if `may_start`.
 * `seen`: the value of hca.generation at which the daemon was lost. 0, also if another thread has
 * returned since; or -errno, with a line in the log.
 */
int return_to_daemon(struct hca *hca, uint32_t seen, bool may_start);

/*
 * The daemon is gone (hca.lost): has the control thread watch for the next one and attach to it;
 * with `start` it starts one. Doesn't wait.
 */
void return_seek(struct hca *hca, bool start);
/* The watch on the run-time directory has reported a change. Engine thread. */
void return_watched(struct hca *hca);

/* Does what return_seek() asked for, if it was called. Control thread. */
void return_sought(struct hca *hca);
/*
 * A request for a link, or one that gives a link back, found the daemon gone, and is queued again:
 * starts the next daemon. Not before the engine thread has taken the last daemon's events
 * (hca.lost), since the link may be among them; the engine thread then looks for queued requests
 * itself. Control thread.
 */
void return_for_link(struct hca *hca);

/* In a forked child: closes the connections of a return that was under way in the parent. */
void return_leave(struct hca *hca);

#endif
