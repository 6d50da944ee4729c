/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A bell: what wakes a process that sleeps in epoll, rung by a process of another user.
 *
 * An eventfd can't serve there. The flags of a descriptor belong to the open file that both
 * processes hold, so one process may clear O_NONBLOCK and fill the counter at any moment, and the
 * other one blocks in write() for good. A socket pair has flags of its own at each end, but its
 * messages may carry descriptors, which the receiver's thread closes; closing another user's file
 * (FUSE, a socket that lingers) may block without bound.
 *
 * A bell is a timerfd. Ringing sets it to a moment of the past, so it becomes readable at once;
 * quieting disarms it. Neither call reads or writes the descriptor, so its flags don't matter, and
 * timerfd_settime() never sleeps. There are no messages, no ends that hang up and no buffers that
 * fill.
 *
 *   ringer                      sleeper
 *   stores its record           is woken: the bell is readable
 *   bell_ring()                 bell_quiet()
 *                               looks at the records
 *
 * Both calls take the timer's lock in the kernel: if the ring comes before the quieting, the record
 * is stored before the look; if it comes after, it wakes the sleeper anew.
 *
 * A hostile process that shares a bell may quiet it or ring it at will. So only the two ends of one
 * link share a bell (or one captured process and the capturing program): what a process does to it
 * harms only their traffic with each other.
 */
#ifndef VERBENA_SHM_BELL_H
#define VERBENA_SHM_BELL_H

#include <stdbool.h>

/* Makes a bell. Returns a descriptor, which the caller closes, or -errno. */
int bell_make(void);
/* Both never block, whatever the other process does to the bell. 0, or -errno: it isn't a bell. */
int bell_ring(int bell);
int bell_quiet(int bell);

/* Whether a descriptor that another process handed over is a bell. */
bool bell_is_one(int fd);

#endif
