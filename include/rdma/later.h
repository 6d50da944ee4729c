/* SPDX-License-Identifier: BSD-2-Clause */
/* Once had what librdmacm got with rdma-core 60 to 65; that is in rdma_cma.h and rsocket.h now. For
 * programs that include it. */
#ifndef RDMA_LATER_H
#define RDMA_LATER_H

#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#endif
