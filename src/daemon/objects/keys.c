/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory keys. See keys.h. Tags are kept by place of first use, not by index, so that their array
 * grows with the number of regions in use. */
#include "daemon/objects/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"

/* A key comes back after this many deregistrations times the number of tags, that is a million. A
 * larger number would spread a busy program's regions over more pages of its table. */
enum { KEYS_AGE = 4096 };

void keys_init(struct keys *keys, uint32_t start, uint8_t seed)
{
	*keys = (struct keys){.seed = seed};
	ids_init(&keys->ids, KEYS_FIRST, LIMIT_MRS_PER_SLOT - KEYS_FIRST, KEYS_AGE, start);
}

void keys_fini(struct keys *keys)
{
	ids_fini(&keys->ids);
	free(keys->tags);
	keys->tags = NULL;
}

static uint32_t keys_place(const struct keys *keys, uint32_t index)
{
	return (index - KEYS_FIRST + keys->ids.count - keys->ids.start) % keys->ids.count;
}

static int keys_grow(struct keys *keys)
{
	if (keys->room >= keys->ids.room)
		return 0;
	uint8_t *tags = realloc(keys->tags, keys->ids.room);

	if (!tags)
		return -ENOMEM;
	memset(tags + keys->room, keys->seed, keys->ids.room - keys->room);
	keys->tags = tags;
	keys->room = keys->ids.room;
	return 0;
}

int keys_take(struct keys *keys, uint32_t *key)
{
	uint32_t index;
	int err = ids_take(&keys->ids, &index);

	if (err)
		return err;
	err = keys_grow(keys);
	if (err) {
		ids_give(&keys->ids, index);
		return err;
	}
	uint8_t *tag = &keys->tags[keys_place(keys, index)];

	*tag += 1;
	*key = index << LIMIT_KEY_TAG_BITS | *tag;
	return 0;
}

void keys_give(struct keys *keys, uint32_t key)
{
	ids_give(&keys->ids, key >> LIMIT_KEY_TAG_BITS);
}

int keys_claim(struct keys *keys, uint32_t key)
{
	uint32_t index = key >> LIMIT_KEY_TAG_BITS;
	int err = ids_claim(&keys->ids, index);

	if (!err)
		err = keys_grow(keys);
	if (!err)
		keys->tags[keys_place(keys, index)] = (uint8_t)key;
	return err;
}

void keys_claimed(struct keys *keys)
{
	ids_claimed(&keys->ids);
}
