/* SPDX-License-Identifier: BSD-2-Clause */
/* The fields of a MAD that all classes have, and of the RMPP header, read and written in place. */
#ifndef VERBENA_MAD_HEADER_H
#define VERBENA_MAD_HEADER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	CLASS_SMI = 0x01,
	CLASS_SA = 0x03,
	CLASS_BM = 0x05,
	CLASS_DEVICE_MGMT = 0x06,
	CLASS_CM = 0x07,
	CLASS_DEVICE_ADM = 0x10,
	CLASS_BIS = 0x12,
	CLASS_VENDOR2_FIRST = 0x30,
	CLASS_VENDOR2_LAST = 0x4f,
	CLASS_SMI_DIRECTED = 0x81,
};

enum {
	METHOD_GET = 0x01,
	METHOD_SET = 0x02,
	METHOD_SEND = 0x03,
	METHOD_TRAP_REPRESS = 0x07,
	METHOD_GET_RESPONSE = 0x81,
	METHOD_RESPONSE = 0x80,
};

#define STATUS_UNSUPPORTED 0x000c /* method and attribute together */
#define STATUS_DIRECTION 0x8000	  /* of a directed route's response */

enum { OFFSET_STATUS = 4, OFFSET_TID = 8, OFFSET_ATTRIBUTE = 16, OFFSET_MODIFIER = 20 };
enum { OFFSET_RMPP_SEGMENT = 28, OFFSET_RMPP_LENGTH = 32, OFFSET_OUI = 37 };

static inline uint32_t header_get32(const uint8_t *mad, int offset)
{
	return (uint32_t)mad[offset] << 24 | (uint32_t)mad[offset + 1] << 16 |
	       (uint32_t)mad[offset + 2] << 8 | mad[offset + 3];
}

static inline void header_set32(uint8_t *mad, int offset, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		mad[offset + i] = (uint8_t)(value >> (24 - 8 * i));
}

static inline uint8_t header_class(const uint8_t *mad)
{
	return mad[1];
}

static inline uint8_t header_version(const uint8_t *mad)
{
	return mad[2];
}

static inline uint8_t header_method(const uint8_t *mad)
{
	return mad[3];
}

static inline uint64_t header_tid(const uint8_t *mad)
{
	return (uint64_t)header_get32(mad, OFFSET_TID) << 32 | header_get32(mad, OFFSET_TID + 4);
}

/* Whether it belongs to a request that was sent before. */
static inline bool header_is_response(const uint8_t *mad)
{
	if (header_method(mad) & METHOD_RESPONSE || header_method(mad) == METHOD_TRAP_REPRESS)
		return true;
	return header_class(mad) == CLASS_BM && (header_get32(mad, OFFSET_MODIFIER) & 1);
}

static inline bool class_is_vendor2(uint8_t mgmt_class)
{
	return mgmt_class >= CLASS_VENDOR2_FIRST && mgmt_class <= CLASS_VENDOR2_LAST;
}

static inline bool class_has_rmpp(uint8_t mgmt_class)
{
	return mgmt_class == CLASS_SA || mgmt_class == CLASS_DEVICE_MGMT ||
	       mgmt_class == CLASS_DEVICE_ADM || mgmt_class == CLASS_BIS ||
	       class_is_vendor2(mgmt_class);
}

/* Where the data begin in a class that has RMPP; each segment carries what is before. */
static inline int class_data_offset(uint8_t mgmt_class)
{
	if (mgmt_class == CLASS_SA)
		return 56;
	if (class_is_vendor2(mgmt_class))
		return 40;
	return 64;
}

/* RMPP ----------------------------------------------------------------------------------------- */

enum { RMPP_DATA = 1, RMPP_ACK = 2, RMPP_STOP = 3, RMPP_ABORT = 4 };
enum { RMPP_ACTIVE = 1, RMPP_FIRST = 2, RMPP_LAST = 4, RMPP_FLAGS = 7 };

#define RMPP_VERSION 1
#define RMPP_RESPONSE_TIME_NONE 0xf8 /* beside the flags */

/* Why a message is given up; the specification's codes. */
enum {
	RMPP_STATUS_TOO_LONG = 118,
	RMPP_STATUS_SEGMENT = 120,
	RMPP_STATUS_TYPE = 121,
	RMPP_STATUS_WINDOW_SMALL = 122,
	RMPP_STATUS_SEGMENT_ACK = 123,
	RMPP_STATUS_VERSION = 125,
	RMPP_STATUS_RETRIES = 126,
};

/* The bytes that a payload length counts in a full segment: all behind the RMPP header. */
#define RMPP_SEGMENT_BYTES 220

static inline uint8_t rmpp_type(const uint8_t *mad)
{
	return mad[25];
}

static inline uint8_t rmpp_flags(const uint8_t *mad)
{
	return mad[26] & RMPP_FLAGS;
}

static inline void rmpp_write(uint8_t *mad, uint8_t type, uint8_t flags, uint32_t segment,
			      uint32_t length)
{
	mad[24] = RMPP_VERSION;
	mad[25] = type;
	mad[26] = RMPP_RESPONSE_TIME_NONE | flags;
	mad[27] = 0;
	header_set32(mad, OFFSET_RMPP_SEGMENT, segment);
	header_set32(mad, OFFSET_RMPP_LENGTH, length);
}

#endif
