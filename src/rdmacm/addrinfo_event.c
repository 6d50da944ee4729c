/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking up names with an event of the id's channel: rdma_resolve_addrinfo(), and the events that
 * a program makes itself. The look-up happens within the call, as upstream does it; its result is
 * the id's until the program takes it. Two atomic words of the id say so, because one thread may
 * begin a look-up while another takes the result.
 */
#include "rdmacm/rdmacm.h"

#include <rdma/later.h>

static int id_write_event(struct id *id, uint32_t event, int status, uint64_t arg)
{
	const struct proto_cm_write_event body = {
		.id = id->handle, .event = event, .status = status, .arg = arg};

	return cm_call(id->generation, PROTO_CM_WRITE_EVENT, &body, sizeof(body), NULL, 0, NULL);
}

/* The id's look-up is over, without a result. */
static void resolving_ends(struct id *id)
{
	rdma_freeaddrinfo(__atomic_exchange_n(&id->resolved, NULL, __ATOMIC_ACQ_REL));
	__atomic_store_n(&id->resolving, false, __ATOMIC_RELEASE);
}

static int resolve_by_dns(struct id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo wish = hints ? *hints : (struct rdma_addrinfo){0}, *found = NULL;

	wish.ai_flags &= ~RAI_DNS;
	int failed = rdma_getaddrinfo(node, service, hints ? &wish : NULL, &found);

	__atomic_store_n(&id->resolved, found, __ATOMIC_RELEASE);
	int err = failed ? id_write_event(id, RDMA_CM_EVENT_ADDRINFO_ERROR, -ENOENT, 0)
			 : id_write_event(id, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0, 0);

	if (err || failed)
		resolving_ends(id);
	return err ? err : id_complete(id);
}

EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *pub, const char *node, const char *service,
				 const struct rdma_addrinfo *hints)
{
	if (!pub || (!node && !service && !hints))
		return cm_result(-EINVAL);
	if (hints && hints->ai_flags & RAI_SA)
		return cm_result(-EOPNOTSUPP);
	if (__atomic_exchange_n(&id_of(pub)->resolving, true, __ATOMIC_ACQ_REL))
		return cm_result(-EBUSY);
	return cm_result(resolve_by_dns(id_of(pub), node, service, hints));
}

EXPORT int rdma_query_addrinfo(struct rdma_cm_id *pub, struct rdma_addrinfo **info)
{
	if (!pub || !info)
		return cm_result(-EINVAL);
	struct rdma_addrinfo *found =
		__atomic_exchange_n(&id_of(pub)->resolved, NULL, __ATOMIC_ACQ_REL);

	if (!found)
		return cm_result(-ENOENT);
	*info = found;
	__atomic_store_n(&id_of(pub)->resolving, false, __ATOMIC_RELEASE);
	return 0;
}

EXPORT int rdma_write_cm_event(struct rdma_cm_id *pub, enum rdma_cm_event_type event, int status,
			       uint64_t arg)
{
	if (!pub || (int)event != RDMA_CM_EVENT_USER)
		return cm_result(-EINVAL);
	return cm_result(id_write_event(id_of(pub), event, status, arg));
}
