/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a link with faults, see cable.h. The heap of waiting frames is ordered by the
 * time at which they are due, then by arrival.
 */
#include "cable.h"

#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>

enum {
	HEADER = sizeof(struct virtio_net_hdr),
	ETHERNET = 14,
	IPV4 = 20,
	IPV6 = 40,
	UDP = 8,
	UDP_CHECKSUM_AT = 6,
	ROCE_PORT = 4791,
	PROTOCOL_UDP = 17,
};
enum { NS_PER_S = 1000000000 };

/* Random values ------------------------------------------------------------------------------ */

/* SplitMix64: small, and every seed is suitable. */
static uint64_t random_next(struct path *path)
{
	uint64_t value = path->random += 0x9e3779b97f4a7c15u;

	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
	value = (value ^ value >> 27) * 0x94d049bb133111ebu;
	return value ^ value >> 31;
}

/* From 0 to below 1. */
static double random_share(struct path *path)
{
	return (double)(random_next(path) >> 11) * 0x1p-53;
}

/* The faults of a frame; all values are drawn for each frame. */
struct fate {
	bool lost, duplicated, late, corrupted, marked, bare;
	double jitter; /* share of jitter_ns */
	uint64_t where;
};

static struct fate fate_draw(struct path *path, uint64_t now_ns)
{
	const struct path_faults *faults = &path->faults;
	struct fate fate = {
		.lost = random_share(path) < faults->loss,
	};
	bool burst = random_share(path) < faults->burst;

	fate.duplicated = random_share(path) < faults->duplicate;
	fate.late = random_share(path) < faults->reorder;
	fate.corrupted = random_share(path) < faults->corrupt;
	fate.bare = random_share(path) < faults->bare;
	fate.marked = random_share(path) < faults->mark;
	fate.jitter = random_share(path);
	fate.where = random_next(path);
	if (burst && now_ns >= path->burst_until_ns)
		path->burst_until_ns = now_ns + faults->burst_ns;
	fate.lost |= now_ns < path->burst_until_ns;
	return fate;
}

/* Frames ------------------------------------------------------------------------------------- */

static unsigned int get16(const uint8_t *at)
{
	return (unsigned int)at[0] << 8 | at[1];
}

size_t path_roce_payload(const uint8_t *frame, size_t length)
{
	size_t at = HEADER + ETHERNET;
	unsigned int type;

	if (length < at)
		return 0;
	type = get16(frame + at - 2);
	if (type == 0x0800 && length >= at + IPV4 && frame[at + 9] == PROTOCOL_UDP)
		at += (frame[at] & 15u) * 4u;
	else if (type == 0x86dd && length >= at + IPV6 && frame[at + 6] == PROTOCOL_UDP)
		at += IPV6;
	else
		return 0;
	if (length < at + UDP || get16(frame + at + 2) != ROCE_PORT)
		return 0;
	return at + UDP;
}

/* Flips one bit of the payload and adjusts the UDP checksum, so that only RoCEv2's own ICRC can
 * detect it. A checksum that the kernel is still to compute will be correct anyway. */
static void frame_corrupt(uint8_t *frame, size_t length, size_t payload, uint64_t where)
{
	const struct virtio_net_hdr *header = (const struct virtio_net_hdr *)frame;
	uint8_t *sum_at = frame + payload - UDP + UDP_CHECKSUM_AT;
	size_t pair, offset;
	uint32_t before, sum;

	if (payload == 0 || payload >= length)
		return;
	offset = where / 8 % (length - payload);
	pair = payload + (offset & ~(size_t)1);
	/* The last byte of an odd payload is checksummed as if a zero byte followed. */
	before = pair + 1 < length ? get16(frame + pair) : (uint32_t)frame[pair] << 8;
	frame[payload + offset] ^= (uint8_t)(1u << where % 8);
	sum = get16(sum_at);
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM || sum == 0)
		return;
	sum = (~sum & 0xffffu) + (~before & 0xffffu);
	sum += pair + 1 < length ? get16(frame + pair) : (uint32_t)frame[pair] << 8;
	sum = (sum & 0xffffu) + (sum >> 16);
	sum = (sum & 0xffffu) + (sum >> 16);
	sum = ~sum & 0xffffu ? ~sum & 0xffffu : 0xffffu;
	sum_at[0] = (uint8_t)(sum >> 8);
	sum_at[1] = (uint8_t)sum;
}

/* Marks a frame as having met a long queue (ECN: both bits of the traffic class); also adjusts the
 * IPv4 header checksum (RFC 1624). False: the sender doesn't support marks. */
static bool frame_mark(uint8_t *frame)
{
	uint8_t *ip = frame + HEADER + ETHERNET;
	uint32_t before, sum;

	if (ip[0] >> 4 != 4 || !(ip[1] & 3) || (ip[1] & 3) == 3)
		return false;
	before = get16(ip);
	ip[1] |= 3;
	sum = (~get16(ip + 10) & 0xffffu) + (~before & 0xffffu) + get16(ip);
	sum = (sum & 0xffffu) + (sum >> 16);
	sum = (sum & 0xffffu) + (sum >> 16);
	ip[10] = (uint8_t)(~sum >> 8);
	ip[11] = (uint8_t)~sum;
	return true;
}

/* Removes the UDP checksum, as other RoCEv2 senders do. False: it is still to be computed. */
static bool frame_bare(uint8_t *frame, size_t payload)
{
	const struct virtio_net_hdr *header = (const struct virtio_net_hdr *)frame;

	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		return false;
	memset(frame + payload - UDP + UDP_CHECKSUM_AT, 0, 2);
	return true;
}

/* Waiting ------------------------------------------------------------------------------------ */

static bool earlier(const struct path_frame *one, const struct path_frame *two)
{
	return one->due_ns != two->due_ns ? one->due_ns < two->due_ns : one->serial < two->serial;
}

static void swap(struct path_frame **heap, size_t one, size_t two)
{
	struct path_frame *kept = heap[one];

	heap[one] = heap[two];
	heap[two] = kept;
}

/* A frame for which there is no memory is lost, as with a full queue. */
static void frame_wait(struct path *path, const uint8_t *frame, size_t length, uint64_t due_ns)
{
	struct path_frame *waiting = malloc(sizeof(*waiting) + length);
	size_t at = path->waiting;

	if (waiting && at == path->room) {
		size_t room = at ? at * 2 : 256;
		struct path_frame **heap = realloc(path->heap, room * sizeof(struct path_frame *));

		if (heap) {
			path->heap = heap;
			path->room = room;
		}
	}
	if (!waiting || at == path->room) {
		path->counters.overflowed++;
		free(waiting);
		return;
	}
	waiting->due_ns = due_ns;
	waiting->serial = path->serial++;
	waiting->length = length;
	memcpy(waiting->bytes, frame, length);
	path->heap[at] = waiting;
	path->waiting++;
	for (; at > 0 && earlier(path->heap[at], path->heap[(at - 1) / 2]); at = (at - 1) / 2)
		swap(path->heap, at, (at - 1) / 2);
}

struct path_frame *path_due(struct path *path, uint64_t now_ns)
{
	struct path_frame *first;
	size_t at = 0, least;

	if (path->waiting == 0 || path->heap[0]->due_ns > now_ns)
		return NULL;
	first = path->heap[0];
	path->heap[0] = path->heap[--path->waiting];
	for (;; at = least) {
		least = at;
		for (size_t child = 2 * at + 1; child <= 2 * at + 2; child++)
			if (child < path->waiting && earlier(path->heap[child], path->heap[least]))
				least = child;
		if (least == at)
			break;
		swap(path->heap, at, least);
	}
	path->counters.delivered++;
	return first;
}

uint64_t path_next_ns(const struct path *path)
{
	return path->waiting ? path->heap[0]->due_ns : UINT64_MAX;
}

void path_forget(struct path *path)
{
	while (path->waiting > 0)
		free(path->heap[--path->waiting]);
}

/* The path ----------------------------------------------------------------------------------- */

void path_open(struct path *path, uint64_t seed)
{
	*path = (struct path){.random = seed};
}

void path_close(struct path *path)
{
	path_forget(path);
	free(path->heap);
}

/* When the frame has passed at the path's rate; 0: there is no room in the queue. */
static uint64_t rate_due(struct path *path, size_t length, uint64_t now_ns)
{
	uint64_t rate = path->faults.bytes_per_s, begin = now_ns;

	if (rate == 0)
		return now_ns;
	if (path->sent_until_ns > now_ns) {
		double queued = (double)(path->sent_until_ns - now_ns) * (double)rate / NS_PER_S;

		if (path->faults.queue_bytes &&
		    queued + (double)length > (double)path->faults.queue_bytes)
			return 0;
		begin = path->sent_until_ns;
	}
	path->sent_until_ns = begin + (uint64_t)((double)length * NS_PER_S / (double)rate);
	return path->sent_until_ns;
}

/* When the frame leaves the path. */
static uint64_t frame_due(struct path *path, const struct fate *fate, uint64_t through_ns)
{
	uint64_t due = through_ns + path->faults.delay_ns +
		       (uint64_t)(fate->jitter * (double)path->faults.jitter_ns);

	if (due < path->last_ns)
		due = path->last_ns;
	path->last_ns = due;
	if (fate->late) {
		path->counters.reordered++;
		due += path->faults.reorder_ns;
	}
	return due;
}

/* Counts the frame and draws its faults. */
static struct fate frame_fate(struct path *path, uint8_t *frame, size_t length, uint64_t now_ns)
{
	size_t payload = path_roce_payload(frame, length);
	struct fate fate = {0};

	path->counters.frames++;
	path->counters.bytes += length - HEADER;
	path->counters.roce += payload != 0;
	if (payload == 0 && !path->faults.all)
		return fate;
	fate = fate_draw(path, now_ns);
	if (fate.corrupted && payload != 0 && !fate.lost) {
		frame_corrupt(frame, length, payload, fate.where);
		path->counters.corrupted++;
	}
	if (fate.marked && payload != 0 && !fate.lost)
		path->counters.marked += frame_mark(frame);
	if (fate.bare && payload != 0 && !fate.lost)
		path->counters.bared += frame_bare(frame, payload);
	return fate;
}

bool path_take(struct path *path, uint8_t *frame, size_t length, uint64_t now_ns)
{
	struct fate fate;
	uint64_t through, due;

	if (length < HEADER + ETHERNET)
		return false;
	fate = frame_fate(path, frame, length, now_ns);
	if (path->silent || fate.lost) {
		path->counters.silenced += path->silent;
		path->counters.lost += !path->silent;
		return false;
	}
	through = rate_due(path, length, now_ns);
	if (through == 0) {
		path->counters.overflowed++;
		return false;
	}
	due = frame_due(path, &fate, through);
	if (fate.duplicated) {
		path->counters.duplicated++;
		frame_wait(path, frame, length, due);
	}
	if (due <= now_ns && path_next_ns(path) > due) {
		path->counters.delivered++;
		return true;
	}
	frame_wait(path, frame, length, due);
	return false;
}
