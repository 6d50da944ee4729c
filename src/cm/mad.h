/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages of the InfiniBand connection manager (IBTA volume 1, chapter 12): 256 bytes, a MAD
 * header and the attribute's fields. Codecs between bytes and struct cm_mad, without state. Any 256
 * bytes either decode or give a reason why not. Reserved bits are ignored when decoding, and 0 when
 * encoding.
 */
#ifndef VERBENA_CM_MAD_H
#define VERBENA_CM_MAD_H

#include <stdbool.h>
#include <stdint.h>

enum { MAD_SIZE = 256, MAD_HEADER = 24 };
enum { CM_PRIVATE_MAX = 224, CM_ARI = 72 };

/* QP1's well-known key, and its number. */
#define MAD_GSI_QKEY 0x80010000u
#define MAD_GSI_QPN 1u

enum cm_message {
	CM_REQ,
	CM_MRA,
	CM_REJ,
	CM_REP,
	CM_RTU,
	CM_DREQ,
	CM_DREP,
	CM_SIDR_REQ,
	CM_SIDR_REP,
	CM_LAP,
	CM_APR,
	CM_MESSAGES
};

/* Reasons of a REJ (table 109): those that are sent or evaluated here. */
enum cm_reject {
	CM_REJECT_NO_RESOURCES = 3,
	CM_REJECT_TIMEOUT = 4,
	CM_REJECT_UNSUPPORTED = 5,
	CM_REJECT_INVALID_ID = 6,
	CM_REJECT_SERVICE_ID = 8,
	CM_REJECT_STALE = 10,
	CM_REJECT_CONSUMER = 28,
	CM_REJECT_VENDOR_OPTION = 35,
};

/* The message that a REJ or an MRA is about. CM_ABOUT_LAP: of an MRA only. */
enum cm_about { CM_ABOUT_REQ, CM_ABOUT_REP, CM_ABOUT_OTHER, CM_ABOUT_LAP = CM_ABOUT_OTHER };

enum cm_sidr_status { CM_SIDR_SUCCESS, CM_SIDR_UNSUPPORTED, CM_SIDR_REJECT };

/* The statuses of an APR. */
enum cm_apr_status {
	CM_APR_LOADED,
	CM_APR_INVALID_ID,
	CM_APR_UNSUPPORTED, /* no alternate paths here */
	CM_APR_REJECTED,
	CM_APR_REDIRECTED,
	CM_APR_IS_CURRENT, /* the path is the primary one already */
	CM_APR_INVALID_QPN,
	CM_APR_INVALID_LID,
	CM_APR_INVALID_GID,
	CM_APR_INVALID_FLOW_LABEL,
	CM_APR_INVALID_TRAFFIC_CLASS,
	CM_APR_INVALID_HOP_LIMIT,
	CM_APR_INVALID_RATE,
	CM_APR_INVALID_SL,
	CM_APR_STATUSES
};

/* XRC is the extended transport 1: `transport` says that there is one. */
enum cm_transport { CM_TRANSPORT_RC, CM_TRANSPORT_UC, CM_TRANSPORT_XRC = 3 };
enum cm_extended_transport { CM_EXTENDED_NONE, CM_EXTENDED_XRC };

/* A path, as in a REQ or LAP. */
struct cm_mad_path {
	uint32_t local_lid, remote_lid;
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label, rate, traffic_class, hop_limit, sl, subnet_local, ack_timeout;
};

/* A decoded message; integers in host order. Only the fields that the message has are meaningful,
 * the others are 0. */
struct cm_mad {
	enum cm_message message;
	uint64_t transaction;
	uint32_t attribute_modifier;
	uint32_t local_id, remote_id; /* communication ids; SIDR: local_id is the request's */
	uint64_t service_id, ca_guid;
	uint32_t qkey, qpn; /* DREQ, LAP: the receiver's QPN */
	uint32_t local_eecn, remote_eecn;
	uint32_t responder_resources, initiator_depth;
	uint32_t remote_timeout, local_timeout, transport, flow_control;
	uint32_t psn, retry_count, pkey, mtu, rdc, rnr_retry, max_retries, srq, extended_transport;
	uint32_t vendor_id, vendor_id_h, vendor_id_m, vendor_id_l;
	struct cm_mad_path primary, alternate;
	uint32_t target_ack_delay, failover;
	uint32_t about, service_timeout; /* MRA, REJ: enum cm_about */
	uint32_t info_length, reason;	 /* REJ; SIDR_REP, APR: reason is the status */
	uint8_t ari[CM_ARI];
	uint8_t private_data[CM_PRIVATE_MAX];
};

/* Why bytes are no message of the CM. */
enum cm_mad_error {
	CM_MAD_OK,
	CM_MAD_VERSION, /* of the MAD, or of the class */
	CM_MAD_CLASS,	/* of another class */
	CM_MAD_METHOD,	/* other than Send */
	CM_MAD_ATTRIBUTE,
	CM_MAD_ERRORS
};

/* Returns CM_MAD_OK, or why the bytes are no message; *mad is then undefined. */
enum cm_mad_error cm_mad_decode(const uint8_t bytes[MAD_SIZE], struct cm_mad *mad);
void cm_mad_encode(const struct cm_mad *mad, uint8_t bytes[MAD_SIZE]);

/* The size of the message's private data in bytes. */
uint32_t cm_private_size(enum cm_message message);
const char *cm_message_name(enum cm_message message);
const char *cm_mad_error_name(enum cm_mad_error error);

/*
 * The RDMA CM's header in front of a REQ's or SIDR_REQ's private data (annex A11): the IP addresses
 * of the connection.
 */
enum { CM_IP_HEADER = 36 };

struct cm_ip {
	uint32_t version; /* 4 or 6 */
	uint16_t port;	  /* of the source; the destination's is in the service id */
	uint8_t source[16], destination[16]; /* as GIDs: IPv4 mapped (::ffff:a.b.c.d) */
};

/* False: no such header (an unknown version). */
bool cm_ip_decode(const uint8_t bytes[CM_IP_HEADER], struct cm_ip *ip);
void cm_ip_encode(const struct cm_ip *ip, uint8_t bytes[CM_IP_HEADER]);

#endif
