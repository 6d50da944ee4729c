/* SPDX-License-Identifier: BSD-2-Clause */
/* See flows.h. A flow that has ended is free again once verbena-fabric has read it. */
#include "hca/fabric/flows.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"

/* Places that one search looks at before a new one is used. */
#define SEARCH_MAX 64u

int flows_make(struct flows *flows)
{
	*flows = (struct flows){.next = 1};
	lock_init(&flows->lock, RANK_FLOWS);
	flows->fd = memfd_create("verbena-flows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (flows->fd < 0)
		return -errno;
	void *memory = MAP_FAILED;

	if (!ftruncate(flows->fd, PROTO_FLOWS_BYTES) &&
	    !fcntl(flows->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK))
		memory = mmap(NULL, PROTO_FLOWS_BYTES, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_NORESERVE, flows->fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	flows->memory = memory;
	flows->memory->magic = PROTO_FLOWS_MAGIC;
	atomic_store_explicit(&flows->memory->used, 1, memory_order_relaxed);
	return 0;
}

void flows_unmake(struct flows *flows)
{
	if (flows->memory)
		munmap(flows->memory, PROTO_FLOWS_BYTES);
	if (flows->fd >= 0)
		sys_close(flows->fd);
	flows->memory = NULL;
	flows->fd = -1;
}

/* A place that is free, or 0. */
static uint32_t flow_find(struct flows *flows) REQUIRES(flows->lock)
{
	struct proto_flows *memory = flows->memory;
	uint32_t used = atomic_load_explicit(&memory->used, memory_order_relaxed);
	uint32_t at = flows->next;
	uint32_t most = used < PROTO_FLOWS ? SEARCH_MAX : PROTO_FLOWS;

	for (uint32_t i = 0; i < most && i < used; i++) {
		at = at + 1 < used ? at + 1 : 1;
		/* [F3], pairs with [F4] */
		if (at < used && atomic_load_explicit(&memory->flow[at].state,
						      memory_order_acquire) == PROTO_FLOW_FREE)
			return flows->next = at;
	}
	flows->next = at;
	if (used == PROTO_FLOWS)
		return 0;
	atomic_store_explicit(&memory->used, used + 1, memory_order_relaxed);
	return used;
}

struct proto_flow *flow_take(struct flows *flows, const struct fabric_route *route, uint8_t sl)
{
	struct proto_flow *flow;
	uint32_t at;

	lock_take(&flows->lock);
	at = flow_find(flows);
	flow = &flows->memory->flow[at];
	if (at) {
		flow->hops = (uint16_t)route->hops;
		flow->sl = sl;
		flow->result = route->result;
		flow->blame = route->blame;
		for (uint32_t i = 0; i < route->hops && i < PROTO_FLOW_HOPS; i++)
			flow->egress[i] = route->hop[i].egress;
		/* [F1], pairs with [F2] */
		atomic_store_explicit(&flow->state, PROTO_FLOW_LIVE, memory_order_release);
	}
	lock_give(&flows->lock);
	return flow;
}

void flow_end(struct flows *flows, struct proto_flow *flow)
{
	/* Flow 0 is everybody's. */
	if (flow && flow != &flows->memory->flow[0])
		/* [F1], pairs with [F2] */
		atomic_store_explicit(&flow->state, PROTO_FLOW_ENDED, memory_order_release);
}

/* Whether the flow is one of this way. */
static bool flow_is(const struct proto_flow *flow, const struct fabric_route *route, uint8_t sl)
{
	if (flow->hops != route->hops || flow->sl != sl || flow->result != route->result ||
	    flow->blame != route->blame)
		return false;
	for (uint32_t i = 0; i < route->hops; i++)
		if (flow->egress[i] != route->hop[i].egress)
			return false;
	return true;
}

void flow_choose(struct flows *flows, struct proto_flow **flow, const struct fabric_route *route,
		 uint8_t sl)
{
	if (*flow && flow_is(*flow, route, sl))
		return;
	flow_end(flows, *flow);
	*flow = flow_take(flows, route, sl);
}
