/* SPDX-License-Identifier: BSD-2-Clause */
/* Which user namespace a process is in. */
#ifndef VERBENA_BASE_USER_SPACE_H
#define VERBENA_BASE_USER_SPACE_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Whether it is the first one, in which all users are who they are and capabilities are rights over
 * the host. In another everybody may have them all, over what is in it. No when that can't be told.
 */
bool user_space_is_first(pid_t pid);

#endif
