/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of queues' rings. See queue_memory.h. No state. */
#include "hca/verbs/queue_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "hca/mem/pd.h"

/* Of most queues: anonymous memory, whose pages exist once they are used. A CQ needs no zeros, and
 * may be small. */
static void *default_make(size_t size, enum queue_kind kind)
{
	if (kind == QUEUE_CQ)
		return malloc(size);
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void default_free(struct queue_memory *memory)
{
	if (memory->kind == QUEUE_CQ)
		free(memory->at);
	else
		munmap(memory->at, memory->size);
}

int queue_memory_make(struct queue_memory *memory, struct ibv_pd *ibv, size_t size,
		      enum queue_kind kind)
{
	struct pd *pd = ibv ? pd_of(ibv) : NULL;
	void *at = IBV_ALLOCATOR_USE_DEFAULT;

	*memory = (struct queue_memory){.size = size, .kind = kind};
	if (pd && pd->alloc)
		at = pd->alloc(ibv, pd->pd_context, size, (size_t)sysconf(_SC_PAGESIZE), kind);
	if (!at) {
		log_warn("the parent domain's allocator has no %zu bytes for a queue", size);
		return ENOMEM;
	}
	if (at == IBV_ALLOCATOR_USE_DEFAULT)
		memory->at = default_make(size, kind);
	else
		memory->from = pd, memory->at = at;
	return memory->at ? 0 : ENOMEM;
}

void queue_memory_free(struct queue_memory *memory)
{
	struct pd *pd = memory->from;

	if (memory->at && pd)
		(pd->free)(&pd->ibv, pd->pd_context, memory->at, memory->kind);
	else if (memory->at)
		default_free(memory);
	*memory = (struct queue_memory){0};
}
