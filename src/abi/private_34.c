/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands of the provider interface of rdma-core 44 to 56 (node IBVERBS_PRIVATE_34) that
 * src/kverbs doesn't have.
 *
 * Debian's libmlx5, libmlx4, libefa and the drivers in /usr/lib/x86_64-linux-gnu/libibverbs are
 * linked BIND_NOW against all symbols of that node, so each must resolve. These return "not
 * supported", and the kernel's devices don't show the features that need them.
 *
 * Since no argument is used, functions are defined without parameters; in the C calling convention
 * the caller can't tell. No state, any thread.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"

/* Commands: 0 or a positive errno value. */
#define PRIVATE_COMMAND(name)      \
	EXPORT int name(void);     \
	EXPORT int name(void)      \
	{                          \
		return EOPNOTSUPP; \
	}

PRIVATE_COMMAND(ibv_cmd_alloc_dm)
PRIVATE_COMMAND(ibv_cmd_create_counters)
PRIVATE_COMMAND(ibv_cmd_create_flow)
PRIVATE_COMMAND(ibv_cmd_create_flow_action_esp)
PRIVATE_COMMAND(ibv_cmd_create_rwq_ind_table)
PRIVATE_COMMAND(ibv_cmd_create_wq)
PRIVATE_COMMAND(ibv_cmd_destroy_counters)
PRIVATE_COMMAND(ibv_cmd_destroy_flow)
PRIVATE_COMMAND(ibv_cmd_destroy_flow_action)
PRIVATE_COMMAND(ibv_cmd_destroy_rwq_ind_table)
PRIVATE_COMMAND(ibv_cmd_destroy_wq)
PRIVATE_COMMAND(ibv_cmd_free_dm)
PRIVATE_COMMAND(ibv_cmd_modify_flow_action_esp)
PRIVATE_COMMAND(ibv_cmd_modify_wq)
PRIVATE_COMMAND(ibv_cmd_post_recv)
PRIVATE_COMMAND(ibv_cmd_post_send)
PRIVATE_COMMAND(ibv_cmd_post_srq_recv)
PRIVATE_COMMAND(ibv_cmd_read_counters)
PRIVATE_COMMAND(ibv_cmd_reg_dm_mr)
