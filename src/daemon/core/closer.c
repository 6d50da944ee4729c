/* SPDX-License-Identifier: BSD-2-Clause */
/* Closing what clients sent. See closer.h. Owns the queues and the descriptors in them. */
#include "daemon/core/closer.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "base/mutex.h"

/* Descriptors that were handed over in one call. */
struct batch {
	struct list node; /* on closer.queue */
	unsigned int count;
	int fds[];
};

/* A user with descriptors to close. It is freed by its thread, when its queue is empty. */
struct closer {
	struct list node; /* on `closers` */
	uid_t uid;
	struct list queue;
	uint32_t pending; /* descriptors in the queue and in the batch that is being closed */
	bool has_thread;  /* false: none could be started; the user's next descriptor tries again */
};

static uint32_t left_open; /* the loop thread's */

static struct mutex closer_lock = MUTEX_INITIALIZER(RANK_CLOSER);
static struct list closers GUARDED_BY(closer_lock) = {&closers, &closers};

static void batch_close(struct closer *closer, struct batch *batch) EXCLUDES(closer_lock)
{
	for (unsigned int i = 0; i < batch->count; i++) {
		close(batch->fds[i]);
		mutex_take(&closer_lock);
		closer->pending--;
		mutex_give(&closer_lock);
	}
	free(batch);
}

static void *closer_run(void *argument)
{
	struct closer *closer = argument;
	struct list *node;

	pthread_setname_np(pthread_self(), CLOSER_THREAD);
	mutex_take(&closer_lock);
	while ((node = list_pop(&closer->queue))) {
		mutex_give(&closer_lock);
		batch_close(closer, container_of(node, struct batch, node));
		mutex_take(&closer_lock);
	}
	list_del(&closer->node);
	mutex_give(&closer_lock);
	free(closer);
	return NULL;
}

/* The thread takes no signal: those that end the daemon are the loop's. */
static bool closer_start(struct closer *closer)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&thread, &attr, closer_run, closer);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		log_error("can't start a thread that closes user %u's descriptors: %s", closer->uid,
			  strerror(err));
	return !err;
}

static struct closer *closer_find(uid_t uid) REQUIRES(closer_lock)
{
	list_for_each(node, &closers) {
		struct closer *closer = container_of(node, struct closer, node);

		if (closer->uid == uid)
			return closer;
	}
	return NULL;
}

static struct closer *closer_get(uid_t uid) REQUIRES(closer_lock)
{
	struct closer *closer = closer_find(uid);

	if (closer)
		return closer;
	closer = calloc(1, sizeof(*closer));
	if (!closer)
		return NULL;
	closer->uid = uid;
	list_init(&closer->queue);
	list_add_tail(&closers, &closer->node);
	return closer;
}

/* Returns whether the batch was taken over. */
static bool closer_put(uid_t uid, struct batch *batch) EXCLUDES(closer_lock)
{
	mutex_take(&closer_lock);
	struct closer *closer = closer_get(uid);

	if (closer) {
		list_add_tail(&closer->queue, &batch->node);
		closer->pending += batch->count;
		if (!closer->has_thread)
			closer->has_thread = closer_start(closer);
	}
	mutex_give(&closer_lock);
	return closer;
}

void closer_close(uid_t uid, int *fds, unsigned int count)
{
	unsigned int open = 0;

	for (unsigned int i = 0; i < count; i++)
		open += fds[i] >= 0;
	if (!open)
		return;
	struct batch *batch = malloc(sizeof(*batch) + open * sizeof(int));

	if (batch)
		batch->count = 0;
	for (unsigned int i = 0; i < count; i++) {
		if (batch && fds[i] >= 0)
			batch->fds[batch->count++] = fds[i];
		fds[i] = -1;
	}
	if (batch && closer_put(uid, batch))
		return;
	free(batch);
	left_open += open;
	log_error("no memory to close %u descriptors of user %u; they stay open", open, uid);
}

/*
 * Whether closing the connected socket would drop packets. After the shutdown no more can come. The
 * size of a packet without bytes looks like that end; with SO_PASSCRED each packet has credentials,
 * and MSG_CTRUNC shows them. A stream has no such packets, but shows credentials at its end.
 */
static bool socket_has_packets(int fd)
{
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int on = 1, type;
	socklen_t size = sizeof(type);

	if (shutdown(fd, SHUT_RD) < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return true;
	if (recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT) != 0)
		return true;
	return type != SOCK_STREAM && (m.msg_flags & MSG_CTRUNC);
}

void closer_close_socket(uid_t uid, int fd)
{
	if (!socket_has_packets(fd)) {
		close(fd);
		return;
	}
	shutdown(fd, SHUT_RDWR); /* the client sees the end now, whenever the thread gets to it */
	closer_close(uid, &fd, 1);
}

void closer_close_accepted(int fd)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t size = sizeof(cred);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size);
	closer_close_socket(cred.uid, fd);
}

uint32_t closer_pending(uid_t uid)
{
	mutex_take(&closer_lock);
	const struct closer *closer = closer_find(uid);
	uint32_t pending = closer ? closer->pending : 0;

	mutex_give(&closer_lock);
	return pending;
}

uint32_t closer_left_open(void)
{
	return left_open;
}

bool closer_is_idle(void)
{
	mutex_take(&closer_lock);
	bool idle = list_empty(&closers);

	mutex_give(&closer_lock);
	return idle;
}
