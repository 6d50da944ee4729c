/* SPDX-License-Identifier: BSD-2-Clause */
/* Advice about on-demand regions: checks the arguments as ibv_advise_mr(3) says, then prefetches
 * (hca/mem/prefetch.h). Nothing is prefetched unless all parts are right. */
#include <string.h>

#include "abi/verbs_abi.h"
#include "base/refused.h"
#include "hca/mem/pd.h"
#include "hca/mem/prefetch.h"

static bool advice_is_known(enum ibv_advise_mr_advice advice)
{
	return advice == IBV_ADVISE_MR_ADVICE_PREFETCH ||
	       advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
	       advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
}

/* 0 or a negative errno. */
static int part_advise(struct hca *hca, const struct prefetch *part,
		       enum ibv_advise_mr_advice advice, bool flush)
{
	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return prefetch_probe(part); /* what is present needs no more */
	return flush ? prefetch_now(part) : prefetch_later(hca, part);
}

int verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		    struct ibv_sge *list, uint32_t count)
{
	struct hca *hca = context_of(pd->context)->hca;
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct prefetch part;
	int err = 0;

	if (!advice_is_known(advice))
		return fail_errno(
			refused(ENOTSUP, "ibv_advise_mr: there is no advice %d", (int)advice));
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !count)
		return fail_errno(refused(EINVAL,
					  "ibv_advise_mr: flags is 0x%x, and may have "
					  "IBV_ADVISE_MR_FLAG_FLUSH only; num_sge is %u, and must "
					  "be 1 at least",
					  flags, count));
	if (handle_check("ibv_advise_mr", pd->handle, pd_of(pd)->shown))
		return fail_errno(EINVAL);
	for (uint32_t i = 0; !err && i < count; i++)
		err = prefetch_find(hca, pd_of(pd)->id, &list[i], write, &part);
	for (uint32_t i = 0; !err && i < count; i++) {
		err = prefetch_find(hca, pd_of(pd)->id, &list[i], write, &part);
		if (!err)
			err = part_advise(hca, &part, advice, flags & IBV_ADVISE_MR_FLAG_FLUSH);
	}
	if (err)
		log_warn_few("ibv_advise_mr: %s: each segment must be within a region of this "
			     "protection domain, with IBV_ACCESS_LOCAL_WRITE for "
			     "PREFETCH_WRITE, and in memory that is mapped",
			     strerror(-err));
	return fail_errno(-err);
}
