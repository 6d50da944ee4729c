/* SPDX-License-Identifier: BSD-2-Clause */
/* Setting the daemon up and taking it down: directory, locks, sockets, signals, limits. */
#ifndef VERBENA_DAEMON_CORE_SETUP_H
#define VERBENA_DAEMON_CORE_SETUP_H

struct server;
struct server_options;

/*
 * Until it listens. The callbacks of server's watches and timers are set. 0; -EEXIST another
 * daemon serves this directory; -errno. Nothing is left on failure, and the log says why.
 */
int server_setup(struct server *server, const struct server_options *options);
/* Sockets first, then the locks. */
void setup_undo(struct server *server);

/* Opens the file `lock` of the run-time directory. A descriptor or -errno. */
int setup_open_lock(struct server *server);

#endif
