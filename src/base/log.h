/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log lines: what happened, why, and what the user can do. The level is VERBENA_LOG (error, warn,
 * info, debug; default warn). The library writes to standard error, the daemon to the descriptor
 * given to log_open(). Any thread; a line is one write().
 */
#ifndef VERBENA_BASE_LOG_H
#define VERBENA_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Makes lines go to `fd` (which stays the caller's) and begin with `who`. */
void log_open(int fd, const char *who);
bool log_enabled(enum log_level level);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Lines that one place in the source writes in a process: the last one says that more are left
 * out. A program may do the same wrong thing again and again. */
enum { LOG_FEW = 8 };
/* What begins the next line; NULL: it is left out. `lines`: those of this place, so far. */
const char *log_few(_Atomic unsigned int *lines);

#define log_warn_few(format, ...)                                        \
	do {                                                             \
		static _Atomic unsigned int few_lines;                   \
		const char *few_begin = log_few(&few_lines);             \
                                                                         \
		if (few_begin)                                           \
			log_warn("%s" format, few_begin, ##__VA_ARGS__); \
	} while (0)

#endif
