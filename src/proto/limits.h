/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one Verbena device offers: every limit that the daemon enforces, the soft HCA sizes
 * its tables by and ibv_query_device() reports. One place, so that the three cannot differ.
 */
#ifndef VERBENA_PROTO_LIMITS_H
#define VERBENA_PROTO_LIMITS_H

/*
 * A QPN is 24 bits: slot (process) in the upper ten, index within the process in the lower
 * fourteen. Slot 0 belongs to the daemon (QP 0 and 1 are management queue pairs).
 */
#define LIMIT_SLOT_BITS 10
#define LIMIT_SLOTS (1u << LIMIT_SLOT_BITS)
#define LIMIT_QP_BITS 14
#define LIMIT_QPS_PER_SLOT (1u << LIMIT_QP_BITS)

/* Keys are 32 bits: index of the region in its process's table, then an 8-bit tag. */
#define LIMIT_MR_BITS 20
#define LIMIT_MRS_PER_SLOT (1u << LIMIT_MR_BITS)
#define LIMIT_KEY_TAG_BITS 8

/*
 * A device's limits are what one process can make; the daemon refuses more, with a line in its log.
 * QP indices begin at 1, and one of slot 1023 is reserved for the multicast QPN 0xffffff.
 */
#define LIMIT_QP (LIMIT_QPS_PER_SLOT - 2)
#define LIMIT_MR (LIMIT_MRS_PER_SLOT - 1)
#define LIMIT_MW (1u << 18)
#define LIMIT_QP_WR 32768u
#define LIMIT_SGE 32u
#define LIMIT_INLINE 1024u
#define LIMIT_CQ (1u << 18)
#define LIMIT_CQE ((1u << 22) - 1) /* a CQ's pages are allocated once they are written */
#define LIMIT_SRQ 65536u
#define LIMIT_SRQ_WR 32768u
/* Handles of XRC domains of one process; target queue pairs of the host, which all processes may
 * look up. */
#define LIMIT_XRCD 4096u
#define LIMIT_XRC_TARGETS 16384u
/* Tag-matching SRQs: buffers in the list, operations on it, segments of a buffer (one fewer than a
 * request has, because what precedes a message's data has a place among them), and the length of a
 * rendezvous request. */
#define LIMIT_TAGS 1024u
#define LIMIT_TAG_OPS 32768u
#define LIMIT_TAG_SGE 31
#define LIMIT_RNDV_BYTES 64u
#define LIMIT_PD 65536u
#define LIMIT_AH 65536u
#define LIMIT_MR_BYTES (1ull << 46)
/* Device memory of a process, in bytes and in buffers: each buffer is a descriptor of the daemon.
 */
#define LIMIT_DM_BYTES (4u << 20)
#define LIMIT_DM 64u

/* On-demand paging: enum ibv_odp_general_caps, and per transport enum ibv_odp_transport_cap_bits.
 */
#define ODP_GENERAL 3u /* explicit, implicit */
#define ODP_SEND 1u
#define ODP_RECV 2u
#define ODP_WRITE 4u
#define ODP_READ 8u
#define ODP_ATOMIC 16u
#define ODP_SRQ_RECV 32u
#define ODP_UD (ODP_SEND | ODP_RECV | ODP_SRQ_RECV)
#define ODP_UC (ODP_UD | ODP_WRITE)
#define ODP_FLUSH 64u
#define ODP_ATOMIC_WRITE 128u
#define ODP_RC (ODP_UC | ODP_READ | ODP_ATOMIC | ODP_FLUSH | ODP_ATOMIC_WRITE)
/* It receives by SRQs only. */
#define ODP_XRC (ODP_RC & ~ODP_RECV)

/* Bits of ibv_device_attr_ex.device_cap_flags_ex that the headers of rdma-core 44 don't name. */
#define CAPABILITY_FLUSH_GLOBAL (1ull << 38)
#define CAPABILITY_ATOMIC_WRITE (1ull << 40)
#define CAPABILITIES_EX (CAPABILITY_FLUSH_GLOBAL | CAPABILITY_ATOMIC_WRITE)

#define LIMIT_RD_ATOM 128u
#define LIMIT_MSG_BYTES (1u << 30)
/* A port's table, which programs may search; and the GIDs that can be named by index, most of which
 * are behind the table (src/daemon/net/gids.h). */
#define LIMIT_GIDS 128u
#define LIMIT_GID_INDICES 256u
#define LIMIT_PKEYS 1u
#define LIMIT_COMP_VECTORS 8u

/* Multicast groups of the host, queue pairs in one group, and attachments in all groups. */
#define LIMIT_MCAST_GROUPS 8192u
#define LIMIT_MCAST_QPS 1024u
#define LIMIT_MCAST_ATTACHED 65536u

/* Flow rules of the host, and those of one process. */
#define LIMIT_FLOWS 4096u
#define LIMIT_PROCESS_FLOWS 1024u
/* Bytes of a frame that a raw packet queue pair sends: they fit one record of a ring. */
#define LIMIT_FRAME 8160u
/* The logarithm of the work queues in an indirection table. */
#define LIMIT_TABLE_LOG 11u
#define LIMIT_TABLES 65536u /* the library makes them: what a device says */

/* enum ibv_rx_hash_fields: addresses, ports and ESP's index, outside tunnels and inside. */
#define RX_HASH_FIELDS 0x800001ffull
/* enum ibv_raw_packet_caps: VLAN tags can be taken out, checksums are computed and checked. */
#define RAW_PACKET_CAPS 5u

#define DEVICE_VENDOR_ID 0x766562u /* "veb", with the bit for locally administered */
/* The vendor's only device. perftest compares part numbers without looking at the vendor: for a
 * number that it takes for another vendor's part it calls what that part's driver has
 * (mlx5dv_query_device() in 25.01); for an unknown one it posts by ibv_post_send(), without inline
 * data. */
#define DEVICE_PART_ID 1u
#define DEVICE_HW_VERSION 1u

#endif
