/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whole attributes as text: one line for each field of one or more ranges of the table of fields;
 * and the tables of subnet management that have a form of their own. The data begin at `val`.
 */
#include "ibmad/fields.h"
#include "ibmad/text.h"

#include "base/export.h"

#include <string.h>

/* The longest field, in bytes; see field_table.c. */
#define FIELD_BYTES_MAX 256

/* Fields first to end - 1. */
struct range {
	int first;
	int end;
};

/*
 * Writes the fields of a range. A field that has no room for its name ends the text there.
 * Returns the number of characters, or -1 if the range isn't complete.
 */
static int range_dump(char *buf, int bufsz, void *data, struct range range)
{
	uint8_t value[FIELD_BYTES_MAX];
	char *at = buf;
	int room = bufsz;

	for (int field = range.first; field < range.end && room > 0; field++) {
		int length;

		if (!field_find(field)->bits)
			continue;
		mad_decode_field(data, field, value);
		if (!mad_dump_field(field, at, room - 1, value))
			return -1;
		length = strlen(at);
		at[length] = '\n';
		at[length + 1] = 0;
		at += length + 1;
		room -= length + 1;
	}
	return (int)(at - buf);
}

static void ranges_dump(char *buf, int bufsz, void *data, const struct range *ranges, int count)
{
	if (bufsz > 0)
		buf[0] = 0;
	for (int i = 0; i < count; i++) {
		int length = range_dump(buf, bufsz, data, ranges[i]);

		if (length < 0)
			return;
		buf += length;
		bufsz -= length;
	}
}

EXPORT void mad_dump_fields(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz,
			    int start, int end)
{
	range_dump(buf, bufsz, val, (struct range){start, end});
}

/* Defines the function of an attribute that consists of these ranges. */
#define ATTRIBUTE(function, ...)                                                                 \
	EXPORT void function(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz) \
	{                                                                                        \
		static const struct range ranges[] = {__VA_ARGS__};                              \
		ranges_dump(buf, bufsz, val, ranges, sizeof ranges / sizeof *ranges);            \
	}

/* An attribute with counters, which begins with PortSelect and CounterSelect. */
#define COUNTERS(function, ...) \
	ATTRIBUTE(function, {IB_PC_EXT_PORT_SELECT_F, IB_PC_EXT_XMT_BYTES_F}, __VA_ARGS__)

/* clang-format off */
/* Subnet management. */
ATTRIBUTE(mad_dump_nodeinfo, {IB_NODE_FIRST_F, IB_NODE_LAST_F})
ATTRIBUTE(mad_dump_portinfo, {IB_PORT_FIRST_F, IB_PORT_LAST_F},
	  {IB_PORT_CAPMASK2_F, IB_PORT_LINK_SPEED_EXT_LAST_F})
ATTRIBUTE(mad_dump_portstates, {IB_PORT_STATE_F, IB_PORT_LINK_DOWN_DEF_F})
ATTRIBUTE(mad_dump_switchinfo, {IB_SW_FIRST_F, IB_SW_LAST_F})
ATTRIBUTE(mad_dump_portinfo_ext, {IB_PORT_EXT_FIRST_F, IB_PORT_EXT_LAST_F},
	  {IB_PORT_EXT_HDR_FEC_MODE_SUPPORTED_F, IB_PORT_EXT_HDR_FEC_MODE_LAST_F},
	  {IB_PORT_EXT_NDR_FEC_MODE_SUPPORTED_F, IB_PORT_EXT_NDR_FEC_MODE_LAST_F})
ATTRIBUTE(mad_dump_mlnx_ext_port_info,
	  {IB_MLNX_EXT_PORT_STATE_CHG_ENABLE_F, IB_MLNX_EXT_PORT_LAST_F})
ATTRIBUTE(mad_dump_classportinfo, {IB_CPI_BASEVER_F, IB_CPI_TRAP_QKEY_F + 1})

/* Performance management. QP1Dropped stands before VL15Dropped, as in the attribute. */
ATTRIBUTE(mad_dump_perfcounters, {IB_PC_FIRST_F, IB_PC_VL15_DROPPED_F},
	  {IB_PC_QP1_DROP_F, IB_PC_QP1_DROP_F + 1}, {IB_PC_VL15_DROPPED_F, IB_PC_LAST_F})
ATTRIBUTE(mad_dump_perfcounters_ext, {IB_PC_EXT_FIRST_F, IB_PC_EXT_LAST_F},
	  {IB_PC_EXT_COUNTER_SELECT2_F, IB_PC_EXT_ERR_LAST_F})
COUNTERS(mad_dump_perfcounters_xmt_sl, {IB_PC_XMT_DATA_SL_FIRST_F, IB_PC_XMT_DATA_SL_LAST_F})
COUNTERS(mad_dump_perfcounters_rcv_sl, {IB_PC_RCV_DATA_SL_FIRST_F, IB_PC_RCV_DATA_SL_LAST_F})
COUNTERS(mad_dump_perfcounters_xmt_disc, {IB_PC_XMT_INACT_DISC_F, IB_PC_XMT_DISC_LAST_F})
COUNTERS(mad_dump_perfcounters_rcv_err, {IB_PC_RCV_LOCAL_PHY_ERR_F, IB_PC_RCV_ERR_LAST_F})
ATTRIBUTE(mad_dump_portsamples_control, {IB_PSC_OPCODE_F, IB_PSC_LAST_F})
ATTRIBUTE(mad_dump_portsamples_result, {IB_PSR_TAG_F, IB_PSR_LAST_F})
ATTRIBUTE(mad_dump_port_ext_speeds_counters, {IB_PESC_PORT_SELECT_F, IB_PESC_LAST_F})
ATTRIBUTE(mad_dump_port_ext_speeds_counters_rsfec_active,
	  {IB_PESC_RSFEC_FIRST_F, IB_PESC_RSFEC_LAST_F})
COUNTERS(mad_dump_perfcounters_port_op_rcv_counters,
	 {IB_PC_PORT_OP_RCV_COUNTERS_FIRST_F, IB_PC_PORT_OP_RCV_COUNTERS_LAST_F})
COUNTERS(mad_dump_perfcounters_port_flow_ctl_counters,
	 {IB_PC_PORT_FLOW_CTL_COUNTERS_FIRST_F, IB_PC_PORT_FLOW_CTL_COUNTERS_LAST_F})
COUNTERS(mad_dump_perfcounters_port_vl_op_packet,
	 {IB_PC_PORT_VL_OP_PACKETS_FIRST_F, IB_PC_PORT_VL_OP_PACKETS_LAST_F})
COUNTERS(mad_dump_perfcounters_port_vl_op_data,
	 {IB_PC_PORT_VL_OP_DATA_FIRST_F, IB_PC_PORT_VL_OP_DATA_LAST_F})
COUNTERS(mad_dump_perfcounters_port_vl_xmit_flow_ctl_update_errors,
	 {IB_PC_PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS_FIRST_F,
	  IB_PC_PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS_LAST_F})
COUNTERS(mad_dump_perfcounters_port_vl_xmit_wait_counters,
	 {IB_PC_PORT_VL_XMIT_WAIT_COUNTERS_FIRST_F, IB_PC_PORT_VL_XMIT_WAIT_COUNTERS_LAST_F})
COUNTERS(mad_dump_perfcounters_sw_port_vl_congestion,
	 {IB_PC_SW_PORT_VL_CONGESTION_FIRST_F, IB_PC_SW_PORT_VL_CONGESTION_LAST_F})
COUNTERS(mad_dump_perfcounters_rcv_con_ctrl,
	 {IB_PC_RCV_CON_CTRL_FIRST_F, IB_PC_RCV_CON_CTRL_LAST_F})
COUNTERS(mad_dump_perfcounters_sl_rcv_fecn, {IB_PC_SL_RCV_FECN_FIRST_F, IB_PC_SL_RCV_FECN_LAST_F})
COUNTERS(mad_dump_perfcounters_sl_rcv_becn, {IB_PC_SL_RCV_BECN_FIRST_F, IB_PC_SL_RCV_BECN_LAST_F})
COUNTERS(mad_dump_perfcounters_xmit_con_ctrl,
	 {IB_PC_XMIT_CON_CTRL_FIRST_F, IB_PC_XMIT_CON_CTRL_LAST_F})
COUNTERS(mad_dump_perfcounters_vl_xmit_time_cong,
	 {IB_PC_VL_XMIT_TIME_CONG_FIRST_F, IB_PC_VL_XMIT_TIME_CONG_LAST_F})

/* Congestion control. */
ATTRIBUTE(mad_dump_cc_congestioninfo, {IB_CC_CONGESTION_INFO_FIRST_F, IB_CC_CONGESTION_INFO_LAST_F})
ATTRIBUTE(mad_dump_cc_congestionkeyinfo,
	  {IB_CC_CONGESTION_KEY_INFO_FIRST_F, IB_CC_CONGESTION_KEY_INFO_LAST_F})
ATTRIBUTE(mad_dump_cc_congestionlog, {IB_CC_CONGESTION_LOG_FIRST_F, IB_CC_CONGESTION_LOG_LAST_F})
ATTRIBUTE(mad_dump_cc_congestionlogswitch,
	  {IB_CC_CONGESTION_LOG_SWITCH_FIRST_F, IB_CC_CONGESTION_LOG_SWITCH_LAST_F})
ATTRIBUTE(mad_dump_cc_congestionlogentryswitch,
	  {IB_CC_CONGESTION_LOG_ENTRY_SWITCH_FIRST_F, IB_CC_CONGESTION_LOG_ENTRY_SWITCH_LAST_F})
ATTRIBUTE(mad_dump_cc_congestionlogca,
	  {IB_CC_CONGESTION_LOG_CA_FIRST_F, IB_CC_CONGESTION_LOG_CA_LAST_F})
ATTRIBUTE(mad_dump_cc_congestionlogentryca,
	  {IB_CC_CONGESTION_LOG_ENTRY_CA_FIRST_F, IB_CC_CONGESTION_LOG_ENTRY_CA_LAST_F})
ATTRIBUTE(mad_dump_cc_switchcongestionsetting,
	  {IB_CC_SWITCH_CONGESTION_SETTING_FIRST_F, IB_CC_SWITCH_CONGESTION_SETTING_LAST_F})
ATTRIBUTE(mad_dump_cc_switchportcongestionsettingelement,
	  {IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_FIRST_F,
	   IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_LAST_F})
ATTRIBUTE(mad_dump_cc_cacongestionsetting,
	  {IB_CC_CA_CONGESTION_SETTING_FIRST_F, IB_CC_CA_CONGESTION_SETTING_LAST_F})
ATTRIBUTE(mad_dump_cc_cacongestionentry,
	  {IB_CC_CA_CONGESTION_ENTRY_FIRST_F, IB_CC_CA_CONGESTION_ENTRY_LAST_F})
ATTRIBUTE(mad_dump_cc_congestioncontroltable,
	  {IB_CC_CONGESTION_CONTROL_TABLE_FIRST_F, IB_CC_CONGESTION_CONTROL_TABLE_LAST_F})
ATTRIBUTE(mad_dump_cc_congestioncontroltableentry,
	  {IB_CC_CONGESTION_CONTROL_TABLE_ENTRY_FIRST_F,
	   IB_CC_CONGESTION_CONTROL_TABLE_ENTRY_LAST_F})
ATTRIBUTE(mad_dump_cc_timestamp, {IB_CC_TIMESTAMP_FIRST_F, IB_CC_TIMESTAMP_LAST_F})
/* clang-format on */

/* SLtoVLMappingTable: sixteen VLs of four bits, one for each SL. */
EXPORT void mad_dump_sltovl(char *buf, int bufsz, void *val, __attribute__((unused)) int valsz)
{
	struct text text = text_begin(buf, bufsz);
	const uint8_t *vls = val;

	text_append(&text, "|");
	for (int sl = 0; sl < 16; sl++)
		text_append(&text, "%2u|", (vls[sl / 2] >> (sl % 2 ? 0 : 4)) & 0xf);
	text_append(&text, "\n");
}

/* VLArbitrationTable: pairs of bytes, a VL (its low four bits) and its weight. `num` is in bytes.
 */
EXPORT void mad_dump_vlarbitration(char *buf, int bufsz, void *val, int num)
{
	struct text text = text_begin(buf, bufsz);
	const uint8_t *bytes = val;

	text_append(&text, "\nVL    : |");
	for (int i = 0; i < num / 2; i++)
		text_append(&text, "0x%-2X|", bytes[2 * i] & 0xf);
	text_append(&text, "\nWEIGHT: |");
	for (int i = 0; i < num / 2; i++)
		text_append(&text, "0x%-2X|", bytes[2 * i + 1]);
	text_append(&text, "\n");
}

/* Bytes in hexadecimal: pairs of two, sixteen in a line. */
EXPORT void xdump(FILE *file, const char *msg, void *p, int size)
{
	const uint8_t *bytes = p;

	if (msg)
		fputs(msg, file);
	for (int i = 0; i < size; i++) {
		fprintf(file, "%02x", bytes[i]);
		if (i % 16 == 15)
			fputc('\n', file);
		else if (i % 2)
			fputc(' ', file);
	}
	if (size % 16)
		fputc('\n', file);
}
