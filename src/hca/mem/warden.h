/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stopping the program's other threads for a moment, so that nothing but the calling thread touches
 * its memory (quiet.h). docs/memory.md, "Other threads", has the conditions.
 *
 * A process that shares this one's memory, the *warden*, is made for it: a tracer can't be a thread
 * of the process that it traces. It traces each other thread of the program (ptrace()), waits until
 * the kernel has stopped it, and lets go of it when the caller says so, or when the caller has
 * ended. A thread that is stopped is in no system call: the kernel makes it continue or begin anew
 * the call that it waited in. Calls of which the kernel doesn't do that (epoll_wait()) begin anew
 * by a change of the thread's register; a thread that waits in any other such call isn't stopped.
 *
 * While the threads are stopped the caller must neither allocate memory nor take any lock that a
 * thread may hold.
 *
 * One stop at a time, under convert_lock. State: static, see warden.c.
 */
#ifndef VERBENA_HCA_MEM_WARDEN_H
#define VERBENA_HCA_MEM_WARDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Stops all threads of the process but the caller and those that are parked (process/park.h). NULL,
 * or why they can't be stopped. The caller has blocked all signals that have
 * handlers, and no others: the warden is born with its mask and handlers. */
const char *warden_stop(void);

/* Lets them go. Nothing without a warden_stop() that has stopped them. */
void warden_release(void);

/* Whether threads are stopped. */
bool warden_works(void);

/* Whether the thread is stopped; whether the process is the warden. */
bool warden_has(pid_t thread);
bool warden_is(pid_t process);

/* The memory that it uses, of which no page may be converted. */
const void *warden_memory(size_t *bytes);

#endif
