/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory is converted (docs/memory.md) while the program's other threads wait in all kinds of
 * calls, and while some run: no thread may notice. Those that wait have a call that ends for no
 * other reason than the one they wait for; those that run count in words of the memory that is
 * registered, and compare each word with a count of their own before they change it.
 *
 * usage: stopped ROUNDS
 * Prints how many rounds converted the memory and made it private again.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "maps.h"
#include "require.h"

enum { PAGE = 4096, PAGES = 40, WORDS = PAGE / sizeof(uint64_t), COUNTERS = 2 };

static struct shared {
	_Atomic uint64_t word[PAGES][WORDS];
} * memory;
static atomic_bool stop;
static _Atomic unsigned int handled;
static int event, bell[2], sockets[2];
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t *condition_within; /* in the memory that is registered */

/* ------------------------------------------------------------------ threads that wait */

static void *epoll_long(void *unused)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fd = epoll_create1(EPOLL_CLOEXEC);

	(void)unused;
	REQUIRE(fd >= 0 && !epoll_ctl(fd, EPOLL_CTL_ADD, event, &e));
	REQUIRE(epoll_wait(fd, &e, 1, -1) == 1 && stop);
	close(fd);
	return NULL;
}

static void *epoll_short(void *unused)
{
	struct epoll_event e;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	(void)unused;
	while (!stop)
		REQUIRE(epoll_wait(fd, &e, 1, 5) == 0);
	close(fd);
	return NULL;
}

/* A handler ends the call all the same. */
static void *epoll_signalled(void *unused)
{
	struct epoll_event e;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	(void)unused;
	while (!stop) {
		unsigned int before = handled;

		if (epoll_wait(fd, &e, 1, 2000) < 0)
			REQUIRE(errno == EINTR && handled != before);
	}
	close(fd);
	return NULL;
}

static void *sleep_short(void *unused)
{
	(void)unused;
	while (!stop)
		REQUIRE(!nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL));
	return NULL;
}

static void *wait_on_pipe(void *unused)
{
	char c;

	(void)unused;
	REQUIRE(read(bell[0], &c, 1) == 1 && stop);
	return NULL;
}

static void *wait_on_socket(void *unused)
{
	const struct timeval limit = {.tv_sec = 3600};
	char c;

	(void)unused;
	REQUIRE(!setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	REQUIRE(recv(sockets[0], &c, 1, 0) == 1 && stop);
	return NULL;
}

static void *wait_on_semaphore(void *unused)
{
	(void)unused;
	REQUIRE(!sem_wait(&semaphore) && stop);
	return NULL;
}

static void *wait_on_poll(void *unused)
{
	struct pollfd fd = {event, POLLIN, 0};
	fd_set set;

	(void)unused;
	REQUIRE(poll(&fd, 1, 3600000) == 1 && stop);
	FD_ZERO(&set);
	FD_SET(event, &set);
	REQUIRE(select(event + 1, &set, NULL, NULL, &(struct timeval){.tv_sec = 3600}) == 1);
	return NULL;
}

/* Which is on memory that is replaced while the thread sleeps on it. */
static void *wait_on_condition(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	while (!stop)
		REQUIRE(!pthread_cond_wait(condition_within, &mutex));
	pthread_mutex_unlock(&mutex);
	return NULL;
}

/* ------------------------------------------------------------------ threads that run */

static void *count(void *which)
{
	uint64_t n = 0;
	size_t mine = (uintptr_t)which;

	while (!stop) {
		for (int i = 1; i < PAGES; i++) {
			_Atomic uint64_t *word = &memory->word[i][mine + n % 64 * 2];
			uint64_t seen = *word;

			REQUIRE(seen == n / 64);
			*word = seen + 1;
		}
		n++;
		if (n % 64 == 0 && !(n & 0xffff))
			sched_yield();
	}
	return NULL;
}

static void *nothing(void *unused)
{
	return unused;
}

/* Threads and processes that come and go. */
static void *make_threads(void *unused)
{
	(void)unused;
	while (!stop) {
		pthread_t thread;
		void *kept = malloc(100);

		REQUIRE(!pthread_create(&thread, NULL, nothing, NULL));
		REQUIRE(!pthread_join(thread, NULL));
		free(kept);
		usleep(2000);
	}
	return NULL;
}

/* posix_spawn() blocks all signals in this thread, and a SIGCHLD for a child of a thread that
 * blocks it isn't ignored, but interrupts another thread: so the child ends only when told. */
static void *make_processes(void *unused)
{
	char *words[] = {"cat", NULL}, *nowhere[] = {NULL};
	posix_spawn_file_actions_t actions;
	int status, ends[2];
	pid_t pid;

	(void)unused;
	while (!stop) {
		REQUIRE(!pipe2(ends, O_CLOEXEC) && !posix_spawn_file_actions_init(&actions));
		REQUIRE(!posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO));
		REQUIRE(!posix_spawn(&pid, "/bin/cat", &actions, NULL, words, nowhere));
		posix_spawn_file_actions_destroy(&actions);
		close(ends[0]);
		close(ends[1]);
		REQUIRE(waitpid(pid, &status, 0) == pid && !status);
		usleep(20000);
	}
	return NULL;
}

static void handler(int signal)
{
	(void)signal;
	handled++;
}

/* ------------------------------------------------------------------ */

static struct ibv_pd *device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;

	REQUIRE(pd);
	return pd;
}

/* No child is left that the program doesn't know. */
static void children_require_none(void)
{
	REQUIRE(waitpid(-1, NULL, WNOHANG | __WCLONE) < 0 && errno == ECHILD);
}

int main(int argc, char **argv)
{
	static void *(*const threads[])(void *) = {
		epoll_long,	   epoll_short,	 sleep_short,	    wait_on_pipe, wait_on_socket,
		wait_on_semaphore, wait_on_poll, wait_on_condition, make_threads, epoll_signalled,
	};
	enum { THREADS = sizeof(threads) / sizeof(threads[0]) };
	int rounds = argc > 1 ? atoi(argv[1]) : 100, converted = 0, returned = 0;
	pthread_t thread[THREADS], counter[COUNTERS], processes;
	struct ibv_pd *pd = device_open();

	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	REQUIRE(memory != MAP_FAILED && !madvise(memory, PAGES * PAGE, MADV_HUGEPAGE));
	condition_within = (pthread_cond_t *)memory;
	*condition_within = cond;
	event = eventfd(0, EFD_CLOEXEC);
	REQUIRE(event >= 0 && !pipe(bell) && !sem_init(&semaphore, 0, 0));
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	REQUIRE(!sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, NULL));
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_create(&thread[i], NULL, threads[i], NULL));
	for (int i = 0; i < COUNTERS; i++)
		REQUIRE(!pthread_create(&counter[i], NULL, count, (void *)(uintptr_t)i));
	/* The last one: pthread_create() blocks all signals in this thread meanwhile, and a SIGCHLD
	 * that the process's first thread blocks isn't ignored, but interrupts another thread. */
	REQUIRE(!pthread_create(&processes, NULL, make_processes, NULL));
	for (int i = 0; i < rounds; i++) {
		if (i % 2)
			REQUIRE(!pthread_kill(thread[THREADS - 1], SIGUSR1));
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE);

		REQUIRE(mr);
		bool was = is_converted(memory);

		children_require_none();
		converted += was;
		usleep(i % 7 * 100);
		REQUIRE(!ibv_dereg_mr(mr));
		returned += was && is_private(memory);
		children_require_none();
	}
	stop = true;
	REQUIRE(write(event, &(uint64_t){1}, 8) == 8 && write(bell[1], "", 1) == 1);
	REQUIRE(send(sockets[1], "", 1, 0) == 1 && !sem_post(&semaphore));
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(condition_within);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_join(thread[i], NULL));
	for (int i = 0; i < COUNTERS; i++)
		REQUIRE(!pthread_join(counter[i], NULL));
	REQUIRE(!pthread_join(processes, NULL));
	printf("%d rounds, %d converted, %d returned\n", rounds, converted, returned);
	return converted && returned == converted ? 0 : 1;
}
