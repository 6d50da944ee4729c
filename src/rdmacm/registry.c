/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ids and joins by the number that the daemon puts into events (`uid`). See rdmacm.h.
 *
 * An event may wait in a socket's queue until its id has been destroyed and a new id has the same
 * address or handle. So the number consists of an index into a table and a count of how often the
 * entry was used: no number is used twice.
 *
 * Owns the table and its lock, which also guards the counters of unacknowledged events.
 */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/mutex.h"
#include "base/sys.h"

/* An entry of `places`, and guarded as they are. */
struct place {
	struct object *object; /* NULL: free */
	uint32_t uses;
	uint32_t next_free;
};

enum { FIRST_PLACES = 64 };
#define NO_PLACE UINT32_MAX

struct mutex registry_lock = MUTEX_INITIALIZER(RANK_RDMACM_REGISTRY);
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;
static struct place *places GUARDED_BY(registry_lock) PT_GUARDED_BY(registry_lock);
static uint32_t place_count GUARDED_BY(registry_lock);
static uint32_t first_free GUARDED_BY(registry_lock) = NO_PLACE;

FORK_KEEP(registry_lock);

static int grow_locked(void) REQUIRES(registry_lock)
{
	uint32_t count = place_count ? 2 * place_count : FIRST_PLACES, first;
	struct place *more = malloc(count * sizeof(*more)), *fewer = places;

	if (!more)
		return -ENOMEM;
	if (fewer)
		memcpy(more, fewer, place_count * sizeof(*more));
	for (uint32_t i = place_count; i < count; i++)
		more[i] = (struct place){.next_free = i + 1 < count ? i + 1 : NO_PLACE};
	FORK_POINT();
	places = more;
	FORK_POINT();
	first = place_count;
	place_count = count;
	FORK_POINT();
	first_free = first;
	free(fewer);
	return 0;
}

int registry_add(struct object *object)
{
	mutex_take(&registry_lock);
	int err = first_free == NO_PLACE ? grow_locked() : 0;

	if (!err) {
		uint32_t index = first_free;
		struct place *place = &places[index];

		first_free = place->next_free;
		FORK_POINT();
		place->object = object;
		place->uses++;
		object->unacknowledged = 0;
		object->uid = (uint64_t)place->uses << 32 | (index + 1);
	}
	mutex_give(&registry_lock);
	return err;
}

uint64_t registry_uid(const struct object *object)
{
	mutex_take(&registry_lock);
	uint64_t uid = object->uid;

	mutex_give(&registry_lock);
	return uid;
}

static void wait_locked(struct object *object) REQUIRES(registry_lock)
{
	while (object->unacknowledged)
		mutex_wait(&registry_lock, &acknowledged);
}

void registry_remove(struct object *object)
{
	mutex_take(&registry_lock);
	if (object->uid) {
		uint32_t index = (uint32_t)object->uid - 1;

		/* A child that removes the object, too, doesn't free its place twice. */
		object->uid = 0;
		FORK_POINT();
		places[index].object = NULL;
		places[index].next_free = first_free;
		FORK_POINT();
		first_free = index;
	}
	wait_locked(object);
	mutex_give(&registry_lock);
}

void registry_wait(struct object *object)
{
	mutex_take(&registry_lock);
	wait_locked(object);
	mutex_give(&registry_lock);
}

struct object *registry_get(uint64_t uid)
{
	uint32_t index = (uint32_t)uid - 1;
	struct object *object = NULL;

	mutex_take(&registry_lock);
	if (index < place_count && places[index].object && places[index].object->uid == uid) {
		object = places[index].object;
		object->unacknowledged++;
	}
	mutex_give(&registry_lock);
	return object;
}

void registry_put(struct object *object)
{
	mutex_take(&registry_lock);
	object->unacknowledged--;
	pthread_cond_broadcast(&acknowledged);
	mutex_give(&registry_lock);
}

void registry_pass(void)
{
	mutex_take(&registry_lock);
	mutex_give(&registry_lock);
}
