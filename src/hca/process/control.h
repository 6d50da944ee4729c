/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control thread: makes the calls to the daemon that no thread of the program makes, so that
 * the engine thread never waits for the daemon. It asks for links, gives broken links back, and
 * returns to the next daemon. It also maps peers' regions (mem/mapped.h), which takes time, too,
 * waits for copies that hold the end of a memory window up (verbs/window.h), and prefetches
 * (mem/prefetch.h). The engine gets the results as events: a link's event on hca.event_fd, or
 * link.refused and a kick.
 *
 * It starts with the engine thread and sleeps while there is nothing to do. A forked child has
 * none.
 */
#ifndef VERBENA_HCA_PROCESS_CONTROL_H
#define VERBENA_HCA_PROCESS_CONTROL_H

struct hca;

/* Starts the thread. 0 or -errno. */
int control_start(struct hca *hca);
/* Ends the thread, for an HCA that couldn't be made. */
void control_stop(struct hca *hca);

/* Wakes the thread: there is work for link_ask_daemon(), return_sought(), mapped_serve(),
 * windows_serve(), prefetch_serve() or migrate_serve(). Doesn't wait; callable under any lock. */
void control_wake(struct hca *hca);

#endif
