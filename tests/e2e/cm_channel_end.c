/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of an event channel that other threads use. As in the kernel, a thread that waits for an
 * event when the channel is destroyed keeps waiting, and a thread that asks afterwards gets EBADF.
 * Whatever the order, no memory of the program changes and no descriptor is left.
 *
 * usage: cm_channel_end ROUNDS
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The largest block that is looked at, in bytes, and how many of each size. */
enum { BLOCK_MAX = 128, BLOCKS = 4 };

static void require(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s (%s)\n", what, strerrorname_np(errno));
	exit(1);
}

static struct rdma_event_channel *channel_make(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	require(channel, "rdma_create_event_channel");
	return channel;
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	require(dir, "/proc/self/fd");
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* A call on a destroyed channel: its memory may be the program's again by then. */
static void asks_late(void)
{
	struct rdma_event_channel *channel = channel_make();
	struct rdma_cm_event *event;
	static uint8_t *blocks[BLOCK_MAX][BLOCKS];
	static const uint8_t zeros[BLOCK_MAX];

	rdma_destroy_event_channel(channel);
	for (size_t size = 1; size < BLOCK_MAX; size++) {
		for (int i = 0; i < BLOCKS; i++) {
			blocks[size][i] = calloc(1, size);
			require(blocks[size][i], "calloc");
		}
	}
	errno = 0;
	require(rdma_get_cm_event(channel, &event) == -1 && errno == EBADF,
		"a call on a destroyed channel doesn't return EBADF");
	for (size_t size = 1; size < BLOCK_MAX; size++) {
		for (int i = 0; i < BLOCKS; i++) {
			require(!memcmp(blocks[size][i], zeros, size),
				"a call on a destroyed channel changed the program's memory");
			free(blocks[size][i]);
		}
	}
}

struct reader {
	struct rdma_event_channel *channel;
	pthread_t thread;
	sem_t begins;
	atomic_bool returned;
	int error;
};

static void *read_events(void *arg)
{
	struct reader *reader = arg;
	struct rdma_cm_event *event;

	sem_post(&reader->begins);
	reader->error = rdma_get_cm_event(reader->channel, &event) ? errno : 0;
	reader->returned = true;
	return NULL;
}

/* The channel is destroyed while a thread waits or is about to: it either waits until it is
 * cancelled, or was late. */
static void destroyed_while_read(void)
{
	struct reader reader = {.channel = channel_make()};

	sem_init(&reader.begins, 0, 0);
	require(!pthread_create(&reader.thread, NULL, read_events, &reader), "pthread_create");
	sem_wait(&reader.begins);
	rdma_destroy_event_channel(reader.channel);
	pthread_cancel(reader.thread);
	pthread_join(reader.thread, NULL);
	errno = reader.error;
	require(!reader.returned || reader.error == EBADF,
		"a thread that waited on a destroyed channel returned");
	sem_destroy(&reader.begins);
}

/* A child of a process whose thread waits on the channel: the child has no such thread, so its copy
 * of the descriptor is closed. */
static void destroyed_by_child(void)
{
	struct reader reader = {.channel = channel_make()};
	int fd = reader.channel->fd, status = 0;

	sem_init(&reader.begins, 0, 0);
	require(!pthread_create(&reader.thread, NULL, read_events, &reader), "pthread_create");
	sem_wait(&reader.begins);
	pid_t child = fork();

	if (!child) {
		rdma_destroy_event_channel(reader.channel);
		_exit(fcntl(fd, F_GETFD) == -1 && errno == EBADF ? 0 : 1);
	}
	require(child > 0 && waitpid(child, &status, 0) == child, "fork");
	require(!status, "a child's channel is destroyed, and its descriptor is left");
	pthread_cancel(reader.thread);
	pthread_join(reader.thread, NULL);
	rdma_destroy_event_channel(reader.channel);
	sem_destroy(&reader.begins);
}

int main(int argc, char **argv)
{
	int rounds = argc == 2 ? atoi(argv[1]) : 0;

	require(rounds > 0, "usage: cm_channel_end ROUNDS");
	struct rdma_event_channel *first = channel_make(); /* begins what stays */
	int before = descriptors();

	for (int i = 0; i < rounds; i++) {
		asks_late();
		destroyed_while_read();
		destroyed_by_child();
	}
	require(descriptors() == before, "descriptors are left");
	rdma_destroy_event_channel(first);
	printf("%d rounds\n", rounds);
	return 0;
}
