/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drawings of a topology: SVG, and an HTML page that needs nothing else (pan, zoom, search, hover).
 * Fat trees are drawn by levels, tori whose switches are named by coordinates as grids, what has no
 * levels as a circle. Colours show what each cable carries and its state.
 */
#ifndef VERBENA_TOPOLOGY_DRAW_H
#define VERBENA_TOPOLOGY_DRAW_H

#include "topology/topology.h"

enum drawing_state {
	DRAWING_PLAIN, /* nothing is known: the topology alone is drawn */
	DRAWING_ACTIVE,
	DRAWING_STARTING, /* Init, Armed: waits for a subnet manager */
	DRAWING_DOWN,	  /* cut, or an end without power */
};

/* What is known of a port: what it sent, and its errors. */
struct drawing_port {
	uint64_t sent_bytes, sent_packets;
	uint64_t bytes_per_second; /* now; of a drawing that is live */
	uint64_t errors;	   /* sum of the error counters */
	uint8_t state; /* enum drawing_state; of both ends of a cable the worse one is drawn */
	bool is_on_route;
};

struct drawing_node {
	uint16_t lid; /* 0: none */
	bool is_off, is_mute, is_on_route;
};

struct drawing {
	const struct topology *topology;
	const struct drawing_port *ports; /* by row; NULL: nothing is known */
	const struct drawing_node *nodes; /* by row; NULL: nothing is known */
	const char *subtitle;		  /* what the picture shows, or NULL */
	/* The drawing follows a fabric: colours show what cables carry now, and the page asks for
	 * `picture.svg` again and again. */
	bool is_live;
	const char *nonce; /* of the page's script; NULL: none */
};

/* Write a drawing. 0 or -ENOMEM; errors of writing stay with `out`. */
int drawing_svg(const struct drawing *drawing, FILE *out);
int drawing_html(const struct drawing *drawing, FILE *out);

/* The level of each node by row: 0 adapters, 1 switches with adapters, 2 those above, ...; `levels`
 * has a row for each node. Returns the number of levels, or -ENOMEM. */
int topology_levels(const struct topology *topology, uint8_t *levels);

#endif
