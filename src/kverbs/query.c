/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries of the kernel's devices, ports, GIDs and partition keys. No state; any thread. */
#include <endian.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kverbs/command.h"
#include "kverbs/device.h"
#include "kverbs/scan.h"

static int query_result(int err)
{
	if (err)
		errno = err;
	return err;
}

/* ------------------------------------------------------------------ the device */

static void device_basics(struct ibv_device_attr *attr,
			  const struct ib_uverbs_query_device_resp *from)
{
	attr->node_guid = from->node_guid;
	attr->sys_image_guid = from->sys_image_guid;
	attr->max_mr_size = from->max_mr_size;
	attr->page_size_cap = from->page_size_cap;
	attr->vendor_id = from->vendor_id;
	attr->vendor_part_id = from->vendor_part_id;
	attr->hw_ver = from->hw_ver;
	attr->device_cap_flags = from->device_cap_flags;
	attr->atomic_cap = from->atomic_cap;
	attr->max_pkeys = from->max_pkeys;
	attr->local_ca_ack_delay = from->local_ca_ack_delay;
	attr->phys_port_cnt = from->phys_port_cnt;
}

static void device_maxima(struct ibv_device_attr *attr,
			  const struct ib_uverbs_query_device_resp *from)
{
	attr->max_qp = (int)from->max_qp;
	attr->max_qp_wr = (int)from->max_qp_wr;
	attr->max_sge = (int)from->max_sge;
	attr->max_sge_rd = (int)from->max_sge_rd;
	attr->max_cq = (int)from->max_cq;
	attr->max_cqe = (int)from->max_cqe;
	attr->max_mr = (int)from->max_mr;
	attr->max_pd = (int)from->max_pd;
	attr->max_qp_rd_atom = (int)from->max_qp_rd_atom;
	attr->max_ee_rd_atom = (int)from->max_ee_rd_atom;
	attr->max_res_rd_atom = (int)from->max_res_rd_atom;
	attr->max_qp_init_rd_atom = (int)from->max_qp_init_rd_atom;
	attr->max_ee_init_rd_atom = (int)from->max_ee_init_rd_atom;
	attr->max_ee = (int)from->max_ee;
	attr->max_rdd = (int)from->max_rdd;
	attr->max_mw = (int)from->max_mw;
	attr->max_raw_ipv6_qp = (int)from->max_raw_ipv6_qp;
	attr->max_raw_ethy_qp = (int)from->max_raw_ethy_qp;
	attr->max_mcast_grp = (int)from->max_mcast_grp;
	attr->max_mcast_qp_attach = (int)from->max_mcast_qp_attach;
	attr->max_total_mcast_qp_attach = (int)from->max_total_mcast_qp_attach;
	attr->max_ah = (int)from->max_ah;
	attr->max_fmr = (int)from->max_fmr;
	attr->max_map_per_fmr = (int)from->max_map_per_fmr;
	attr->max_srq = (int)from->max_srq;
	attr->max_srq_wr = (int)from->max_srq_wr;
	attr->max_srq_sge = (int)from->max_srq_sge;
}

static void device_odp(struct ibv_device_attr_ex *attr,
		       const struct ib_uverbs_ex_query_device_resp *from)
{
	attr->odp_caps.general_caps = from->odp_caps.general_caps;
	attr->odp_caps.per_transport_caps.rc_odp_caps =
		from->odp_caps.per_transport_caps.rc_odp_caps;
	attr->odp_caps.per_transport_caps.uc_odp_caps =
		from->odp_caps.per_transport_caps.uc_odp_caps;
	attr->odp_caps.per_transport_caps.ud_odp_caps =
		from->odp_caps.per_transport_caps.ud_odp_caps;
	attr->xrc_odp_caps = from->xrc_odp_caps;
}

/* What the kernel didn't fill is zero in `from`. */
static void device_extras(struct ibv_device_attr_ex *attr,
			  const struct ib_uverbs_ex_query_device_resp *from)
{
	device_odp(attr, from);
	attr->completion_timestamp_mask = from->timestamp_mask;
	attr->hca_core_clock = from->hca_core_clock;
	attr->device_cap_flags_ex = from->device_cap_flags_ex;
	attr->rss_caps.supported_qpts = from->rss_caps.supported_qpts;
	attr->rss_caps.max_rwq_indirection_tables = from->rss_caps.max_rwq_indirection_tables;
	attr->rss_caps.max_rwq_indirection_table_size =
		from->rss_caps.max_rwq_indirection_table_size;
	attr->max_wq_type_rq = from->max_wq_type_rq;
	attr->max_dm_size = from->max_dm_size;
	attr->raw_packet_caps = from->raw_packet_caps;
	attr->tm_caps.max_rndv_hdr_size = from->tm_caps.max_rndv_hdr_size;
	attr->tm_caps.max_num_tags = from->tm_caps.max_num_tags;
	attr->tm_caps.flags = from->tm_caps.flags;
	attr->tm_caps.max_ops = from->tm_caps.max_ops;
	attr->tm_caps.max_sge = from->tm_caps.max_sge;
	attr->cq_mod_caps.max_cq_count = from->cq_moderation_caps.max_cq_moderation_count;
	attr->cq_mod_caps.max_cq_period = from->cq_moderation_caps.max_cq_moderation_period;
}

/* `size`: of the response with the driver's part. */
static int device_ask_extended(struct kernel_context *kernel,
			       struct ib_uverbs_ex_query_device_resp *response, size_t size)
{
	struct ib_uverbs_ex_query_device core = {0};

	return command_run(kernel, &(struct command){
					   .number = IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
					   .extended = true,
					   .core = &core,
					   .core_size = sizeof(core),
					   .answer = response,
					   .answer_size = sizeof(*response),
					   .driver = driver_data_of(NULL, 0, 0, response,
								    sizeof(*response), size),
				   });
}

static int device_ask_basic(struct kernel_context *kernel,
			    struct ib_uverbs_ex_query_device_resp *response)
{
	struct ib_uverbs_query_device core = {0};

	memset(response, 0, sizeof(*response));
	response->response_length = sizeof(response->base);
	return command_run(kernel, &(struct command){
					   .number = IB_USER_VERBS_CMD_QUERY_DEVICE,
					   .core = &core,
					   .core_size = sizeof(core),
					   .answer = &response->base,
					   .answer_size = sizeof(response->base),
				   });
}

/* `response` may be NULL; *response_size is its size before, and how much is filled afterwards. */
EXPORT int ibv_cmd_query_device_any(struct ibv_context *context,
				    const struct ibv_query_device_ex_input *input,
				    struct ibv_device_attr_ex *attr, size_t attr_size,
				    struct ib_uverbs_ex_query_device_resp *response,
				    size_t *response_size)
{
	struct kernel_context *kernel = kernel_of(context);
	struct ib_uverbs_ex_query_device_resp own;
	size_t own_size = sizeof(own);
	struct ibv_device_attr_ex full = {0};
	int err = EOPNOTSUPP;

	if ((input && input->comp_mask) || attr_size < sizeof(attr->orig_attr))
		return EINVAL;
	if (!response) {
		response = &own;
		response_size = &own_size;
	}
	if (*response_size < sizeof(*response))
		return EINVAL;
	if (attr_size > sizeof(attr->orig_attr))
		err = device_ask_extended(kernel, response, *response_size);
	if (err == EOPNOTSUPP || err == ENOSYS)
		err = device_ask_basic(kernel, response);
	if (err)
		return err;
	*response_size = response->response_length;
	device_basics(&full.orig_attr, &response->base);
	device_maxima(&full.orig_attr, &response->base);
	device_extras(&full, response);
	full.phys_port_cnt_ex = kernel->device->found->ports ? kernel->device->found->ports
							     : full.orig_attr.phys_port_cnt;
	memset(attr, 0, attr_size);
	memcpy(attr, &full, attr_size < sizeof(full) ? attr_size : sizeof(full));
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_query_device_any, ibv_cmd_query_device_any);

int kernel_query_device(struct kernel_context *kernel, struct ibv_device_attr *attr)
{
	struct ibv_device_attr_ex full = {0};
	int err = EOPNOTSUPP;

	if (kernel->ops.query_device_ex)
		err = kernel->ops.query_device_ex(&kernel->verbs->context, NULL, &full,
						  sizeof(full.orig_attr));
	if (!err)
		*attr = full.orig_attr;
	return query_result(err);
}

/* ------------------------------------------------------------------ ports */

static void port_fill(struct ibv_port_attr *attr, const struct ib_uverbs_query_port_resp *from)
{
	attr->state = from->state;
	attr->max_mtu = from->max_mtu;
	attr->active_mtu = from->active_mtu;
	attr->gid_tbl_len = (int)from->gid_tbl_len;
	attr->port_cap_flags = from->port_cap_flags;
	attr->max_msg_sz = from->max_msg_sz;
	attr->bad_pkey_cntr = from->bad_pkey_cntr;
	attr->qkey_viol_cntr = from->qkey_viol_cntr;
	attr->pkey_tbl_len = from->pkey_tbl_len;
	attr->lid = from->lid;
	attr->sm_lid = from->sm_lid;
	attr->lmc = from->lmc;
	attr->max_vl_num = from->max_vl_num;
	attr->sm_sl = from->sm_sl;
	attr->subnet_timeout = from->subnet_timeout;
	attr->init_type_reply = from->init_type_reply;
	attr->active_width = from->active_width;
	attr->active_speed = from->active_speed;
	attr->phys_state = from->phys_state;
	attr->link_layer = from->link_layer;
	attr->flags = from->flags;
}

static int port_by_command(struct kernel_context *kernel, uint8_t port,
			   const struct driver_data *driver, struct ibv_port_attr *attr)
{
	struct ib_uverbs_query_port core = {.port_num = port};
	struct ib_uverbs_query_port_resp answer;
	int err = command_run(kernel, &(struct command){
					      .number = IB_USER_VERBS_CMD_QUERY_PORT,
					      .core = &core,
					      .core_size = sizeof(core),
					      .answer = &answer,
					      .answer_size = sizeof(answer),
					      .driver = *driver,
				      });

	if (!err)
		port_fill(attr, &answer);
	return err;
}

EXPORT int ibv_cmd_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
			      void *request, size_t size)
{
	struct kernel_context *kernel = kernel_of(context);
	struct ib_uverbs_query_port_resp_ex answer = {0};
	struct method method;

	method_begin(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
	method_in_u64(&method, UVERBS_ATTR_QUERY_PORT_PORT_NUM, port);
	method_out(&method, UVERBS_ATTR_QUERY_PORT_RESP, &answer, sizeof(answer));
	int err = method_run(kernel, &method);

	if (err == EOPNOTSUPP) {
		struct driver_data driver = driver_data_of(
			request, COMMAND_HEADER + sizeof(struct ib_uverbs_query_port), size, NULL,
			0, 0);

		return port_by_command(kernel, port, &driver, attr);
	}
	if (err)
		return err;
	port_fill(attr, &answer.legacy_resp);
	attr->port_cap_flags2 = answer.port_cap_flags2;
	attr->active_speed_ex = answer.active_speed_ex;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_query_port, ibv_cmd_query_port);

int kernel_query_port(struct kernel_context *kernel, uint8_t port, struct ibv_port_attr *attr,
		      size_t size)
{
	/* Drivers of later releases write a longer structure. */
	union {
		struct ibv_port_attr full;
		char later[2 * sizeof(struct ibv_port_attr)];
	} got = {0};
	int err = EOPNOTSUPP;

	if (kernel->ops.query_port)
		err = kernel->ops.query_port(&kernel->verbs->context, port, &got.full);
	if (err)
		return query_result(err);
	if (size > sizeof(got)) {
		memset((char *)attr + sizeof(got), 0, size - sizeof(got));
		size = sizeof(got);
	}
	memcpy(attr, &got, size);
	return 0;
}

/* ------------------------------------------------------------------ GIDs from sysfs */

/* A file below ports/PORT of the device. */
static int port_read(const struct kernel_context *kernel, uint32_t port, const char *what,
		     uint32_t index, char *value, size_t size)
{
	char file[64];

	snprintf(file, sizeof(file), "ports/%u/%s/%u", port, what, index);
	return scan_read(kernel->device->found->sysfs_path, file, value, size);
}

static bool gid_parse(const char *text, union ibv_gid *gid)
{
	unsigned int part[8];

	if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3],
		   &part[4], &part[5], &part[6], &part[7]) != 8)
		return false;
	for (int i = 0; i < 8; i++) {
		gid->raw[2 * i] = (uint8_t)(part[i] >> 8);
		gid->raw[2 * i + 1] = (uint8_t)part[i];
	}
	return true;
}

static uint32_t gid_type_read(struct kernel_context *kernel, uint32_t port, uint32_t index)
{
	struct ibv_port_attr attr = {0};
	char text[32];

	if (port_read(kernel, port, "gid_attrs/types", index, text, sizeof(text)) > 0 &&
	    !strcmp(text, "RoCE v2"))
		return IBV_GID_TYPE_ROCE_V2;
	if (!kernel_query_port(kernel, (uint8_t)port, &attr, sizeof(attr)) &&
	    attr.link_layer == IBV_LINK_LAYER_ETHERNET)
		return IBV_GID_TYPE_ROCE_V1;
	return IBV_GID_TYPE_IB;
}

static uint32_t interface_index(const char *name)
{
	char dir[IBV_SYSFS_PATH_MAX], text[16];

	snprintf(dir, sizeof(dir), "%.200s/class/net/%.16s", scan_default_roots()->sysfs, name);
	return scan_read(dir, "ifindex", text, sizeof(text)) > 0 ? (uint32_t)strtoul(text, NULL, 10)
								 : 0;
}

static int gid_by_sysfs(struct kernel_context *kernel, uint32_t port, uint32_t index,
			struct ibv_gid_entry *entry)
{
	static const union ibv_gid none;
	char text[64];

	memset(entry, 0, sizeof(*entry));
	if (port_read(kernel, port, "gids", index, text, sizeof(text)) <= 0 ||
	    !gid_parse(text, &entry->gid))
		return EINVAL;
	if (!memcmp(&entry->gid, &none, sizeof(none)))
		return ENODATA;
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = gid_type_read(kernel, port, index);
	if (port_read(kernel, port, "gid_attrs/ndevs", index, text, sizeof(text)) > 0)
		entry->ndev_ifindex = interface_index(text);
	return 0;
}

/* ------------------------------------------------------------------ GIDs */

int kernel_query_gid(struct kernel_context *kernel, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *entry)
{
	struct method method;

	memset(entry, 0, sizeof(*entry));
	method_begin(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY);
	method_in_u64(&method, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port);
	method_in_u64(&method, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index);
	method_in_u32(&method, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0);
	method_out(&method, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry, sizeof(*entry));
	int err = method_run(kernel, &method);

	return err == EOPNOTSUPP ? gid_by_sysfs(kernel, port, index, entry) : err;
}

/* Appends a port's entries to the table. The new number or a negative errno. */
static ssize_t table_of_port(struct kernel_context *kernel, uint32_t port, char *entries,
			     ssize_t count, size_t max, size_t entry_size)
{
	struct ibv_port_attr attr = {0};
	int err = kernel_query_port(kernel, (uint8_t)port, &attr, sizeof(attr));

	for (int i = 0; !err && i < attr.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		int bad = gid_by_sysfs(kernel, port, (uint32_t)i, &entry);

		if (bad == ENODATA)
			continue;
		err = bad ? bad : (size_t)count == max ? EINVAL : 0;
		if (err)
			break;
		memset(entries + (size_t)count * entry_size, 0, entry_size);
		memcpy(entries + (size_t)count++ * entry_size, &entry,
		       entry_size < sizeof(entry) ? entry_size : sizeof(entry));
	}
	return err ? -err : count;
}

static ssize_t table_by_sysfs(struct kernel_context *kernel, struct ibv_gid_entry *entries,
			      size_t max, size_t entry_size)
{
	struct ibv_device_attr attr = {0};
	int err = kernel_query_device(kernel, &attr);
	ssize_t count = -err;

	for (uint32_t port = 1; count >= 0 && port <= attr.phys_port_cnt; port++)
		count = table_of_port(kernel, port, (char *)entries, count, max, entry_size);
	return count;
}

ssize_t kernel_query_gid_table(struct kernel_context *kernel, struct ibv_gid_entry *entries,
			       size_t max, uint32_t flags, size_t entry_size)
{
	uint64_t count = 0;
	struct method method;
	size_t room;

	if (__builtin_mul_overflow(max, entry_size, &room))
		return -EINVAL;
	/* An attribute has 64 KiB at most; the kernel counts entries by that, too. */
	if (room > UINT16_MAX)
		room = UINT16_MAX / entry_size * entry_size;
	method_begin(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
	method_in_u64(&method, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, entry_size);
	method_in_u32(&method, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, flags);
	method_out(&method, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries, room);
	method_out(&method, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count, sizeof(count));
	int err = method_run(kernel, &method);

	if (err == EOPNOTSUPP && !flags)
		return table_by_sysfs(kernel, entries, max, entry_size);
	return err ? -err : (ssize_t)count;
}

int kernel_query_pkey(struct kernel_context *kernel, uint8_t port, int index, __be16 *pkey)
{
	unsigned int value;
	char text[16];

	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	if (port_read(kernel, port, "pkeys", (uint32_t)index, text, sizeof(text)) < 0)
		return -1;
	if (sscanf(text, "%x", &value) != 1 || value > UINT16_MAX) {
		errno = EIO;
		return -1;
	}
	*pkey = htobe16((uint16_t)value);
	return 0;
}
