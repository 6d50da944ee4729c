/* SPDX-License-Identifier: BSD-2-Clause */
/* See groups.h. No state but the table. */
#include "shm/groups.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

/* Neither the first half of an IPv6 multicast address (0xff...) nor of a mapped IPv4 one (0). */
#define NO_GROUP 0x0101010101010101ull

/* Two rounds of a multiplication that mixes well (the finalizer of splitmix64). */
static uint64_t groups_mix(uint64_t h)
{
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ h >> 27) * 0x94d049bb133111ebull;
	return h ^ h >> 31;
}

static uint32_t groups_bucket(const struct groups *groups, const uint64_t key[2])
{
	uint64_t h = groups_mix(groups_mix(groups->seed ^ key[0]) ^ key[1]);

	return (uint32_t)(h % GROUPS_BUCKETS) * GROUPS_WAYS;
}

static uint64_t groups_load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* The index of the group's place, or GROUPS_PLACES. */
static uint32_t groups_place(const struct groups *groups, const uint64_t key[2])
{
	uint32_t first = groups_bucket(groups, key);

	for (uint32_t i = first; i < first + GROUPS_WAYS; i++) {
		uint64_t low = groups_load(&groups->gid[i].word[0]),
			 high = groups_load(&groups->gid[i].word[1]);

		if (low == key[0] && high == key[1])
			return i;
		if (!low && !high)
			break;
	}
	return GROUPS_PLACES;
}

bool groups_find(const struct groups *groups, const uint8_t gid[16], uint64_t slots[GROUPS_WORDS])
{
	uint64_t key[2], any = 0;

	memcpy(key, gid, sizeof(key));
	uint32_t place = groups_place(groups, key);

	for (uint32_t i = 0; place < GROUPS_PLACES && i < GROUPS_WORDS; i++) {
		uint64_t word = groups_load(&groups->slots[place].word[i]);

		slots[i] |= word;
		any |= word;
	}
	return any;
}

static bool is_free(const struct groups *groups, uint32_t place)
{
	uint64_t any = 0;

	for (uint32_t i = 0; i < GROUPS_WORDS; i++)
		any |= groups_load(&groups->slots[place].word[i]);
	return !any;
}

/* Takes a place for a group that has none and writes its GID. GROUPS_PLACES: the bucket is full. */
static uint32_t groups_take_place(struct groups *groups, const uint64_t key[2])
{
	uint32_t first = groups_bucket(groups, key);

	for (uint32_t i = first; i < first + GROUPS_WAYS; i++) {
		struct groups_gid *gid = &groups->gid[i];

		if (!is_free(groups, i))
			continue;
		atomic_store_explicit(&gid->word[0], NO_GROUP, memory_order_relaxed);
		atomic_store_explicit(&gid->word[1], key[1], memory_order_relaxed);
		atomic_store_explicit(&gid->word[0], key[0], memory_order_relaxed);
		return i;
	}
	return GROUPS_PLACES;
}

int groups_set(struct groups *groups, const uint8_t gid[16], uint32_t slot)
{
	uint64_t key[2];

	memcpy(key, gid, sizeof(key));
	uint32_t place = groups_place(groups, key);

	if (place == GROUPS_PLACES)
		place = groups_take_place(groups, key);
	if (place == GROUPS_PLACES)
		return -ENOMEM;
	atomic_fetch_or_explicit(&groups->slots[place].word[slot / 64], 1ull << slot % 64,
				 memory_order_relaxed);
	return 0;
}

void groups_clear(struct groups *groups, const uint8_t gid[16], uint32_t slot)
{
	uint64_t key[2];

	memcpy(key, gid, sizeof(key));
	uint32_t place = groups_place(groups, key);

	if (place < GROUPS_PLACES)
		atomic_fetch_and_explicit(&groups->slots[place].word[slot / 64],
					  ~(1ull << slot % 64), memory_order_relaxed);
}

uint64_t groups_addresses(const struct groups *groups)
{
	/* [G4], pairs with [G3]: the addresses that are looked for after it are no older */
	return atomic_load_explicit(&groups->addresses, memory_order_acquire);
}

static uint64_t groups_peek(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

bool groups_is_own(const struct groups *groups, const uint8_t gid[16])
{
	uint32_t count = atomic_load_explicit(&groups->own_count, memory_order_relaxed);
	uint64_t key[2];

	memcpy(key, gid, sizeof(key));
	for (uint32_t i = 0; i < count && i < GROUPS_OWN; i++)
		if (groups_peek(&groups->own[i].word[0]) == key[0] &&
		    groups_peek(&groups->own[i].word[1]) == key[1])
			return true;
	return false;
}

bool groups_is_loopback(const uint8_t gid[16])
{
	const struct in6_addr *address = (const struct in6_addr *)gid;

	return IN6_IS_ADDR_V4MAPPED(address) ? gid[12] == 127 : IN6_IS_ADDR_LOOPBACK(address);
}

void groups_set_own(struct groups *groups, const uint8_t (*gids)[16], uint32_t count)
{
	count = count < GROUPS_OWN ? count : GROUPS_OWN;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t key[2];

		memcpy(key, gids[i], sizeof(key));
		for (int w = 0; w < 2; w++)
			atomic_store_explicit(&groups->own[i].word[w], key[w],
					      memory_order_relaxed);
	}
	atomic_store_explicit(&groups->own_count, count, memory_order_relaxed);
	/* [G3], pairs with [G4]: a reader of the new number sees these addresses. Never 0. */
	atomic_fetch_add_explicit(&groups->addresses, 2, memory_order_release);
}
