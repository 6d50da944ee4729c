/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unacknowledged services: datagrams (UD) and unreliable connections (UC). Loss is allowed where a
 * test says so, wrong data never. See rig.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

enum { GRH = 40, DATAGRAM = 4096 /* of any MTU */ };

static const struct end_options ud = {.type = IBV_QPT_UD};
static const struct end_options uc = {.type = IBV_QPT_UC};

/* The 40 bytes contain both addresses: IPv6's header fills them, IPv4's is in the last 20 (annex
 * A17.4.5.1). */
static void grh_right(const struct end *end, const uint8_t *grh, uint32_t length, bool has_imm)
{
	const struct rig *rig = end->rig;
	const uint8_t *ip = grh + 20;
	unsigned int sum = 0;

	if (end->gid.raw[10] != 0xff || end->gid.raw[11] != 0xff) {
		CHECK_EQ(rig, grh[0] >> 4, 6);
		CHECK(rig, memcmp(grh + 8, &end->peer.gid, 16) == 0);
		CHECK(rig, memcmp(grh + 24, &end->gid, 16) == 0);
		return;
	}
	CHECK_EQ(rig, ip[0], 0x45);
	CHECK_EQ(rig, ip[9], 17);
	/* IP, UDP, BTH, DETH, ImmDt, payload up to a multiple of 4, ICRC */
	CHECK_EQ(rig, ip[2] << 8 | ip[3],
		 20 + 8 + 12 + 8 + (has_imm ? 4 : 0) + (length + 3) / 4 * 4 + 4);
	CHECK(rig, memcmp(ip + 12, end->peer.gid.raw + 12, 4) == 0);
	CHECK(rig, memcmp(ip + 16, end->gid.raw + 12, 4) == 0);
	for (int i = 0; i < 20; i += 2)
		sum += (unsigned int)(ip[i] << 8 | ip[i + 1]);
	CHECK_EQ(rig, (sum & 0xffff) + (sum >> 16), 0xffff);
}

static void ud_data(struct rig *rig)
{
	const uint32_t mtu = rig_datagram(rig);
	const uint32_t sizes[] = {0, 1, 8, 63, 64, 200, mtu - 1, mtu};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct end end;

	end_pair(&end, rig, &ud);
	for (uint32_t i = 0; i < 8; i++) {
		memset(end.buf + 8192, 0xee, GRH + DATAGRAM + 1);
		OK(rig, end_recv(&end, i, 8192, GRH + sizes[i]));
		rig_sync(rig);
		pattern_fill(end.buf, sizes[i], i * 2 + (uint32_t)rig->role);
		end_request(&end, i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, i, 0, sizes[i], 0,
			    &wr, &sge);
		wr.imm_data = htonl(i);
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		CHECK_EQ(rig, wc_expect(&end, end.scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		wc = wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.byte_len, GRH + sizes[i]);
		CHECK_EQ(rig, wc.src_qp, end.peer.qpn);
		CHECK(rig, wc.wc_flags & IBV_WC_GRH);
		CHECK_EQ(rig, !!(wc.wc_flags & IBV_WC_WITH_IMM), i % 2);
		if (i % 2)
			CHECK_EQ(rig, ntohl(wc.imm_data), i);
		grh_right(&end, end.buf + 8192, sizes[i], i % 2);
		CHECK(rig,
		      pattern_holds(end.buf + 8192 + GRH, sizes[i], i * 2 + (uint32_t)!rig->role));
		CHECK_EQ(rig, end.buf[8192 + GRH + sizes[i]], 0xee);
		rig_sync(rig);
	}
	end_close(&end);
}

/* Sends one datagram with some fields of the request changed; it completes with success in any
 * case. */
static void ud_send(struct end *end, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, IBV_WR_SEND, 1, 0, 8, 0, &wr, &sge);
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
}

static void ud_dropped(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, &ud);
	if (rig->role == RIG_A) {
		rig_sync(rig);
		ud_send(&end, end.peer.qpn, QKEY ^ 1);
		ud_send(&end, end.peer.qpn + 5, QKEY);
		ud_send(&end, 0xfffffe, QKEY);
		ud_send(&end, 0x000003, QKEY);
		for (int i = 0; i < 10; i++) /* there is no receive: dropped */
			ud_send(&end, end.peer.qpn, QKEY);
		rig_sync(rig);
		rig_sync(rig);
		/* A controlled Q_Key stands for the QP's own. */
		ud_send(&end, end.peer.qpn, 0x80000000);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	} else {
		rig_sync(rig);
		rig_sync(rig);
		wc_none(&end, end.rcq);
		/* Datagrams that had no receive don't arrive later. */
		OK(rig, end_recv(&end, 2, 0, 64));
		OK(rig, end_recv(&end, 3, 0, 64));
		wc_none(&end, end.rcq);
		rig_sync(rig);
		wc_expect(&end, end.rcq, 2, IBV_WC_SUCCESS);
		wc_none(&end, end.rcq);
	}
	rig_sync(rig);
	end_close(&end);
}

/* To a receive with a foreign lkey: an error at the receiver. */
static void ud_receive_lkey(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, &ud);
	if (rig->role == RIG_B) {
		struct ibv_sge sge = end_sge(&end, 0, 128);
		struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

		sge.lkey ^= 0x40;
		OK(rig, ibv_post_recv(end.qp, &wr, &bad));
		OK(rig, end_recv(&end, 2, 0, 64));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		ud_send(&end, end.peer.qpn, QKEY);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	} else {
		wc_expect(&end, end.rcq, 1, IBV_WC_LOC_PROT_ERR);
		wc_expect(&end, end.rcq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

/* A local error moves only the send queue to error (SQE); it can be brought back. */
static void send_queue_error(struct rig *rig, const struct end_options *opt)
{
	enum ibv_wr_opcode opcode = IBV_WR_SEND;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, opt);
	for (uint64_t id = 0; id < 2; id++)
		OK(rig, end_recv(&end, id, 0, 128));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		end_request(&end, opcode, 1, 0, 8, 0, &wr, &sge);
		sge.lkey ^= 0x40;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		OK(rig, end_send(&end, opcode, 2, 0, 8, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_LOC_PROT_ERR);
		wc_expect(&end, end.scq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_SQE);
		OK(rig, end_send(&end, opcode, 3, 0, 8, 0));
		wc_expect(&end, end.scq, 3, IBV_WC_WR_FLUSH_ERR);
		rig_sync(rig);
		/* It still receives. */
		wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
		OK(rig, ibv_modify_qp(end.qp, &attr, IBV_QP_STATE));
		OK(rig, end_send(&end, opcode, 4, 0, 8, 0));
		wc_expect(&end, end.scq, 4, IBV_WC_SUCCESS);
	} else {
		rig_sync(rig);
		OK(rig, end_send(&end, opcode, 7, 0, 8, 0));
		wc_expect(&end, end.scq, 7, IBV_WC_SUCCESS);
		wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

static void ud_send_queue_error(struct rig *rig)
{
	send_queue_error(rig, &ud);
}

static void uc_send_queue_error(struct rig *rig)
{
	send_queue_error(rig, &uc);
}

/* A datagram can't be longer than the port's active MTU, alone or behind others. */
static void ud_too_long(struct rig *rig)
{
	const uint32_t mtu = rig_datagram(rig);
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];
	struct end end;

	end_pair(&end, rig, &ud);
	for (uint64_t i = 0; i < 3; i++)
		OK(rig, end_recv(&end, i, 0, GRH + DATAGRAM + 1));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (uint64_t i = 0; i < 3; i++) {
			end_request(&end, IBV_WR_SEND, i, 0, i == 1 ? mtu + 1 : mtu, 0, &wr[i],
				    &sge[i]);
			wr[i].next = i < 2 ? &wr[i + 1] : NULL;
		}
		OK(rig, ibv_post_send(end.qp, wr, &bad));
		wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 1, IBV_WC_LOC_LEN_ERR);
		wc_expect(&end, end.scq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_SQE);
	} else {
		CHECK_EQ(rig, wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS).byte_len, GRH + mtu);
		wc_none(&end, end.rcq);
	}
	rig_sync(rig);
	end_close(&end);
}

static void ud_refused(struct rig *rig)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &ud);
	end_request(&end, IBV_WR_SEND, 1, 0, 8, 0, &wr, &sge);
	wr.wr.ud.ah = NULL;
	CHECK_EQ(rig, ibv_post_send(end.qp, &wr, &bad), EINVAL);
	attr.grh.dgid = end.gid;
	attr.grh.sgid_index = 200;
	CHECK(rig, !ibv_create_ah(end.pd, &attr) && errno == EINVAL);
	attr.grh.sgid_index = 0;
	attr.port_num = 2;
	CHECK(rig, !ibv_create_ah(end.pd, &attr) && errno == EINVAL);
	attr.port_num = 1;
	attr.is_global = 0;
	CHECK(rig, !ibv_create_ah(end.pd, &attr) && errno == EINVAL);
	rig_sync(rig);
	end_close(&end);
}

/* A request copies what it needs of its AH when it is posted: the AH may be destroyed while the
 * request still waits, here for the link between the two processes. */
static void ud_handle_ends(struct rig *rig)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	struct end end;

	end_pair(&end, rig, &ud);
	if (rig->role == RIG_A) {
		void *again[64];

		rig_sync(rig);
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
		OK(rig, ibv_destroy_ah(end.ah));
		for (size_t i = 0; i < 64; i++) { /* one of these gets the old one's memory */
			CHECK(rig, again[i] = malloc(8 * (i + 1)));
			memset(again[i], 0xff, 8 * (i + 1));
		}
		for (size_t i = 0; i < 64; i++)
			free(again[i]);
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		attr.grh.dgid = end.peer.gid;
		attr.grh.hop_limit = 1;
		CHECK(rig, (end.ah = ibv_create_ah(end.pd, &attr)));
	} else {
		union ibv_gid gid;
		struct ibv_wc wc;

		OK(rig, end_recv(&end, 1, 0, GRH + 8));
		rig_sync(rig);
		wc = wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		CHECK(rig, (end.ah = (ibv_destroy_ah(end.ah),
				      ibv_create_ah_from_wc(end.pd, &wc, (struct ibv_grh *)end.buf,
							    1))));
		/* The source address is the one that the peer reported. */
		memcpy(&gid, end.buf + 8, sizeof(gid));
		CHECK(rig, !memcmp(&gid, &end.peer.gid, sizeof(gid)) ||
				   !memcmp(end.buf + 32, end.peer.gid.raw + 12, 4));
	}
	rig_sync(rig);
	end_close(&end);
}

enum { LISTED = 100, SPOILT = 90 };

/* The list's datagrams have two lengths, and every seventh goes to a QPN that no QP has. */
static uint32_t listed_length(uint32_t i)
{
	return i % 10 < 8 ? 256 : 100;
}

static bool listed_arrives(uint32_t i)
{
	return i % 7 != 3 && i < SPOILT;
}

static void list_post(struct end *end)
{
	static struct ibv_send_wr wr[LISTED];
	static struct ibv_sge sge[LISTED];
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < LISTED; i++) {
		size_t at = (size_t)i * 256;

		pattern_fill(end->buf + at, listed_length(i), i);
		end_request(end, IBV_WR_SEND, i, at, listed_length(i), 0, &wr[i], &sge[i]);
		wr[i].wr.ud.remote_qpn += i % 7 == 3 ? 5 : 0;
		wr[i].next = i < LISTED - 1 ? &wr[i + 1] : NULL;
	}
	sge[SPOILT].lkey ^= 0x100;
	OK(end->rig, ibv_post_send(end->qp, wr, &bad));
}

/* A list is sent as if each request had been posted by itself: order, lengths, destinations, and
 * where it ends. */
static void ud_list(struct rig *rig)
{
	static const struct end_options opt = {
		.type = IBV_QPT_UD, .send_depth = 128, .recv_depth = 128};
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		rig_sync(rig);
		list_post(&end);
		for (uint32_t i = 0; i < LISTED; i++)
			wc_expect(&end, end.scq, i,
				  i < SPOILT	? IBV_WC_SUCCESS
				  : i == SPOILT ? IBV_WC_LOC_PROT_ERR
						: IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_SQE);
	} else {
		for (uint32_t i = 0; i < LISTED; i++)
			OK(rig, end_recv(&end, i, (size_t)i * 512, GRH + 256));
		rig_sync(rig);
		for (uint32_t i = 0, place = 0; i < LISTED; i++) {
			if (!listed_arrives(i))
				continue;
			const uint8_t *at = end.buf + (size_t)place * 512 + GRH;
			struct ibv_wc wc = wc_expect(&end, end.rcq, place++, IBV_WC_SUCCESS);

			CHECK_EQ(rig, wc.byte_len, GRH + listed_length(i));
			CHECK(rig, pattern_holds(at, listed_length(i), i));
		}
		wc_none(&end, end.rcq);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Datagrams that are posted one by one while a thread polls may wait for one another; all go soon,
 * in order, though their program doesn't poll again, and whether it posts many or few. */
static void ud_together(struct rig *rig)
{
	enum { ROUNDS = 60, MOST = 70, POLLS = 500, PLACE = 128 };
	static const struct end_options opt = {
		.type = IBV_QPT_UD, .send_depth = MOST, .recv_depth = MOST};
	struct ibv_wc wc;
	struct end end;

	end_pair(&end, rig, &opt);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t count = 1 + round * 7 % MOST;

		for (uint32_t i = 0; rig->role == RIG_B && i < count; i++)
			OK(rig, end_recv(&end, i, (size_t)i * PLACE, GRH + PLACE / 2));
		rig_sync(rig);
		/* It is found idle by some of the posts, and polling by others. */
		for (int i = 0; rig->role == RIG_A && i < POLLS * (int)(round % 3); i++)
			CHECK_EQ(rig, ibv_poll_cq(end.scq, 1, &wc), 0);
		for (uint32_t i = 0; i < count; i++) {
			if (rig->role == RIG_A) {
				pattern_fill(end.buf + (size_t)i * PLACE, PLACE / 2, round + i);
				OK(rig,
				   end_send(&end, IBV_WR_SEND, i, (size_t)i * PLACE, PLACE / 2, 0));
				continue;
			}
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end.buf + (size_t)i * PLACE + GRH, PLACE / 2,
						 round + i));
		}
		rig_sync(rig); /* the sender doesn't poll until all have come */
		for (uint32_t i = 0; rig->role == RIG_A && i < count; i++)
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	end_close(&end);
}

/* Datagrams as fast as possible: those that arrive are whole and in order, and the sender doesn't
 * stop. */
static void flood(struct rig *rig, const struct end_options *opt, uint32_t size)
{
	enum { COUNT = 20000 };
	struct end end;

	end_pair(&end, rig, opt);
	if (rig->role == RIG_A) {
		rig_sync(rig); /* the first messages find receives */
		for (uint64_t posted = 0, done = 0; done < COUNT;) {
			struct ibv_wc wc;

			if (posted < COUNT && posted - done < 32) {
				uint32_t number = (uint32_t)posted;
				uint8_t *at = end.buf + posted % 32 * 1024;

				memcpy(at, &number, sizeof(number));
				memcpy(at + size - 4, &number, sizeof(number));
				OK(rig, end_send(&end, IBV_WR_SEND, posted++,
						 (size_t)(at - end.buf), size, 0));
				continue;
			}
			wc = wc_wait(&end, end.scq);
			CHECK(rig, wc.status == IBV_WC_SUCCESS && wc.wr_id == done++);
		}
		rig_sync(rig);
	} else {
		size_t before = opt == &ud ? GRH : 0;
		int64_t last = -1;

		for (uint64_t id = 0; id < 32; id++)
			OK(rig, end_recv(&end, id, id * 1024, (uint32_t)before + size));
		rig_sync(rig);
		/* The sender may get a processor late; what comes ends by silence. */
		for (double quiet = now_ms(); last < 0 || now_ms() - quiet < 100;) {
			uint32_t first, second;
			struct ibv_wc wc;

			if (ibv_poll_cq(end.rcq, 1, &wc) == 0)
				continue;
			quiet = now_ms();
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			memcpy(&first, end.buf + wc.wr_id * 1024 + before, sizeof(first));
			memcpy(&second, end.buf + wc.wr_id * 1024 + before + size - 4,
			       sizeof(second));
			CHECK(rig, first == second && (int64_t)first > last);
			last = first;
			OK(rig, end_recv(&end, wc.wr_id, wc.wr_id * 1024, (uint32_t)before + size));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

static void ud_flood(struct rig *rig)
{
	flood(rig, &ud, 500);
}

static void uc_flood(struct rig *rig)
{
	flood(rig, &uc, 700);
}

/* UC ------------------------------------------------------------------------------------------ */

/* Without a receive messages are lost, RDMA WRITEs are not, and later messages are correct. */
static void uc_lossy(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, &uc);
	if (rig->role == RIG_A) {
		for (uint64_t id = 0; id < 10; id++) {
			OK(rig, end_send(&end, id % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
					 id, 0, id % 3 ? 8 : 40000, 0));
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		rig_sync(rig);
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 16, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	} else {
		rig_sync(rig);
		/* Messages that A has sent may still be in flight: they are lost when they
		 * arrive. */
		wc_none(&end, end.rcq);
		OK(rig, end_recv(&end, 7, 0, 64));
		wc_none(&end, end.rcq);
		rig_sync(rig);
		CHECK_EQ(rig, wc_expect(&end, end.rcq, 7, IBV_WC_SUCCESS).byte_len, 16);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Faulty requests are dropped at the peer; the sender isn't informed, both QPs continue. */
static void uc_refused_silently(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &uc);
	OK(rig, end_recv(&end, 5, 0, 64));
	OK(rig, end_recv(&end, 6, 0, 64));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (uint64_t id = 0; id < 4; id++) {
			end_request(&end, id % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
				    id, 0, id / 2 ? 8 : 40000, 0, &wr, &sge);
			wr.wr.rdma.rkey ^= 0x40;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		}
		OK(rig, end_send(&end, IBV_WR_SEND, 9, 0, 8, 0));
		wc_expect(&end, end.scq, 9, IBV_WC_SUCCESS);
	} else {
		CHECK_EQ(rig, wc_expect(&end, end.rcq, 5, IBV_WC_SUCCESS).byte_len, 8);
	}
	rig_sync(rig);
	CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	end_close(&end);
}

/* To a receive with a foreign lkey: the receiver fails, the sender isn't informed. */
static void uc_receive_lkey(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, &uc);
	if (rig->role == RIG_B) {
		struct ibv_sge sge = end_sge(&end, 0, 64);
		struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;

		sge.lkey ^= 0x40;
		OK(rig, ibv_post_recv(end.qp, &wr, &bad));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 64, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.rcq, 5, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	}
	rig_sync(rig);
	/* Sending to a QP that has left doesn't fail either. */
	if (rig->role == RIG_A) {
		for (uint64_t id = 0; id < 3; id++) {
			OK(rig, end_send(&end, id ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, id, 0,
					 id == 2 ? 40000 : 8, 0));
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		}
		OK(rig, end_send(&end, IBV_WR_SEND, 4, 0, 40000, 0));
		wc_expect(&end, end.scq, 4, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test loose_tests[] = {
	{"ud_data", ud_data},
	{"ud_dropped", ud_dropped},
	{"ud_receive_lkey", ud_receive_lkey},
	{"ud_send_queue_error", ud_send_queue_error},
	{"ud_too_long", ud_too_long},
	{"ud_refused", ud_refused},
	{"ud_handle_ends", ud_handle_ends},
	{"ud_list", ud_list},
	{"ud_together", ud_together},
	{"ud_flood", ud_flood},
	{"uc_send_queue_error", uc_send_queue_error},
	{"uc_lossy", uc_lossy},
	{"uc_refused_silently", uc_refused_silently},
	{"uc_receive_lkey", uc_receive_lkey},
	{"uc_flood", uc_flood},
	{NULL, NULL},
};
