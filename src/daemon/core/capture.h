/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures: `verbena capture` asks on the control socket, and is given one end of an event socket.
 * For each attached process, and each that attaches while the capture lasts, the daemon makes a
 * ring (shm/tap.h) and hands it to that process and to the capturing program: the process writes
 * packets into the ring, the program reads them, and no packet passes through the daemon. A capture
 * ends when the program closes its end.
 */
#ifndef VERBENA_DAEMON_CORE_CAPTURE_H
#define VERBENA_DAEMON_CORE_CAPTURE_H

#include <stdint.h>

struct process;
struct server;

/* Begins a capture that keeps `snap` bytes of a packet (0: all). *program_fd is the capturing
 * program's end, to be sent and closed. Returns 0; -EBUSY: too many captures; -ENOMEM, -EMFILE. */
int capture_open(struct server *server, uint32_t snap, int *program_fd);
/* The process has just attached: all captures begin for it. */
void capture_attached(struct process *process);
/* The process is about to end: ends all captures of it. */
void capture_left(struct process *process);
void capture_close_all(struct server *server);

#endif
