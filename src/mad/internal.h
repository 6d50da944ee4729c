/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share: a message that is sent, and one that is received. */
#ifndef VERBENA_MAD_INTERNAL_H
#define VERBENA_MAD_INTERNAL_H

#include "mad/header.h"
#include "mad/mad.h"

/* Linux waits that long for an ACK, unless the program's timeout is shorter. */
#define RMPP_ACK_MS 2000
/* A message that doesn't get complete is given up, one that did is remembered. */
#define RMPP_RECEIVE_MS 40000
#define RMPP_REMEMBER_MS 10000
/* Segments that a receiver takes without an ACK. */
#define RMPP_WINDOW 64

enum send_state {
	SEND_SEGMENTS, /* long: not all segments have their ACK */
	SEND_RESPONSE, /* waits for the response */
};

/* A message of a program that isn't over. It ends by its response, by its ACKs or by time. */
struct mad_send {
	struct list node;
	struct mad_file *file;
	uint32_t agent;
	enum send_state state;
	struct ib_user_mad header; /* as the program wrote it */
	uint64_t deadline_ms;
	uint32_t retries_left;
	uint32_t segments; /* of a long message; 0: it is one MAD */
	uint32_t sent;	   /* the last segment that was sent */
	uint32_t acked;
	uint32_t window; /* the last segment that may be sent */
	size_t bytes;	 /* of the MAD */
	uint8_t mad[];
};

/* A long message of a peer. */
struct mad_receive {
	struct list node;
	uint32_t agent;
	struct ib_mad_addr from;
	uint8_t first[MAD_BYTES]; /* the first segment: who sends what */
	uint64_t deadline_ms;
	bool is_complete;     /* delivered; only its ACK may be asked for again */
	uint32_t acked;	      /* segments that came, in order */
	uint32_t window;      /* the last segment that the peer may send */
	uint64_t early;	      /* bit n: segment acked + 2 + n came before its time */
	size_t capacity;      /* of `data`, in segments */
	size_t bytes;	      /* of `data` */
	uint8_t *data;	      /* what is behind the class's header, segment by segment */
	uint32_t last;	      /* number of the last segment; 0: it didn't come yet */
	uint32_t last_length; /* its payload length */
};

/* Sends the MAD, or the segments that the window allows. */
void send_transmit(struct mad_send *send);
/* Reports that nothing came. */
void send_fail(struct mad_send *send);
void send_free(struct mad_send *send);
/* All segments have their ACK: waits for the response, or is done. */
void send_acknowledged(struct mad_send *send, uint64_t now_ms);
/* The send that a MAD from this peer belongs to, or NULL. */
struct mad_send *send_find(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
			   const uint8_t *mad);

/* Long messages (rmpp_send.c, rmpp_receive.c). */
void rmpp_begin(struct mad_send *send, uint64_t now_ms);
/* Once more from the first segment that has no ACK. */
void rmpp_begin_again(struct mad_send *send, uint64_t now_ms);
void rmpp_segments_send(struct mad_send *send);
/* The peer is told why its message, or its ACK, is of no use. */
void rmpp_abort(struct mad_port *port, int qpn, const struct ib_mad_addr *to, const uint8_t *mad,
		uint8_t type, uint8_t status);
void rmpp_feedback(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
		   const uint8_t *mad, uint64_t now_ms);
void rmpp_data(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
	       const uint8_t *mad, uint64_t now_ms);
void rmpp_receives_expire(struct mad_file *file, uint64_t now_ms);
void rmpp_receive_free(struct mad_file *file, struct mad_receive *receive);

/* Hands a complete message to the agent: a response ends its request, an unknown one is dropped. */
void message_deliver(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
		     const uint8_t *mad, size_t bytes);

#endif
