/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_getaddrinfo(): which addresses an ai_family brings. Names that need no resolver are used. */
#include <endian.h>
#include <errno.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdmacm/rdmacm.h"

enum ibv_qp_type id_default_type(enum rdma_port_space space)
{
	return space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
}

/* How many addresses of each family a passive look-up brings. */
static void count(int family, int flags, int *v4, int *v6)
{
	const struct rdma_addrinfo hints = {
		.ai_flags = RAI_PASSIVE | flags, .ai_family = family, .ai_port_space = RDMA_PS_TCP};
	struct rdma_addrinfo *found;

	*v4 = *v6 = 0;
	assert_int_equal(rdma_getaddrinfo(NULL, "7471", &hints, &found), 0);
	for (const struct rdma_addrinfo *a = found; a; a = a->ai_next) {
		*v4 += a->ai_family == AF_INET;
		*v6 += a->ai_family == AF_INET6;
	}
	rdma_freeaddrinfo(found);
}

static void a_family_is_honoured_without_its_flag(void **state)
{
	int v4, v6;

	(void)state;
	for (int flags = 0; flags <= RAI_FAMILY; flags += RAI_FAMILY) {
		count(AF_INET, flags, &v4, &v6);
		assert_int_equal(v4, 1);
		assert_int_equal(v6, 0);
		count(AF_INET6, flags, &v4, &v6);
		assert_int_equal(v4, 0);
		assert_int_equal(v6, 1);
	}
}

static void no_family_brings_both(void **state)
{
	int v4, v6;

	(void)state;
	count(AF_UNSPEC, 0, &v4, &v6);
	assert_int_equal(v4, 1);
	assert_int_equal(v6, 1);
	count(AF_IB, 0, &v4, &v6);
	assert_int_equal(v4 + v6, 2);
}

static void a_gid_is_an_address(void **state)
{
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_FAMILY, .ai_family = AF_IB, .ai_port_space = RDMA_PS_UDP};
	static const uint8_t gid[16] = {0xfe, 0x80, [14] = 0x10, [15] = 5};
	struct rdma_addrinfo *found;

	(void)state;
	assert_int_equal(rdma_getaddrinfo("fe80::1005", "7471", &hints, &found), 0);
	const struct sockaddr_ib *ib = (const struct sockaddr_ib *)found->ai_dst_addr;

	assert_null(found->ai_next);
	assert_int_equal(found->ai_family, AF_IB);
	assert_int_equal(found->ai_dst_len, sizeof(*ib));
	assert_int_equal(found->ai_qp_type, IBV_QPT_UD);
	assert_int_equal(ib->sib_family, AF_IB);
	assert_memory_equal(ib->sib_addr.sib_raw, gid, sizeof(gid));
	assert_int_equal(be64toh(ib->sib_sid), RDMA_PS_UDP << 16 | 7471);
	assert_int_equal(be64toh(ib->sib_sid_mask), UINT64_MAX);
	rdma_freeaddrinfo(found);
	hints.ai_flags |= RAI_PASSIVE;
	assert_int_equal(rdma_getaddrinfo("fe80::1005", NULL, &hints, &found), 0);
	ib = (const struct sockaddr_ib *)found->ai_src_addr;
	assert_int_equal(be64toh(ib->sib_sid_mask), UINT64_MAX << 16);
	rdma_freeaddrinfo(found);
	assert_int_equal(rdma_getaddrinfo("no.gid", NULL, &hints, &found), EAI_NONAME);
}

static void an_unknown_family_is_refused(void **state)
{
	const struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_family = AF_UNIX};
	struct rdma_addrinfo *found;

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NULL, "7471", &hints, &found), EAI_FAMILY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_family_is_honoured_without_its_flag),
		cmocka_unit_test(no_family_brings_both),
		cmocka_unit_test(a_gid_is_an_address),
		cmocka_unit_test(an_unknown_family_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
