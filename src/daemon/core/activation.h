/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a service manager hands to the daemon and wants to hear from it: listening sockets
 * (LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES as in sd_listen_fds(3)) and the message that it is ready
 * (NOTIFY_SOCKET as in sd_notify(3)). Both are protocols of a few lines, so no library is needed.
 */
#ifndef VERBENA_DAEMON_CORE_ACTIVATION_H
#define VERBENA_DAEMON_CORE_ACTIVATION_H

#include <limits.h>

struct activation {
	int uverbs, rdma_cm, ctl; /* listening, non-blocking, close-on-exec; -1: wasn't handed in */
	int park;		  /* what was stored by activation_store(); -1: nothing */
	char dir[PATH_MAX];	  /* where they are bound; empty: there are none */
};

/*
 * Takes the sockets that this process was started with, if any, and forgets the variables. A
 * socket is known by its name (LISTEN_FDNAMES), else by its file's. 0; -EINVAL after a line in the
 * log: something that isn't a listening socket for one of the nodes.
 */
int activation_take(struct activation *activation);
void activation_close(struct activation *activation);

/* Tells whoever started this service, if it wants to hear; `state`: for example "READY=1". */
void activation_tell(const char *state);

/* Has it keep a descriptor for the next daemon (the park of park.h; one, a second is the same). */
void activation_store(int fd);
void activation_forget(void); /* the same: not any more */

#endif
