/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flag of ibv_send_wr.send_flags that only rsockets set: inline data may be longer than the QP's
 * max_inline_data if the request is executed before the call returns, so that no copy is kept. A
 * device that doesn't know the flag has its own limit, and the call fails there.
 */
#ifndef VERBENA_BASE_SEND_DIRECT_H
#define VERBENA_BASE_SEND_DIRECT_H

#define SEND_DIRECT (1u << 31)

#endif
