/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which nodes of a fabric a pattern names, and names folded into a pattern.
 *
 * A pattern is a list of names separated by commas. In a name, [0-3,7] stands for each of these
 * numbers (a first number with leading zeros gives the width; single letters and words are possible
 * as well), `*` for any text, `?` for any character, and a backslash takes the next character as it
 * is. A name that a node really has, or its GUID as 0x..., is that node, whatever characters it
 * has. One thread.
 */
#ifndef VERBENA_CLI_FABRIC_PATTERN_H
#define VERBENA_CLI_FABRIC_PATTERN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Nodes in the order in which they were named, each once, as indexes into the topology. */
struct node_choice {
	const json_t *nodes; /* of the answer to `topology`; the caller's */
	json_t *index_of;    /* by name */
	bool *is_chosen;
	size_t *chosen;
	size_t count;
};

/* Begins without any node. node_choice_free() ends it. Returns 0 or -ENOMEM. */
int node_choice_begin(struct node_choice *choice, const json_t *nodes);
void node_choice_free(struct node_choice *choice);

/*
 * Adds the nodes that a pattern names: in its order, and by topology where it has wildcards.
 * Returns 0; -EINVAL after a message: the pattern is malformed; -ENOENT after a message that names
 * what isn't there, and names near to it.
 */
int node_choice_add(struct node_choice *choice, const char *pattern);

/* Adds all nodes, or all adapters. */
void node_choice_add_all(struct node_choice *choice, bool adapters_only);

/* The name of the chosen node `i`. */
const char *node_choice_name(const struct node_choice *choice, size_t i);

/* A message for a node that isn't there, with the names that are nearest to it. */
void node_absent_say(const json_t *nodes, const char *name);

/*
 * Names as a pattern: H-1, H-2 and H-3 are H-[1-3]. Returns an allocated text, or NULL without
 * memory.
 */
char *names_fold(const char *const *names, size_t count);

#endif
