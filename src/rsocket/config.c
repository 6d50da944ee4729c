/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The administrator's defaults: files with one number each in /etc/rdma/rsocket, see
 * verbena-rsocket(7). Read once. A file without a number, or with one out of bounds, is ignored.
 */
#include <stdio.h>

#include "rsocket/rs.h"

#define DIRECTORY "/etc/rdma/rsocket/"

static struct rs_config config = {
	.mem = 1 << 17,
	.wmem = 1 << 17,
	.sqsize = 384,
	.rqsize = 384,
	.inline_size = 64,
	.iomap_size = 0,
	.polling_us = 10,
	.wake_up_ms = 5000,
};

static void read_number(const char *path, uint32_t *value, uint32_t least, uint32_t most)
{
	FILE *file = fopen(path, "rec"); /* e: O_CLOEXEC, c: no cancellation point (glibc) */
	unsigned int number;

	if (!file)
		return;
	if (fscanf(file, "%u", &number) == 1 && number >= least && number <= most)
		*value = number;
	fclose(file);
}

static void read_all(void)
{
	uint32_t wake_up = (uint32_t)config.wake_up_ms;

	read_number(DIRECTORY "mem_default", &config.mem, RS_SIZE_LEAST, 1u << 30);
	read_number(DIRECTORY "wmem_default", &config.wmem, RS_SIZE_LEAST, 1u << 30);
	read_number(DIRECTORY "sqsize_default", &config.sqsize, 1, UINT16_MAX);
	read_number(DIRECTORY "rqsize_default", &config.rqsize, 1, UINT16_MAX);
	read_number(DIRECTORY "inline_default", &config.inline_size, 0, 4096);
	read_number(DIRECTORY "iomap_size", &config.iomap_size, 0, 32768);
	read_number(DIRECTORY "polling_time", &config.polling_us, 0, 1000000);
	read_number(DIRECTORY "wake_up_interval", &wake_up, 1, INT32_MAX);
	config.wake_up_ms = (int)wake_up;
}

const struct rs_config *rs_config(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_all);
	return &config;
}
