/* SPDX-License-Identifier: BSD-2-Clause */
/* The link of a process to itself, which is up from the beginning and needs no daemon. See link.h.
 */
#include "hca/local/link.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hca/process/hca.h"

int link_make_self(struct hca *hca)
{
	struct link *link = link_new(hca, hca->slot);

	if (!link)
		return -ENOMEM;
	link->memory =
		mmap(NULL, LINK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (link->memory == MAP_FAILED) {
		free(link);
		return -ENOMEM;
	}
	link->self = true;
	link->uid = geteuid();
	link->can_vm = false;
	link->pid = link->process.pid = getpid();
	link->process.life = &hca->pub->header.life;
	link->doorbell = hca->doorbell;
	link->peer = hca->pub;
	link->regions = hca->regions;
	ring_tx_init(&link->tx, link->memory->ring[0], &link->memory->ctl[0]);
	ring_rx_init(&link->rx, link->memory->ring[0], &link->memory->ctl[0]);
	atomic_store(&link->state, LINK_UP);
	lock_assume_alone(&hca->engine); /* no other thread has a pointer to the HCA yet */
	list_add_tail(&hca->links, &link->node);
	atomic_store(&hca->link_by_slot[hca->slot], link);
	hca->self = link;
	hca->link_idle_ns = link_idle_period();
	atomic_store(&hca->link_idle_at, UINT64_MAX);
	return 0;
}

void link_free_self(struct hca *hca)
{
	if (!hca->self)
		return;
	munmap(hca->self->memory, LINK_SIZE);
	free(hca->self);
}
