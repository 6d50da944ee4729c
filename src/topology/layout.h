/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the drawing's files only: where nodes are, in pixels. */
#ifndef VERBENA_TOPOLOGY_LAYOUT_H
#define VERBENA_TOPOLOGY_LAYOUT_H

#include "topology/draw.h"

enum layout_kind { LAYOUT_LEVELS, LAYOUT_GRID, LAYOUT_CIRCLE };

struct layout {
	const struct topology *topology;
	enum layout_kind kind;
	float *x, *y;	 /* centres, by node */
	uint32_t *home;	 /* the switch that an adapter is drawn at; TOPOLOGY_NONE: none */
	uint32_t *hosts; /* how many adapters have this home */
	uint8_t *levels;
	int level_count;
	uint32_t switches;
	bool has_boxes;	     /* adapters are boxes with names, else dots */
	float width, height; /* of all */
};

#define LAYOUT_SWITCH_WIDTH 46.0f
#define LAYOUT_SWITCH_HEIGHT 20.0f
#define LAYOUT_DOT 9.0f /* from dot to dot */

/* 0 or -ENOMEM. layout_free() in any case. */
int layout_make(struct layout *layout, const struct topology *topology);
void layout_free(struct layout *layout);

/* layout_direct.c: networks without levels. False: the switches' names are no coordinates. */
bool layout_grid(struct layout *layout);
void layout_circle(struct layout *layout);

/* Places the adapters of a switch as dots in rows of `columns` below (x, y). */
unsigned int layout_columns(uint32_t hosts, uint32_t switches);

/* The row of adapter n, counted from 0, in rows of `columns`. */
static inline float layout_row(uint32_t n, uint32_t columns)
{
	uint32_t row = n / columns;

	return (float)row;
}

#endif
