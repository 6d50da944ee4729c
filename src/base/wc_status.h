/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of completion statuses: rdma-core's strings, because scripts search logs for them. A table
 * only: no state, any thread. */
#ifndef VERBENA_BASE_WC_STATUS_H
#define VERBENA_BASE_WC_STATUS_H

/* `status`: enum ibv_wc_status. Returns "unknown" for other values; never NULL. */
const char *wc_status_text(int status);

#endif
