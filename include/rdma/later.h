/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of librdmacm that came with rdma-core 60 to 65. Our <rdma/rdma_cma.h> is that of 44, so
 * they stand here; in rdma-core they are in rdma_cma.h and rsocket.h, and a program that was
 * compiled with that one runs on this library without this header (docs/abi.md).
 *
 * They return 0, or -1 with errno.
 */
#ifndef RDMA_LATER_H
#define RDMA_LATER_H

#include <stdint.h>

#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Further values of enum rdma_cm_event_type. */
enum {
	RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16,
	RDMA_CM_EVENT_ADDRINFO_ERROR = 17,
	RDMA_CM_EVENT_USER = 18,
};

/* Flags of rdma_addrinfo.ai_flags, for rdma_resolve_addrinfo(). */
#define RAI_SA 0x10  /* ask the subnet administration for a service: EOPNOTSUPP */
#define RAI_DNS 0x20 /* ask the system's resolver, which is the default */

/* As rdma_getaddrinfo(). The result comes as ADDRINFO_RESOLVED or, with a status, ADDRINFO_ERROR on
 * the identifier's channel; if the identifier is synchronous, the call waits for it. EBUSY: one has
 * been begun, and its result wasn't taken. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
/* Takes the result; rdma_freeaddrinfo() frees it. ENOENT: there is none. */
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);

/* Writes an event of the type USER on the identifier's channel. `arg` is in the first eight bytes
 * of its `param`. EAGAIN: the program has too many events that it hasn't read. */
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

/* epoll for rsockets, of rdma-core 65: EOPNOTSUPP. */
struct epoll_event;
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

#ifdef __cplusplus
}
#endif

#endif
