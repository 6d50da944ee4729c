/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles, and reading a sender's address out of both forms of the 40 bytes before a
 * received datagram. The daemon is a table of three GIDs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "abi/verbs_abi.h"
#include "hca/mem/pd.h"
#include "hca/process/hca.h"
#include "hca/verbs/ah.h"

static const uint8_t gids[3][16] = {
	{0xfe, 0x80, [15] = 1}, {[10] = 0xff, 0xff, 10, 0, 0, 1}, {0}, /* an empty place */
};
static const uint8_t peer_ipv4[4] = {10, 0, 0, 2};
static struct ib_uverbs_ah_attr last;
static unsigned int handles;

int daemon_query_gid(struct daemon_conn *conn, uint32_t port, uint32_t index,
		     struct proto_query_gid_resp *resp)
{
	(void)conn;
	if (port != 1 || index >= LIMIT_GID_INDICES)
		return -EINVAL;
	if (index >= 2)
		return -ENODATA;
	memcpy(resp->gid, gids[index], 16);
	resp->type = 2;
	return 0;
}

int daemon_create_ah(struct daemon_conn *conn, uint32_t pd, const struct ib_uverbs_ah_attr *attr,
		     struct proto_create_ah_resp *resp)
{
	(void)conn, (void)pd;
	if (attr->port_num != 1 || attr->grh.sgid_index >= 2)
		return -EINVAL;
	last = *attr;
	*resp = (struct proto_create_ah_resp){.ah_handle = ++handles};
	memcpy(resp->route.sgid, gids[attr->grh.sgid_index], 16);
	return 0;
}

int daemon_destroy_ah(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	handles--;
	return 0;
}

static struct open_context opened;
static struct pd pd;
static struct hca hca;

static int setup(void **state)
{
	(void)state;
	opened.context.hca = &hca;
	hca_init_locks(&hca);
	opened.context.verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pd.ibv.context = &opened.context.verbs.context;
	return 0;
}

static int create_errno(struct ibv_ah_attr attr)
{
	errno = 0;
	assert_null(ibv_create_ah(&pd.ibv, &attr));
	return errno;
}

static void create_and_destroy(void **state)
{
	struct ibv_ah_attr attr = {.is_global = 1,
				   .port_num = 1,
				   .grh = {.sgid_index = 1,
					   .hop_limit = 3,
					   .flow_label = 0x12345,
					   .traffic_class = 7}};

	(void)state;
	memcpy(attr.grh.dgid.raw, gids[0], 16);
	struct ibv_ah *ah = ibv_create_ah(&pd.ibv, &attr);

	assert_non_null(ah);
	assert_ptr_equal(ah->pd, &pd.ibv);
	assert_memory_equal(ah_of(ah)->to.sgid, gids[1], 16);
	assert_memory_equal(last.grh.dgid, gids[0], 16);
	assert_int_equal(last.grh.sgid_index, 1);
	assert_int_equal(last.grh.hop_limit, 3);
	assert_int_equal(last.grh.flow_label, 0x12345);
	assert_int_equal(last.grh.traffic_class, 7);
	assert_int_equal(opened.objects, 1);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(opened.objects, 0);
	assert_int_equal(handles, 0);
}

static void bad_attributes_are_refused(void **state)
{
	struct ibv_ah_attr good = {.is_global = 1, .port_num = 1}, attr;

	(void)state;
	attr = good, attr.is_global = 0;
	assert_int_equal(create_errno(attr), EINVAL);
	attr = good, attr.port_num = 2;
	assert_int_equal(create_errno(attr), EINVAL);
	attr = good, attr.grh.sgid_index = 2;
	assert_int_equal(create_errno(attr), EINVAL);
	assert_int_equal(opened.objects, 0);
}

static void set_checksum(uint8_t *header)
{
	uint32_t sum = 0;

	header[10] = header[11] = 0;
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	header[10] = sum >> 8;
	header[11] = sum;
}

/* `garbage` is what the first 20 bytes hold. */
static void from_ipv4(uint8_t garbage)
{
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_ah_attr attr;
	union {
		uint8_t bytes[40];
		struct ibv_grh grh;
	} u;
	uint8_t *ip = u.bytes + 20, mapped[16] = {[10] = 0xff, 0xff};

	memset(u.bytes, garbage, 20);
	memset(ip, 0, 20);
	ip[0] = 0x45;
	ip[1] = 9;  /* type of service */
	ip[8] = 33; /* time to live */
	memcpy(ip + 12, peer_ipv4, 4);
	memcpy(ip + 16, gids[1] + 12, 4);
	set_checksum(ip);
	memcpy(mapped + 12, peer_ipv4, 4);
	assert_int_equal(ibv_init_ah_from_wc(pd.ibv.context, 1, &wc, &u.grh, &attr), 0);
	assert_int_equal(attr.is_global, 1);
	assert_memory_equal(attr.grh.dgid.raw, mapped, 16);
	assert_int_equal(attr.grh.sgid_index, 1);
	assert_int_equal(attr.grh.traffic_class, 9);
	assert_int_equal(attr.grh.hop_limit, 33);
	assert_int_equal(attr.port_num, 1);
}

static void sender_over_ipv4(void **state)
{
	(void)state;
	from_ipv4(0);
	from_ipv4(0x60); /* as if it were IPv6: the checksum decides */
	from_ipv4(0xff);
}

/* The source address has 0x45 where an IPv4 header would begin. */
static void sender_over_ipv6(void **state)
{
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_grh grh = {.version_tclass_flow = htobe32(6u << 28 | 5u << 20 | 0x777),
			      .hop_limit = 1};
	struct ibv_ah_attr attr;

	(void)state;
	grh.sgid.raw[0] = 0xfe;
	grh.sgid.raw[1] = 0x80;
	grh.sgid.raw[12] = 0x45;
	memcpy(grh.dgid.raw, gids[0], 16);
	assert_int_equal(ibv_init_ah_from_wc(pd.ibv.context, 1, &wc, &grh, &attr), 0);
	assert_memory_equal(attr.grh.dgid.raw, grh.sgid.raw, 16);
	assert_int_equal(attr.grh.sgid_index, 0);
	assert_int_equal(attr.grh.traffic_class, 5);
	assert_int_equal(attr.grh.flow_label, 0x777);
	assert_int_equal(attr.grh.hop_limit, 64); /* one hop was used up on the way */
}

static void message_for_somebody_else(void **state)
{
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH, .slid = 4, .sl = 2};
	struct ibv_grh grh = {.version_tclass_flow = htobe32(6u << 28)};
	struct ibv_ah_attr attr;

	(void)state;
	grh.dgid.raw[0] = 0x20;
	errno = 0;
	assert_int_equal(ibv_init_ah_from_wc(pd.ibv.context, 1, &wc, &grh, &attr), -1);
	assert_int_equal(errno, ENOENT);
	assert_null(ibv_create_ah_from_wc(&pd.ibv, &wc, &grh, 1));
	wc.wc_flags = 0; /* no GRH: only the local address */
	assert_int_equal(ibv_init_ah_from_wc(pd.ibv.context, 1, &wc, &grh, &attr), 0);
	assert_int_equal(attr.is_global, 0);
	assert_int_equal(attr.dlid, 4);
	assert_int_equal(attr.sl, 2);
}

static void own_interfaces_have_an_ethernet_address(void **state)
{
	struct ibv_ah_attr attr = {.is_global = 1};
	uint8_t mac[6] = {1, 1, 1, 1, 1, 1};
	uint16_t vid = 0;

	(void)state;
	attr.grh.dgid.raw[10] = attr.grh.dgid.raw[11] = 0xff;
	memcpy(attr.grh.dgid.raw + 12, (uint8_t[]){127, 0, 0, 1}, 4);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(pd.ibv.context, &attr, mac, &vid), 0);
	assert_memory_equal(mac, ((uint8_t[6]){0}), 6);
	assert_int_equal(vid, 0xffff);
	memcpy(attr.grh.dgid.raw + 12, (uint8_t[]){192, 0, 2, 1}, 4);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(pd.ibv.context, &attr, mac, &vid),
			 EHOSTUNREACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_and_destroy),
		cmocka_unit_test(bad_attributes_are_refused),
		cmocka_unit_test(sender_over_ipv4),
		cmocka_unit_test(sender_over_ipv6),
		cmocka_unit_test(message_for_somebody_else),
		cmocka_unit_test(own_interfaces_have_an_ethernet_address),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
