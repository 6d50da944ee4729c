/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon in this process, in a directory of its own under /tmp, whose loop runs as far as it is
 * told, and which may be short of memory and descriptors.
 */
#ifndef VERBENA_TESTS_FUZZ_SERVER_H
#define VERBENA_TESTS_FUZZ_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/server.h"

void server_begin(void);
struct server *server_now(void);

/* A client's end of a new connection, non-blocking; -1: the daemon doesn't take it. `type` is that
 * of the socket (SEQPACKET: uverbs0, STREAM: ctl); `user` 0 is the daemon's own. */
int server_connect(int type, unsigned int user);
/* Likewise to the node rdma_cm. */
int server_connect_cm(unsigned int user);

void server_rounds(unsigned int count);
void server_pass_time(uint64_t ms);

/* The n-th allocation from now on fails, and each n-th after it; 0: none. */
void server_scarce(unsigned int n);

/* New sockets hold a few packets only. */
void server_narrow(bool yes);

/* Killed, and started again. */
void server_restart(void);

/* Counts before; and after, when all clients are gone: nothing may be left. `restarted`: places are
 * kept for clients that will not come; the next input gets another daemon. */
void server_check_begin(void);
void server_check_end(bool restarted);

#endif
