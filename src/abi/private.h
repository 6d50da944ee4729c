/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that librdmacm.so.1 calls in libibverbs.so.1 beyond the verbs: under a version node of
 * their own, which no other libibverbs has. librdmacm looks them up when it is loaded
 * (src/rdmacm/private.c), so it also works beside a libibverbs that lacks them. A change of a
 * function's meaning takes a new node.
 */
#ifndef VERBENA_ABI_PRIVATE_H
#define VERBENA_ABI_PRIVATE_H

#include <infiniband/verbs.h>

#define VERBENA_PRIVATE "VERBENA_PRIVATE_1"

/*
 * Creates a CQ for use by one QP only, with a channel (`attr->channel`) of its own. The daemon
 * learns of the three together when the QP is created, in one round trip instead of three. Until
 * then the CQ may only be given to ibv_create_qp_ex() or be destroyed, and its channel has no other
 * CQ. Otherwise as ibv_create_cq_ex(): NULL with errno (EINVAL: no channel, or a channel that has a
 * CQ).
 */
struct ibv_cq *verbena_create_cq_for_qp(struct ibv_context *context,
					const struct ibv_cq_init_attr_ex *attr);

/* Whether the context's device was removed (IBV_EVENT_DEVICE_FATAL): it must be opened again. */
int verbena_context_removed(struct ibv_context *context);

#endif
