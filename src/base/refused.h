/* SPDX-License-Identifier: BSD-2-Clause */
/* A refusal with its reason: an errno has many causes, so the log says which it is. No state but
 * the count of lines that each place has; any thread. */
#ifndef VERBENA_BASE_REFUSED_H
#define VERBENA_BASE_REFUSED_H

#include "base/log.h"

/* `err`, after a line with these arguments of printf(), a few times for each place. */
#define refused(err, ...)                  \
	({                                 \
		log_warn_few(__VA_ARGS__); \
		(err);                     \
	})

#endif
