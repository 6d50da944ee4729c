/* SPDX-License-Identifier: BSD-2-Clause */
/* See memory.h. */
#include "umad/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/list.h"
#include "base/mutex.h"

enum {
	MAD_BYTES = 256,
	WAITING_MAX = 4096, /* of a port; then the oldest is forgotten */
	METHOD_AT = 3,
	METHOD_IS_RESPONSE = 0x80,
	TID_LOW_AT = 12, /* the fabric chooses the upper half of a transaction's number */
	TID_LOW_BYTES = 4,
};

/* A request that waits for a response: the beginning of its packet. */
struct waiting {
	struct list node;
	size_t bytes;
	uint8_t packet[sizeof(struct ib_user_mad) + MAD_BYTES];
};

struct memory {
	int number;
	uint32_t agents; /* a bit for each */
	struct proto_fabric_register agent[UMAD_CA_MAX_AGENTS];
	struct list waiting; /* struct waiting, in the order in which they were sent */
	uint32_t waiting_count;
};

static struct mutex memory_lock = MUTEX_INITIALIZER(RANK_UMAD_PORTS);
static struct memory *memories[MEMORY_PORTS] GUARDED_BY(memory_lock);

_Static_assert(UMAD_CA_MAX_AGENTS <= 32, "a bit for each in struct memory.agents");

static struct memory *memory_of(int fd) REQUIRES(memory_lock)
{
	return fd >= 0 && fd < MEMORY_PORTS ? memories[fd] : NULL;
}

static void waiting_forget(struct memory *memory, struct waiting *waiting) REQUIRES(memory_lock)
{
	list_del(&waiting->node);
	memory->waiting_count--;
	free(waiting);
}

static struct waiting *waiting_first(const struct memory *memory) REQUIRES(memory_lock)
{
	return list_empty(&memory->waiting)
		       ? NULL
		       : container_of(memory->waiting.next, struct waiting, node);
}

static void memory_free(int fd) REQUIRES(memory_lock)
{
	struct memory *memory = memory_of(fd);
	struct waiting *waiting;

	if (!memory)
		return;
	while ((waiting = waiting_first(memory)))
		waiting_forget(memory, waiting);
	memories[fd] = NULL;
	FORK_POINT();
	free(memory);
}

/* The requests that waited are the parent's. Their list may be in the middle of a change. */
static void memories_mend(void)
{
	mutex_take(&memory_lock);
	for (int fd = 0; fd < MEMORY_PORTS; fd++) {
		if (!memories[fd])
			continue;
		list_init(&memories[fd]->waiting);
		memories[fd]->waiting_count = 0;
	}
	mutex_give(&memory_lock);
}
FORK_MEND(memory_lock, memories_mend);

int memory_open(int fd, int number)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	if (!memory || fd < 0 || fd >= MEMORY_PORTS) {
		free(memory);
		return -ENOMEM;
	}
	memory->number = number;
	list_init(&memory->waiting);
	mutex_take(&memory_lock);
	memory_free(fd);
	FORK_POINT();
	memories[fd] = memory;
	mutex_give(&memory_lock);
	return 0;
}

void memory_close(int fd)
{
	mutex_take(&memory_lock);
	memory_free(fd);
	mutex_give(&memory_lock);
}

int memory_number(int fd)
{
	mutex_take(&memory_lock);
	const struct memory *memory = memory_of(fd);
	int number = memory ? memory->number : -1;

	mutex_give(&memory_lock);
	return number;
}

/* ------------------------------------------------------------------ agents */

void memory_agent(int fd, uint32_t id, const struct proto_fabric_register *request)
{
	mutex_take(&memory_lock);
	struct memory *memory = memory_of(fd);

	if (memory && id < UMAD_CA_MAX_AGENTS) {
		memory->agents &= ~(1u << id);
		if (request) {
			memory->agents |= 1u << id;
			memory->agent[id] = *request;
		}
	}
	mutex_give(&memory_lock);
}

bool memory_agent_get(int fd, uint32_t id, struct proto_fabric_register *request)
{
	mutex_take(&memory_lock);
	const struct memory *memory = memory_of(fd);
	bool has = memory && id < UMAD_CA_MAX_AGENTS && memory->agents >> id & 1;

	if (has)
		*request = memory->agent[id];
	mutex_give(&memory_lock);
	return has;
}

/* ------------------------------------------------------------------ requests */

static const uint8_t *datagram_of(const void *packet)
{
	return (const uint8_t *)packet + sizeof(struct ib_user_mad);
}

static bool is_request_that_waits(const void *packet)
{
	const struct ib_user_mad *header = packet;

	return header->timeout_ms && !(datagram_of(packet)[METHOD_AT] & METHOD_IS_RESPONSE);
}

void memory_sent(int fd, const void *packet, size_t bytes)
{
	struct waiting *waiting =
		is_request_that_waits(packet) ? calloc(1, sizeof(*waiting)) : NULL;

	if (!waiting)
		return;
	waiting->bytes = bytes < sizeof(waiting->packet) ? bytes : sizeof(waiting->packet);
	memcpy(waiting->packet, packet, waiting->bytes);
	mutex_take(&memory_lock);
	struct memory *memory = memory_of(fd);

	if (memory) {
		list_add_tail(&memory->waiting, &waiting->node);
		if (++memory->waiting_count > WAITING_MAX)
			waiting_forget(memory, waiting_first(memory));
	}
	mutex_give(&memory_lock);
	if (!memory)
		free(waiting);
}

/* Whether the packet has the agent and the transaction of a request. */
static bool fits_request(const void *packet, const struct waiting *waiting)
{
	const struct ib_user_mad *header = packet;
	const struct ib_user_mad *asked = (const struct ib_user_mad *)waiting->packet;

	return header->agent_id == asked->agent_id &&
	       !memcmp(datagram_of(packet) + TID_LOW_AT, datagram_of(asked) + TID_LOW_AT,
		       TID_LOW_BYTES);
}

void memory_unsent(int fd, const void *packet)
{
	mutex_take(&memory_lock);
	struct memory *memory = memory_of(fd);

	if (memory)
		list_for_each(node, &memory->waiting) {
			struct waiting *waiting = container_of(node, struct waiting, node);

			if (!fits_request(packet, waiting))
				continue;
			waiting_forget(memory, waiting);
			break;
		}
	mutex_give(&memory_lock);
}

void memory_came(int fd, const void *packet, size_t bytes)
{
	const struct ib_user_mad *header = packet;

	/* A response, or a request of this port whose time has passed. */
	if (bytes >= sizeof(*header) + TID_LOW_AT + TID_LOW_BYTES &&
	    (header->status || datagram_of(packet)[METHOD_AT] & METHOD_IS_RESPONSE))
		memory_unsent(fd, packet);
}

ssize_t memory_unanswered(int fd, void *packet, size_t bytes)
{
	mutex_take(&memory_lock);
	struct memory *memory = memory_of(fd);
	struct waiting *waiting = memory ? waiting_first(memory) : NULL;
	ssize_t got = 0;

	if (waiting && waiting->bytes <= bytes) {
		struct ib_user_mad *header = packet;

		got = (ssize_t)waiting->bytes;
		memcpy(packet, waiting->packet, waiting->bytes);
		header->status = ETIMEDOUT;
		header->length = (uint32_t)waiting->bytes;
	}
	if (waiting)
		waiting_forget(memory, waiting);
	mutex_give(&memory_lock);
	return got;
}
