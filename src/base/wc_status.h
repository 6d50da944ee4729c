/* SPDX-License-Identifier: BSD-2-Clause */
/* What a completion's status is called: rdma-core's words, because scripts search logs for them. A
 * table only: no state, any thread. */
#ifndef VERBENA_BASE_WC_STATUS_H
#define VERBENA_BASE_WC_STATUS_H

/* `status`: enum ibv_wc_status. "unknown" if it is none; never NULL. */
const char *wc_status_text(int status);

#endif
