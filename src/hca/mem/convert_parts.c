/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of the memory file that are in use, and the quiet moments in which one is returned. See
 * convert_state.h. No state but the file's.
 */
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "hca/mem/convert_state.h"
#include "hca/mem/quiet.h"
#include "hca/process/park.h"

enum { OWN_THREADS = 2 };

/* ------------------------------------------------------------------ quiet moments */

const char *quiet_begin(sigset_t *old)
{
	sigset_t all;

	if (!park_begin())
		return "the library's threads are busy";
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	const char *why = quiet_shared_with(OWN_THREADS);

	if (why)
		quiet_end(old);
	return why;
}

void quiet_end(const sigset_t *old)
{
	pthread_sigmask(SIG_SETMASK, old, NULL);
	park_end();
}

void return_range(uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	reserve_use(&convert_file.reserve, &convert_file.status);
	sigset_t old;
	bool quiet = !quiet_begin(&old);
	const char *held = quiet_held_by();
	bool done = !held && file_return(from, to, quiet);

	if (quiet)
		quiet_end(&old);
	convert_file.unsure |= held != NULL;
	reserve_keep(&convert_file.reserve, convert_file.fd);
	if (!done)
		log_warn("memory that was converted for RDMA stays shared: %s",
			 held ? held : "the system has refused to map it anew");
}

/* ------------------------------------------------------------------ parts */

void part_insert(unsigned int i, struct part part) REQUIRES(convert_lock)
{
	memmove(&convert_file.part[i + 1], &convert_file.part[i],
		(convert_file.count - i) * sizeof(part));
	convert_file.part[i] = part;
	convert_file.count++;
}

static void part_remove(unsigned int i) REQUIRES(convert_lock)
{
	convert_file.count--;
	memmove(&convert_file.part[i], &convert_file.part[i + 1],
		(convert_file.count - i) * sizeof(convert_file.part[0]));
}

bool part_cut(unsigned int i, uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	struct part *p = &convert_file.part[i], rest = {to, p->end, p->gap_end};

	if (from > p->at && to < p->gap_end) {
		if (convert_file.count == PARTS)
			return false;
		p->end = p->gap_end = from;
		part_insert(i + 1, rest);
	} else if (from > p->at) {
		p->end = from;
	} else if (to < p->gap_end) {
		*p = rest;
	} else {
		part_remove(i);
	}
	return_range(from, to);
	return true;
}
