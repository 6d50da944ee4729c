/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts that share: what ibv_import_device() and its kin need.
 *
 * A context has a token, 128 random bits that its process made. Whoever holds the context's
 * `cmd_fd`, a memory file with the token in it, can open a context with the same token; contexts
 * with the same one are what the kernel calls users of one uverbs file, and may import each other's
 * protection domains and regions by their handles. A client without the token can't.
 *
 * A protection domain that was imported is several objects, one a context: each has a handle of its
 * own context's table and ends with it. They are siblings in a *domain*, named by the token and the
 * first one's handle. The domain ends (every sibling of it is void then) by DEALLOC_PD on any of
 * them, which gives -EBUSY while any of them is used; it outlives the context that it came from.
 */
#ifndef VERBENA_DAEMON_OBJECTS_SHARE_H
#define VERBENA_DAEMON_OBJECTS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/objects/objects.h"

struct context;

enum { SHARE_BUCKETS = 256 };

struct share {
	struct list contexts[SHARE_BUCKETS]; /* struct context.same_token, by the token */
	struct list domains[SHARE_BUCKETS];  /* struct domain.node, by the token */
};

struct domain {
	uint64_t token[2];
	uint32_t handle;
	bool ended;
	struct list node; /* on share.domains */
	struct list pds;  /* struct pd.sibling; never empty for long */
};

void share_init(struct share *share);

/* Gives a new context its token. Contexts with one token give out different handles. */
void share_enter(struct context *context, const uint64_t token[2]);
void share_leave(struct context *context);

/*
 * The object that this handle names for the context and all that have its token. *out; -ENOENT
 * none; -EINVAL several (only after a daemon was replaced).
 */
int share_find(const struct context *context, enum object_kind kind, uint32_t handle,
	       struct object **out);

/* The domain with this handle as its name, of the context's token. NULL: none. */
struct domain *domain_find(const struct context *context, uint32_t handle);
/* A new one without siblings: give it one at once. NULL: no memory. */
struct domain *domain_make(const struct context *context, uint32_t handle);
void domain_join(struct domain *domain, struct pd *pd);
/* The last one to leave frees it. */
void domain_leave(struct pd *pd);
/* Whether an object of any context needs it. */
bool domain_busy(const struct domain *domain);

#endif
