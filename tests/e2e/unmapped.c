/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is unmapped during its registration. An adapter has the pages pinned; here the access
 * fails, with the status for the side whose memory it is, and nothing crashes, not even a program
 * with fault handlers of its own. See rig.h.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "faults.h"

static const uint32_t sizes[] = {8, 3000, 60000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void take_away(struct end *end)
{
	OK(end->rig, mprotect(end->buf, end->opt.bytes, PROT_NONE) ? errno : 0);
}

/* A's memory of a SEND is unmapped: a local error at A. */
static void send_from(struct rig *rig)
{
	struct end end;

	for (unsigned int i = 0; i < SIZES; i++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_A)
			take_away(&end);
		else
			OK(rig, end_recv(&end, 1, 0, 65536));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, sizes[i], 0));
			OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 0, 0));
			wc_expect(&end, end.scq, 1, IBV_WC_LOC_PROT_ERR);
			wc_expect(&end, end.scq, 2, IBV_WC_WR_FLUSH_ERR);
		} else {
			wc_none(&end, end.rcq);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* B's memory of a receive is unmapped: a local error at B, and a remote one at A. */
static void send_into_receive(struct rig *rig, const struct end_options *opt)
{
	struct end end;

	for (unsigned int i = 0; i < SIZES; i++) {
		end_pair(&end, rig, opt);
		if (rig->role == RIG_B) {
			OK(rig, end_recv(&end, 1, 0, 65536));
			take_away(&end);
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, sizes[i], 0));
			wc_expect(&end, end.scq, 1, IBV_WC_REM_OP_ERR);
		} else {
			wc_expect(&end, end.rcq, 1, IBV_WC_LOC_PROT_ERR);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

static void send_into(struct rig *rig)
{
	static const struct end_options shared = {.srq_depth = 4};

	send_into_receive(rig, NULL);
	send_into_receive(rig, &shared);
}

/* One-sided operations: the target's memory is unmapped, or the initiator's. */
static void one_sided(struct rig *rig, enum ibv_wr_opcode opcode, int whose)
{
	bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct end end;

	for (unsigned int i = 0; i < (atomic ? 1 : SIZES); i++) {
		end_pair(&end, rig, NULL);
		if (rig->role == whose)
			take_away(&end);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, opcode, 1, 0, sizes[i], 0));
			wc_expect(&end, end.scq, 1,
				  whose == RIG_A ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		} else if (whose == RIG_B) {
			event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

static void write_into(struct rig *rig)
{
	one_sided(rig, IBV_WR_RDMA_WRITE, RIG_B);
}

static void write_from(struct rig *rig)
{
	one_sided(rig, IBV_WR_RDMA_WRITE, RIG_A);
}

static void read_from(struct rig *rig)
{
	one_sided(rig, IBV_WR_RDMA_READ, RIG_B);
}

static void read_into(struct rig *rig)
{
	one_sided(rig, IBV_WR_RDMA_READ, RIG_A);
}

static void atomic_on(struct rig *rig)
{
	one_sided(rig, IBV_WR_ATOMIC_FETCH_AND_ADD, RIG_B);
}

static void datagram_into(struct rig *rig)
{
	static const struct end_options opt = {.type = IBV_QPT_UD};
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_B) {
		OK(rig, end_recv(&end, 1, 0, 4096));
		take_away(&end);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 100, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.rcq, 1, IBV_WC_LOC_PROT_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

/* After other memory was mapped at the address, the region refers to that. */
static void other_memory(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_B)
		CHECK(rig, mmap(end.buf, end.opt.bytes, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == end.buf);
	pattern_fill(end.buf, 4096, 1);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 4096, 8192));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK(rig, pattern_holds(end.buf + 8192, 4096, 1));
	rig_sync(rig);
	end_close(&end);
}

/* The program's own faults and handlers ------------------------------------------------------ */

static _Thread_local sigjmp_buf way_out;

static void on_own_fault(int number)
{
	(void)number;
	siglongjmp(way_out, 1);
}

/* Accesses unmapped memory; returns whether the program's handler was called. */
static bool own_fault(const struct end *end)
{
	if (sigsetjmp(way_out, 1))
		return true;
	*(volatile uint8_t *)end->buf = 1;
	return false;
}

/* Handlers that were installed before the first registration, and after it. */
static void own_handler(struct rig *rig)
{
	struct sigaction action = {.sa_handler = on_own_fault};
	struct end end, more;

	/* Over these carriers the ends share a process: one would see the other's handlers
	 * change. */
	if (rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO)
		return;
	sigaction(SIGSEGV, &action, NULL);
	end_pair(&end, rig, NULL);
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, 1, 0, 8));
	take_away(&end);
	for (int i = 0; i < 200; i++)
		CHECK(rig, own_fault(&end));
	sigaction(SIGSEGV, &action, NULL);
	end_open(&more, rig, NULL); /* installs the library's handler after the program's */
	CHECK(rig, own_fault(&end));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 0, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
		wc_expect(&end, end.scq, 2, IBV_WC_LOC_PROT_ERR);
	} else {
		wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	}
	CHECK(rig, own_fault(&end));
	rig_sync(rig);
	end_close(&more);
	end_close(&end);
	signal(SIGSEGV, SIG_DFL);
}

const struct rig_test unmapped_tests[] = {
	{"unmapped_send_from", send_from},
	{"unmapped_send_into", send_into},
	{"unmapped_write_into", write_into},
	{"unmapped_write_from", write_from},
	{"unmapped_read_from", read_from},
	{"unmapped_read_into", read_into},
	{"unmapped_atomic_on", atomic_on},
	{"unmapped_datagram_into", datagram_into},
	{"remapped", other_memory},
	{"own_handler", own_handler},
	{NULL, NULL},
};
