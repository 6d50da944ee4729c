/* SPDX-License-Identifier: BSD-2-Clause */
/* Log lines. See log.h. Owns the chosen level and the descriptor's number; no locks: both are
 * set once, before threads, or racing setters write the same values. */
#include "base/log.h"

#include "base/sys.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static _Atomic int threshold = -1;
static _Atomic int log_fd = STDERR_FILENO;
static const char *_Atomic log_who = "verbena";

static int threshold_get(void)
{
	int t = atomic_load_explicit(&threshold, memory_order_relaxed);

	if (t >= 0)
		return t;
	const char *env = env_get("VERBENA_LOG");

	t = LOG_LEVEL_WARN;
	for (int i = 0; env && i <= LOG_LEVEL_DEBUG; i++)
		if (!strcmp(env, level_names[i]))
			t = i;
	atomic_store_explicit(&threshold, t, memory_order_relaxed);
	return t;
}

void log_open(int fd, const char *who)
{
	atomic_store(&log_who, who);
	atomic_store(&log_fd, fd);
}

bool log_enabled(enum log_level level)
{
	return (int)level <= threshold_get();
}

void log_line(enum log_level level, const char *format, ...)
{
	if (!log_enabled(level))
		return;
	int saved = errno;
	char line[1024];
	int n = snprintf(line, sizeof(line), "%s[%d] %s: ", atomic_load(&log_who), (int)getpid(),
			 level_names[level]);
	va_list args;

	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - n, format, args);
	va_end(args);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (sys_write(atomic_load(&log_fd), line, n) < 0) {
		/* there is no place left to report it */
	}
	errno = saved;
}

const char *log_few(_Atomic unsigned int *lines)
{
	/* No count goes round: a place that has written all its lines only reads. */
	if (atomic_load_explicit(lines, memory_order_relaxed) >= LOG_FEW)
		return NULL;
	unsigned int line = atomic_fetch_add_explicit(lines, 1, memory_order_relaxed);

	if (line >= LOG_FEW)
		return NULL;
	return line == LOG_FEW - 1 ? "(further lines like this are left out) " : "";
}
