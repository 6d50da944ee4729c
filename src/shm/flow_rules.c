/* SPDX-License-Identifier: BSD-2-Clause */
/* See flows.h. No state but the table. */
#include "shm/flow_rules.h"

#include <errno.h>
#include <string.h>

uint64_t flows_changes(const struct flow_rules *flows)
{
	/* [F6], pairs with [F5]: the rules that are read after it are no older */
	return atomic_load_explicit(&flows->changes, memory_order_acquire);
}

bool flows_read(const struct flow_rules *flows, uint32_t place, struct flow_rule *out)
{
	const struct flow_place *at = &flows->place[place];
	/* [F3], pairs with [F2]: the words of this name, or later ones */
	uint64_t name = atomic_load_explicit(&at->name, memory_order_acquire);
	uint64_t words[FLOW_WORDS];

	if (!name)
		return false;
	for (int i = 0; i < FLOW_WORDS; i++)
		words[i] = atomic_load_explicit(&at->word[i], memory_order_relaxed);
	/* [F4], pairs with [F1]: a word of a later rule, and the name isn't this one any more */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&at->name, memory_order_relaxed) != name)
		return false;
	memcpy(out, words, sizeof(*out));
	return out->size <= sizeof(out->specs);
}

static void flows_count_change(struct flow_rules *flows)
{
	/* [F5], pairs with [F6]: a reader of the new number sees the change */
	atomic_fetch_add_explicit(&flows->changes, 1, memory_order_release);
}

/* A place without a rule; LIMIT_FLOWS: there is none. */
static uint32_t flows_free_place(struct flow_rules *flows)
{
	uint32_t used = atomic_load_explicit(&flows->places, memory_order_relaxed);

	for (uint32_t i = 0; i < used; i++)
		if (!atomic_load_explicit(&flows->place[i].name, memory_order_relaxed))
			return i;
	return used;
}

int flows_add(struct flow_rules *flows, uint64_t name, const struct flow_rule *rule)
{
	uint32_t place = flows_free_place(flows);
	uint64_t words[FLOW_WORDS];

	if (place >= LIMIT_FLOWS)
		return -ENOMEM;
	struct flow_place *at = &flows->place[place];

	memcpy(words, rule, sizeof(words));
	/* [F1], pairs with [F4]: the former name is gone before a word changes */
	atomic_thread_fence(memory_order_release);
	for (int i = 0; i < FLOW_WORDS; i++)
		atomic_store_explicit(&at->word[i], words[i], memory_order_relaxed);
	/* [F2], pairs with [F3] */
	atomic_store_explicit(&at->name, name, memory_order_release);
	if (place == atomic_load_explicit(&flows->places, memory_order_relaxed))
		atomic_store_explicit(&flows->places, place + 1, memory_order_relaxed);
	flows_count_change(flows);
	return (int)place;
}

void flows_set_user(struct flow_rules *flows, uint32_t slot, uint64_t user)
{
	atomic_store_explicit(&flows->user[slot], user, memory_order_relaxed);
	flows_count_change(flows);
}

void flows_remove(struct flow_rules *flows, uint32_t place)
{
	atomic_store_explicit(&flows->place[place].name, 0, memory_order_relaxed);
	flows_count_change(flows);
}
