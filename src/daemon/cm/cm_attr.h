/* SPDX-License-Identifier: BSD-2-Clause */
/* The attributes of a connection's queue pair, out of its identifier. */
#ifndef VERBENA_DAEMON_CM_CM_ATTR_H
#define VERBENA_DAEMON_CM_CM_ATTR_H

#include <rdma/ib_user_verbs.h>

struct cm_id;
struct cm_path;
struct proto_cm_event;

/* The queue key of the RDMA CM's datagrams (RDMA_UDP_QKEY). */
#define CM_UDP_QKEY 0x01234567u

/* The P_Key of its connection: on Ethernet the default one. */
uint16_t cm_id_pkey(const struct cm_id *id);

/* Fills in the address of the peer. */
void cm_attr_fill_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *attr);

/* Adds to the event in `to` (zero but for the event) what the program would query next. */
void cm_query_beside(const struct cm_id *id, struct proto_cm_event *to);

/* Takes what a path record of the subnet administration adds to a node's path. */
void cm_path_take(struct cm_path *path, const uint8_t *record);

/* Binds an identifier to all addresses and any port. Returns 0 or as cm_ports_bind(). */
int cm_bind_any(struct cm_id *id);

#endif
