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
#include "hca/mem/warden.h"
#include "hca/process/park.h"

/* ------------------------------------------------------------------ quiet moments */

/* Signals are blocked, and the library's threads parked. */
static const char *others_stop(void)
{
	const char *why = quiet_shared_with();

	if (!why || strcmp(why, QUIET_THREADS) != 0)
		return why;
	why = warden_stop();
	if (why)
		return why;
	why = quiet_shared_with();
	if (why)
		warden_release();
	return why;
}

/* The signals that have a handler. Others may come: what the process ignores must not wait, because
 * the kernel would wake another thread for it, whose system call would end with EINTR. */
static void handled_signals(sigset_t *handled)
{
	struct sigaction action;

	sigemptyset(handled);
	for (int i = 1; i < NSIG; i++)
		if (!sigaction(i, NULL, &action) && action.sa_handler != SIG_DFL &&
		    action.sa_handler != SIG_IGN)
			sigaddset(handled, i);
}

const char *quiet_begin(sigset_t *old)
{
	sigset_t handled;

	if (!park_begin())
		return "the library's threads are busy";
	handled_signals(&handled);
	pthread_sigmask(SIG_BLOCK, &handled, old);
	const char *why = others_stop();

	if (!why)
		return NULL;
	pthread_sigmask(SIG_SETMASK, old, NULL);
	park_end();
	return why;
}

void quiet_end(const sigset_t *old)
{
	warden_release();
	pthread_sigmask(SIG_SETMASK, old, NULL);
	park_end();
}

bool return_range(uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	reserve_use(&convert_file.reserve, &convert_file.status);
	const char *held = quiet_held_by();
	sigset_t old;
	bool quiet, done = false;

	if (!held) {
		quiet = !quiet_begin(&old);
		done = file_return(from, to, quiet);
		if (quiet)
			quiet_end(&old);
	} else {
		convert_file.unsure = true;
	}
	reserve_keep(&convert_file.reserve, convert_file.fd);
	if (!done)
		log_warn("memory that was converted for RDMA stays shared: %s",
			 held ? held : "the system has refused to map it anew");
	return done;
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
