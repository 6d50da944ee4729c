/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drivers of rdma-core's releases: the fake driver with the tables, contexts and calls of each.
 * What a release has is in tables.c. One thread.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"
#include "kverbs/device.h"

/* ------------------------------------------------------------------ tables */

/* A table in which each function is the number of its place, and what it must become. */
struct reading {
	enum driver_release release;
	const char *read; /* struct provider_ops */
};

static void function_check(const char *name, size_t offset, void *argument)
{
	const struct reading *reading = argument;
	int at = table_at(reading->release, name);
	uintptr_t got;

	memcpy(&got, reading->read + offset, sizeof(got));
	if (got != (uintptr_t)(at + 1))
		fail_msg("release %d: %s is function %d of the table, not %d",
			 (int)reading->release, name, at, (int)got - 1);
}

static void tables_are_read(void **state)
{
	(void)state;
	for (enum driver_release release = 0; release < RELEASES; release++) {
		unsigned int count = table_count(release);
		uintptr_t *table = calloc(count, sizeof(*table));
		struct provider_ops ops;
		struct reading reading = {release, (const char *)&ops};

		for (unsigned int i = 0; i < count; i++)
			table[i] = i + 1;
		assert_int_equal(release_ops_count(release), count);
		release_ops_read(release, table, &ops);
		table_visit(function_check, &reading);
		free(table);
	}
}

/* ------------------------------------------------------------------ contexts */

/* A driver of the release opens its device, and what the driver has is called. */
static struct kernel_context *release_open(enum driver_release release)
{
	static void (*const registering[RELEASES])(const struct provider *) = {
		[RELEASE_44] = verbs_register_driver_34, [RELEASE_57] = verbs_register_driver_57,
		[RELEASE_59] = verbs_register_driver_59, [RELEASE_62] = verbs_register_driver_59,
		[RELEASE_64] = verbs_register_driver_64, [RELEASE_65] = verbs_register_driver_65,
	};

	fake_release = release;
	registering[release](&fake_provider); /* the last one is asked first */
	return device_open(true);
}

static void domain_works(struct kernel_context *kernel)
{
	const uint32_t answer[] = {0xabc, 0xdef};

	memcpy(fake.answer, answer, sizeof(answer));
	struct ibv_pd *pd = kernel_alloc_pd(kernel);

	assert_non_null(pd);
	assert_int_equal(pd->handle, 0xabc);
	assert_int_equal(kernel_dealloc_pd(kernel, pd), 0);
}

static void contexts_are_where_drivers_have_them(void **state)
{
	static const enum driver_release known[] = {RELEASE_44, RELEASE_57, RELEASE_64, RELEASE_65};

	(void)state;
	for (unsigned int i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct kernel_context *kernel = release_open(known[i]);

		assert_int_equal(kernel->device->release, known[i]);
		assert_ptr_equal(kernel_of(&kernel->verbs->context), kernel);
		assert_int_equal(kernel->verbs->sz, table_context_size(known[i]));
		assert_int_equal(kernel->verbs->context.abi_compat == __VERBS_ABI_IS_EXTENDED, 1);
		domain_works(kernel);
		assert_true(!kernel->ops.alloc_dmah == (known[i] < RELEASE_59));
		assert_true(!kernel->ops.set_err_comp_cntr == (known[i] < RELEASE_65));
		device_close(kernel);
	}
}

/* 59 to 63 have one node and two tables: by the library beside the driver. */
static void library_write(const char *path, const char *names, size_t size)
{
	FILE *file = fopen(path, "w");
	char before[128] = "ELF";

	assert_non_null(file);
	assert_int_equal(fwrite(before, sizeof(before), 1, file), 1);
	assert_int_equal(fwrite(names, size, 1, file), 1);
	assert_int_equal(fclose(file), 0);
}

static void library_tells_59_from_62(void **state)
{
	static const char of_59[] = "\0IBVERBS_PRIVATE_59\0ibv_cmd_reg_mr_ex";
	static const char of_62[] = "\0IBVERBS_PRIVATE_59\0ibv_cmd_query_port_speed";
	static const char of_64[] = "\0IBVERBS_PRIVATE_64\0ibv_cmd_query_port_speed";
	static const char ours[] = "\0IBVERBS_PRIVATE_59\0VERBENA_1.0";
	char path[] = "/tmp/verbena-releases-XXXXXX";

	(void)state;
	close(mkstemp(path));
	library_write(path, of_59, sizeof(of_59));
	assert_int_equal(release_of_library(path), RELEASE_59);
	library_write(path, of_62, sizeof(of_62));
	assert_int_equal(release_of_library(path), RELEASE_62);
	library_write(path, of_64, sizeof(of_64));
	assert_int_equal(release_of_library(path), RELEASE_UNKNOWN);
	library_write(path, ours, sizeof(ours));
	assert_int_equal(release_of_library(path), RELEASE_UNKNOWN);
	unlink(path);
	assert_int_equal(release_of_library(path), RELEASE_UNKNOWN);
}

/* A driver of 59 to 63 on a system that has no library of these releases. */
static void release_that_cannot_be_told_stays_out(void **state)
{
	struct device_choice choice = {.kernel = true};
	int count = 0;

	(void)state;
	if (release_of_node_59() != RELEASE_UNKNOWN)
		skip();
	verbs_register_driver_59(&fake_provider);
	fake_begin();
	fake_device("uverbs3", "fake0", "1:3", NULL);
	struct ibv_device **list = kernel_list_append(calloc(1, sizeof(*list)), &count, &choice);

	assert_non_null(list);
	assert_int_equal(count, 0);
	free(list);
	fake_end();
}

/* ------------------------------------------------------------------ commands */

static void queue_in_chosen_memory(void **state)
{
	(void)state;
	struct kernel_context *kernel = release_open(RELEASE_65);
	struct ibv_context *context = &kernel->verbs->context;
	struct ibv_cq_init_attr_ex attr = {.cqe = 100};
	struct ib_uverbs_ex_create_cq_resp response;
	struct provider_cq_memory memory = {.length = 8192, .addr = (uint8_t *)0x10000};
	struct provider_cq cq = {0};

	assert_int_equal(ibv_cmd_create_cq_ex_59(context, &attr, &memory, &cq, NULL, 0, &response,
						 sizeof(response), PROVIDER_CQ_MEMORY),
			 0);
	assert_int_equal(fake.header.object_id, UVERBS_OBJECT_CQ);
	assert_int_equal(fake_attr(8)->data, 0x10000);
	assert_int_equal(fake_attr(9)->data, 8192);
	assert_null(fake_attr(10));
	memory.dmabuf.offset = 64;
	memory.dmabuf.fd = 5;
	assert_int_equal(ibv_cmd_create_cq_ex_59(context, &attr, &memory, &cq, NULL, 0, &response,
						 sizeof(response), PROVIDER_CQ_DMABUF),
			 0);
	assert_null(fake_attr(8));
	assert_int_equal(fake_attr(9)->data, 8192);
	assert_int_equal(fake_attr(10)->data, 5);
	assert_int_equal(fake_attr(11)->data, 64);
	/* Memory and no flag, a flag and no memory, both flags. */
	assert_int_equal(ibv_cmd_create_cq_ex_59(context, &attr, &memory, &cq, NULL, 0, &response,
						 sizeof(response), 0),
			 EINVAL);
	assert_int_equal(ibv_cmd_create_cq_ex_59(context, &attr, NULL, &cq, NULL, 0, &response,
						 sizeof(response), PROVIDER_CQ_MEMORY),
			 EINVAL);
	assert_int_equal(ibv_cmd_create_cq_ex_59(context, &attr, &memory, &cq, NULL, 0, &response,
						 sizeof(response),
						 PROVIDER_CQ_MEMORY | PROVIDER_CQ_DMABUF),
			 EINVAL);
	/* Without either it is the numbered command. */
	assert_int_equal(ibv_cmd_create_cq_ex_59(context, &attr, NULL, &cq, NULL, 0, &response,
						 sizeof(response), 0),
			 0);
	assert_int_equal(fake.command,
			 IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ);
	device_close(kernel);
}

static void pair_with_attributes_of_the_driver(void **state)
{
	(void)state;
	struct kernel_context *kernel = release_open(RELEASE_64);
	struct {
		struct ibv_command_buffer buffer;
		struct ib_uverbs_attr attrs[1];
	} link = {0};
	struct ibv_pd pd = {.context = &kernel->verbs->context, .handle = 3};
	struct ibv_cq cq = {.context = pd.context, .handle = 4};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = &cq,
		.recv_cq = &cq,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &pd,
	};
	struct ib_uverbs_ex_create_qp_resp response;
	struct provider_qp qp = {0};

	link.attrs[0].attr_id = 0x1001;
	link.attrs[0].data = 77;
	link.buffer.next_attr = link.buffer.last_attr = link.attrs + 1;
	assert_int_equal(ibv_cmd_create_qp_ex2_64(pd.context, &qp, &attr, NULL, 0, &response,
						  sizeof(response), &link.buffer),
			 0);
	assert_int_equal(fake.header.object_id, UVERBS_OBJECT_QP);
	assert_int_equal(fake_attr(0x1001)->data, 77);
	assert_int_equal(ibv_cmd_create_qp_ex2_64(pd.context, &qp, &attr, NULL, 0, &response,
						  sizeof(response), NULL),
			 0);
	assert_int_equal(fake.command,
			 IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP);
	device_close(kernel);
}

static void memory_by_fields(void **state)
{
	(void)state;
	struct kernel_context *kernel = release_open(RELEASE_65);
	struct ibv_dmah_init_attr hint = {.comp_mask = IBV_DMAH_INIT_ATTR_MASK_PH, .ph = 2};
	struct ibv_dmah *dmah = kernel_alloc_dmah(kernel, &hint);
	struct ibv_pd pd = {.context = &kernel->verbs->context, .handle = 3};
	struct ibv_mr_init_attr attr = {
		.length = 100,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH,
		.addr = (void *)0x2000,
		.dmah = dmah,
	};

	assert_non_null(dmah);
	assert_int_equal(fake.header.object_id, 17);
	assert_int_equal(fake_attr(3)->data, 2);
	struct ibv_mr *mr = kernel_reg_mr_ex(kernel, &pd, &attr);

	assert_non_null(mr);
	assert_int_equal(fake.header.object_id, UVERBS_OBJECT_MR);
	assert_int_equal(fake.header.method_id, 5);
	assert_int_equal(fake_attr(1)->data, 3);	   /* the domain */
	assert_int_equal(fake_attr(2)->data, FAKE_HANDLE); /* the hint's */
	assert_int_equal(fake_attr(3)->data, 0x2000);	   /* the IOVA is the address */
	assert_int_equal(fake_attr(4)->data, 0x2000);
	assert_int_equal(fake_attr(5)->data, 100);
	assert_int_equal(fake_attr(6)->data, IBV_ACCESS_LOCAL_WRITE);
	assert_ptr_equal(mr->addr, attr.addr);
	assert_true(kernel_mr_is_pinned(mr));
	free(mr);
	attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET; /* and no IOVA */
	assert_null(kernel_reg_mr_ex(kernel, &pd, &attr));
	assert_int_equal(kernel_dealloc_dmah(kernel, dmah), 0);
	device_close(kernel);
}

static void speed_and_counters(void **state)
{
	(void)state;
	struct kernel_context *kernel = release_open(RELEASE_65);
	struct ibv_comp_cntr counter = {.context = &kernel->verbs->context, .handle = 4};
	uint64_t speed;

	assert_int_equal(kernel_query_port_speed(kernel, 2, &speed), 0);
	assert_int_equal(fake.header.method_id, 7);
	assert_int_equal(fake_attr(0)->data, 2);
	assert_int_equal(kernel_change_comp_cntr(kernel, &counter, COUNTER_SET_ERRORS, 9), 0);
	assert_int_equal(fake.header.object_id, 19);
	assert_int_equal(fake.header.method_id, 2);
	assert_int_equal(fake_attr(0)->data, 4);
	assert_int_equal(fake_attr(1)->data, 1); /* the count of errors */
	assert_int_equal(fake_attr(2)->data, 0); /* is set */
	assert_int_equal(fake_attr(3)->data, 9);
	assert_int_equal(kernel_change_comp_cntr(kernel, &counter, COUNTER_SET, 9), EOPNOTSUPP);
	device_close(kernel);
	kernel = release_open(RELEASE_57);
	assert_int_equal(kernel_query_port_speed(kernel, 2, &speed), EOPNOTSUPP);
	assert_null(kernel_alloc_dmah(kernel, NULL));
	assert_int_equal(errno, EOPNOTSUPP);
	device_close(kernel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_are_read),
		cmocka_unit_test(contexts_are_where_drivers_have_them),
		cmocka_unit_test(library_tells_59_from_62),
		cmocka_unit_test(release_that_cannot_be_told_stays_out),
		cmocka_unit_test(queue_in_chosen_memory),
		cmocka_unit_test(pair_with_attributes_of_the_driver),
		cmocka_unit_test(memory_by_fields),
		cmocka_unit_test(speed_and_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
