/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ports and a cable between them, in virtual time, for tests of src/mad. The cable may lose,
 * double and reorder datagrams, as its random numbers say. Each port has one program, which keeps
 * the messages that it got.
 */
#ifndef VERBENA_TESTS_MAD_WIRE_H
#define VERBENA_TESTS_MAD_WIRE_H

#include "mad/mad.h"

enum { LEFT, RIGHT, ENDS };

#define LID(end) (10 + (end))

struct message {
	struct ib_user_mad header;
	uint8_t *mad;
	size_t bytes;
};

struct end {
	struct mad_port port;
	struct mad_file file;
	struct message got[64];
	int count;
	unsigned sent; /* datagrams that the port put on the cable */
	uint8_t last_sent[MAD_BYTES];
	uint16_t last_to; /* the LID that it went to */
};

extern struct mad_system wire_system;
extern struct end wire_ends[ENDS];
extern uint64_t wire_now;
/* Of datagrams, in percent: lost; as many are doubled or reordered. */
extern unsigned wire_loss_percent;
/* The n-th, 2n-th, ... datagram is lost; 0: none. */
extern unsigned wire_loss_each;

void wire_begin(void);
void wire_end(void);

/* Delivers what is on the cable, and lets time go on to the next deadline, until `ms` are over. */
void wire_run(uint64_t ms);

/* Registers an agent for the bits of `methods`; the result as of mad_file_register(). */
int wire_register(int end, uint8_t mgmt_class, uint8_t version, uint8_t rmpp, uint64_t methods,
		  uint32_t oui, uint32_t *agent);

/* Sends a MAD of `bytes` to the other end; the result as of mad_file_send(). */
int wire_send(int end, uint32_t agent, const uint8_t *mad, size_t bytes, uint32_t timeout_ms,
	      uint32_t retries);

/* A MAD's header: class, version, method and transaction id. */
void wire_header(uint8_t *mad, uint8_t mgmt_class, uint8_t version, uint8_t method, uint32_t tid);

#endif
