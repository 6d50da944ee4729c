/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region that another process imported. A registers it and passes its cmd_fd; B imports device,
 * domain and region, and works on A's memory over a queue pair of its own in that domain: by the
 * lkey in B's requests, and by the rkey in those of B's peer. The peer is A as well, which accesses
 * the same memory by its own keys, and checks what arrives. See rig.h.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"

enum { BYTES = 1 << 20, HALF = BYTES / 2 };
/* Through the ring in one piece, in several, by reference, by several bounces. */
static const uint32_t sizes[] = {1, 8, 3000, 60000, 400000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Sent by A to B together with the descriptor. */
struct offer {
	uint32_t pd, mr;
	uint64_t addr;
};

/* Importing a region, and the end of a connection. */
struct party {
	struct end end;
	struct offer offer; /* the region's; the same at both */
	/* B's */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint32_t rkey; /* by which B's peer names the region; both ends know it */
};

static void give_fd(struct rig *rig, int sock, int fd, const struct offer *offer)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fd))] = {0};
	struct iovec data = {(void *)offer, sizeof(*offer)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK_EQ(rig, sendmsg(sock, &message, 0), sizeof(*offer));
}

static int take_fd(struct rig *rig, int sock, struct offer *offer)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec data = {offer, sizeof(*offer)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	int fd;

	CHECK_EQ(rig, recvmsg(sock, &message, MSG_CMSG_CLOEXEC), sizeof(*offer));
	CHECK(rig, CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static void offer_region(struct rig *rig, struct ibv_mr *mr, struct offer *offer)
{
	*offer = (struct offer){mr->pd->handle, mr->handle, (uintptr_t)mr->addr};
	give_fd(rig, rig->sock, mr->context->cmd_fd, offer);
}

static void take_domain(struct rig *rig, struct party *b)
{
	b->ctx = ibv_import_device(take_fd(rig, rig->sock, &b->offer));
	CHECK(rig, b->ctx);
	CHECK(rig, (b->pd = ibv_import_pd(b->ctx, b->offer.pd)));
}

/* False: no process can access another's memory here, and B got an error. */
static bool take_region(struct rig *rig, struct party *b)
{
	b->mr = ibv_import_mr(b->pd, b->offer.mr);
	if (!rig_reaches_memory(rig)) {
		CHECK(rig, !b->mr);
		CHECK_EQ(rig, errno, EOPNOTSUPP);
		return false;
	}
	CHECK(rig, b->mr);
	CHECK(rig, !b->mr->addr && b->mr->pd == b->pd && b->mr->context == b->ctx);
	b->rkey = b->mr->rkey;
	return true;
}

static void give_up_domain(struct rig *rig, struct party *b)
{
	ibv_unimport_pd(b->pd);
	OK(rig, ibv_close_device(b->ctx));
}

static void party_close(struct party *party)
{
	struct rig *rig = party->end.rig;

	rig_sync(rig);
	if (rig->role == RIG_B) {
		if (party->mr)
			ibv_unimport_mr(party->mr);
		end_close(&party->end);
		give_up_domain(rig, party);
	}
	rig_sync(rig); /* A's domain isn't used any more */
	if (rig->role == RIG_A)
		end_close(&party->end);
}

/* Opens both ends, B with A's region. False (and nothing is open): the carrier doesn't support
 * it. */
static bool party_begin(struct party *party, struct rig *rig, const struct end_options *with)
{
	struct end_options opt = with ? *with : (struct end_options){0};
	uint32_t none = 0;

	memset(party, 0, sizeof(*party));
	/* Within a process an imported region has the keys of the original. */
	if (rig->carrier < RIG_LOCAL)
		return false;
	opt.bytes = BYTES;
	if (rig->role == RIG_A) {
		end_open(&party->end, rig, &opt);
		offer_region(rig, party->end.mr, &party->offer);
		rig_swap(rig, &none, &party->rkey, sizeof(none));
	} else {
		take_domain(rig, party);
		opt.pd = party->pd;
		opt.mr_access = 0;
		end_open(&party->end, rig, &opt);
		take_region(rig, party);
		rig_swap(rig, &party->rkey, &none, sizeof(none));
	}
	if (!party->rkey)
		party_close(party);
	return party->rkey;
}

/* The same, and connects them. */
static bool party_open(struct party *party, struct rig *rig, const struct end_options *with)
{
	if (!party_begin(party, rig, with))
		return false;
	end_connect(&party->end);
	return true;
}

/* An event of B's queue pair, which is in the imported context. */
static void expect_access_event(struct rig *rig, const struct party *b, const struct ibv_qp *qp)
{
	struct rig imported = *rig;

	imported.ctx = b->ctx;
	event_expect(&imported, IBV_EVENT_QP_ACCESS_ERR, qp);
}

/* A piece of A's memory, by B's key. */
static struct ibv_sge theirs(const struct party *b, size_t offset, uint32_t length)
{
	return (struct ibv_sge){b->offer.addr + offset, length, b->mr->lkey};
}

static int post(const struct party *party, enum ibv_wr_opcode opcode, struct ibv_sge *sge, int n,
		uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr wr = {.wr_id = 7,
				 .sg_list = sge,
				 .num_sge = n,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {remote, rkey}},
			   *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	}
	return ibv_post_send(party->end.qp, &wr, &bad);
}

static int post_recv(const struct party *party, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = {.wr_id = 8, .sg_list = sge, .num_sge = n}, *bad;

	return ibv_post_recv(party->end.qp, &wr, &bad);
}

/* B's requests on A's memory: from its first half to its second, or back. */
static void b_asks(struct party *b, enum ibv_wr_opcode opcode, uint32_t size)
{
	struct end *end = &b->end;
	struct ibv_sge sge = theirs(b, 0, size);

	rig_sync(end->rig); /* A is ready */
	OK(end->rig, post(b, opcode, &sge, 1, end->peer.addr + HALF, end->peer.rkey));
	wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
	rig_sync(end->rig);
}

static void a_is_asked(struct party *a, enum ibv_wr_opcode opcode, uint32_t size)
{
	struct end *end = &a->end;
	struct rig *rig = end->rig;
	bool reads = opcode == IBV_WR_RDMA_READ;

	memset(end->buf, 0, BYTES);
	pattern_fill(end->buf + (reads ? HALF : 0), size, size);
	if (opcode == IBV_WR_SEND)
		OK(rig, end_recv(end, 1, HALF, HALF));
	rig_sync(rig);
	if (opcode == IBV_WR_SEND)
		CHECK_EQ(rig, wc_expect(end, end->rcq, 1, IBV_WC_SUCCESS).byte_len, size);
	rig_sync(rig);
	CHECK(rig, pattern_holds(end->buf + (reads ? 0 : HALF), size, size));
	CHECK_EQ(rig, end->buf[(reads ? 0 : HALF) + size], 0);
}

static void initiates(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ};
	struct party party;

	if (!party_open(&party, rig, NULL))
		return;
	for (size_t o = 0; o < 3; o++)
		for (size_t i = 0; i < SIZES; i++)
			(rig->role == RIG_A ? a_is_asked : b_asks)(&party, opcodes[o], sizes[i]);
	/* An atomic's result. */
	uint64_t *word = (uint64_t *)party.end.buf;

	if (rig->role == RIG_A)
		word[HALF / 8] = 41;
	rig_sync(rig);
	if (rig->role == RIG_B)
		b_asks(&party, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	else
		rig_sync(rig), rig_sync(rig);
	if (rig->role == RIG_A) {
		CHECK_EQ(rig, word[0], 41);
		CHECK_EQ(rig, word[HALF / 8], 46);
	}
	party_close(&party);
}

/* B's receives are in A's memory. */
static void receives(struct rig *rig)
{
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, NULL))
		return;
	for (size_t i = 0; i < SIZES; i++) {
		if (rig->role == RIG_A) {
			memset(end->buf, 0, BYTES);
			pattern_fill(end->buf, sizes[i], (uint32_t)i);
			rig_sync(rig);
			OK(rig, end_send(end, IBV_WR_SEND, 1, 0, sizes[i], 0));
			wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end->buf + HALF, sizes[i], (uint32_t)i));
			CHECK_EQ(rig, end->buf[HALF + sizes[i]], 0);
		} else {
			struct ibv_sge sge = theirs(&party, HALF, HALF);

			OK(rig, post_recv(&party, &sge, 1));
			rig_sync(rig);
			CHECK_EQ(rig, wc_expect(end, end->rcq, 8, IBV_WC_SUCCESS).byte_len,
				 sizes[i]);
		}
		rig_sync(rig);
	}
	party_close(&party);
}

/* B's peer names A's memory by B's rkey, between requests on B's own memory, in order. */
static void is_named(struct rig *rig)
{
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, &(struct end_options){.qp_access = 0}))
		return;
	for (size_t i = 0; i < SIZES; i++) {
		uint32_t seed = (uint32_t)i;
		struct ibv_sge from = {(uintptr_t)end->buf, sizes[i], end->mr->lkey};
		uint64_t there = party.offer.addr + HALF;

		if (rig->role == RIG_B) {
			struct ibv_sge sge = theirs(&party, 0, 8);

			OK(rig, post_recv(&party, &sge, 1));
			rig_sync(rig);
			struct ibv_wc wc = wc_expect(end, end->rcq, 8, IBV_WC_SUCCESS);

			CHECK_EQ(rig, wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			rig_sync(rig);
			CHECK(rig, pattern_holds(end->buf, sizes[i], seed));
			continue;
		}
		memset(end->buf, 0, BYTES);
		pattern_fill(end->buf, sizes[i], seed);
		rig_sync(rig);
		OK(rig, post(&party, IBV_WR_RDMA_WRITE, &from, 1, there, party.rkey));
		OK(rig, post(&party, IBV_WR_RDMA_WRITE, &from, 1, end->peer.addr, end->peer.rkey));
		for (int n = 0; n < 2; n++)
			wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf + HALF, sizes[i], seed));
		memset(end->buf, 0, sizes[i]);
		OK(rig, post(&party, IBV_WR_RDMA_READ, &from, 1, there, party.rkey));
		wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf, sizes[i], seed));
		memset(end->buf + HALF, 0, HALF);
		OK(rig, post(&party, IBV_WR_RDMA_WRITE_WITH_IMM, &from, 1, there, party.rkey));
		wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf + HALF, sizes[i], seed));
		CHECK_EQ(rig, end->buf[HALF + sizes[i]], 0);
		rig_sync(rig);
	}
	party_close(&party);
}

/* B's peer flushes A's memory by B's rkey, between WRITEs to it. `wrong`: other than A granted. */
static void flush_imported(struct party *a, uint64_t id, uint8_t type, bool wrong)
{
	struct end *end = &a->end;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->qp);

	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(ex, a->rkey, a->offer.addr, id % 2 ? BYTES : 0, type,
		     id % 2 ? IBV_FLUSH_RANGE : IBV_FLUSH_MR);
	OK(end->rig, ibv_wr_complete(ex));
	wc_expect(end, end->scq, id, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
}

static void flushed(struct rig *rig)
{
	const int rights =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL;
	struct end_options opt = {.mr_access = rights,
				  .qp_access = rights | IBV_ACCESS_FLUSH_PERSISTENT};
	struct party party;
	struct end *end = &party.end;

	if (!party_begin(&party, rig, &opt))
		return;
	placement_qp(end);
	end_connect(end);
	if (rig->role == RIG_A) {
		struct ibv_sge from = {(uintptr_t)end->buf, 60000, end->mr->lkey};

		pattern_fill(end->buf, from.length, 5);
		for (uint64_t id = 1; id < 5; id++) {
			memset(end->buf + HALF, 0, from.length);
			OK(rig, post(&party, IBV_WR_RDMA_WRITE, &from, 1, party.offer.addr + HALF,
				     party.rkey));
			wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
			flush_imported(&party, id, IBV_FLUSH_GLOBAL, false);
			CHECK(rig, pattern_holds(end->buf + HALF, from.length, 5));
		}
		flush_imported(&party, 5, IBV_FLUSH_PERSISTENT, true);
	} else {
		expect_access_event(rig, &party, end->qp);
	}
	party_close(&party);
}

/* Segments of both processes in one list, for each way in which a message is transferred. */
static void mixed(struct rig *rig)
{
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, NULL))
		return;
	for (size_t i = 0; i < SIZES; i++) {
		uint32_t n = sizes[i] < 8 ? 8 : sizes[i] / 8 * 8, part = n / 4;

		if (rig->role == RIG_A) {
			memset(end->buf, 0, BYTES);
			pattern_fill(end->buf + part, n, 1);
			OK(rig, end_recv(end, 1, HALF, HALF));
			rig_sync(rig);
			CHECK_EQ(rig, wc_expect(end, end->rcq, 1, IBV_WC_SUCCESS).byte_len, n);
			CHECK(rig, pattern_holds(end->buf + HALF, n, 1));
			rig_sync(rig);
			continue;
		}
		pattern_fill(end->buf + part, n, 1);
		struct ibv_sge sge[4] = {theirs(&party, part, part), end_sge(end, 2 * part, part),
					 end_sge(end, 3 * part, part),
					 theirs(&party, 4 * part, n - 3 * part)};

		rig_sync(rig);
		OK(rig, post(&party, IBV_WR_SEND, sge, 4, 0, 0));
		wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
		rig_sync(rig);
	}
	party_close(&party);
}

static void datagram(struct rig *rig)
{
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, &(struct end_options){.type = IBV_QPT_UD}))
		return;
	if (rig->role == RIG_A) {
		pattern_fill(end->buf, 1000, 3);
		OK(rig, end_recv(end, 1, HALF, 4096));
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		struct ibv_sge sge = theirs(&party, 0, 1000);
		struct ibv_send_wr wr, *bad;
		struct ibv_sge own;

		end_request(end, IBV_WR_SEND, 7, 0, 1000, 0, &wr, &own);
		wr.sg_list = &sge;
		OK(rig, ibv_post_send(end->qp, &wr, &bad));
		wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
	} else {
		wc_expect(end, end->rcq, 1, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf + HALF + sizeof(struct ibv_grh), 1000, 3));
	}
	party_close(&party);
}

/* B's queue pair is connected to itself, and all memory is A's. */
static void to_itself(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ};
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_B) {
		struct ibv_sge into = theirs(&party, HALF, HALF);

		OK(rig, end_move(end, IBV_QPS_RESET));
		end->peer.qpn = end->qp->qp_num;
		end->peer.psn = end->psn;
		end_init(end);
		OK(rig, post_recv(&party, &into, 1));
		end_rtr(end);
		end_rts(end);
	}
	for (size_t i = 0; i < SIZES; i++) {
		for (size_t o = 0; o < 3; o++) {
			bool reads = opcodes[o] == IBV_WR_RDMA_READ;
			size_t from = reads ? HALF : 0, to = reads ? 0 : HALF;

			if (rig->role == RIG_A) {
				memset(end->buf, 0, BYTES);
				pattern_fill(end->buf + from, sizes[i], (uint32_t)o);
			}
			rig_sync(rig);
			if (rig->role == RIG_B) {
				struct ibv_sge sge = theirs(&party, 0, sizes[i]);
				struct ibv_sge into = theirs(&party, HALF, HALF);

				OK(rig, post(&party, opcodes[o], &sge, 1, into.addr, party.rkey));
				wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
				if (opcodes[o] == IBV_WR_SEND) {
					wc_expect(end, end->rcq, 8, IBV_WC_SUCCESS);
					OK(rig, post_recv(&party, &into, 1));
				}
			}
			rig_sync(rig);
			if (rig->role == RIG_A) {
				CHECK(rig, pattern_holds(end->buf + to, sizes[i], (uint32_t)o));
				CHECK_EQ(rig, end->buf[to + sizes[i]], 0);
			}
			rig_sync(rig);
		}
	}
	party_close(&party);
}

/* What isn't granted ------------------------------------------------------------------------- */

static void b_fails(struct rig *rig, enum ibv_wr_opcode opcode, size_t offset, bool other_key)
{
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_B) {
		struct ibv_sge sge = theirs(&party, offset, 100);

		sge.lkey ^= other_key ? 0x40 : 0;

		OK(rig, post(&party, opcode, &sge, 1, end->peer.addr, end->peer.rkey));
		wc_expect(end, end->scq, 7, IBV_WC_LOC_PROT_ERR);
	}
	party_close(&party);
}

static void outside(struct rig *rig)
{
	b_fails(rig, IBV_WR_SEND, BYTES - 99, false);
	b_fails(rig, IBV_WR_RDMA_READ, BYTES - 99, false);
	b_fails(rig, IBV_WR_RDMA_WRITE, (size_t)-1, false);
	b_fails(rig, IBV_WR_SEND, 0, true);
}

/* Peers have no access that A didn't grant, and there are no atomics nor ATOMIC WRITE on an
 * imported region. */
static void without_rights(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_WRITE};
	struct party party;
	struct end *end = &party.end;

	for (int i = 0; i < 3; i++) {
		struct end_options opt = {.mr_access = i ? 0 : MR_NONE};

		if (!party_open(&party, rig, &opt))
			return;
		if (rig->role == RIG_A) {
			struct ibv_sge from = {(uintptr_t)end->buf, 8, end->mr->lkey};

			OK(rig,
			   post(&party, opcodes[i], &from, 1, party.offer.addr + HALF, party.rkey));
			wc_expect(end, end->scq, 7, IBV_WC_REM_ACCESS_ERR);
		} else {
			expect_access_event(rig, &party, end->qp);
		}
		party_close(&party);
	}
}

/* A queue pair in another domain of B may not use the region, nor can it be imported there. */
static void other_domain(struct rig *rig)
{
	struct party party;
	struct end own;

	if (!party_open(&party, rig, NULL))
		return;
	end_pair(&own, rig, NULL);
	if (rig->role == RIG_B) {
		struct ibv_sge sge = theirs(&party, 0, 8);
		struct ibv_send_wr wr, *bad;
		struct ibv_sge unused;

		struct ibv_pd *fresh = ibv_alloc_pd(party.ctx);

		CHECK(rig, fresh && !ibv_import_mr(fresh, party.offer.mr));
		CHECK_EQ(rig, errno, EINVAL);
		OK(rig, ibv_dealloc_pd(fresh));
		end_request(&own, IBV_WR_SEND, 7, 0, 8, 0, &wr, &unused);
		wr.sg_list = &sge;
		OK(rig, ibv_post_send(own.qp, &wr, &bad));
		wc_expect(&own, own.scq, 7, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rig, ibv_dereg_mr(party.mr), EINVAL);
	}
	rig_sync(rig);
	end_close(&own);
	party_close(&party);
}

/* Its end ------------------------------------------------------------------------------------- */

/* B's use of the region fails, on a QP of its own. */
static void all_fail(struct rig *rig, struct party *party, enum ibv_wr_opcode opcode)
{
	struct end_options opt = {.pd = party->pd, .bytes = BYTES};
	struct party fresh = *party;
	struct end *end = &fresh.end;

	end_pair(end, rig, &opt);
	/* If the owner's end isn't known yet, the error appears when the message is fetched. */
	if (rig->role == RIG_A)
		OK(rig, end_recv(end, 1, 0, BYTES));
	rig_sync(rig);
	if (rig->role == RIG_B) {
		struct ibv_sge sge = theirs(party, 0, 100000);

		OK(rig, post(&fresh, opcode, &sge, 1, end->peer.addr, end->peer.rkey));
		wc_expect(end, end->scq, 7, IBV_WC_LOC_PROT_ERR);
	}
	rig_sync(rig);
	end_close(end);
}

static void named_fails(struct rig *rig, struct party *party)
{
	struct end_options opt = {.pd = party->pd};
	struct party fresh = *party;
	struct end *end = &fresh.end;

	end_pair(end, rig, rig->role == RIG_B ? &opt : NULL);
	if (rig->role == RIG_A) {
		struct ibv_sge from = {(uintptr_t)end->buf, 8, end->mr->lkey};

		OK(rig, post(&fresh, IBV_WR_RDMA_WRITE, &from, 1, party->offer.addr, party->rkey));
		wc_expect(end, end->scq, 7, IBV_WC_REM_ACCESS_ERR);
	} else {
		expect_access_event(rig, party, end->qp);
	}
	rig_sync(rig);
	end_close(end);
}

/* A deregisters the region; the import is then without memory. */
static void deregistered(struct rig *rig)
{
	struct party party;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_A) {
		OK(rig, ibv_dereg_mr(party.end.mr));
		/* The next key is a different one. */
		party.end.mr = ibv_reg_mr(party.end.pd, party.end.buf, BYTES, 7);
		CHECK(rig, party.end.mr);
	}
	rig_sync(rig);
	all_fail(rig, &party, IBV_WR_SEND);
	all_fail(rig, &party, IBV_WR_RDMA_WRITE);
	all_fail(rig, &party, IBV_WR_RDMA_READ);
	named_fails(rig, &party);
	if (rig->role == RIG_B)
		CHECK(rig, !ibv_import_mr(party.pd, party.offer.mr));
	party_close(&party);
}

/* A deregisters while B writes: after that no byte is written any more. */
static void deregistered_in_use(struct rig *rig)
{
	struct party party;
	struct end *end = &party.end;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_A) {
		struct ibv_mr *mr = ibv_reg_mr(end->pd, end->buf + HALF, HALF, 7);

		CHECK(rig, mr);
		memset(end->buf + HALF, 0xee, HALF);
		rig_swap(rig, &mr->rkey, &(uint32_t){0}, sizeof(mr->rkey));
		while (((volatile uint8_t *)end->buf)[0] != 0xee)
			;
		OK(rig, ibv_dereg_mr(end->mr));
		memset(end->buf, 0, HALF);
		end->mr = mr;
	} else {
		struct ibv_sge sge = theirs(&party, 0, HALF);
		uint32_t rkey;

		rig_swap(rig, &(uint32_t){0}, &rkey, sizeof(rkey));
		struct ibv_wc wc;

		do {
			OK(rig,
			   post(&party, IBV_WR_RDMA_READ, &sge, 1, end->peer.addr + HALF, rkey));
			wc = wc_wait(end, end->scq);
		} while (wc.status == IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.status, IBV_WC_LOC_PROT_ERR);
	}
	rig_sync(rig);
	for (size_t i = 0; rig->role == RIG_A && i < HALF; i++)
		CHECK_EQ(rig, end->buf[i], 0);
	party_close(&party);
}

/* B gives the region back: its keys are invalid from then on. */
static void given_back(struct rig *rig)
{
	struct party party;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_B) {
		struct ibv_mr before = *party.mr;

		ibv_unimport_mr(party.mr);
		party.mr = &before;
		rig_sync(rig);
		all_fail(rig, &party, IBV_WR_SEND);
		party.mr = NULL;
	} else {
		rig_sync(rig);
		all_fail(rig, &party, IBV_WR_SEND);
	}
	named_fails(rig, &party);
	party_close(&party);
}

/* Starts a process of A's user that registers a region for B, and ends when A tells it to. */
static pid_t owner_start(struct rig *rig)
{
	int ready[2];
	uint8_t byte = 1;

	OK(rig, pipe(ready));
	pid_t pid = fork();

	CHECK(rig, pid >= 0);
	if (pid) {
		close(ready[1]);
		CHECK_EQ(rig, read(ready[0], &byte, 1), 1);
		close(ready[0]);
		return pid;
	}
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct rig own = *rig;
	struct end end;
	struct offer offer;

	CHECK(rig, (own.ctx = ibv_open_device(list[0])));
	end_open(&end, &own, &(struct end_options){.bytes = BYTES});
	offer_region(&own, end.mr, &offer);
	CHECK_EQ(&own, write(ready[1], &byte, 1), 1);
	alarm(180); /* if A fails before it ends this */
	for (;;)
		pause();
}

/* The owner is killed. */
static void owner_gone(struct rig *rig)
{
	struct party party = {0};
	pid_t owner = 0;

	if (rig->carrier != RIG_LOCAL)
		return;
	if (rig->role == RIG_A) {
		owner = owner_start(rig);
	} else {
		take_domain(rig, &party);
		CHECK(rig, take_region(rig, &party));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, kill(owner, SIGKILL));
		CHECK_EQ(rig, waitpid(owner, NULL, 0), owner);
	}
	rig_sync(rig);
	all_fail(rig, &party, IBV_WR_SEND);
	all_fail(rig, &party, IBV_WR_RDMA_READ);
	if (rig->role == RIG_B) {
		ibv_unimport_mr(party.mr);
		give_up_domain(rig, &party);
	}
	rig_sync(rig);
}

static void daemon_kill(struct rig *rig)
{
	const char *directory = getenv("VERBENA_RUNTIME_DIR");
	char path[4200];
	int pid = 0;

	snprintf(path, sizeof(path), "%s/verbenad.pid", directory ? directory : "");
	FILE *file = fopen(path, "re");

	CHECK(rig, file && fscanf(file, "%d", &pid) == 1 && pid > 1);
	fclose(file);
	OK(rig, kill(pid, SIGKILL) ? errno : 0);
	double until = now_ms() + RIG_SOON_MS;

	while (!kill(pid, 0) && now_ms() < until)
		usleep(1000);
	CHECK_EQ(rig, errno, ESRCH);
}

/* Makes this process return to the next daemon. */
static void go_back(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);

	CHECK(rig, pd);
	OK(rig, ibv_dealloc_pd(pd));
}

/* The import outlives the daemon, and can be given back to the next one and made again. */
static void daemon_gone(struct rig *rig)
{
	struct party party;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_A)
		daemon_kill(rig);
	for (int i = 0; i < 3; i++) {
		rig_sync(rig);
		(rig->role == RIG_A ? a_is_asked : b_asks)(&party, IBV_WR_SEND, 3000 + (uint32_t)i);
		if (i == 0)
			go_back(rig);
		rig_sync(rig);
		if (i == 1 && rig->role == RIG_B) {
			struct ibv_mr *again = ibv_import_mr(party.pd, party.offer.mr);

			CHECK(rig, again && again->lkey != party.mr->lkey);
			ibv_unimport_mr(party.mr);
			party.mr = again;
		}
	}
	party_close(&party);
}

/* A memory window can't be bound to it: only its owner could publish one. */
static void no_window(struct rig *rig)
{
	struct ibv_send_wr wr = {.wr_id = 7, .opcode = IBV_WR_BIND_MW}, *bad;
	struct party party;

	if (!party_open(&party, rig, NULL))
		return;
	if (rig->role == RIG_B) {
		struct ibv_mw *mw = ibv_alloc_mw(party.pd, IBV_MW_TYPE_2);

		CHECK(rig, mw);
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){party.mr, party.offer.addr, 8, 0};
		CHECK_EQ(rig, ibv_post_send(party.end.qp, &wr, &bad), EOPNOTSUPP);
		OK(rig, ibv_dealloc_mw(mw));
	}
	party_close(&party);
}

const struct rig_test foreign_tests[] = {
	{"foreign_initiates", initiates},
	{"foreign_receives", receives},
	{"foreign_is_named", is_named},
	{"foreign_flushed", flushed},
	{"foreign_mixed", mixed},
	{"foreign_datagram", datagram},
	{"foreign_to_itself", to_itself},
	{"foreign_outside", outside},
	{"foreign_without_rights", without_rights},
	{"foreign_other_domain", other_domain},
	{"foreign_no_window", no_window},
	{"foreign_deregistered", deregistered},
	{"foreign_deregistered_in_use", deregistered_in_use},
	{"foreign_given_back", given_back},
	{"foreign_owner_gone", owner_gone},
	{"foreign_daemon_gone", daemon_gone},
	{NULL, NULL},
};
