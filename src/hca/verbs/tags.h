/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tag list of a tag-matching SRQ (docs/tags.md): which posted buffers a message's tag may
 * match, and whether the program and the list agree on the messages that matched none.
 *
 * An entry's states, and what leaves each:
 *   TAG_FREE    no buffer is posted             tags_add()
 *   TAG_HELD    posted while the two counts     tags_sync() and tags_uncount(): to POSTED, when the
 *               differed: it matches nothing    counts are equal; tags_remove(): to FREE
 *   TAG_POSTED  it matches                      tags_match(): to TAKEN; tags_remove(): to FREE
 *   TAG_TAKEN   a message has it                tags_free(); tags_put_back(): to POSTED
 *
 * A handle is an entry's index and how often the entry was used before, so that the handle of a
 * buffer that was consumed never names a later one.
 *
 * Owned by struct srq; every call is made under srq.lock, and a TAKEN entry's buffer is read by the
 * thread that holds the lock of the message's QP.
 */
#ifndef VERBENA_HCA_VERBS_TAGS_H
#define VERBENA_HCA_VERBS_TAGS_H

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "hca/verbs/recv_queue.h"
#include "proto/limits.h"

/* The bytes of a message that decide what happens to it: struct ibv_tmh and struct ibv_rvh. */
enum { TAG_HEAD = sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh) };

enum tag_state { TAG_FREE, TAG_HELD, TAG_POSTED, TAG_TAKEN };

struct tag {
	struct list node; /* on tags.free, held or posted; TAKEN: its QP's (verbs/tagged.h) */
	uint64_t tag, mask;
	uint64_t order; /* among all that were ever posted */
	uint32_t uses;	/* how often it was posted */
	enum tag_state state;
	uint8_t head[TAG_HEAD]; /* TAKEN by a rendezvous: the headers of its request */
	struct recv_wqe buffer;
	struct ibv_sge sge[LIMIT_TAG_SGE]; /* buffer.sge */
};

struct tags {
	uint32_t max_tags, max_ops;
	struct tag *entries;
	struct list unused, held, posted; /* the latter two in the order of posting */
	uint64_t orders;
	/* Modulo 2^16, as adapters count: the messages that matched none, and how many of them the
	 * program has said to have handled. */
	uint16_t unexpected, handled;
};

/* NULL: there is no memory. */
struct tags *tags_make(uint32_t max_tags, uint32_t max_ops);
void tags_end(struct tags *tags);

/* Whether the program has handled all messages that matched no tag. */
static inline bool tags_in_step(const struct tags *tags)
{
	return tags->unexpected == tags->handled;
}

/* Posts a buffer: 0 and its handle in wr->tm.handle, EINVAL or ENOMEM. */
int tags_add(struct tags *tags, struct ibv_ops_wr *wr);
/* Removes the buffer with this handle: 0; ENOENT: a message has consumed it, or it was removed;
 * EINVAL: there was never such a handle. */
int tags_remove(struct tags *tags, uint32_t handle);
/* The program has handled so many messages that matched no tag. */
void tags_sync(struct tags *tags, uint32_t handled);

/* Takes the first buffer that a message with this tag matches; NULL: there is none. */
struct tag *tags_match(struct tags *tags, uint64_t tag);
/* The message didn't come: the buffer is posted again, in its old place. */
void tags_put_back(struct tags *tags, struct tag *tag);
/* The buffer has completed. */
void tags_free(struct tags *tags, struct tag *tag);
/* A message that matched no tag takes an ordinary receive; it didn't come after all. */
void tags_count(struct tags *tags);
void tags_uncount(struct tags *tags);

#endif
