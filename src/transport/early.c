/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that came too early, see early.h. */
#include "transport/early.h"

#include <string.h>

enum { WORD = 64 };

/* The first half is true by the language: what the store relies on is said here.
 * NOLINTNEXTLINE(misc-redundant-expression) */
_Static_assert(sizeof(struct packet) % _Alignof(struct packet) == 0 && EARLY_MAX % WORD == 0,
	       "places");

static uint32_t early_place(const struct early *early, uint32_t psn)
{
	return psn & (early->places - 1);
}

static struct packet *packet_at(const struct early *early, uint32_t place)
{
	return (struct packet *)(void *)(early->memory +
					 (size_t)place * (sizeof(struct packet) + early->mtu));
}

static bool is_used(const struct early *early, uint32_t place)
{
	return early->used[place / WORD] >> place % WORD & 1;
}

void early_start(struct early *early, uint32_t mtu)
{
	early->mtu = mtu;
	early->places = early->memory ? early_room(mtu) : 0;
	early_forget(early);
}

void early_forget(struct early *early)
{
	if (!early->count)
		return;
	early->count = 0;
	memset(early->used, 0, sizeof(early->used));
}

bool early_keep(struct early *early, const struct packet *p, uint32_t ahead)
{
	if (ahead >= early->places || p->length > early->mtu)
		return false;
	uint32_t place = early_place(early, p->psn);
	struct packet *kept = packet_at(early, place);

	if (is_used(early, place)) {
		if (kept->psn == p->psn)
			return true;
	} else {
		early->used[place / WORD] |= 1ull << place % WORD;
		early->count++;
	}
	*kept = *p;
	kept->payload = (const uint8_t *)(kept + 1);
	if (p->length)
		memcpy(kept + 1, p->payload, p->length);
	return true;
}

const struct packet *early_take(struct early *early, uint32_t psn)
{
	uint32_t place = early_place(early, psn);

	if (!early->count || !is_used(early, place))
		return NULL;
	const struct packet *kept = packet_at(early, place);

	early->used[place / WORD] &= ~(1ull << place % WORD);
	early->count--;
	return kept->psn == psn ? kept : NULL;
}
