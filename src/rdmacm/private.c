/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that only Verbena's own libibverbs.so.1 has (abi/private.h). They are looked up once,
 * by name and version, because a linked reference to that version would prevent librdmacm.so.1 from
 * being loaded beside any other libibverbs.so.1; there the ordinary verbs do the same in more round
 * trips.
 */
#include "abi/private.h"

#include <dlfcn.h>
#include <pthread.h>

#include "rdmacm/rdmacm.h"

static __typeof__(verbena_create_cq_for_qp) *create_cq_for_qp;
static __typeof__(verbena_context_removed) *context_is_removed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void private_look_up(void)
{
	*(void **)&create_cq_for_qp =
		dlvsym(RTLD_DEFAULT, "verbena_create_cq_for_qp", VERBENA_PRIVATE);
	*(void **)&context_is_removed =
		dlvsym(RTLD_DEFAULT, "verbena_context_removed", VERBENA_PRIVATE);
}

bool private_context_removed(struct ibv_context *context)
{
	pthread_once(&once, private_look_up);
	return context_is_removed && context_is_removed(context);
}

struct ibv_cq *private_create_cq_for_qp(struct ibv_context *context,
					struct ibv_cq_init_attr_ex *attr)
{
	pthread_once(&once, private_look_up);
	if (create_cq_for_qp)
		return create_cq_for_qp(context, attr);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}
