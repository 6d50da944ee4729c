/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address spaces, regions, hazards and copies. An address that the core gets from a key names the
 * process and the registration (a serial number) as well as the byte, so that an access by a key
 * that has ended shows, even if the memory has been registered anew. Copies are made in a few
 * steps, between which other threads run. A region may be imported: then its memory is a third
 * process's, which only the importer may reach (no peer); or in a file, which peers map.
 *
 *   address   bit 62, process (bits 56-57), registration (bits 32-47), byte of the arena (0-31)
 *   iova      IOVA + byte of the arena: what programs and records say
 */
#include <string.h>

#include "sim_local.h"

#define MARK (1ull << 62)
#define IOVA 0x1000000ull

enum { CHUNK = 300, LOCAL_PD = 7 };

static struct region regions[SERIALS];
static uint32_t serials;

/* ------------------------------------------------------------------ regions */

static uint64_t address_of(uint32_t process, uint32_t serial, uint32_t at)
{
	return MARK | (uint64_t)process << 56 | (uint64_t)serial << 32 | at;
}

struct place memory_place(uint64_t address)
{
	uint32_t at = (uint32_t)address, number = address >> 56 & 3;

	if (!(address & MARK) || number >= sim.plan.processes || at >= ARENA)
		fail("address 0x%llx is nobody's", (unsigned long long)address);
	struct process *p = &sim.process[number];

	return (struct place){p, &p->block[at / BLOCK], at % BLOCK, address >> 32 & 0xffff};
}

void memory_init(void)
{
	serials = 1;
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t place = 0; place < REGIONS; place++)
			region_register(&sim.process[i], place);
}

uint32_t binding_make(struct process *p, uint32_t place, uint32_t first, uint32_t blocks)
{
	if (serials == SERIALS)
		return 0;
	regions[serials] = (struct region){
		.process = p->number,
		.place = (uint8_t)place,
		.first_block = place * REGION_BLOCKS + first,
		.blocks = blocks,
		.of = p->serial[place],
	};
	return serials++;
}

void binding_state(uint32_t serial, enum region_state state)
{
	regions[serial].state = (uint8_t)state;
}

uint64_t binding_offset(uint32_t serial)
{
	return address_of(regions[serial].process, serial, 0) - IOVA;
}

bool binding_is(uint32_t serial)
{
	return regions[serial].of != 0;
}

bool binding_covers(uint32_t serial, uint32_t block)
{
	const struct region *b = &regions[serial];

	return block >= b->first_block && block < b->first_block + b->blocks;
}

uint32_t binding_first(uint32_t serial)
{
	return regions[serial].first_block;
}

bool binding_ended(uint32_t serial)
{
	return regions[serial].state == REGION_ENDED;
}

uint32_t binding_uses(uint32_t serial)
{
	return regions[serial].uses;
}

void binding_use(uint32_t serial, int change)
{
	regions[serial].uses += (uint32_t)change;
}

void binding_hurt(uint32_t serial)
{
	regions[serial].hurt = true;
}

void binding_closes(uint32_t serial, uint32_t life, uint32_t seq)
{
	if (!regions[serial].closed_life) {
		regions[serial].closed_life = life;
		regions[serial].closed_seq = seq;
	}
}

bool binding_closed_to(uint32_t serial, uint32_t life, uint32_t seq)
{
	const struct region *b = &regions[serial];

	return serial && b->closed_life == life && seq > b->closed_seq;
}

static bool is_target(uint32_t place)
{
	return place < TARGETS;
}

uint32_t region_register(struct process *p, uint32_t place)
{
	const uint32_t rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	if (serials == SERIALS)
		return 0;
	uint32_t serial = serials++, first = place * REGION_BLOCKS * BLOCK;
	uint32_t lkey = (place + 1) << LIMIT_KEY_TAG_BITS | ++p->tag[place];

	regions[serial] = (struct region){
		.process = p->number,
		.place = place,
		.state = REGION_LIVE,
		.lkey = lkey,
		.access = is_target(place) ? rights | flush_some_rights(&sim.rng, 200)
					   : IBV_ACCESS_LOCAL_WRITE,
		.first_block = place * REGION_BLOCKS,
		.blocks = REGION_BLOCKS,
	};
	for (uint32_t i = 0; i < REGION_BLOCKS; i++) {
		p->block[place * REGION_BLOCKS + i] = (struct block){0};
		block_spoil(p, &p->block[place * REGION_BLOCKS + i]);
	}
	p->serial[place] = serial;
	bool imported = rng_chance(&sim.rng, sim.plan.imported);
	bool in_file = !imported && rng_chance(&sim.rng, sim.plan.in_files);

	regions[serial].imported = imported;
	totals.imported += imported;
	if (imported)
		regions[serial].access &= ~(uint32_t)IBV_ACCESS_REMOTE_ATOMIC;
	p->entry[place] = (struct entry){
		.rkey = lkey,
		.access = regions[serial].access | (imported ? PUB_MR_FOREIGN : 0),
		.pd = LOCAL_PD | (imported ? PUB_MR_FOREIGN : 0),
		.file_serial = in_file ? serial : 0,
		.start = IOVA + first,
		.length = REGION_BLOCKS * BLOCK,
		.offset = address_of(p->number, serial, first) - (IOVA + first),
	};
	return serial;
}

struct region *region_at(const struct process *p, uint32_t place)
{
	return &regions[p->serial[place]];
}

uint32_t region_serial(const struct process *p, const struct block *block)
{
	return p->serial[block_index(p, block) / REGION_BLOCKS];
}

bool region_hurt(uint32_t serial)
{
	return serial && (regions[serial].hurt || region_hurt(regions[serial].of));
}

bool region_imported(uint32_t serial)
{
	return regions[serial].imported;
}

/* ------------------------------------------------------------------ hazards */

struct hazard_wait {
	struct process *owner;
	const struct process *by; /* NULL: own hazards */
	uint64_t value;
};

static bool own_clear(void *arg)
{
	const struct hazard_wait *wait = arg;

	for (uint32_t q = 0; q < QPS; q++) {
		const struct qp *qp = &wait->owner->qp[q];

		for (uint32_t i = 0; i < qp->own_count; i++)
			if (qp->own_hazards[i] == (uint32_t)wait->value)
				return false;
	}
	return true;
}

static bool hazard_set_by(const struct process *by, uint64_t value)
{
	for (uint32_t i = 0; i < HAZARDS; i++)
		if (atomic_load(&by->hazard[i]) == value)
			return !by->dead;
	return false;
}

static bool peer_clear(void *arg)
{
	const struct hazard_wait *wait = arg;

	return !hazard_set_by(wait->by, wait->value);
}

bool hazard_names(const struct process *by, const struct process *owner, uint32_t rkey)
{
	return hazard_set_by(by, (uint64_t)owner->slot << 32 | rkey);
}

static void wait_for(struct hazard_wait *wait, bool (*clear)(void *), const char *where)
{
	task_yield(where);
	if (!clear(wait))
		totals.dereg_waits++;
	while (!clear(wait)) /* the hazard of a killed process: checked periodically */
		task_wait(clear, wait, sim.now + 1000000, where);
}

void hazard_wait_qp(struct process *p, struct process *peer, uint32_t qpn)
{
	struct hazard_wait wait = {p, peer, (uint64_t)p->slot << 32 | qp_hazard(qpn)};

	/* The peer may be in a copy although the link is down here: its tables are mapped until it
	 * has left the link. */
	if (p != peer && p->link[peer->number].shared)
		wait_for(&wait, peer_clear, "waits for a hazard on its QP");
}

void hazards_wait(struct process *p, uint32_t rkey)
{
	struct hazard_wait wait = {p, NULL, (uint64_t)p->slot << 32 | rkey};

	wait_for(&wait, own_clear, "dereg: own hazards");
	mutex_take(&p->engine);
	mutex_give(&p->engine);
	for (uint32_t i = 0; i < sim.plan.processes; i++) {
		wait.by = &sim.process[i];
		if (p->link[i].shared || i == p->number)
			wait_for(&wait, peer_clear, "dereg: a peer's hazards");
	}
}

bool region_deregister(struct process *p, uint32_t place)
{
	struct region *region = region_at(p, place);
	uint32_t rkey = p->entry[place].rkey;

	if (windows_bound_to(p, place))
		return false;
	trace("deregisters region 0x%x", region->lkey);
	totals.deregistrations++;
	region->state = REGION_ENDING;
	region->hurt = true;
	p->regions_hurt += !is_target(place);
	p->entry[place].rkey = 0; /* [H2] */
	hazards_wait(p, rkey);
	region->state = REGION_ENDED;
	for (uint32_t i = 0; i < REGION_BLOCKS; i++) {
		block_spoil(p, &p->block[region->first_block + i]);
		p->block[region->first_block + i].unmapped = false;
	}
	sim.last_fault = sim.now;
	return true;
}

/* ------------------------------------------------------------------ blocks */

uint32_t block_index(const struct process *p, const struct block *block)
{
	return (uint32_t)(block - p->block);
}

uint8_t *block_bytes(struct process *p, const struct block *block)
{
	return p->arena + (size_t)block_index(p, block) * BLOCK;
}

uint64_t block_iova(const struct process *p, const struct block *block)
{
	return IOVA + (uint64_t)block_index(p, block) * BLOCK;
}

struct region *block_region(const struct process *p, const struct block *block)
{
	return region_at(p, block_index(p, block) / REGION_BLOCKS);
}

void block_spoil(struct process *p, struct block *block)
{
	memset(block_bytes(p, block), 0xdb, BLOCK);
}

bool block_take_this(struct process *p, struct block *b, enum block_use use)
{
	if (b->use != BLOCK_FREE || b->unmapped || block_region(p, b)->state != REGION_LIVE)
		return false;
	*b = (struct block){.use = use};
	return true;
}

struct block *block_take(struct process *p, enum block_use use)
{
	static const struct {
		uint8_t first, end; /* regions */
	} of[] = {
		[BLOCK_TARGET] = {0, TARGETS},
		[BLOCK_SEND] = {TARGETS, TARGETS + SENDERS},
		[BLOCK_RECEIVE] = {TARGETS + SENDERS, REGIONS},
	};
	uint32_t first = of[use].first * REGION_BLOCKS;
	uint32_t count = of[use].end * REGION_BLOCKS - first;

	for (uint32_t i = 0; i < count; i++) {
		struct block *b = &p->block[first + p->next_block[use]++ % count];

		if (block_take_this(p, b, use))
			return b;
	}
	return NULL;
}

/* ------------------------------------------------------------------ keys */

const struct entry *entry_find(const struct process *owner, uint32_t rkey)
{
	uint32_t place = (rkey >> LIMIT_KEY_TAG_BITS) - 1;

	if (place >= ENTRIES || !rkey || owner->entry[place].rkey != rkey)
		return NULL;
	return &owner->entry[place];
}

uint64_t entry_resolve(const struct process *owner, uint64_t addr, uint64_t length, uint32_t rkey,
		       uint32_t access)
{
	const struct entry *e = entry_find(owner, rkey);

	if (!e || (e->access & access) != access || (e->pd & ~PUB_MR_FOREIGN) != LOCAL_PD ||
	    addr < e->start || length > e->length || addr - e->start > e->length - length)
		return 0;
	return addr + e->offset;
}

/* ------------------------------------------------------------------ copies */

bool memory_mapped(uint64_t address, size_t length)
{
	if (!(address & MARK))
		return true;
	struct place at = memory_place(address);

	return !at.block->unmapped &&
	       !memory_place(address + (length ? length - 1 : 0)).block->unmapped;
}

/* The rules for one step of a copy. */
static void check_access(const struct place *at, uint32_t n, enum side_of_copy side,
			 const char *where)
{
	const struct region *region = &regions[at->serial];
	uint32_t block = block_index(at->process, at->block);
	struct process *self = task_self()->process;

	if (at->process->dead)
		fail("%s: process %u is dead and its memory is somebody else's", where,
		     at->process->number);
	uint32_t end = block * BLOCK + at->offset + n;

	/* A hostile process may name any bytes of a region. */
	if (region->process != at->process->number || block < region->first_block ||
	    end > (region->first_block + region->blocks) * BLOCK ||
	    (!sim.plan.hostile && at->offset + n > BLOCK))
		fail("%s: bytes outside of the region", where);
	if (region->state == REGION_ENDED)
		fail("%s: block %u of process %u %s after its %s has ended (by process %u)", where,
		     block, at->process->number, side == COPY_READS ? "read" : "written",
		     region->of ? "window's binding" : "region", self->number);
	if (sim.plan.hostile)
		return;
	if (side == COPY_WRITES && at->block->use != BLOCK_TARGET &&
	    !(at->block->use == BLOCK_RECEIVE || at->block->use == BLOCK_SEND))
		fail("%s: block %u of process %u is written, but the program has it back", where,
		     block, at->process->number);
	if (side == COPY_READS && at->block->use == BLOCK_FREE && at->block->returned)
		fail("%s: block %u of process %u is read after its QP's end returned", where, block,
		     at->process->number);
}

bool memory_copy(uint64_t address, void *flat, size_t length, enum side_of_copy side,
		 const char *where)
{
	uint8_t *bytes = flat;

	if (!(address & MARK)) { /* inline data; the core's own memory */
		void *own = (void *)(uintptr_t)address;

		memcpy(side == COPY_READS ? flat : own, side == COPY_READS ? own : flat, length);
		return true;
	}
	only_parent("memory");
	for (size_t n; length; address += n, bytes += n, length -= n) {
		n = length < CHUNK || sim.plan.fast_copies ? length : CHUNK;
		struct place at = memory_place(address);

		if (at.process->dead || at.block->unmapped)
			return false;
		check_access(&at, n, side, where);
		if (side == COPY_READS)
			memcpy(bytes, at.process->arena + (uint32_t)address, n);
		else
			memcpy(at.process->arena + (uint32_t)address, bytes, n);
		if (length > n)
			task_yield(where);
	}
	return true;
}
