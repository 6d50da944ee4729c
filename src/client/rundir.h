/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run-time directory, where the daemon's sockets are. One per user and network namespace:
 * $VERBENA_RUNTIME_DIR; else /run/verbena when a system-wide daemon serves there (also one that
 * doesn't let this user in: its administrator decides who may use the device); else
 * $XDG_RUNTIME_DIR/verbena-<netns>; else /tmp/verbena-<uid>-<netns>.
 */
#ifndef VERBENA_CLIENT_RUNDIR_H
#define VERBENA_CLIENT_RUNDIR_H

#include <stddef.h>
#include <sys/stat.h>

#define RUNDIR_MAX 96 /* bytes: a socket's path must fit into struct sockaddr_un */
#define RUNDIR_MAX_TEXT "96"
#define RUNDIR_SYSTEM "/run/verbena"

/*
 * Writes the directory's absolute path; it need not exist. A program with more rights than its
 * user (set-user-ID) doesn't look at the environment. 0; -ENAMETOOLONG; -errno of /proc.
 */
int rundir_find(char *buf, size_t len);

/*
 * Whether what is in it can be trusted: it is a directory (not a link to one) of this user or
 * root that nobody else may write; RUNDIR_SYSTEM may belong to the user that the system-wide
 * daemon runs as, because only root can have made it so. 0; -ENOENT; -ENOTDIR or -EPERM, said why
 * in the log; -errno.
 */
int rundir_check(const char *path);

/*
 * The environment's word for a directory that was checked before this process went into a user
 * namespace: root's directory doesn't look like root's there. `text` is what the variable contains.
 */
#define RUNDIR_VOUCHED "VERBENA_RUNTIME_DIR_CHECKED"
#define RUNDIR_VOUCHED_BYTES 40
void rundir_vouch(const struct stat *st, char text[RUNDIR_VOUCHED_BYTES]);

/* Makes it when it isn't there, then checks it. 0; as rundir_check(); -errno of mkdir. */
/*
 * Which network namespace the daemon of a directory serves stands in its file `netns`, written by
 * the daemon before it listens (rundir_netns_write), compared by who connects. -EXDEV, after a line
 * in the log: another one than this process's. 0: this one, or it isn't known.
 */
#define RUNDIR_NETNS "netns"
int rundir_netns_write(int dir_fd);
int rundir_netns_check(const char *path);

int rundir_make(const char *path);

#endif
