/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc.h. No state but the table. */
#include "shm/xrc.h"

#include <errno.h>
#include <stddef.h>

#define PEEK(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define POKE(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)

/* Numbers of one process are consecutive, and those of several have a large stride: the upper bits
 * of a multiplication spread both. */
static uint32_t xrc_bucket(uint32_t qpn)
{
	return (qpn * 2654435761u >> 16) * XRC_BUCKETS / 65536 * XRC_WAYS;
}

const struct xrc_target *xrc_table_find(const struct xrc_table *table, uint32_t qpn)
{
	const struct xrc_target *first = &table->target[xrc_bucket(qpn)];

	for (const struct xrc_target *t = first; t < first + XRC_WAYS; t++)
		if ((uint32_t)PEEK(t->key) == qpn)
			return t;
	return NULL;
}

bool xrc_table_read(const struct xrc_table *table, uint32_t qpn, struct xrc_view *view)
{
	const struct xrc_target *t = xrc_table_find(table, qpn);

	if (!t)
		return false;
	*view = (struct xrc_view){
		.state = PEEK(t->state),
		.peer = PEEK(t->peer),
		.rq_psn = PEEK(t->rq_psn),
		.rnr_timer = (uint8_t)PEEK(t->rnr_timer),
	};
	uint64_t key = PEEK(t->key);

	view->domain = (uint32_t)(key >> 32);
	return (uint32_t)key == qpn;
}

int xrc_table_set(struct xrc_table *table, uint32_t qpn, const struct xrc_view *view)
{
	struct xrc_target *t = (struct xrc_target *)xrc_table_find(table, qpn);

	for (uint32_t i = 0; !t && i < XRC_WAYS; i++)
		if (!PEEK(table->target[xrc_bucket(qpn) + i].key))
			t = &table->target[xrc_bucket(qpn) + i];
	if (!t)
		return -ENOMEM;
	POKE(t->peer, view->peer);
	POKE(t->rq_psn, view->rq_psn);
	POKE(t->rnr_timer, view->rnr_timer);
	POKE(t->state, view->state);
	POKE(t->key, (uint64_t)view->domain << 32 | qpn);
	return 0;
}

void xrc_table_clear(struct xrc_table *table, uint32_t qpn)
{
	struct xrc_target *t = (struct xrc_target *)xrc_table_find(table, qpn);

	if (!t)
		return;
	POKE(t->key, 0);
	POKE(t->state, 0);
}
