/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures: `verbena capture` asks on the control socket, and is given one end of an event socket.
 * For each attached process, and each that attaches while the capture lasts, the daemon makes a
 * ring (shm/tap.h) and hands it to that process and to the capturing program: the process writes
 * packets into the ring, the program reads them, and no packet of a process passes through the
 * daemon. A ring of the daemon's own, for slot 0, has the connection manager's messages. A capture
 * ends when the program closes its end.
 */
#ifndef VERBENA_DAEMON_CORE_CAPTURE_H
#define VERBENA_DAEMON_CORE_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

struct process;
struct server;
struct tap_packet;

/* Begins a capture that keeps `snap` bytes of a packet (0: all). `port`: 0, or the row + 1 of the
 * port of a fabric whose packets are wanted, instead of all traffic. *program_fd is the capturing
 * program's end, to be sent and closed. Returns 0; -EBUSY: too many captures; -ENOMEM, -EMFILE. */
int capture_open(struct server *server, uint32_t snap, uint32_t port, int *program_fd);
/* The process has just attached: all captures begin for it. */
void capture_attached(struct process *process);
/* The process is about to end: ends all captures of it. */
void capture_left(struct process *process);
void capture_close_all(struct server *server);

/* Whether a capture is under way. */
bool capture_is_on(const struct server *server);
/* Writes a packet of the daemon's own to all captures. Never blocks. */
void capture_write(struct server *server, const struct tap_packet *packet);

#endif
