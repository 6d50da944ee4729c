/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What Linux does between a program's agents and a port's QP 0 and QP 1, as a state machine:
 * which agent gets a datagram (MAD), transaction ids, timeouts and copies of requests, long
 * messages by RMPP. It does no I/O and reads no clock: times are arguments, in milliseconds of any
 * clock that doesn't go back, and what is to be sent or delivered goes to two functions.
 *
 *   mad_file_*()    a program's descriptor: agents, and messages that it sends
 *   mad_port_*()    datagrams from the link, deadlines
 *
 * A system holds what is unique on a host, a port its files, a file its agents. One thread at a
 * time may use a system with all that belongs to it. `transmit` and `deliver` must not call back:
 * the caller queues what it gets, and limits that queue. Memory is allocated for requests and long
 * messages only; what peers can make it allocate is limited (MAD_RECEIVES_MAX).
 */
#ifndef VERBENA_MAD_MAD_H
#define VERBENA_MAD_MAD_H

#include <infiniband/umad.h>

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAD_BYTES 256
#define MAD_HEADER_BYTES 24 /* what all classes share; a timeout is reported with that much */

#define MAD_RMPP_BYTES 36 /* the header of a class that has RMPP */

/* The longest message that a program may send. Linux takes what memory it finds. */
#define MAD_MESSAGE_BYTES_MAX (8u << 20)

/*
 * What peers' long messages may hold of a file: their number, with those that are complete and
 * remembered, and the memory of those that arrive. At the limit the oldest remembered message is
 * forgotten; if there is none, the peer that holds most loses its oldest message. A peer that holds
 * most itself is refused.
 */
#define MAD_RECEIVES_MAX 128
#define MAD_RECEIVES_BYTES_MAX (4 * MAD_MESSAGE_BYTES_MAX)
enum mad_holding { MAD_HELD_MESSAGES, MAD_HELD_BYTES, MAD_HOLDINGS };

/*
 * A timeout is reported this much before its time: programs wait with the same timeout in poll(),
 * and one that gives up first fails instead of sending again.
 */
#define MAD_TIMEOUT_EARLY_MS 5

struct mad_port;

struct mad_functions {
	/* A datagram of 256 bytes from QP `qpn` (0 or 1) of the port. */
	void (*transmit)(struct mad_port *port, int qpn, const struct ib_mad_addr *to,
			 const uint8_t *mad);
	/* A message for the program: header and `bytes` of MAD; header->length counts both. */
	void (*deliver)(void *reader, const struct ib_user_mad *header, const uint8_t *mad,
			size_t bytes);
};

struct mad_system {
	const struct mad_functions *functions;
	uint32_t next_id; /* upper half of transaction ids: 24 bits, unique on this host */
};

struct mad_port {
	struct mad_system *system;
	bool is_infiniband; /* an Ethernet port has no QP 0 for programs */
	struct list files;
};

struct mad_agent {
	bool is_registered;
	uint8_t mgmt_class;
	uint8_t class_version;
	uint8_t rmpp_version;
	bool has_user_rmpp; /* the program sees segments */
	int qpn;
	uint32_t oui;
	uint32_t tid_high;
	uint64_t methods[2]; /* bit n: requests with method n come here */
};

struct mad_file {
	struct list node;
	struct mad_port *port;
	void *reader;
	struct mad_agent agents[UMAD_CA_MAX_AGENTS];
	struct list sends; /* requests without their response, long messages without their ACKs */
	struct list receives;	   /* long messages that arrive, the oldest first */
	size_t held[MAD_HOLDINGS]; /* by `receives` */
};

void mad_system_init(struct mad_system *system, const struct mad_functions *functions);
void mad_port_init(struct mad_port *port, struct mad_system *system, bool is_infiniband);

/* A descriptor is opened; closing frees its agents and drops all that was under way. */
void mad_file_open(struct mad_file *file, struct mad_port *port, void *reader);
void mad_file_close(struct mad_file *file);

/*
 * Registers an agent. Returns 0 with its number, the lowest free one, or
 *   -EINVAL            unknown flags (attr->flags gets the known ones), class, version or RMPP
 *                      version that don't exist, or another agent of the port has a method
 *   -EPROTONOSUPPORT   QP 0 on a port that isn't InfiniBand
 *   -ENOMEM            the file has all its agents
 */
int mad_file_register(struct mad_file *file, int qpn, struct umad_reg_attr *attr, uint32_t *agent);
int mad_file_unregister(struct mad_file *file, uint32_t agent);

/*
 * Sends what a program wrote: a struct ib_user_mad and the MAD, `bytes` in all. Returns 0 or
 *   -EINVAL   too short or too long, an agent that can't be, or the same transaction is under way
 *   -EIO      there is no such agent
 *   -ENOMEM
 */
int mad_file_send(struct mad_file *file, const void *packet, size_t bytes, uint64_t now_ms);

/* A datagram came for QP `qpn`; `from` is as a program sees it, with the sender's QP and LID. */
void mad_port_receive(struct mad_port *port, int qpn, const struct ib_mad_addr *from,
		      const uint8_t *mad, uint64_t now_ms);

/* Does what is due: copies of requests, timeouts, ends of long messages. */
void mad_port_expire(struct mad_port *port, uint64_t now_ms);

/* When mad_port_expire() is to be called next; UINT64_MAX: nothing is under way. */
uint64_t mad_port_deadline(const struct mad_port *port);

#endif
