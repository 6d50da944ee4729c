/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast by verbs alone: each attached QP gets one copy, no other QP gets any; wrong use has its
 * errno. Each test over IPv4 groups and IPv6 groups, on every carrier. See rig.h.
 *
 * This is a separate program because it must run in a network of its own: datagrams to a group
 * leave the host.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { GRH = 40, SIZE = 256, MULTICAST_QPN = 0xffffff, DEEP = 512 };

static const struct end_options ud = {.type = IBV_QPT_UD,
				      .recv_depth = DEEP,
				      .send_depth = DEEP,
				      .cqe = 2 * DEEP,
				      .bytes = 192 * 1024};

/* ------------------------------------------------------------------ groups */

/* The address family under test. */
struct family {
	bool v4;
	uint8_t sgid_index;
};

static union ibv_gid group_of(const struct family *f, unsigned int number)
{
	union ibv_gid gid = {.raw = {0xff, 0x12}};

	if (f->v4)
		gid = (union ibv_gid){.raw = {[10] = 0xff, 0xff, 239, 77}};
	gid.raw[14] = (uint8_t)(number >> 8);
	gid.raw[15] = (uint8_t)number;
	return gid;
}

static struct family family(struct rig *rig, bool v4)
{
	union ibv_gid gid;

	if (!v4)
		return (struct family){false, 0};
	for (int i = 0; i < 32; i++)
		if (!ibv_query_gid(rig->ctx, 1, i, &gid) && gid.raw[10] == 0xff &&
		    gid.raw[11] == 0xff && gid.raw[12] != 127)
			return (struct family){true, (uint8_t)i};
	rig_fail(rig, __FILE__, __LINE__, "no GID is an IPv4 address of a card");
}

static struct ibv_ah *handle_for(struct end *end, const struct family *f, unsigned int number)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = group_of(f, number), .sgid_index = f->sgid_index, .hop_limit = 3}};
	struct ibv_ah *ah = ibv_create_ah(end->pd, &attr);

	CHECK(end->rig, ah);
	return ah;
}

static int attach(struct end *end, const struct family *f, unsigned int number)
{
	union ibv_gid gid = group_of(f, number);

	return ibv_attach_mcast(end->qp, &gid, 0);
}

static int detach(struct end *end, const struct family *f, unsigned int number)
{
	union ibv_gid gid = group_of(f, number);

	return ibv_detach_mcast(end->qp, &gid, 0);
}

/* ------------------------------------------------------------------ datagrams */

static void post(struct end *end, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t id,
		 unsigned int flags)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	pattern_fill(end->buf, SIZE, (uint32_t)id);
	end_request(end, IBV_WR_SEND_WITH_IMM, id, 0, SIZE, 0, &wr, &sge);
	wr.send_flags = flags;
	wr.imm_data = htonl((uint32_t)id);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
}

static void say(struct end *end, struct ibv_ah *ah, uint64_t id)
{
	post(end, ah, MULTICAST_QPN, QKEY, id, IBV_SEND_SIGNALED);
	wc_expect(end, end->scq, id, IBV_WC_SUCCESS);
}

enum { RECEIVE = 16384 }; /* offset in the buffer */

static void listen_for(struct end *end, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		OK(end->rig, end_recv(end, i, RECEIVE + i * (GRH + SIZE), GRH + SIZE));
}

/* Checks that the next datagram is this one, and was addressed to the group. */
static void hear(struct end *end, const struct family *f, unsigned int number, uint64_t id)
{
	const struct rig *rig = end->rig;
	struct ibv_wc wc = wc_wait(end, end->rcq);
	const uint8_t *at = end->buf + RECEIVE + wc.wr_id * (GRH + SIZE);
	union ibv_gid gid = group_of(f, number);

	CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc.byte_len, GRH + SIZE);
	CHECK_EQ(rig, ntohl(wc.imm_data), id);
	CHECK(rig, wc.wc_flags & IBV_WC_GRH);
	CHECK_EQ(rig, wc.qp_num, end->qp->qp_num);
	CHECK(rig, f->v4 ? !memcmp(at + 36, gid.raw + 12, 4) : !memcmp(at + 24, gid.raw, 16));
	CHECK(rig, pattern_holds(at + GRH, SIZE, (uint32_t)id));
}

/* ------------------------------------------------------------------ tests */

/* Each end sends a datagram, and both receive it: the sender is attached, too. */
static void everybody(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end;

	end_pair(&end, rig, &ud);
	struct ibv_ah *ah = handle_for(&end, &f, 1);

	listen_for(&end, 20);
	OK(rig, attach(&end, &f, 1));
	rig_sync(rig);
	for (unsigned int i = 0; i < 20; i++) {
		if (i % 2 == (unsigned int)rig->role)
			say(&end, ah, 100 + i);
		hear(&end, &f, 1, 100 + i);
		rig_sync(rig);
	}
	wc_none(&end, end.rcq);
	OK(rig, detach(&end, &f, 1));
	OK(rig, ibv_destroy_ah(ah));
	end_close(&end);
}

/* Of several queue pairs the attached ones get a copy each. */
static void some(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end[3];

	for (int i = 0; i < 3; i++) {
		end_pair(&end[i], rig, &ud);
		listen_for(&end[i], 4);
	}
	struct ibv_ah *ah = handle_for(&end[0], &f, 2), *other = handle_for(&end[0], &f, 3);

	if (rig->role == RIG_B) {
		OK(rig, attach(&end[0], &f, 2));
		OK(rig, attach(&end[2], &f, 2));
		OK(rig, attach(&end[1], &f, 3));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		say(&end[0], ah, 7);
		say(&end[0], other, 8);
	} else {
		hear(&end[0], &f, 2, 7);
		hear(&end[1], &f, 3, 8);
		hear(&end[2], &f, 2, 7);
	}
	rig_sync(rig);
	for (int i = 0; i < 3; i++)
		wc_none(&end[i], end[i].rcq);
	/* A queue pair that was detached receives nothing; the other does. */
	if (rig->role == RIG_B)
		OK(rig, detach(&end[0], &f, 2));
	rig_sync(rig);
	if (rig->role == RIG_A)
		say(&end[0], ah, 9);
	else
		hear(&end[2], &f, 2, 9);
	wc_none(&end[0], end[0].rcq);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, detach(&end[2], &f, 2));
		OK(rig, detach(&end[1], &f, 3));
	}
	OK(rig, ibv_destroy_ah(ah));
	OK(rig, ibv_destroy_ah(other));
	for (int i = 0; i < 3; i++)
		end_close(&end[i]);
}

/* Dropped datagrams: another Q_Key, no receive, another QPN than the groups', an address that is no
 * group. The next correct one arrives. */
static void dropped(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end;

	end_pair(&end, rig, &ud);
	struct ibv_ah *ah = handle_for(&end, &f, 4);

	if (rig->role == RIG_B)
		OK(rig, attach(&end, &f, 4));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		say(&end, ah, 1); /* no receive */
		rig_sync(rig);
		rig_sync(rig);
		post(&end, ah, MULTICAST_QPN, QKEY ^ 1, 2, IBV_SEND_SIGNALED);
		post(&end, ah, end.peer.qpn, QKEY, 3, IBV_SEND_SIGNALED);
		post(&end, end.ah, MULTICAST_QPN, QKEY, 4, IBV_SEND_SIGNALED);
		for (uint64_t id = 2; id <= 4; id++)
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		/* A controlled Q_Key stands for the QP's own. */
		post(&end, ah, MULTICAST_QPN, 0x80000000, 5, IBV_SEND_SIGNALED);
		wc_expect(&end, end.scq, 5, IBV_WC_SUCCESS);
	} else {
		rig_sync(rig);
		wc_none(&end, end.rcq);
		listen_for(&end, 4);
		rig_sync(rig);
		hear(&end, &f, 4, 5);
		wc_none(&end, end.rcq);
		OK(rig, detach(&end, &f, 4));
	}
	rig_sync(rig);
	OK(rig, ibv_destroy_ah(ah));
	end_close(&end);
}

/* A queue pair that is attached before it can receive. */
static void too_early(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end;

	end_open(&end, rig, &ud);
	struct ibv_ah *ah = handle_for(&end, &f, 5);

	OK(rig, attach(&end, &f, 5)); /* in RESET */
	end_init(&end);
	listen_for(&end, 2);
	end_meet(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		end_rtr(&end);
		end_rts(&end);
		say(&end, ah, 1);
		hear(&end, &f, 5, 1);
		rig_sync(rig);
		rig_sync(rig);
		say(&end, ah, 2);
		hear(&end, &f, 5, 2);
	} else {
		rig_sync(rig);
		wc_none(&end, end.rcq);
		end_rtr(&end);
		rig_sync(rig);
		hear(&end, &f, 5, 2);
	}
	rig_sync(rig);
	OK(rig, detach(&end, &f, 5));
	OK(rig, ibv_destroy_ah(ah));
	end_close(&end);
}

/* Many at once, of which none is lost on one host: a full ring delays its sender. */
static void many(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end;

	end_pair(&end, rig, &ud);
	struct ibv_ah *ah = handle_for(&end, &f, 6);

	listen_for(&end, DEEP);
	OK(rig, attach(&end, &f, 6));
	rig_sync(rig);
	/* A datagram's memory may be reused only after its completion, so all send the same
	 * bytes. */
	for (unsigned int i = 0; rig->role == RIG_A && i < DEEP; i++)
		post(&end, ah, MULTICAST_QPN, QKEY, 3, IBV_SEND_SIGNALED);
	for (unsigned int i = 0; rig->role == RIG_A && i < DEEP; i++)
		wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
	for (unsigned int i = 0; i < DEEP; i++)
		hear(&end, &f, 6, 3);
	rig_sync(rig);
	OK(rig, detach(&end, &f, 6));
	OK(rig, ibv_destroy_ah(ah));
	end_close(&end);
}

/* Unsignaled requests, after which the queue pair ends: they were sent. */
static void last_words(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end;

	end_pair(&end, rig, &ud);
	if (rig->role == RIG_B) {
		listen_for(&end, 10);
		OK(rig, attach(&end, &f, 7));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct ibv_ah *ah = handle_for(&end, &f, 7);

		for (unsigned int i = 0; i < 10; i++)
			post(&end, ah, MULTICAST_QPN, QKEY, 11, 0);
		OK(rig, ibv_destroy_ah(ah));
	} else {
		for (unsigned int i = 0; i < 10; i++)
			hear(&end, &f, 7, 11);
		OK(rig, detach(&end, &f, 7));
	}
	end_close(&end);
}

static void bad_input(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	union ibv_gid gid = group_of(&f, 8);
	struct ibv_device_attr attr;
	struct end end, rc;

	end_open(&end, rig, &ud);
	end_open(&rc, rig, NULL);
	OK(rig, ibv_query_device(rig->ctx, &attr));
	CHECK(rig, attr.max_mcast_grp >= 1000 && attr.max_mcast_qp_attach >= 2 &&
			   attr.max_total_mcast_qp_attach >= attr.max_mcast_grp);
	CHECK_EQ(rig, ibv_attach_mcast(rc.qp, &gid, 0), EINVAL);
	CHECK_EQ(rig, errno, EINVAL);
	CHECK_EQ(rig, ibv_attach_mcast(end.qp, &end.gid, 0), EINVAL);
	CHECK_EQ(rig, ibv_detach_mcast(end.qp, &gid, 0), EINVAL);
	OK(rig, ibv_attach_mcast(end.qp, &gid, 0));
	OK(rig, ibv_attach_mcast(end.qp, &gid, 0)); /* as the kernel */
	CHECK_EQ(rig, ibv_destroy_qp(end.qp), EBUSY);
	OK(rig, ibv_detach_mcast(end.qp, &gid, 0));
	CHECK_EQ(rig, ibv_detach_mcast(end.qp, &gid, 0), EINVAL);
	end_close(&rc);
	end_close(&end);
}

/* A queue pair can't be connected to a group. */
static void not_a_peer(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end;

	end_open(&end, rig, NULL);
	end_init(&end);
	end_meet(&end);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = end.peer.qpn,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 1,
				   .ah_attr = {.is_global = 1,
					       .port_num = 1,
					       .grh = {.dgid = group_of(&f, 9),
						       .sgid_index = f.sgid_index,
						       .hop_limit = 3}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, mask), EINVAL);
	end_close(&end);
}

/* More groups than the kernel lets a socket join. */
static void a_thousand(struct rig *rig, bool v4)
{
	enum { FIRST = 1000, COUNT = 1000 };
	static const unsigned int some_of_them[] = {0, 1, 19, 20, 21, 500, 999};
	struct family f = family(rig, v4);
	struct end end;

	end_pair(&end, rig, &ud);
	listen_for(&end, 16);
	for (unsigned int i = 0; rig->role == RIG_B && i < COUNT; i++)
		OK(rig, attach(&end, &f, FIRST + i));
	rig_sync(rig);
	for (unsigned int i = 0; i < sizeof(some_of_them) / sizeof(some_of_them[0]); i++) {
		unsigned int number = FIRST + some_of_them[i];

		if (rig->role == RIG_A) {
			struct ibv_ah *ah = handle_for(&end, &f, number);

			say(&end, ah, 50 + i);
			OK(rig, ibv_destroy_ah(ah));
		} else {
			hear(&end, &f, number, 50 + i);
		}
	}
	rig_sync(rig);
	for (unsigned int i = 0; rig->role == RIG_B && i < COUNT; i++)
		OK(rig, detach(&end, &f, FIRST + i));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct ibv_ah *ah = handle_for(&end, &f, FIRST);

		say(&end, ah, 99);
		OK(rig, ibv_destroy_ah(ah));
	}
	wc_none(&end, end.rcq);
	rig_sync(rig);
	end_close(&end);
}

/* Replaces the end's QP, before it is connected, by one with these flags. */
static void qp_replace(struct end *end, uint32_t flags, uint32_t source_qpn)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.cap = end->cap,
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = end->pd,
		.create_flags = flags,
		.source_qpn = source_qpn,
	};

	OK(end->rig, ibv_destroy_qp(end->qp));
	end->qp = ibv_create_qp_ex(end->pd->context, &attr);
	if (!end->qp)
		rig_fail(end->rig, __FILE__, __LINE__, "no QP: %s", strerror(errno));
}

/* A sender that is attached itself doesn't get its own datagram, but others do, also those of its
 * process. */
static void self_blocked(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end, other;

	end_open(&end, rig, &ud);
	qp_replace(&end, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0);
	end_connect(&end);
	end_pair(&other, rig, &ud);
	listen_for(&end, 4);
	listen_for(&other, 4);
	OK(rig, attach(&end, &f, 31));
	OK(rig, attach(&other, &f, 31));
	rig_sync(rig);
	struct ibv_ah *ah = handle_for(&end, &f, 31);

	if (rig->role == RIG_A)
		say(&end, ah, 11);
	hear(&other, &f, 31, 11);
	if (rig->role == RIG_B)
		hear(&end, &f, 31, 11);
	rig_sync(rig);
	wc_none(&end, end.rcq);
	wc_none(&other, other.rcq);
	OK(rig, ibv_destroy_ah(ah));
	OK(rig, detach(&end, &f, 31));
	OK(rig, detach(&other, &f, 31));
	rig_sync(rig);
	end_close(&other);
	end_close(&end);
}

/* A's second QP sends with its first one's number: the answer goes to the first. */
static void source_number(struct rig *rig, bool v4)
{
	struct family f = family(rig, v4);
	struct end end, other;

	end_pair(&end, rig, &ud);
	end_open(&other, rig, &ud);
	qp_replace(&other, IBV_QP_CREATE_SOURCE_QPN, end.qp->qp_num);
	end_connect(&other);
	listen_for(&end, 2);
	listen_for(&other, 2);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		post(&other, other.ah, other.peer.qpn, QKEY, 21, IBV_SEND_SIGNALED);
		wc_expect(&other, other.scq, 21, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS).src_qp, end.peer.qpn);
	} else {
		struct ibv_wc wc = wc_expect(&other, other.rcq, 0, IBV_WC_SUCCESS);

		CHECK_EQ(rig, wc.src_qp, end.peer.qpn);
		post(&end, end.ah, wc.src_qp, QKEY, 22, IBV_SEND_SIGNALED);
		wc_expect(&end, end.scq, 22, IBV_WC_SUCCESS);
	}
	/* To a group as well. */
	OK(rig, attach(&end, &f, 32));
	rig_sync(rig);
	struct ibv_ah *ah = handle_for(&other, &f, 32);

	if (rig->role == RIG_A)
		say(&other, ah, 23);
	else
		CHECK_EQ(rig, wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS).src_qp, end.peer.qpn);
	rig_sync(rig);
	OK(rig, ibv_destroy_ah(ah));
	OK(rig, detach(&end, &f, 32));
	rig_sync(rig);
	end_close(&other);
	end_close(&end);
}

#define BOTH(name)                               \
	static void name##_ipv4(struct rig *rig) \
	{                                        \
		name(rig, true);                 \
	}                                        \
	static void name##_ipv6(struct rig *rig) \
	{                                        \
		name(rig, false);                \
	}
BOTH(everybody)
BOTH(some)
BOTH(dropped)
BOTH(too_early)
BOTH(many)
BOTH(last_words)
BOTH(bad_input)
BOTH(not_a_peer)
BOTH(a_thousand)
BOTH(self_blocked)
BOTH(source_number)

#define TEST(name)                         \
	{#name "_ipv4", name##_ipv4},      \
	{                                  \
#name "_ipv6", name##_ipv6 \
	}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		TEST(everybody),  TEST(some),	      TEST(dropped),	   TEST(too_early),
		TEST(many),	  TEST(last_words),   TEST(bad_input),	   TEST(not_a_peer),
		TEST(a_thousand), TEST(self_blocked), TEST(source_number), {NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
