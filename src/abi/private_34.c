/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The provider interface of rdma-core 44 to 56 (node IBVERBS_PRIVATE_34), without function.
 *
 * Debian's libmlx5, libmlx4, libefa and the drivers in /usr/lib/x86_64-linux-gnu/libibverbs are
 * linked BIND_NOW against these symbols, and perftest, UCX and pyverbs need some of those
 * libraries. They can be loaded because every symbol resolves; they stay unused because a driver
 * that registers is never given a device. A function that is called nevertheless returns "not
 * supported". ibv_query_gid_type(), which ordinary programs use, is in verbs_device.c.
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

PRIVATE_COMMAND(ibv_cmd_advise_mr)
PRIVATE_COMMAND(ibv_cmd_alloc_dm)
PRIVATE_COMMAND(ibv_cmd_alloc_mw)
PRIVATE_COMMAND(ibv_cmd_alloc_pd)
PRIVATE_COMMAND(ibv_cmd_attach_mcast)
PRIVATE_COMMAND(ibv_cmd_close_xrcd)
PRIVATE_COMMAND(ibv_cmd_create_ah)
PRIVATE_COMMAND(ibv_cmd_create_counters)
PRIVATE_COMMAND(ibv_cmd_create_cq)
PRIVATE_COMMAND(ibv_cmd_create_cq_ex)
PRIVATE_COMMAND(ibv_cmd_create_cq_ex2) /* since rdma-core 53 */
PRIVATE_COMMAND(ibv_cmd_create_flow)
PRIVATE_COMMAND(ibv_cmd_create_flow_action_esp)
PRIVATE_COMMAND(ibv_cmd_create_qp)
PRIVATE_COMMAND(ibv_cmd_create_qp_ex)
PRIVATE_COMMAND(ibv_cmd_create_qp_ex2)
PRIVATE_COMMAND(ibv_cmd_create_rwq_ind_table)
PRIVATE_COMMAND(ibv_cmd_create_srq)
PRIVATE_COMMAND(ibv_cmd_create_srq_ex)
PRIVATE_COMMAND(ibv_cmd_create_wq)
PRIVATE_COMMAND(ibv_cmd_dealloc_mw)
PRIVATE_COMMAND(ibv_cmd_dealloc_pd)
PRIVATE_COMMAND(ibv_cmd_dereg_mr)
PRIVATE_COMMAND(ibv_cmd_destroy_ah)
PRIVATE_COMMAND(ibv_cmd_destroy_counters)
PRIVATE_COMMAND(ibv_cmd_destroy_cq)
PRIVATE_COMMAND(ibv_cmd_destroy_flow)
PRIVATE_COMMAND(ibv_cmd_destroy_flow_action)
PRIVATE_COMMAND(ibv_cmd_destroy_qp)
PRIVATE_COMMAND(ibv_cmd_destroy_rwq_ind_table)
PRIVATE_COMMAND(ibv_cmd_destroy_srq)
PRIVATE_COMMAND(ibv_cmd_destroy_wq)
PRIVATE_COMMAND(ibv_cmd_detach_mcast)
PRIVATE_COMMAND(ibv_cmd_free_dm)
PRIVATE_COMMAND(ibv_cmd_get_context)
PRIVATE_COMMAND(ibv_cmd_modify_cq)
PRIVATE_COMMAND(ibv_cmd_modify_flow_action_esp)
PRIVATE_COMMAND(ibv_cmd_modify_qp)
PRIVATE_COMMAND(ibv_cmd_modify_qp_ex)
PRIVATE_COMMAND(ibv_cmd_modify_srq)
PRIVATE_COMMAND(ibv_cmd_modify_wq)
PRIVATE_COMMAND(ibv_cmd_open_qp)
PRIVATE_COMMAND(ibv_cmd_open_xrcd)
PRIVATE_COMMAND(ibv_cmd_post_recv)
PRIVATE_COMMAND(ibv_cmd_post_send)
PRIVATE_COMMAND(ibv_cmd_post_srq_recv)
PRIVATE_COMMAND(ibv_cmd_query_context)
PRIVATE_COMMAND(ibv_cmd_query_device_any)
PRIVATE_COMMAND(ibv_cmd_query_mr)
PRIVATE_COMMAND(ibv_cmd_query_port)
PRIVATE_COMMAND(ibv_cmd_query_qp)
PRIVATE_COMMAND(ibv_cmd_query_srq)
PRIVATE_COMMAND(ibv_cmd_read_counters)
PRIVATE_COMMAND(ibv_cmd_reg_dm_mr)
PRIVATE_COMMAND(ibv_cmd_reg_dmabuf_mr)
PRIVATE_COMMAND(ibv_cmd_reg_mr)
PRIVATE_COMMAND(ibv_cmd_req_notify_cq)
PRIVATE_COMMAND(ibv_cmd_rereg_mr)
PRIVATE_COMMAND(ibv_cmd_resize_cq)

/* The result is a number of completions, so a positive errno value would be taken for one. */
EXPORT int ibv_cmd_poll_cq(void);
EXPORT int ibv_cmd_poll_cq(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

/* In rdma-core it issues an ioctl on a device node of the kernel; here there is none. */
EXPORT int execute_ioctl(void);
EXPORT int execute_ioctl(void)
{
	return EOPNOTSUPP;
}

/* The number of attributes in a chain of command buffers: that of the first, because no buffers are
 * chained here. */
EXPORT unsigned int __ioctl_final_num_attrs(unsigned int attrs);
EXPORT unsigned int __ioctl_final_num_attrs(unsigned int attrs)
{
	return attrs;
}

/* In rdma-core it reads an attribute of a kernel device's directory. */
EXPORT int ibv_read_ibdev_sysfs_file(void);
EXPORT int ibv_read_ibdev_sysfs_file(void)
{
	errno = ENOENT;
	return -1;
}

/* Called from the constructors of driver libraries, possibly before any other function here. */
EXPORT void verbs_register_driver_34(const void *ops);
EXPORT void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

EXPORT void *_verbs_init_and_alloc_context(void);
EXPORT void *_verbs_init_and_alloc_context(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT void *verbs_open_device(void);
EXPORT void *verbs_open_device(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/* These three take contexts and CQs of a driver, which never exist here. */
EXPORT void verbs_set_ops(void);
EXPORT void verbs_set_ops(void)
{
}

EXPORT void verbs_init_cq(void);
EXPORT void verbs_init_cq(void)
{
}

EXPORT void verbs_uninit_context(void);
EXPORT void verbs_uninit_context(void)
{
}

/* A driver's log line, which is discarded, because drivers aren't used. */
EXPORT void __verbs_log(void *ctx, uint32_t level, const char *format, ...);
EXPORT void __verbs_log(void *ctx, uint32_t level, const char *format, ...)
{
	(void)ctx;
	(void)level;
	(void)format;
}

/* Whether objects may be destroyed after the device is gone. Drivers read it; this library
 * doesn't. */
extern EXPORT bool verbs_allow_disassociate_destroy;
EXPORT bool verbs_allow_disassociate_destroy;
