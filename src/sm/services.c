/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ServiceRecord: what programs announce, for as long as their lease says. A record is known by its
 * id, GID and P_Key; setting it again renews it.
 */
#include "sm/sa.h"

enum { SERVICE_ID = 0, SERVICE_GID = 1, SERVICE_LEASE = 4 };
enum { AT_GID = 8, AT_LEASE = 28, AT_KEY = 32 };
enum { NAME_BYTES = 26, SERVICE_KEY_BYTES = 16 }; /* what names a record; its key */

#define LEASE_FOREVER UINT32_MAX

static struct sm_service *service_find(struct sm *sm, const uint8_t *record)
{
	for (uint32_t i = 0; i < sm->service_count; i++)
		if (!memcmp(sm->services[i].record, record, NAME_BYTES))
			return &sm->services[i];
	return NULL;
}

static void service_drop(struct sm *sm, struct sm_service *service)
{
	*service = sm->services[--sm->service_count];
}

static struct sm_service *service_add(struct sm *sm)
{
	struct sm_service *larger;

	if (sm->service_count == SM_SERVICES_MAX)
		return NULL;
	larger = realloc(sm->services, (sm->service_count + 1) * sizeof *larger);
	if (!larger)
		return NULL;
	sm->services = larger;
	return &sm->services[sm->service_count++];
}

/* The key is for its owner: queries may name it, answers don't. */
static void keys_hide(struct sa_query *query)
{
	for (uint32_t i = 0; i < query->count; i++)
		memset(query->answer + SA_HEADER + i * (size_t)query->layout->bytes + AT_KEY, 0,
		       SERVICE_KEY_BYTES);
}

void sa_services(struct sa_query *query)
{
	for (uint32_t i = 0; i < query->sm->service_count; i++)
		sa_offer(query, query->sm->services[i].record, 0);
	keys_hide(query);
}

void sa_service_set(struct sa_query *query)
{
	struct sm *sm = query->sm;
	struct sm_service *service = service_find(sm, query->record);
	uint32_t lease = sa_has(query, SERVICE_LEASE) ? octets_get32(query->record + AT_LEASE)
						      : LEASE_FOREVER;

	if (!sa_has(query, SERVICE_ID) || !sa_has(query, SERVICE_GID)) {
		query->status = SA_INSUFFICIENT;
		return;
	}
	if (!lease) {
		query->status = SA_INVALID;
		return;
	}
	if (!service)
		service = service_add(sm);
	if (!service) {
		query->status = SA_NO_RESOURCES;
		return;
	}
	memcpy(service->record, query->record, sizeof service->record);
	octets_put32(service->record + AT_LEASE, lease);
	service->end_ms = lease == LEASE_FOREVER ? UINT64_MAX : sm->now_ms + lease * 1000ull;
	sa_add(query, service->record);
	keys_hide(query);
}

void sa_service_remove(struct sa_query *query)
{
	struct sm_service *service = service_find(query->sm, query->record);

	if (!service) {
		query->status = SA_NO_RECORDS;
		return;
	}
	sa_add(query, service->record);
	keys_hide(query);
	service_drop(query->sm, service);
}

void services_expire(struct sm *sm)
{
	for (uint32_t i = sm->service_count; i-- > 0;)
		if (sm->services[i].end_ms <= sm->now_ms)
			service_drop(sm, &sm->services[i]);
}

uint64_t services_deadline(const struct sm *sm)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t i = 0; i < sm->service_count; i++)
		if (sm->services[i].end_ms < first)
			first = sm->services[i].end_ms;
	return first;
}
