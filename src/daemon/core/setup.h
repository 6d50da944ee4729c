/* SPDX-License-Identifier: BSD-2-Clause */
/* Setting the daemon up and taking it down: directory, locks, sockets, signals, limits. */
#ifndef VERBENA_DAEMON_CORE_SETUP_H
#define VERBENA_DAEMON_CORE_SETUP_H

struct device;
struct server;
struct server_options;

/*
 * Sets up everything, until the daemon listens. The caller has set the callbacks of server's
 * watches and timers. Returns 0; -EEXIST: another daemon serves this directory; -errno. On failure
 * everything is undone, and the log has the reason.
 */
int server_setup(struct server *server, const struct server_options *options);
/* Undoes it: sockets first, then the locks. */
void setup_undo(struct server *server);

/* Opens the node of a device that isn't the first, and closes it. Returns 0, or -errno after a line
 * in the log. */
int setup_listen_device(struct server *server, struct device *device);
void setup_unlisten_device(struct server *server, struct device *device);

/* Opens the file `lock` of the run-time directory. Returns a descriptor or -errno. */
int setup_open_lock(struct server *server);

#endif
