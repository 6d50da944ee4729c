/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librspreload.so: preloaded, it turns a program's TCP sockets into rsockets. See rsocket(7).
 *
 * What the program has is a descriptor of /dev/null, so that nothing else gets its number; a table
 * says which rsocket it stands for. The library below uses sockets, too, under other numbers, so
 * its calls pass through here unchanged. Where RDMA can't do it (no device for an address, nobody
 * answers), the socket becomes an ordinary one, under the same number.
 *
 *   real.c     the calls of the C library
 *   table.c    numbers
 *   config.c   which sockets are meant: /etc/rdma/rsocket/preload_config
 *   preload.c  the calls about one socket
 *   wait.c     poll, select and their kin
 *   epoll.c    epoll
 *   forked.c   connections that a child of the program's shall have: RDMAV_FORK_SAFE
 *
 * Threads: any; entries of the table are looked up without a lock, and changed under one.
 */
#ifndef VERBENA_RSPRELOAD_PRELOAD_H
#define VERBENA_RSPRELOAD_PRELOAD_H

#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/export.h"

enum { FDS_MAX = 1 << 16 };

/* ------------------------------------------------------------------ real.c */

struct real {
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept4)(int, struct sockaddr *, socklen_t *, int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	ssize_t (*read)(int, void *, size_t);
	ssize_t (*readv)(int, const struct iovec *, int);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*write)(int, const void *, size_t);
	ssize_t (*writev)(int, const struct iovec *, int);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	int (*epoll_ctl)(int, int, int, struct epoll_event *);
	int (*epoll_wait)(int, struct epoll_event *, int, int);
	int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
	int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *,
			    const sigset_t *);
	int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
	int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *,
		       const sigset_t *);
	int (*shutdown)(int, int);
	int (*close)(int);
	int (*getpeername)(int, struct sockaddr *, socklen_t *);
	int (*getsockname)(int, struct sockaddr *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*fcntl)(int, int, ...);
	int (*ioctl)(int, unsigned long, ...);
	int (*dup)(int);
	int (*dup2)(int, int);
	int (*dup3)(int, int, int);
	ssize_t (*sendfile)(int, int, off_t *, size_t);
	ssize_t (*splice)(int, off_t *, int, off_t *, size_t, unsigned int);
};

extern struct real real;
/* Other libraries' constructors may call before ours has run. */
void real_init(void);

/* ------------------------------------------------------------------ table.c */

/* Ordinary sockets that are to become rsockets at their first use. */
enum later {
	LATER_NONE,
	LATER_SOCKET,
	LATER_LISTEN,
	LATER_CONNECTED, /* connect() was called */
	LATER_ACCEPTED,
	LATER_CHANGING, /* a thread is at it */
};

struct entry {
	int rs; /* the rsocket's number plus one, or 0; several may share one (dup2) */
	uint8_t later;
	uint8_t quiet;	/* QUIET_*: reported to an edge-triggered epoll */
	uint8_t polled; /* is in an epoll */
};

enum { QUIET_IN = 1, QUIET_OUT = 2, QUIET_END = 4 };

extern struct entry table[FDS_MAX];
/* rsockets make sockets of their own. */
extern __thread int inside;

/* The rsocket that the number stands for, or -1. */
static inline int rs_of(int fd)
{
	real_init();
	return fd >= 0 && fd < FDS_MAX ? __atomic_load_n(&table[fd].rs, __ATOMIC_ACQUIRE) - 1 : -1;
}

static inline enum later later_of(int fd)
{
	return fd >= 0 && fd < FDS_MAX
		       ? (enum later)__atomic_load_n(&table[fd].later, __ATOMIC_ACQUIRE)
		       : LATER_NONE;
}

static inline void table_set(int fd, int rs)
{
	__atomic_store_n(&table[fd].rs, rs + 1, __ATOMIC_RELEASE);
}

static inline void later_set(int fd, enum later later)
{
	if (fd >= 0 && fd < FDS_MAX)
		__atomic_store_n(&table[fd].later, (uint8_t)later, __ATOMIC_RELEASE);
}

static inline void socket_loud(int fd, uint8_t bits)
{
	if (table[fd].quiet & bits)
		__atomic_and_fetch(&table[fd].quiet, (uint8_t)~bits, __ATOMIC_RELAXED);
}

/* Takes the number out. The rsocket if that was its last one, else -1. */
int table_take(int fd);
/* A number for an rsocket, which is closed if there is none. `cloexec`: O_CLOEXEC or 0. */
int table_adopt(int rs, int cloexec);
/* The number `to`, a copy of `from`, stands for the same. */
void table_copy(int from, int to);

/* A call of the library below. */
#define RS(call)                            \
	({                                  \
		inside++;                   \
		__auto_type result_ = call; \
		inside--;                   \
		result_;                    \
	})

/* ------------------------------------------------------------------ preload.c */

/* The options that are kept when a socket becomes one of the other kind. */
void options_to_socket(int rs, int fd);
void options_to_rsocket(int fd, int rs);

/* ------------------------------------------------------------------ config.c */

bool config_wants(int domain, int type, int protocol);

/* ------------------------------------------------------------------ forked.c */

/* RDMAV_FORK_SAFE is set. */
bool fork_wanted(void);
/* The rsocket of a number that is about to be used; a connection that is to become one does. -1. */
int rs_used(int fd);
/* The same for one that is about to be waited for. */
int rs_awaited(int fd, short events);

/* ------------------------------------------------------------------ epoll.c */

/* The number is closed. */
void epoll_forget(int fd);

#endif
