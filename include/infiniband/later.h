/* SPDX-License-Identifier: BSD-2-Clause */
/* Once had what rdma-core got from 59 to 65; that is in verbs.h now. For programs that include it.
 */
#ifndef INFINIBAND_LATER_H
#define INFINIBAND_LATER_H

#include <infiniband/verbs.h>

#endif
