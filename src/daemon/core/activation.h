/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The protocols between a service manager and the daemon: the manager hands in listening sockets
 * (LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES as in sd_listen_fds(3)) and the daemon reports that it is
 * ready (NOTIFY_SOCKET as in sd_notify(3)). Both take a few lines, so no library is needed.
 */
#ifndef VERBENA_DAEMON_CORE_ACTIVATION_H
#define VERBENA_DAEMON_CORE_ACTIVATION_H

#include <limits.h>

struct activation {
	int uverbs, rdma_cm, ctl; /* listening, non-blocking, close-on-exec; -1: not handed in */
	int park;		  /* the descriptor of an earlier activation_store(); -1: none */
	char dir[PATH_MAX];	  /* the directory where the sockets are bound; empty: no sockets */
};

/*
 * Takes the sockets that this process was started with, if any, and unsets the variables. A socket
 * is identified by its name (LISTEN_FDNAMES), else by the name of its file. Returns 0; -EINVAL
 * after a line in the log: a descriptor isn't a listening socket for one of the nodes.
 */
int activation_take(struct activation *activation);
void activation_close(struct activation *activation);

/* Reports `state` (for example "READY=1") to the service manager; does nothing without one. */
void activation_tell(const char *state);

/* Has the service manager keep a descriptor for the next daemon (the park of park.h). It keeps one;
 * storing it a second time has no effect. */
void activation_store(int fd);
void activation_forget(void); /* the service manager drops what activation_store() stored */

#endif
