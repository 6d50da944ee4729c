/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups at the daemon: results of attaching, the table of groups, which interface joins,
 * whose socket gets a packet for a group, and clean-up. In a network namespace of the test's own,
 * with only loopback.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/call.h"
#include "netns.h"
#include "proto/cm.h"
#include "raw.h"
#include "shm/groups.h"
#include "shm/pub.h"

enum { PORT = 4791, UD = 4, GROUP_QPN = 0xffffff };

/* ------------------------------------------------------------------ a process */

struct member {
	struct raw_process p;
	int regions, wire, park;
	const struct groups *table;
	int ctx;
	uint32_t pd, cq, qp;
};

static void send_attach(struct member *m, const struct proto_attach *body)
{
	const int fds[] = {m->p.table, m->p.doorbell, m->regions, m->park};

	m->p.fd = raw_connect(&server);
	raw_attach_send(m->p.fd, body, fds, m->park < 0 ? 3 : 4);
}

static void take_answer(struct member *m)
{
	struct {
		struct proto_reply head;
		struct proto_attach_resp resp;
	} reply;
	int fds[PROTO_MAX_FDS];

	assert_int_equal(packet_receive(m->p.fd, &reply, sizeof(reply), fds, 0), sizeof(reply));
	assert_int_equal(reply.head.result, 0);
	assert_int_equal(reply.resp.wire,
			 PROTO_WIRE | PROTO_WIRE_IPV6 | PROTO_WIRE_PARK | PROTO_GROUPS);
	m->p.resp = reply.resp;
	m->p.event_fd = fds[0];
	m->wire = fds[1];
	m->park = fds[2];
	m->table = mmap(NULL, GROUPS_SIZE, PROT_READ, MAP_SHARED, fds[3], 0);
	assert_true(m->table != MAP_FAILED);
	/* Only the daemon can write the table. */
	assert_true(mmap(NULL, GROUPS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[3], 0) ==
		    MAP_FAILED);
	assert_int_equal(ftruncate(fds[3], 0), -1);
	close(fds[3]);
}

static uint32_t make_qp(const struct member *m, uint8_t type)
{
	const struct ib_uverbs_create_qp body = {.pd_handle = m->pd,
						 .send_cq_handle = m->cq,
						 .recv_cq_handle = m->cq,
						 .max_send_wr = 4,
						 .max_send_sge = 1,
						 .qp_type = type};
	struct ib_uverbs_create_qp_resp resp;

	assert_int_equal(raw_call(m->ctx, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	return resp.qp_handle;
}

static void begin(struct member *m)
{
	static const struct proto_attach fresh = {.abi = PROTO_ABI, .flags = PROTO_ATTACH_LOOPS};

	*m = (struct member){.p.table = raw_table(),
			     .p.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
			     .regions = raw_memory(PUB_REGIONS_SIZE),
			     .park = -1};
	send_attach(m, &fresh);
	take_answer(m);
	m->ctx = raw_context(&server, &m->p);
	m->pd = raw_pd(m->ctx);
	m->cq = raw_cq(m->ctx, -1);
	m->qp = make_qp(m, UD);
}

static void end(struct member *m)
{
	close(m->ctx);
	raw_detach(&m->p);
	close(m->regions);
	close(m->wire);
	close(m->park);
	munmap((void *)m->table, GROUPS_SIZE);
}

/* ------------------------------------------------------------------ groups */

static void gid_of(const char *text, uint8_t gid[16])
{
	char mapped[64];

	snprintf(mapped, sizeof(mapped), "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
	assert_int_equal(inet_pton(AF_INET6, mapped, gid), 1);
}

static int attach_qp(const struct member *m, uint32_t qp, const char *group)
{
	struct ib_uverbs_attach_mcast body = {.qp_handle = qp};

	gid_of(group, body.gid);
	return raw_call(m->ctx, IB_USER_VERBS_CMD_ATTACH_MCAST, &body, sizeof(body), NULL, 0);
}

static int detach_qp(const struct member *m, uint32_t qp, const char *group)
{
	struct ib_uverbs_detach_mcast body = {.qp_handle = qp};

	gid_of(group, body.gid);
	return raw_call(m->ctx, IB_USER_VERBS_CMD_DETACH_MCAST, &body, sizeof(body), NULL, 0);
}

static bool in_table(const struct groups *table, const char *group, uint32_t slot)
{
	uint64_t slots[GROUPS_WORDS] = {0};
	uint8_t gid[16];

	gid_of(group, gid);
	return groups_find(table, gid, slots) && slots[slot / 64] >> slot % 64 & 1;
}

/* Whether loopback takes the group's packets: lines of /proc as the kernel writes them. */
static bool listens(const char *group)
{
	bool ipv6 = strchr(group, ':'), found = false;
	FILE *file = fopen(ipv6 ? "/proc/self/net/igmp6" : "/proc/self/net/igmp", "re");
	char wanted[64], line[256];
	uint8_t gid[16];
	uint32_t word;

	assert_non_null(file);
	gid_of(group, gid);
	memcpy(&word, gid + 12, sizeof(word));
	int n = snprintf(wanted, sizeof(wanted), ipv6 ? " " : "\t%08X ", word);

	for (int i = 0; ipv6 && i < 16; i++)
		n += snprintf(wanted + n, sizeof(wanted) - (size_t)n, "%02x", gid[i]);
	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, wanted);
	fclose(file);
	return found;
}

static void expect_silence(const char *group)
{
	for (int i = 0; i < RAW_NAPS && listens(group); i++)
		raw_nap();
	assert_false(listens(group));
}

/* Groups that loopback listens for, beside those of all hosts. */
static int count_v4(void)
{
	FILE *file = fopen("/proc/self/net/igmp", "re");
	char line[256];
	int count = -1;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += line[0] == '\t';
	fclose(file);
	return count;
}

static void send_to_group(const char *group, uint32_t number)
{
	const uint32_t packet[3] = {htonl(0x6400ffff), htonl(GROUP_QPN), number};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	const struct ip_mreqn by = {.imr_ifindex = (int)if_nametoindex("lo")};
	int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, group, &to.sin_addr);
	assert_int_equal(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof(by)), 0);
	assert_int_equal(sendto(from, packet, sizeof(packet), 0, (const void *)&to, sizeof(to)),
			 sizeof(packet));
	close(from);
}

/* The number of the waiting packet; 0: there is none. */
static uint32_t take_packet(const struct member *m)
{
	uint32_t got[3];

	return recv(m->wire, got, sizeof(got), MSG_DONTWAIT) == sizeof(got) ? got[2] : 0;
}

/* ------------------------------------------------------------------ tests */

static void answers(void **state)
{
	static const char *const none[] = {"10.0.0.1", "240.0.0.1", "fe80::1", "::", "::ffff:0:1"};
	struct member a, b;

	(void)state;
	begin(&a);
	begin(&b);
	uint32_t rc = make_qp(&a, 2);

	assert_int_equal(attach_qp(&a, rc, "224.1.1.1"), -EINVAL);
	assert_int_equal(attach_qp(&a, a.cq, "224.1.1.1"), -EINVAL);
	assert_int_equal(attach_qp(&a, 0, "224.1.1.1"), -EINVAL);
	assert_int_equal(attach_qp(&b, 0x7fffffff, "224.1.1.1"), -EINVAL);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(attach_qp(&a, a.qp, none[i]), -EINVAL);
	assert_int_equal(detach_qp(&a, a.qp, "224.1.1.1"), -EINVAL);
	assert_int_equal(attach_qp(&a, a.qp, "224.1.1.1"), 0);
	assert_int_equal(attach_qp(&a, a.qp, "224.1.1.1"), 0); /* as the kernel */
	assert_int_equal(attach_qp(&a, a.qp, "ff0e::1"), 0);
	assert_int_equal(detach_qp(&b, b.qp, "224.1.1.1"), -EINVAL); /* another's */
	assert_int_equal(raw_destroy(a.ctx, IB_USER_VERBS_CMD_DESTROY_QP, a.qp), -EBUSY);
	assert_int_equal(detach_qp(&a, a.qp, "224.1.1.1"), 0);
	assert_int_equal(detach_qp(&a, a.qp, "224.1.1.1"), -EINVAL);
	assert_int_equal(raw_destroy(a.ctx, IB_USER_VERBS_CMD_DESTROY_QP, a.qp), -EBUSY);
	assert_int_equal(detach_qp(&a, a.qp, "ff0e::1"), 0);
	assert_int_equal(raw_destroy(a.ctx, IB_USER_VERBS_CMD_DESTROY_QP, a.qp), 0);
	end(&a);
	end(&b);
}

static void the_table(void **state)
{
	struct member a, b;

	(void)state;
	begin(&a);
	begin(&b);
	uint32_t more = make_qp(&a, UD);

	assert_int_equal(a.table->magic, GROUPS_MAGIC);
	assert_int_equal(atomic_load(&a.table->settled), 1);
	assert_int_equal(attach_qp(&a, a.qp, "224.1.1.1"), 0);
	assert_int_equal(attach_qp(&a, more, "224.1.1.1"), 0);
	assert_int_equal(attach_qp(&b, b.qp, "224.1.1.1"), 0);
	/* All processes see one table. */
	assert_true(in_table(b.table, "224.1.1.1", a.p.resp.slot));
	assert_true(in_table(a.table, "224.1.1.1", b.p.resp.slot));
	assert_false(in_table(a.table, "224.1.1.2", a.p.resp.slot));
	assert_int_equal(detach_qp(&a, a.qp, "224.1.1.1"), 0);
	assert_true(in_table(b.table, "224.1.1.1", a.p.resp.slot));
	assert_int_equal(detach_qp(&a, more, "224.1.1.1"), 0);
	assert_false(in_table(b.table, "224.1.1.1", a.p.resp.slot));
	assert_true(in_table(a.table, "224.1.1.1", b.p.resp.slot));
	uint32_t slot = b.p.resp.slot;

	end(&b);
	for (int i = 0; i < RAW_NAPS && in_table(a.table, "224.1.1.1", slot); i++)
		raw_nap();
	assert_false(in_table(a.table, "224.1.1.1", slot));
	end(&a);
}

static void who_gets_packets(void **state)
{
	struct member a, b, c;

	(void)state;
	begin(&a);
	begin(&b);
	begin(&c);
	assert_int_equal(attach_qp(&a, a.qp, "224.1.1.1"), 0);
	assert_int_equal(attach_qp(&b, b.qp, "224.1.1.1"), 0);
	assert_int_equal(attach_qp(&b, b.qp, "224.1.1.2"), 0);
	assert_true(listens("224.1.1.1"));
	send_to_group("224.1.1.1", 1);
	send_to_group("224.1.1.2", 2);
	send_to_group("224.1.1.3", 3);
	assert_int_equal(take_packet(&a), 1);
	assert_int_equal(take_packet(&a), 0);
	assert_int_equal(take_packet(&b), 1);
	assert_int_equal(take_packet(&b), 2);
	assert_int_equal(take_packet(&b), 0);
	assert_int_equal(take_packet(&c), 0);
	/* The group stays with the other, and goes with it. */
	assert_int_equal(detach_qp(&b, b.qp, "224.1.1.1"), 0);
	send_to_group("224.1.1.1", 4);
	assert_int_equal(take_packet(&a), 4);
	assert_int_equal(take_packet(&b), 0);
	assert_true(listens("224.1.1.1"));
	end(&a);
	expect_silence("224.1.1.1");
	assert_true(listens("224.1.1.2"));
	end(&b);
	end(&c);
	expect_silence("224.1.1.2");
}

static void of_both_families(void **state)
{
	struct member a;

	(void)state;
	begin(&a);
	assert_int_equal(attach_qp(&a, a.qp, "ff0e::abcd"), 0);
	assert_true(listens("ff0e::abcd"));
	assert_int_equal(detach_qp(&a, a.qp, "ff0e::abcd"), 0);
	expect_silence("ff0e::abcd");
	end(&a);
}

/* More groups than a socket can join: the process gets those as well, and the daemon keeps few more
 * descriptors. */
static void a_thousand_groups(void **state)
{
	enum { GROUPS = 1000 };
	struct member a, b;
	char group[32];

	(void)state;
	begin(&b);
	long before = raw_daemon_fds(&server);

	begin(&a);
	long fds = raw_daemon_fds(&server);

	for (int i = 0; i < GROUPS; i++) {
		snprintf(group, sizeof(group), "225.0.%d.%d", i / 250, i % 250);
		assert_int_equal(attach_qp(&a, a.qp, group), 0);
	}
	assert_int_equal(count_v4(), GROUPS);
	assert_in_range(raw_daemon_fds(&server) - fds, 1, GROUPS / 15);
	send_to_group("225.0.0.3", 1);
	send_to_group("225.0.3.249", 2);
	assert_int_equal(take_packet(&a), 1);
	assert_int_equal(take_packet(&a), 2);
	assert_int_equal(take_packet(&b), 0);
	end(&a);
	raw_expect_count(&server, "clients", 1);
	for (int i = 0; i < RAW_NAPS && count_v4(); i++) /* they are left bit by bit */
		raw_nap();
	assert_int_equal(count_v4(), 0);
	raw_expect_fds(&server, before);
	end(&b);
}

static void limits(void **state)
{
	struct member a;

	(void)state;
	begin(&a);
	for (uint32_t i = 0; i < LIMIT_MCAST_QPS; i++)
		assert_int_equal(attach_qp(&a, make_qp(&a, UD), "224.1.1.1"), 0);
	uint32_t qp = make_qp(&a, UD);

	assert_int_equal(attach_qp(&a, qp, "224.1.1.1"), -ENOMEM);
	assert_int_equal(attach_qp(&a, qp, "224.1.1.2"), 0);
	assert_int_equal(detach_qp(&a, qp, "224.1.1.1"), -EINVAL);
	end(&a);
	expect_silence("224.1.1.1");
	expect_silence("224.1.1.2");
}

/* ------------------------------------------------------------------ joining */

struct joiner {
	int fd, events;
	uint32_t id;
};

static int cm(int fd, uint32_t command, const void *body, size_t size, void *reply,
	      size_t reply_size, int *reply_fd)
{
	_Alignas(8) uint8_t packet[1024] = {0};
	const struct rdma_ucm_cmd_hdr header = {
		.cmd = command, .in = (uint16_t)size, .out = (uint16_t)reply_size};

	memcpy(packet, &header, sizeof(header));
	if (size)
		memcpy(packet + sizeof(header), body, size);
	assert_int_equal(raw_send(fd, packet, sizeof(header) + size, NULL, 0), 0);
	return raw_receive(fd, reply, reply_size, reply_fd);
}

#define CM(j, command, body, reply)                                                             \
	cm((j)->fd, RDMA_USER_CM_CMD_##command, &(body), sizeof(body), &(reply), sizeof(reply), \
	   NULL)

static void joiner_begin(struct joiner *j)
{
	const struct proto_cm_hello hello = {.abi = PROTO_ABI};
	const struct sockaddr_in in = {.sin_family = AF_INET,
				       .sin_port = htons(7),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct proto_cm_create_channel_resp channel;
	struct rdma_ucm_create_id create = {.uid = 7, .ps = RDMA_PS_UDP};
	struct rdma_ucm_create_id_resp made;
	struct rdma_ucm_resolve_addr resolve = {.dst_size = sizeof(in), .timeout_ms = 1000};

	j->fd = raw_connect_cm(&server);
	assert_int_equal(cm(j->fd, PROTO_CM_HELLO, &hello, sizeof(hello), NULL, 0, NULL), 0);
	assert_int_equal(
		cm(j->fd, PROTO_CM_CREATE_CHANNEL, NULL, 0, &channel, sizeof(channel), &j->events),
		0);
	memcpy(create.reserved, &channel.channel, sizeof(channel.channel));
	assert_int_equal(CM(j, CREATE_ID, create, made), 0);
	j->id = resolve.id = made.id;
	memcpy(&resolve.dst_addr, &in, sizeof(in));
	assert_int_equal(
		cm(j->fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, &resolve, sizeof(resolve), NULL, 0, NULL),
		0);
}

static void joiner_end(struct joiner *j)
{
	close(j->events);
	close(j->fd);
}

static uint32_t join(const struct joiner *j, const char *group, uint16_t flags)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct rdma_ucm_join_mcast body = {
		.uid = 8, .id = j->id, .addr_size = sizeof(in), .join_flags = flags};
	struct rdma_ucm_create_id_resp resp;

	inet_pton(AF_INET, group, &in.sin_addr);
	memcpy(&body.addr, &in, sizeof(in));
	assert_int_equal(CM(j, JOIN_MCAST, body, resp), 0);
	return resp.id;
}

static void joining_listens(void **state)
{
	struct joiner j, other;
	struct member a;

	(void)state;
	begin(&a);
	joiner_begin(&j);
	joiner_begin(&other);
	join(&j, "224.1.1.9", RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
	assert_false(listens("224.1.1.9"));
	const struct rdma_ucm_destroy_id leave = {
		.id = join(&j, "224.1.1.1", RDMA_MC_JOIN_FLAG_FULLMEMBER)};
	struct rdma_ucm_destroy_id_resp left;

	assert_true(listens("224.1.1.1"));
	join(&other, "224.1.1.1", RDMA_MC_JOIN_FLAG_FULLMEMBER);
	/* A member of the group without an attached QP. */
	send_to_group("224.1.1.1", 1);
	assert_int_equal(take_packet(&a), 0);
	assert_int_equal(attach_qp(&a, a.qp, "224.1.1.1"), 0);
	send_to_group("224.1.1.1", 2);
	assert_int_equal(take_packet(&a), 2);
	assert_int_equal(CM(&j, LEAVE_MCAST, leave, left), 0);
	assert_int_equal(left.events_reported, 0); /* it had not been read */
	assert_int_equal(CM(&j, LEAVE_MCAST, leave, left), -ENOENT);
	assert_true(listens("224.1.1.1"));
	/* A QP that was attached after another process joined receives as long as any member is
	 * left. */
	joiner_end(&other);
	expect_silence("224.1.1.1");
	send_to_group("224.1.1.1", 3);
	assert_int_equal(take_packet(&a), 0);
	joiner_end(&j);
	end(&a);
}

/* ------------------------------------------------------------------ the next daemon */

static void go_back(struct member *m)
{
	const struct proto_attach body = {.abi = PROTO_ABI,
					  .flags = PROTO_ATTACH_RETURN | PROTO_ATTACH_LOOPS,
					  .cookie = m->p.resp.cookie,
					  .slot = m->p.resp.slot,
					  .qpn_index = 1,
					  .key_index = 1};
	struct member old = *m;

	close(m->p.fd);
	close(m->p.event_fd);
	close(m->ctx);
	send_attach(m, &body);
	take_answer(m);
	munmap((void *)old.table, GROUPS_SIZE);
	close(m->wire);
	close(m->park);
	m->wire = old.wire;
	m->park = old.park;
	m->ctx = raw_context(&server, &m->p);
}

/* A command with the object's former values. */
static int again(const struct member *m, uint32_t command, const void *body, size_t size,
		 uint32_t handle, uint32_t number)
{
	const struct proto_return old = {handle, number};
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint8_t body[256];
	} packet;

	size_t whole = sizeof(packet.header) + size + sizeof(old);

	packet.header = (struct ib_uverbs_cmd_hdr){command, (uint16_t)(whole / 4), 512};
	memcpy(packet.body, body, size);
	memcpy(packet.body + size, &old, sizeof(old));
	assert_int_equal(raw_send(m->ctx, &packet, whole, NULL, 0), 0);
	return raw_receive(m->ctx, NULL, 0, NULL);
}

static void return_all(struct member *m, uint32_t qpn, const char *group)
{
	const struct ib_uverbs_alloc_pd pd = {0};
	const struct ib_uverbs_create_cq cq = {.cqe = 16, .comp_channel = -1};
	const struct ib_uverbs_create_qp qp = {.pd_handle = m->pd,
					       .send_cq_handle = m->cq,
					       .recv_cq_handle = m->cq,
					       .max_send_wr = 4,
					       .max_send_sge = 1,
					       .qp_type = UD};
	struct ib_uverbs_attach_mcast attach = {.qp_handle = m->qp};

	gid_of(group, attach.gid);
	assert_int_equal(again(m, IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd), m->pd, 0), 0);
	assert_int_equal(again(m, IB_USER_VERBS_CMD_CREATE_CQ, &cq, sizeof(cq), m->cq, 0), 0);
	assert_int_equal(again(m, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp), m->qp, qpn), 0);
	assert_int_equal(again(m, IB_USER_VERBS_CMD_ATTACH_MCAST, &attach, sizeof(attach), 0, 0),
			 0);
	assert_int_equal(raw_call(m->p.fd, PROTO_RETURNED, NULL, 0, NULL, 0), 0);
}

static void a_daemon_that_is_killed(void **state)
{
	struct member a, b;

	(void)state;
	begin(&a);
	begin(&b);
	uint32_t slot = a.p.resp.slot, qpn = slot << LIMIT_QP_BITS | 1;

	assert_int_equal(attach_qp(&a, a.qp, "224.1.1.1"), 0);
	assert_int_equal(attach_qp(&b, b.qp, "224.1.1.2"), 0);
	raw_daemon_replace(&server);
	/* Without a daemon. */
	assert_true(listens("224.1.1.1"));
	send_to_group("224.1.1.1", 1);
	assert_int_equal(take_packet(&a), 1);
	go_back(&a);
	assert_int_equal(atomic_load(&a.table->settled), 0);
	return_all(&a, qpn, "224.1.1.1");
	assert_true(in_table(a.table, "224.1.1.1", slot));
	send_to_group("224.1.1.1", 2);
	assert_int_equal(take_packet(&a), 2);
	assert_int_equal(atomic_load(&a.table->settled), 0);
	/* The other process returns, too, but without its group, which ends with the process. */
	go_back(&b);
	assert_int_equal(raw_call(b.p.fd, PROTO_RETURNED, NULL, 0, NULL, 0), 0);
	assert_int_equal(atomic_load(&a.table->settled), 1);
	assert_true(listens("224.1.1.2"));
	end(&b);
	expect_silence("224.1.1.2");
	assert_int_equal(detach_qp(&a, a.qp, "224.1.1.1"), 0);
	expect_silence("224.1.1.1");
	end(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answers, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(the_table, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(who_gets_packets, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(of_both_families, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(a_thousand_groups, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(limits, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(joining_listens, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(a_daemon_that_is_killed, raw_server_start,
						raw_server_stop),
	};
	int err = netns_enter(1);

	if (err) {
		fprintf(stderr, "skipped: no network namespace of our own: %s\n", strerror(-err));
		return 77;
	}
	raw_wire = 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
