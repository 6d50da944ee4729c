/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of src/abi that work alone: conversion from and to the kernel ABI, sysfs files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include "abi/marshall.h"
#include "abi/sysfs.h"

#include <cmocka.h>

/* Every byte differs from its neighbours and from zero. */
static void fill(void *object, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *)object)[i] = (uint8_t)(i % 251 + 1);
}

/* Member by member: the padding between them may have any bytes. */
static void assert_ah_attr(const struct ibv_ah_attr *out, const struct ib_uverbs_ah_attr *in)
{
	assert_memory_equal(out->grh.dgid.raw, in->grh.dgid, 16);
	assert_int_equal(out->grh.flow_label, in->grh.flow_label);
	assert_int_equal(out->grh.sgid_index, in->grh.sgid_index);
	assert_int_equal(out->grh.hop_limit, in->grh.hop_limit);
	assert_int_equal(out->grh.traffic_class, in->grh.traffic_class);
	assert_int_equal(out->dlid, in->dlid);
	assert_int_equal(out->sl, in->sl);
	assert_int_equal(out->src_path_bits, in->src_path_bits);
	assert_int_equal(out->static_rate, in->static_rate);
	assert_int_equal(out->is_global, in->is_global);
	assert_int_equal(out->port_num, in->port_num);
}

static void ah_attr_is_copied(void **state)
{
	(void)state;
	struct ib_uverbs_ah_attr in;
	struct ibv_ah_attr out;

	fill(&in, sizeof(in));
	ibv_copy_ah_attr_from_kern(&out, &in);
	assert_ah_attr(&out, &in);
}

static void qp_attr_is_copied(void **state)
{
	(void)state;
	struct ib_uverbs_qp_attr in;
	struct ibv_qp_attr out;

	fill(&in, sizeof(in));
	ibv_copy_qp_attr_from_kern(&out, &in);
#define SAME(member) assert_int_equal((uint32_t)out.member, in.member)
	SAME(qp_state);
	SAME(cur_qp_state);
	SAME(path_mtu);
	SAME(path_mig_state);
	SAME(qkey);
	SAME(rq_psn);
	SAME(sq_psn);
	SAME(dest_qp_num);
	SAME(qp_access_flags);
	SAME(pkey_index);
	SAME(alt_pkey_index);
	SAME(en_sqd_async_notify);
	SAME(sq_draining);
	SAME(max_rd_atomic);
	SAME(max_dest_rd_atomic);
	SAME(min_rnr_timer);
	SAME(port_num);
	SAME(timeout);
	SAME(retry_cnt);
	SAME(rnr_retry);
	SAME(alt_port_num);
	SAME(alt_timeout);
#undef SAME
	assert_int_equal(out.cap.max_send_wr, in.max_send_wr);
	assert_int_equal(out.cap.max_recv_wr, in.max_recv_wr);
	assert_int_equal(out.cap.max_send_sge, in.max_send_sge);
	assert_int_equal(out.cap.max_recv_sge, in.max_recv_sge);
	assert_int_equal(out.cap.max_inline_data, in.max_inline_data);
	assert_int_equal(out.rate_limit, 0);
	assert_ah_attr(&out.ah_attr, &in.ah_attr);
	assert_ah_attr(&out.alt_ah_attr, &in.alt_ah_attr);
}

static void path_record_survives_both_ways(void **state)
{
	(void)state;
	struct ib_user_path_rec kern, back;
	struct ibv_sa_path_rec path;

	fill(&kern, sizeof(kern));
	kern.mtu = 4; /* the only member that is wider in the kernel ABI */
	memset(&back, 0, sizeof(back));
	ibv_copy_path_rec_from_kern(&path, &kern);
	assert_int_equal(path.dlid, kern.dlid);
	assert_int_equal(path.flow_label, kern.flow_label);
	assert_int_equal(path.mtu, 4);
	assert_int_equal(path.packet_life_time, kern.packet_life_time);
	ibv_copy_path_rec_to_kern(&back, &path);
	assert_memory_equal(&back, &kern, sizeof(kern));
}

static char directory[] = "/tmp/verbena-unit-XXXXXX";

static void file_write(const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void attribute_is_read(void **state)
{
	(void)state;
	char value[8];

	file_write("line", "abc\n");
	assert_int_equal(ibv_read_sysfs_file(directory, "line", value, sizeof(value)), 3);
	assert_string_equal(value, "abc");
	file_write("bare", "abc");
	assert_int_equal(ibv_read_sysfs_file(directory, "bare", value, sizeof(value)), 3);
	assert_string_equal(value, "abc");
	file_write("two", "ab\n\n");
	assert_int_equal(ibv_read_sysfs_file(directory, "two", value, sizeof(value)), 3);
	assert_string_equal(value, "ab\n");
	file_write("empty", "");
	assert_int_equal(ibv_read_sysfs_file(directory, "empty", value, sizeof(value)), 0);
	assert_string_equal(value, "");
	file_write("exact", "1234567\n");
	assert_int_equal(ibv_read_sysfs_file(directory, "exact", value, sizeof(value)), 7);
	assert_string_equal(value, "1234567");
}

static void unreadable_attribute_is_an_error(void **state)
{
	(void)state;
	char value[4], name[PATH_MAX + 2];

	assert_int_equal(ibv_read_sysfs_file(directory, "absent", value, sizeof(value)), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(ibv_read_sysfs_file("/", "tmp", value, sizeof(value)), -1);
	assert_int_equal(errno, EISDIR);
	file_write("long", "abcd");
	assert_int_equal(ibv_read_sysfs_file(directory, "long", value, sizeof(value)), -1);
	assert_int_equal(errno, EOVERFLOW);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(ibv_read_sysfs_file(directory, name, value, sizeof(value)), -1);
	assert_int_equal(errno, ENAMETOOLONG);
}

static void root_follows_the_environment(void **state)
{
	(void)state;
	assert_string_equal(ibv_get_sysfs_path(), "/tmp/elsewhere");
	setenv("SYSFS_PATH", "/tmp/changed", 1);
	assert_string_equal(ibv_get_sysfs_path(), "/tmp/elsewhere");
}

static int directory_make(void **state)
{
	(void)state;
	setenv("SYSFS_PATH", "/tmp/elsewhere//", 1);
	return mkdtemp(directory) ? 0 : -1;
}

static int directory_remove(void **state)
{
	static const char *const names[] = {"line", "bare", "two", "empty", "exact", "long"};
	char path[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
	}
	return rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ah_attr_is_copied),
		cmocka_unit_test(qp_attr_is_copied),
		cmocka_unit_test(path_record_survives_both_ways),
		cmocka_unit_test(attribute_is_read),
		cmocka_unit_test(unreadable_attribute_is_an_error),
		cmocka_unit_test(root_follows_the_environment),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
