/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library for LD_PRELOAD: any program then has registered blocks in its heap, whose pages are
 * converted with VERBENA_MEMORY=shared (docs/memory.md), while the program's own data is on the
 * same pages. In each process it registers blocks of several sizes before main(), and anew after
 * each fork. Their bytes must be as they were, in the process that exits and in its children.
 *
 * HEAP_REGISTERED names a file, to which each process appends "registered N converted M", and
 * "changed" if bytes have changed. One thread, before main(); the fork handlers' thread; exit's.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "maps.h"

enum { BLOCKS = 24, PATTERN = 0x6b };

static const size_t sizes[] = {40, 200, 1000, 5000, 20000, 130000};
static struct {
	uint8_t *at;
	size_t size;
	struct ibv_mr *mr;
} blocks[BLOCKS];
static struct ibv_pd *pd;
static bool in_child;

static void heap_say(const char *text)
{
	const char *name = getenv("HEAP_REGISTERED");
	int fd = name ? open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror(name);
	close(fd);
}

static void blocks_register(void)
{
	enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].at)
			blocks[i].mr = ibv_reg_mr(pd, blocks[i].at, blocks[i].size, ALL);
}

static void blocks_check(void)
{
	for (int i = 0; i < BLOCKS; i++)
		for (size_t k = 0; blocks[i].at && k < blocks[i].size; k++)
			if (blocks[i].at[k] != PATTERN + i) {
				heap_say("changed\n");
				abort();
			}
}

static void after_fork(void)
{
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].mr && !ibv_dereg_mr(blocks[i].mr))
			blocks[i].mr = NULL;
	blocks_register();
}

static void after_fork_in_child(void)
{
	in_child = true;
}

static void blocks_say(void)
{
	int registered = 0, converted = 0;
	char text[64];

	for (int i = 0; i < BLOCKS; i++) {
		registered += blocks[i].mr != NULL;
		converted += blocks[i].mr && is_converted(blocks[i].at);
	}
	snprintf(text, sizeof(text), "registered %d converted %d\n", registered, converted);
	heap_say(text);
}

__attribute__((constructor)) static void heap_begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
	void *between[BLOCKS];

	pd = context ? ibv_alloc_pd(context) : NULL;
	ibv_free_device_list(list);
	if (!pd)
		return;
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i].size = sizes[(size_t)i % (sizeof(sizes) / sizeof(sizes[0]))];
		blocks[i].at = malloc(blocks[i].size);
		between[i] = malloc(300);
		if (blocks[i].at)
			memset(blocks[i].at, PATTERN + i, blocks[i].size);
	}
	blocks_register();
	/* The program's own data comes here. */
	for (int i = 0; i < BLOCKS; i++)
		free(between[i]);
	blocks_say();
	pthread_atfork(NULL, after_fork, after_fork_in_child);
}

__attribute__((destructor)) static void heap_end(void)
{
	if (pd)
		blocks_check();
}
