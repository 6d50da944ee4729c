/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first ABI of libibverbs (node IBVERBS_1.0, before 2007): every function reports "not
 * implemented".
 *
 * Its structures have other layouts, so today's functions of the same names can't serve a program
 * of that time. No program of Debian 12 needs them; the symbols exist so that such a program starts
 * and gets an error instead of failing in the dynamic linker. Each function follows the error
 * convention that its name always had. ibv_register_driver of node IBVERBS_1.1 is similar: a driver
 * of that time registers without effect.
 *
 * Since no argument is used, functions are defined without parameters. No state, any thread.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"

/*
 * Defines old_NAME, exported as NAME@IBVERBS_1.0. (The formatter takes the body for an
 * initializer.)
 */
/* clang-format off */
#define OLD(type, name, ...)                                 \
	EXPORT type old_##name(void);                        \
	EXPORT type old_##name(void)                         \
	{                                                    \
		__VA_ARGS__                                  \
	}                                                    \
	EXPORT_OLD(old_##name, name, "IBVERBS_1.0")
/* clang-format on */

/* Returns a pointer: NULL and errno. */
#define OLD_POINTER(name) OLD(void *, name, errno = ENOSYS; return NULL;)
/* Returns an errno value. */
#define OLD_ERRNO(name) OLD(int, name, return ENOSYS;)
/* Returns -1 and sets errno. */
#define OLD_MINUS_ONE(name) OLD(int, name, errno = ENOSYS; return -1;)
/* Returns nothing. */
#define OLD_VOID(name) OLD(void, name, )

OLD_POINTER(ibv_alloc_pd);
OLD_POINTER(ibv_create_ah);
OLD_POINTER(ibv_create_cq);
OLD_POINTER(ibv_create_qp);
OLD_POINTER(ibv_create_srq);
OLD_POINTER(ibv_get_device_name);
OLD_POINTER(ibv_open_device);
OLD_POINTER(ibv_reg_mr);

OLD_MINUS_ONE(ibv_close_device);
OLD_MINUS_ONE(ibv_get_async_event);
OLD_MINUS_ONE(ibv_get_cq_event);
OLD_MINUS_ONE(ibv_query_gid);
OLD_MINUS_ONE(ibv_query_pkey);

OLD_VOID(ibv_ack_async_event);
OLD_VOID(ibv_ack_cq_events);
OLD_VOID(ibv_free_device_list);

OLD_ERRNO(ibv_attach_mcast);
OLD_ERRNO(ibv_dealloc_pd);
OLD_ERRNO(ibv_dereg_mr);
OLD_ERRNO(ibv_destroy_ah);
OLD_ERRNO(ibv_destroy_cq);
OLD_ERRNO(ibv_destroy_qp);
OLD_ERRNO(ibv_destroy_srq);
OLD_ERRNO(ibv_detach_mcast);
OLD_ERRNO(ibv_modify_qp);
OLD_ERRNO(ibv_modify_srq);
OLD_ERRNO(ibv_query_device);
OLD_ERRNO(ibv_query_port);
OLD_ERRNO(ibv_query_qp);
OLD_ERRNO(ibv_query_srq);
OLD_ERRNO(ibv_resize_cq);

OLD(uint64_t, ibv_get_device_guid, errno = ENOSYS; return 0;);

/* An empty list with count 0, because programs check the count first. */
EXPORT void **old_ibv_get_device_list(int *count);
EXPORT void **old_ibv_get_device_list(int *count)
{
	if (count)
		*count = 0;
	errno = ENOSYS;
	return NULL;
}
EXPORT_OLD(old_ibv_get_device_list, ibv_get_device_list, "IBVERBS_1.0");

EXPORT void old_ibv_register_driver(void);
EXPORT void old_ibv_register_driver(void)
{
}
EXPORT_OLD(old_ibv_register_driver, ibv_register_driver, "IBVERBS_1.1");
