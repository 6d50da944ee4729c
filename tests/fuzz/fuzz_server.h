/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon in this process, in a directory of its own under /tmp, whose loop runs for a given
 * number of rounds, and whose memory and descriptors can be limited.
 */
#ifndef VERBENA_TESTS_FUZZ_SERVER_H
#define VERBENA_TESTS_FUZZ_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/server.h"

void server_begin(void);
struct server *server_now(void);

/* Connects and returns the client's end, non-blocking; -1: the daemon doesn't accept. `type` is
 * that of the socket (SEQPACKET: uverbs0, STREAM: ctl); `user` 0 is the daemon's own. */
int server_connect(int type, unsigned int user);
/* Likewise to the node rdma_cm. */
int server_connect_cm(unsigned int user);

void server_rounds(unsigned int count);
void server_pass_time(uint64_t ms);

/* Makes the n-th allocation from now on fail, and each n-th after it; 0: none. */
void server_scarce(unsigned int n);

/* Makes new sockets hold a few packets only. */
void server_narrow(bool yes);

/* Kills the daemon and starts it again. */
void server_restart(void);

/* Counts before an input, and checks after it, when all clients have disconnected, that nothing is
 * left. `restarted`: slots are reserved for clients that won't return; the next input gets another
 * daemon. */
void server_check_begin(void);
void server_check_end(bool restarted);

#endif
