/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs many programs at once: outputs merged by line or in files, signals passed on, a limit of
 * time for each. One thread; one crowd in a process.
 *
 * Each program is the leader of a process group, which gets the signals that this process gets, and
 * reads nothing. A program that is alone stays in this process's group with its standard input, as
 * if it had been started by the shell.
 *
 * A program's state   leaves it by
 * MEMBER_IDLE         member_start(): running
 * MEMBER_RUNNING      member_reap(): its process has ended
 * MEMBER_ENDED        member_settle(), once its outputs were read: done
 */
#ifndef VERBENA_CLI_CROWD_H
#define VERBENA_CLI_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum crowd_outcome {
	CROWD_NOT_STARTED, /* after a signal, or because this process couldn't; `value`: errno */
	CROWD_EXITED,	   /* `value`: its exit code */
	CROWD_SIGNALLED,   /* `value`: the signal */
	CROWD_LATE,	   /* was ended because its time was up */
};

struct crowd_result {
	enum crowd_outcome outcome;
	int value;
};

/* What timeout(1) has for a program whose time was up. */
#define CROWD_LATE_CODE 124

struct crowd_plan {
	size_t count;	   /* programs */
	size_t at_once;	   /* how many run at a time; fewer where descriptors are short */
	uint64_t limit_ns; /* the time that each has; 0: any */
	bool is_direct;	   /* a program that is alone has our outputs themselves */
	void *context;	   /* of the functions */
	const char *(*prefix)(void *context, size_t i); /* of its lines; lives as long as it */
	/* The file for its outputs; -errno. NULL: they are merged. */
	int (*output_open)(void *context, size_t i);
	/* In the new process: becomes the program. Returns an exit code if it can't. */
	int (*become)(void *context, size_t i);
	/* Before its process is made, and after its end; NULL: nothing to do. */
	void (*prepare)(void *context, size_t i);
	void (*dispose)(void *context, size_t i);
	/* At times, while programs run: returns in how many milliseconds again; NULL: never. */
	unsigned int (*tick)(void *context);
};

/*
 * Runs all of them; `results` has a place for each. Returns 0; the signal after which no more were
 * started; or -errno after a message: nothing could be started, or the outputs couldn't be
 * written.
 */
int crowd_run(const struct crowd_plan *plan, struct crowd_result *results);

/* The exit code that a shell has for such a result. */
int crowd_code(const struct crowd_result *result);

#endif
