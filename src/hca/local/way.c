/* SPDX-License-Identifier: BSD-2-Clause */
/* Which way data goes on one host. See way.h. No state but the environment's. */
#include "hca/local/way.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "base/string_move.h"

static bool way_is_forced(const char *what)
{
	const char *how = env_get("VERBENA_LOCAL_COPY");

	return how && !strcmp(how, what);
}

bool way_by_kernel(void)
{
	return !way_is_forced("ring");
}

bool way_long_by_ring(void)
{
	if (way_is_forced("split"))
		return true;
	/* Linux copies between processes by string instructions. */
	if (way_is_forced("process_vm") || !string_move_is_slow())
		return false;
	log_info("this processor moves strings byte by byte: long messages go through the ring");
	return true;
}
