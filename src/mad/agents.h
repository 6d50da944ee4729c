/* SPDX-License-Identifier: BSD-2-Clause */
/* Which agent a datagram belongs to. */
#ifndef VERBENA_MAD_AGENTS_H
#define VERBENA_MAD_AGENTS_H

#include "mad/internal.h"

/* The file and the agent's number; NULL: no agent of the port wants it. */
struct mad_file *agent_find(struct mad_port *port, int qpn, const uint8_t *mad, uint32_t *agent);

#endif
