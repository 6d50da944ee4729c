/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts that share objects, for ibv_import_device() and the other import verbs.
 *
 * A context has a token, 128 random bits that its process made. A process that has the context's
 * `cmd_fd`, a memory file with the token in it, can open a context with the same token. Contexts
 * with equal tokens correspond to the users of one uverbs file in the kernel: they may import each
 * other's protection domains and regions by their handles. A client without the token can't.
 *
 * A protection domain that was imported consists of several objects, one for each context: each has
 * a handle of its own context's table and ends with that context. They are siblings in a *domain*,
 * named by the token and the first one's handle. DEALLOC_PD on any sibling ends the domain, and
 * with it all siblings; it gives -EBUSY while any of them is used. The domain outlives the context
 * that it came from.
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
	struct list contexts[SHARE_BUCKETS]; /* struct context.same_token, hashed by the token */
	struct list domains[SHARE_BUCKETS];  /* struct domain.node, hashed by the token */
};

struct domain {
	uint64_t token[2];
	uint32_t handle;
	bool ended;
	struct list node; /* on share.domains */
	struct list pds;  /* struct pd.sibling; the last one frees the domain */
};

void share_init(struct share *share);

/* Gives a new context its token. Contexts with equal tokens give out different handles. */
void share_enter(struct context *context, const uint64_t token[2]);
void share_leave(struct context *context);

/*
 * Finds the object that this handle names in the contexts with the context's token. Returns 0 and
 * *out; -ENOENT: none; -EINVAL: several (possible only after a daemon was replaced).
 */
int share_find(const struct context *context, enum object_kind kind, uint32_t handle,
	       struct object **out);

/* The domain named by this handle and the context's token; NULL: none. One that is only left in
 * contexts that have ended counts as none. */
struct domain *domain_find(const struct context *context, uint32_t handle);
/* Makes a domain without siblings; the caller adds one at once. NULL: no memory. */
struct domain *domain_make(const struct context *context, uint32_t handle);
/* Counts an object that uses the PD, or one less. The domain's PDs in use stay in front, so that
 * domain_busy() looks at none of the others: a domain may have as many as its user has objects. */
void domain_pd_use(struct pd *pd);
void domain_pd_unuse(struct pd *pd);
/* Adds a sibling. */
void domain_join(struct domain *domain, struct pd *pd);
/* Takes a PD out of its domain; the last one frees the domain. */
void domain_leave(struct pd *pd);
/* Whether any sibling is used by an object, except those of contexts that have ended. */
bool domain_busy(const struct domain *domain);

#endif
