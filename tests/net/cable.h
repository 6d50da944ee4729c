/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a link with faults: frames and the time go in, frames and the next deadline come
 * out. No I/O and no clock. A frame's faults depend only on the seed and on how many frames came
 * before it: each frame that faults may hit takes the same number of random values, whatever they
 * are.
 *
 * Faults hit RoCEv2 only (UDP to port 4791), unless `all` is set, so that the programs' own
 * connections and neighbour discovery stay fast. Delay, rate and queue apply to every frame. A
 * frame that is still to be cut into packets is one frame: lost or delayed as a whole.
 *
 * Owns the frames that wait. One thread.
 */
#ifndef VERBENA_NET_CABLE_H
#define VERBENA_NET_CABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct path_faults {
	double loss;	     /* probability that a frame is lost */
	double burst;	     /* probability that a burst of losses begins */
	uint64_t burst_ns;   /* and its duration */
	double duplicate;    /* probability that a frame is duplicated */
	double reorder;	     /* probability that a frame is delayed by reorder_ns */
	uint64_t reorder_ns; /* so that later ones overtake it */
	double corrupt;	     /* probability that one bit of the UDP payload is flipped */
	double mark; /* probability that a frame gets ECN's mark, if its sender supports that */
	double bare; /* the UDP checksum is removed (only where the frame has one: no offloads) */
	uint64_t delay_ns;    /* of every frame */
	uint64_t jitter_ns;   /* plus up to so much more, in order */
	uint64_t bytes_per_s; /* rate; 0: no limit */
	uint64_t queue_bytes; /* most bytes that wait for the rate; more are dropped. 0: no limit */
	bool all;	      /* faults hit frames of every protocol */
};

struct path_counters {
	uint64_t frames, bytes, roce; /* received; those of RoCEv2 among them */
	uint64_t lost, duplicated, reordered, corrupted, marked, bared,
		overflowed; /* faults that happened */
	uint64_t silenced;  /* while the path was silent */
	uint64_t delivered; /* sent */
};

struct path {
	struct path_faults faults;
	struct path_counters counters;
	bool silent;		  /* everything is lost */
	uint64_t random;	  /* the generator's state */
	uint64_t burst_until_ns;  /* the end of this burst */
	uint64_t sent_until_ns;	  /* when earlier frames have passed at the rate */
	uint64_t last_ns;	  /* when the last frame is due, so that jitter keeps the order */
	uint64_t serial;	  /* of the next frame that waits */
	struct path_frame **heap; /* the frames that wait, the earliest first */
	size_t waiting, room;
};

/* A frame that waits: `bytes` begin with a struct virtio_net_hdr. */
struct path_frame {
	uint64_t due_ns, serial;
	size_t length;
	uint8_t bytes[];
};

void path_open(struct path *path, uint64_t seed);
void path_close(struct path *path);

/* Takes a frame. True: it leaves at once, possibly changed, and nothing was copied; false: it is
 * lost or waits. */
bool path_take(struct path *path, uint8_t *frame, size_t length, uint64_t now_ns);
/* The next frame that is due, which the caller frees; or NULL. */
struct path_frame *path_due(struct path *path, uint64_t now_ns);
/* When the next frame is due; UINT64_MAX: none waits. */
uint64_t path_next_ns(const struct path *path);
/* Drops all frames that wait. */
void path_forget(struct path *path);

/* The offset of the UDP payload of a RoCEv2 frame, whose IP header is checked; 0: it is another
 * frame. */
size_t path_roce_payload(const uint8_t *frame, size_t length);

#endif
