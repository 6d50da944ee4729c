/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * src/kverbs: the scan of a fake sysfs, the choice of devices and drivers, the bytes of commands in
 * both forms against the kernel's structures, and the calls of a program through a fake driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fake.h"
#include "kverbs/drivers.h"

#include <cmocka.h>

static void found_free(struct list *found)
{
	struct list *node;

	while ((node = list_pop(found)))
		free(container_of(node, struct found_device, node));
}

static struct found_device *found_first(struct list *found)
{
	return container_of(found->next, struct found_device, node);
}

/* ------------------------------------------------------------------ scanning */

static void scan_takes_what_has_its_node(void **state)
{
	(void)state;
	const struct scan_roots *roots = fake_begin();
	struct list found;

	fake_device("uverbs3", "fake0", "1:3", "pci:v000015B3d00001017sv0");
	fake_device("uverbs4", "fake1", "1:7", NULL);  /* the node is another device's */
	fake_device("uverbs5", "fake2", NULL, NULL);   /* as `verbena run` shows them */
	fake_device("uverbs6", "fake3", "1:3x", NULL); /* not a number */
	list_init(&found);
	assert_true(scan_worthwhile(roots));
	assert_int_equal(scan_devices(roots, &found), 0);
	assert_false(list_empty(&found));
	struct found_device *device = found_first(&found);

	assert_ptr_equal(found.prev, &device->node); /* the only one */
	assert_string_equal(device->node_name, "uverbs3");
	assert_string_equal(device->name, "fake0");
	assert_int_equal(device->node_number, makedev(1, 3));
	assert_int_equal(device->guid, 0x0011223344556677);
	assert_int_equal(device->node_type, IBV_NODE_CA);
	assert_int_equal(device->abi_version, 1);
	assert_int_equal(device->index, -1);
	assert_string_equal(device->modalias, "pci:v000015B3d00001017sv0");
	found_free(&found);
	fake_end();
}

static void scan_needs_a_known_interface(void **state)
{
	(void)state;
	const struct scan_roots *roots = fake_begin();
	const struct scan_roots none = {.sysfs = "/nowhere", .nodes = roots->nodes};
	struct list found;

	fake_device("uverbs3", "fake0", "1:3", NULL);
	fake_file("class/infiniband_verbs/abi_version", "7");
	list_init(&found);
	assert_int_equal(scan_devices(roots, &found), 0);
	assert_true(list_empty(&found));
	assert_false(scan_worthwhile(&none));
	fake_end();
}

static void driver_matches(void **state)
{
	(void)state;
	struct found_device by_id = {.driver_id = FAKE_DRIVER_ID, .name = "x", .abi_version = 1};
	struct found_device by_name = {.name = "fake9", .abi_version = 1};
	struct found_device by_hardware = {
		.name = "x", .abi_version = 1, .modalias = "pci:v000015B3d00001017sv00"};
	struct found_device other = {.driver_id = 1,
				     .name = "x",
				     .abi_version = 1,
				     .modalias = "pci:v000015B3d00001018sv00"};
	struct found_device old = {.name = "fake9", .abi_version = 2};

	assert_true(scan_match(&by_id, &fake_provider));
	assert_int_equal(by_id.match->kind, PROVIDER_MATCH_DRIVER_ID);
	assert_true(scan_match(&by_name, &fake_provider));
	assert_int_equal(by_name.match->kind, PROVIDER_MATCH_MODALIAS);
	assert_true(scan_match(&by_hardware, &fake_provider));
	assert_int_equal(by_hardware.match->kind, PROVIDER_MATCH_PCI);
	assert_false(scan_match(&other, &fake_provider));
	assert_null(other.match);
	assert_false(scan_match(&old, &fake_provider));
}

static void configuration_is_read(void **state)
{
	(void)state;
	const struct scan_roots *roots = fake_begin();
	char config[96];

	fake_file("conf/a.driver", "# a comment\n\nnonsense here\ndriver\ndriver ../escape");
	fake_file("conf/b.driver", "driver missing");
	fake_file("conf/c.driver", "driver later");
	fake_file("liblater-rdmav99.so", "of a release that isn't known: it isn't loaded");
	snprintf(config, sizeof(config), "%s/conf", roots->sysfs);
	assert_int_equal(drivers_load_from(config, roots->sysfs), 0);
	assert_int_equal(drivers_load_from("/nowhere", roots->sysfs), 0);
	fake_end();
}

static void environment_chooses(void **state)
{
	(void)state;
	unsetenv("VERBENA_DEVICES");
	struct device_choice choice = device_choice_get();

	assert_true(choice.verbena && choice.kernel);
	assert_true(device_choice_has(&choice, "any"));
	setenv("VERBENA_DEVICES", "verbena", 1);
	choice = device_choice_get();
	assert_true(choice.verbena && !choice.kernel);
	setenv("VERBENA_DEVICES", "kernel", 1);
	choice = device_choice_get();
	assert_true(!choice.verbena && choice.kernel);
	setenv("VERBENA_DEVICES", "rxe0,mlx5_1", 1);
	choice = device_choice_get();
	assert_true(choice.verbena && choice.kernel);
	assert_true(device_choice_has(&choice, "rxe0"));
	assert_true(device_choice_has(&choice, "mlx5_1"));
	assert_false(device_choice_has(&choice, "rxe"));
	assert_false(device_choice_has(&choice, "mlx5_10"));
	unsetenv("VERBENA_DEVICES");
}

/* ------------------------------------------------------------------ a device that is open */

static void device_is_listed_once(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct device_choice choice = {.kernel = true};
	struct device_choice none = {.kernel = true, .names = "other"};
	struct ibv_device other = {0};
	int count = 0;
	struct ibv_device **again = kernel_list_append(calloc(1, sizeof(*again)), &count, &choice);

	assert_int_equal(count, 1);
	assert_ptr_equal(again[0], listed[0]);
	assert_string_equal(again[0]->name, "fake0");
	assert_string_equal(again[0]->dev_name, "uverbs3");
	assert_int_equal(again[0]->transport_type, IBV_TRANSPORT_IB);
	assert_int_equal(be64toh(kernel_device_guid(kernel_device_of(again[0]))),
			 0x0011223344556677);
	assert_null(kernel_device_of(&other));
	again = kernel_list_append(again, &count, &none);
	assert_int_equal(count, 1);
	kernel_device_put(kernel_device_of(again[0]));
	free(again);
	device_close(kernel);
}

static void context_has_events_and_vectors(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);

	assert_false(kernel->ioctl);
	assert_int_equal(kernel->verbs->context.num_comp_vectors, 5);
	assert_true(kernel->verbs->context.async_fd >= 0);
	device_close(kernel);
	kernel = device_open(true);
	assert_true(kernel->ioctl);
	assert_int_equal(fake.header.driver_id, FAKE_DRIVER_ID);
	assert_true(kernel->verbs->context.async_fd >= 0);
	assert_int_equal(fake.writes, 0);
	device_close(kernel);
}

/* ------------------------------------------------------------------ commands */

static void legacy_command_by_write(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);
	struct ib_uverbs_cmd_hdr header;
	struct ib_uverbs_alloc_pd core;
	uint64_t driver;
	const uint32_t answer[] = {0xabc, 0xdef};

	memcpy(fake.answer, answer, sizeof(answer));
	struct ibv_pd *pd = kernel_alloc_pd(kernel);

	assert_non_null(pd);
	assert_int_equal(pd->handle, 0xabc);
	memcpy(&header, fake.message, sizeof(header));
	memcpy(&core, fake.message + 8, sizeof(core));
	memcpy(&driver, fake.message + 16, sizeof(driver));
	assert_int_equal(fake.message_size, 24);
	assert_int_equal(header.command, IB_USER_VERBS_CMD_ALLOC_PD);
	assert_int_equal(header.in_words, 6);
	assert_int_equal(header.out_words, 2); /* handle and the driver's word */
	assert_true(core.response != 0);
	assert_int_equal(driver, 0x1122334455667788);
	assert_int_equal(kernel_dealloc_pd(kernel, pd), 0);
	memcpy(&header, fake.message, sizeof(header));
	assert_int_equal(fake.message_size, 12);
	assert_int_equal(header.command, IB_USER_VERBS_CMD_DEALLOC_PD);
	assert_int_equal(header.in_words, 3);
	assert_int_equal(header.out_words, 0);
	assert_memory_equal(fake.message + 8, &answer[0], 4);
	device_close(kernel);
}

static void legacy_command_by_ioctl(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	const uint32_t answer[] = {0xabc, 0xdef};

	memcpy(fake.answer, answer, sizeof(answer));
	struct ibv_pd *pd = kernel_alloc_pd(kernel);

	assert_non_null(pd);
	assert_int_equal(pd->handle, 0xabc);
	assert_int_equal(fake.command, IB_USER_VERBS_CMD_ALLOC_PD);
	assert_int_equal(fake.header.length, sizeof(fake.header) + 5 * sizeof(fake.attrs[0]));
	assert_int_equal(fake_attr(UVERBS_ATTR_CORE_IN)->len, sizeof(struct ib_uverbs_alloc_pd));
	assert_int_equal(fake_attr(UVERBS_ATTR_CORE_OUT)->len, 4);
	assert_int_equal(fake_attr(UVERBS_ATTR_UHW_IN)->len, 8);
	assert_int_equal(fake_attr(UVERBS_ATTR_UHW_IN)->data, 0x1122334455667788);
	assert_int_equal(fake_attr(UVERBS_ATTR_UHW_OUT)->len, 4);
	assert_int_equal(kernel_dealloc_pd(kernel, pd), 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_CORE_IN)->data, 0xabc); /* 4 bytes: inline */
	assert_null(fake_attr(UVERBS_ATTR_CORE_OUT));
	device_close(kernel);
}

static void extended_command(bool has_ioctl)
{
	struct kernel_context *kernel = device_open(has_ioctl);
	struct ibv_context *context = &kernel->verbs->context;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 100,
		.comp_vector = 2,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct {
		uint8_t header[24];
		struct ib_uverbs_ex_create_cq core;
		uint64_t driver[2];
	} request = {.driver = {5, 6}};
	struct {
		struct ib_uverbs_ex_create_cq_resp core;
		uint64_t driver;
	} response;
	struct ib_uverbs_ex_create_cq_resp answer = {.base = {.cq_handle = 9, .cqe = 127}};
	struct ib_uverbs_ex_create_cq core;
	struct provider_cq cq = {0};

	memset(fake.answer, 0, sizeof(fake.answer));
	memcpy(fake.answer, &answer, sizeof(answer));
	fake.answer[sizeof(answer)] = 42;
	assert_int_equal(ibv_cmd_create_cq_ex(context, &attr, &cq, &request, sizeof(request),
					      &response.core, sizeof(response), 0),
			 0);
	assert_int_equal(cq.ibv.handle, 9);
	assert_int_equal(cq.ibv.cqe, 127);
	assert_int_equal(response.driver, 42);
	memcpy(&core, has_ioctl ? fake.core : fake.message + 24, sizeof(core));
	assert_int_equal(core.user_handle, (uintptr_t)&cq);
	assert_int_equal(core.cqe, 100);
	assert_int_equal(core.comp_vector, 2);
	assert_int_equal(core.comp_channel, -1);
	assert_int_equal(core.flags, IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION);
	if (!has_ioctl) {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_ex_cmd_hdr more;

		memcpy(&header, fake.message, sizeof(header));
		memcpy(&more, fake.message + sizeof(header), sizeof(more));
		assert_int_equal(header.command,
				 IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ);
		assert_int_equal(header.in_words, sizeof(core) / 8);
		assert_int_equal(header.out_words, sizeof(answer) / 8);
		assert_int_equal(more.provider_in_words, 2);
		assert_int_equal(more.provider_out_words, 1);
		assert_memory_equal(fake.message + 24 + sizeof(core), request.driver, 16);
	} else {
		assert_int_equal(fake.command,
				 IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ);
		assert_int_equal(fake_attr(UVERBS_ATTR_UHW_IN)->len, 16);
	}
	device_close(kernel);
}

static void extended_command_in_both_forms(void **state)
{
	(void)state;
	extended_command(true);
	extended_command(false);
}

static void objects_are_encoded(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_pd pd = {.context = &kernel->verbs->context, .handle = 3};
	struct ib_uverbs_reg_mr_resp mr_answer = {.mr_handle = 4, .lkey = 5, .rkey = 6};
	struct ib_uverbs_reg_mr_resp response;
	struct ib_uverbs_reg_mr mr_core;
	struct ib_uverbs_create_ah ah_core;
	struct provider_mr mr = {0};
	struct ibv_ah_attr address = {.grh.dgid.raw = {1, 2, 3},
				      .grh.flow_label = 7,
				      .grh.sgid_index = 8,
				      .grh.hop_limit = 9,
				      .grh.traffic_class = 10,
				      .dlid = 11,
				      .sl = 12,
				      .is_global = 1,
				      .port_num = 1};
	struct ibv_ah ah = {0};

	memcpy(fake.answer, &mr_answer, sizeof(mr_answer));
	assert_int_equal(ibv_cmd_reg_mr(&pd, (void *)0x1000, 64, 0x2000, IBV_ACCESS_LOCAL_WRITE,
					&mr, NULL, 0, &response, sizeof(response)),
			 0);
	memcpy(&mr_core, fake.core, sizeof(mr_core));
	assert_int_equal(fake.command, IB_USER_VERBS_CMD_REG_MR);
	assert_int_equal(mr_core.start, 0x1000);
	assert_int_equal(mr_core.length, 64);
	assert_int_equal(mr_core.hca_va, 0x2000);
	assert_int_equal(mr_core.pd_handle, 3);
	assert_int_equal(mr_core.access_flags, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(mr.ibv.handle, 4);
	assert_int_equal(mr.ibv.lkey, 5);
	assert_int_equal(mr.ibv.rkey, 6);
	assert_int_equal(ibv_cmd_create_ah(&pd, &ah, &address, NULL, 0), 0);
	memcpy(&ah_core, fake.core, sizeof(ah_core));
	assert_int_equal(fake.command, IB_USER_VERBS_CMD_CREATE_AH);
	assert_memory_equal(ah_core.attr.grh.dgid, address.grh.dgid.raw, 16);
	assert_int_equal(ah_core.attr.grh.flow_label, 7);
	assert_int_equal(ah_core.attr.grh.sgid_index, 8);
	assert_int_equal(ah_core.attr.dlid, 11);
	assert_int_equal(ah.handle, 4);
	device_close(kernel);
}

/* Fields that the mask doesn't name don't reach the kernel. */
static void modify_sends_what_the_mask_names(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);
	struct ibv_qp qp = {.context = &kernel->verbs->context, .handle = 21};
	struct ibv_qp_attr attr;
	struct ib_uverbs_modify_qp core, expected = {0};

	memset(&attr, 0x55, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	expected.qp_handle = 21;
	expected.attr_mask = IBV_QP_STATE | IBV_QP_PORT;
	expected.qp_state = IBV_QPS_INIT;
	expected.port_num = 1;
	assert_int_equal(ibv_cmd_modify_qp(&qp, &attr, IBV_QP_STATE | IBV_QP_PORT, NULL, 0), 0);
	memcpy(&core, fake.message + 8, sizeof(core));
	assert_memory_equal(&core, &expected, sizeof(core));
	assert_int_equal(ibv_cmd_modify_qp(&qp, &attr, IBV_QP_RATE_LIMIT, NULL, 0), EOPNOTSUPP);
	device_close(kernel);
}

static void failures_are_reported(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);

	fake.fail = ENOMEM;
	errno = 0;
	assert_null(kernel_alloc_pd(kernel));
	assert_int_equal(errno, ENOMEM);
	fake.fail = 0;
	/* 3 bytes are no whole number of words. */
	assert_int_equal(
		command_run(kernel, &(struct command){.number = 1, .core = "abc", .core_size = 3}),
		EINVAL);
	/* A call that the driver doesn't have. */
	assert_null(kernel_create_cq(kernel, 1, NULL, NULL, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(kernel->verbs->open_qp);
	device_close(kernel);
}

/* ------------------------------------------------------------------ programs' calls */

static void parts_of_others_are_refused(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct verbs_context verbena = {0};
	struct ibv_pd pd = {.context = &kernel->verbs->context};
	struct ibv_cq own = {.context = &kernel->verbs->context};
	struct ibv_cq other = {.context = &verbena.context};
	struct ibv_qp_init_attr attr = {.send_cq = &own, .recv_cq = &other, .qp_type = IBV_QPT_RC};

	assert_null(kernel_of(&verbena.context));
	assert_ptr_equal(kernel_of(&kernel->verbs->context), kernel);
	unsigned int before = fake.ioctls;

	errno = 0;
	assert_null(kernel_create_qp(kernel, &pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(fake.ioctls, before);
	attr.recv_cq = &own;
	struct ibv_qp *qp = kernel_create_qp(kernel, &pd, &attr);

	assert_non_null(qp);
	assert_null(kernel_qp_extended(qp));
	free(qp);
	device_close(kernel);
}

static void port_by_method_or_command(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_port_attr attr;

	assert_int_equal(kernel_query_port(kernel, 1, &attr, sizeof(attr)), 0);
	assert_int_equal(fake.header.method_id, UVERBS_METHOD_QUERY_PORT);
	assert_int_equal(fake_attr(UVERBS_ATTR_QUERY_PORT_PORT_NUM)->data, 1);
	device_close(kernel);
	kernel = device_open(false);
	struct ib_uverbs_query_port_resp answer = {.lid = 17, .link_layer = 2, .gid_tbl_len = 4};

	memcpy(fake.answer, &answer, sizeof(answer));
	assert_int_equal(kernel_query_port(kernel, 1, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.lid, 17);
	assert_int_equal(attr.link_layer, 2);
	assert_int_equal(fake.message[0], IB_USER_VERBS_CMD_QUERY_PORT);
	device_close(kernel);
}

static void gids_from_sysfs(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);
	struct ibv_gid_entry entry;
	__be16 pkey;

	fake_file("class/infiniband/fake0/ports/1/gids/0",
		  "0000:0000:0000:0000:0000:ffff:0a4d:0003");
	fake_file("class/infiniband/fake0/ports/1/gids/1",
		  "0000:0000:0000:0000:0000:0000:0000:0000");
	fake_file("class/infiniband/fake0/ports/1/gid_attrs/types/0", "RoCE v2");
	fake_file("class/infiniband/fake0/ports/1/gid_attrs/ndevs/0", "eth7");
	fake_file("class/net/eth7/ifindex", "12");
	fake_file("class/infiniband/fake0/ports/1/pkeys/0", "0xffff");
	assert_int_equal(kernel_query_gid(kernel, 1, 0, &entry), 0);
	assert_int_equal(entry.gid.raw[12], 10);
	assert_int_equal(entry.gid.raw[15], 3);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(entry.ndev_ifindex, 12);
	assert_int_equal(kernel_query_gid(kernel, 1, 1, &entry), ENODATA);
	assert_int_equal(kernel_query_gid(kernel, 1, 2, &entry), EINVAL);
	assert_int_equal(kernel_query_pkey(kernel, 1, 0, &pkey), 0);
	assert_int_equal(be16toh(pkey), 0xffff);
	assert_int_equal(kernel_query_pkey(kernel, 1, 1, &pkey), -1);
	device_close(kernel);
}

static void events_are_counted(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_cq cq = {.context = &kernel->verbs->context, .handle = 1};
	struct ib_uverbs_async_event_desc record = {.element = (uintptr_t)&cq,
						    .event_type = IBV_EVENT_CQ_ERR};
	struct ib_uverbs_comp_event_desc completion = {.cq_handle = (uintptr_t)&cq};
	struct ib_uverbs_destroy_cq_resp reported = {.comp_events_reported = 1,
						     .async_events_reported = 1};
	struct ibv_async_event event;
	struct ibv_cq *got;
	void *cq_context;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	struct ibv_comp_channel channel = {.context = &kernel->verbs->context, .fd = fds[0]};

	cq.cq_context = &fds;
	close(kernel->verbs->context.async_fd);
	kernel->verbs->context.async_fd = dup(fds[0]);
	assert_int_equal(write(fds[1], &record, sizeof(record)), sizeof(record));
	assert_int_equal(kernel_get_async_event(kernel, &event), 0);
	assert_ptr_equal(event.element.cq, &cq);
	assert_true(kernel_ack_async_event(&event));
	assert_int_equal(write(fds[1], &completion, sizeof(completion)), sizeof(completion));
	assert_int_equal(kernel_get_cq_event(&channel, &got, &cq_context), 0);
	assert_ptr_equal(got, &cq);
	assert_ptr_equal(cq_context, &fds);
	kernel_ack_cq_events(&cq, 1);
	memcpy(fake.answer, &reported, sizeof(reported));
	assert_int_equal(ibv_cmd_destroy_cq(&cq), 0); /* doesn't wait: all are acknowledged */
	assert_int_equal(fake.command, IB_USER_VERBS_CMD_DESTROY_CQ);
	close(fds[0]);
	close(fds[1]);
	device_close(kernel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scan_takes_what_has_its_node),
		cmocka_unit_test(scan_needs_a_known_interface),
		cmocka_unit_test(driver_matches),
		cmocka_unit_test(configuration_is_read),
		cmocka_unit_test(environment_chooses),
		cmocka_unit_test(device_is_listed_once),
		cmocka_unit_test(context_has_events_and_vectors),
		cmocka_unit_test(legacy_command_by_write),
		cmocka_unit_test(legacy_command_by_ioctl),
		cmocka_unit_test(extended_command_in_both_forms),
		cmocka_unit_test(objects_are_encoded),
		cmocka_unit_test(modify_sends_what_the_mask_names),
		cmocka_unit_test(failures_are_reported),
		cmocka_unit_test(parts_of_others_are_refused),
		cmocka_unit_test(port_by_method_or_command),
		cmocka_unit_test(gids_from_sysfs),
		cmocka_unit_test(events_are_counted),
	};

	verbs_register_driver_34(&fake_provider);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
