/* SPDX-License-Identifier: BSD-2-Clause */
/* What a receive's completion reports of the message that the receive took. */
#ifndef VERBENA_HCA_EXEC_ARRIVAL_H
#define VERBENA_HCA_EXEC_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

/* A message, or a frame of a raw packet queue pair, for the completion of its receive. */
struct arrival {
	uint32_t length;
	uint32_t imm; /* network order; or the key that was invalidated */
	uint32_t src_qpn;
	bool has_imm;
	bool invalidates;
	bool solicited;
	bool is_write; /* RDMA WRITE with immediate */
	bool is_frame;
	uint32_t tag; /* a frame's: of the flow rule that took it */
};

/* What came of the short way of receiving a message: receive_whole(). */
enum receive_outcome { RECEIVE_COMPLETED, RECEIVE_OTHERWISE, RECEIVE_FAULTED };

#endif
