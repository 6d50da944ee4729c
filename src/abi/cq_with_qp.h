/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between librdmacm.so.1 and libibverbs.so.1: a bit of ibv_cq_init_attr_ex.comp_mask that no
 * version of verbs has. The CQ, and its channel, are for one QP: the daemon is told of them
 * together with that QP, in one round trip instead of three. Until then the CQ may only be given to
 * ibv_create_qp_ex() or be destroyed, and its channel has no other CQ.
 */
#ifndef VERBENA_ABI_CQ_WITH_QP_H
#define VERBENA_ABI_CQ_WITH_QP_H

#define CQ_WITH_QP (1u << 31)

#endif
