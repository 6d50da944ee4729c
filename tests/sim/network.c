/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets in flight, in a heap by arrival. Each carries a checksum in the ICRC's place: a corrupted
 * packet is dropped where it arrives, as a real one would be; a mutated (hostile) packet has a
 * correct checksum. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "transport/psn.h"

static bool earlier(const struct flight *a, const struct flight *b)
{
	return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

static void heap_push(struct network *n, struct flight flight)
{
	if (n->count == n->room) {
		n->room = n->room ? n->room * 2 : 256;
		n->heap = realloc(n->heap, n->room * sizeof(*n->heap));
		if (!n->heap)
			abort();
	}
	uint32_t i = n->count++;

	for (; i && earlier(&flight, &n->heap[(i - 1) / 2]); i = (i - 1) / 2)
		n->heap[i] = n->heap[(i - 1) / 2];
	n->heap[i] = flight;
}

struct flight network_take(struct sim *sim)
{
	struct network *n = &sim->network;
	struct flight first = n->heap[0], last = n->heap[--n->count];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= n->count)
			break;
		if (child + 1 < n->count && earlier(&n->heap[child + 1], &n->heap[child]))
			child++;
		if (!earlier(&n->heap[child], &last))
			break;
		n->heap[i] = n->heap[child];
		i = child;
	}
	if (n->count)
		n->heap[i] = last;
	return first;
}

uint64_t network_next(const struct sim *sim)
{
	return sim->network.count ? sim->network.heap[0].at : TP_NEVER;
}

static uint32_t checksum(const uint8_t *bytes, uint32_t size)
{
	uint64_t sum = size, word;

	for (; size >= 8; size -= 8, bytes += 8) {
		memcpy(&word, bytes, 8);
		sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
		sum ^= sum >> 29;
	}
	word = 0;
	memcpy(&word, bytes, size);
	sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
	return (uint32_t)(sum >> 32);
}

static void deliver_copy(struct sim *sim, struct side *from, const uint8_t *bytes, uint32_t size,
			 uint32_t request, uint64_t at)
{
	const struct network_faults *f = &sim->plan.faults;
	struct flight flight = {at,  sim->network.serial++, !from->index, size + WIRE_ICRC, request,
				NULL};
	bool quiet = sim->now >= sim->quiet_at;
	uint32_t sum;

	flight.bytes = malloc(flight.size);
	if (!flight.bytes)
		abort();
	memcpy(flight.bytes, bytes, size);
	if (!quiet && rng_chance(&sim->rng, f->mutate))
		for (uint32_t i = 1 + rng_below(&sim->rng, 3); i; i--)
			flight.bytes[rng_below(&sim->rng, size < 32 ? size : 32)] =
				(uint8_t)rng_next(&sim->rng);
	sum = checksum(flight.bytes, size);
	memcpy(flight.bytes + size, &sum, sizeof(sum));
	if (!quiet && rng_chance(&sim->rng, f->corrupt))
		flight.bytes[rng_below(&sim->rng, flight.size)] ^=
			(uint8_t)(1u << rng_below(&sim->rng, 8));
	if (!quiet && rng_chance(&sim->rng, f->truncate))
		flight.size = rng_below(&sim->rng, flight.size);
	heap_push(&sim->network, flight);
}

static bool is_lost(struct sim *sim, struct side *from)
{
	const struct network_faults *f = &sim->plan.faults;
	uint32_t *burst = &sim->network.burst_left[from->index];

	if (sim->now >= sim->quiet_at)
		return false;
	if (*burst) {
		--*burst;
		return true;
	}
	if (rng_chance(&sim->rng, f->lose_burst)) {
		*burst = rng_below(&sim->rng, 64);
		return true;
	}
	return rng_chance(&sim->rng, f->lose);
}

static void trace_packet(struct sim *sim, struct side *from, const uint8_t *bytes, uint32_t size,
			 bool lost)
{
	uint8_t copy[WIRE_PACKET_MAX];
	struct packet p;
	char name[32];

	memcpy(copy, bytes, size);
	if (packet_decode(copy, size + WIRE_ICRC, &p) != PACKET_OK)
		return;
	sim_trace(sim, "%c -> %s psn %06x len %u syn %02x msn %u ack %d dma %u%s",
		  'A' + from->index, packet_opcode_name(p.opcode, name), p.psn, p.length,
		  packet_layout(p.opcode) & HAS_AETH ? p.syndrome : 0,
		  packet_layout(p.opcode) & HAS_AETH ? p.msn : 0, p.ack_request,
		  packet_layout(p.opcode) & HAS_RETH ? p.dma_length : 0, lost ? " LOST" : "");
}

static void note_asked(struct side *from, const struct packet *p)
{
	bool is_read = packet_operation(p->opcode) == OP_READ_REQUEST;
	uint32_t mtu = from->sim->plan.mtu, at = from->asked_count++ % ASKED_MAX;

	from->asked[at].psn = p->psn;
	from->asked[at].packets = is_read && p->dma_length ? (p->dma_length + mtu - 1) / mtu : 1;
}

/* A kernel's Soft-RoCE takes an acknowledgement with the PSN of a READ or an atomic for the end of
 * that request, without its data (docs/roce.md). So none may have such a PSN. */
static void check_acknowledge(struct side *from, const struct packet *p)
{
	const struct side *peer = from->peer;

	for (uint32_t i = 0; i < ASKED_MAX && i < peer->asked_count; i++)
		SIM_MUST(from->sim,
			 ((p->psn - peer->asked[i].psn) & PSN_MASK) >= peer->asked[i].packets,
			 "%c acknowledges psn %06x, which is an answer's", 'A' + from->index,
			 p->psn);
}

static bool is_whole(uint8_t operation)
{
	return operation == OP_SEND_ONLY || operation == OP_SEND_ONLY_IMM ||
	       operation == OP_SEND_ONLY_INVALIDATE || operation == OP_WRITE_ONLY ||
	       operation == OP_WRITE_ONLY_IMM;
}

static void check_packet(struct side *from, const uint8_t *bytes, uint32_t size)
{
	uint8_t operation = packet_operation(bytes[0]), copy[WIRE_PACKET_MAX];
	bool asks = operation == OP_READ_REQUEST || operation == OP_COMPARE_SWAP ||
		    operation == OP_FETCH_ADD || operation == OP_ATOMIC_WRITE ||
		    operation == OP_FLUSH;
	struct packet p;

	sim_totals.unasked += packet_transport(bytes[0]) != PACKET_UC && is_whole(operation) &&
			      !(bytes[8] & 0x80);
	if (!asks && operation != OP_ACKNOWLEDGE)
		return;
	memcpy(copy, bytes, size);
	if (packet_decode(copy, size + WIRE_ICRC, &p) != PACKET_OK)
		return;
	if (asks)
		note_asked(from, &p);
	else if ((p.syndrome & AETH_KIND) == AETH_ACK)
		check_acknowledge(from, &p);
}

void network_send(struct sim *sim, struct side *from, const uint8_t *bytes, uint32_t size,
		  uint32_t request)
{
	const struct network_faults *f = &sim->plan.faults;
	uint64_t at = from->link_free_at + sim->plan.latency_ns;
	bool lost = is_lost(sim, from);

	sim->packets++;
	if (sim->verbose)
		trace_packet(sim, from, bytes, size, lost);
	if (!sim->plan.hostile)
		check_packet(from, bytes, size);
	if (lost)
		return;
	bool quiet = sim->now >= sim->quiet_at;

	if (!quiet && rng_chance(&sim->rng, f->reorder))
		at += rng_next(&sim->rng) % (sim->plan.jitter_ns + 1);
	deliver_copy(sim, from, bytes, size, request, at);
	if (!quiet && rng_chance(&sim->rng, f->duplicate))
		deliver_copy(sim, from, bytes, size, request,
			     at + rng_next(&sim->rng) % (4 * sim->plan.jitter_ns + 1));
}

/* Whether the packet's checksum is right. */
bool network_whole(const struct flight *flight)
{
	uint32_t sum;

	if (flight->size < WIRE_BTH + WIRE_ICRC)
		return false;
	memcpy(&sum, flight->bytes + flight->size - WIRE_ICRC, sizeof(sum));
	return sum == checksum(flight->bytes, flight->size - WIRE_ICRC);
}

void network_end(struct sim *sim)
{
	while (sim->network.count)
		free(network_take(sim).bytes);
	free(sim->network.heap);
}
