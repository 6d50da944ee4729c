/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Included before every source file that is built into a fuzz target: calls whose results the input
 * decides go to the harness. The system's own declarations are included first, so that only this
 * source's calls are renamed.
 */
#ifndef VERBENA_TESTS_FUZZ_REPLACED_H
#define VERBENA_TESTS_FUZZ_REPLACED_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/sys.h"

#ifdef FUZZ_HCA
int fuzz_clock_gettime(clockid_t clock, struct timespec *out);
int fuzz_nanosleep(const struct timespec *wanted, struct timespec *left);
int fuzz_sched_yield(void);
int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			void *arg);
int fuzz_pthread_setname_np(pthread_t thread, const char *name);
ssize_t fuzz_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			      const struct iovec *remote, unsigned long remote_count,
			      unsigned long flags);
ssize_t fuzz_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
			       const struct iovec *remote, unsigned long remote_count,
			       unsigned long flags);
#define clock_gettime fuzz_clock_gettime
#define sys_nanosleep fuzz_nanosleep
#define sched_yield fuzz_sched_yield
#define pthread_create fuzz_pthread_create
#define pthread_setname_np fuzz_pthread_setname_np
#define process_vm_readv fuzz_process_vm_readv
#define process_vm_writev fuzz_process_vm_writev
#endif

#ifdef FUZZ_RDMACM
ssize_t fuzz_sendmsg(int fd, const struct msghdr *message, int flags);
#define sys_sendmsg fuzz_sendmsg
#endif

#ifdef FUZZ_DAEMON
void *fuzz_malloc(size_t size);
void *fuzz_calloc(size_t count, size_t size);
void *fuzz_realloc(void *old, size_t size);
int fuzz_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int fuzz_memfd_create(const char *name, unsigned int flags);
int fuzz_socketpair(int domain, int type, int protocol, int *fds);
int fuzz_clock_gettime(clockid_t clock, struct timespec *out);
#define malloc fuzz_malloc
#define calloc fuzz_calloc
#define realloc fuzz_realloc
#define getsockopt fuzz_getsockopt
#define memfd_create fuzz_memfd_create
#define socketpair fuzz_socketpair
#define clock_gettime fuzz_clock_gettime
#endif

#endif
