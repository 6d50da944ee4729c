/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The flow rules of the host: which raw packet queue pair gets which frames. Part of the daemon's
 * table (groups.h), which each process maps read-only.
 *
 * Written by: the daemon's thread only. It has added a rule before it answers the process that made
 * it, and has removed it before it answers the one that ends it.
 * Read by: all processes, at any time, without a lock. A process copies the rules when `changes`
 * has changed, and uses its copy. A rule has a place of its own; a reader that meets a rule while
 * the daemon writes it leaves that rule out, and copies again with the next frame, because
 * `changes` counts after the writing. No process relies on what it reads: a frame for a queue pair
 * whose rule has ended is dropped by its process, which reads the same rules.
 *
 * A place's `name` says whose rule it has: 0 none, else a number that is never used again. The
 * daemon sets 0, then writes the words [F1], then the name [F2]; the reader reads the name [F3],
 * the words, and the name again [F4].
 */
#ifndef VERBENA_SHM_FLOW_RULES_H
#define VERBENA_SHM_FLOW_RULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/proto.h"

/* A rule, as copied. */
struct flow_rule {
	uint32_t qpn;	 /* the queue pair that gets the frames; its slot names the process */
	uint32_t handle; /* of the rule, in its process's context */
	uint32_t tag;
	uint16_t device; /* the device's index */
	uint16_t priority;
	uint8_t type;	 /* enum ibv_flow_attr_type */
	uint8_t actions; /* enum flow_action */
	uint16_t size;	 /* bytes of `specs` */
	uint32_t reserved;
	uint8_t specs[PROTO_FLOW_BYTES]; /* see wire/steer.h */
};

enum flow_action {
	FLOW_DONT_TRAP = 1, /* rules of lower priority are looked at, too */
	FLOW_DROP = 2,
	FLOW_COUNT = 4,
	FLOW_EGRESS = 8, /* it is for what the user's queue pairs send, before all other rules */
};

enum { FLOW_WORDS = sizeof(struct flow_rule) / 8 };
_Static_assert(sizeof(struct flow_rule) % 8 == 0, "whole words");

struct flow_place {
	_Atomic uint64_t name;
	_Atomic uint64_t word[FLOW_WORDS];
};

struct flow_rules {
	_Atomic uint64_t changes;
	/* The user of the process at a slot, plus 1; 0: there is none, or it hasn't returned from
	 * the last daemon with all its rules. Processes of one user reach one another. */
	_Atomic uint64_t user[LIMIT_SLOTS];
	_Atomic uint32_t places; /* those from here on have never been used */
	struct flow_place place[LIMIT_FLOWS];
};

/* The number that changes with the rules; to be read before they are copied. */
uint64_t flows_changes(const struct flow_rules *flows);
/* Copies the rule at a place, which is below `places`. False: there is none. */
bool flows_read(const struct flow_rules *flows, uint32_t place, struct flow_rule *out);

/* Daemon only. Adds a rule: its place, or -ENOMEM. `name`: see above. */
int flows_add(struct flow_rules *flows, uint64_t name, const struct flow_rule *rule);
/* Daemon only. Sets user[slot]. */
void flows_set_user(struct flow_rules *flows, uint32_t slot, uint64_t user);
/* Daemon only. */
void flows_remove(struct flow_rules *flows, uint32_t place);

#endif
