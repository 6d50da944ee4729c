/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Single values as text: numbers, and the codes of PortInfo and others by their names. The texts
 * are what programs print, so they are exactly rdma-core's. A value is a 32-bit integer in host
 * order, or a 64-bit one where `valsz` exceeds 4; arrays and strings are bytes.
 */
#include <infiniband/mad.h>

#include "ibmad/text.h"

#include "base/export.h"

#include <stdbool.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint32_t value_get(const void *val)
{
	uint32_t value;

	memcpy(&value, val, sizeof value);
	return value;
}

static uint64_t value_get_long(const void *val)
{
	uint64_t value;

	memcpy(&value, val, sizeof value);
	return value;
}

/* Numbers -------------------------------------------------------------------------------------- */

/* The lowest `bytes` bytes of the value; false: no integer has that size. */
static bool value_get_sized(const void *val, int bytes, uint64_t *value)
{
	if (bytes < 1 || bytes > 8)
		return false;
	*value = bytes <= 4 ? value_get(val) : value_get_long(val);
	if (bytes < 8)
		*value &= (1ull << (8 * bytes)) - 1;
	return true;
}

/* A decimal number. Only sizes of 1 and 2 are cut to their size. */
static bool number_dump(char *buf, int bufsz, const void *val, int valsz, bool is_signed)
{
	uint64_t value;

	if (!value_get_sized(val, valsz, &value)) {
		text_begin(buf, bufsz);
		return false;
	}
	if (valsz > 4)
		snprintf(buf, bufsz, "%" PRIu64, value_get_long(val));
	else if (valsz > 2 && is_signed)
		snprintf(buf, bufsz, "%d", (int32_t)value_get(val));
	else if (valsz > 2)
		snprintf(buf, bufsz, "%u", value_get(val));
	else
		snprintf(buf, bufsz, "%u", (unsigned)value);
	return true;
}

static bool digits_dump(char *buf, int bufsz, const void *val, int valsz, const char *prefix)
{
	uint64_t value;

	if (!value_get_sized(val, valsz, &value)) {
		text_begin(buf, bufsz);
		return false;
	}
	snprintf(buf, bufsz, "%s%0*" PRIx64, prefix, 2 * valsz, value);
	return true;
}

EXPORT void mad_dump_int(char *buf, int bufsz, void *val, int valsz)
{
	if (!number_dump(buf, bufsz, val, valsz, true))
		IBWARN("bad int sz %d", valsz);
}

EXPORT void mad_dump_uint(char *buf, int bufsz, void *val, int valsz)
{
	if (!number_dump(buf, bufsz, val, valsz, false))
		IBWARN("bad int sz %u", valsz);
}

EXPORT void mad_dump_hex(char *buf, int bufsz, void *val, int valsz)
{
	if (!digits_dump(buf, bufsz, val, valsz, "0x"))
		IBWARN("bad int sz %d", valsz);
}

EXPORT void mad_dump_rhex(char *buf, int bufsz, void *val, int valsz)
{
	if (!digits_dump(buf, bufsz, val, valsz, ""))
		IBWARN("bad int sz %d", valsz);
}

EXPORT void mad_dump_bitfield(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	snprintf(buf, bufsz, "0x%x", value_get(val));
}

/* Bytes ---------------------------------------------------------------------------------------- */

EXPORT void mad_dump_array(char *buf, int bufsz, void *val, int valsz)
{
	const uint8_t *bytes = val;
	struct text text = text_begin(buf, bufsz);

	for (int i = 0; i < valsz; i++)
		text_append(&text, "%02x", bytes[i]);
}

/* The quotes count in `valsz`: a string as long as its field loses its end. */
EXPORT void mad_dump_string(char *buf, int bufsz, void *val, int valsz)
{
	snprintf(buf, bufsz < valsz ? bufsz : valsz, "'%.*s'", valsz, (char *)val);
}

EXPORT void mad_dump_nodedesc(char *buf, int bufsz, void *val, int valsz)
{
	int most = valsz < bufsz - 1 ? valsz : bufsz - 1;
	size_t length;

	if (most < 0)
		return;
	length = strnlen(val, most);
	memcpy(buf, val, length);
	buf[length] = 0;
}

/* Codes ---------------------------------------------------------------------------------------- */

/* The name of a code; where it has none, its number between `before` and `after`. */
static void code_dump(char *buf, int bufsz, uint32_t code, const char *const names[], size_t count,
		      const char *before, const char *after)
{
	if (code < count && names[code])
		snprintf(buf, bufsz, "%s", names[code]);
	else
		snprintf(buf, bufsz, "%s(%d)%s", before, (int)code, after);
}

#define CODE_DUMP(names, before, after) \
	code_dump(buf, bufsz, value_get(val), names, COUNT(names), before, after)

EXPORT void mad_dump_portstate(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {"NoChange", "Down", "Initialize", "Armed", "Active"};

	CODE_DUMP(names, "?", "");
}

EXPORT void mad_dump_linkdowndefstate(char *buf, int bufsz, void *val,
				      __attribute__((unused)) int valsz)
{
	static const char *const names[] = {"NoChange", "Sleep", "Polling"};

	CODE_DUMP(names, "?", "");
}

EXPORT void mad_dump_physportstate(char *buf, int bufsz, void *val,
				   __attribute__((unused)) int valsz)
{
	static const char *const names[] = {
		"NoChange",
		"Sleep",
		"Polling",
		"Disabled",
		"PortConfigurationTraining",
		"LinkUp",
		"LinkErrorRecovery",
		"PhyTest",
	};

	CODE_DUMP(names, "?", "");
}

EXPORT void mad_dump_mtu(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {NULL, "256", "512", "1024", "2048", "4096"};

	CODE_DUMP(names, "?", "");
}

EXPORT void mad_dump_vlcap(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {NULL, "VL0", "VL0-1", "VL0-3", "VL0-7", "VL0-14"};

	CODE_DUMP(names, "?", "");
}

EXPORT void mad_dump_opervls(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {"No change", "VL0",	  "VL0-1",
					    "VL0-3",	 "VL0-7", "VL0-14"};

	CODE_DUMP(names, "?", "");
}

EXPORT void mad_dump_node_type(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {NULL, "Channel Adapter", "Switch", "Router"};

	CODE_DUMP(names, "?", "?");
}

EXPORT void mad_dump_linkwidth(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {
		[1] = "1X", [2] = "4X", [4] = "8X", [8] = "12X", [16] = "2X"};
	uint32_t width = value_get(val);

	if (width >= COUNT(names) || !names[width])
		IBWARN("bad width %d", (int)width);
	CODE_DUMP(names, "undefined ", "");
}

EXPORT void mad_dump_linkspeed(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {
		[0] = "Extended speed", [1] = "2.5 Gbps", [2] = "5.0 Gbps", [4] = "10.0 Gbps"};

	CODE_DUMP(names, "undefined ", "");
}

EXPORT void mad_dump_linkspeedext(char *buf, int bufsz, void *val,
				  __attribute__((unused)) int valsz)
{
	static const char *const names[] = {[0] = "No Extended Speed",
					    [1] = "14.0625 Gbps",
					    [2] = "25.78125 Gbps",
					    [4] = "53.125 Gbps",
					    [8] = "106.25 Gbps"};

	CODE_DUMP(names, "undefined ", "");
}

EXPORT void mad_dump_linkspeedext2(char *buf, int bufsz, void *val,
				   __attribute__((unused)) int valsz)
{
	static const char *const names[] = {[0] = "No Extended Speed 2", [1] = "212.5 Gbps"};

	CODE_DUMP(names, "undefined ", "");
}

/* Sets of bits --------------------------------------------------------------------------------- */

/* "a or b or c"; bits without a name, and the empty set, are "undefined (number)" at the end. */
static void choices_add(struct text *text, uint32_t set, const char *const names[], size_t count)
{
	const char *between = "";

	for (size_t i = 0; i < count; i++) {
		if (!(set & (1u << i)))
			continue;
		text_append(text, "%s%s", between, names[i]);
		between = " or ";
	}
	if (!set || set >> count)
		text_append(text, "%sundefined (%d)", between, (int)set);
}

static const char *const widths[] = {"1X", "4X", "8X", "12X", "2X"};
static const char *const speeds[] = {"2.5 Gbps", "5.0 Gbps", "10.0 Gbps"};
static const char *const extended_speeds[] = {"14.0625 Gbps", "25.78125 Gbps", "53.125 Gbps",
					      "106.25 Gbps"};

/* The sets of widths that the specification lists as supported ones; each has 1X. */
static bool width_set_is_listed(uint32_t set)
{
	static const uint8_t listed[] = {1, 3, 7, 11, 15, 17, 19, 23, 27, 31};

	return set < 32 && memchr(listed, (int)set, sizeof listed);
}

EXPORT void mad_dump_linkwidthsup(char *buf, int bufsz, void *val,
				  __attribute__((unused)) int valsz)
{
	struct text text = text_begin(buf, bufsz);
	uint32_t set = value_get(val);

	choices_add(&text, set, widths, COUNT(widths));
	if (!(set >> COUNT(widths)) && !width_set_is_listed(set))
		text_append(&text, " (IBA extension)");
}

EXPORT void mad_dump_linkwidthen(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	struct text text = text_begin(buf, bufsz);

	choices_add(&text, value_get(val), widths, COUNT(widths));
}

/* The specification's sets of speeds all have 2.5 Gbps. */
static void speeds_dump(char *buf, int bufsz, uint32_t set)
{
	struct text text = text_begin(buf, bufsz);

	choices_add(&text, set, speeds, COUNT(speeds));
	if (!(set >> COUNT(speeds)) && !(set & 1))
		text_append(&text, " (IBA extension)");
}

EXPORT void mad_dump_linkspeedsup(char *buf, int bufsz, void *val,
				  __attribute__((unused)) int valsz)
{
	speeds_dump(buf, bufsz, value_get(val));
}

EXPORT void mad_dump_linkspeeden(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	speeds_dump(buf, bufsz, value_get(val));
}

static void extended_speeds_dump(char *buf, int bufsz, uint32_t set)
{
	struct text text = text_begin(buf, bufsz);

	if (!set)
		text_append(&text, "0");
	else
		choices_add(&text, set, extended_speeds, COUNT(extended_speeds));
}

EXPORT void mad_dump_linkspeedextsup(char *buf, int bufsz, void *val,
				     __attribute__((unused)) int valsz)
{
	extended_speeds_dump(buf, bufsz, value_get(val));
}

/* The value of LinkSpeedExtEnabled that turns extended speeds off. */
#define EXTENDED_SPEEDS_OFF 30

EXPORT void mad_dump_linkspeedexten(char *buf, int bufsz, void *val,
				    __attribute__((unused)) int valsz)
{
	uint32_t set = value_get(val);

	if (set == EXTENDED_SPEEDS_OFF)
		snprintf(buf, bufsz, "Extended link speeds disabled");
	else
		extended_speeds_dump(buf, bufsz, set);
}

/* A set with a bit that has no name is printed as a number, with a blank before it. */
static void extended_speeds_2_dump(char *buf, int bufsz, uint32_t set)
{
	if (set > 1)
		snprintf(buf, bufsz, " undefined (%d)", (int)set);
	else
		snprintf(buf, bufsz, "%s", set ? "212.5 Gbps" : "0");
}

EXPORT void mad_dump_linkspeedextsup2(char *buf, int bufsz, void *val,
				      __attribute__((unused)) int valsz)
{
	extended_speeds_2_dump(buf, bufsz, value_get(val));
}

EXPORT void mad_dump_linkspeedexten2(char *buf, int bufsz, void *val,
				     __attribute__((unused)) int valsz)
{
	extended_speeds_2_dump(buf, bufsz, value_get(val));
}

/* The number, and below it the name of each bit that has one. */
static void capabilities_dump(char *buf, int bufsz, uint32_t mask, const char *const names[],
			      size_t count)
{
	struct text text = text_begin(buf, bufsz);

	text_append(&text, "0x%x", mask);
	for (size_t i = 0; i < count; i++)
		if ((mask & (1u << i)) && names[i])
			text_append(&text, "\n\t\t\t\t%s", names[i]);
}

EXPORT void mad_dump_portcapmask(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	static const char *const names[] = {
		[1] = "IsSM",
		[2] = "IsNoticeSupported",
		[3] = "IsTrapSupported",
		[4] = "IsOptionalIPDSupported",
		[5] = "IsAutomaticMigrationSupported",
		[6] = "IsSLMappingSupported",
		[7] = "IsMKeyNVRAM",
		[8] = "IsPKeyNVRAM",
		[9] = "IsLedInfoSupported",
		[10] = "IsSMdisabled",
		[11] = "IsSystemImageGUIDsupported",
		[12] = "IsPkeySwitchExternalPortTrapSupported",
		[14] = "IsExtendedSpeedsSupported",
		[15] = "IsCapabilityMask2Supported",
		[16] = "IsCommunicatonManagementSupported",
		[17] = "IsSNMPTunnelingSupported",
		[18] = "IsReinitSupported",
		[19] = "IsDeviceManagementSupported",
		[20] = "IsVendorClassSupported",
		[21] = "IsDRNoticeSupported",
		[22] = "IsCapabilityMaskNoticeSupported",
		[23] = "IsBootManagementSupported",
		[24] = "IsLinkRoundTripLatencySupported",
		[25] = "IsClientRegistrationSupported",
		[26] = "IsOtherLocalChangesNoticeSupported",
		[27] = "IsLinkSpeedWidthPairsTableSupported",
		[28] = "IsVendorSpecificMadsTableSupported",
		[29] = "IsMcastPkeyTrapSuppressionSupported",
		[30] = "IsMulticastFDBTopSupported",
		[31] = "IsHierarchyInfoSupported",
	};

	capabilities_dump(buf, bufsz, value_get(val), names, COUNT(names));
}

EXPORT void mad_dump_portcapmask2(char *buf, int bufsz, void *val,
				  __attribute__((unused)) int valsz)
{
	static const char *const names[] = {
		"IsSetNodeDescriptionSupported", "IsPortInfoExtendedSupported",
		"IsVirtualizationSupported",	 "IsSwitchPortStateTableSupported",
		"IsLinkWidth2xSupported",	 "IsLinkSpeedHDRSupported",
		"IsMKeyProtectBitsExtSupported", "IsEnhancedTrap128Supported",
		"IsPartitionTopSupported",	 "IsEnhancedQoSArbiterSupported",
		"IsLinkSpeedNDRSupported",
	};

	capabilities_dump(buf, bufsz, value_get(val), names, COUNT(names));
}
