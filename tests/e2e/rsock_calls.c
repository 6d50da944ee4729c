/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of rsockets that no program of Debian makes, and their results: both ends in one process.
 * Prints deviations, and then exits with 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failed;

static bool holds(bool condition, const char *text, int line)
{
	if (!condition) {
		printf("line %d: not so: %s (%s)\n", line, text, strerror(errno));
		failed = 1;
	}
	return condition;
}
#define CHECK(condition) holds(condition, #condition, __LINE__)
#define FAILS(call, error) CHECK((call) == -1 && errno == (error))

static struct sockaddr_in loopback(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in name = {0};
	socklen_t size = sizeof(name);

	CHECK(!rgetsockname(fd, (struct sockaddr *)&name, &size));
	CHECK(size == sizeof(name));
	return name;
}

static int bound(int type)
{
	struct sockaddr_in name = loopback();
	int fd = rsocket(AF_INET, type, 0);

	CHECK(fd >= 0);
	CHECK(!rbind(fd, (struct sockaddr *)&name, sizeof(name)));
	return fd;
}

/* ------------------------------------------------------------------ streams */

static int listener;

static void *connect_to(void *unused)
{
	struct sockaddr_in name = name_of(listener);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)unused;
	CHECK(!rconnect(fd, (struct sockaddr *)&name, sizeof(name)));
	return (void *)(intptr_t)fd;
}

static void stream_pair(int fds[2])
{
	pthread_t thread;
	void *value;

	pthread_create(&thread, NULL, connect_to, NULL);
	fds[0] = raccept(listener, NULL, NULL);
	CHECK(fds[0] >= 0);
	pthread_join(thread, &value);
	fds[1] = (int)(intptr_t)value;
}

static void vectors(const int fds[2])
{
	char a[3], b[10] = "", out[] = "abcdefg";
	struct iovec to[] = {{out, 2}, {out + 2, 5}}, from[] = {{a, 3}, {b, sizeof(b)}};
	struct msghdr msg = {.msg_iov = from, .msg_iovlen = 2};

	CHECK(rwritev(fds[0], to, 2) == 7);
	CHECK(rrecv(fds[1], b, sizeof(b), MSG_PEEK) == 7 && !memcmp(b, out, 7));
	CHECK(rreadv(fds[1], from, 2) == 7);
	CHECK(!memcmp(a, "abc", 3) && !memcmp(b, "defg", 4));
	msg.msg_iov = to;
	CHECK(rsendmsg(fds[1], &msg, 0) == 7);
	msg.msg_iov = from;
	memset(a, 0, sizeof(a));
	CHECK(rrecvmsg(fds[0], &msg, 0) == 7 && !memcmp(a, "abc", 3));
	CHECK(rwrite(fds[0], out, 4) == 4 && rread(fds[1], b, sizeof(b)) == 4);
	CHECK(rsendto(fds[0], out, 4, 0, NULL, 0) == 4);
	CHECK(rrecvfrom(fds[1], b, 4, MSG_WAITALL, NULL, NULL) == 4);
	FAILS(rsend(fds[0], out, 1, MSG_OOB), EOPNOTSUPP);
}

static void waits(const int fds[2])
{
	struct timeval soon = {.tv_usec = 20000}, now = {0};
	struct pollfd polled = {.fd = fds[0], .events = POLLIN | POLLOUT};
	fd_set in, out;
	char byte;

	CHECK(rpoll(&polled, 1, 0) == 1 && polled.revents == POLLOUT);
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fds[0], &in);
	FD_SET(fds[0], &out);
	CHECK(rselect(fds[0] + 1, &in, &out, NULL, &now) == 1);
	CHECK(!FD_ISSET(fds[0], &in) && FD_ISSET(fds[0], &out));
	CHECK(!rsetsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)));
	FAILS(rrecv(fds[0], &byte, 1, 0), EAGAIN);
	FAILS(rrecv(fds[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
	CHECK(!rfcntl(fds[1], F_SETFL, (long)O_NONBLOCK));
	CHECK(rfcntl(fds[1], F_GETFL, 0L) & O_NONBLOCK);
	FAILS(rrecv(fds[1], &byte, 1, 0), EAGAIN);
	CHECK(!rfcntl(fds[1], F_SETFL, 0L));
}

static void options(const int fds[2])
{
	int value = 1, type = 0;
	socklen_t size = sizeof(value);

	CHECK(!rsetsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &value, size));
	value = 0;
	CHECK(!rgetsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &value, &size) && value == 1);
	CHECK(!rgetsockopt(fds[0], SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM);
	CHECK(!rgetsockopt(fds[0], SOL_RDMA, RDMA_SQSIZE, &value, &size) && value > 0);
	FAILS(rsetsockopt(fds[0], SOL_SOCKET, 12345, &value, size), ENOPROTOOPT);
	FAILS(rsetsockopt(fds[0], SOL_RDMA, RDMA_RQSIZE, &value, size), EINVAL);
	FAILS(rfcntl(fds[0], F_GETOWN, 0L), EINVAL);
}

/* Each end's peer name is the other's name; shutting one direction down leaves the other. */
static void names_and_ends(const int fds[2])
{
	struct sockaddr_in own = name_of(fds[1]), peer = {0};
	socklen_t size = sizeof(peer);
	char byte = 'x';

	CHECK(!rgetpeername(fds[0], (struct sockaddr *)&peer, &size));
	CHECK(peer.sin_port == own.sin_port && peer.sin_addr.s_addr == own.sin_addr.s_addr);
	CHECK(!rshutdown(fds[0], SHUT_WR));
	CHECK(rread(fds[1], &byte, 1) == 0);
	FAILS(rsend(fds[0], &byte, 1, MSG_NOSIGNAL), EPIPE);
	CHECK(rsend(fds[1], "y", 1, 0) == 1);
	CHECK(rrecv(fds[0], &byte, 1, 0) == 1 && byte == 'y');
}

/* The last byte sent before has arrived, so direct writes before it have, too. */
static void direct(const int fds[2])
{
	char *memory = calloc(1, 4096), byte;
	off_t offset = riomap(fds[0], memory, 4096, PROT_WRITE, 0, 1000);

	CHECK(offset == 1000);
	CHECK(rsend(fds[0], "m", 1, 0) == 1 && rrecv(fds[1], &byte, 1, 0) == 1);
	CHECK(riowrite(fds[1], "placed", 7, 1000 + 100, 0) == 7);
	CHECK(rsend(fds[1], "p", 1, 0) == 1 && rrecv(fds[0], &byte, 1, 0) == 1);
	CHECK(!strcmp(memory + 100, "placed"));
	CHECK(riowrite(fds[1], "x", 1, 1000 + 4096, 0) == (size_t)-1 && errno == EINVAL);
	CHECK(!riounmap(fds[0], memory, 4096));
	FAILS(riounmap(fds[0], memory, 4096), EINVAL);
	free(memory);
}

/* A child can close its copies of rsockets, which doesn't affect the parent's. */
static void child(const int fds[2])
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		char byte;

		FAILS(rrecv(fds[0], &byte, 1, 0), EBADF);
		CHECK(!rclose(fds[0]) && !rclose(fds[1]));
		FAILS(rclose(fds[0]), EBADF);
		_exit(failed);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void streams(void)
{
	int fds[2], maps = 4;
	char byte;

	listener = bound(SOCK_STREAM);
	CHECK(!rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof(maps)));
	CHECK(!rlisten(listener, 4));
	stream_pair(fds);
	vectors(fds);
	waits(fds);
	options(fds);
	child(fds);
	names_and_ends(fds);
	CHECK(!rclose(fds[0]) && !rclose(fds[1]));
	FAILS(rread(fds[0], &byte, 1), EBADF);
	/* Only the accepted end has a table for mappings. */
	stream_pair(fds);
	direct((int[]){fds[1], fds[0]});
	CHECK(riomap(fds[0], &byte, 1, PROT_WRITE, 0, -1) == -1 && errno == ENOBUFS);
	CHECK(!rclose(fds[0]) && !rclose(fds[1]));
	CHECK(!rclose(listener));
}

/* ------------------------------------------------------------------ attempts to connect */

/* The calls that an attempt to connect needs: rsockets', and TCP's, which say what is right. */
static const struct kind {
	int (*open)(int domain, int type, int protocol);
	int (*bind)(int fd, const struct sockaddr *addr, socklen_t size);
	int (*listen)(int fd, int backlog);
	int (*accept)(int fd, struct sockaddr *addr, socklen_t *size);
	int (*connect)(int fd, const struct sockaddr *addr, socklen_t size);
	int (*poll)(struct pollfd *fds, nfds_t count, int timeout);
	int (*getsockopt)(int fd, int level, int name, void *value, socklen_t *size);
	int (*getsockname)(int fd, struct sockaddr *addr, socklen_t *size);
	ssize_t (*recv)(int fd, void *buf, size_t size, int flags);
	int (*close)(int fd);
} kinds[] = {
	{rsocket, rbind, rlisten, raccept, rconnect, rpoll, rgetsockopt, rgetsockname, rrecv,
	 rclose},
	{socket, bind, listen, accept, connect, poll, getsockopt, getsockname, recv, close},
};

static int connect_once(const struct kind *k, int fd, const struct sockaddr_in *to)
{
	return k->connect(fd, (const struct sockaddr *)to, sizeof(*to)) ? errno : 0;
}

/* The error of one attempt by a socket that doesn't block, asked for again and again. */
static int attempt(const struct kind *k, int fd, const struct sockaddr_in *to)
{
	struct pollfd polled = {.fd = fd, .events = POLLOUT};
	int err = connect_once(k, fd, to);

	while (err == EINPROGRESS || err == EALREADY) {
		k->poll(&polled, 1, -1);
		err = connect_once(k, fd, to);
	}
	return err;
}

/* SO_ERROR takes the error, so that the next call has none to tell. */
static void told_by_option(const struct kind *k, int fd, const struct sockaddr_in *to)
{
	struct pollfd polled = {.fd = fd, .events = POLLOUT};
	int err = connect_once(k, fd, to), told = 0;
	socklen_t size = sizeof(told);

	if (err != EINPROGRESS) { /* it was refused within the call */
		CHECK(err == ECONNREFUSED);
		return;
	}
	CHECK(k->poll(&polled, 1, -1) == 1 && polled.revents & POLLERR);
	CHECK(!k->getsockopt(fd, SOL_SOCKET, SO_ERROR, &told, &size) && told == ECONNREFUSED);
	CHECK(connect_once(k, fd, to) == ECONNABORTED);
}

/* `name`: its address; port 0: any, which it is told. */
static int socket_of(const struct kind *k, int flags, struct sockaddr_in *name)
{
	int fd = k->open(AF_INET, SOCK_STREAM | flags, 0);
	socklen_t size = sizeof(*name);

	CHECK(fd >= 0 && !k->bind(fd, (struct sockaddr *)name, size));
	CHECK(!k->getsockname(fd, (struct sockaddr *)name, &size));
	return fd;
}

struct acceptor {
	const struct kind *kind;
	int fd;
};

static void *accept_one(void *arg)
{
	const struct acceptor *a = arg;
	int fd = a->kind->accept(a->fd, NULL, NULL);

	CHECK(fd >= 0 && !a->kind->close(fd));
	return NULL;
}

/* An attempt that fails tells why, once; the next call is another attempt, from the same port,
 * which succeeds if there is a listener by then. */
static void refused(const struct kind *k)
{
	struct sockaddr_in to = loopback(), own = loopback(), later = loopback();
	socklen_t size = sizeof(later);
	int target = socket_of(k, 0, &to), blocking = socket_of(k, 0, &later);
	pthread_t thread;

	k->close(socket_of(k, 0, &own));
	int fd = socket_of(k, SOCK_NONBLOCK, &own); /* a port that the program has chosen is kept */
	char byte;

	for (int i = 0; i < 3; i++) {
		CHECK(attempt(k, fd, &to) == ECONNREFUSED);
		CHECK(k->recv(fd, &byte, 1, 0) == -1 && errno == ENOTCONN);
		CHECK(connect_once(k, blocking, &to) == ECONNREFUSED);
	}
	told_by_option(k, fd, &to);
	CHECK(attempt(k, fd, &to) == ECONNREFUSED);
	CHECK(!k->listen(target, 4));
	pthread_create(&thread, NULL, accept_one, &(struct acceptor){k, target});
	int err = attempt(k, fd, &to);

	CHECK(!err || err == EISCONN);
	pthread_join(thread, NULL);
	CHECK(!k->getsockname(fd, (struct sockaddr *)&later, &size));
	CHECK(later.sin_port == own.sin_port);
	k->close(blocking);
	k->close(fd);
	k->close(target);
}

/* ------------------------------------------------------------------ datagrams */

/* Datagrams there and back, several times: first by UDP, then by the queue pairs. */
static void exchange(int a, int b, size_t size)
{
	struct sockaddr_in to = name_of(b), from = {0};
	char out[2048], in[2048];
	socklen_t name_size = sizeof(from);

	for (int i = 0; i < 10; i++) {
		memset(out, 'a' + i, sizeof(out));
		CHECK(rsendto(a, out, size, 0, (struct sockaddr *)&to, sizeof(to)) ==
		      (ssize_t)size);
		name_size = sizeof(from);
		CHECK(rrecvfrom(b, in, sizeof(in), 0, (struct sockaddr *)&from, &name_size) ==
		      (ssize_t)size);
		CHECK(!memcmp(in, out, size) && from.sin_port == name_of(a).sin_port);
		CHECK(rsendto(b, "!", 1, 0, (struct sockaddr *)&from, name_size) == 1);
		CHECK(rrecv(a, in, sizeof(in), 0) == 1 && in[0] == '!');
	}
}

static void datagrams(void)
{
	int a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM), c = bound(SOCK_DGRAM), type = 0;
	struct sockaddr_in to = name_of(b);
	struct pollfd polled = {.fd = b, .events = POLLIN};
	socklen_t size = sizeof(type);
	char in[16], out[4096] = "0123456789";
	struct iovec iov = {in, 4};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	CHECK(!rgetsockopt(a, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_DGRAM);
	FAILS(rsend(a, out, 1, 0), EDESTADDRREQ);
	FAILS(rlisten(a, 1), EOPNOTSUPP);
	FAILS(rrecv(a, in, 1, MSG_DONTWAIT), EAGAIN);
	exchange(a, b, 0);
	exchange(a, b, 100);
	exchange(a, b, 2000);
	FAILS(rsendto(a, out, sizeof(out), 0, (struct sockaddr *)&to, sizeof(to)), EMSGSIZE);
	CHECK(!rconnect(a, (struct sockaddr *)&to, sizeof(to)));
	CHECK(rsend(a, out, 10, 0) == 10 && rsend(a, "x", 1, 0) == 1);
	CHECK(rpoll(&polled, 1, 60000) == 1 && polled.revents == POLLIN);
	CHECK(rrecvmsg(b, &msg, MSG_PEEK) == 4 && msg.msg_flags & MSG_TRUNC);
	CHECK(rrecv(b, in, sizeof(in), 0) == 10 && rrecv(b, in, sizeof(in), 0) == 1);
	/* A connected rsocket receives from its peer only. */
	to = name_of(a);
	CHECK(rsendto(c, "stranger", 8, 0, (struct sockaddr *)&to, sizeof(to)) == 8);
	CHECK(rsendto(b, "peer", 4, 0, (struct sockaddr *)&to, sizeof(to)) == 4);
	CHECK(rrecv(a, in, sizeof(in), 0) == 4 && !memcmp(in, "peer", 4));
	CHECK(!rclose(a) && !rclose(b) && !rclose(c));
}

/* ------------------------------------------------------------------ closing what is waited for */

struct sleeper {
	int fd;
	_Atomic pid_t tid;
	int result, error;
	short revents;
};

static void *poll_until_closed(void *arg)
{
	struct sleeper *me = arg;
	struct pollfd polled = {.fd = me->fd, .events = POLLIN};

	me->tid = gettid();
	me->result = rpoll(&polled, 1, 60000);
	me->revents = polled.revents;
	return NULL;
}

static void *accept_until_closed(void *arg)
{
	struct sleeper *me = arg;

	me->tid = gettid();
	me->result = raccept(me->fd, NULL, NULL);
	me->error = errno;
	return NULL;
}

/* Whether the thread sleeps in the system call in which rsockets sleep. */
static bool sleeps(pid_t tid)
{
	char path[64];
	long number = -1;

	if (!tid)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	FILE *file = fopen(path, "re");

	if (!file || fscanf(file, "%ld", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
#ifdef SYS_poll
	if (number == SYS_poll)
		return true;
#endif
	return number == SYS_ppoll;
}

/* Closes an rsocket in which `count` threads sleep, and opens another one, which may get the same
 * number but must not be used by those threads. */
static void close_under(void *(*body)(void *), struct sleeper *sleepers, int count)
{
	pthread_t threads[4];
	int fd = bound(SOCK_STREAM);

	CHECK(!rlisten(fd, 1));
	for (int i = 0; i < count; i++) {
		sleepers[i].fd = fd;
		CHECK(!pthread_create(&threads[i], NULL, body, &sleepers[i]));
	}
	for (int i = 0; i < count; i++)
		while (!sleeps(sleepers[i].tid))
			usleep(1000);
	CHECK(!rclose(fd));
	fd = bound(SOCK_STREAM);
	CHECK(!rlisten(fd, 1));
	for (int i = 0; i < count; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(!rclose(fd));
}

static void closed_meanwhile(void)
{
	struct sleeper pollers[4] = {0}, accepting[1] = {0};

	close_under(poll_until_closed, pollers, 4);
	for (int i = 0; i < 4; i++)
		CHECK(pollers[i].result == 1 && pollers[i].revents == POLLNVAL);
	close_under(accept_until_closed, accepting, 1);
	CHECK(accepting[0].result == -1 && accepting[0].error == EBADF);
}

static void *select_until_closed(void *arg)
{
	struct sleeper *me = arg;
	fd_set set;

	me->tid = gettid();
	FD_ZERO(&set);
	FD_SET(me->fd, &set);
	me->result = rselect(me->fd + 1, &set, NULL, NULL, NULL);
	return NULL;
}

/* Threads are cancelled while they sleep for an rsocket, which can then still be used and
 * closed. */
static void cancelled_meanwhile(void)
{
	enum { BODIES = 3, SECONDS = 180 };
	void *(*const bodies[BODIES])(void *) = {poll_until_closed, accept_until_closed,
						 select_until_closed};
	int fd = bound(SOCK_STREAM);
	void *result;

	CHECK(!rlisten(fd, 1));
	alarm(SECONDS); /* a wait for a thread that has ended would last for ever */
	for (int i = 0; i < BODIES; i++) {
		struct sleeper sleeper = {.fd = fd};
		struct pollfd polled = {.fd = fd, .events = POLLIN};
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, bodies[i], &sleeper));
		while (!sleeps(sleeper.tid))
			usleep(1000);
		CHECK(!pthread_cancel(thread));
		CHECK(!pthread_join(thread, &result));
		CHECK(result == PTHREAD_CANCELED);
		CHECK(!rpoll(&polled, 1, 1));
	}
	CHECK(!rclose(fd));
	alarm(0);
}

/* A thread with a pending cancellation request makes calls: it may end only where it sleeps. */
static void *send_and_receive(void *arg)
{
	const int *fds = arg;
	char byte = 'x';

	pthread_cancel(pthread_self());
	if (rsend(fds[0], &byte, 1, 0) == 1 && rrecv(fds[1], &byte, 1, MSG_WAITALL) == 1)
		(void)rrecv(fds[1], &byte, 1, MSG_DONTWAIT);
	return NULL;
}

static void cancelled_before(void)
{
	enum { ROUNDS = 50, SECONDS = 180 };
	pthread_t thread;
	int fds[2];

	listener = bound(SOCK_STREAM);
	CHECK(!rlisten(listener, 1));
	stream_pair(fds);
	alarm(SECONDS);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(!pthread_create(&thread, NULL, send_and_receive, fds));
		CHECK(!pthread_join(thread, NULL));
	}
	for (char byte[ROUNDS]; rrecv(fds[1], byte, sizeof(byte), MSG_DONTWAIT) > 0;)
		;
	CHECK(rsend(fds[0], "y", 1, 0) == 1);
	CHECK(!rclose(listener));
	CHECK(!rclose(fds[0]));
	CHECK(!rclose(fds[1]));
	alarm(0);
}

int main(void)
{
	char byte;

	setvbuf(stdout, NULL, _IOLBF, 0);
	FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
	FAILS(rsocket(AF_INET, SOCK_RAW, 0), ESOCKTNOSUPPORT);
	FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	FAILS(rread(0, &byte, 1), EBADF);
	streams();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		refused(&kinds[i]);
	datagrams();
	closed_meanwhile();
	cancelled_meanwhile();
	cancelled_before();
	return failed;
}
