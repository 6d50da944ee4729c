/* SPDX-License-Identifier: BSD-2-Clause */
/* See sys.h. No state. Only calls that x86-64 and aarch64 both have. */
#include "base/sys.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"

ssize_t sys_read(int fd, void *to, size_t size)
{
	return syscall(SYS_read, fd, to, size);
}

ssize_t sys_pread(int fd, void *to, size_t size, off_t offset)
{
	return syscall(SYS_pread64, fd, to, size, offset);
}

/* The kernel takes the offset in two halves; the upper one is 0 where a long has 64 bits. */
ssize_t sys_preadv2(int fd, const struct iovec *to, int count, off_t offset, int flags)
{
	return syscall(SYS_preadv2, fd, to, (long)count, offset, 0L, flags);
}

ssize_t sys_pwrite(int fd, const void *from, size_t size, off_t offset)
{
	return syscall(SYS_pwrite64, fd, from, size, offset);
}

ssize_t sys_write(int fd, const void *from, size_t size)
{
	return syscall(SYS_write, fd, from, size);
}

/* The mode, which open()'s caller gives only with O_CREAT. */
static int open_mode(int flags, va_list *args)
{
	return flags & O_CREAT ? va_arg(*args, int) : 0;
}

int sys_openat(int dir, const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	int mode = open_mode(flags, &args);

	va_end(args);
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

int sys_open(const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	int mode = open_mode(flags, &args);

	va_end(args);
	return sys_openat(AT_FDCWD, path, flags, mode);
}

#ifdef __SANITIZE_THREAD__
/* The thread sanitizer's own close(), which is no cancellation point by its name: the tool has to
 * see that the number is free again, else it takes the next descriptor of this number, which
 * another thread may open, for the one that was closed. */
int __interceptor_close(int fd);

int sys_close(int fd)
{
	int state, result;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	result = __interceptor_close(fd);
	pthread_setcancelstate(state, NULL);
	return result;
}
#else
int sys_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}
#endif

void sys_end(int *fd)
{
	int ends = *fd;

	*fd = -1;
	FORK_POINT();
	if (ends >= 0)
		sys_close(ends);
}

void sys_hang_up(int *fd)
{
	if (*fd >= 0)
		shutdown(*fd, SHUT_RDWR);
	sys_end(fd);
}

int sys_connect(int fd, const struct sockaddr *to, unsigned int size)
{
	return (int)syscall(SYS_connect, fd, to, size);
}

ssize_t sys_sendto(int fd, const void *bytes, size_t size, int flags, const struct sockaddr *to,
		   unsigned int to_size)
{
	return syscall(SYS_sendto, fd, bytes, size, flags, to, to_size);
}

ssize_t sys_sendmsg(int fd, const struct msghdr *message, int flags)
{
	return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t sys_recvmsg(int fd, struct msghdr *message, int flags)
{
	return syscall(SYS_recvmsg, fd, message, flags);
}

int sys_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		 const struct timespec *limit)
{
	return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, limit);
}

int sys_poll(struct pollfd *fds, nfds_t count, int ms)
{
	struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	return (int)syscall(SYS_ppoll, fds, count, ms < 0 ? NULL : &limit, NULL, (size_t)0);
}

int sys_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	return (int)syscall(SYS_nanosleep, wanted, left);
}

ssize_t sys_getrandom(void *to, size_t size, unsigned int flags)
{
	return syscall(SYS_getrandom, to, size, flags);
}

int sys_fallocate(int fd, int mode, off_t offset, off_t size)
{
	return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int sys_wait_any(siginfo_t *info, int options)
{
	return (int)syscall(SYS_waitid, P_ALL, 0, info, options, NULL);
}

pid_t sys_waitpid(pid_t pid, int *status, int options)
{
	return (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
}

void sys_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_cond_wait(cond, mutex);
	pthread_setcancelstate(old, NULL);
}
