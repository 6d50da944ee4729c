/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer's process: which one it is, whether it lives, and what the kernel says about it.
 *
 * A process number is no identity: once a process has ended and its parent has collected it, the
 * number may name another process; and after exec() the same number names another program. The rule
 * is: a process that gets the number later is never taken for the peer. A peer is identified by two
 * things:
 *
 *   life  The word in its published table in which the kernel says that it has ended or called
 *         exec() (shm/life.h). The table came through the daemon from that very process.
 *
 *   fd    /proc/PID/mem, opened once, when the link is made: a reference to the address space
 *         itself, whatever becomes of the number. Reading there the random number that the peer's
 *         regions' file names proves that it is the peer's. Reading gives 0 bytes once no thread is
 *         left in that address space. Where ptrace isn't permitted, and so /proc/PID/mem can't be
 *         opened, it is a pidfd. There is one descriptor for each link.
 *
 * How a system call that takes a number is kept from reaching another process:
 *
 *   Before  The call is made only while the peer is alive. This keeps bytes from being written to
 *           another process, except for one window: between the load of `life` and the kernel's
 *           lookup of the number, some instructions later, the peer would have to end and be
 *           collected, and the kernel to give out all other numbers and then this one, to a process
 *           of the same user with memory at the same address.
 *
 *   After   The result counts only if the peer is still alive. That is a proof (life.h): the number
 *           was the peer's during the whole call. Else the operation fails as towards a dead peer
 *           (-ESRCH). So no operation on a dead peer ever completes with success, and bytes that
 *           were read from another process are never given out as the peer's data.
 *
 * Linux has no call that copies several pages and takes a process by descriptor. Writing to
 * /proc/PID/mem has no window, but goes page by page through a page of the kernel's: 17 us for
 * 64 KiB where process_vm_writev() takes 10, and twice the time for 64 bytes with the last one
 * apart. A region that is mapped here (mem/mapped.h) needs no number, and has no window; its file
 * is there when the peer has ended, so the rule "after" holds for it, too.
 *
 * pidfd_open() or a look into /proc/PID, followed by a load of `life` (peer_state(), peer_map()),
 * are proofs for the same reason.
 */
#ifndef VERBENA_HCA_LOCAL_PEER_H
#define VERBENA_HCA_LOCAL_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/life.h"
#include "shm/pub.h"

/*
 * The descriptor, as peer_open() left it:
 *   fd    is_memory   what it is                         peer_ended() asks
 *   >= 0      1       /proc/PID/mem                      whether reading gives 0 bytes
 *   >= 0      0       a pidfd                            whether it polls readable
 *   -1        0       none: neither could be opened, or  `life` only
 *                     no regions' file came
 * peer_close() sets fd to -1, and is_memory then means nothing. No lock guards these fields: they
 * belong to their link, which describes when they change (link.h).
 */
struct peer_process {
	int32_t pid; /* as the daemon saw it; 0: the peer is in another PID namespace */
	int fd;
	bool is_memory;
	const struct process_life *life;
	uint64_t probe_addr;
};

/* Identifies the process that has published these tables; `regions` is NULL if the daemon didn't
 * hand them out. */
void peer_open(struct peer_process *peer, int32_t pid, const struct pub *table,
	       const struct pub_regions *regions);
void peer_close(struct peer_process *peer);

/* A descriptor that polls readable once the process has ended, for the caller to close; -1: it
 * can't be had. */
int peer_end_descriptor(const struct peer_process *peer);

/* Makes no system call. False: the process has ended, is ending, or has called exec(). */
static inline bool peer_alive(const struct peer_process *peer)
{
	return life_goes_on(peer->life);
}

/* The rest are for slow paths. */

/* The state as in /proc: 'R', 'S', 'D', 'T' (stopped) ..., or 0 if the process has ended or isn't
 * visible. */
char peer_state(const struct peer_process *peer);

/* Whether the process is alive and, as far as this one can see, not stopped. Whether a process in
 * another PID namespace is stopped can't be seen: it has no number here, and a pidfd doesn't
 * tell. */
bool peer_runs(const struct peer_process *peer);

/* Whether no thread of the process executes anything in its address space any more. Without a
 * descriptor: whether its threads have been told to end. */
bool peer_ended(const struct peer_process *peer);

/*
 * Whether the thread is stopped at the end of a process_vm_readv() or process_vm_writev(): the copy
 * that this call made is over. Another call proves nothing: a signal handler that interrupted the
 * thread between the lookup of a key and the copy may have made it.
 */
bool peer_stopped_after_copy(const struct peer_process *peer, uint32_t thread);

#endif
