/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A bell: what wakes a process that sleeps in epoll, rung by a process of another user.
 *
 * An eventfd can't serve there. The flags of a descriptor belong to the open file that both
 * processes hold, so the one may clear O_NONBLOCK and fill the counter at any moment, and the other
 * blocks in write() for good. A socket pair has flags of its own at each end, but its messages may
 * carry descriptors, and the receiver's thread closes them; closing a stranger's file (FUSE, a
 * socket that lingers) may take for ever.
 *
 * A bell is a timerfd. Ringing sets it to a moment of the past, so it becomes readable at once;
 * quieting it disarms it. Neither reads or writes the descriptor, so its flags decide nothing, and
 * timerfd_settime() never sleeps. Messages, ends that hang up and buffers that fill don't exist.
 *
 *   ringer                      sleeper
 *   stores its record           is woken: the bell is readable
 *   bell_ring()                 bell_quiet()
 *                               looks at the records
 *
 * Both calls take the timer's lock in the kernel: a ring before the quieting has its record stored
 * before the look, a ring after it wakes the sleeper anew.
 *
 * A hostile process that shares a bell may quiet it or ring it at will. So a bell is shared by the
 * two ends of one link (or of one captured process and the capturing program) and by nobody else:
 * what a process does to it harms only what the two have together.
 */
#ifndef VERBENA_SHM_BELL_H
#define VERBENA_SHM_BELL_H

#include <stdbool.h>

/* A descriptor, the caller's to close; -errno. */
int bell_make(void);
/* Both never block, whatever a stranger does to the bell. 0 or -errno (it is no bell). */
int bell_ring(int bell);
int bell_quiet(int bell);

/* Whether a descriptor that came from elsewhere is a bell. */
bool bell_is_one(int fd);

#endif
