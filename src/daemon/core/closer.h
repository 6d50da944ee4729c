/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Closing what clients sent.
 *
 * A client chooses which files it sends by SCM_RIGHTS, and the last close() of a file may block for
 * as long as the client likes: a TCP socket with SO_LINGER and unsent data, a file of a FUSE file
 * system whose server doesn't answer, an eventfd in an epoll set whose lock a thread holds that
 * faults. So does whatever else drops the last reference: recvmsg() without room for the
 * descriptors, or the close() of a Unix socket with unread packets, which closes the descriptors in
 * them.
 *
 * The invariant: the daemon's loop thread never drops the last reference to a client's file.
 * - A packet is received by receive.h, which drops no reference.
 * - A descriptor that came from a client, refused or accepted, of whatever kind, is closed by
 *   closer_close() only.
 * - A socket at whose other end a client may write is closed by closer_close_socket() only, and a
 *   listener, in whose queue such sockets wait, by closer_close(): the daemon's end, and the next
 *   daemon's start, don't wait for them.
 * The daemon's own files (its memory files, pidfds, slot sockets, event sockets, whose reading side
 * is shut down) are closed directly.
 *
 * Each user with something to close has a thread of its own: a close that blocks delays only what
 * the same user's clients made the daemon close. The thread begins with the user's first descriptor
 * and ends when the user's queue is empty. Handing over never blocks. The queue is bounded by the
 * caller: descriptors in it count as connections of their user (server_admit()), and while there
 * are too many the daemon takes no descriptors from the user's clients (conn.c).
 *
 * Threads: closer_*() are called on the loop thread. The closing threads know only the queues,
 * under closer_lock, which no thread holds during a close().
 */
#ifndef VERBENA_DAEMON_CORE_CLOSER_H
#define VERBENA_DAEMON_CORE_CLOSER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The threads' name, for ps(1) and gdb. */
#define CLOSER_THREAD "verbenad-close"

/* Has the user's thread close the descriptors of `fds` (places with -1 are skipped), and sets all
 * places to -1. Without memory for the queue they stay open, with an error in the log: an open
 * descriptor does less harm than a daemon that hangs. */
void closer_close(uid_t uid, int *fds, unsigned int count);

/* Closes a connected Unix socket: directly if it holds no unread packet, else by the user's
 * thread. */
void closer_close_socket(uid_t uid, int fd);
/* As closer_close_socket(), for a socket that was accepted and belongs to no connection yet. */
void closer_close_accepted(int fd);

/* The number of descriptors that wait to be closed, or are being closed, for the user. */
uint32_t closer_pending(uid_t uid);

/* Whether nothing waits to be closed, nor is being closed, for any user. */
bool closer_is_idle(void);

/* The number of descriptors that stay open for good, for want of memory. */
uint32_t closer_left_open(void);

#endif
