/* SPDX-License-Identifier: BSD-2-Clause */
/* The user namespace of a process. */
#ifndef VERBENA_BASE_USER_SPACE_H
#define VERBENA_BASE_USER_SPACE_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Whether the process is in the initial user namespace, where user numbers are the host's and
 * capabilities are rights over the host. In any other namespace an ordinary user may have all
 * capabilities, over what belongs to that namespace. False also when it can't be determined.
 */
bool user_space_is_first(pid_t pid);

#endif
