/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librspreload.so: preloaded, it turns a program's TCP sockets into rsockets. See
 * verbena-rsocket(7).
 *
 * The program has a descriptor of /dev/null, which reserves the number; a table says which rsocket
 * the number stands for. The rsocket library uses sockets, too, under other numbers, so its calls
 * pass through here unchanged. Where RDMA doesn't work (no device for an address, no answer), the
 * socket becomes an ordinary one under the same number.
 *
 *   real.c     the calls of the C library
 *   table.c    numbers
 *   config.c   which sockets become rsockets: /etc/rdma/rsocket/preload_config
 *   preload.c  the calls about one socket
 *   wait.c     poll, select and related calls
 *   epoll.c    epoll
 *   forked.c   connections that a child of the program will use: RDMAV_FORK_SAFE
 *
 * Threads: any; entries of the table are looked up without a lock, and changed under one
 * (table_lock: which rsocket; sets_lock: what epoll has reported).
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
#include "base/mutex.h"

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
/* Looks the functions up. Other libraries' constructors may call before this library's has run. */
void real_init(void);

/* ------------------------------------------------------------------ table.c */

/*
 * States of ordinary sockets that become rsockets at their first use (forked.c):
 *
 *   state     | goes to, and by what
 *   ----------+---------------------------------------------------------------------------
 *   NONE      | SOCKET: socket() with RDMAV_FORK_SAFE; ACCEPTED: made by accept()
 *   SOCKET    | LISTEN: listen(); CONNECTED: connect()
 *   LISTEN    | none
 *   CONNECTED | CHANGING: the first use, once the TCP connection is established
 *   ACCEPTED  | CHANGING: the first use
 *   CHANGING  | NONE: it is an rsocket, or stays a TCP connection
 *   any       | NONE: close(), or dup2() onto the number; a copy by dup() has the same state
 */
enum later {
	LATER_NONE,
	LATER_SOCKET,
	LATER_LISTEN,
	LATER_CONNECTED, /* connect() was called */
	LATER_ACCEPTED,
	LATER_CHANGING, /* a thread is converting it */
};

extern struct mutex table_lock, sets_lock;

/* What a number stands for. All fields are atomic, since they are read without a lock; the
 * functions that change them say which lock that takes. */
struct entry {
	int rs; /* the rsocket's number plus one, or 0; several descriptors may share one (dup2) */
	/* enum later. Changed by the call that uses the number; into CHANGING and out of it with
	 * change_lock, which several threads wait for. */
	uint8_t later;
	uint8_t quiet;	/* QUIET_*: reported to an edge-triggered epoll */
	uint8_t polled; /* it is in an epoll set */
};

enum { QUIET_IN = 1, QUIET_OUT = 2, QUIET_END = 4 };

extern struct entry table[FDS_MAX];
/* Set while the rsocket library runs, because it makes sockets of its own. */
extern __thread int inside;

/* The rsocket for the number, or -1. */
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

static inline void table_set(int fd, int rs) REQUIRES(table_lock);
static inline void table_set(int fd, int rs)
{
	__atomic_store_n(&table[fd].rs, rs + 1, __ATOMIC_RELEASE);
}

static inline void later_set(int fd, enum later later)
{
	if (fd >= 0 && fd < FDS_MAX)
		__atomic_store_n(&table[fd].later, (uint8_t)later, __ATOMIC_RELEASE);
}

static inline uint8_t socket_quiet(int fd)
{
	return __atomic_load_n(&table[fd].quiet, __ATOMIC_RELAXED);
}

static inline void socket_loud(int fd, uint8_t bits)
{
	if (socket_quiet(fd) & bits)
		__atomic_and_fetch(&table[fd].quiet, (uint8_t)~bits, __ATOMIC_RELAXED);
}

/* Makes the number stand for the rsocket. */
void table_enter(int fd, int rs);
/* Removes the number. Returns the rsocket if this was its last number, else -1. */
int table_take(int fd);
/* Reserves a number for an rsocket; closes the rsocket if there is none. `cloexec`: O_CLOEXEC or 0.
 * Returns the number or -1. */
int table_adopt(int rs, int cloexec);
/* Makes `to`, a copy of `from`, stand for the same rsocket. */
void table_copy(int from, int to);

/* Calls the rsocket library. */
#define RS(call)                            \
	({                                  \
		inside++;                   \
		__auto_type result_ = call; \
		inside--;                   \
		result_;                    \
	})

/* ------------------------------------------------------------------ preload.c */

/* Copies the options that are kept when a socket changes its kind. */
void options_to_socket(int rs, int fd);
void options_to_rsocket(int fd, int rs);

/* ------------------------------------------------------------------ config.c */

bool config_wants(int domain, int type, int protocol);

/* ------------------------------------------------------------------ forked.c */

/* Whether RDMAV_FORK_SAFE is set. */
bool fork_wanted(void);
/* The rsocket for a number that is about to be used, or -1. A connection that waits for its first
 * use becomes an rsocket here. */
int rs_used(int fd);
/* The same for a number that is about to be waited for. */
int rs_awaited(int fd, short events);

/* ------------------------------------------------------------------ epoll.c */

/* Call when the number is closed: removes it from epoll sets. */
void epoll_forget(int fd);

#endif
