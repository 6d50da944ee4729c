/* SPDX-License-Identifier: BSD-2-Clause */
/* Links: introducing two processes, once, and telling the survivor when one ends. The link's memory
 * belongs to the two; the daemon keeps no descriptor of it. */
#include "shm/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/daemon.h"

static struct peer *find_peer(const struct process *p, const struct process *other)
{
	list_for_each(node, &p->peers) {
		struct peer *peer = container_of(node, struct peer, node);

		if (peer->process == other)
			return peer;
	}
	return NULL;
}

static int make_memory(void)
{
	int fd = memfd_create("verbena-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, LINK_SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static int introduce(struct process *to, struct process *peer, int memory, uint32_t side,
		     uint64_t id)
{
	const struct proto_event event = {.type = PROTO_EVENT_LINK,
					  .slot = peer->slot,
					  .link_id = id,
					  .side = side,
					  .pid = peer->pid,
					  .uid = peer->uid};
	const int fds[] = {memory, peer->table_fd, peer->doorbell_fd};

	return process_send(to, &event, fds, 3);
}

static void note(struct process *p, struct process *other, struct peer *peer, uint64_t id)
{
	peer->process = other;
	peer->link_id = id;
	list_add_tail(&p->peers, &peer->node);
	p->peer_count++;
}

int link_make(struct process *p, uint32_t slot)
{
	struct process *other = process_by_slot(slot);

	if (!other)
		return -ENOENT;
	if (other == p)
		return -EINVAL;
	if (find_peer(p, other))
		return -EALREADY;
	struct peer *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b));
	int memory = a && b ? make_memory() : -ENOMEM;

	if (memory < 0) {
		free(a);
		free(b);
		return memory;
	}
	uint64_t id = server.next_link_id++;
	int err = introduce(other, p, memory, 1, id);

	if (!err) {
		note(p, other, a, id);
		note(other, p, b, id);
		err = introduce(p, other, memory, 0, id);
	} else {
		free(a);
		free(b);
	}
	close(memory);
	return err;
}

void link_end_all(struct process *p)
{
	while (!list_empty(&p->peers)) {
		struct peer *mine = container_of(list_pop(&p->peers), struct peer, node);
		struct process *other = mine->process;
		struct peer *theirs = find_peer(other, p);
		const struct proto_event event = {
			.type = PROTO_EVENT_LINK_DOWN, .slot = p->slot, .link_id = mine->link_id};

		if (theirs) {
			list_del(&theirs->node);
			other->peer_count--;
			free(theirs);
		}
		if (process_send(other, &event, NULL, 0))
			log_warn("process %d doesn't read its events", other->pid);
		free(mine);
	}
}
