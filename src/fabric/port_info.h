/* SPDX-License-Identifier: BSD-2-Clause */
/* Where PortInfo has what, and the fields that the fabric itself uses. */
#ifndef VERBENA_FABRIC_PORT_INFO_H
#define VERBENA_FABRIC_PORT_INFO_H

#include "fabric/octets.h"
#include "fabric/tables.h"

#include <stdbool.h>

/* Offsets of octets. Where two fields share one, the name has both, the upper one first. */
enum {
	INFO_M_KEY = 0,
	INFO_PREFIX = 8,
	INFO_LID = 16,
	INFO_SM_LID = 18,
	INFO_CAPABILITIES = 20,
	INFO_DIAG = 24,
	INFO_LEASE = 26,
	INFO_LOCAL_PORT = 28,
	INFO_WIDTH_ENABLED = 29,
	INFO_WIDTH_SUPPORTED = 30,
	INFO_WIDTH_ACTIVE = 31,
	INFO_SPEED_SUPPORTED_STATE = 32,
	INFO_PHYSICAL_DOWN_DEFAULT = 33,
	INFO_PROTECT_LMC = 34,
	INFO_SPEED_ACTIVE_ENABLED = 35,
	INFO_MTU_SM_SL = 36,
	INFO_VL_CAP_INIT_TYPE = 37,
	INFO_VL_HIGH_LIMIT = 38,
	INFO_ARBITRATION_HIGH = 39,
	INFO_ARBITRATION_LOW = 40,
	INFO_INIT_REPLY_MTU_CAP = 41,
	INFO_STALL_HOQ = 42,
	INFO_VLS_ENFORCE = 43,
	INFO_M_KEY_VIOLATIONS = 44,
	INFO_P_KEY_VIOLATIONS = 46,
	INFO_Q_KEY_VIOLATIONS = 48,
	INFO_GUID_CAP = 50,
	INFO_REREGISTER_TIMEOUT = 51,
	INFO_RESPONSE_TIME = 52,
	INFO_THRESHOLDS = 53,
	INFO_MAX_CREDIT = 54,
	INFO_EXT2 = 56, /* active: bits 6 and 5, supported: 4 and 3, enabled: 2 to 0 */
	INFO_ROUND_TRIP = 57,
	INFO_CAPABILITIES2 = 60,
	INFO_EXT_ACTIVE_SUPPORTED = 62,
	INFO_EXT_ENABLED = 63,
	INFO_BYTES = 64,
};

enum { CAPABILITY_IS_SM = 1u << 1 };
enum {
	CAPABILITY2_PORT_INFO_EXTENDED = 1u << 1,
	CAPABILITY2_WIDTH_2X = 1u << 4,
	CAPABILITY2_HDR = 1u << 5,
	CAPABILITY2_NDR = 1u << 10,
	CAPABILITY2_EXTENDED_SPEEDS2 = 1u << 11,
	CAPABILITY2_XDR = 1u << 12,
};
enum { ENFORCE_IN = 0x08, ENFORCE_OUT = 0x04 };

#define LID_PERMISSIVE 0xffffu
#define LID_MULTICAST 0xc000u /* the first one */

static inline uint8_t port_state(const struct fabric_port *port)
{
	return octet_low(port->info[INFO_SPEED_SUPPORTED_STATE]);
}

static inline void port_set_state(struct fabric_port *port, uint8_t state)
{
	octet_set_low(&port->info[INFO_SPEED_SUPPORTED_STATE], state);
}

static inline uint8_t port_physical(const struct fabric_port *port)
{
	return octet_high(port->info[INFO_PHYSICAL_DOWN_DEFAULT]);
}

static inline void port_set_physical(struct fabric_port *port, uint8_t physical)
{
	octet_set_high(&port->info[INFO_PHYSICAL_DOWN_DEFAULT], physical);
}

static inline uint16_t port_lid(const struct fabric_port *port)
{
	return octets_get16(port->info + INFO_LID);
}

static inline uint16_t port_sm_lid(const struct fabric_port *port)
{
	return octets_get16(port->info + INFO_SM_LID);
}

static inline uint8_t port_lmc(const struct fabric_port *port)
{
	return port->info[INFO_PROTECT_LMC] & 7;
}

/* Whether the LID is one of the end port's. */
static inline bool port_has_lid(const struct fabric_port *port, uint16_t lid)
{
	uint16_t own = port_lid(port);

	return own && own < LID_MULTICAST && own >> port_lmc(port) == lid >> port_lmc(port);
}

static inline uint8_t port_ext2_active(const struct fabric_port *port)
{
	return port->info[INFO_EXT2] >> 5 & 3;
}

static inline uint8_t port_ext2_supported(const struct fabric_port *port)
{
	return port->info[INFO_EXT2] >> 3 & 3;
}

static inline uint8_t port_ext2_enabled(const struct fabric_port *port)
{
	return port->info[INFO_EXT2] & 7;
}

static inline void port_set_ext2(struct fabric_port *port, uint8_t active, uint8_t supported,
				 uint8_t enabled)
{
	port->info[INFO_EXT2] = (uint8_t)(active << 5 | supported << 3 | enabled);
}

static inline uint8_t port_mtu(const struct fabric_port *port)
{
	return octet_high(port->info[INFO_MTU_SM_SL]);
}

/* How many of a million packets of data that arrive a fault drops. */
static inline uint32_t port_data_drop_ppm(const struct fabric_port *port)
{
	return port->drop_attribute ? 0 : port->drop_ppm;
}

/* Whether a fault makes what comes in by the port slower: `delay`, or `rate` on its cable. */
static inline bool port_is_slowed(const struct fabric_port *port)
{
	return port->delay_ns || port->is_limited;
}

/* What each packet that arrives is delayed by. */
static inline uint32_t port_delay_ns(const struct fabric_port *port)
{
	return port->cable_delay_ns + port->delay_ns;
}

/* The number of data lanes that are in use. */
static inline uint8_t port_lanes(const struct fabric_port *port)
{
	static const uint8_t lanes[] = {0, 1, 2, 4, 8, 15};
	uint8_t code = octet_high(port->info[INFO_VLS_ENFORCE]);

	return code < sizeof lanes ? lanes[code] : 0;
}

#endif
