/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the drawing's files only: cables between two nodes are one line of the drawing. */
#ifndef VERBENA_TOPOLOGY_LINKS_H
#define VERBENA_TOPOLOGY_LINKS_H

#include "topology/draw.h"

struct drawn_link {
	uint32_t a, b;	/* nodes; a < b */
	uint32_t first; /* cables: rows of `cables` */
	uint32_t cables;
	uint64_t bytes,
		errors; /* of all, in both directions; bytes in a live drawing: each second */
	uint32_t down, starting; /* how many cables are */
	bool is_on_route;
};

struct drawn_links {
	struct drawn_link *links;
	uint32_t *cables; /* port rows: the end at the link's `a` */
	uint32_t count;
	uint64_t most_bytes; /* of a cable, on average of its link */
};

/* 0 or -ENOMEM. drawn_links_free() in any case. */
int drawn_links_make(struct drawn_links *links, const struct drawing *drawing);
void drawn_links_free(struct drawn_links *links);

/* 0 (nothing was sent) to 4 (as much as by the busiest). */
unsigned int drawn_link_load(const struct drawn_links *links, const struct drawn_link *link);

#endif
