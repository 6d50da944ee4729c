/* SPDX-License-Identifier: BSD-2-Clause */
/* See victim.h. */
#include "victim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/local/link.h"
#include "hca/local/local_conn.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/completion.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/tagged.h"
#include "play.h"
#include "tagged.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define FORBID(at, size) __asan_poison_memory_region(at, size)
#define ALLOW(at, size) __asan_unpoison_memory_region(at, size)
#else
#define FORBID(at, size) ((void)(at), (void)(size))
#define ALLOW(at, size) ((void)(at), (void)(size))
#endif

enum { GAP = 4096, CANARY = 0xc5, STRIDE = REGION_BYTES + GAP, CQE = 512 };
enum { ARENA = REGIONS * STRIDE + GAP };

struct victim victim;

static uint8_t *arena, *peer_memory;
static int table_fd, regions_fd;
static uint8_t ended[65536 / 8]; /* bits: wr_ids that have completed */

/* ------------------------------------------------------------------ memory */

uint8_t *region_at(unsigned int region)
{
	return arena + GAP + (size_t)region * STRIDE;
}

static bool constant(unsigned int region)
{
	return region == REGION_CONST || region == REGION_FOREIGN;
}

static void arena_reset(void)
{
	ALLOW(arena, ARENA);
	memset(arena, CANARY, ARENA);
	for (unsigned int i = 0; i <= REGIONS; i++)
		FORBID(arena + (size_t)i * STRIDE, GAP);
}

static bool untouched(const uint8_t *at, size_t size)
{
	return *at == CANARY && !memcmp(at, at + 1, size - 1);
}

static void arena_check(void)
{
	ALLOW(arena, ARENA);
	for (unsigned int i = 0; i < REGIONS; i++) {
		MUST(untouched(region_at(i) - GAP, GAP));
		MUST(!constant(i) || untouched(region_at(i), REGION_BYTES));
	}
	MUST(untouched(region_at(REGIONS) - GAP, GAP));
}

/* Whether the HCA may write there. */
static bool writable(const uint8_t *at, size_t size)
{
	for (unsigned int i = 0; i < REGIONS; i++)
		if (!constant(i) && at >= region_at(i) && at <= region_at(i) + REGION_BYTES &&
		    size <= (size_t)(region_at(i) + REGION_BYTES - at))
			return true;
	return false;
}

static const uint32_t region_access[REGIONS] = {
	[REGION_LOCAL] = IBV_ACCESS_LOCAL_WRITE,
	[REGION_REMOTE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	[REGION_CONST] = IBV_ACCESS_REMOTE_READ,
	[REGION_FOREIGN] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

void region_register(unsigned int region)
{
	struct mr *mr = &victim.mr[region];
	uint32_t key = (region + 1) << LIMIT_KEY_TAG_BITS | 1;

	*mr = (struct mr){.access = region_access[region]};
	mr->ibv.pd = &victim.pd[region == REGION_FOREIGN].ibv;
	mr->ibv.addr = region_at(region);
	mr->ibv.length = REGION_BYTES;
	mr->ibv.lkey = mr->ibv.rkey = mr->key = key;
	/* Names that differ from the addresses, for one of them. */
	mr->base = (uintptr_t)mr->ibv.addr;
	mr->iova = region == REGION_REMOTE ? 0x10000 : (uintptr_t)mr->ibv.addr;
	MUST(mr_publish(victim.hca, mr) == 0);
	victim.registered[region] = true;
}

void region_deregister(unsigned int region)
{
	(void)!mr_revoke(victim.hca, &victim.mr[region]);
	victim.registered[region] = false;
}

/* ------------------------------------------------------------------ what the HCA calls */

int fuzz_clock_gettime(clockid_t clock, struct timespec *out)
{
	(void)clock;
	victim.now += 50;
	*out = (struct timespec){.tv_sec = (time_t)(victim.now / 1000000000u),
				 .tv_nsec = (long)(victim.now % 1000000000u)};
	return 0;
}

/* The victim waits. A peer's operation is finite: its hazards end at some time, or the peer
 * does. */
int fuzz_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)left;
	victim.now += (uint64_t)wanted->tv_sec * 1000000000u + (uint64_t)wanted->tv_nsec;
	if (victim.now % 16 < 8 && fake_daemon.peer_state != 'T')
		memset(victim.regions->hazard, 0, sizeof(victim.regions->hazard));
	return 0;
}

int fuzz_sched_yield(void)
{
	victim.now += 1000;
	return 0;
}

int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			void *arg)
{
	(void)thread, (void)attr, (void)run, (void)arg;
	return 0;
}

int fuzz_pthread_setname_np(pthread_t thread, const char *name)
{
	(void)thread, (void)name;
	return 0;
}

/* The peer's memory at `at`, and how many bytes of it exist. */
static uint8_t *peer_at(uint64_t at, size_t *size)
{
	if (at < PEER_BASE || at - PEER_BASE >= PEER_BYTES)
		return NULL;
	size_t room = PEER_BYTES - (size_t)(at - PEER_BASE);

	if (*size > room)
		*size = room;
	return peer_memory + (at - PEER_BASE);
}

void victim_peer_write(const void *bytes, size_t size)
{
	memcpy(peer_memory, bytes, size);
}

enum vm_mode { VM_ALL, VM_GONE, VM_FORBIDDEN, VM_SHORT, VM_FAULT, VM_MODES };

/* A message's header, which is looked at before a buffer is known, and what no buffer gets. */
static bool is_for_tags(const uint8_t *here, size_t size)
{
	const struct tagged *t = victim.tagged ? victim.qp[QP_RC_SRQ]->tagged : NULL;

	if (!t || (here >= arena && here < arena + ARENA))
		return false;
	return size <= TAG_HEAD ||
	       (here >= t->scratch && here + size <= t->scratch + sizeof(t->scratch));
}

static void read_into(uint8_t *here, const uint8_t *theirs, size_t size)
{
	MUST(writable(here, size) || is_for_tags(here, size));
	memcpy(here, theirs, size);
}

/* As the kernel does: segment by segment, up to the first inaccessible byte. */
static ssize_t transfer(const struct iovec *local, unsigned long local_count,
			const struct iovec *remote, unsigned long remote_count, bool write)
{
	static const int errors[VM_MODES] = {
		[VM_GONE] = ESRCH, [VM_FORBIDDEN] = EPERM, [VM_FAULT] = EFAULT};
	unsigned long l = 0, r = 0;
	size_t l_done = 0, r_done = 0, total = 0;

	if (errors[victim.vm_mode % VM_MODES]) {
		errno = errors[victim.vm_mode % VM_MODES];
		return -1;
	}
	while (l < local_count && r < remote_count) {
		size_t n = local[l].iov_len - l_done, there = remote[r].iov_len - r_done;
		uint8_t *here = (uint8_t *)local[l].iov_base + l_done;

		n = there < n ? there : n;
		if (victim.vm_mode % VM_MODES == VM_SHORT && n > 1)
			n /= 2;
		there = n;
		uint8_t *theirs = peer_at((uintptr_t)remote[r].iov_base + r_done, &there);

		if (n && !theirs)
			break;
		if (write)
			memcpy(theirs, here, there);
		else if (there)
			read_into(here, theirs, there);
		total += there;
		if (there < n)
			break;
		l_done += n;
		r_done += n;
		if (l_done == local[l].iov_len)
			l++, l_done = 0;
		if (r_done == remote[r].iov_len)
			r++, r_done = 0;
		if (victim.vm_mode % VM_MODES == VM_SHORT && total)
			break;
	}
	if (!total && l < local_count && r < remote_count) {
		errno = EFAULT;
		return -1;
	}
	return (ssize_t)total;
}

ssize_t fuzz_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			      const struct iovec *remote, unsigned long remote_count,
			      unsigned long flags)
{
	uint64_t probe = victim.regions->probe;

	if (pid == getpid())
		return process_vm_readv(pid, local, local_count, remote, remote_count, flags);
	MUST(pid == FAKE_PEER_PID);
	if (local_count == 1 && local->iov_len == sizeof(probe) && !link_is_mapped(victim.link)) {
		probe += !victim.can_vm;
		memcpy(local->iov_base, &probe, sizeof(probe));
		return sizeof(probe);
	}
	return transfer(local, local_count, remote, remote_count, false);
}

ssize_t fuzz_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
			       const struct iovec *remote, unsigned long remote_count,
			       unsigned long flags)
{
	(void)flags;
	MUST(pid == FAKE_PEER_PID);
	return transfer(local, local_count, remote, remote_count, true);
}

/* ------------------------------------------------------------------ the link */

void link_make(void)
{
	struct link *link = link_get(victim.hca, FAKE_PEER_SLOT);
	int memory = memfd_create("link", MFD_CLOEXEC);

	victim.link = link;
	MUST(link && memory >= 0 && ftruncate(memory, LINK_SIZE) == 0);
	if (!link_introducing(link)) {
		close(memory);
		return;
	}
	link_ask_daemon(victim.hca);
	if (victim.memory)
		munmap(victim.memory, LINK_SIZE);
	victim.memory = mmap(NULL, LINK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	MUST(victim.memory != MAP_FAILED);
	atomic_store(&victim.memory->part[1], LINK_PART_TAKEN);
	atomic_store(&victim.memory->installed[1], 1); /* required before any direct copy */
	ring_tx_init(&victim.tx, victim.memory->ring[1], &victim.memory->ctl[1]);
	ring_rx_init(&victim.rx, victim.memory->ring[0], &victim.memory->ctl[0]);
	const struct proto_event event = {.type = PROTO_EVENT_LINK,
					  .slot = FAKE_PEER_SLOT,
					  .link_id = ++victim.link_id,
					  .side = 0,
					  .pid = FAKE_PEER_PID,
					  .uid = geteuid()};
	int fds[PROTO_MAX_FDS] = {memory, dup(table_fd), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
				  dup(regions_fd)};

	MUST(fds[1] >= 0 && fds[2] >= 0 && fds[3] >= 0);
	link_install(victim.hca, &event, fds);
}

void link_end(void)
{
	/* A process that has ended copies no more. */
	memset(victim.regions->hazard, 0, sizeof(victim.regions->hazard));
	atomic_store(&victim.memory->left[1], 1); /* its marks are its own: link_part.h */
	link_down(victim.hca, FAKE_PEER_SLOT, victim.link->id);
	for (int i = 0; i < 3; i++)
		engine_round(victim.hca, &victim.seen);
	MUST(!link_is_mapped(victim.link));
}

/* ------------------------------------------------------------------ queue pairs */

uint32_t peer_qpn(unsigned int qp)
{
	return FAKE_PEER_SLOT << LIMIT_QP_BITS | (qp + 1);
}

/* The table of a correct peer, for the QP at the other end. */
void peer_publish(unsigned int qp)
{
	struct pub_qp *e = &victim.table->qp[qp + 1];
	uint64_t access =
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	atomic_store(&e->peer, victim.qp[qp]->ibv.qp_num);
	atomic_store(&e->pd, 7);
	atomic_store(&e->rq_psn, 0);
	atomic_store(&e->state, IBV_QPS_RTS | (uint64_t)victim.qp[qp]->type << 8 | access << 16 |
					pub_qp_epoch_bits(PEER_EPOCH));
}

static int step(struct qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.port_num = 1,
		.qkey = 0x11111111,
		.ah_attr = {.is_global = 1, .port_num = 1},
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer_qpn(qp->index - 1),
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = qp->index - 1 == QP_RC_PLAIN ? 0 : 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = qp->index % 2 ? 7 : 3,
	};

	return qp_modify(&qp->ibv, &attr, mask | IBV_QP_STATE);
}

/* INIT, RTR, RTS, or less far. */
void qp_connect(unsigned int index, enum ibv_qp_state until)
{
	struct qp *qp = victim.qp[index];
	bool rc = qp->type == IBV_QPT_RC, ud = qp->type == IBV_QPT_UD;
	int path = ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	step(qp, IBV_QPS_INIT,
	     IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	step(qp, IBV_QPS_RTR, path | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	if (until == IBV_QPS_RTR)
		return;
	step(qp, IBV_QPS_RTS,
	     IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_MAX_QP_RD_ATOMIC
				 : 0));
}

const uint8_t victim_group[16] = {0xff, 0x0e, [15] = 7};

static const union ibv_gid *group(void)
{
	return (const union ibv_gid *)victim_group;
}

/* Bits of the input's first byte: from IN_FILE_SHIFT on, the number of the peer's file (which may
 * not exist) that its region is in; without IN_FILE, what the SRQ does. */
enum {
	CAN_VM = 1,
	SMALL_CQS = 2,
	IN_FILE = 4,
	FILE_OFFSET = 8,
	IN_FILE_SHIFT = 4,
	TAGGED = 16,
	OFFLOADS = 32,
};

static void qp_make(unsigned int index, uint8_t options)
{
	static const enum ibv_qp_type types[QPS] = {[QP_RC] = IBV_QPT_RC,
						    [QP_RC_SRQ] = IBV_QPT_RC,
						    [QP_UC] = IBV_QPT_UC,
						    [QP_UD] = IBV_QPT_UD,
						    [QP_RC_PLAIN] = IBV_QPT_RC};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = victim.send_cq,
		.recv_cq = victim.recv_cq,
		.srq = index == QP_RC_SRQ ? victim.srq : NULL,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = 4,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
		.qp_type = types[index],
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &victim.pd[0].ibv,
	};

	if (index == QP_RC_SRQ && victim.tagged && options & OFFLOADS)
		attr.cap.max_send_wr = 0;
	struct ibv_qp *qp = qp_create(&victim.context->verbs.context, &attr);

	MUST(qp && qp_of(qp)->index == index + 1);
	victim.qp[index] = qp_of(qp);
	peer_publish(index);
	qp_connect(index, IBV_QPS_RTS);
	if (index == QP_UD)
		MUST(mcast_attach(qp, group(), 0) == 0);
}

/* ------------------------------------------------------------------ completions */

static void check_completion(const struct ibv_wc *wc, uint64_t *last)
{
	MUST(wc->wr_id && wc->wr_id <= victim.posted);
	/* One request, one completion. */
	size_t bit = wc->wr_id % (sizeof(ended) * 8);

	MUST(!(ended[bit / 8] >> bit % 8 & 1));
	ended[bit / 8] |= (uint8_t)(1u << bit % 8);
	/* In posting order; an SRQ's receives are completed by the QP that took them. */
	for (unsigned int i = 0; last && i < QPS; i++) {
		if (victim.qp[i]->ibv.qp_num != wc->qp_num)
			continue;
		MUST(wc->wr_id > last[i]);
		last[i] = wc->wr_id;
	}
}

static uint64_t last_sent[QPS];

void completions_take(void)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = cq_poll(victim.send_cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++)
			check_completion(&wc[i], last_sent);
	while ((n = cq_poll(victim.recv_cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++)
			if (!tagged_completion(&wc[i]))
				check_completion(&wc[i], NULL);
}

static void events_take(void)
{
	struct list *node;

	/* Read as a program would, but without blocking and without acknowledgement. */
	while ((node = list_pop(&victim.context->async.events))) {
		uint64_t count;

		MUST(read(victim.context->async.fd, &count, sizeof(count)) == sizeof(count));
		free(container_of(node, struct event, node));
	}
}

/* ------------------------------------------------------------------ all of it */

static int peer_file(size_t size, unsigned int seals)
{
	int fd = memfd_create("peer's file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	MUST(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void peer_files_make(void)
{
	enum { FILE_BYTES = PEER_BYTES + 4096 };

	fake_peer_files[FAKE_FILE] = peer_file(FILE_BYTES, F_SEAL_SHRINK);
	MUST(fallocate(fake_peer_files[FAKE_FILE], 0, 0, FILE_BYTES) == 0);
	fake_peer_files[FAKE_FILE_SPARSE] = peer_file(FILE_BYTES, F_SEAL_SHRINK);
	fake_peer_files[FAKE_FILE_SHORT] = peer_file(PEER_BYTES / 2, F_SEAL_SHRINK);
	fake_peer_files[FAKE_FILE_UNSEALED] = peer_file(FILE_BYTES, 0);
}

static void once(void)
{
	/* Log lines go to /dev/null: only their formatting is tested. */
	log_open(open("/dev/null", O_WRONLY | O_CLOEXEC), "fuzz");
	victim.hca = hca_get();
	MUST(victim.hca);
	/* This thread drives the engine, and checks the lease each time. */
	close(victim.hca->watchdog);
	victim.hca->watchdog = -1;
	victim.hca->watch_due = true;
	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	peer_memory = calloc(1, PEER_BYTES);
	table_fd = memfd_create("table", MFD_CLOEXEC);
	regions_fd = memfd_create("regions", MFD_CLOEXEC);
	MUST(arena != MAP_FAILED && peer_memory && table_fd >= 0 && regions_fd >= 0 &&
	     ftruncate(table_fd, PUB_SIZE) == 0 && ftruncate(regions_fd, PUB_REGIONS_SIZE) == 0);
	victim.table = mmap(NULL, PUB_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			    table_fd, 0);
	victim.regions = mmap(NULL, PUB_REGIONS_SIZE, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_NORESERVE, regions_fd, 0);
	MUST(victim.table != MAP_FAILED && victim.regions != MAP_FAILED);
	peer_files_make();
}

static void context_make(void)
{
	struct context *context = calloc(1, sizeof(*context));

	MUST(context && event_queue_init(&context->async) == 0);
	context->hca = victim.hca;
	context->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->verbs.context.num_comp_vectors = 1;
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	for (unsigned int kind = 0; kind < HELD_KINDS; kind++)
		list_init(&context->held[kind]);
	list_add_tail(&victim.hca->contexts, &context->node);
	victim.context = context;
	for (unsigned int i = 0; i < 2; i++) {
		victim.pd[i] = (struct pd){.id = 7 + i};
		victim.pd[i].ibv.context = &context->verbs.context;
	}
	victim.ah = (struct ah){.carrier = &datagram_local};
	victim.ah.ibv.context = &context->verbs.context;
}

static void tables_reset(uint8_t options)
{
	memset(&victim.table->header, 0, sizeof(victim.table->header));
	memset(victim.table->qp, 0, (TABLE_QPS + 1) * sizeof(struct pub_qp));
	memset(victim.regions->hazard, 0, sizeof(victim.regions->hazard));
	memset(victim.regions->mr, 0, (TABLE_MRS + 1) * sizeof(struct pub_mr));
	memset(victim.hca->pub->qp, 0, (QPS + 1) * sizeof(struct pub_qp));
	victim.table->header.magic = PUB_MAGIC;
	victim.table->header.version = PUB_VERSION;
	victim.table->header.slot = FAKE_PEER_SLOT;
	victim.regions->probe = 0x70726f6265ull;
	/* One region with all rights, and a window on it for any QP of the domain. */
	struct pub_mr *mr = &victim.regions->mr[1], *window = &victim.regions->mr[2];

	atomic_store(&mr->start, PEER_BASE);
	atomic_store(&mr->length, PEER_BYTES);
	atomic_store(&mr->pd, 7);
	if (options & IN_FILE) {
		atomic_store(&mr->file_fd, options >> IN_FILE_SHIFT);
		atomic_store(&mr->file_print, options & FILE_OFFSET ? 100 : 1);
		atomic_store(&mr->file_serial, 1);
	}
	atomic_store(&mr->rkey_access, 0x101 | 0xfull << 32);
	atomic_store(&window->start, PEER_BASE);
	atomic_store(&window->length, PEER_BYTES / 2);
	atomic_store(&window->pd, 7 | PUB_MR_WINDOW);
	atomic_store(&window->window_region, 0x101);
	atomic_store(&window->file_serial, atomic_load(&mr->file_serial));
	atomic_store(&window->rkey_access, 0x201 | 0xeull << 32);
}

void victim_open(struct input *in)
{
	if (!victim.hca)
		once();
	uint8_t options = input_u8(in);
	struct ibv_cq_init_attr_ex cq = {.cqe = options & SMALL_CQS ? 16 : CQE};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 4}};

	fake_daemon = (struct fake_daemon){.next_qp = 1, .peer_state = 'S'};
	victim.now = 1000000000;
	victim.seen = 0;
	victim.posted = 0;
	victim.vm_mode = VM_ALL;
	victim.can_vm = options & CAN_VM;
	memset(ended, 0, sizeof(ended));
	memset(last_sent, 0, sizeof(last_sent));
	arena_reset();
	tables_reset(options);
	context_make();
	victim.send_cq = cq_create(&victim.context->verbs.context, &cq);
	victim.recv_cq = cq_create(&victim.context->verbs.context, &cq);
	victim.tagged = (options & (IN_FILE | TAGGED)) == TAGGED;
	victim.srq = victim.tagged ? tagged_begin(options & OFFLOADS)
				   : srq_create(&victim.pd[0].ibv, &srq);
	MUST(victim.send_cq && victim.recv_cq && victim.srq);
	for (unsigned int i = 0; i < REGIONS; i++)
		region_register(i);
	for (unsigned int i = 0; i < QPS; i++)
		qp_make(i, options);
	link_make();
	engine_round(victim.hca, &victim.seen);
}

void victim_close(void)
{
	completions_take();
	/* Only this thread waits for the peer, and its wait is bounded. */
	fake_daemon.peer_state = 'S';
	for (unsigned int i = 0; i < REGIONS; i++)
		if (victim.registered[i])
			region_deregister(i);
	for (unsigned int i = 0; i < QPS; i++) {
		victim.qp[i]->async_reported = 0;
		if (i == QP_UD) {
			MUST(qp_destroy(&victim.qp[i]->ibv) == EBUSY);
			MUST(mcast_detach(&victim.qp[i]->ibv, group(), 0) == 0);
		}
		MUST(qp_destroy(&victim.qp[i]->ibv) == 0);
	}
	MUST(srq_destroy(victim.srq) == 0);
	MUST(cq_destroy(victim.send_cq) == 0 && cq_destroy(victim.recv_cq) == 0);
	link_end();
	events_take();
	event_queue_destroy(&victim.context->async);
	pthread_mutex_destroy(&victim.context->verbs.context.mutex);
	list_del(&victim.context->node);
	free(victim.context);
	munmap(victim.memory, LINK_SIZE);
	victim.memory = NULL;
	arena_check();
	MUST(fake_daemon.objects == 0 && list_empty(&victim.hca->acks) &&
	     list_empty(&victim.hca->rnr) && list_empty(&victim.hca->active) &&
	     list_empty(&victim.hca->tagged));
}

/* Invariants of a QP's core after each action. */
static void core_check(const struct local_conn *conn)
{
	if (!conn)
		return;
	MUST((int32_t)((uint32_t)conn->core.arrived_msn - conn->core.done_msn) >= 0);
	MUST(conn->core.held_bytes <= LOCAL_HELD_BYTES);
	MUST(conn->core.responder != LOCAL_WAIT_DATA || !list_empty(&conn->core.held));
}

void victim_play(struct input *in, action_fn *const *actions, unsigned int count)
{
	/* A long input is equivalent to several short ones, which the fuzzer explores better. */
	for (int i = 0; i < 200 && input_left(in); i++) {
		uint8_t which = input_u8(in);

		(victim.tagged && which >= 240 ? act_tag : actions[which % count])(in);
		MUST(link_is_mapped(victim.link) || !victim.link->memory);
		/* No request completes twice, or before it was posted. */
		for (unsigned int q = 0; q < QPS; q++)
			core_check(victim.qp[q]->local);
	}
}
