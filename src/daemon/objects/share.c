/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts that share, and domains. See share.h. Owns the domains and the hash buckets. */
#include "daemon/objects/share.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/objects/context.h"

static uint32_t share_bucket(const uint64_t token[2])
{
	return (token[0] ^ token[1]) % SHARE_BUCKETS;
}

static bool token_is_same(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

static bool has_token(const struct context *context)
{
	return context->token[0] || context->token[1];
}

static struct share *share_of(const struct context *context)
{
	return &context->process->server->share;
}

void share_init(struct share *share)
{
	for (uint32_t i = 0; i < SHARE_BUCKETS; i++) {
		list_init(&share->contexts[i]);
		list_init(&share->domains[i]);
	}
}

/* ------------------------------------------------------------------ contexts */

void share_enter(struct context *context, const uint64_t token[2])
{
	struct list *bucket = &share_of(context)->contexts[share_bucket(token)];
	uint32_t random;

	context->token[0] = token[0];
	context->token[1] = token[1];
	list_init(&context->same_token);
	if (!has_token(context))
		return;
	list_for_each(node, bucket) {
		if (!token_is_same(container_of(node, struct context, same_token)->token, token))
			continue;
		/* A further context of the token: its handles begin elsewhere, so that they differ
		 * from the others'. */
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			random = 0;
		context->table.first_generation = 1 + random % ((1u << TABLE_GENERATION_BITS) - 1);
		break;
	}
	list_add_tail(bucket, &context->same_token);
}

void share_leave(struct context *context)
{
	list_del(&context->same_token);
}

int share_find(const struct context *context, enum object_kind kind, uint32_t handle,
	       struct object **out)
{
	struct object *found = NULL;

	if (!has_token(context))
		return -ENOENT;
	list_for_each(node, &share_of(context)->contexts[share_bucket(context->token)]) {
		struct context *other = container_of(node, struct context, same_token);
		struct object *object = token_is_same(other->token, context->token)
						? object_find(other, kind, handle)
						: NULL;

		/* Imported objects don't count: a PD's domain is found by its name. */
		if (!object || context_has_ended(other) ||
		    (kind == OBJECT_PD && ((struct pd *)object)->imported) ||
		    (kind == OBJECT_MR && ((struct mr *)object)->imported))
			continue;
		if (found)
			return -EINVAL;
		found = object;
	}
	*out = found;
	return found ? 0 : -ENOENT;
}

/* ------------------------------------------------------------------ domains */

static bool domain_is_alive(const struct domain *domain)
{
	list_for_each(node, &domain->pds)
		if (!context_has_ended(container_of(node, struct pd, sibling)->object.context))
			return true;
	return false;
}

struct domain *domain_find(const struct context *context, uint32_t handle)
{
	list_for_each(node, &share_of(context)->domains[share_bucket(context->token)]) {
		struct domain *domain = container_of(node, struct domain, node);

		if (domain->handle == handle && token_is_same(domain->token, context->token) &&
		    domain_is_alive(domain))
			return domain;
	}
	return NULL;
}

struct domain *domain_make(const struct context *context, uint32_t handle)
{
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return NULL;
	domain->token[0] = context->token[0];
	domain->token[1] = context->token[1];
	domain->handle = handle;
	list_init(&domain->pds);
	list_add_tail(&share_of(context)->domains[share_bucket(context->token)], &domain->node);
	return domain;
}

/* The PD's place among its siblings, after its first use began, or its last one ended. */
static void pd_place(struct pd *pd)
{
	list_del(&pd->sibling);
	if (pd->object.users)
		list_add_tail(pd->domain->pds.next, &pd->sibling); /* before the first */
	else
		list_add_tail(&pd->domain->pds, &pd->sibling);
}

void domain_pd_use(struct pd *pd)
{
	if (!pd->object.users++ && pd->domain)
		pd_place(pd);
}

void domain_pd_unuse(struct pd *pd)
{
	if (!--pd->object.users && pd->domain)
		pd_place(pd);
}

void domain_join(struct domain *domain, struct pd *pd)
{
	pd->domain = domain;
	list_init(&pd->sibling);
	pd_place(pd);
}

void domain_leave(struct pd *pd)
{
	struct domain *domain = pd->domain;

	if (!domain)
		return;
	list_del(&pd->sibling);
	pd->domain = NULL;
	if (!list_empty(&domain->pds))
		return;
	list_del(&domain->node);
	free(domain);
}

bool domain_busy(const struct domain *domain)
{
	list_for_each(node, &domain->pds) {
		const struct object *pd = &container_of(node, struct pd, sibling)->object;

		if (!pd->users)
			return false; /* nor are those behind it */
		if (!context_has_ended(pd->context))
			return true;
	}
	return false;
}
