/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What our librdmacm.so.1 asks of our libibverbs.so.1 beyond the verbs: functions under a version
 * node of their own, which no other libibverbs has. librdmacm looks them up when it is loaded
 * (src/rdmacm/private.c), so it also works beside a libibverbs that lacks them. A change of a
 * function's meaning takes a new node.
 */
#ifndef VERBENA_ABI_PRIVATE_H
#define VERBENA_ABI_PRIVATE_H

#include <infiniband/verbs.h>

#define VERBENA_PRIVATE "VERBENA_PRIVATE_1"

/*
 * A CQ that is used by one QP only, with a channel (`attr->channel`) of its own. The daemon is told
 * of the three together when the QP is created, in one round trip instead of three. Until then the
 * CQ may only be given to ibv_create_qp_ex() or be destroyed, and its channel has no other CQ. As
 * ibv_create_cq_ex() else: NULL with errno (EINVAL: no channel, or one that has a CQ already).
 */
struct ibv_cq *verbena_create_cq_for_qp(struct ibv_context *context,
					const struct ibv_cq_init_attr_ex *attr);

#endif
