/* SPDX-License-Identifier: BSD-2-Clause */
/* See mad.h. One table of fields for each message serves both directions. No state. */
#include "cm/mad.h"

#include <stddef.h>
#include <string.h>

enum {
	BASE_VERSION = 1,
	CLASS_CM = 7,
	CLASS_VERSION = 2,
	METHOD_SEND = 3,
	FIRST_ATTRIBUTE = 0x10,
	ATTRIBUTE = 16, /* its offset in the header */
};

/* `at`: bit offset from the end of the MAD header, the most significant bit of a byte first. */
struct field {
	uint16_t at, bits;
	uint16_t member; /* offset in struct cm_mad */
	uint8_t size;	 /* of the member: 4, 8; 0: bytes */
};

#define MEMBER(m) offsetof(struct cm_mad, m), sizeof(((struct cm_mad *)0)->m)
#define BITS(byte, bit, bits, m)                    \
	{                                           \
		(byte) * 8 + (bit), bits, MEMBER(m) \
	}
#define WHOLE(byte, bits, m) BITS(byte, 0, bits, m)
#define BYTES(byte, size, m)                                        \
	{                                                           \
		(byte) * 8, (size)*8, offsetof(struct cm_mad, m), 0 \
	}
#define PRIVATE(byte, size) BYTES(byte, size, private_data)
#define END       \
	{         \
		0 \
	}
#define IDS WHOLE(0, 32, local_id), WHOLE(4, 32, remote_id)

/* A path's parts. A REQ and a LAP have those between the first and the last in another order. */
#define PATH_ENDS(byte, p)                                                 \
	WHOLE(byte, 16, p.local_lid), WHOLE((byte) + 2, 16, p.remote_lid), \
		BYTES((byte) + 4, 16, p.local_gid), BYTES((byte) + 20, 16, p.remote_gid)
#define PATH_LEVEL(byte, p) \
	WHOLE(byte, 4, p.sl), BITS(byte, 4, 1, p.subnet_local), WHOLE((byte) + 1, 5, p.ack_timeout)
#define PATH(byte, p)                                                                              \
	PATH_ENDS(byte, p), WHOLE((byte) + 36, 20, p.flow_label), BITS((byte) + 39, 2, 6, p.rate), \
		WHOLE((byte) + 40, 8, p.traffic_class), WHOLE((byte) + 41, 8, p.hop_limit),        \
		PATH_LEVEL((byte) + 42, p)

static const struct field req[] = {
	WHOLE(0, 32, local_id),
	WHOLE(5, 24, vendor_id),
	WHOLE(8, 64, service_id),
	WHOLE(16, 64, ca_guid),
	WHOLE(28, 32, qkey),
	WHOLE(32, 24, qpn),
	WHOLE(35, 8, responder_resources),
	WHOLE(36, 24, local_eecn),
	WHOLE(39, 8, initiator_depth),
	WHOLE(40, 24, remote_eecn),
	WHOLE(43, 5, remote_timeout),
	BITS(43, 5, 2, transport),
	BITS(43, 7, 1, flow_control),
	WHOLE(44, 24, psn),
	WHOLE(47, 5, local_timeout),
	BITS(47, 5, 3, retry_count),
	WHOLE(48, 16, pkey),
	WHOLE(50, 4, mtu),
	BITS(50, 4, 1, rdc),
	BITS(50, 5, 3, rnr_retry),
	WHOLE(51, 4, max_retries),
	BITS(51, 4, 1, srq),
	BITS(51, 5, 3, extended_transport),
	PATH(52, primary),
	PATH(96, alternate),
	PRIVATE(140, 92),
	END,
};

static const struct field mra[] = {
	IDS, WHOLE(8, 2, about), WHOLE(9, 5, service_timeout), PRIVATE(10, 222), END,
};

static const struct field rej[] = {
	IDS,
	WHOLE(8, 2, about),
	WHOLE(9, 7, info_length),
	WHOLE(10, 16, reason),
	BYTES(12, 72, ari),
	PRIVATE(84, 148),
	END,
};

static const struct field rep[] = {
	IDS,
	WHOLE(8, 32, qkey),
	WHOLE(12, 24, qpn),
	WHOLE(15, 8, vendor_id_h),
	WHOLE(16, 24, local_eecn),
	WHOLE(19, 8, vendor_id_m),
	WHOLE(20, 24, psn),
	WHOLE(23, 8, vendor_id_l),
	WHOLE(24, 8, responder_resources),
	WHOLE(25, 8, initiator_depth),
	WHOLE(26, 5, target_ack_delay),
	BITS(26, 5, 2, failover),
	BITS(26, 7, 1, flow_control),
	WHOLE(27, 3, rnr_retry),
	BITS(27, 3, 1, srq),
	WHOLE(28, 64, ca_guid),
	PRIVATE(36, 196),
	END,
};

static const struct field rtu_drep[] = {IDS, PRIVATE(8, 224), END};
static const struct field dreq[] = {IDS, WHOLE(8, 24, qpn), PRIVATE(12, 220), END};

static const struct field sidr_req[] = {
	WHOLE(0, 32, local_id), WHOLE(4, 16, pkey), WHOLE(8, 64, service_id), PRIVATE(16, 216), END,
};

static const struct field sidr_rep[] = {
	WHOLE(0, 32, local_id), WHOLE(4, 8, reason),	   WHOLE(5, 8, info_length),
	WHOLE(8, 24, qpn),	WHOLE(12, 64, service_id), WHOLE(20, 32, qkey),
	BYTES(24, 72, ari),	PRIVATE(96, 136),	   END,
};

static const struct field lap[] = {
	IDS,
	WHOLE(12, 24, qpn),
	WHOLE(15, 5, remote_timeout),
	PATH_ENDS(20, alternate),
	WHOLE(56, 20, alternate.flow_label),
	WHOLE(59, 8, alternate.traffic_class),
	WHOLE(60, 8, alternate.hop_limit),
	BITS(61, 2, 6, alternate.rate),
	PATH_LEVEL(62, alternate),
	PRIVATE(64, 168),
	END,
};

static const struct field apr[] = {
	IDS, WHOLE(8, 8, info_length), WHOLE(9, 8, reason), BYTES(12, 72, ari), PRIVATE(84, 148),
	END,
};

static const struct {
	const char *name;
	const struct field *fields;
	uint8_t private_size;
} messages[] = {
	[CM_REQ] = {"REQ", req, 92},
	[CM_MRA] = {"MRA", mra, 222},
	[CM_REJ] = {"REJ", rej, 148},
	[CM_REP] = {"REP", rep, 196},
	[CM_RTU] = {"RTU", rtu_drep, 224},
	[CM_DREQ] = {"DREQ", dreq, 220},
	[CM_DREP] = {"DREP", rtu_drep, 224},
	[CM_SIDR_REQ] = {"SIDR_REQ", sidr_req, 216},
	[CM_SIDR_REP] = {"SIDR_REP", sidr_rep, 136},
	[CM_LAP] = {"LAP", lap, 168},
	[CM_APR] = {"APR", apr, 148},
};

_Static_assert(sizeof(messages) / sizeof(messages[0]) == CM_MESSAGES, "every message has a row");

uint32_t cm_private_size(enum cm_message message)
{
	return messages[message].private_size;
}

const char *cm_message_name(enum cm_message message)
{
	return messages[message].name;
}

const char *cm_mad_error_name(enum cm_mad_error error)
{
	static const char *const names[] = {
		[CM_MAD_OK] = "right",
		[CM_MAD_VERSION] = "of an unknown version",
		[CM_MAD_CLASS] = "of another class",
		[CM_MAD_METHOD] = "of another method",
		[CM_MAD_ATTRIBUTE] = "of an unknown attribute",
	};

	_Static_assert(sizeof(names) / sizeof(names[0]) == CM_MAD_ERRORS, "every error has a name");
	return names[error];
}

/* ------------------------------------------------------------------ bits */

static uint64_t mad_get_bytes(const uint8_t *from, unsigned int bytes)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < bytes; i++)
		value = value << 8 | from[i];
	return value;
}

static void mad_put_bytes(uint8_t *to, unsigned int bytes, uint64_t value)
{
	for (unsigned int i = bytes; i-- > 0; value >>= 8)
		to[i] = (uint8_t)value;
}

/* The bytes that contain a field, and the distance of its lowest bit from their end. */
struct span {
	unsigned int first, bytes, shift;
	uint64_t mask;
};

static struct span span_of(const struct field *f)
{
	unsigned int first = f->at / 8, end = (f->at + f->bits + 7) / 8;

	return (struct span){first, end - first, end * 8 - f->at - f->bits,
			     f->bits >= 64 ? UINT64_MAX : ((uint64_t)1 << f->bits) - 1};
}

static void field_decode(const struct field *f, const uint8_t *body, uint8_t *mad)
{
	const struct span s = span_of(f);

	if (!f->size) {
		memcpy(mad + f->member, body + s.first, f->bits / 8);
		return;
	}
	uint64_t value = mad_get_bytes(body + s.first, s.bytes) >> s.shift & s.mask;
	uint32_t word = (uint32_t)value;

	memcpy(mad + f->member, f->size == 4 ? (void *)&word : (void *)&value, f->size);
}

static void field_encode(const struct field *f, const uint8_t *mad, uint8_t *body)
{
	const struct span s = span_of(f);
	uint64_t value = 0;
	uint32_t word;

	if (!f->size) {
		memcpy(body + s.first, mad + f->member, f->bits / 8);
		return;
	}
	memcpy(&value, mad + f->member, f->size);
	if (f->size == 4) {
		memcpy(&word, mad + f->member, sizeof(word));
		value = word;
	}
	mad_put_bytes(body + s.first, s.bytes,
		      mad_get_bytes(body + s.first, s.bytes) | (value & s.mask) << s.shift);
}

/* ------------------------------------------------------------------ messages */

enum cm_mad_error cm_mad_decode(const uint8_t bytes[MAD_SIZE], struct cm_mad *mad)
{
	uint32_t attribute = (uint32_t)mad_get_bytes(bytes + ATTRIBUTE, 2);

	if (bytes[1] != CLASS_CM)
		return CM_MAD_CLASS;
	if (bytes[0] != BASE_VERSION || bytes[2] != CLASS_VERSION)
		return CM_MAD_VERSION;
	if (bytes[3] != METHOD_SEND)
		return CM_MAD_METHOD;
	if (attribute < FIRST_ATTRIBUTE || attribute >= FIRST_ATTRIBUTE + CM_MESSAGES)
		return CM_MAD_ATTRIBUTE;
	*mad = (struct cm_mad){
		.message = attribute - FIRST_ATTRIBUTE,
		.transaction = mad_get_bytes(bytes + 8, 8),
		.attribute_modifier = (uint32_t)mad_get_bytes(bytes + 20, 4),
	};
	for (const struct field *f = messages[mad->message].fields; f->bits; f++)
		field_decode(f, bytes + MAD_HEADER, (uint8_t *)mad);
	return CM_MAD_OK;
}

void cm_mad_encode(const struct cm_mad *mad, uint8_t bytes[MAD_SIZE])
{
	memset(bytes, 0, MAD_SIZE);
	bytes[0] = BASE_VERSION;
	bytes[1] = CLASS_CM;
	bytes[2] = CLASS_VERSION;
	bytes[3] = METHOD_SEND;
	mad_put_bytes(bytes + 8, 8, mad->transaction);
	mad_put_bytes(bytes + ATTRIBUTE, 2, FIRST_ATTRIBUTE + mad->message);
	mad_put_bytes(bytes + 20, 4, mad->attribute_modifier);
	for (const struct field *f = messages[mad->message].fields; f->bits; f++)
		field_encode(f, (const uint8_t *)mad, bytes + MAD_HEADER);
}

/* ------------------------------------------------------------------ the IP header */

static void gid_from_v4(const uint8_t *bytes, uint8_t gid[16])
{
	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 12, bytes + 12, 4);
}

bool cm_ip_decode(const uint8_t bytes[CM_IP_HEADER], struct cm_ip *ip)
{
	ip->version = bytes[1] >> 4;
	ip->port = (uint16_t)mad_get_bytes(bytes + 2, 2);
	if (bytes[0] >> 4 || (ip->version != 4 && ip->version != 6))
		return false;
	if (ip->version == 4) {
		gid_from_v4(bytes + 4, ip->source);
		gid_from_v4(bytes + 20, ip->destination);
	} else {
		memcpy(ip->source, bytes + 4, 16);
		memcpy(ip->destination, bytes + 20, 16);
	}
	return true;
}

void cm_ip_encode(const struct cm_ip *ip, uint8_t bytes[CM_IP_HEADER])
{
	unsigned int skip = ip->version == 4 ? 12 : 0;

	memset(bytes, 0, CM_IP_HEADER);
	bytes[1] = (uint8_t)(ip->version << 4);
	mad_put_bytes(bytes + 2, 2, ip->port);
	memcpy(bytes + 4 + skip, ip->source + skip, 16 - skip);
	memcpy(bytes + 20 + skip, ip->destination + skip, 16 - skip);
}
