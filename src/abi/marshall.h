/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conversion between the structures of the kernel ABI and those of verbs: exported, but in no
 * public header. Each function writes *out whole and keeps no pointer; in and out must not overlap.
 * No errors.
 */
#ifndef VERBENA_ABI_MARSHALL_H
#define VERBENA_ABI_MARSHALL_H

struct ib_user_path_rec;
struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ibv_ah_attr;
struct ibv_qp_attr;
struct ibv_sa_path_rec;

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *out, const struct ib_uverbs_ah_attr *in);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *out, const struct ib_uverbs_qp_attr *in);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *out, const struct ib_user_path_rec *in);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *out, const struct ibv_sa_path_rec *in);

#endif
