/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a link with faults: frames and the time go in, frames and the next instant come
 * out. No I/O and no clock in here. What happens to a frame depends on the seed and on how many
 * frames came before it, on nothing else: each frame that faults may hit takes the same number of
 * random values, whatever happens to it.
 *
 * Faults hit RoCEv2 only (UDP to port 4791), so that the programs' own connections and the
 * neighbours' discovery stay quick, unless `all` is set. Delay, rate and queue are for every frame.
 * A frame that is still to be cut into packets is one frame: lost or held back as a whole.
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
	uint64_t burst_ns;   /* and takes so long */
	double duplicate;    /* probability that a frame comes twice */
	double reorder;	     /* probability that a frame is held back by reorder_ns */
	uint64_t reorder_ns; /* so that later ones overtake it */
	double corrupt;	     /* probability that one bit of the UDP payload is turned over */
	double mark; /* probability that a frame that may be is marked: a long queue (ECN) */
	double bare; /* the UDP checksum is left out (only where the frame has one: no offloads) */
	uint64_t delay_ns;    /* of every frame */
	uint64_t jitter_ns;   /* and up to so much more, the order kept */
	uint64_t bytes_per_s; /* rate; 0: no limit */
	uint64_t queue_bytes; /* what waits for its turn at that rate; more is dropped. 0: no limit
			       */
	bool all;	      /* faults hit frames of every protocol */
};

struct path_counters {
	uint64_t frames, bytes, roce; /* came in; those of RoCEv2 among them */
	uint64_t lost, duplicated, reordered, corrupted, marked, bared,
		overflowed; /* faults that happened */
	uint64_t silenced;  /* while the path was silent */
	uint64_t delivered; /* went out */
};

struct path {
	struct path_faults faults;
	struct path_counters counters;
	bool silent;		  /* everything is lost */
	uint64_t random;	  /* the generator's state */
	uint64_t burst_until_ns;  /* the end of this burst */
	uint64_t sent_until_ns;	  /* when what came before is through at the rate */
	uint64_t last_ns;	  /* when what came last is due, so that jitter keeps the order */
	uint64_t serial;	  /* of the next frame that waits */
	struct path_frame **heap; /* the frames that wait, the earliest first */
	size_t waiting, room;
};

/* A frame that waits: `bytes` with a struct virtio_net_hdr in front. */
struct path_frame {
	uint64_t due_ns, serial;
	size_t length;
	uint8_t bytes[];
};

void path_open(struct path *path, uint64_t seed);
void path_close(struct path *path);

/* A frame comes in. True: it goes out at once, changed perhaps, and nothing was copied; false: it
 * is lost or waits. */
bool path_take(struct path *path, uint8_t *frame, size_t length, uint64_t now_ns);
/* The next frame that is due, for the caller to free; or NULL. */
struct path_frame *path_due(struct path *path, uint64_t now_ns);
/* When the next frame is due; UINT64_MAX: none waits. */
uint64_t path_next_ns(const struct path *path);
/* Everything that waits is lost. */
void path_forget(struct path *path);

/* Where the UDP payload of a RoCEv2 frame begins, its IP header checked; 0: it is something else.
 */
size_t path_roce_payload(const uint8_t *frame, size_t length);

#endif
