/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands, one function each, named after the kernel's. `response` is the command's response
 * structure, zeroed; it is sent when 0 is returned, else the negative errno is.
 *
 * Results that any command may return: -EINVAL wrong handle or argument, -EBUSY still in use,
 * -ENOMEM no memory or quota reached, -EOPNOTSUPP not offered (and not advertised).
 */
#ifndef VERBENA_DAEMON_CORE_COMMANDS_H
#define VERBENA_DAEMON_CORE_COMMANDS_H

struct request;

typedef int command_fn(struct request *request, void *response);

/* device.c */
command_fn command_list_devices, command_query_device, command_query_port, command_query_gid;
command_fn command_ex_query_device;
/* attach.c */
command_fn command_attach, command_link, command_unlink, command_get_context, command_source;
/* return.c */
command_fn command_link_return, command_returned;
/* pd.c */
command_fn command_alloc_pd, command_dealloc_pd, command_import_pd, command_unimport_pd;
/* mr.c */
command_fn command_alloc_mw, command_dealloc_mw;
command_fn command_reg_mr, command_rereg_mr, command_dereg_mr, command_query_mr;
command_fn command_import_mr, command_alloc_null_mr;
/* dm.c */
command_fn command_alloc_dm, command_free_dm, command_import_dm, command_reg_dm_mr;
/* cq.c */
command_fn command_create_channel, command_destroy_channel, command_create_channel_cq;
command_fn command_create_cq, command_resize_cq, command_destroy_cq;
/* srq.c */
command_fn command_create_srq, command_create_xsrq, command_modify_srq, command_destroy_srq;
/* qp.c */
command_fn command_create_qp_cqs, command_create_qp, command_destroy_qp;
/* xrc.c */
command_fn command_open_xrcd, command_close_xrcd, command_open_qp;
command_fn command_xrc_query, command_xrc_modify, command_xrc_report, command_xrc_returns;
/* xrc_share.c */
command_fn command_xrc_memory, command_xrc_socket, command_xrc_memory_returns;
/* flow.c */
command_fn command_create_flow, command_destroy_flow;
/* mcast.c */
command_fn command_attach_mcast, command_detach_mcast;
/* route.c */
command_fn command_route;
/* cm_alternate.c */
command_fn command_alternate;
/* ah.c */
command_fn command_create_ah, command_destroy_ah;

#endif
