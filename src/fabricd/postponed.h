/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that are on their way because a cable has a delay: a heap by time, and one timer. */
#ifndef VERBENA_FABRICD_POSTPONED_H
#define VERBENA_FABRICD_POSTPONED_H

#include "fabricd/server.h"

/* 0 or -errno. */
int postponed_open(struct server *server);
void postponed_close(struct server *server);

/* The fabric's function `postpone`. Beyond POSTPONED_MAX a datagram is lost, as on a full link. */
#define POSTPONED_MAX 65536u
void postponed_add(void *context, const struct fabric_datagram *datagram, uint64_t delay_ns);

#endif
