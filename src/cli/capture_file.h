/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file that `verbena capture` writes: pcapng, with an interface for each device, and another
 * one for each device that has frames of raw packet queue pairs. A packet belongs to the device
 * that has its address on this host. Of a port of the fabric it has no devices: verbena-fabric has
 * made the section, an interface and the packets of management datagrams; data's packets have an
 * interface of their own, written before the first of them. Blocks are collected in a buffer until
 * capture_file_flush(), and written whole. One thread.
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
	uint8_t gid[LIMIT_GID_INDICES][16];
	uint64_t packets;
	/* Its Ethernet frames are on an interface of their own, written before the first of them.
	 */
	uint32_t frames_interface; /* 0: not yet */
	uint64_t frames;
};

struct capture_file {
	int fd;
	bool is_stdout;
	uint8_t *buffer;
	size_t used;
	struct capture_device device[CAPTURE_DEVICES];
	uint32_t devices;
	uint32_t interfaces;	 /* written */
	uint32_t link_interface; /* of data at a port of the fabric; 0: not yet */
	uint32_t snap;
	uint64_t packets, bytes; /* written */
	uint64_t last_ns;	 /* time of the latest packet */
};

/* Opens the file; `path` "-": standard output. Returns 0 or -errno. */
int capture_file_open(struct capture_file *file, const char *path);
void capture_file_close(struct capture_file *file);

/* Takes the devices and their addresses from a status reply; later calls update the addresses only.
 * `only`: the device to capture, NULL: all. Returns 0; -ENODEV: no device of that name. */
int capture_file_devices(struct capture_file *file, const json_t *devices, const char *only);

/* Writes the section and interface blocks; `snap`: the limit of bytes that the interface blocks
 * state. Returns 0 or -errno. */
int capture_file_begin(struct capture_file *file, uint32_t snap);

/* The index of the device that a packet belongs to; -1: no device has the address. */
int capture_file_device(const struct capture_file *file, const struct tap_record *head,
			const uint8_t *bytes);
/* Adds a packet. Returns 0 or -errno. */
int capture_file_packet(struct capture_file *file, int device, const struct tap_record *head,
			const uint8_t *bytes);
/* Adds data's packet at a port of the fabric. Returns 0 or -errno. */
int capture_file_link(struct capture_file *file, const struct tap_record *head,
		      const uint8_t *bytes);
/* Adds a block that verbena-fabric has made, at most CAPTURE_BLOCK_MAX bytes. Returns 0 or -errno.
 */
enum { CAPTURE_BLOCK_MAX = 65536 };
int capture_file_block(struct capture_file *file, const uint8_t *block, size_t bytes);
/* Writes the interfaces' statistics. `lost`: lost packets of all devices. */
int capture_file_end(struct capture_file *file, uint64_t lost);
/* Writes the buffer to the file. Returns 0 or -errno. */
int capture_file_flush(struct capture_file *file);

#endif
