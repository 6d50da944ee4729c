/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says about a peer's process. Each call reads files of /proc: for slow paths. */
#ifndef VERBENA_HCA_LOCAL_PEER_H
#define VERBENA_HCA_LOCAL_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* 'R', 'S', 'D', 'T' (stopped), 'Z' ..., or 0 when it can't be seen. */
char peer_state(int32_t pid);

/* No such process any more, or only what its parent has not collected. */
bool peer_ended(int32_t pid);

/* A stopped process whose thread stands at the end of a system call: it isn't about to begin one
 * that was decided on before. */
bool peer_stopped_in_call(int32_t pid, uint32_t thread);

#endif
