/* SPDX-License-Identifier: BSD-2-Clause */
/* See capture_file.h. */
#include "cli/capture_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/ctl.h"
#include "wire/pcapng.h"

enum { BUFFER = 1 << 20, BLOCK_MAX = PCAPNG_ROOM + PCAPNG_ERF_BYTES + TAP_PACKET_MAX };

int capture_file_open(struct capture_file *file, const char *path)
{
	memset(file, 0, sizeof(*file));
	file->is_stdout = strcmp(path, "-") == 0;
	file->fd = file->is_stdout ? STDOUT_FILENO
				   : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (file->fd < 0)
		return -errno;
	file->buffer = malloc(BUFFER);
	if (file->buffer)
		return 0;
	capture_file_close(file);
	return -ENOMEM;
}

void capture_file_close(struct capture_file *file)
{
	free(file->buffer);
	file->buffer = NULL;
	if (!file->is_stdout && file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

int capture_file_flush(struct capture_file *file)
{
	size_t done = 0;

	while (done < file->used) {
		ssize_t n = write(file->fd, file->buffer + done, file->used - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	file->used = 0;
	return 0;
}

/* ------------------------------------------------------------------ devices */

static struct capture_device *capture_device_find(struct capture_file *file, const char *name)
{
	for (uint32_t i = 0; i < file->devices; i++)
		if (!strcmp(file->device[i].name, name))
			return &file->device[i];
	return NULL;
}

static void learn_gid(struct capture_device *device, const char *text)
{
	if (device->gids < LIMIT_GID_INDICES &&
	    inet_pton(AF_INET6, text, device->gid[device->gids]) == 1)
		device->gids++;
}

/* Those of its table, and those behind it. */
static void learn_gids(struct capture_device *device, const json_t *facts)
{
	const json_t *gid;
	size_t i;

	device->gids = 0;
	json_array_foreach(json_object_get(facts, "gids"), i, gid)
		learn_gid(device, ctl_string(gid, "gid"));
	json_array_foreach(json_object_get(facts, "hidden_gids"), i, gid)
		learn_gid(device, json_is_string(gid) ? json_string_value(gid) : "");
}

int capture_file_devices(struct capture_file *file, const json_t *devices, const char *only)
{
	bool first = !file->devices;
	const json_t *one;
	size_t i;

	json_array_foreach(devices, i, one) {
		const char *name = ctl_string(one, "name");
		struct capture_device *device = capture_device_find(file, name);

		if (!device && first && file->devices < CAPTURE_DEVICES) {
			device = &file->device[file->devices++];
			strncpy(device->name, name, sizeof(device->name) - 1);
			device->wanted = !only || !strcmp(only, name);
		}
		if (device)
			learn_gids(device, one);
	}
	return only && !capture_device_find(file, only) ? -ENODEV : 0;
}

static int device_with(const struct capture_file *file, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < file->devices; i++)
		for (uint32_t j = 0; j < file->device[i].gids; j++)
			if (!memcmp(file->device[i].gid[j], gid, 16))
				return (int)i;
	return -1;
}

int capture_file_device(const struct capture_file *file, const struct tap_record *head,
			const uint8_t *bytes)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	bool out = head->direction == TAP_OUT;
	uint8_t gid[16];

	if (head->kind == TAP_FRAME)
		return head->device < file->devices ? head->device : -1;

	if (head->captured >= 20 && bytes[0] >> 4 == 4) {
		memcpy(gid, mapped, sizeof(mapped));
		memcpy(gid + 12, bytes + (out ? 12 : 16), 4);
	} else if (head->captured >= 40 && bytes[0] >> 4 == 6) {
		memcpy(gid, bytes + (out ? 8 : 24), 16);
	} else {
		return -1;
	}
	return device_with(file, gid);
}

/* ------------------------------------------------------------------ blocks */

/* Makes room for one block; NULL: *err has the error. */
static uint8_t *capture_file_room(struct capture_file *file, int *err)
{
	*err = file->used + BLOCK_MAX > BUFFER ? capture_file_flush(file) : 0;
	return *err ? NULL : file->buffer + file->used;
}

/* The interface's number for a device's packets: interfaces are numbered in the order in which they
 * are written, these first, wanted devices only. */
static uint32_t interface_of(const struct capture_file *file, int device)
{
	uint32_t number = 0;

	for (int i = 0; i < device; i++)
		number += file->device[i].wanted;
	return number;
}

static int interface_write(struct capture_file *file, enum pcapng_link link, const char *name,
			   const char *description)
{
	int err;
	uint8_t *at = capture_file_room(file, &err);

	if (err)
		return err;
	file->used += pcapng_interface(at, BLOCK_MAX, link, file->snap, name, description);
	file->interfaces++;
	return 0;
}

int capture_file_begin(struct capture_file *file, uint32_t snap)
{
	int err;
	uint8_t *at = capture_file_room(file, &err);

	if (err)
		return err;
	file->snap = snap;
	file->used += pcapng_section(at, BLOCK_MAX, "verbena " VERBENA_VERSION);
	for (uint32_t i = 0; i < file->devices && !err; i++)
		if (file->device[i].wanted)
			err = interface_write(file, PCAPNG_RAW, file->device[i].name,
					      "RoCEv2; local traffic as it would have been");
	return err ? err : capture_file_flush(file);
}

/* The interface of the device's frames. 0 or -errno. */
static int frames_interface(struct capture_file *file, struct capture_device *device)
{
	char name[sizeof(device->name) + 8];

	if (device->frames_interface)
		return 0;
	snprintf(name, sizeof(name), "%s frames", device->name);
	device->frames_interface = file->interfaces;
	return interface_write(file, PCAPNG_ETHERNET, name, "frames of raw packet queue pairs");
}

int capture_file_packet(struct capture_file *file, int device, const struct tap_record *head,
			const uint8_t *bytes)
{
	char comment[TAP_COMMENT_MAX + 1];
	struct pcapng_packet packet = {
		.interface = interface_of(file, device),
		.time_ns = head->time_ns,
		.bytes = bytes,
		.captured = head->captured,
		.size = head->size,
		.direction = head->direction == TAP_OUT ? PCAPNG_OUT : PCAPNG_IN,
		.dropped = head->lost,
	};
	struct capture_device *of = &file->device[device];
	bool is_frame = head->kind == TAP_FRAME;
	int err = is_frame ? frames_interface(file, of) : 0;
	uint8_t *at = err ? NULL : capture_file_room(file, &err);

	if (err)
		return err;
	if (is_frame)
		packet.interface = of->frames_interface;
	memcpy(comment, bytes + head->captured, head->comment);
	comment[head->comment] = 0;
	packet.comment = head->comment ? comment : NULL;
	file->used += pcapng_packet(at, BLOCK_MAX, &packet);
	file->packets++;
	file->bytes += head->size;
	*(is_frame ? &of->frames : &of->packets) += 1;
	file->last_ns = head->time_ns;
	return 0;
}

int capture_file_link(struct capture_file *file, const struct tap_record *head,
		      const uint8_t *bytes)
{
	enum pcapng_direction direction = head->direction == TAP_OUT ? PCAPNG_OUT : PCAPNG_IN;
	uint8_t record[PCAPNG_ERF_BYTES + TAP_PACKET_MAX];
	int err = 0;

	if (!file->link_interface) {
		file->link_interface = file->interfaces;
		err = interface_write(file, PCAPNG_ERF, "data", "packets as they would have been");
	}
	uint8_t *at = err ? NULL : capture_file_room(file, &err);

	if (err)
		return err;
	pcapng_erf(record, head->time_ns, head->size, direction);
	memcpy(record + PCAPNG_ERF_BYTES, bytes, head->captured);
	file->used += pcapng_packet(at, BLOCK_MAX,
				    &(struct pcapng_packet){
					    .interface = file->link_interface,
					    .time_ns = head->time_ns,
					    .bytes = record,
					    .captured = PCAPNG_ERF_BYTES + head->captured,
					    .size = PCAPNG_ERF_BYTES + head->size,
					    .direction = direction,
					    .dropped = head->lost,
				    });
	file->packets++;
	file->bytes += head->size;
	return 0;
}

int capture_file_block(struct capture_file *file, const uint8_t *block, size_t bytes)
{
	int err = file->used + bytes > BUFFER ? capture_file_flush(file) : 0;

	if (err)
		return err;
	memcpy(file->buffer + file->used, block, bytes);
	file->used += bytes;
	return 0;
}

static int statistics_write(struct capture_file *file, uint32_t interface, uint64_t packets,
			    uint64_t lost)
{
	int err;
	uint8_t *at = capture_file_room(file, &err);

	if (err)
		return err;
	file->used +=
		pcapng_statistics(at, BLOCK_MAX, interface, file->last_ns, packets + lost, lost);
	return 0;
}

int capture_file_end(struct capture_file *file, uint64_t lost)
{
	int err = 0;

	for (uint32_t i = 0; i < file->devices && !err; i++) {
		const struct capture_device *device = &file->device[i];

		if (!device->wanted)
			continue;
		/* Losses aren't known per device, so the first interface's statistics have them
		 * all. */
		err = statistics_write(file, interface_of(file, (int)i), device->packets, lost);
		if (!err && device->frames_interface)
			err = statistics_write(file, device->frames_interface, device->frames, 0);
		lost = 0;
	}
	return err ? err : capture_file_flush(file);
}
