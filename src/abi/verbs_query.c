/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queries of devices and ports. The daemon has the answers (as the kernel would). A structure may
 * be shorter or longer in the program than here: the common part is filled. No state.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "abi/verbs_abi.h"
#include "base/refused.h"
#include "hca/fabric/membership.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"

#undef ibv_query_port

enum {
	PKEY_DEFAULT = 0xffff,
	COMPAT_PORT_ATTR = 48, /* bytes of struct ibv_port_attr before port_cap_flags2 */
	GID_TYPE_SYSFS_V1 = 0, /* InfiniBand or RoCE version 1 */
	GID_TYPE_SYSFS_V2 = 1,
};

/* Copies the common part; the rest of the program's structure is set to zero. */
static void copy_sized(void *to, size_t to_size, const void *from, size_t from_size)
{
	if (to_size > from_size) {
		memset((char *)to + from_size, 0, to_size - from_size);
		to_size = from_size;
	}
	memcpy(to, from, to_size);
}

/* The node of a fabric whose device it is, or NULL. */
static const struct node *context_node(struct ibv_context *context)
{
	const struct membership *membership = context_of(context)->hca->membership;

	return membership ? membership->node : NULL;
}

/* ------------------------------------------------------------------ the device */

static void device_limits(struct ibv_device_attr *attr,
			  const struct ib_uverbs_query_device_resp *resp)
{
	attr->max_qp = resp->max_qp;
	attr->max_qp_wr = resp->max_qp_wr;
	attr->max_sge = resp->max_sge;
	attr->max_sge_rd = resp->max_sge_rd;
	attr->max_cq = resp->max_cq;
	attr->max_cqe = resp->max_cqe;
	attr->max_mr = resp->max_mr;
	attr->max_pd = resp->max_pd;
	attr->max_qp_rd_atom = resp->max_qp_rd_atom;
	attr->max_ee_rd_atom = resp->max_ee_rd_atom;
	attr->max_res_rd_atom = resp->max_res_rd_atom;
	attr->max_qp_init_rd_atom = resp->max_qp_init_rd_atom;
	attr->max_ee_init_rd_atom = resp->max_ee_init_rd_atom;
	attr->max_ee = resp->max_ee;
	attr->max_rdd = resp->max_rdd;
	attr->max_mw = resp->max_mw;
	attr->max_raw_ipv6_qp = resp->max_raw_ipv6_qp;
	attr->max_raw_ethy_qp = resp->max_raw_ethy_qp;
	attr->max_mcast_grp = resp->max_mcast_grp;
	attr->max_mcast_qp_attach = resp->max_mcast_qp_attach;
	attr->max_total_mcast_qp_attach = resp->max_total_mcast_qp_attach;
	attr->max_ah = resp->max_ah;
	attr->max_fmr = resp->max_fmr;
	attr->max_map_per_fmr = resp->max_map_per_fmr;
	attr->max_srq = resp->max_srq;
	attr->max_srq_wr = resp->max_srq_wr;
	attr->max_srq_sge = resp->max_srq_sge;
	attr->max_pkeys = resp->max_pkeys;
}

/* Asks the daemon; a forked child gets what its parent was told. 0 or a positive errno. */
static int device_query_known(struct ibv_context *context, struct ib_uverbs_query_device_resp *resp)
{
	struct open_context *open = container_of(context_of(context), struct open_context, context);
	int none = 0;

	if (daemon_is_left(&open->context.conn)) {
		*resp = open->device;
		return atomic_load(&open->queried) == QUERY_DONE ? 0 : EIO;
	}
	int err = -daemon_query_device(&open->context.conn, resp);

	if (!err && atomic_compare_exchange_strong(&open->queried, &none, QUERY_WRITES)) {
		open->device = *resp;
		atomic_store(&open->queried, QUERY_DONE);
	}
	return err;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct ib_uverbs_query_device_resp resp;
	int err = device_query_known(context, &resp);

	if (err)
		return err;
	*attr = (struct ibv_device_attr){
		.node_guid = resp.node_guid,
		.sys_image_guid = resp.sys_image_guid,
		.max_mr_size = resp.max_mr_size,
		.page_size_cap = resp.page_size_cap,
		.vendor_id = resp.vendor_id,
		.vendor_part_id = resp.vendor_part_id,
		.hw_ver = resp.hw_ver,
		.device_cap_flags = resp.device_cap_flags,
		.atomic_cap = resp.atomic_cap,
		.local_ca_ack_delay = resp.local_ca_ack_delay,
		.phys_port_cnt = resp.phys_port_cnt,
	};
	device_limits(attr, &resp);
	if (context_node(context))
		node_query_device(context_node(context), attr);
	/* Packed as the kernel's drivers do: 16 bits each of major, minor, patch. */
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%u.%u.%u",
		 (unsigned int)(resp.fw_ver >> 32 & 0xffff),
		 (unsigned int)(resp.fw_ver >> 16 & 0xffff), (unsigned int)(resp.fw_ver & 0xffff));
	return 0;
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_query_device(kernel, attr);
	return fail_errno(query_device(context, attr));
}

int verbs_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex full = {0};

	if ((input && input->comp_mask) || attr_size < sizeof(full.orig_attr))
		return refused(EINVAL,
			       "ibv_query_device_ex: comp_mask is 0x%x, and must be 0; there is "
			       "room for %zu bytes, and %zu are needed",
			       input ? input->comp_mask : 0, attr_size, sizeof(full.orig_attr));
	int err = query_device(context, &full.orig_attr);

	if (err)
		return err;
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags | CAPABILITIES_EX;
	full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
	/* Completion timestamps are CLOCK_MONOTONIC in nanoseconds. */
	full.completion_timestamp_mask = UINT64_MAX;
	full.hca_core_clock = 1000000; /* kHz */
	full.odp_caps = (struct ibv_odp_caps){
		.general_caps = ODP_GENERAL,
		.per_transport_caps = {.rc_odp_caps = ODP_RC,
				       .uc_odp_caps = ODP_UC,
				       .ud_odp_caps = ODP_UD},
	};
	full.xrc_odp_caps = ODP_XRC;
	full.cq_mod_caps = (struct ibv_cq_moderation_caps){.max_cq_count = UINT16_MAX,
							   .max_cq_period = UINT16_MAX};
	full.packet_pacing_caps = (struct ibv_packet_pacing_caps){
		.qp_rate_limit_min = 1, /* kbps */
		.qp_rate_limit_max = UINT32_MAX,
		.supported_qpts = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD |
				  1u << IBV_QPT_RAW_PACKET,
	};
	full.raw_packet_caps = RAW_PACKET_CAPS;
	full.max_wq_type_rq = (uint32_t)full.orig_attr.max_qp;
	full.rss_caps = (struct ibv_rss_caps){
		.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
		.max_rwq_indirection_tables = LIMIT_TABLES,
		.max_rwq_indirection_table_size = 1u << LIMIT_TABLE_LOG,
		.rx_hash_fields_mask = RX_HASH_FIELDS,
		.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
	};
	full.tm_caps = (struct ibv_tm_caps){
		.max_rndv_hdr_size = LIMIT_RNDV_BYTES,
		.max_num_tags = LIMIT_TAGS,
		.flags = IBV_TM_CAP_RC,
		.max_ops = LIMIT_TAG_OPS,
		.max_sge = LIMIT_TAG_SGE,
	};
	full.max_dm_size = LIMIT_DM_BYTES;
	copy_sized(attr, attr_size, &full, sizeof(full));
	return 0;
}

int verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t known = values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK;

	(void)context;
	if (known && clock_gettime(CLOCK_MONOTONIC, &values->raw_clock) < 0)
		return errno;
	values->comp_mask = known;
	return 0;
}

/* ------------------------------------------------------------------ ports */

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		     size_t attr_size)
{
	struct ib_uverbs_query_port_resp resp;
	struct ibv_port_attr full;

	if (context_node(context)) {
		int bad = node_query_port(context_node(context), port, &full);

		if (!bad)
			copy_sized(attr, attr_size, &full, sizeof(full));
		return bad;
	}
	int err = -daemon_query_port(conn_of(context), port, &resp);

	if (err)
		return err;
	full = (struct ibv_port_attr){
		.state = resp.state,
		.max_mtu = resp.max_mtu,
		.active_mtu = resp.active_mtu,
		.gid_tbl_len = (int)resp.gid_tbl_len,
		.port_cap_flags = resp.port_cap_flags,
		.max_msg_sz = resp.max_msg_sz,
		.bad_pkey_cntr = resp.bad_pkey_cntr,
		.qkey_viol_cntr = resp.qkey_viol_cntr,
		.pkey_tbl_len = resp.pkey_tbl_len,
		.lid = resp.lid,
		.sm_lid = resp.sm_lid,
		.lmc = resp.lmc,
		.max_vl_num = resp.max_vl_num,
		.sm_sl = resp.sm_sl,
		.subnet_timeout = resp.subnet_timeout,
		.init_type_reply = resp.init_type_reply,
		.active_width = resp.active_width,
		.active_speed = resp.active_speed,
		.phys_state = resp.phys_state,
		.link_layer = resp.link_layer,
		.flags = resp.flags,
		.active_speed_ex = resp.active_speed,
	};

	copy_sized(attr, attr_size, &full, sizeof(full));
	return 0;
}

/* Current programs call the context's slot; this symbol is for programs whose structure ends before
 * port_cap_flags2. */
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
			  struct _compat_ibv_port_attr *port_attr)
{
	struct kernel_context *kernel = kernel_context_of(context);
	struct ibv_port_attr *attr = (struct ibv_port_attr *)port_attr;

	if (kernel)
		return kernel_query_port(kernel, port_num, attr, COMPAT_PORT_ATTR);
	return fail_errno(verbs_query_port(context, port_num, attr, COMPAT_PORT_ATTR));
}

/* ------------------------------------------------------------------ GIDs */

static int gid_query_entry(struct ibv_context *context, uint32_t port, uint32_t index,
			   struct ibv_gid_entry *entry)
{
	struct kernel_context *kernel = kernel_context_of(context);
	struct proto_query_gid_resp resp;

	if (kernel)
		return kernel_query_gid(kernel, port, index, entry);
	if (context_node(context))
		return node_query_gid(context_node(context), port, index, entry);
	int err = index < LIMIT_GIDS ? -daemon_query_gid(conn_of(context), port, index, &resp)
				     : EINVAL;

	if (err)
		return err;
	*entry = (struct ibv_gid_entry){
		.gid_index = index,
		.port_num = port,
		.gid_type = resp.type,
		.ndev_ifindex = resp.ifindex,
	};
	memcpy(entry->gid.raw, resp.gid, sizeof(resp.gid));
	return 0;
}

/* An empty entry (ENODATA) is nothing to say: programs read the table in search of others. */
static void say_no_gid(const char *call, uint32_t port, int64_t index, int err)
{
	if (err == EINVAL)
		log_warn_few("%s: port %u has no GID of index %lld (gid_tbl_len and phys_port_cnt "
			     "say how many there are)",
			     call, port, (long long)index);
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			 union ibv_gid *gid)
{
	struct ibv_gid_entry entry = {0};
	int err = index < 0 ? EINVAL : gid_query_entry(context, port_num, index, &entry);

	say_no_gid("ibv_query_gid", port_num, index, err);
	if (err && err != ENODATA) { /* an empty entry of the table is a GID of zeros */
		errno = err;
		return -1;
	}
	*gid = entry.gid;
	return 0;
}

EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
			      int *type)
{
	struct ibv_gid_entry entry = {.gid_type = IBV_GID_TYPE_ROCE_V1};
	int err = gid_query_entry(context, port, index, &entry);

	say_no_gid("ibv_query_gid_type", port, index, err);
	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? GID_TYPE_SYSFS_V2 : GID_TYPE_SYSFS_V1;
	return 0;
}
EXPORT_SINCE_34(ibv_query_gid_type, ibv_query_gid_type);

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;

	if (flags)
		return fail_errno(refused(EOPNOTSUPP,
					  "ibv_query_gid_ex: flags is 0x%x, and must be 0", flags));
	int err = gid_query_entry(context, port_num, gid_index, &full);

	say_no_gid("ibv_query_gid_ex", port_num, gid_index, err);

	if (!err)
		copy_sized(entry, entry_size, &full, sizeof(full));
	return fail_errno(err);
}

/* Appends the entries of one port. Returns the new number of entries or a negative errno. */
static ssize_t gid_table_of(struct ibv_context *context, uint32_t port, char *entries, size_t n,
			    size_t max, size_t entry_size)
{
	struct ibv_port_attr attr;
	int err = verbs_query_port(context, port, &attr, sizeof(attr));

	for (int i = 0; !err && i < attr.gid_tbl_len; i++) {
		struct ibv_gid_entry full;
		int e = gid_query_entry(context, port, i, &full);

		if (e == ENODATA)
			continue;
		if (!e && n == max)
			e = refused(EINVAL,
				    "ibv_query_gid_table: max_entries is %zu, and the device has "
				    "more GIDs",
				    max);
		if (!e)
			copy_sized(entries + n++ * entry_size, entry_size, &full, sizeof(full));
		err = e;
	}
	return err ? -err : (ssize_t)n;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t max_entries, uint32_t flags, size_t entry_size)
{
	ssize_t n = 0;

	if (flags)
		return refused(-EOPNOTSUPP, "ibv_query_gid_table: flags is 0x%x, and must be 0",
			       flags);
	if (!max_entries || !entry_size)
		return refused(-EINVAL,
			       "ibv_query_gid_table: max_entries is %zu, and must be 1 "
			       "at least",
			       max_entries);
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_query_gid_table(kernel, entries, max_entries, flags, entry_size);
	for (uint32_t port = 1; n >= 0 && port <= device_from_ibv(context->device)->ports; port++)
		n = gid_table_of(context, port, (char *)entries, n, max_entries, entry_size);
	return n;
}

/* ------------------------------------------------------------------ partition keys */

static int pkey_query_node(const struct node *node, uint32_t port, int index, __be16 *pkey)
{
	uint16_t entry;
	int err = index < 0 ? EINVAL : node_query_pkey(node, port, (uint32_t)index, &entry);

	if (err) {
		errno = err;
		return -1;
	}
	*pkey = htobe16(entry);
	return 0;
}

/* As ibv_query_pkey(), which says why it fails. */
static int pkey_query(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_query_pkey(kernel, port_num, index, pkey);
	if (context_node(context))
		return pkey_query_node(context_node(context), port_num, index, pkey);
	if (!port_num || port_num > device_from_ibv(context->device)->ports || index < 0 ||
	    index >= (int)LIMIT_PKEYS) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(PKEY_DEFAULT);
	return 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	int err = pkey_query(context, port_num, index, pkey);

	if (err && errno == EINVAL)
		log_warn_few("ibv_query_pkey: port %u has no P_Key of index %d (pkey_tbl_len and "
			     "phys_port_cnt say how many there are)",
			     port_num, index);
	return err;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	__be16 entry;

	for (int i = 0; pkey_query(context, port_num, i, &entry) == 0; i++)
		if (entry == pkey)
			return i;
	log_warn_few("ibv_get_pkey_index: port %u has no P_Key 0x%x", port_num, be16toh(pkey));
	errno = EINVAL;
	return -1;
}
