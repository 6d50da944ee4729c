/* SPDX-License-Identifier: BSD-2-Clause */
/* The tag list of a tag-matching SRQ. See tags.h. Under srq.lock. */
#include "hca/verbs/tags.h"
#include "base/refused.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BITS = 12 };
_Static_assert(LIMIT_TAGS <= 1 << INDEX_BITS, "a handle has room for the index of an entry");

struct tags *tags_make(uint32_t max_tags, uint32_t max_ops)
{
	struct tags *tags = calloc(1, sizeof(*tags));

	if (!tags)
		return NULL;
	tags->entries = calloc(max_tags, sizeof(*tags->entries));
	if (!tags->entries) {
		free(tags);
		return NULL;
	}
	tags->max_tags = max_tags;
	tags->max_ops = max_ops;
	list_init(&tags->unused);
	list_init(&tags->held);
	list_init(&tags->posted);
	for (uint32_t i = 0; i < max_tags; i++) {
		list_init(&tags->entries[i].node);
		list_add_tail(&tags->unused, &tags->entries[i].node);
	}
	return tags;
}

void tags_end(struct tags *tags)
{
	if (!tags)
		return;
	free(tags->entries);
	free(tags);
}

static uint32_t handle_of(const struct tags *tags, const struct tag *tag)
{
	return tag->uses << INDEX_BITS | (uint32_t)(tag - tags->entries);
}

static void tag_append(struct tags *tags, struct tag *tag, enum tag_state state)
{
	tag->state = state;
	list_add_tail(state == TAG_POSTED ? &tags->posted : &tags->held, &tag->node);
}

/* The counts may have become equal: then what was held matches from now on. */
static void release_held(struct tags *tags)
{
	struct list *node;

	if (!tags_in_step(tags))
		return;
	while ((node = list_pop(&tags->held)))
		tag_append(tags, container_of(node, struct tag, node), TAG_POSTED);
}

int tags_add(struct tags *tags, struct ibv_ops_wr *wr)
{
	int n = wr->tm.add.num_sge;

	if (n < 0 || n > LIMIT_TAG_SGE)
		return refused(EINVAL,
			       "ibv_post_srq_ops: a tagged buffer has %d segments, and %d "
			       "at most",
			       n, (int)LIMIT_TAG_SGE);
	struct list *node = list_pop(&tags->unused);
	uint64_t length = 0;

	if (!node)
		return ENOMEM;
	struct tag *tag = container_of(node, struct tag, node);

	for (int i = 0; i < n; i++) {
		tag->buffer.sge[i] = wr->tm.add.sg_list[i];
		length += wr->tm.add.sg_list[i].length;
	}
	tag->buffer.wr_id = wr->tm.add.recv_wr_id;
	tag->buffer.num_sge = (uint32_t)n;
	/* Room for the header that the message has before its data (verbs/tagged.c). */
	tag->buffer.length = length < LIMIT_MSG_BYTES ? (uint32_t)length : LIMIT_MSG_BYTES;
	tag->tag = wr->tm.add.tag;
	tag->mask = wr->tm.add.mask;
	tag->order = tags->orders++;
	tag->uses++;
	wr->tm.handle = handle_of(tags, tag);
	tag_append(tags, tag, tags_in_step(tags) ? TAG_POSTED : TAG_HELD);
	return 0;
}

void tags_free(struct tags *tags, struct tag *tag)
{
	tag->state = TAG_FREE;
	list_del(&tag->node);
	list_add_tail(&tags->unused, &tag->node);
}

int tags_remove(struct tags *tags, uint32_t handle)
{
	uint32_t index = handle & ((1u << INDEX_BITS) - 1);

	if (index >= tags->max_tags)
		return refused(EINVAL, "ibv_post_srq_ops: 0x%x is no tagged buffer's handle",
			       handle);
	struct tag *tag = &tags->entries[index];

	if (handle == handle_of(tags, tag) &&
	    (tag->state == TAG_HELD || tag->state == TAG_POSTED)) {
		tags_free(tags, tag);
		return 0;
	}
	/* The part of `uses` in a handle that was given is between 1 and the entry's, until that
	 * part has wrapped. */
	uint32_t uses = handle >> INDEX_BITS, most = UINT32_MAX >> INDEX_BITS;

	if (tag->uses > most || (uses && uses <= tag->uses))
		return ENOENT;
	return refused(EINVAL, "ibv_post_srq_ops: 0x%x was never a tagged buffer's handle", handle);
}

void tags_sync(struct tags *tags, uint32_t handled)
{
	tags->handled = (uint16_t)handled;
	release_held(tags);
}

struct tag *tags_match(struct tags *tags, uint64_t value)
{
	list_for_each(node, &tags->posted) {
		struct tag *tag = container_of(node, struct tag, node);

		if ((value & tag->mask) != tag->tag)
			continue;
		list_del(&tag->node);
		tag->state = TAG_TAKEN;
		return tag;
	}
	return NULL;
}

void tags_put_back(struct tags *tags, struct tag *tag)
{
	struct list *before = &tags->posted;

	list_for_each(node, &tags->posted) {
		if (container_of(node, struct tag, node)->order > tag->order) {
			before = node;
			break;
		}
	}
	list_del(&tag->node);
	tag->state = TAG_POSTED;
	list_add_tail(before, &tag->node); /* in front of it */
}

void tags_count(struct tags *tags)
{
	tags->unexpected++;
}

void tags_uncount(struct tags *tags)
{
	tags->unexpected--;
	release_held(tags);
}
