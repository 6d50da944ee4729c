/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a driver's table of functions has, release by release: written from the public tags v44.0 to
 * v64.0 of rdma-core and from its main branch of August 2026 (65), not from src/kverbs.
 */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const char table_44[] =
	"advise_mr alloc_dm alloc_mw alloc_null_mr alloc_parent_domain alloc_pd alloc_td "
	"async_event attach_counters_point_flow attach_mcast bind_mw close_xrcd cq_event "
	"create_ah create_counters create_cq create_cq_ex create_flow "
	"create_flow_action_esp create_qp create_qp_ex create_rwq_ind_table create_srq "
	"create_srq_ex create_wq dealloc_mw dealloc_pd dealloc_td dereg_mr destroy_ah "
	"destroy_counters destroy_cq destroy_flow destroy_flow_action destroy_qp "
	"destroy_rwq_ind_table destroy_srq destroy_wq detach_mcast free_context free_dm "
	"get_srq_num import_dm import_mr import_pd modify_cq modify_flow_action_esp "
	"modify_qp modify_qp_rate_limit modify_srq modify_wq open_qp open_xrcd poll_cq "
	"post_recv post_send post_srq_ops post_srq_recv query_device_ex query_ece "
	"query_port query_qp query_qp_data_in_order query_rt_values query_srq "
	"read_counters reg_dm_mr reg_dmabuf_mr reg_mr req_notify_cq rereg_mr resize_cq "
	"set_ece unimport_dm unimport_mr unimport_pd";
static const char table_59[] =
	"advise_mr alloc_dm alloc_dmah alloc_mw alloc_null_mr alloc_parent_domain "
	"alloc_pd alloc_td async_event attach_counters_point_flow attach_mcast bind_mw "
	"close_xrcd cq_event create_ah create_counters create_cq create_cq_ex "
	"create_flow create_flow_action_esp create_qp create_qp_ex create_rwq_ind_table "
	"create_srq create_srq_ex create_wq dealloc_dmah dealloc_mw dealloc_pd "
	"dealloc_td dereg_mr destroy_ah destroy_counters destroy_cq destroy_flow "
	"destroy_flow_action destroy_qp destroy_rwq_ind_table destroy_srq destroy_wq "
	"detach_mcast free_context free_dm get_srq_num import_dm import_mr import_pd "
	"modify_cq modify_flow_action_esp modify_qp modify_qp_rate_limit modify_srq "
	"modify_wq open_qp open_xrcd poll_cq post_recv post_send post_srq_ops "
	"post_srq_recv query_device_ex query_ece query_port query_qp "
	"query_qp_data_in_order query_rt_values query_srq read_counters reg_dm_mr "
	"reg_dmabuf_mr reg_mr reg_mr_ex req_notify_cq rereg_mr resize_cq set_ece "
	"unimport_dm unimport_mr unimport_pd";
static const char table_62[] =
	"advise_mr alloc_dm alloc_dmah alloc_mw alloc_null_mr alloc_parent_domain "
	"alloc_pd alloc_td async_event attach_counters_point_flow attach_mcast bind_mw "
	"close_xrcd cq_event create_ah create_counters create_cq create_cq_ex "
	"create_flow create_flow_action_esp create_qp create_qp_ex create_rwq_ind_table "
	"create_srq create_srq_ex create_wq dealloc_dmah dealloc_mw dealloc_pd "
	"dealloc_td dereg_mr destroy_ah destroy_counters destroy_cq destroy_flow "
	"destroy_flow_action destroy_qp destroy_rwq_ind_table destroy_srq destroy_wq "
	"detach_mcast dm_export_dmabuf_fd free_context free_dm get_srq_num import_dm "
	"import_mr import_pd modify_cq modify_flow_action_esp modify_qp "
	"modify_qp_rate_limit modify_srq modify_wq open_qp open_xrcd poll_cq post_recv "
	"post_send post_srq_ops post_srq_recv query_device_ex query_ece query_port "
	"query_port_speed query_qp query_qp_data_in_order query_rt_values query_srq "
	"read_counters reg_dm_mr reg_dmabuf_mr reg_mr reg_mr_ex req_notify_cq rereg_mr "
	"resize_cq set_ece unimport_dm unimport_mr unimport_pd";
static const char table_64[] =
	"advise_mr alloc_buf alloc_dm alloc_dmah alloc_mw alloc_null_mr "
	"alloc_parent_domain alloc_pd alloc_td async_event attach_counters_point_flow "
	"attach_mcast bind_mw close_xrcd cq_event create_ah create_counters create_cq "
	"create_cq_ex create_flow create_flow_action_esp create_qp create_qp_ex "
	"create_rwq_ind_table create_srq create_srq_ex create_wq dealloc_dmah dealloc_mw "
	"dealloc_pd dealloc_td dereg_mr destroy_ah destroy_counters destroy_cq "
	"destroy_flow destroy_flow_action destroy_qp destroy_rwq_ind_table destroy_srq "
	"destroy_wq detach_mcast dm_export_dmabuf_fd free_buf free_context free_dm "
	"get_srq_num import_dm import_mr import_pd modify_cq modify_flow_action_esp "
	"modify_qp modify_qp_rate_limit modify_srq modify_wq open_qp open_xrcd poll_cq "
	"post_recv post_send post_srq_ops post_srq_recv query_device_ex query_ece "
	"query_port query_port_speed query_qp query_qp_data_in_order query_rt_values "
	"query_srq read_counters reg_dm_mr reg_dmabuf_mr reg_mr reg_mr_ex req_notify_cq "
	"rereg_mr resize_cq set_ece unimport_dm unimport_mr unimport_pd";
#define TABLE_65(X) \
	X(advise_mr) X(alloc_buf) X(alloc_dm) \
	X(alloc_dmah) X(alloc_mw) X(alloc_null_mr) \
	X(alloc_parent_domain) X(alloc_pd) X(alloc_td) \
	X(async_event) X(attach_counters_point_flow) X(attach_mcast) \
	X(bind_mw) X(close_xrcd) X(cq_event) \
	X(create_ah) X(create_comp_cntr) X(create_counters) \
	X(create_cq) X(create_cq_ex) X(create_flow) \
	X(create_flow_action_esp) X(create_qp) X(create_qp_ex) \
	X(create_rwq_ind_table) X(create_srq) X(create_srq_ex) \
	X(create_wq) X(dealloc_dmah) X(dealloc_mw) \
	X(dealloc_pd) X(dealloc_td) X(dereg_mr) \
	X(destroy_ah) X(destroy_comp_cntr) X(destroy_counters) \
	X(destroy_cq) X(destroy_flow) X(destroy_flow_action) \
	X(destroy_qp) X(destroy_rwq_ind_table) X(destroy_srq) \
	X(destroy_wq) X(detach_mcast) X(dm_export_dmabuf_fd) \
	X(free_buf) X(free_context) X(free_dm) \
	X(get_srq_num) X(import_dm) X(import_mr) \
	X(import_pd) X(inc_comp_cntr) X(inc_err_comp_cntr) \
	X(modify_cq) X(modify_flow_action_esp) X(modify_qp) \
	X(modify_qp_rate_limit) X(modify_srq) X(modify_wq) \
	X(open_qp) X(open_xrcd) X(poll_cq) \
	X(post_recv) X(post_send) X(post_srq_ops) \
	X(post_srq_recv) X(qp_attach_comp_cntr) X(query_comp_cntr_caps) \
	X(query_device_ex) X(query_ece) X(query_port) \
	X(query_port_speed) X(query_qp) X(query_qp_data_in_order) \
	X(query_rt_values) X(query_srq) X(read_comp_cntr) \
	X(read_counters) X(read_err_comp_cntr) X(reg_dm_mr) \
	X(reg_dmabuf_mr) X(reg_mr) X(reg_mr_ex) \
	X(req_notify_cq) X(rereg_mr) X(resize_cq) \
	X(set_comp_cntr) X(set_ece) X(set_err_comp_cntr) \
	X(unimport_dm) X(unimport_mr) X(unimport_pd)
/* clang-format on */

#define WORD(name) #name " "
static const char table_65[] = TABLE_65(WORD);

static const char *const tables[RELEASES] = {
	[RELEASE_44] = table_44, [RELEASE_57] = table_44, [RELEASE_59] = table_59,
	[RELEASE_62] = table_62, [RELEASE_64] = table_64, [RELEASE_65] = table_65,
};

int table_at(enum driver_release release, const char *name)
{
	size_t length = strlen(name);
	int at = 0;

	for (const char *word = tables[release]; *word; at++) {
		size_t end = strcspn(word, " ");

		if (end == length && !memcmp(word, name, length))
			return at;
		word += end + strspn(word + end, " ");
	}
	return -1;
}

unsigned int table_count(enum driver_release release)
{
	unsigned int count = 0;

	for (const char *word = tables[release]; *word; count++) {
		word += strcspn(word, " ");
		word += strspn(word, " ");
	}
	return count;
}

void table_visit(void (*visit)(const char *name, size_t at, void *argument), void *argument)
{
#define VISIT(name) visit(#name, offsetof(struct provider_ops, name), argument);
	TABLE_65(VISIT)
}

struct making {
	enum driver_release release;
	const char *ops;
	void **table;
};

static void table_put(const char *name, size_t offset, void *argument)
{
	struct making *making = argument;
	int at = table_at(making->release, name);

	if (at >= 0)
		memcpy(&making->table[at], making->ops + offset, sizeof(void *));
}

void **table_make(enum driver_release release, const struct provider_ops *ops)
{
	struct making making = {
		.release = release,
		.ops = (const char *)ops,
		.table = calloc(table_count(release), sizeof(void *)),
	};

	table_visit(table_put, &making);
	return making.table;
}

/* Functions that `struct verbs_context` got at its beginning. That of 44 has 648 bytes, and its
 * context begins at 320. */
static size_t slots_added(enum driver_release release)
{
	static const size_t added[RELEASES] = {
		[RELEASE_59] = 3, [RELEASE_62] = 4, [RELEASE_64] = 6, [RELEASE_65] = 6};

	return added[release];
}

size_t table_context_at(enum driver_release release)
{
	return 320 + slots_added(release) * sizeof(void *);
}

size_t table_context_size(enum driver_release release)
{
	return 648 + slots_added(release) * sizeof(void *);
}
