/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a GID is one of this host's: what the local carrier reaches. */
#ifndef VERBENA_HCA_GID_H
#define VERBENA_HCA_GID_H

#include "hca/hca.h"

/* 0; EINVAL: sgid_index names no GID; EHOSTUNREACH: the destination isn't on this host. */
int gid_check_local(struct context *context, const struct ibv_global_route *grh);

#endif
