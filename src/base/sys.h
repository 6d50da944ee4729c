/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls that aren't cancellation points.
 *
 * A program may cancel a thread inside one of this library's calls. POSIX ends the thread at a
 * cancellation point; the C library's write(), close(), recvmsg() and so on are such points, and a
 * thread that ends there never releases the lock that it holds. So the library's code calls the
 * functions below instead: they make the same system call and end no thread.
 *
 * The exceptions wait on behalf of the program, hold no lock, and stay cancellable:
 * ibv_get_cq_event(), ibv_get_async_event(), rdma_get_cm_event(). tools/check-cancel has the list.
 *
 * Results and errno are those of the C library's functions.
 */
#ifndef VERBENA_BASE_SYS_H
#define VERBENA_BASE_SYS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct mmsghdr;
struct msghdr;
struct sockaddr;

ssize_t sys_read(int fd, void *to, size_t size);
ssize_t sys_pread(int fd, void *to, size_t size, off_t offset);
ssize_t sys_preadv2(int fd, const struct iovec *to, int count, off_t offset, int flags);
ssize_t sys_write(int fd, const void *from, size_t size);
ssize_t sys_pwrite(int fd, const void *from, size_t size, off_t offset);
int sys_open(const char *path, int flags, ...);
int sys_openat(int dir, const char *path, int flags, ...);
int sys_close(int fd);
/* Closes *fd, if it isn't -1, after it has become -1: so a child that is forked in between closes
 * no number that stands for another file by then. A socket is shut down first, since such a child
 * has a copy of it; its peer learns of the end all the same. */
void sys_end(int *fd);
void sys_hang_up(int *fd);
int sys_connect(int fd, const struct sockaddr *to, unsigned int size); /* a socklen_t */
ssize_t sys_sendto(int fd, const void *bytes, size_t size, int flags, const struct sockaddr *to,
		   unsigned int to_size); /* a socklen_t */
ssize_t sys_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t sys_recvmsg(int fd, struct msghdr *message, int flags);
int sys_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		 const struct timespec *limit);
/* `ms` as poll(): -1 for no limit. */
int sys_poll(struct pollfd *fds, nfds_t count, int ms);
int sys_nanosleep(const struct timespec *wanted, struct timespec *left);
ssize_t sys_getrandom(void *to, size_t size, unsigned int flags);
int sys_fallocate(int fd, int mode, off_t offset, off_t size);
pid_t sys_waitpid(pid_t pid, int *status, int options);
/* waitid() for any child. */
int sys_wait_any(siginfo_t *info, int options);
/* pthread_cond_wait(). */
void sys_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);

#endif
