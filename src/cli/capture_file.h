/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file that `verbena capture` writes: pcapng, an interface for each device. A packet belongs to
 * the device that has its address on this host. Blocks are written whole; what is written is kept
 * in a buffer until capture_file_flush(). One thread.
 */
#ifndef VERBENA_CLI_CAPTURE_FILE_H
#define VERBENA_CLI_CAPTURE_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"
#include "shm/tap.h"

enum { CAPTURE_DEVICES = 16 };

struct capture_device {
	char name[32];
	bool wanted;
	uint32_t gids;
	uint8_t gid[LIMIT_GIDS][16];
	uint64_t packets;
};

struct capture_file {
	int fd;
	bool is_stdout;
	uint8_t *buffer;
	size_t used;
	struct capture_device device[CAPTURE_DEVICES];
	uint32_t devices;
	uint64_t packets, bytes; /* written */
	uint64_t last_ns;	 /* of the latest packet */
};

/* `path` "-": standard output. 0 or -errno. */
int capture_file_open(struct capture_file *file, const char *path);
void capture_file_close(struct capture_file *file);

/* Learns the devices (of a status reply) and their addresses; later only the addresses. `only`: the
 * one that is captured, NULL: all. 0; -ENODEV: there is none of that name. */
int capture_file_devices(struct capture_file *file, const json_t *devices, const char *only);

/* Section and interfaces; `snap` as in the interfaces' blocks. */
int capture_file_begin(struct capture_file *file, uint32_t snap);

/* Which device's packet it is; -1: nobody has the address. */
int capture_file_device(const struct capture_file *file, const struct tap_record *head,
			const uint8_t *bytes);
/* 0 or -errno. */
int capture_file_packet(struct capture_file *file, int device, const struct tap_record *head,
			const uint8_t *bytes);
/* The interfaces' statistics. `lost`: packets, of all. */
int capture_file_end(struct capture_file *file, uint64_t lost);
int capture_file_flush(struct capture_file *file);

#endif
