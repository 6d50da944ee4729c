/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which bytes of the memory file the regions need. See convert_state.h. Owns the list of all
 * regions of memory that the program has mapped itself.
 */
#include <string.h>

#include "hca/mem/convert_state.h"

struct list convert_regions = {&convert_regions, &convert_regions};

bool is_on_parts(const struct mr *mr)
{
	return mr->converted[0].to;
}

static void converted_add(struct mr *mr, struct mr_converted range) REQUIRES(convert_lock)
{
	struct mr_converted *r = mr->converted;

	for (unsigned int i = 0; i < convert_file.count; i++)
		if (convert_file.part[i].at < range.to &&
		    range.from < convert_file.part[i].gap_end &&
		    convert_file.part[i].end < range.to)
			convert_file.part[i].end = range.to;
	while (r->to && r < &mr->converted[MR_CONVERTED - 1])
		r++;
	if (r->to) { /* too many: what is between them counts as needed */
		range.from = r->from < range.from ? r->from : range.from;
		range.to = r->to > range.to ? r->to : range.to;
	}
	*r = range;
}

void ranges_find(struct mr *mr) REQUIRES(convert_lock)
{
	uintptr_t start = pages_start(mr), end = pages_end(mr);
	struct proc_mapping m = {.end = start};
	struct proc_maps maps;

	memset(mr->converted, 0, sizeof(mr->converted));
	if (!convert_file.count && !convert_file.unsure)
		return;
	if (proc_maps_open(&maps, 0)) {
		converted_add(mr, (struct mr_converted){0, FILE_BYTES});
		return;
	}
	while (!proc_maps_next(&maps, m.end, &m) && m.start < end) {
		uintptr_t low = m.start > start ? m.start : start, high = m.end < end ? m.end : end;

		if (m.shared && is_ours(&m))
			converted_add(mr, (struct mr_converted){m.offset + (low - m.start),
								m.offset + (high - m.start)});
	}
	proc_maps_close(&maps);
}

/* The range of a region's that contains the byte, or else the next one behind it. NULL: none. */
static const struct mr_converted *range_next(uint64_t at) REQUIRES(convert_lock)
{
	const struct mr_converted *next = NULL;

	list_for_each(node, &convert_regions) {
		const struct mr_converted *r = container_of(node, struct mr, pages)->converted;

		for (int i = 0; i < MR_CONVERTED; i++)
			if (r[i].to > at && (!next || r[i].from < next->from))
				next = &r[i];
	}
	return next;
}

/* The first bytes at or after *from, below *to, that no region needs; false: there are none. */
static bool unneeded_find(uint64_t *from, uint64_t *to) REQUIRES(convert_lock)
{
	const struct mr_converted *r;

	while ((r = range_next(*from)) && r->from <= *from)
		*from = r->to;
	if (r && r->from < *to)
		*to = r->from;
	return *from < *to;
}

void unneeded_return(const struct mr *mr) REQUIRES(convert_lock)
{
	for (const struct mr_converted *r = mr->converted; r < &mr->converted[MR_CONVERTED]; r++) {
		for (unsigned int i = 0; i < convert_file.count;) {
			const struct part *p = &convert_file.part[i];
			uint64_t from = p->at, to = p->gap_end;

			if (r->from < to && from < r->to && unneeded_find(&from, &to) &&
			    from < p->end && part_cut(i, from, to))
				i = 0;
			else
				i++;
		}
	}
}
