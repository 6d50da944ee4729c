/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All fields that have a name in <infiniband/mad.h>: where they are in their attribute and how
 * their values are written. Offsets are the specification's: bits from the attribute's first byte,
 * bit 0 being that byte's most significant one. What isn't listed here (the names that end a range,
 * IB_NO_FIELD, IB_SM_DATA_F) has no bits.
 *
 * IB_PC_QP1_DROP_F and the four of PortInfoExtended for HDR and NDR aren't where the specification
 * has them (160; 112, 128, 144, 160): rdma-core's libibmad reads them here, and programs see that.
 */
#include "ibmad/fields.h"

/* clang-format off */
#define ROW(field, text, first, length, kind)                                                      \
	[field] = {.name = (text), .first_bit = (first), .bits = (length), .dump = mad_dump_##kind}

/* Fields PREFIX0_F, PREFIX1_F, ... of equal length, one behind the other. */
#define NTH(n, prefix, text, first, length, kind)                                                  \
	ROW(prefix##n##_F, text #n, (first) + (n) * (length), length, kind)
#define EIGHT(...)                                                                                 \
	NTH(0, __VA_ARGS__), NTH(1, __VA_ARGS__), NTH(2, __VA_ARGS__), NTH(3, __VA_ARGS__),        \
	NTH(4, __VA_ARGS__), NTH(5, __VA_ARGS__), NTH(6, __VA_ARGS__), NTH(7, __VA_ARGS__)
#define TWELVE(...)                                                                                \
	EIGHT(__VA_ARGS__), NTH(8, __VA_ARGS__), NTH(9, __VA_ARGS__), NTH(10, __VA_ARGS__),        \
	NTH(11, __VA_ARGS__)
#define FIFTEEN(...)                                                                               \
	TWELVE(__VA_ARGS__), NTH(12, __VA_ARGS__), NTH(13, __VA_ARGS__), NTH(14, __VA_ARGS__)
#define SIXTEEN(...) FIFTEEN(__VA_ARGS__), NTH(15, __VA_ARGS__)

const struct field field_table[IB_FIELD_LAST_] = {
	/* GID */
	ROW(IB_GID_PREFIX_F, "GidPrefix", 0, 64, rhex),
	ROW(IB_GID_GUID_F, "GidGuid", 64, 64, rhex),

	/* the header that all MADs have */
	ROW(IB_MAD_METHOD_F, "MadMethod", 25, 7, hex),
	ROW(IB_MAD_RESPONSE_F, "MadIsResponse", 24, 1, uint),
	ROW(IB_MAD_CLASSVER_F, "MadClassVersion", 16, 8, uint),
	ROW(IB_MAD_MGMTCLASS_F, "MadMgmtClass", 8, 8, uint),
	ROW(IB_MAD_BASEVER_F, "MadBaseVersion", 0, 8, uint),
	ROW(IB_MAD_STATUS_F, "MadStatus", 32, 16, hex),

	/* directed-route SMP, bytes 4 to 7 */
	ROW(IB_DRSMP_HOPCNT_F, "DrSmpHopCnt", 56, 8, uint),
	ROW(IB_DRSMP_HOPPTR_F, "DrSmpHopPtr", 48, 8, uint),
	ROW(IB_DRSMP_STATUS_F, "DrSmpStatus", 33, 15, hex),
	ROW(IB_DRSMP_DIRECTION_F, "DrSmpDirection", 32, 1, uint),

	/* the header that all MADs have, bytes 8 to 31 */
	ROW(IB_MAD_TRID_F, "MadTRID", 64, 64, hex),
	ROW(IB_MAD_ATTRID_F, "MadAttr", 128, 16, hex),
	ROW(IB_MAD_ATTRMOD_F, "MadModifier", 160, 32, hex),
	ROW(IB_MAD_MKEY_F, "MadMkey", 192, 64, hex),

	/* directed-route SMP, bytes 32 to 35 */
	ROW(IB_DRSMP_DRDLID_F, "DrSmpDLID", 272, 16, uint),
	ROW(IB_DRSMP_DRSLID_F, "DrSmpSLID", 256, 16, uint),

	/* header of subnet administration */
	ROW(IB_SA_MKEY_F, "SaSMkey", 288, 64, hex),
	ROW(IB_SA_ATTROFFS_F, "SaAttrOffs", 352, 16, uint),
	ROW(IB_SA_COMPMASK_F, "SaCompMask", 384, 64, hex),

	/* where data begin */
	ROW(IB_SA_DATA_F, "SaData", 448, 1600, hex),
	ROW(IB_GS_DATA_F, "GsData", 512, 1536, hex),

	/* directed-route SMP: the two paths */
	ROW(IB_DRSMP_PATH_F, "DrSmpPath", 1024, 512, hex),
	ROW(IB_DRSMP_RPATH_F, "DrSmpRetPath", 1536, 512, hex),

	/* PortInfo */
	ROW(IB_PORT_MKEY_F, "Mkey", 0, 64, hex),
	ROW(IB_PORT_GID_PREFIX_F, "GidPrefix", 64, 64, hex),
	ROW(IB_PORT_LID_F, "Lid", 128, 16, uint),
	ROW(IB_PORT_SMLID_F, "SMLid", 144, 16, uint),
	ROW(IB_PORT_CAPMASK_F, "CapMask", 160, 32, portcapmask),
	ROW(IB_PORT_DIAG_F, "DiagCode", 192, 16, hex),
	ROW(IB_PORT_MKEY_LEASE_F, "MkeyLeasePeriod", 208, 16, uint),
	ROW(IB_PORT_LOCAL_PORT_F, "LocalPort", 224, 8, uint),
	ROW(IB_PORT_LINK_WIDTH_ENABLED_F, "LinkWidthEnabled", 232, 8, linkwidthen),
	ROW(IB_PORT_LINK_WIDTH_SUPPORTED_F, "LinkWidthSupported", 240, 8, linkwidthsup),
	ROW(IB_PORT_LINK_WIDTH_ACTIVE_F, "LinkWidthActive", 248, 8, linkwidth),
	ROW(IB_PORT_LINK_SPEED_SUPPORTED_F, "LinkSpeedSupported", 256, 4, linkspeedsup),
	ROW(IB_PORT_STATE_F, "LinkState", 260, 4, portstate),
	ROW(IB_PORT_PHYS_STATE_F, "PhysLinkState", 264, 4, physportstate),
	ROW(IB_PORT_LINK_DOWN_DEF_F, "LinkDownDefState", 268, 4, linkdowndefstate),
	ROW(IB_PORT_MKEY_PROT_BITS_F, "ProtectBits", 272, 2, uint),
	ROW(IB_PORT_LMC_F, "LMC", 277, 3, uint),
	ROW(IB_PORT_LINK_SPEED_ACTIVE_F, "LinkSpeedActive", 280, 4, linkspeed),
	ROW(IB_PORT_LINK_SPEED_ENABLED_F, "LinkSpeedEnabled", 284, 4, linkspeeden),
	ROW(IB_PORT_NEIGHBOR_MTU_F, "NeighborMTU", 288, 4, mtu),
	ROW(IB_PORT_SMSL_F, "SMSL", 292, 4, uint),
	ROW(IB_PORT_VL_CAP_F, "VLCap", 296, 4, vlcap),
	ROW(IB_PORT_INIT_TYPE_F, "InitType", 300, 4, hex),
	ROW(IB_PORT_VL_HIGH_LIMIT_F, "VLHighLimit", 304, 8, uint),
	ROW(IB_PORT_VL_ARBITRATION_HIGH_CAP_F, "VLArbHighCap", 312, 8, uint),
	ROW(IB_PORT_VL_ARBITRATION_LOW_CAP_F, "VLArbLowCap", 320, 8, uint),
	ROW(IB_PORT_INIT_TYPE_REPLY_F, "InitReply", 328, 4, hex),
	ROW(IB_PORT_MTU_CAP_F, "MtuCap", 332, 4, mtu),
	ROW(IB_PORT_VL_STALL_COUNT_F, "VLStallCount", 336, 3, uint),
	ROW(IB_PORT_HOQ_LIFE_F, "HoqLife", 339, 5, uint),
	ROW(IB_PORT_OPER_VLS_F, "OperVLs", 344, 4, opervls),
	ROW(IB_PORT_PART_EN_INB_F, "PartEnforceInb", 348, 1, uint),
	ROW(IB_PORT_PART_EN_OUTB_F, "PartEnforceOutb", 349, 1, uint),
	ROW(IB_PORT_FILTER_RAW_INB_F, "FilterRawInb", 350, 1, uint),
	ROW(IB_PORT_FILTER_RAW_OUTB_F, "FilterRawOutb", 351, 1, uint),
	ROW(IB_PORT_MKEY_VIOL_F, "MkeyViolations", 352, 16, uint),
	ROW(IB_PORT_PKEY_VIOL_F, "PkeyViolations", 368, 16, uint),
	ROW(IB_PORT_QKEY_VIOL_F, "QkeyViolations", 384, 16, uint),
	ROW(IB_PORT_GUID_CAP_F, "GuidCap", 400, 8, uint),
	ROW(IB_PORT_CLIENT_REREG_F, "ClientReregister", 408, 1, uint),
	ROW(IB_PORT_MCAST_PKEY_SUPR_ENAB_F, "McastPkeyTrapSuppressionEnabled", 409, 2, uint),
	ROW(IB_PORT_SUBN_TIMEOUT_F, "SubnetTimeout", 411, 5, uint),
	ROW(IB_PORT_RESP_TIME_VAL_F, "RespTimeVal", 419, 5, uint),
	ROW(IB_PORT_LOCAL_PHYS_ERR_F, "LocalPhysErr", 424, 4, uint),
	ROW(IB_PORT_OVERRUN_ERR_F, "OverrunErr", 428, 4, uint),
	ROW(IB_PORT_MAX_CREDIT_HINT_F, "MaxCreditHint", 432, 16, uint),
	ROW(IB_PORT_LINK_ROUND_TRIP_F, "RoundTrip", 456, 24, uint),

	/* NodeInfo */
	ROW(IB_NODE_BASE_VERS_F, "BaseVers", 0, 8, uint),
	ROW(IB_NODE_CLASS_VERS_F, "ClassVers", 8, 8, uint),
	ROW(IB_NODE_TYPE_F, "NodeType", 16, 8, node_type),
	ROW(IB_NODE_NPORTS_F, "NumPorts", 24, 8, uint),
	ROW(IB_NODE_SYSTEM_GUID_F, "SystemGuid", 32, 64, hex),
	ROW(IB_NODE_GUID_F, "Guid", 96, 64, hex),
	ROW(IB_NODE_PORT_GUID_F, "PortGuid", 160, 64, hex),
	ROW(IB_NODE_PARTITION_CAP_F, "PartCap", 224, 16, uint),
	ROW(IB_NODE_DEVID_F, "DevId", 240, 16, hex),
	ROW(IB_NODE_REVISION_F, "Revision", 256, 32, hex),
	ROW(IB_NODE_LOCAL_PORT_F, "LocalPort", 288, 8, uint),
	ROW(IB_NODE_VENDORID_F, "VendorId", 296, 24, hex),

	/* SwitchInfo */
	ROW(IB_SW_LINEAR_FDB_CAP_F, "LinearFdbCap", 0, 16, uint),
	ROW(IB_SW_RANDOM_FDB_CAP_F, "RandomFdbCap", 16, 16, uint),
	ROW(IB_SW_MCAST_FDB_CAP_F, "McastFdbCap", 32, 16, uint),
	ROW(IB_SW_LINEAR_FDB_TOP_F, "LinearFdbTop", 48, 16, uint),
	ROW(IB_SW_DEF_PORT_F, "DefPort", 64, 8, uint),
	ROW(IB_SW_DEF_MCAST_PRIM_F, "DefMcastPrimPort", 72, 8, uint),
	ROW(IB_SW_DEF_MCAST_NOT_PRIM_F, "DefMcastNotPrimPort", 80, 8, uint),
	ROW(IB_SW_LIFE_TIME_F, "LifeTime", 88, 5, uint),
	ROW(IB_SW_STATE_CHANGE_F, "StateChange", 93, 1, uint),
	ROW(IB_SW_OPT_SLTOVL_MAPPING_F, "OptSLtoVLMapping", 94, 2, uint),
	ROW(IB_SW_LIDS_PER_PORT_F, "LidsPerPort", 96, 16, uint),
	ROW(IB_SW_PARTITION_ENFORCE_CAP_F, "PartEnforceCap", 112, 16, uint),
	ROW(IB_SW_PARTITION_ENF_INB_F, "InboundPartEnf", 128, 1, uint),
	ROW(IB_SW_PARTITION_ENF_OUTB_F, "OutboundPartEnf", 129, 1, uint),
	ROW(IB_SW_FILTER_RAW_INB_F, "FilterRawInbound", 130, 1, uint),
	ROW(IB_SW_FILTER_RAW_OUTB_F, "FilterRawOutbound", 131, 1, uint),
	ROW(IB_SW_ENHANCED_PORT0_F, "EnhancedPort0", 132, 1, uint),
	ROW(IB_SW_MCAST_FDB_TOP_F, "MulticastFDBTop", 144, 16, hex),

	/* LinearForwardingTable */
	ROW(IB_LINEAR_FORW_TBL_F, "LinearForwTbl", 0, 512, array),

	/* MulticastForwardingTable */
	ROW(IB_MULTICAST_FORW_TBL_F, "MulticastForwTbl", 0, 512, array),

	/* NodeDescription */
	ROW(IB_NODE_DESC_F, "NodeDesc", 0, 512, string),

	/* Notice */
	ROW(IB_NOTICE_IS_GENERIC_F, "NoticeIsGeneric", 0, 1, uint),
	ROW(IB_NOTICE_TYPE_F, "NoticeType", 1, 7, uint),
	ROW(IB_NOTICE_PRODUCER_F, "NoticeProducerType", 8, 24, node_type),
	ROW(IB_NOTICE_TRAP_NUMBER_F, "NoticeTrapNumber", 32, 16, uint),
	ROW(IB_NOTICE_ISSUER_LID_F, "NoticeIssuerLID", 48, 16, uint),
	ROW(IB_NOTICE_TOGGLE_F, "NoticeToggle", 64, 1, uint),
	ROW(IB_NOTICE_COUNT_F, "NoticeCount", 65, 15, uint),
	ROW(IB_NOTICE_DATA_DETAILS_F, "NoticeDataDetails", 80, 432, array),
	ROW(IB_NOTICE_DATA_LID_F, "NoticeDataLID", 80, 16, uint),
	ROW(IB_NOTICE_DATA_144_LID_F, "NoticeDataTrap144LID", 96, 16, uint),
	ROW(IB_NOTICE_DATA_144_CAPMASK_F, "NoticeDataTrap144CapMask", 128, 32, uint),

	/* PortCounters */
	ROW(IB_PC_PORT_SELECT_F, "PortSelect", 8, 8, uint),
	ROW(IB_PC_COUNTER_SELECT_F, "CounterSelect", 16, 16, hex),
	ROW(IB_PC_ERR_SYM_F, "SymbolErrorCounter", 32, 16, uint),
	ROW(IB_PC_LINK_RECOVERS_F, "LinkErrorRecoveryCounter", 48, 8, uint),
	ROW(IB_PC_LINK_DOWNED_F, "LinkDownedCounter", 56, 8, uint),
	ROW(IB_PC_ERR_RCV_F, "PortRcvErrors", 64, 16, uint),
	ROW(IB_PC_ERR_PHYSRCV_F, "PortRcvRemotePhysicalErrors", 80, 16, uint),
	ROW(IB_PC_ERR_SWITCH_REL_F, "PortRcvSwitchRelayErrors", 96, 16, uint),
	ROW(IB_PC_XMT_DISCARDS_F, "PortXmitDiscards", 112, 16, uint),
	ROW(IB_PC_ERR_XMTCONSTR_F, "PortXmitConstraintErrors", 128, 8, uint),
	ROW(IB_PC_ERR_RCVCONSTR_F, "PortRcvConstraintErrors", 136, 8, uint),
	ROW(IB_PC_COUNTER_SELECT2_F, "CounterSelect2", 144, 8, hex),
	ROW(IB_PC_ERR_LOCALINTEG_F, "LocalLinkIntegrityErrors", 152, 4, uint),
	ROW(IB_PC_ERR_EXCESS_OVR_F, "ExcessiveBufferOverrunErrors", 156, 4, uint),
	ROW(IB_PC_VL15_DROPPED_F, "VL15Dropped", 176, 16, uint),
	ROW(IB_PC_XMT_BYTES_F, "PortXmitData", 192, 32, uint),
	ROW(IB_PC_RCV_BYTES_F, "PortRcvData", 224, 32, uint),
	ROW(IB_PC_XMT_PKTS_F, "PortXmitPkts", 256, 32, uint),
	ROW(IB_PC_RCV_PKTS_F, "PortRcvPkts", 288, 32, uint),
	ROW(IB_PC_XMT_WAIT_F, "PortXmitWait", 320, 32, uint),

	/* SMInfo */
	ROW(IB_SMINFO_GUID_F, "SmInfoGuid", 0, 64, hex),
	ROW(IB_SMINFO_KEY_F, "SmInfoKey", 64, 64, hex),
	ROW(IB_SMINFO_ACT_F, "SmActivity", 128, 32, uint),
	ROW(IB_SMINFO_PRIO_F, "SmPriority", 160, 4, uint),
	ROW(IB_SMINFO_STATE_F, "SmState", 164, 4, uint),

	/* RMPP header */
	ROW(IB_SA_RMPP_VERS_F, "RmppVers", 192, 8, uint),
	ROW(IB_SA_RMPP_TYPE_F, "RmppType", 200, 8, uint),
	ROW(IB_SA_RMPP_RESP_F, "RmppResp", 208, 5, uint),
	ROW(IB_SA_RMPP_FLAGS_F, "RmppFlags", 213, 3, hex),
	ROW(IB_SA_RMPP_STATUS_F, "RmppStatus", 216, 8, hex),
	ROW(IB_SA_RMPP_D1_F, "RmppData1", 224, 32, hex),
	ROW(IB_SA_RMPP_SEGNUM_F, "RmppSegNum", 224, 32, uint),
	ROW(IB_SA_RMPP_D2_F, "RmppData2", 256, 32, hex),
	ROW(IB_SA_RMPP_LEN_F, "RmppPayload", 256, 32, uint),
	ROW(IB_SA_RMPP_NEWWIN_F, "RmppNewWin", 256, 32, uint),

	/* MultiPathRecord */
	ROW(IB_SA_MP_NPATH_F, "MultiPathNumPath", 41, 7, uint),
	ROW(IB_SA_MP_NSRC_F, "MultiPathNumSrc", 120, 8, uint),
	ROW(IB_SA_MP_NDEST_F, "MultiPathNumDest", 128, 8, uint),
	ROW(IB_SA_MP_GID0_F, "MultiPathGid", 192, 128, array),

	/* PathRecord */
	ROW(IB_SA_PR_DGID_F, "PathRecDGid", 64, 128, array),
	ROW(IB_SA_PR_SGID_F, "PathRecSGid", 192, 128, array),
	ROW(IB_SA_PR_DLID_F, "PathRecDLid", 320, 16, uint),
	ROW(IB_SA_PR_SLID_F, "PathRecSLid", 336, 16, uint),
	ROW(IB_SA_PR_NPATH_F, "PathRecNumPath", 393, 7, uint),
	ROW(IB_SA_PR_SL_F, "PathRecSL", 428, 4, uint),

	/* MCMemberRecord */
	ROW(IB_SA_MCM_MGID_F, "McastMemMGid", 0, 128, array),
	ROW(IB_SA_MCM_PORTGID_F, "McastMemPortGid", 128, 128, array),
	ROW(IB_SA_MCM_QKEY_F, "McastMemQkey", 256, 32, hex),
	ROW(IB_SA_MCM_MLID_F, "McastMemMLid", 288, 16, hex),
	ROW(IB_SA_MCM_SL_F, "McastMemSL", 352, 4, uint),
	ROW(IB_SA_MCM_MTU_F, "McastMemMTU", 306, 6, uint),
	ROW(IB_SA_MCM_RATE_F, "McastMemRate", 338, 6, uint),
	ROW(IB_SA_MCM_TCLASS_F, "McastMemTClass", 312, 8, uint),
	ROW(IB_SA_MCM_PKEY_F, "McastMemPkey", 320, 16, uint),
	ROW(IB_SA_MCM_FLOW_LABEL_F, "McastMemFlowLbl", 356, 20, uint),
	ROW(IB_SA_MCM_JOIN_STATE_F, "McastMemJoinState", 388, 4, uint),
	ROW(IB_SA_MCM_PROXY_JOIN_F, "McastMemProxyJoin", 392, 1, uint),

	/* ServiceRecord */
	ROW(IB_SA_SR_ID_F, "ServRecID", 0, 64, hex),
	ROW(IB_SA_SR_GID_F, "ServRecGid", 64, 128, array),
	ROW(IB_SA_SR_PKEY_F, "ServRecPkey", 192, 16, hex),
	ROW(IB_SA_SR_LEASE_F, "ServRecLease", 224, 32, hex),
	ROW(IB_SA_SR_KEY_F, "ServRecKey", 256, 128, hex),
	ROW(IB_SA_SR_NAME_F, "ServRecName", 384, 512, string),
	ROW(IB_SA_SR_DATA_F, "ServRecData", 896, 512, array),

	/* what ATS keeps in the data of a ServiceRecord */
	ROW(IB_ATS_SM_NODE_ADDR_F, "ATSNodeAddr", 96, 32, hex),
	ROW(IB_ATS_SM_MAGIC_KEY_F, "ATSMagicKey", 128, 16, hex),
	ROW(IB_ATS_SM_NODE_TYPE_F, "ATSNodeType", 144, 16, hex),
	ROW(IB_ATS_SM_NODE_NAME_F, "ATSNodeName", 256, 256, string),

	/* SLtoVLMappingTable */
	ROW(IB_SLTOVL_MAPPING_TABLE_F, "SLToVLMap", 0, 64, hex),

	/* VLArbitrationTable */
	ROW(IB_VL_ARBITRATION_TABLE_F, "VLArbTbl", 0, 512, array),

	/* vendor classes, range 2 */
	ROW(IB_VEND2_OUI_F, "OUI", 296, 24, array),
	ROW(IB_VEND2_DATA_F, "Vendor2Data", 320, 1728, array),

	/* PortCountersExtended */
	ROW(IB_PC_EXT_PORT_SELECT_F, "PortSelect", 8, 8, uint),
	ROW(IB_PC_EXT_COUNTER_SELECT_F, "CounterSelect", 16, 16, hex),
	ROW(IB_PC_EXT_XMT_BYTES_F, "PortXmitData", 64, 64, uint),
	ROW(IB_PC_EXT_RCV_BYTES_F, "PortRcvData", 128, 64, uint),
	ROW(IB_PC_EXT_XMT_PKTS_F, "PortXmitPkts", 192, 64, uint),
	ROW(IB_PC_EXT_RCV_PKTS_F, "PortRcvPkts", 256, 64, uint),
	ROW(IB_PC_EXT_XMT_UPKTS_F, "PortUnicastXmitPkts", 320, 64, uint),
	ROW(IB_PC_EXT_RCV_UPKTS_F, "PortUnicastRcvPkts", 384, 64, uint),
	ROW(IB_PC_EXT_XMT_MPKTS_F, "PortMulticastXmitPkts", 448, 64, uint),
	ROW(IB_PC_EXT_RCV_MPKTS_F, "PortMulticastRcvPkts", 512, 64, uint),

	/* the same as IB_GI_GUID0_F, which new code uses */
	ROW(IB_GUID_GUID0_F, "GUID0", 0, 64, hex),

	/* ClassPortInfo */
	ROW(IB_CPI_BASEVER_F, "BaseVersion", 0, 8, uint),
	ROW(IB_CPI_CLASSVER_F, "ClassVersion", 8, 8, uint),
	ROW(IB_CPI_CAPMASK_F, "CapabilityMask", 16, 16, hex),
	ROW(IB_CPI_CAPMASK2_F, "CapabilityMask2", 32, 27, hex),
	ROW(IB_CPI_RESP_TIME_VALUE_F, "RespTimeVal", 59, 5, uint),
	ROW(IB_CPI_REDIRECT_GID_F, "RedirectGID", 64, 128, array),
	ROW(IB_CPI_REDIRECT_TC_F, "RedirectTC", 192, 8, hex),
	ROW(IB_CPI_REDIRECT_SL_F, "RedirectSL", 200, 4, uint),
	ROW(IB_CPI_REDIRECT_FL_F, "RedirectFL", 204, 20, hex),
	ROW(IB_CPI_REDIRECT_LID_F, "RedirectLID", 224, 16, uint),
	ROW(IB_CPI_REDIRECT_PKEY_F, "RedirectPKey", 240, 16, hex),
	ROW(IB_CPI_REDIRECT_QP_F, "RedirectQP", 264, 24, hex),
	ROW(IB_CPI_REDIRECT_QKEY_F, "RedirectQKey", 288, 32, hex),
	ROW(IB_CPI_TRAP_GID_F, "TrapGID", 320, 128, array),
	ROW(IB_CPI_TRAP_TC_F, "TrapTC", 448, 8, hex),
	ROW(IB_CPI_TRAP_SL_F, "TrapSL", 456, 4, uint),
	ROW(IB_CPI_TRAP_FL_F, "TrapFL", 460, 20, hex),
	ROW(IB_CPI_TRAP_LID_F, "TrapLID", 480, 16, uint),
	ROW(IB_CPI_TRAP_PKEY_F, "TrapPKey", 496, 16, hex),
	ROW(IB_CPI_TRAP_HL_F, "TrapHL", 512, 8, uint),
	ROW(IB_CPI_TRAP_QP_F, "TrapQP", 520, 24, hex),
	ROW(IB_CPI_TRAP_QKEY_F, "TrapQKey", 544, 32, hex),

	/* PortXmitDataSL; here and in all counters below, IB_PC_PORT_SELECT_F and
	 * IB_PC_COUNTER_SELECT_F are the first two fields */
	SIXTEEN(IB_PC_XMT_DATA_SL, "XmtDataSL", 32, 32, uint),

	/* PortRcvDataSL */
	SIXTEEN(IB_PC_RCV_DATA_SL, "RcvDataSL", 32, 32, uint),

	/* PortXmitDiscardDetails */
	ROW(IB_PC_XMT_INACT_DISC_F, "PortInactiveDiscards", 32, 16, uint),
	ROW(IB_PC_XMT_NEIGH_MTU_DISC_F, "PortNeighborMTUDiscards", 48, 16, uint),
	ROW(IB_PC_XMT_SW_LIFE_DISC_F, "PortSwLifetimeLimitDiscards", 64, 16, uint),
	ROW(IB_PC_XMT_SW_HOL_DISC_F, "PortSwHOQLifetimeLimitDiscards", 80, 16, uint),

	/* PortRcvErrorDetails */
	ROW(IB_PC_RCV_LOCAL_PHY_ERR_F, "PortLocalPhysicalErrors", 32, 16, uint),
	ROW(IB_PC_RCV_MALFORMED_PKT_ERR_F, "PortMalformedPktErrors", 48, 16, uint),
	ROW(IB_PC_RCV_BUF_OVR_ERR_F, "PortBufferOverrunErrors", 64, 16, uint),
	ROW(IB_PC_RCV_DLID_MAP_ERR_F, "PortDLIDMappingErrors", 80, 16, uint),
	ROW(IB_PC_RCV_VL_MAP_ERR_F, "PortVLMappingErrors", 96, 16, uint),
	ROW(IB_PC_RCV_LOOPING_ERR_F, "PortLoopingErrors", 112, 16, uint),

	/* PortSamplesControl */
	ROW(IB_PSC_OPCODE_F, "OpCode", 0, 8, hex),
	ROW(IB_PSC_PORT_SELECT_F, "PortSelect", 8, 8, uint),
	ROW(IB_PSC_TICK_F, "Tick", 16, 8, hex),
	ROW(IB_PSC_COUNTER_WIDTH_F, "CounterWidth", 29, 3, uint),
	ROW(IB_PSC_COUNTER_MASK0_F, "CounterMask0", 34, 3, hex),
	ROW(IB_PSC_COUNTER_MASKS1TO9_F, "CounterMasks1to9", 37, 27, hex),
	ROW(IB_PSC_COUNTER_MASKS10TO14_F, "CounterMasks10to14", 65, 15, hex),
	ROW(IB_PSC_SAMPLE_MECHS_F, "SampleMechanisms", 80, 8, uint),
	ROW(IB_PSC_SAMPLE_STATUS_F, "SampleStatus", 94, 2, uint),
	ROW(IB_PSC_OPTION_MASK_F, "OptionMask", 96, 64, hex),
	ROW(IB_PSC_VENDOR_MASK_F, "VendorMask", 160, 64, hex),
	ROW(IB_PSC_SAMPLE_START_F, "SampleStart", 224, 32, uint),
	ROW(IB_PSC_SAMPLE_INTVL_F, "SampleInterval", 256, 32, uint),
	ROW(IB_PSC_TAG_F, "Tag", 288, 16, hex),
	FIFTEEN(IB_PSC_COUNTER_SEL, "CounterSelect", 304, 16, hex),
	ROW(IB_PSC_SAMPLES_ONLY_OPT_MASK_F, "SamplesOnlyOptionMask", 576, 64, hex),

	/* GUIDInfo */
	EIGHT(IB_GI_GUID, "GUID", 0, 64, hex),

	/* GUIDInfoRecord */
	ROW(IB_SA_GIR_LID_F, "Lid", 0, 16, uint),
	ROW(IB_SA_GIR_BLOCKNUM_F, "BlockNum", 16, 8, uint),
	EIGHT(IB_SA_GIR_GUID, "Guid", 64, 64, hex),

	/* PortInfo, continued */
	ROW(IB_PORT_CAPMASK2_F, "CapabilityMask2", 480, 16, portcapmask2),
	ROW(IB_PORT_LINK_SPEED_EXT_ACTIVE_F, "LinkSpeedExtActive", 496, 4, linkspeedext),
	ROW(IB_PORT_LINK_SPEED_EXT_SUPPORTED_F, "LinkSpeedExtSupported", 500, 4, linkspeedextsup),
	ROW(IB_PORT_LINK_SPEED_EXT_ENABLED_F, "LinkSpeedExtEnabled", 507, 5, linkspeedexten),

	/* PortExtendedSpeedsCounters */
	ROW(IB_PESC_PORT_SELECT_F, "PortSelect", 8, 8, uint),
	ROW(IB_PESC_COUNTER_SELECT_F, "CounterSelect", 64, 64, hex),
	ROW(IB_PESC_SYNC_HDR_ERR_CTR_F, "SyncHeaderErrorCounter", 128, 16, uint),
	ROW(IB_PESC_UNK_BLOCK_CTR_F, "UnknownBlockCounter", 144, 16, uint),
	TWELVE(IB_PESC_ERR_DET_CTR_LANE, "ErrorDetectionCounterLane", 160, 16, uint),
	TWELVE(IB_PESC_FEC_CORR_BLOCK_CTR_LANE, "FECCorrectableBlockCtrLane", 352, 32, uint),
	TWELVE(IB_PESC_FEC_UNCORR_BLOCK_CTR_LANE, "FECUncorrectableBlockCtrLane", 736, 32, uint),

	/* PortOpRcvCounters */
	ROW(IB_PC_PORT_OP_RCV_PKTS_F, "PortOpRcvPkts", 32, 32, uint),
	ROW(IB_PC_PORT_OP_RCV_DATA_F, "PortOpRcvData", 64, 32, uint),

	/* PortFlowCtlCounters */
	ROW(IB_PC_PORT_XMIT_FLOW_PKTS_F, "PortXmitFlowPkts", 32, 32, uint),
	ROW(IB_PC_PORT_RCV_FLOW_PKTS_F, "PortRcvFlowPkts", 64, 32, uint),

	/* PortVLOpPackets */
	SIXTEEN(IB_PC_PORT_VL_OP_PACKETS, "PortVLOpPackets", 32, 16, uint),

	/* PortVLOpData */
	SIXTEEN(IB_PC_PORT_VL_OP_DATA, "PortVLOpData", 32, 32, uint),

	/* PortVLXmitFlowCtlUpdateErrors */
	SIXTEEN(IB_PC_PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS, "PortVLXmitFlowCtlUpdateErrors", 32, 2, uint),

	/* PortVLXmitWaitCounters */
	SIXTEEN(IB_PC_PORT_VL_XMIT_WAIT, "PortVLXmitWait", 32, 16, uint),

	/* SwPortVLCongestion */
	SIXTEEN(IB_PC_SW_PORT_VL_CONGESTION, "SWPortVLCongestion", 32, 16, uint),

	/* PortRcvConCtrl */
	ROW(IB_PC_RCV_CON_CTRL_PKT_RCV_FECN_F, "PortPktRcvFECN", 32, 32, uint),
	ROW(IB_PC_RCV_CON_CTRL_PKT_RCV_BECN_F, "PortPktRcvBECN", 64, 32, uint),

	/* PortSLRcvFECN */
	SIXTEEN(IB_PC_SL_RCV_FECN, "PortSLRcvFECN", 32, 32, uint),

	/* PortSLRcvBECN */
	SIXTEEN(IB_PC_SL_RCV_BECN, "PortSLRcvBECN", 32, 32, uint),

	/* PortXmitConCtrl */
	ROW(IB_PC_XMIT_CON_CTRL_TIME_CONG_F, "PortXmitTimeCong", 32, 32, uint),

	/* PortVLXmitTimeCong */
	FIFTEEN(IB_PC_VL_XMIT_TIME_CONG, "PortVLXmitTimeCong", 32, 32, uint),

	/* Mellanox's ExtendedPortInfo */
	ROW(IB_MLNX_EXT_PORT_STATE_CHG_ENABLE_F, "StateChangeEnable", 24, 8, hex),
	ROW(IB_MLNX_EXT_PORT_LINK_SPEED_SUPPORTED_F, "LinkSpeedSupported", 56, 8, hex),
	ROW(IB_MLNX_EXT_PORT_LINK_SPEED_ENABLED_F, "LinkSpeedEnabled", 88, 8, hex),
	ROW(IB_MLNX_EXT_PORT_LINK_SPEED_ACTIVE_F, "LinkSpeedActive", 120, 8, hex),

	/* congestion control: bytes 24 to 31 of its MADs */
	ROW(IB_CC_CCKEY_F, "CC_Key", 192, 64, hex),

	/* CongestionInfo */
	ROW(IB_CC_CONGESTION_INFO_F, "CongestionInfo", 0, 16, hex),
	ROW(IB_CC_CONGESTION_INFO_CONTROL_TABLE_CAP_F, "ControlTableCap", 16, 8, uint),

	/* CongestionKeyInfo */
	ROW(IB_CC_CONGESTION_KEY_INFO_CC_KEY_F, "CC_Key", 0, 64, hex),
	ROW(IB_CC_CONGESTION_KEY_INFO_CC_KEY_PROTECT_BIT_F, "CC_KeyProtectBit", 64, 1, uint),
	ROW(IB_CC_CONGESTION_KEY_INFO_CC_KEY_LEASE_PERIOD_F, "CC_KeyLeasePeriod", 80, 16, uint),
	ROW(IB_CC_CONGESTION_KEY_INFO_CC_KEY_VIOLATIONS_F, "CC_KeyViolations", 96, 16, uint),

	/* CongestionLog: the part that switches and adapters share */
	ROW(IB_CC_CONGESTION_LOG_LOGTYPE_F, "LogType", 0, 8, uint),
	ROW(IB_CC_CONGESTION_LOG_CONGESTION_FLAGS_F, "CongestionFlags", 8, 8, hex),

	/* CongestionLog of a switch */
	ROW(IB_CC_CONGESTION_LOG_SWITCH_LOG_EVENTS_COUNTER_F, "LogEventsCounter", 16, 16, uint),
	ROW(IB_CC_CONGESTION_LOG_SWITCH_CURRENT_TIME_STAMP_F, "CurrentTimeStamp", 32, 32, uint),
	ROW(IB_CC_CONGESTION_LOG_SWITCH_PORTMAP_F, "PortMap", 64, 256, array),

	/* CongestionLogEvent of a switch */
	ROW(IB_CC_CONGESTION_LOG_ENTRY_SWITCH_SLID_F, "SLID", 0, 16, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_SWITCH_DLID_F, "DLID", 16, 16, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_SWITCH_SL_F, "SL", 32, 4, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_SWITCH_TIMESTAMP_F, "Timestamp", 64, 32, uint),

	/* CongestionLog of a channel adapter */
	ROW(IB_CC_CONGESTION_LOG_CA_THRESHOLD_EVENT_COUNTER_F, "ThresholdEventCounter", 16, 16, uint),
	ROW(IB_CC_CONGESTION_LOG_CA_THRESHOLD_CONGESTION_EVENT_MAP_F, "ThresholdCongestionEventMap", 32, 16, hex),
	ROW(IB_CC_CONGESTION_LOG_CA_CURRENT_TIMESTAMP_F, "CurrentTimeStamp", 64, 32, uint),

	/* CongestionLogEvent of a channel adapter */
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_LOCAL_QP_CN_ENTRY_F, "Local_QP_CN_Entry", 0, 24, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_SL_CN_ENTRY_F, "SL_CN_Entry", 24, 4, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_SERVICE_TYPE_CN_ENTRY_F, "Service_Type_CN_Entry", 28, 4, hex),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_REMOTE_QP_NUMBER_CN_ENTRY_F, "Remote_QP_Number_CN_Entry", 32, 24, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_LOCAL_LID_CN_F, "Local_LID_CN", 64, 16, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_REMOTE_LID_CN_ENTRY_F, "Remote_LID_CN_Entry", 80, 16, uint),
	ROW(IB_CC_CONGESTION_LOG_ENTRY_CA_TIMESTAMP_CN_ENTRY_F, "Timestamp_CN_Entry", 96, 32, uint),

	/* SwitchCongestionSetting */
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_CONTROL_MAP_F, "Control_Map", 0, 32, hex),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_VICTIM_MASK_F, "Victim_Mask", 32, 256, array),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_CREDIT_MASK_F, "Credit_Mask", 288, 256, array),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_THRESHOLD_F, "Threshold", 544, 4, hex),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_PACKET_SIZE_F, "Packet_Size", 552, 8, uint),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_CS_THRESHOLD_F, "CS_Threshold", 560, 4, hex),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_CS_RETURN_DELAY_F, "CS_ReturnDelay", 576, 16, hex),
	ROW(IB_CC_SWITCH_CONGESTION_SETTING_MARKING_RATE_F, "Marking_Rate", 592, 16, uint),

	/* one element of SwitchPortCongestionSetting */
	ROW(IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_VALID_F, "Valid", 0, 1, uint),
	ROW(IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_CONTROL_TYPE_F, "Control_Type", 1, 1, uint),
	ROW(IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_THRESHOLD_F, "Threshold", 4, 4, hex),
	ROW(IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_PACKET_SIZE_F, "Packet_Size", 8, 8, uint),
	ROW(IB_CC_SWITCH_PORT_CONGESTION_SETTING_ELEMENT_CONG_PARM_MARKING_RATE_F, "Cong_Parm_Marking_Rate", 16, 16, uint),

	/* CACongestionSetting */
	ROW(IB_CC_CA_CONGESTION_SETTING_PORT_CONTROL_F, "Port_Control", 0, 16, hex),
	ROW(IB_CC_CA_CONGESTION_SETTING_CONTROL_MAP_F, "Control_Map", 16, 16, hex),

	/* one entry of CACongestionSetting */
	ROW(IB_CC_CA_CONGESTION_ENTRY_CCTI_TIMER_F, "CCTI_Timer", 0, 16, uint),
	ROW(IB_CC_CA_CONGESTION_ENTRY_CCTI_INCREASE_F, "CCTI_Increase", 16, 8, uint),
	ROW(IB_CC_CA_CONGESTION_ENTRY_TRIGGER_THRESHOLD_F, "Trigger_Threshold", 24, 8, uint),
	ROW(IB_CC_CA_CONGESTION_ENTRY_CCTI_MIN_F, "CCTI_Min", 32, 8, uint),

	/* CongestionControlTable */
	ROW(IB_CC_CONGESTION_CONTROL_TABLE_CCTI_LIMIT_F, "CCTI_Limit", 0, 16, uint),

	/* one entry of CongestionControlTable */
	ROW(IB_CC_CONGESTION_CONTROL_TABLE_ENTRY_CCT_SHIFT_F, "CCT_Shift", 0, 2, uint),
	ROW(IB_CC_CONGESTION_CONTROL_TABLE_ENTRY_CCT_MULTIPLIER_F, "CCT_Multiplier", 2, 14, uint),

	/* TimeStamp */
	ROW(IB_CC_TIMESTAMP_F, "Timestamp", 0, 32, uint),

	/* NodeRecord */
	ROW(IB_SA_NR_LID_F, "Lid", 0, 16, uint),
	ROW(IB_SA_NR_BASEVER_F, "BaseVers", 32, 8, uint),
	ROW(IB_SA_NR_CLASSVER_F, "ClassVers", 40, 8, uint),
	ROW(IB_SA_NR_TYPE_F, "NodeType", 48, 8, node_type),
	ROW(IB_SA_NR_NPORTS_F, "NumPorts", 56, 8, uint),
	ROW(IB_SA_NR_SYSTEM_GUID_F, "SystemGuid", 64, 64, hex),
	ROW(IB_SA_NR_GUID_F, "Guid", 128, 64, hex),
	ROW(IB_SA_NR_PORT_GUID_F, "PortGuid", 192, 64, hex),
	ROW(IB_SA_NR_PARTITION_CAP_F, "PartCap", 256, 16, uint),
	ROW(IB_SA_NR_DEVID_F, "DevId", 272, 16, hex),
	ROW(IB_SA_NR_REVISION_F, "Revision", 288, 32, hex),
	ROW(IB_SA_NR_LOCAL_PORT_F, "LocalPort", 320, 8, uint),
	ROW(IB_SA_NR_VENDORID_F, "VendorId", 328, 24, hex),
	ROW(IB_SA_NR_NODEDESC_F, "NodeDesc", 352, 512, string),

	/* PortSamplesResult */
	ROW(IB_PSR_TAG_F, "Tag", 0, 16, hex),
	ROW(IB_PSR_SAMPLE_STATUS_F, "SampleStatus", 30, 2, hex),
	FIFTEEN(IB_PSR_COUNTER, "Counter", 32, 32, uint),

	/* PortInfoExtended */
	ROW(IB_PORT_EXT_CAPMASK_F, "CapMask", 0, 32, hex),
	ROW(IB_PORT_EXT_FEC_MODE_ACTIVE_F, "FECModeActive", 32, 16, uint),
	ROW(IB_PORT_EXT_FDR_FEC_MODE_SUPPORTED_F, "FDRFECModeSupported", 48, 16, hex),
	ROW(IB_PORT_EXT_FDR_FEC_MODE_ENABLED_F, "FDRFECModeEnabled", 64, 16, hex),
	ROW(IB_PORT_EXT_EDR_FEC_MODE_SUPPORTED_F, "EDRFECModeSupported", 80, 16, hex),
	ROW(IB_PORT_EXT_EDR_FEC_MODE_ENABLED_F, "EDRFECModeEnabled", 96, 16, hex),

	/* PortExtendedSpeedsCounters while RS-FEC is active */
	ROW(IB_PESC_RSFEC_PORT_SELECT_F, "PortSelect", 8, 8, uint),
	ROW(IB_PESC_RSFEC_COUNTER_SELECT_F, "CounterSelect", 64, 64, hex),
	ROW(IB_PESC_RSFEC_SYNC_HDR_ERR_CTR_F, "SyncHeaderErrorCounter", 128, 16, uint),
	ROW(IB_PESC_RSFEC_UNK_BLOCK_CTR_F, "UnknownBlockCounter", 144, 16, uint),
	TWELVE(IB_PESC_RSFEC_FEC_CORR_SYMBOL_CTR_LANE, "FECCorrectableSymbolCtrLane", 352, 32, uint),
	ROW(IB_PESC_PORT_FEC_CORR_BLOCK_CTR_F, "PortFECCorrectableBlockCtr", 1120, 32, uint),
	ROW(IB_PESC_PORT_FEC_UNCORR_BLOCK_CTR_F, "PortFECUncorrectableBlockCtr", 1152, 32, uint),
	ROW(IB_PESC_PORT_FEC_CORR_SYMBOL_CTR_F, "PortFECCorrectedSymbolCtr", 1184, 32, uint),

	/* PortCountersExtended, continued */
	ROW(IB_PC_EXT_COUNTER_SELECT2_F, "CounterSelect2", 32, 32, hex),
	ROW(IB_PC_EXT_ERR_SYM_F, "SymbolErrorCounter", 576, 64, uint),
	ROW(IB_PC_EXT_LINK_RECOVERS_F, "LinkErrorRecoveryCounter", 640, 64, uint),
	ROW(IB_PC_EXT_LINK_DOWNED_F, "LinkDownedCounter", 704, 64, uint),
	ROW(IB_PC_EXT_ERR_RCV_F, "PortRcvErrors", 768, 64, uint),
	ROW(IB_PC_EXT_ERR_PHYSRCV_F, "PortRcvRemotePhysicalErrors", 832, 64, uint),
	ROW(IB_PC_EXT_ERR_SWITCH_REL_F, "PortRcvSwitchRelayErrors", 896, 64, uint),
	ROW(IB_PC_EXT_XMT_DISCARDS_F, "PortXmitDiscards", 960, 64, uint),
	ROW(IB_PC_EXT_ERR_XMTCONSTR_F, "PortXmitConstraintErrors", 1024, 64, uint),
	ROW(IB_PC_EXT_ERR_RCVCONSTR_F, "PortRcvConstraintErrors", 1088, 64, uint),
	ROW(IB_PC_EXT_ERR_LOCALINTEG_F, "LocalLinkIntegrityErrors", 1152, 64, uint),
	ROW(IB_PC_EXT_ERR_EXCESS_OVR_F, "ExcessiveBufferOverrunErrors", 1216, 64, uint),
	ROW(IB_PC_EXT_VL15_DROPPED_F, "VL15Dropped", 1280, 64, uint),
	ROW(IB_PC_EXT_XMT_WAIT_F, "PortXmitWait", 1344, 64, uint),
	ROW(IB_PC_EXT_QP1_DROP_F, "QP1Dropped", 1408, 64, uint),

	/* PortCounters, continued */
	ROW(IB_PC_QP1_DROP_F, "QP1Dropped", 176, 16, uint),

	/* PortInfoExtended, continued */
	ROW(IB_PORT_EXT_HDR_FEC_MODE_SUPPORTED_F, "HDRFECModeSupported", 96, 16, hex),
	ROW(IB_PORT_EXT_HDR_FEC_MODE_ENABLED_F, "HDRFECModeEnabled", 144, 16, hex),
	ROW(IB_PORT_EXT_NDR_FEC_MODE_SUPPORTED_F, "NDRFECModeSupported", 128, 16, hex),
	ROW(IB_PORT_EXT_NDR_FEC_MODE_ENABLED_F, "NDRFECModeEnabled", 176, 16, hex),

	/* PortInfo, continued */
	ROW(IB_PORT_LINK_SPEED_EXT_ACTIVE_2_F, "LinkSpeedExtActive2", 449, 2, linkspeedext2),
	ROW(IB_PORT_LINK_SPEED_EXT_SUPPORTED_2_F, "LinkSpeedExtSupported2", 451, 2, linkspeedextsup2),
	ROW(IB_PORT_LINK_SPEED_EXT_ENABLED_2_F, "LinkSpeedExtEnabled2", 453, 3, linkspeedexten2),
};
