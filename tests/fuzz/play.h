/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of victim.c that the actions in play.c and tagged.c use. */
#ifndef VERBENA_TESTS_FUZZ_PLAY_H
#define VERBENA_TESTS_FUZZ_PLAY_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#include "input.h"

enum { TABLE_QPS = 15, TABLE_MRS = 15 }; /* places of the peer's table that are used */

uint8_t *region_at(unsigned int region);
void region_register(unsigned int region);
void region_deregister(unsigned int region);
void link_make(void);
void link_end(void);
void qp_connect(unsigned int index, enum ibv_qp_state until);
uint32_t peer_qpn(unsigned int qp);
void peer_publish(unsigned int qp);
void completions_take(void);
/* Writes to the beginning of the peer's memory. */
void victim_peer_write(const void *bytes, size_t size);

/* play.c: segments in a region, or elsewhere. Returns how many (0 to 3). */
int fill_sges(struct input *in, struct ibv_sge *sge, unsigned int usual);

#endif
