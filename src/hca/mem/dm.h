/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: memory that belongs to the device and not to the program, which reaches it by
 * copies (ibv_memcpy_to_dm) and by regions (ibv_reg_dm_mr).
 *
 * A buffer is a sealed memory file of the process that allocated it. The daemon keeps its
 * descriptor and gives it to a process that imports the buffer (ibv_import_dm): both then have the
 * same memory. A region of it is a region of a memory file (mr.h), with a descriptor and a mapping
 * of its own; so peers map it, and it doesn't need the buffer's object. The device's memory is not
 * the program's: it isn't counted as pinned, but each process has LIMIT_DM_BYTES of it.
 */
#ifndef VERBENA_HCA_MEM_DM_H
#define VERBENA_HCA_MEM_DM_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/list.h"

struct dm {
	struct ibv_dm ibv;
	struct list held;
	/* ibv.handle as it was made; of an imported one the original's; 0: made in a forked child,
	 * without a daemon */
	uint32_t handle;
	size_t length;	/* bytes, as the program asked for */
	int fd;		/* the memory file */
	uint8_t *pages; /* its mapping */
	bool imported;	/* by ibv_import_dm(): the daemon has no object of its own for it */
};

static inline struct dm *dm_of(struct ibv_dm *ibv)
{
	return container_of(ibv, struct dm, ibv);
}

#endif
