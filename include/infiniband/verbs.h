/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs API: devices, queue pairs, completion queues, memory and work requests.
 *
 * Names, numbers and layouts are those of rdma-core 44's libibverbs, so that a program compiled
 * against either header runs on either library. tests/abi compares the two mechanically.
 *
 * Two kinds of call live here. Control calls are ordinary functions of libibverbs.so.1. Data-path
 * calls, and control calls younger than the library's first ABI, are static inlines that jump
 * through a function pointer inside the object (ibv_context.ops, verbs_context, ibv_qp_ex,
 * ibv_cq_ex). They are compiled into the program: the layout of those structures is frozen.
 *
 * Errors: a call that returns a pointer returns NULL and sets errno; most calls that return int
 * return 0 or a positive errno value. The exceptions say so beside their prototype.
 * Threads: every call is safe from any thread, except that one object may not be destroyed while
 * another thread still uses it.
 */
#ifndef INFINIBAND_VERBS_H
#define INFINIBAND_VERBS_H

#include <errno.h>
#include <linux/if_ether.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include <linux/types.h>

#include <infiniband/verbs_api.h>

#ifdef __cplusplus
#include <limits>
extern "C" {
#endif

#if defined(__GNUC__)
#define __attribute_const __attribute__((const))
#else
#define __attribute_const
#endif

struct ibv_ah;
struct ibv_comp_channel;
struct ibv_context;
struct ibv_counters;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_device;
struct ibv_dm;
struct ibv_flow;
struct ibv_flow_action;
struct ibv_mr;
struct ibv_mw;
struct ibv_pd;
struct ibv_qp;
struct ibv_qp_ex;
struct ibv_rwq_ind_table;
struct ibv_srq;
struct ibv_td;
struct ibv_wq;
struct ibv_xrcd;

/* ---------------------------------------------------------------- addresses */

/* A port's 128-bit address, in network byte order; for RoCE an IPv6 or IPv4-mapped address. */
union ibv_gid {
	uint8_t raw[16];
	struct {
		__be64 subnet_prefix;
		__be64 interface_id;
	} global;
};

enum ibv_gid_type {
	IBV_GID_TYPE_IB = 0,
	IBV_GID_TYPE_ROCE_V1 = 1,
	IBV_GID_TYPE_ROCE_V2 = 2,
};

/* One row of a port's GID table, as ibv_query_gid_ex() reports it. */
struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type; /* enum ibv_gid_type */
	uint32_t ndev_ifindex;
};

/* The global route header's parameters on the sending side. */
struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

/* The global route header as a UD receive buffer carries it in its first 40 bytes. */
struct ibv_grh {
	__be32 version_tclass_flow;
	__be16 paylen;
	uint8_t next_hdr;
	uint8_t hop_limit;
	union ibv_gid sgid;
	union ibv_gid dgid;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global; /* non-zero: grh is valid; always needed on Ethernet */
	uint8_t port_num;
};

struct ibv_ah {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t handle;
};

#define ETHERNET_LL_SIZE ETH_ALEN /* bytes in a MAC address */

/* RoCE v2: the range that a flow label is folded into to make a UDP source port. */
#define IB_ROCE_UDP_ENCAP_VALID_PORT_MIN (0xC000)
#define IB_ROCE_UDP_ENCAP_VALID_PORT_MAX (0xFFFF)
#define IB_GRH_FLOWLABEL_MASK (0x000FFFFF)

/* ------------------------------------------------------- devices and ports */

enum ibv_node_type {
	IBV_NODE_UNKNOWN = -1,
	IBV_NODE_CA = 1,
	IBV_NODE_SWITCH = 2,
	IBV_NODE_ROUTER = 3,
	IBV_NODE_RNIC = 4,
	IBV_NODE_USNIC = 5,
	IBV_NODE_USNIC_UDP = 6,
	IBV_NODE_UNSPECIFIED = 7,
};

enum ibv_transport_type {
	IBV_TRANSPORT_UNKNOWN = -1,
	IBV_TRANSPORT_IB = 0, /* RoCE counts as IB here */
	IBV_TRANSPORT_IWARP = 1,
	IBV_TRANSPORT_USNIC = 2,
	IBV_TRANSPORT_USNIC_UDP = 3,
	IBV_TRANSPORT_UNSPECIFIED = 4,
};

/* Bits of ibv_device_attr.device_cap_flags. */
enum ibv_device_cap_flags {
	IBV_DEVICE_RESIZE_MAX_WR = 1 << 0,
	IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1,
	IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2,
	IBV_DEVICE_RAW_MULTI = 1 << 3,
	IBV_DEVICE_AUTO_PATH_MIG = 1 << 4,
	IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5,
	IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6,
	IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
	IBV_DEVICE_SHUTDOWN_PORT = 1 << 8,
	IBV_DEVICE_INIT_TYPE = 1 << 9,
	IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
	IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
	IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
	IBV_DEVICE_SRQ_RESIZE = 1 << 13,
	IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
	IBV_DEVICE_MEM_WINDOW = 1 << 17,
	IBV_DEVICE_UD_IP_CSUM = 1 << 18,
	IBV_DEVICE_XRC = 1 << 20,
	IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
	IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
	IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
	IBV_DEVICE_RC_IP_CSUM = 1 << 25,
	IBV_DEVICE_RAW_IP_CSUM = 1 << 26,
	IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
};

/* Further bits, which only fit ibv_device_attr_ex.device_cap_flags_ex. */
#define IBV_DEVICE_RAW_SCATTER_FCS (1ULL << 34)
#define IBV_DEVICE_PCI_WRITE_END_PADDING (1ULL << 36)
#define IBV_DEVICE_CC_DMA_BOUNCE (1ULL << 41)

/* To whom an atomic operation is atomic. */
enum ibv_atomic_cap {
	IBV_ATOMIC_NONE = 0,
	IBV_ATOMIC_HCA = 1,  /* among operations of this device */
	IBV_ATOMIC_GLOB = 2, /* and towards the CPUs */
};

/* Limits of a device, as ibv_query_device() reports them. */
struct ibv_device_attr {
	char fw_ver[64];
	__be64 node_guid;
	__be64 sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	enum ibv_atomic_cap atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay; /* 4.096 us times two to this power */
	uint8_t phys_port_cnt;
};

/* Extended query: must be zero today. */
struct ibv_query_device_ex_input {
	uint32_t comp_mask;
};

enum ibv_odp_transport_cap_bits {
	IBV_ODP_SUPPORT_SEND = 1 << 0,
	IBV_ODP_SUPPORT_RECV = 1 << 1,
	IBV_ODP_SUPPORT_WRITE = 1 << 2,
	IBV_ODP_SUPPORT_READ = 1 << 3,
	IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
	IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
	IBV_ODP_SUPPORT_FLUSH = 1 << 6,
	IBV_ODP_SUPPORT_ATOMIC_WRITE = 1 << 7,
};

enum ibv_odp_general_caps {
	IBV_ODP_SUPPORT = 1 << 0,
	IBV_ODP_SUPPORT_IMPLICIT = 1 << 1,
};

struct ibv_odp_caps {
	uint64_t general_caps;
	struct {
		uint32_t rc_odp_caps;
		uint32_t uc_odp_caps;
		uint32_t ud_odp_caps;
	} per_transport_caps;
};

struct ibv_tso_caps {
	uint32_t max_tso;
	uint32_t supported_qpts; /* bit n: QP type n; see ibv_is_qpt_supported() */
};

enum ibv_rx_hash_function_flags {
	IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
};

enum ibv_rx_hash_fields {
	IBV_RX_HASH_SRC_IPV4 = 1 << 0,
	IBV_RX_HASH_DST_IPV4 = 1 << 1,
	IBV_RX_HASH_SRC_IPV6 = 1 << 2,
	IBV_RX_HASH_DST_IPV6 = 1 << 3,
	IBV_RX_HASH_SRC_PORT_TCP = 1 << 4,
	IBV_RX_HASH_DST_PORT_TCP = 1 << 5,
	IBV_RX_HASH_SRC_PORT_UDP = 1 << 6,
	IBV_RX_HASH_DST_PORT_UDP = 1 << 7,
	IBV_RX_HASH_IPSEC_SPI = 1 << 8,
	IBV_RX_HASH_INNER = 1U << 31,
};

struct ibv_rss_caps {
	uint32_t supported_qpts;
	uint32_t max_rwq_indirection_tables;
	uint32_t max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};

struct ibv_packet_pacing_caps {
	uint32_t qp_rate_limit_min; /* kilobits per second */
	uint32_t qp_rate_limit_max;
	uint32_t supported_qpts;
};

enum ibv_raw_packet_caps {
	IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
	IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
	IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
	IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
};

enum ibv_tm_cap_flags {
	IBV_TM_CAP_RC = 1 << 0,
};

struct ibv_tm_caps {
	uint32_t max_rndv_hdr_size;
	uint32_t max_num_tags;
	uint32_t flags;
	uint32_t max_ops;
	uint32_t max_sge;
};

struct ibv_cq_moderation_caps {
	uint16_t max_cq_count;
	uint16_t max_cq_period; /* microseconds */
};

enum ibv_pci_atomic_op_size {
	IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0,
	IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1,
	IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2,
};

struct ibv_pci_atomic_caps {
	uint16_t fetch_add;
	uint16_t swap;
	uint16_t compare_swap;
};

struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct ibv_odp_caps odp_caps;
	uint64_t completion_timestamp_mask;
	uint64_t hca_core_clock; /* kHz */
	uint64_t device_cap_flags_ex;
	struct ibv_tso_caps tso_caps;
	struct ibv_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct ibv_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct ibv_tm_caps tm_caps;
	struct ibv_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size;
	struct ibv_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps;
	uint32_t phys_port_cnt_ex;
};

enum ibv_mtu {
	IBV_MTU_256 = 1,
	IBV_MTU_512 = 2,
	IBV_MTU_1024 = 3,
	IBV_MTU_2048 = 4,
	IBV_MTU_4096 = 5,
};

enum ibv_port_state {
	IBV_PORT_NOP = 0,
	IBV_PORT_DOWN = 1,
	IBV_PORT_INIT = 2,
	IBV_PORT_ARMED = 3,
	IBV_PORT_ACTIVE = 4,
	IBV_PORT_ACTIVE_DEFER = 5,
};

/* Values of ibv_port_attr.link_layer. */
enum {
	IBV_LINK_LAYER_UNSPECIFIED = 0,
	IBV_LINK_LAYER_INFINIBAND = 1,
	IBV_LINK_LAYER_ETHERNET = 2,
};

/* Bits of ibv_port_attr.port_cap_flags: the CapabilityMask of PortInfo. */
enum ibv_port_cap_flags {
	IBV_PORT_SM = 1 << 1,
	IBV_PORT_NOTICE_SUP = 1 << 2,
	IBV_PORT_TRAP_SUP = 1 << 3,
	IBV_PORT_OPT_IPD_SUP = 1 << 4,
	IBV_PORT_AUTO_MIGR_SUP = 1 << 5,
	IBV_PORT_SL_MAP_SUP = 1 << 6,
	IBV_PORT_MKEY_NVRAM = 1 << 7,
	IBV_PORT_PKEY_NVRAM = 1 << 8,
	IBV_PORT_LED_INFO_SUP = 1 << 9,
	IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11,
	IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12,
	IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14,
	IBV_PORT_CAP_MASK2_SUP = 1 << 15,
	IBV_PORT_CM_SUP = 1 << 16,
	IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17,
	IBV_PORT_REINIT_SUP = 1 << 18,
	IBV_PORT_DEVICE_MGMT_SUP = 1 << 19,
	IBV_PORT_VENDOR_CLASS_SUP = 1 << 20,
	IBV_PORT_DR_NOTICE_SUP = 1 << 21,
	IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22,
	IBV_PORT_BOOT_MGMT_SUP = 1 << 23,
	IBV_PORT_LINK_LATENCY_SUP = 1 << 24,
	IBV_PORT_CLIENT_REG_SUP = 1 << 25,
	IBV_PORT_IP_BASED_GIDS = 1 << 26,
};

/* Bits of ibv_port_attr.port_cap_flags2, valid with IBV_PORT_CAP_MASK2_SUP. */
enum ibv_port_cap_flags2 {
	IBV_PORT_SET_NODE_DESC_SUP = 1 << 0,
	IBV_PORT_INFO_EXT_SUP = 1 << 1,
	IBV_PORT_VIRT_SUP = 1 << 2,
	IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3,
	IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4,
	IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5,
	IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10,
	IBV_PORT_LINK_SPEED_XDR_SUP = 1 << 12,
};

struct ibv_port_attr {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu;
	enum ibv_mtu active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags; /* IBV_QPF_* */
	uint16_t port_cap_flags2;
	uint32_t
		active_speed_ex; /* as active_speed, with the bits of XDR and faster; 0: not said */
};

/* Transfer rates; the numbers are those of a path record, hence not in order of speed. */
enum ibv_rate {
	IBV_RATE_MAX = 0,
	IBV_RATE_2_5_GBPS = 2,
	IBV_RATE_10_GBPS = 3,
	IBV_RATE_30_GBPS = 4,
	IBV_RATE_5_GBPS = 5,
	IBV_RATE_20_GBPS = 6,
	IBV_RATE_40_GBPS = 7,
	IBV_RATE_60_GBPS = 8,
	IBV_RATE_80_GBPS = 9,
	IBV_RATE_120_GBPS = 10,
	IBV_RATE_14_GBPS = 11,
	IBV_RATE_56_GBPS = 12,
	IBV_RATE_112_GBPS = 13,
	IBV_RATE_168_GBPS = 14,
	IBV_RATE_25_GBPS = 15,
	IBV_RATE_100_GBPS = 16,
	IBV_RATE_200_GBPS = 17,
	IBV_RATE_300_GBPS = 18,
	IBV_RATE_28_GBPS = 19,
	IBV_RATE_50_GBPS = 20,
	IBV_RATE_400_GBPS = 21,
	IBV_RATE_600_GBPS = 22,
	IBV_RATE_800_GBPS = 23,
	IBV_RATE_1200_GBPS = 24,
};

/* Rates as multiples of 2.5 Gbit/s or in Mbit/s; -1 respectively IBV_RATE_MAX if unknown. */
int __attribute_const ibv_rate_to_mult(enum ibv_rate r);
enum ibv_rate __attribute_const mult_to_ibv_rate(int m);
int __attribute_const ibv_rate_to_mbps(enum ibv_rate r);
enum ibv_rate __attribute_const mbps_to_ibv_rate(int megabits);

/* ------------------------------------------------------ asynchronous events */

enum ibv_event_type {
	IBV_EVENT_CQ_ERR = 0,
	IBV_EVENT_QP_FATAL = 1,
	IBV_EVENT_QP_REQ_ERR = 2,
	IBV_EVENT_QP_ACCESS_ERR = 3,
	IBV_EVENT_COMM_EST = 4,
	IBV_EVENT_SQ_DRAINED = 5,
	IBV_EVENT_PATH_MIG = 6,
	IBV_EVENT_PATH_MIG_ERR = 7,
	IBV_EVENT_DEVICE_FATAL = 8,
	IBV_EVENT_PORT_ACTIVE = 9,
	IBV_EVENT_PORT_ERR = 10,
	IBV_EVENT_LID_CHANGE = 11,
	IBV_EVENT_PKEY_CHANGE = 12,
	IBV_EVENT_SM_CHANGE = 13,
	IBV_EVENT_SRQ_ERR = 14,
	IBV_EVENT_SRQ_LIMIT_REACHED = 15,
	IBV_EVENT_QP_LAST_WQE_REACHED = 16,
	IBV_EVENT_CLIENT_REREGISTER = 17,
	IBV_EVENT_GID_CHANGE = 18,
	IBV_EVENT_WQ_FATAL = 19,
	IBV_EVENT_DEVICE_SPEED_CHANGE = 20,
};

/* What happened, and to which object; the type says which member of element is set. */
struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		struct ibv_wq *wq;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

/* -------------------------------------------------------- work completions */

enum ibv_wc_status {
	IBV_WC_SUCCESS = 0,
	IBV_WC_LOC_LEN_ERR = 1,
	IBV_WC_LOC_QP_OP_ERR = 2,
	IBV_WC_LOC_EEC_OP_ERR = 3,
	IBV_WC_LOC_PROT_ERR = 4,
	IBV_WC_WR_FLUSH_ERR = 5,
	IBV_WC_MW_BIND_ERR = 6,
	IBV_WC_BAD_RESP_ERR = 7,
	IBV_WC_LOC_ACCESS_ERR = 8,
	IBV_WC_REM_INV_REQ_ERR = 9,
	IBV_WC_REM_ACCESS_ERR = 10,
	IBV_WC_REM_OP_ERR = 11,
	IBV_WC_RETRY_EXC_ERR = 12,
	IBV_WC_RNR_RETRY_EXC_ERR = 13,
	IBV_WC_LOC_RDD_VIOL_ERR = 14,
	IBV_WC_REM_INV_RD_REQ_ERR = 15,
	IBV_WC_REM_ABORT_ERR = 16,
	IBV_WC_INV_EECN_ERR = 17,
	IBV_WC_INV_EEC_STATE_ERR = 18,
	IBV_WC_FATAL_ERR = 19,
	IBV_WC_RESP_TIMEOUT_ERR = 20,
	IBV_WC_GENERAL_ERR = 21,
	IBV_WC_TM_ERR = 22,
	IBV_WC_TM_RNDV_INCOMPLETE = 23,
};

const char *ibv_wc_status_str(enum ibv_wc_status s);

/* Valid in successful completions only. Bit 7 marks a receive. */
enum ibv_wc_opcode {
	IBV_WC_SEND = 0,
	IBV_WC_RDMA_WRITE = 1,
	IBV_WC_RDMA_READ = 2,
	IBV_WC_COMP_SWAP = 3,
	IBV_WC_FETCH_ADD = 4,
	IBV_WC_BIND_MW = 5,
	IBV_WC_LOCAL_INV = 6,
	IBV_WC_TSO = 7,
	IBV_WC_FLUSH = 8,
	IBV_WC_ATOMIC_WRITE = 9,
	IBV_WC_RECV = 1 << 7,
	IBV_WC_RECV_RDMA_WITH_IMM = 129,
	IBV_WC_TM_ADD = 130,
	IBV_WC_TM_DEL = 131,
	IBV_WC_TM_SYNC = 132,
	IBV_WC_TM_RECV = 133,
	IBV_WC_TM_NO_TAG = 134,
	IBV_WC_DRIVER1 = 135,
	IBV_WC_DRIVER2 = 136,
	IBV_WC_DRIVER3 = 137,
};

enum {
	IBV_WC_IP_CSUM_OK_SHIFT = 2,
};

enum ibv_wc_flags {
	IBV_WC_GRH = 1 << 0, /* the buffer starts with 40 bytes of ibv_grh (UD) */
	IBV_WC_WITH_IMM = 1 << 1,
	IBV_WC_IP_CSUM_OK = 1 << IBV_WC_IP_CSUM_OK_SHIFT,
	IBV_WC_WITH_INV = 1 << 3,
	IBV_WC_TM_SYNC_REQ = 1 << 4,
	IBV_WC_TM_MATCH = 1 << 5,
	IBV_WC_TM_DATA_VALID = 1 << 6,
};

/* One completion. With an error status only wr_id, status, qp_num and vendor_err are valid. */
struct ibv_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	union {
		__be32 imm_data;
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags; /* enum ibv_wc_flags */
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

/* ------------------------------------------------------------------ memory */

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

/* What a region, window or QP permits; the bits of IBV_ACCESS_OPTIONAL_RANGE are mere hints. */
enum ibv_access_flags {
	IBV_ACCESS_LOCAL_WRITE = 1 << 0,
	IBV_ACCESS_REMOTE_WRITE = 1 << 1,
	IBV_ACCESS_REMOTE_READ = 1 << 2,
	IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
	IBV_ACCESS_MW_BIND = 1 << 4,
	IBV_ACCESS_ZERO_BASED = 1 << 5,
	IBV_ACCESS_ON_DEMAND = 1 << 6,
	IBV_ACCESS_HUGETLB = 1 << 7,
	IBV_ACCESS_FLUSH_GLOBAL = 1 << 8,
	IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9,
	IBV_ACCESS_RELAXED_ORDERING = IBV_ACCESS_OPTIONAL_FIRST,
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

enum ibv_rereg_mr_flags {
	IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
	IBV_REREG_MR_CHANGE_PD = 1 << 1,
	IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
	IBV_REREG_MR_FLAGS_SUPPORTED = (1 << 3) - 1,
};

/* Results of ibv_rereg_mr(): with INPUT the region is unchanged, with CMD it may be unusable. */
enum ibv_rereg_mr_err_code {
	IBV_REREG_MR_ERR_INPUT = -1,
	IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,
	IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
	IBV_REREG_MR_ERR_CMD = -4,
	IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
};

enum ibv_mw_type {
	IBV_MW_TYPE_1 = 1, /* bound by ibv_bind_mw() */
	IBV_MW_TYPE_2 = 2, /* bound by a posted work request */
};

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey;
	uint32_t handle;
	enum ibv_mw_type type;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr;
	uint64_t length;
	unsigned int mw_access_flags;
};

struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct ibv_mw_bind_info bind_info;
};

/* Memory on the device. */
struct ibv_alloc_dm_attr {
	size_t length;
	uint32_t log_align_req;
	uint32_t comp_mask;
};

enum ibv_dm_mask {
	IBV_DM_MASK_HANDLE = 1 << 0,
};

struct ibv_dm {
	struct ibv_context *context;
	int (*memcpy_to_dm)(struct ibv_dm *dm, uint64_t offset, const void *from, size_t len);
	int (*memcpy_from_dm)(void *to, struct ibv_dm *dm, uint64_t offset, size_t len);
	uint32_t comp_mask; /* IBV_DM_MASK_HANDLE: handle is valid */
	uint32_t handle;
};

/* Thread domain: objects made in it are used by one thread at a time. */
/* --- types of calls since 59 --- */

struct ibv_dmah {
	struct ibv_context *context;
};

struct ibv_buf;

enum ibv_mr_init_attr_mask {
	IBV_REG_MR_MASK_IOVA = 1 << 0,
	IBV_REG_MR_MASK_ADDR = 1 << 1,
	IBV_REG_MR_MASK_FD = 1 << 2,
	IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
	IBV_REG_MR_MASK_DMAH = 1 << 4,
	IBV_REG_MR_MASK_BUF = 1 << 5,
};

struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask; /* enum ibv_mr_init_attr_mask: which of the fields below are set */
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf;
};

/* Of which kind the memory of a region is (PCIe's TLP processing hints). */
enum ibv_tph_mem_type {
	IBV_TPH_MEM_TYPE_VM,
	IBV_TPH_MEM_TYPE_PM,
};

enum ibv_dmah_init_attr_mask {
	IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0,
	IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1,
	IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2,
};

struct ibv_dmah_init_attr {
	uint32_t comp_mask; /* enum ibv_dmah_init_attr_mask: PH, and both or none of the others */
	uint32_t cpu_id;    /* a processor on which the calling thread may run */
	uint8_t ph;	    /* 0 to 3 */
	uint8_t tph_mem_type;
};

struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

/* What is counted. */
enum ibv_comp_cntr_type {
	IBV_COMP_CNTR_TYPE_WRS,
	IBV_COMP_CNTR_TYPE_BYTES,
};

struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask;
	enum ibv_comp_cntr_type type;
	uint32_t flags;
};

/* Which operations of a QP count. */
enum ibv_qp_attach_comp_cntr_op {
	IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0,
	IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5,
};

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask;
	uint32_t op_mask; /* enum ibv_qp_attach_comp_cntr_op */
};

struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters;
	uint32_t supported_qp_attach_ops; /* enum ibv_qp_attach_comp_cntr_op */
};

/* Descriptors that a driver gives the kernel. */
struct ibv_fd_arr {
	int *arr;
	uint32_t count;
};

struct ibv_td_init_attr {
	uint32_t comp_mask;
};

struct ibv_td {
	struct ibv_context *context;
};

enum ibv_parent_domain_init_attr_mask {
	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0,
	IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
	/* Memory that a confidential guest doesn't protect may be given out. Verbena's device needs
	 * none, so ibv_alloc_buf() gives ordinary memory in any case. */
	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2,
};

/* What an allocator returns to let the library allocate by itself. */
#define IBV_ALLOCATOR_USE_DEFAULT ((void *)-1)

struct ibv_parent_domain_init_attr {
	struct ibv_pd *pd;
	struct ibv_td *td;
	uint32_t comp_mask;
	void *(*alloc)(struct ibv_pd *pd, void *ctx, size_t len, size_t align, uint64_t kind);
	void (*free)(struct ibv_pd *pd, void *ctx, void *ptr, uint64_t kind);
	void *pd_context;
};

enum ibv_fork_status {
	IBV_FORK_DISABLED = 0,
	IBV_FORK_ENABLED = 1,
	IBV_FORK_UNNEEDED = 2,
};

/* ------------------------------------------------------- completion queues */

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd; /* readable when an event waits; may be polled and made non-blocking */
	int refcnt;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;
};

/* Which fields the user of an extended CQ wants to read. */
enum ibv_create_cq_wc_flags {
	IBV_WC_EX_WITH_BYTE_LEN = 1 << 0,
	IBV_WC_EX_WITH_IMM = 1 << 1,
	IBV_WC_EX_WITH_QP_NUM = 1 << 2,
	IBV_WC_EX_WITH_SRC_QP = 1 << 3,
	IBV_WC_EX_WITH_SLID = 1 << 4,
	IBV_WC_EX_WITH_SL = 1 << 5,
	IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6,
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7,
	IBV_WC_EX_WITH_CVLAN = 1 << 8,
	IBV_WC_EX_WITH_FLOW_TAG = 1 << 9,
	IBV_WC_EX_WITH_TM_INFO = 1 << 10,
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11,
};

/* The fields that struct ibv_wc has too, and all known ones. */
enum {
	IBV_WC_STANDARD_FLAGS = (1 << 7) - 1,
};
enum {
	IBV_CREATE_CQ_SUP_WC_FLAGS = (1 << 12) - 1,
};

enum ibv_create_cq_attr_flags {
	IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0,
	IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1,
};

enum ibv_cq_init_attr_mask {
	IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0,
	IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1,
};

struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask; /* enum ibv_cq_init_attr_mask: what of the rest is valid */
	uint32_t flags;
	struct ibv_pd *parent_domain;
};

enum ibv_cq_attr_mask {
	IBV_CQ_ATTR_MODERATE = 1 << 0,
	IBV_CQ_ATTR_RESERVED = 1 << 1,
};

struct ibv_moderate_cq {
	uint16_t cq_count;
	uint16_t cq_period; /* microseconds */
};

struct ibv_modify_cq_attr {
	uint32_t attr_mask;
	struct ibv_moderate_cq moderate;
};

struct ibv_poll_cq_attr {
	uint32_t comp_mask;
};

struct ibv_wc_tm_info {
	uint64_t tag;
	uint32_t priv;
};

/*
 * An extended CQ. It starts as an ibv_cq does, so that one is usable as the other. Between
 * start_poll and end_poll, status and wr_id belong to the current completion and the read_*
 * functions return its other fields.
 */
struct ibv_cq_ex {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;

	uint32_t comp_mask;
	enum ibv_wc_status status;
	uint64_t wr_id;
	int (*start_poll)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
	int (*next_poll)(struct ibv_cq_ex *cq);
	void (*end_poll)(struct ibv_cq_ex *cq);
	enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *cq);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *cq);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *cq);
	__be32 (*read_imm_data)(struct ibv_cq_ex *cq);
	uint32_t (*read_qp_num)(struct ibv_cq_ex *cq);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *cq);
	unsigned int (*read_wc_flags)(struct ibv_cq_ex *cq);
	uint32_t (*read_slid)(struct ibv_cq_ex *cq);
	uint8_t (*read_sl)(struct ibv_cq_ex *cq);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *cq);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *cq);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *cq);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *cq);
	void (*read_tm_info)(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info);
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *cq);
};

/* --------------------------------------------------- shared receive queues */

enum ibv_srq_attr_mask {
	IBV_SRQ_MAX_WR = 1 << 0,
	IBV_SRQ_LIMIT = 1 << 1,
};

enum ibv_srq_type {
	IBV_SRQT_BASIC = 0,
	IBV_SRQT_XRC = 1,
	IBV_SRQT_TM = 2,
};

enum ibv_srq_init_attr_mask {
	IBV_SRQ_INIT_ATTR_TYPE = 1 << 0,
	IBV_SRQ_INIT_ATTR_PD = 1 << 1,
	IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
	IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
	IBV_SRQ_INIT_ATTR_TM = 1 << 4,
	IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5,
};

struct ibv_srq_attr {
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t srq_limit; /* armed: an event when fewer receives than this are left */
};

struct ibv_srq_init_attr {
	void *srq_context;
	struct ibv_srq_attr attr;
};

struct ibv_tm_cap {
	uint32_t max_num_tags;
	uint32_t max_ops;
};

/* Starts as ibv_srq_init_attr does. */
struct ibv_srq_init_attr_ex {
	void *srq_context;
	struct ibv_srq_attr attr;

	uint32_t comp_mask; /* enum ibv_srq_init_attr_mask */
	enum ibv_srq_type srq_type;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_tm_cap tm_cap;
};

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

enum ibv_xrcd_init_attr_mask {
	IBV_XRCD_INIT_ATTR_FD = 1 << 0,
	IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1,
	IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2,
};

struct ibv_xrcd_init_attr {
	uint32_t comp_mask;
	int fd;
	int oflags;
};

struct ibv_xrcd {
	struct ibv_context *context;
};

/* ------------------------------------------------------------- queue pairs */

enum ibv_qp_type {
	IBV_QPT_RC = 2,
	IBV_QPT_UC = 3,
	IBV_QPT_UD = 4,
	IBV_QPT_RAW_PACKET = 8,
	IBV_QPT_XRC_SEND = 9,
	IBV_QPT_XRC_RECV = 10,
	IBV_QPT_DRIVER = 0xff,
};

enum ibv_qp_state {
	IBV_QPS_RESET = 0,
	IBV_QPS_INIT = 1,
	IBV_QPS_RTR = 2,
	IBV_QPS_RTS = 3,
	IBV_QPS_SQD = 4,
	IBV_QPS_SQE = 5,
	IBV_QPS_ERR = 6,
	IBV_QPS_UNKNOWN = 7,
};

enum ibv_mig_state {
	IBV_MIG_MIGRATED = 0,
	IBV_MIG_REARM = 1,
	IBV_MIG_ARMED = 2,
};

/* Which members of ibv_qp_attr a query or modify concerns. */
enum ibv_qp_attr_mask {
	IBV_QP_STATE = 1 << 0,
	IBV_QP_CUR_STATE = 1 << 1,
	IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	IBV_QP_ACCESS_FLAGS = 1 << 3,
	IBV_QP_PKEY_INDEX = 1 << 4,
	IBV_QP_PORT = 1 << 5,
	IBV_QP_QKEY = 1 << 6,
	IBV_QP_AV = 1 << 7,
	IBV_QP_PATH_MTU = 1 << 8,
	IBV_QP_TIMEOUT = 1 << 9,
	IBV_QP_RETRY_CNT = 1 << 10,
	IBV_QP_RNR_RETRY = 1 << 11,
	IBV_QP_RQ_PSN = 1 << 12,
	IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	IBV_QP_ALT_PATH = 1 << 14,
	IBV_QP_MIN_RNR_TIMER = 1 << 15,
	IBV_QP_SQ_PSN = 1 << 16,
	IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	IBV_QP_PATH_MIG_STATE = 1 << 18,
	IBV_QP_CAP = 1 << 19,
	IBV_QP_DEST_QPN = 1 << 20,
	IBV_QP_RATE_LIMIT = 1 << 25,
};

struct ibv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data; /* bytes */
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};

enum ibv_qp_init_attr_mask {
	IBV_QP_INIT_ATTR_PD = 1 << 0,
	IBV_QP_INIT_ATTR_XRCD = 1 << 1,
	IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
	IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3,
	IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4,
	IBV_QP_INIT_ATTR_RX_HASH = 1 << 5,
	IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
};

enum ibv_qp_create_flags {
	IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1,
	IBV_QP_CREATE_SCATTER_FCS = 1 << 8,
	IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
	IBV_QP_CREATE_SOURCE_QPN = 1 << 10,
	IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
};

/* Which ibv_wr_*() builders the user of a QP wants. */
enum ibv_qp_create_send_ops_flags {
	IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
	IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
	IBV_QP_EX_WITH_SEND = 1 << 2,
	IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
	IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
	IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
	IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
	IBV_QP_EX_WITH_BIND_MW = 1 << 8,
	IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
	IBV_QP_EX_WITH_TSO = 1 << 10,
	IBV_QP_EX_WITH_FLUSH = 1 << 11,
	IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
};

struct ibv_rx_hash_conf {
	uint8_t rx_hash_function;
	uint8_t rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

/* Starts as ibv_qp_init_attr does. */
struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;

	uint32_t comp_mask; /* enum ibv_qp_init_attr_mask */
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	struct ibv_rwq_ind_table *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags; /* enum ibv_qp_create_send_ops_flags */
};

enum ibv_qp_open_attr_mask {
	IBV_QP_OPEN_ATTR_NUM = 1 << 0,
	IBV_QP_OPEN_ATTR_XRCD = 1 << 1,
	IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2,
	IBV_QP_OPEN_ATTR_TYPE = 1 << 3,
	IBV_QP_OPEN_ATTR_RESERVED = 1 << 4,
};

struct ibv_qp_open_attr {
	uint32_t comp_mask;
	uint32_t qp_num;
	struct ibv_xrcd *xrcd;
	void *qp_context;
	enum ibv_qp_type qp_type;
};

struct ibv_qp_attr {
	enum ibv_qp_state qp_state;
	enum ibv_qp_state cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr;
	struct ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer; /* code 0..31 of the specification's RNR timer table */
	uint8_t port_num;
	uint8_t timeout; /* 4.096 us times two to this power; 0 waits for ever */
	uint8_t retry_cnt;
	uint8_t rnr_retry; /* 7 retries for ever */
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit; /* kilobits per second */
};

struct ibv_qp_rate_limit_attr {
	uint32_t rate_limit;
	uint32_t max_burst_sz;
	uint16_t typical_pkt_sz;
	uint32_t comp_mask;
};

/* Enhanced connection establishment: options that two like devices agree upon. */
struct ibv_ece {
	uint32_t vendor_id;
	uint32_t options;
	uint32_t comp_mask;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle;
	uint32_t qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

/* ----------------------------------------------------------- work requests */

enum ibv_wr_opcode {
	IBV_WR_RDMA_WRITE = 0,
	IBV_WR_RDMA_WRITE_WITH_IMM = 1,
	IBV_WR_SEND = 2,
	IBV_WR_SEND_WITH_IMM = 3,
	IBV_WR_RDMA_READ = 4,
	IBV_WR_ATOMIC_CMP_AND_SWP = 5,
	IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
	IBV_WR_LOCAL_INV = 7,
	IBV_WR_BIND_MW = 8,
	IBV_WR_SEND_WITH_INV = 9,
	IBV_WR_TSO = 10,
	IBV_WR_DRIVER1 = 11,
	IBV_WR_FLUSH = 14,
	IBV_WR_ATOMIC_WRITE = 15,
};

/* What FLUSH ensures of the writes before it: all see them; they survive a loss of power. */
enum ibv_placement_type {
	IBV_FLUSH_GLOBAL = 1u << 0,
	IBV_FLUSH_PERSISTENT = 1u << 1,
};

/* ... and where: in the range that it names, or in the whole region. */
enum ibv_selectivity_level {
	IBV_FLUSH_RANGE = 0,
	IBV_FLUSH_MR = 1,
};

enum ibv_send_flags {
	IBV_SEND_FENCE = 1 << 0,
	IBV_SEND_SIGNALED = 1 << 1,
	IBV_SEND_SOLICITED = 1 << 2,
	IBV_SEND_INLINE = 1 << 3,
	IBV_SEND_IP_CSUM = 1 << 4,
};

struct ibv_data_buf {
	void *addr;
	size_t length;
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags; /* enum ibv_send_flags */
	union {
		__be32 imm_data;
		uint32_t invalidate_rkey;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	union {
		struct {
			uint32_t remote_srqn;
		} xrc;
	} qp_type;
	union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_mw_bind_info bind_info;
		} bind_mw;
		struct {
			void *hdr;
			uint16_t hdr_sz;
			uint16_t mss;
		} tso;
	};
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

enum ibv_ops_wr_opcode {
	IBV_WR_TAG_ADD = 0,
	IBV_WR_TAG_DEL = 1,
	IBV_WR_TAG_SYNC = 2,
};

enum ibv_ops_flags {
	IBV_OPS_SIGNALED = 1 << 0,
	IBV_OPS_TM_SYNC = 1 << 1,
};

/* Changes the list of tags of a tag-matching SRQ. */
struct ibv_ops_wr {
	uint64_t wr_id;
	struct ibv_ops_wr *next;
	enum ibv_ops_wr_opcode opcode;
	int flags;
	struct {
		uint32_t unexpected_cnt;
		uint32_t handle;
		struct {
			uint64_t recv_wr_id;
			struct ibv_sge *sg_list;
			int num_sge;
			uint64_t tag;
			uint64_t mask;
		} add;
	} tm;
};

/*
 * A QP with builder functions. Between wr_start and wr_complete each call of an operation starts
 * a work request, which takes wr_id and wr_flags as they are at that moment; the wr_set_*
 * functions then fill the request that was started last.
 */
struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask;
	uint64_t wr_id;
	unsigned int wr_flags; /* enum ibv_send_flags */
	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				  uint64_t expected, uint64_t desired);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				    uint64_t addend);
	void (*wr_bind_mw)(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
			   const struct ibv_mw_bind_info *info);
	void (*wr_local_inv)(struct ibv_qp_ex *qp, uint32_t rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr);
	void (*wr_rdma_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr, __be32 imm);
	void (*wr_send)(struct ibv_qp_ex *qp);
	void (*wr_send_imm)(struct ibv_qp_ex *qp, __be32 imm);
	void (*wr_send_inv)(struct ibv_qp_ex *qp, uint32_t rkey);
	void (*wr_send_tso)(struct ibv_qp_ex *qp, void *header, uint16_t header_len, uint16_t mss);
	void (*wr_set_ud_addr)(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn,
			       uint32_t qkey);
	void (*wr_set_xrc_srqn)(struct ibv_qp_ex *qp, uint32_t srqn);
	void (*wr_set_inline_data)(struct ibv_qp_ex *qp, void *data, size_t len);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *qp, size_t count,
					const struct ibv_data_buf *list);
	void (*wr_set_sge)(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t len);
	void (*wr_set_sge_list)(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list);
	void (*wr_start)(struct ibv_qp_ex *qp);
	int (*wr_complete)(struct ibv_qp_ex *qp);
	void (*wr_abort)(struct ibv_qp_ex *qp);
	void (*wr_atomic_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				const void *eight_bytes);
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr, size_t len,
			 uint8_t type, uint8_t level);
};

/* ------------------------------------------------- work queues (raw, RSS) */

enum ibv_wq_type {
	IBV_WQT_RQ = 0,
};

enum ibv_wq_state {
	IBV_WQS_RESET = 0,
	IBV_WQS_RDY = 1,
	IBV_WQS_ERR = 2,
	IBV_WQS_UNKNOWN = 3,
};

enum ibv_wq_init_attr_mask {
	IBV_WQ_INIT_ATTR_FLAGS = 1 << 0,
	IBV_WQ_INIT_ATTR_RESERVED = 1 << 1,
};

enum ibv_wq_flags {
	IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0,
	IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1,
	IBV_WQ_FLAGS_DELAY_DROP = 1 << 2,
	IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3,
	IBV_WQ_FLAGS_RESERVED = 1 << 4,
};

enum ibv_wq_attr_mask {
	IBV_WQ_ATTR_STATE = 1 << 0,
	IBV_WQ_ATTR_CURR_STATE = 1 << 1,
	IBV_WQ_ATTR_FLAGS = 1 << 2,
	IBV_WQ_ATTR_RESERVED = 1 << 3,
};

struct ibv_wq_init_attr {
	void *wq_context;
	enum ibv_wq_type wq_type;
	uint32_t max_wr;
	uint32_t max_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t comp_mask;
	uint32_t create_flags;
};

struct ibv_wq_attr {
	uint32_t attr_mask;
	enum ibv_wq_state wq_state;
	enum ibv_wq_state curr_wq_state;
	uint32_t flags;
	uint32_t flags_mask;
};

struct ibv_wq {
	struct ibv_context *context;
	void *wq_context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t wq_num;
	uint32_t handle;
	enum ibv_wq_state state;
	enum ibv_wq_type wq_type;
	int (*post_recv)(struct ibv_wq *wq, struct ibv_recv_wr *list, struct ibv_recv_wr **bad);
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
	uint32_t comp_mask;
};

enum ibv_ind_table_init_attr_mask {
	IBV_CREATE_IND_TABLE_RESERVED = 1 << 0,
};

struct ibv_rwq_ind_table_init_attr {
	uint32_t log_ind_tbl_size;
	struct ibv_wq **ind_tbl;
	uint32_t comp_mask;
};

struct ibv_rwq_ind_table {
	struct ibv_context *context;
	int ind_tbl_handle;
	int ind_tbl_num;
	uint32_t comp_mask;
};

/* ----------------------------------------------------------- flow steering */

enum ibv_flow_flags {
	IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
	IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
};

enum ibv_flow_attr_type {
	IBV_FLOW_ATTR_NORMAL = 0,
	IBV_FLOW_ATTR_ALL_DEFAULT = 1,
	IBV_FLOW_ATTR_MC_DEFAULT = 2,
	IBV_FLOW_ATTR_SNIFFER = 3,
};

enum ibv_flow_spec_type {
	IBV_FLOW_SPEC_ETH = 0x20,
	IBV_FLOW_SPEC_IPV4 = 0x30,
	IBV_FLOW_SPEC_IPV6 = 0x31,
	IBV_FLOW_SPEC_IPV4_EXT = 0x32,
	IBV_FLOW_SPEC_ESP = 0x34,
	IBV_FLOW_SPEC_TCP = 0x40,
	IBV_FLOW_SPEC_UDP = 0x41,
	IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IBV_FLOW_SPEC_GRE = 0x51,
	IBV_FLOW_SPEC_MPLS = 0x60,
	IBV_FLOW_SPEC_INNER = 0x100, /* or-ed in: the header inside a tunnel */
	IBV_FLOW_SPEC_ACTION_TAG = 0x1000,
	IBV_FLOW_SPEC_ACTION_DROP = 0x1001,
	IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002,
	IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
};

struct ibv_flow_eth_filter {
	uint8_t dst_mac[6];
	uint8_t src_mac[6];
	uint16_t ether_type;
	uint16_t vlan_tag;
};

struct ibv_flow_ipv4_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
};

struct ibv_flow_ipv4_ext_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
	uint8_t proto;
	uint8_t tos;
	uint8_t ttl;
	uint8_t flags;
};

struct ibv_flow_ipv6_filter {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

struct ibv_flow_esp_filter {
	uint32_t spi;
	uint32_t seq;
};

struct ibv_flow_tcp_udp_filter {
	uint16_t dst_port;
	uint16_t src_port;
};

struct ibv_flow_gre_filter {
	uint16_t c_ks_res0_ver;
	uint16_t protocol;
	uint32_t key;
};

struct ibv_flow_mpls_filter {
	uint32_t label;
};

struct ibv_flow_tunnel_filter {
	uint32_t tunnel_id;
};

struct ibv_flow_spec_eth {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_eth_filter val;
	struct ibv_flow_eth_filter mask;
};

struct ibv_flow_spec_ipv4 {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_ipv4_filter val;
	struct ibv_flow_ipv4_filter mask;
};

struct ibv_flow_spec_ipv4_ext {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_ipv4_ext_filter val;
	struct ibv_flow_ipv4_ext_filter mask;
};

struct ibv_flow_spec_ipv6 {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_ipv6_filter val;
	struct ibv_flow_ipv6_filter mask;
};

struct ibv_flow_spec_esp {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_esp_filter val;
	struct ibv_flow_esp_filter mask;
};

struct ibv_flow_spec_tcp_udp {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_tcp_udp_filter val;
	struct ibv_flow_tcp_udp_filter mask;
};

struct ibv_flow_spec_gre {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_gre_filter val;
	struct ibv_flow_gre_filter mask;
};

struct ibv_flow_spec_mpls {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_mpls_filter val;
	struct ibv_flow_mpls_filter mask;
};

struct ibv_flow_spec_tunnel {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_flow_tunnel_filter val;
	struct ibv_flow_tunnel_filter mask;
};

struct ibv_flow_spec_action_tag {
	enum ibv_flow_spec_type type;
	uint16_t size;
	uint32_t tag_id;
};

struct ibv_flow_spec_action_drop {
	enum ibv_flow_spec_type type;
	uint16_t size;
};

struct ibv_flow_spec_action_handle {
	enum ibv_flow_spec_type type;
	uint16_t size;
	const struct ibv_flow_action *action;
};

struct ibv_flow_spec_counter_action {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_counters *counters;
};

struct ibv_flow_spec {
	union {
		struct {
			enum ibv_flow_spec_type type;
			uint16_t size;
		} hdr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ipv4;
		struct ibv_flow_spec_tcp_udp tcp_udp;
		struct ibv_flow_spec_ipv4_ext ipv4_ext;
		struct ibv_flow_spec_ipv6 ipv6;
		struct ibv_flow_spec_esp esp;
		struct ibv_flow_spec_tunnel tunnel;
		struct ibv_flow_spec_gre gre;
		struct ibv_flow_spec_mpls mpls;
		struct ibv_flow_spec_action_tag flow_tag;
		struct ibv_flow_spec_action_drop drop;
		struct ibv_flow_spec_action_handle handle;
		struct ibv_flow_spec_counter_action flow_count;
	};
};

/* Is followed in memory by num_of_specs specifications; size counts them in. */
struct ibv_flow_attr {
	uint32_t comp_mask;
	enum ibv_flow_attr_type type;
	uint16_t size;
	uint16_t priority;
	uint8_t num_of_specs;
	uint8_t port;
	uint32_t flags;
};

struct ibv_flow {
	uint32_t comp_mask;
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_flow_action {
	struct ibv_context *context;
};

enum ibv_flow_action_esp_mask {
	IBV_FLOW_ACTION_ESP_MASK_ESN = 1 << 0,
};

struct ibv_flow_action_esp_attr {
	struct ibv_flow_action_esp *esp_attr;
	enum ibv_flow_action_esp_keymat keymat_proto;
	uint16_t keymat_len;
	void *keymat_ptr;
	enum ibv_flow_action_esp_replay replay_proto;
	uint16_t replay_len;
	void *replay_ptr;
	struct ibv_flow_action_esp_encap *esp_encap;
	uint32_t comp_mask;
	uint32_t esn;
};

/* ------------------------------------------------------ counters and clock */

enum ibv_counter_description {
	IBV_COUNTER_PACKETS = 0,
	IBV_COUNTER_BYTES = 1,
};

struct ibv_counters_init_attr {
	uint32_t comp_mask;
};

struct ibv_counters {
	struct ibv_context *context;
};

struct ibv_counter_attach_attr {
	enum ibv_counter_description counter_desc;
	uint32_t index;
	uint32_t comp_mask;
};

enum ibv_read_counters_flags {
	IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0,
};

enum ibv_values_mask {
	IBV_VALUES_MASK_RAW_CLOCK = 1 << 0,
	IBV_VALUES_MASK_RESERVED = 1 << 1,
};

struct ibv_values_ex {
	uint32_t comp_mask;
	struct timespec raw_clock;
};

/* ------------------------------------------------------ device and context */

/* Slots of a time when programs called the driver directly; not used. */
struct _ibv_device_ops {
	struct ibv_context *(*_dummy1)(struct ibv_device *dev, int fd);
	void (*_dummy2)(struct ibv_context *ctx);
};

enum {
	IBV_SYSFS_NAME_MAX = 64,
	IBV_SYSFS_PATH_MAX = 256,
};

struct ibv_device {
	struct _ibv_device_ops _ops;
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	char name[IBV_SYSFS_NAME_MAX];	     /* of the RDMA device */
	char dev_name[IBV_SYSFS_NAME_MAX];   /* of its uverbs node */
	char dev_path[IBV_SYSFS_PATH_MAX];   /* directory that describes the uverbs node */
	char ibdev_path[IBV_SYSFS_PATH_MAX]; /* directory that describes the device */
};

/* The port attributes without port_cap_flags2, as old programs know them. Never defined. */
struct _compat_ibv_port_attr;

/* The data path's entry points; _compat_ slots only keep their places. */
struct ibv_context_ops {
	int (*_compat_query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
	int (*_compat_query_port)(struct ibv_context *ctx, uint8_t port,
				  struct _compat_ibv_port_attr *attr);
	void *(*_compat_alloc_pd)(void);
	void *(*_compat_dealloc_pd)(void);
	void *(*_compat_reg_mr)(void);
	void *(*_compat_rereg_mr)(void);
	void *(*_compat_dereg_mr)(void);
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
	int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
	int (*dealloc_mw)(struct ibv_mw *mw);
	void *(*_compat_create_cq)(void);
	int (*poll_cq)(struct ibv_cq *cq, int max, struct ibv_wc *out);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	void *(*_compat_cq_event)(void);
	void *(*_compat_resize_cq)(void);
	void *(*_compat_destroy_cq)(void);
	void *(*_compat_create_srq)(void);
	void *(*_compat_modify_srq)(void);
	void *(*_compat_query_srq)(void);
	void *(*_compat_destroy_srq)(void);
	int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *list,
			     struct ibv_recv_wr **bad);
	void *(*_compat_create_qp)(void);
	void *(*_compat_query_qp)(void);
	void *(*_compat_modify_qp)(void);
	void *(*_compat_destroy_qp)(void);
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad);
	void *(*_compat_create_ah)(void);
	void *(*_compat_destroy_ah)(void);
	void *(*_compat_attach_mcast)(void);
	void *(*_compat_detach_mcast)(void);
	void *(*_compat_async_event)(void);
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd;
	int async_fd; /* readable when an asynchronous event waits */
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; /* __VERBS_ABI_IS_EXTENDED: part of a verbs_context */
};

struct verbs_ex_private;

/*
 * The extended context, which lies in memory around an ibv_context. It grows at its *front*, so
 * that the distance from the embedded ibv_context to an older slot never changes; sz tells a
 * program how far back the library's structure reaches.
 */
struct verbs_context {
	void (*free_buf)(struct ibv_buf *buf);
	void *(*alloc_buf)(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
	int (*dm_export_dmabuf_fd)(struct ibv_dm *dm);
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
	int (*dealloc_dmah)(struct ibv_dmah *dmah);
	struct ibv_dmah *(*alloc_dmah)(struct ibv_context *ctx, struct ibv_dmah_init_attr *attr);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
			  size_t attr_size);
	int (*advise_mr)(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
			 struct ibv_sge *list, uint32_t count);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *pd);
	int (*read_counters)(struct ibv_counters *counters, uint64_t *values, uint32_t count,
			     uint32_t flags);
	int (*attach_counters_point_flow)(struct ibv_counters *counters,
					  struct ibv_counter_attach_attr *attr,
					  struct ibv_flow *flow);
	struct ibv_counters *(*create_counters)(struct ibv_context *ctx,
						struct ibv_counters_init_attr *init);
	int (*destroy_counters)(struct ibv_counters *counters);
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				    size_t len, unsigned int access);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr);
	int (*free_dm)(struct ibv_dm *dm);
	int (*modify_flow_action_esp)(struct ibv_flow_action *action,
				      struct ibv_flow_action_esp_attr *attr);
	int (*destroy_flow_action)(struct ibv_flow_action *action);
	struct ibv_flow_action *(*create_flow_action_esp)(struct ibv_context *ctx,
							  struct ibv_flow_action_esp_attr *attr);
	int (*modify_qp_rate_limit)(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *ctx,
					      struct ibv_parent_domain_init_attr *init);
	int (*dealloc_td)(struct ibv_td *td);
	struct ibv_td *(*alloc_td)(struct ibv_context *ctx, struct ibv_td_init_attr *init);
	int (*modify_cq)(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
	int (*post_srq_ops)(struct ibv_srq *srq, struct ibv_ops_wr *list, struct ibv_ops_wr **bad);
	int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *table);
	struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *ctx,
							  struct ibv_rwq_ind_table_init_attr *init);
	int (*destroy_wq)(struct ibv_wq *wq);
	int (*modify_wq)(struct ibv_wq *wq, struct ibv_wq_attr *attr);
	struct ibv_wq *(*create_wq)(struct ibv_context *ctx, struct ibv_wq_init_attr *init);
	int (*query_rt_values)(struct ibv_context *ctx, struct ibv_values_ex *values);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *ctx,
					  struct ibv_cq_init_attr_ex *init);
	struct verbs_ex_private *priv;
	int (*query_device_ex)(struct ibv_context *ctx,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t attr_size);
	int (*ibv_destroy_flow)(struct ibv_flow *flow);
	void (*ABI_placeholder2)(void); /* ibv_destroy_flow again, for old programs */
	struct ibv_flow *(*ibv_create_flow)(struct ibv_qp *qp, struct ibv_flow_attr *attr);
	void (*ABI_placeholder1)(void); /* ibv_create_flow again, for old programs */
	struct ibv_qp *(*open_qp)(struct ibv_context *ctx, struct ibv_qp_open_attr *attr);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *init);
	int (*get_srq_num)(struct ibv_srq *srq, uint32_t *number);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *ctx,
					 struct ibv_srq_init_attr_ex *init);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *ctx, struct ibv_xrcd_init_attr *init);
	int (*close_xrcd)(struct ibv_xrcd *xrcd);
	uint64_t _ABI_placeholder3;
	size_t sz; /* of the whole structure in the library's view; stays before context */
	struct ibv_context context; /* stays last */
};

#define __VERBS_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)

/* Is member fld inside the first sz bytes of an object of this type? */
#define vext_field_avail(type, fld, sz) (offsetof(type, fld) < (sz))

/* The context that contains ctx, or NULL if the library has no extended one. */
static inline struct verbs_context *verbs_get_ctx(struct ibv_context *ctx)
{
	char *inner = (char *)ctx;

	if (ctx->abi_compat == __VERBS_ABI_IS_EXTENDED)
		return (struct verbs_context *)(void *)(inner -
							offsetof(struct verbs_context, context));
	return NULL;
}

/*
 * The extended context if it reaches back as far as slot op and the slot is filled, else NULL.
 * __extension__ silences -Wpedantic about the statement expression.
 */
#define verbs_get_ctx_op(ctx, op)                                                         \
	__extension__({                                                                   \
		struct verbs_context *__vext = verbs_get_ctx(ctx);                        \
		if (__vext &&                                                             \
		    (__vext->sz < sizeof(*__vext) - offsetof(struct verbs_context, op) || \
		     !__vext->op))                                                        \
			__vext = NULL;                                                    \
		__vext;                                                                   \
	})

/*
 * How the inlines below call a slot of the extended context: int calls answer EOPNOTSUPP, pointer
 * calls NULL with errno EOPNOTSUPP, when the slot is missing. Undefined again at the end.
 */
#define __VERBS_INT_OP(ctx, op, ...)                                     \
	__extension__({                                                  \
		struct verbs_context *__ext = verbs_get_ctx_op(ctx, op); \
		__ext ? __ext->op(__VA_ARGS__) : EOPNOTSUPP;             \
	})
#define __VERBS_PTR_OP(ctx, op, ...)                                     \
	__extension__({                                                  \
		struct verbs_context *__ext = verbs_get_ctx_op(ctx, op); \
		if (!__ext)                                              \
			errno = EOPNOTSUPP;                              \
		__ext ? __ext->op(__VA_ARGS__) : NULL;                   \
	})

/* ------------------------------------------------- calls: devices and ports */

/* NULL-terminated list of devices, its length in *count (which may be NULL). */
struct ibv_device **ibv_get_device_list(int *count);
/* Frees the list; devices that are open stay valid. */
void ibv_free_device_list(struct ibv_device **list);
const char *ibv_get_device_name(struct ibv_device *dev);
/* Kernel's index of the device, -1 if there is none. */
int ibv_get_device_index(struct ibv_device *dev);
__be64 ibv_get_device_guid(struct ibv_device *dev);

struct ibv_context *ibv_open_device(struct ibv_device *dev);
/* 0, or -1 with errno. Objects of the context must be destroyed before. */
int ibv_close_device(struct ibv_context *ctx);

/* Takes over the cmd_fd of another process's context, and objects of it by their handles. */
struct ibv_context *ibv_import_device(int fd);
struct ibv_pd *ibv_import_pd(struct ibv_context *ctx, uint32_t handle);
void ibv_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle);
void ibv_unimport_mr(struct ibv_mr *mr);
struct ibv_dm *ibv_import_dm(struct ibv_context *ctx, uint32_t handle);
void ibv_unimport_dm(struct ibv_dm *dm);

/* Next event, waiting for one: 0, or -1 with errno. Each must be acknowledged. */
int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event);
void ibv_ack_async_event(struct ibv_async_event *event);

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);

static inline int ibv_query_device_ex(struct ibv_context *ctx,
				      const struct ibv_query_device_ex_input *input,
				      struct ibv_device_attr_ex *attr)
{
	int err;

	if (input && input->comp_mask)
		return EINVAL;
	err = __VERBS_INT_OP(ctx, query_device_ex, ctx, input, attr, sizeof(*attr));
	if (err == EOPNOTSUPP || err == ENOSYS) {
		/* An older device: what the basic query knows, and no extended feature. */
		memset(attr, 0, sizeof(*attr));
		err = ibv_query_device(ctx, &attr->orig_attr);
	}
	return err;
}

/* The function writes the old, shorter structure; programs get the inline through the macro. */
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr);

static inline int ___ibv_query_port(struct ibv_context *ctx, uint8_t port,
				    struct ibv_port_attr *attr)
{
	struct verbs_context *ext = verbs_get_ctx_op(ctx, query_port);

	if (ext)
		return ext->query_port(ctx, port, attr, sizeof(*attr));
	memset(attr, 0, sizeof(*attr));
	return ibv_query_port(ctx, port, (struct _compat_ibv_port_attr *)(void *)attr);
}

#define ibv_query_port(context, port_num, port_attr) ___ibv_query_port(context, port_num, port_attr)

/* 0, or -1 with errno. */
int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *out, uint32_t flags, size_t entry_size);
ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *out, size_t max,
			     uint32_t flags, size_t entry_size);

/* One row with its type and network interface; flags must be 0. */
static inline int ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
				   struct ibv_gid_entry *out, uint32_t flags)
{
	return _ibv_query_gid_ex(ctx, port, index, out, flags, sizeof(struct ibv_gid_entry));
}

/* All valid rows of all ports: their number, or -errno. */
static inline ssize_t ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *out,
					  size_t max, uint32_t flags)
{
	return _ibv_query_gid_table(ctx, out, max, flags, sizeof(struct ibv_gid_entry));
}

/* 0, or -1 with errno. */
int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey);
/* Index of pkey in the port's table, or -1. */
int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, __be16 pkey);

static inline int ibv_query_rt_values_ex(struct ibv_context *ctx, struct ibv_values_ex *values)
{
	return __VERBS_INT_OP(ctx, query_rt_values, ctx, values);
}

/* Does a set of QP types, as capabilities report it, contain this one? */
static inline int ibv_is_qpt_supported(uint32_t caps, enum ibv_qp_type type)
{
	return (caps >> type) & 1;
}

/* ---------------------------------------------- calls: domains and memory */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx);
/* EBUSY while something still belongs to it. */
int ibv_dealloc_pd(struct ibv_pd *pd);

static inline struct ibv_td *ibv_alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *init)
{
	return __VERBS_PTR_OP(ctx, alloc_td, ctx, init);
}

static inline int ibv_dealloc_td(struct ibv_td *td)
{
	return __VERBS_INT_OP(td->context, dealloc_td, td);
}

static inline struct ibv_pd *ibv_alloc_parent_domain(struct ibv_context *ctx,
						     struct ibv_parent_domain_init_attr *init)
{
	return __VERBS_PTR_OP(ctx, alloc_parent_domain, ctx, init);
}

static inline struct ibv_xrcd *ibv_open_xrcd(struct ibv_context *ctx,
					     struct ibv_xrcd_init_attr *init)
{
	return __VERBS_PTR_OP(ctx, open_xrcd, ctx, init);
}

static inline int ibv_close_xrcd(struct ibv_xrcd *xrcd)
{
	/* An open domain proves that the slot exists. */
	return verbs_get_ctx(xrcd->context)->close_xrcd(xrcd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access);
/* The same, known to remote sides under the address iova. */
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
			       int access);
/* The same, and optional access bits that the device does not know are ignored. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
				unsigned int access);

/*
 * The two older functions must not see an optional bit, since older libraries refuse it. If the
 * compiler knows that there is none, a program keeps calling them and runs on such a library.
 */
__attribute__((__always_inline__)) static inline struct ibv_mr *
__ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, unsigned int access, int is_const)
{
	if (is_const && !(access & IBV_ACCESS_OPTIONAL_RANGE))
		return ibv_reg_mr(pd, addr, len, (int)access);
	return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr, access);
}

__attribute__((__always_inline__)) static inline struct ibv_mr *
__ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access,
		  int is_const)
{
	if (is_const && !(access & IBV_ACCESS_OPTIONAL_RANGE))
		return ibv_reg_mr_iova(pd, addr, len, iova, (int)access);
	return ibv_reg_mr_iova2(pd, addr, len, iova, access);
}

#define ibv_reg_mr(pd, addr, length, access)   \
	__ibv_reg_mr(pd, addr, length, access, \
		     __builtin_constant_p(((int)(access)&IBV_ACCESS_OPTIONAL_RANGE) == 0))
#define ibv_reg_mr_iova(pd, addr, length, iova, access)   \
	__ibv_reg_mr_iova(pd, addr, length, iova, access, \
			  __builtin_constant_p(((int)(access)&IBV_ACCESS_OPTIONAL_RANGE) == 0))

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
				 int fd, int access);
/* Registers memory at `addr`, as ibv_reg_mr_iova2(), or, with FD, FD_OFFSET and IOVA, that of a
 * file, as ibv_reg_dmabuf_mr(). With BUF, `addr` is in a buffer of ibv_alloc_buf(). EINVAL: fields
 * that don't go together, or a range outside the buffer, or a buffer of another protection domain,
 * or a DMA handle of another context. EOPNOTSUPP: a field that isn't known, or a DMA handle for
 * memory on demand. */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);

/* Pages for data. `pd` must live until ibv_free_buf(). */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
/* -1 with ENODATA: the buffer is ordinary memory, as all buffers are here. */
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);

/* A descriptor of device memory, the caller's, which ibv_reg_dmabuf_mr() takes; the memory lasts as
 * long as it. On Verbena's device it is that of a memory file. -1 with errno. */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);

/* A hint for regions: which processor's cache data is for. A software device's data comes by the
 * cache of the processor that copies it, so the hint is checked, and has no effect. EINVAL: fields
 * that don't go together, or a wrong value. EPERM: not a processor of this thread. EOPNOTSUPP: an
 * unknown field, or a device of the kernel. */
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
/* EBUSY: regions were registered with it. */
int ibv_dealloc_dmah(struct ibv_dmah *dmah);

/* 0 or an enum ibv_rereg_mr_err_code, with errno. */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len,
		 int access);
int ibv_dereg_mr(struct ibv_mr *mr);

static inline struct ibv_mr *ibv_alloc_null_mr(struct ibv_pd *pd)
{
	return __VERBS_PTR_OP(pd->context, alloc_null_mr, pd);
}

static inline int ibv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
				struct ibv_sge *list, uint32_t count)
{
	return __VERBS_INT_OP(pd->context, advise_mr, pd, advice, flags, list, count);
}

static inline struct ibv_dm *ibv_alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr)
{
	return __VERBS_PTR_OP(ctx, alloc_dm, ctx, attr);
}

static inline int ibv_free_dm(struct ibv_dm *dm)
{
	return __VERBS_INT_OP(dm->context, free_dm, dm);
}

static inline int ibv_memcpy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t len)
{
	return dm->memcpy_to_dm(dm, offset, from, len);
}

static inline int ibv_memcpy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t len)
{
	return dm->memcpy_from_dm(to, dm, offset, len);
}

static inline struct ibv_mr *ibv_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
					   size_t len, unsigned int access)
{
	return __VERBS_PTR_OP(pd->context, reg_dm_mr, pd, dm, offset, len, access);
}

static inline struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (pd->context->ops.alloc_mw)
		return pd->context->ops.alloc_mw(pd, type);
	errno = EOPNOTSUPP;
	return NULL;
}

static inline int ibv_dealloc_mw(struct ibv_mw *mw)
{
	return mw->context->ops.dealloc_mw(mw);
}

/*
 * Binds a window of type 1; one of type 2 is bound by a work request. EPERM: the region belongs to
 * another PD. Without a region the window is unbound; address and length must be 0 then, or EINVAL.
 */
static inline int ibv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	const struct ibv_mw_bind_info *info = &bind->bind_info;

	/* Without a region the window is unbound. */
	if (mw->type != IBV_MW_TYPE_1 || (!info->mr && (info->addr || info->length)))
		return EINVAL;
	if (info->mr && info->mr->pd != mw->pd)
		return EPERM;
	return mw->context->ops.bind_mw(qp, mw, bind);
}

/* The key with its low byte, the user's part, counted up. */
static inline uint32_t ibv_inc_rkey(uint32_t rkey)
{
	return (rkey & ~0xffu) | ((rkey + 1) & 0xffu);
}

/* Makes fork() safe for registered memory: 0 or errno value. Call it before anything else. */
int ibv_fork_init(void);
enum ibv_fork_status ibv_is_fork_initialized(void);

/* ---------------------------------------------- calls: completion queues */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx);
/* EBUSY while a CQ uses it. */
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel);

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *user,
			     struct ibv_comp_channel *channel, int comp_vector);

static inline struct ibv_cq_ex *ibv_create_cq_ex(struct ibv_context *ctx,
						 struct ibv_cq_init_attr_ex *init)
{
	return __VERBS_PTR_OP(ctx, create_cq_ex, ctx, init);
}

static inline struct ibv_cq *ibv_cq_ex_to_cq(struct ibv_cq_ex *cq)
{
	return (struct ibv_cq *)(void *)cq;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe);
int ibv_destroy_cq(struct ibv_cq *cq);

static inline int ibv_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return __VERBS_INT_OP(cq->context, modify_cq, cq, attr);
}

/* Next notification, waiting for one: 0, or -1 with errno. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user);
/* Destroying a CQ waits until all its notifications have been acknowledged. */
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count);

/* Number of completions written to out, or a negative value. */
static inline int ibv_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *out)
{
	return cq->context->ops.poll_cq(cq, max, out);
}

static inline int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return cq->context->ops.req_notify_cq(cq, solicited_only);
}

/* ENOENT: nothing there, and end_poll must not be called. */
static inline int ibv_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return cq->start_poll(cq, attr);
}

/* ENOENT: nothing more; end_poll must be called. */
static inline int ibv_next_poll(struct ibv_cq_ex *cq)
{
	return cq->next_poll(cq);
}

static inline void ibv_end_poll(struct ibv_cq_ex *cq)
{
	cq->end_poll(cq);
}

static inline enum ibv_wc_opcode ibv_wc_read_opcode(struct ibv_cq_ex *cq)
{
	return cq->read_opcode(cq);
}

static inline uint32_t ibv_wc_read_vendor_err(struct ibv_cq_ex *cq)
{
	return cq->read_vendor_err(cq);
}

static inline uint32_t ibv_wc_read_byte_len(struct ibv_cq_ex *cq)
{
	return cq->read_byte_len(cq);
}

static inline __be32 ibv_wc_read_imm_data(struct ibv_cq_ex *cq)
{
	return cq->read_imm_data(cq);
}

/* The same field holds the key, then in host byte order. */
static inline uint32_t ibv_wc_read_invalidated_rkey(struct ibv_cq_ex *cq)
{
	return (uint32_t)cq->read_imm_data(cq);
}

static inline uint32_t ibv_wc_read_qp_num(struct ibv_cq_ex *cq)
{
	return cq->read_qp_num(cq);
}

static inline uint32_t ibv_wc_read_src_qp(struct ibv_cq_ex *cq)
{
	return cq->read_src_qp(cq);
}

static inline unsigned int ibv_wc_read_wc_flags(struct ibv_cq_ex *cq)
{
	return cq->read_wc_flags(cq);
}

static inline uint32_t ibv_wc_read_slid(struct ibv_cq_ex *cq)
{
	return cq->read_slid(cq);
}

static inline uint8_t ibv_wc_read_sl(struct ibv_cq_ex *cq)
{
	return cq->read_sl(cq);
}

static inline uint8_t ibv_wc_read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return cq->read_dlid_path_bits(cq);
}

static inline uint64_t ibv_wc_read_completion_ts(struct ibv_cq_ex *cq)
{
	return cq->read_completion_ts(cq);
}

static inline uint64_t ibv_wc_read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	return cq->read_completion_wallclock_ns(cq);
}

static inline uint16_t ibv_wc_read_cvlan(struct ibv_cq_ex *cq)
{
	return cq->read_cvlan(cq);
}

static inline uint32_t ibv_wc_read_flow_tag(struct ibv_cq_ex *cq)
{
	return cq->read_flow_tag(cq);
}

static inline void ibv_wc_read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info)
{
	cq->read_tm_info(cq, info);
}

/* ----------------------------------------- calls: shared receive queues */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init);
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int ibv_destroy_srq(struct ibv_srq *srq);

static inline struct ibv_srq *ibv_create_srq_ex(struct ibv_context *ctx,
						struct ibv_srq_init_attr_ex *init)
{
	const uint32_t basic = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
	const uint32_t mask = init->comp_mask;

	/* A plain SRQ with a PD is what the older call makes, from the same leading members. */
	if ((mask & IBV_SRQ_INIT_ATTR_PD) && !(mask & ~basic) &&
	    (!(mask & IBV_SRQ_INIT_ATTR_TYPE) || init->srq_type == IBV_SRQT_BASIC))
		return ibv_create_srq(init->pd, (struct ibv_srq_init_attr *)(void *)init);
	return __VERBS_PTR_OP(ctx, create_srq_ex, ctx, init);
}

static inline int ibv_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	return __VERBS_INT_OP(srq->context, get_srq_num, srq, number);
}

/* Posting calls: 0 or an errno value, and *bad is the first request that was not taken. */
static inline int ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *list,
				    struct ibv_recv_wr **bad)
{
	return srq->context->ops.post_srq_recv(srq, list, bad);
}

static inline int ibv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *list,
				   struct ibv_ops_wr **bad)
{
	struct verbs_context *ext = verbs_get_ctx_op(srq->context, post_srq_ops);

	if (ext)
		return ext->post_srq_ops(srq, list, bad);
	*bad = list;
	return EOPNOTSUPP;
}

/* --------------------------------------------------- calls: ports and counters */

/* The port's bandwidth in units of 100 Mb/s. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

/* Fills `caps` with zeros: there are none. */
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
			      size_t caps_size);

static inline int ibv_query_comp_cntr_caps(struct ibv_context *context,
					   struct ibv_comp_cntr_caps *caps)
{
	return _ibv_query_comp_cntr_caps(context, caps, sizeof(*caps));
}

struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
			    struct ibv_qp_attach_comp_cntr_attr *attr);

/* --------------------------------------------------- calls: queue pairs */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init);
enum ibv_query_qp_data_in_order_flags {
	IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS = 1 << 0,
	IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY = 1 << 1,
};

enum ibv_query_qp_data_in_order_caps {
	IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG = 1 << 0,
	IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES = 1 << 1,
};

const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);
/* 1 if the data of this operation arrives in order of address, else 0; with RETURN_CAPS bits of the
 * enumeration above. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
int ibv_destroy_qp(struct ibv_qp *qp);
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
/* The QP with its builders, NULL unless it was created with SEND_OPS_FLAGS. */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp);

static inline struct ibv_qp *ibv_create_qp_ex(struct ibv_context *ctx,
					      struct ibv_qp_init_attr_ex *init)
{
	/* With nothing but a PD given, the older call does it, from the same leading members. */
	if (init->comp_mask == IBV_QP_INIT_ATTR_PD)
		return ibv_create_qp(init->pd, (struct ibv_qp_init_attr *)(void *)init);
	return __VERBS_PTR_OP(ctx, create_qp_ex, ctx, init);
}

static inline struct ibv_qp *ibv_open_qp(struct ibv_context *ctx, struct ibv_qp_open_attr *attr)
{
	return __VERBS_PTR_OP(ctx, open_qp, ctx, attr);
}

static inline int ibv_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	return __VERBS_INT_OP(qp->context, modify_qp_rate_limit, qp, attr);
}

static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *list,
				struct ibv_send_wr **bad)
{
	return qp->context->ops.post_send(qp, list, bad);
}

static inline int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *list,
				struct ibv_recv_wr **bad)
{
	return qp->context->ops.post_recv(qp, list, bad);
}

static inline void ibv_wr_start(struct ibv_qp_ex *qp)
{
	qp->wr_start(qp);
}

/* Posts everything since ibv_wr_start(), or nothing: 0 or an errno value. */
static inline int ibv_wr_complete(struct ibv_qp_ex *qp)
{
	return qp->wr_complete(qp);
}

static inline void ibv_wr_abort(struct ibv_qp_ex *qp)
{
	qp->wr_abort(qp);
}

static inline void ibv_wr_send(struct ibv_qp_ex *qp)
{
	qp->wr_send(qp);
}

static inline void ibv_wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	qp->wr_send_imm(qp, imm);
}

static inline void ibv_wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	qp->wr_send_inv(qp, rkey);
}

static inline void ibv_wr_send_tso(struct ibv_qp_ex *qp, void *header, uint16_t header_len,
				   uint16_t mss)
{
	qp->wr_send_tso(qp, header, header_len, mss);
}

static inline void ibv_wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr)
{
	qp->wr_rdma_write(qp, rkey, raddr);
}

static inline void ibv_wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
					 __be32 imm)
{
	qp->wr_rdma_write_imm(qp, rkey, raddr, imm);
}

static inline void ibv_wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr)
{
	qp->wr_rdma_read(qp, rkey, raddr);
}

static inline void ibv_wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
					 uint64_t expected, uint64_t desired)
{
	qp->wr_atomic_cmp_swp(qp, rkey, raddr, expected, desired);
}

static inline void ibv_wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
					   uint64_t addend)
{
	qp->wr_atomic_fetch_add(qp, rkey, raddr, addend);
}

static inline void ibv_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				       const void *eight_bytes)
{
	qp->wr_atomic_write(qp, rkey, raddr, eight_bytes);
}

static inline void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr, size_t len,
				uint8_t type, uint8_t level)
{
	qp->wr_flush(qp, rkey, raddr, len, type, level);
}

static inline void ibv_wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
				  const struct ibv_mw_bind_info *info)
{
	qp->wr_bind_mw(qp, mw, rkey, info);
}

static inline void ibv_wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	qp->wr_local_inv(qp, rkey);
}

static inline void ibv_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn,
				      uint32_t qkey)
{
	qp->wr_set_ud_addr(qp, ah, qpn, qkey);
}

static inline void ibv_wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t srqn)
{
	qp->wr_set_xrc_srqn(qp, srqn);
}

static inline void ibv_wr_set_inline_data(struct ibv_qp_ex *qp, void *data, size_t len)
{
	qp->wr_set_inline_data(qp, data, len);
}

static inline void ibv_wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
					       const struct ibv_data_buf *list)
{
	qp->wr_set_inline_data_list(qp, count, list);
}

static inline void ibv_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t len)
{
	qp->wr_set_sge(qp, lkey, addr, len);
}

static inline void ibv_wr_set_sge_list(struct ibv_qp_ex *qp, size_t count,
				       const struct ibv_sge *list)
{
	qp->wr_set_sge_list(qp, count, list);
}

/* ---------------------------------- calls: address handles and multicast */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
/* The way back to the sender of a UD message: 0, or -1 with errno. */
int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *out);
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port);
int ibv_destroy_ah(struct ibv_ah *ah);
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
/* MAC address and VLAN that lead to attr's destination. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *ctx, struct ibv_ah_attr *attr,
				uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vlan);

/* RoCE v2: the UDP source port that represents a 20-bit flow label. */
static inline uint16_t ibv_flow_label_to_udp_sport(uint32_t label)
{
	uint32_t folded = (label & 0x3fff) ^ ((label & 0xfc000) >> 14);

	return (uint16_t)(folded | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN);
}

/* -------------------------------------- calls: work queues and steering */

static inline struct ibv_wq *ibv_create_wq(struct ibv_context *ctx, struct ibv_wq_init_attr *init)
{
	struct ibv_wq *wq = __VERBS_PTR_OP(ctx, create_wq, ctx, init);

	if (wq) {
		/* By contract the caller, not the library, prepares the event bookkeeping. */
		wq->events_completed = 0;
		pthread_mutex_init(&wq->mutex, NULL);
		pthread_cond_init(&wq->cond, NULL);
	}
	return wq;
}

static inline int ibv_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	return __VERBS_INT_OP(wq->context, modify_wq, wq, attr);
}

static inline int ibv_destroy_wq(struct ibv_wq *wq)
{
	return __VERBS_INT_OP(wq->context, destroy_wq, wq);
}

static inline int ibv_post_wq_recv(struct ibv_wq *wq, struct ibv_recv_wr *list,
				   struct ibv_recv_wr **bad)
{
	return wq->post_recv(wq, list, bad);
}

static inline struct ibv_rwq_ind_table *
ibv_create_rwq_ind_table(struct ibv_context *ctx, struct ibv_rwq_ind_table_init_attr *init)
{
	return __VERBS_PTR_OP(ctx, create_rwq_ind_table, ctx, init);
}

static inline int ibv_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	return __VERBS_INT_OP(table->context, destroy_rwq_ind_table, table);
}

static inline struct ibv_flow *ibv_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	return __VERBS_PTR_OP(qp->context, ibv_create_flow, qp, attr);
}

static inline int ibv_destroy_flow(struct ibv_flow *flow)
{
	return __VERBS_INT_OP(flow->context, ibv_destroy_flow, flow);
}

static inline struct ibv_flow_action *
ibv_create_flow_action_esp(struct ibv_context *ctx, struct ibv_flow_action_esp_attr *attr)
{
	return __VERBS_PTR_OP(ctx, create_flow_action_esp, ctx, attr);
}

static inline int ibv_modify_flow_action_esp(struct ibv_flow_action *action,
					     struct ibv_flow_action_esp_attr *attr)
{
	return __VERBS_INT_OP(action->context, modify_flow_action_esp, action, attr);
}

static inline int ibv_destroy_flow_action(struct ibv_flow_action *action)
{
	return __VERBS_INT_OP(action->context, destroy_flow_action, action);
}

static inline struct ibv_counters *ibv_create_counters(struct ibv_context *ctx,
						       struct ibv_counters_init_attr *init)
{
	return __VERBS_PTR_OP(ctx, create_counters, ctx, init);
}

static inline int ibv_destroy_counters(struct ibv_counters *counters)
{
	return __VERBS_INT_OP(counters->context, destroy_counters, counters);
}

static inline int ibv_attach_counters_point_flow(struct ibv_counters *counters,
						 struct ibv_counter_attach_attr *attr,
						 struct ibv_flow *flow)
{
	return __VERBS_INT_OP(counters->context, attach_counters_point_flow, counters, attr, flow);
}

static inline int ibv_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t count,
				    uint32_t flags)
{
	return __VERBS_INT_OP(counters->context, read_counters, counters, values, count, flags);
}

/* ---------------------------------------------------------- calls: names */

const char *ibv_node_type_str(enum ibv_node_type type);
const char *ibv_port_state_str(enum ibv_port_state state);
const char *ibv_event_type_str(enum ibv_event_type type);

#undef __attribute_const
#undef __VERBS_INT_OP
#undef __VERBS_PTR_OP

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_H */
