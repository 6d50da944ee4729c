/* SPDX-License-Identifier: BSD-2-Clause */
/* Tag matching in the games of victim.h; see tagged.c. */
#ifndef VERBENA_TESTS_FUZZ_TAGGED_H
#define VERBENA_TESTS_FUZZ_TAGGED_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "input.h"

/* A new SRQ with a list of tags; `offloads`: its queue pairs' send queues are its own. */
struct ibv_srq *tagged_begin(bool offloads);
/* Writes a message's header to the payload of a record. */
void tagged_message(struct input *in, uint8_t *payload);
/* Adds, removes, reports, or writes a header to the peer's memory. */
void act_tag(struct input *in);
/* Checks a completion that concerns a tag. False: it is another one. */
bool tagged_completion(const struct ibv_wc *wc);

#endif
