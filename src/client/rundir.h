/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run-time directory, which has the daemon's sockets. There is one for each user and network
 * namespace: $VERBENA_RUNTIME_DIR; else /run/verbena when a system-wide daemon serves there (also
 * one that doesn't let this user in: its administrator decides who may use the device); else
 * $XDG_RUNTIME_DIR/verbena-<netns>; else /tmp/verbena-<uid>-<netns>, or, where another user has
 * taken that name, /tmp/verbena-<uid>-<netns>.<time> (base/own_dir.h).
 */
#ifndef VERBENA_CLIENT_RUNDIR_H
#define VERBENA_CLIENT_RUNDIR_H

#include <stddef.h>
#include <sys/stat.h>

#define RUNDIR_MAX 96 /* bytes: a socket's path must fit into struct sockaddr_un */
#define RUNDIR_MAX_TEXT "96"
#define RUNDIR_SYSTEM "/run/verbena"

/*
 * Writes the directory's absolute path; the directory need not exist, and isn't made, except that
 * of the last kind. A program with more rights
 * than its user (set-user-ID) ignores the environment. Returns 0; -ENAMETOOLONG; -errno of /proc.
 */
int rundir_find(char *buf, size_t len);

/*
 * Checks that the directory can be trusted: it is a directory (not a link to one) of this user or
 * root that no other user may write. RUNDIR_SYSTEM may belong to the user that the system-wide
 * daemon runs as, because only root can have made it so. Returns 0; -ENOENT; -ENOTDIR or -EPERM,
 * with the reason in the log; -errno.
 */
int rundir_check(const char *path);

/*
 * An environment variable that vouches for a directory that was checked before this process entered
 * a user namespace, where root's directory doesn't appear as root's. rundir_vouch() writes its
 * value.
 */
#define RUNDIR_VOUCHED "VERBENA_RUNTIME_DIR_CHECKED"
#define RUNDIR_VOUCHED_BYTES 40
void rundir_vouch(const struct stat *st, char text[RUNDIR_VOUCHED_BYTES]);

/* rundir_make() makes the directory if it isn't there, then checks it. Returns 0; as
 * rundir_check(); -errno of mkdir. */
/*
 * The file `netns` of a directory says which network namespace its daemon serves. The daemon writes
 * it before it listens (rundir_netns_write); a process that connects compares it with its own
 * (rundir_netns_check: 0: the same, or not known; -EXDEV, after a line in the log: another one).
 */
#define RUNDIR_NETNS "netns"
int rundir_netns_write(int dir_fd);
int rundir_netns_check(const char *path);

int rundir_make(const char *path);

#endif
