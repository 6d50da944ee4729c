/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad_compare OUR-LIBIBMAD DEBIAN-LIBIBMAD
 *
 * Our libibmad.so.5 reads, writes and prints every field and every attribute as Debian's does, and
 * builds the same datagrams. Ends at the first difference. Exit code 77: Debian's isn't installed.
 */
#include "compare.h"

#include <infiniband/mad.h>

#define ROUNDS 40
#define TEXT_BYTES 16384
#define BUFFER_BYTES 512

/* True if Debian's library is of release 54 or later, which knows the extended speeds of XDR. */
static bool debians_is_later(void)
{
	return dlsym(libraries[DEBIANS], "mad_dump_linkspeedext2");
}

/* Fields --------------------------------------------------------------------------------------- */

/* How many bytes mad_decode_field() writes for a field, with library `which`. */
static int decoded_bytes(int which, int field)
{
	uint8_t buffer[BUFFER_BYTES] = {0};
	uint8_t low[BUFFER_BYTES], high[BUFFER_BYTES];
	int count = 0;

	memset(low, 0x11, sizeof low);
	memset(high, 0xee, sizeof high);
	CALL(which, mad_decode_field)(buffer, field, low);
	CALL(which, mad_decode_field)(buffer, field, high);
	while (count < BUFFER_BYTES && low[count] == high[count])
		count++;
	return count;
}

/* All bits that the field can hold, up to 32. */
static uint32_t field_mask(int field)
{
	uint8_t ones[BUFFER_BYTES];

	memset(ones, 0xff, sizeof ones);
	return CALL(DEBIANS, mad_get_field)(ones, 0, field);
}

static void field_read(int field, int base, bool is_long)
{
	uint8_t buffer[BUFFER_BYTES];
	uint8_t values[LIBRARIES][BUFFER_BYTES] = {0};

	fill_random(buffer, sizeof buffer);
	same_number(CALL(OURS, mad_get_field)(buffer, base, field),
		    CALL(DEBIANS, mad_get_field)(buffer, base, field), "mad_get_field", field);
	if (is_long)
		same_number(CALL(OURS, mad_get_field64)(buffer, base, field),
			    CALL(DEBIANS, mad_get_field64)(buffer, base, field), "mad_get_field64",
			    field);
	for (int i = 0; i < LIBRARIES; i++)
		CALL(i, mad_get_array)(buffer, base, field, values[i]);
	same_bytes(values[OURS], values[DEBIANS], sizeof values[0], "mad_get_array", field);
	for (int i = 0; i < LIBRARIES; i++)
		CALL(i, mad_decode_field)(buffer, field, values[i]);
	same_bytes(values[OURS], values[DEBIANS], sizeof values[0], "mad_decode_field", field);
}

static void field_write(int field, int base, bool is_long)
{
	uint8_t buffer[BUFFER_BYTES], value[BUFFER_BYTES];
	uint8_t results[LIBRARIES][BUFFER_BYTES];
	uint32_t number = (uint32_t)random() & field_mask(field);
	uint64_t long_number = (uint64_t)random() << 32 | number;

	fill_random(buffer, sizeof buffer);
	fill_random(value, sizeof value);
#define WRITE(what, ...)                                                                  \
	do {                                                                              \
		for (int i = 0; i < LIBRARIES; i++) {                                     \
			memcpy(results[i], buffer, sizeof buffer);                        \
			CALL(i, what)(results[i], __VA_ARGS__);                           \
		}                                                                         \
		same_bytes(results[OURS], results[DEBIANS], sizeof buffer, #what, field); \
	} while (0)
	WRITE(mad_set_field, base, field, number);
	WRITE(mad_set_array, base, field, value);
	if (is_long)
		WRITE(mad_set_field64, base, field, long_number);
	else
		memcpy(value, &number, sizeof number);
	WRITE(mad_encode_field, field, value);
}

static void field_print(int field)
{
	uint8_t value[BUFFER_BYTES + 1] = {0}; /* Debian's library reads texts up to a zero */
	char texts[LIBRARIES][TEXT_BYTES];
	char *messages[LIBRARIES];
	struct captured captured;

	fill_random(value, BUFFER_BYTES);
	/* Codes are small numbers. */
	if (random() % 2)
		memcpy(value, &(uint64_t){random() % 64}, sizeof(uint64_t));
	for (int i = 0; i < LIBRARIES; i++) {
		capture_begin(&captured, &stderr);
		CALL(i, mad_dump_val)(field, texts[i], sizeof texts[i], value);
		messages[i] = capture_end(&captured);
	}
	same_text(texts[OURS], texts[DEBIANS], "mad_dump_val", field);
	same_text(messages[OURS], messages[DEBIANS], "mad_dump_val's message", field);
	for (int i = 0; i < LIBRARIES; i++) {
		free(messages[i]);
		capture_begin(&captured, &stderr);
		CALL(i, mad_dump_field)(field, texts[i], sizeof texts[i], value);
		free(capture_end(&captured));
	}
	same_text(texts[OURS], texts[DEBIANS], "mad_dump_field", field);
	/* Debian's library has room for a few names of capabilities only. */
	memcpy(value, &(uint64_t){random() % 64}, sizeof(uint64_t));
	for (int i = 0; i < LIBRARIES; i++) {
		struct captured warnings;

		capture_begin(&warnings, &stderr);
		capture_begin(&captured, &stdout);
		CALL(i, mad_print_field)(field, field % 2 ? "a name" : NULL, value);
		messages[i] = capture_end(&captured);
		free(capture_end(&warnings));
	}
	same_text(messages[OURS], messages[DEBIANS], "mad_print_field", field);
	for (int i = 0; i < LIBRARIES; i++)
		free(messages[i]);
}

static void fields_compare(void)
{
	int end = debians_is_later() ? IB_FIELD_LAST_ : IB_PORT_LINK_SPEED_EXT_ACTIVE_2_F;
	int named = 0;

	for (int field = 0; field < end; field++) {
		const char *name = CALL(OURS, mad_field_name)(field);
		int bytes = decoded_bytes(DEBIANS, field);

		same_number(decoded_bytes(OURS, field), bytes, "bytes of a decoded field", field);
		if (field)
			same_text(name, CALL(DEBIANS, mad_field_name)(field), "mad_field_name",
				  field);
		for (int round = 0; round < ROUNDS; round++) {
			/* Any base but those that would end behind the buffer. */
			int base = (int)(random() % 64);

			field_read(field, base, bytes == 8);
			field_write(field, base, bytes == 8);
		}
		/* Debian's library crashes when what has no name is printed. */
		if (!field || !*name)
			continue;
		named++;
		for (int round = 0; round < ROUNDS; round++)
			field_print(field);
	}
	printf("%d fields\n", named);
	if (named < 600)
		differ("only %d fields have a name", named);
}

/* Texts ---------------------------------------------------------------------------------------- */

static const char *const attribute_dumps[] = {
	"mad_dump_sltovl",
	"mad_dump_nodedesc",
	"mad_dump_nodeinfo",
	"mad_dump_portinfo",
	"mad_dump_portstates",
	"mad_dump_switchinfo",
	"mad_dump_perfcounters",
	"mad_dump_perfcounters_ext",
	"mad_dump_perfcounters_xmt_sl",
	"mad_dump_perfcounters_rcv_sl",
	"mad_dump_perfcounters_xmt_disc",
	"mad_dump_perfcounters_rcv_err",
	"mad_dump_portsamples_control",
	"mad_dump_port_ext_speeds_counters",
	"mad_dump_perfcounters_port_op_rcv_counters",
	"mad_dump_perfcounters_port_flow_ctl_counters",
	"mad_dump_perfcounters_port_vl_op_packet",
	"mad_dump_perfcounters_port_vl_op_data",
	"mad_dump_perfcounters_port_vl_xmit_flow_ctl_update_errors",
	"mad_dump_perfcounters_port_vl_xmit_wait_counters",
	"mad_dump_perfcounters_sw_port_vl_congestion",
	"mad_dump_perfcounters_rcv_con_ctrl",
	"mad_dump_perfcounters_sl_rcv_fecn",
	"mad_dump_perfcounters_sl_rcv_becn",
	"mad_dump_perfcounters_xmit_con_ctrl",
	"mad_dump_perfcounters_vl_xmit_time_cong",
	"mad_dump_mlnx_ext_port_info",
	"mad_dump_cc_congestioninfo",
	"mad_dump_cc_congestionkeyinfo",
	"mad_dump_cc_congestionlog",
	"mad_dump_cc_congestionlogswitch",
	"mad_dump_cc_congestionlogentryswitch",
	"mad_dump_cc_congestionlogca",
	"mad_dump_cc_congestionlogentryca",
	"mad_dump_cc_switchcongestionsetting",
	"mad_dump_cc_switchportcongestionsettingelement",
	"mad_dump_cc_cacongestionsetting",
	"mad_dump_cc_cacongestionentry",
	"mad_dump_cc_congestioncontroltable",
	"mad_dump_cc_congestioncontroltableentry",
	"mad_dump_cc_timestamp",
	"mad_dump_classportinfo",
	"mad_dump_portsamples_result",
	"mad_dump_portinfo_ext",
	"mad_dump_port_ext_speeds_counters_rsfec_active",
	"mad_dump_vlarbitration",
};

static const char *const value_dumps[] = {
	"mad_dump_int",
	"mad_dump_uint",
	"mad_dump_hex",
	"mad_dump_rhex",
	"mad_dump_bitfield",
	"mad_dump_array",
	"mad_dump_string",
	"mad_dump_linkwidth",
	"mad_dump_linkwidthsup",
	"mad_dump_linkwidthen",
	"mad_dump_linkspeed",
	"mad_dump_linkspeedsup",
	"mad_dump_linkspeeden",
	"mad_dump_linkspeedext",
	"mad_dump_linkspeedextsup",
	"mad_dump_linkspeedexten",
	"mad_dump_linkdowndefstate",
	"mad_dump_portstate",
	"mad_dump_physportstate",
	"mad_dump_portcapmask",
	"mad_dump_portcapmask2",
	"mad_dump_mtu",
	"mad_dump_vlcap",
	"mad_dump_opervls",
	"mad_dump_node_type",
	/* the later ones */
	"mad_dump_linkspeedext2",
	"mad_dump_linkspeedextsup2",
	"mad_dump_linkspeedexten2",
};

#define LATER_DUMPS 3

/* One dump function, by name, on one buffer: text and messages are the same. */
static void dump_compare(const char *name, int room, void *value, int bytes)
{
	char texts[LIBRARIES][TEXT_BYTES] = {{0}};
	char *messages[LIBRARIES];
	struct captured captured;

	for (int i = 0; i < LIBRARIES; i++) {
		ib_mad_dump_fn *dump = (ib_mad_dump_fn *)compare_symbol(i, name);

		capture_begin(&captured, &stderr);
		dump(texts[i], room, value, bytes);
		messages[i] = capture_end(&captured);
	}
	same_text(texts[OURS], texts[DEBIANS], name, bytes);
	same_text(messages[OURS], messages[DEBIANS], name, bytes);
	for (int i = 0; i < LIBRARIES; i++)
		free(messages[i]);
}

static void texts_compare(void)
{
	size_t dumps = sizeof value_dumps / sizeof *value_dumps;
	uint8_t buffer[BUFFER_BYTES + 1] = {0};

	for (size_t k = 0; k < sizeof attribute_dumps / sizeof *attribute_dumps; k++) {
		for (int round = 0; round < ROUNDS; round++) {
			fill_random(buffer, BUFFER_BYTES);
			dump_compare(attribute_dumps[k], TEXT_BYTES, buffer, 64);
			/* Cut off at any line. */
			dump_compare(attribute_dumps[k], 100 + (int)(random() % 2000), buffer, 64);
		}
	}
	if (!debians_is_later())
		dumps -= LATER_DUMPS;
	for (size_t k = 0; k < dumps; k++) {
		for (int number = 0; number < 300; number++) {
			memset(buffer, 0, BUFFER_BYTES);
			memcpy(buffer, &number, sizeof number);
			dump_compare(value_dumps[k], 1024, buffer, 4);
		}
		for (int round = 0; round < 10 * ROUNDS; round++) {
			fill_random(buffer, BUFFER_BYTES);
			/* "bad width -1" in both: the value is arbitrary, too. */
			dump_compare(value_dumps[k], 1024, buffer, 1 + (int)(random() % 12));
		}
	}
}

/* Routes --------------------------------------------------------------------------------------- */

static void routes_compare(void)
{
	static const char *const routes[] = {
		"",	      "0",
		"0,1",	      "0,1,2,3",
		"0,,1",	      "1,",
		"abc",	      "0,255",
		"0,256,1000", "0, 7 , 12 junk",
		",",	      "0,1,2,3,4,5,6,7,8,9,10,11,12",
	};

	for (size_t k = 0; k < sizeof routes / sizeof *routes; k++) {
		for (int lids = 0; lids < 4; lids++) {
			ib_portid_t ports[LIBRARIES] = {0};
			char text[128], dumps[LIBRARIES][256];

			strcpy(text, routes[k]);
			for (int i = 0; i < LIBRARIES; i++) {
				int hops = CALL(i, str2drpath)(&ports[i].drpath, text,
							       lids & 1 ? 7 : 0, lids & 2 ? 9 : 0);

				CALL(i, drpath2str)(&ports[i].drpath, dumps[i], sizeof dumps[i]);
				if (hops < 0)
					continue;
				ports[i].lid = (int)k % 3;
				ports[i].grh_present = (int)k % 2;
				memcpy(ports[i].gid, "0123456789abcdef", 16);
			}
			same_bytes(&ports[OURS], &ports[DEBIANS], sizeof ports[0], "str2drpath",
				   (long)k);
			same_text(dumps[OURS], dumps[DEBIANS], "drpath2str", (long)k);
			same_text(CALL(OURS, portid2str)(&ports[OURS]),
				  CALL(DEBIANS, portid2str)(&ports[DEBIANS]), "portid2str",
				  (long)k);
			if (ports[OURS].drpath.cnt >= 0)
				same_number(CALL(OURS, portid2portnum)(&ports[OURS]),
					    CALL(DEBIANS, portid2portnum)(&ports[DEBIANS]),
					    "portid2portnum", (long)k);
		}
	}
}

static void strings_compare(void)
{
	static const struct {
		enum MAD_DEST kind;
		const char *text;
	} names[] = {
		{IB_DEST_LID, "5"},	   {IB_DEST_LID, "0x10"}, {IB_DEST_LID, "0"},
		{IB_DEST_LID, "0xc000"},   {IB_DEST_LID, "junk"}, {IB_DEST_LID, "-1"},
		{IB_DEST_DRPATH, "0,1,1"}, {IB_DEST_DRPATH, ""},  {IB_DEST_GUID, "0"},
		{IB_DEST_GID, "nonsense"}, {IB_DEST_DRSLID, "0"},
	};

	for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
		ib_portid_t ports[LIBRARIES];
		int results[LIBRARIES];
		char text[64];

		for (int i = 0; i < LIBRARIES; i++) {
			strcpy(text, names[k].text);
			results[i] = CALL(i, ib_resolve_portid_str_via)(&ports[i], text,
									names[k].kind, NULL, NULL);
		}
		same_number(results[OURS], results[DEBIANS], "ib_resolve_portid_str_via", (long)k);
		same_bytes(&ports[OURS], &ports[DEBIANS], sizeof ports[0],
			   "ib_resolve_portid_str_via", (long)k);
	}
}

static void xdump_compare(void)
{
	uint8_t bytes[80];

	fill_random(bytes, sizeof bytes);
	for (int size = 0; size <= (int)sizeof bytes; size++) {
		char *texts[LIBRARIES];

		for (int i = 0; i < LIBRARIES; i++) {
			size_t length;
			FILE *file = open_memstream(&texts[i], &length);

			CALL(i, xdump)(file, size % 2 ? "title\n" : NULL, bytes, size);
			fclose(file);
		}
		same_text(texts[OURS], texts[DEBIANS], "xdump", size);
		for (int i = 0; i < LIBRARIES; i++)
			free(texts[i]);
	}
}

/* Datagrams ------------------------------------------------------------------------------------ */

static ib_rpc_cc_t rpc_random(void)
{
	static const uint8_t classes[] = {0x01, 0x81, 0x03, 0x04, 0x05,
					  0x06, 0x0a, 0x21, 0x32, 0x4f};
	ib_rpc_cc_t rpc = {
		.mgtclass = classes[random() % (long)sizeof classes],
		.method = (int)(random() & 0xff),
		.attr = {.id = (unsigned)random() & 0xffff, .mod = (unsigned)random()},
		.rstatus = (unsigned)random() & 0x7fff,
		.mkey = (uint64_t)random() << 30,
		.trid = (uint64_t)random() + 1,
		.mask = (uint64_t)random() << 20,
		.oui = (unsigned)random() & 0xffffff,
		.dataoffs = 64,
		.datasz = (int)(random() % 65),
		.cckey = (uint64_t)random() << 17,
	};

	/* Debian's library writes all eight bits of the method, and the response bit over them. */
	return rpc;
}

static ib_portid_t portid_random(void)
{
	ib_portid_t port = {
		.lid = (int)(random() % 3 ? random() & 0xbfff : 0),
		.grh_present = (int)(random() % 2),
		.qp = (uint32_t)random() & 0xffffff,
		.qkey = (uint32_t)random(),
		.sl = (uint8_t)(random() & 0xf),
		.pkey_idx = (unsigned)random() & 0xffff,
	};

	fill_random(port.gid, sizeof port.gid);
	fill_random(port.drpath.p, sizeof port.drpath.p);
	port.drpath.cnt = (int)(random() % 64);
	port.drpath.drslid = random() % 2 ? 0xffff : (uint16_t)random();
	port.drpath.drdlid = random() % 2 ? 0 : (uint16_t)random();
	return port;
}

static void datagrams_compare(void)
{
	for (int round = 0; round < 5000; round++) {
		uint8_t packets[LIBRARIES][1024];
		uint8_t data[256];
		ib_rpc_cc_t rpc = rpc_random();
		ib_portid_t port = portid_random();
		ib_rmpp_hdr_t rmpp = {
			.type = (int)(random() & 0xff),
			.flags = (int)(random() & 7),
			.status = (int)(random() & 0xff),
			.d1.u = (uint32_t)random(),
			.d2.u = (uint32_t)random(),
		};
		int lengths[LIBRARIES];

		fill_random(data, sizeof data);
		for (int i = 0; i < LIBRARIES; i++) {
			ib_rpc_cc_t copy = rpc;

			memset(packets[i], 0, sizeof packets[i]);
			lengths[i] = CALL(i, mad_build_pkt)(packets[i], (ib_rpc_t *)(void *)&copy,
							    &port, round % 3 ? &rmpp : NULL,
							    round % 2 ? data : NULL);
		}
		same_number(lengths[OURS], lengths[DEBIANS], "mad_build_pkt", rpc.mgtclass);
		same_bytes(packets[OURS], packets[DEBIANS], sizeof packets[0], "mad_build_pkt",
			   rpc.mgtclass);
	}
}

int main(int count, char *words[])
{
	if (count != 3) {
		printf("usage: mad_compare OUR-LIBIBMAD DEBIAN-LIBIBMAD\n");
		return 2;
	}
	compare_open(words + 1);
	srandom(16);
	fields_compare();
	texts_compare();
	routes_compare();
	strings_compare();
	xdump_compare();
	datagrams_compare();
	printf("equal: %lu results\n", compared);
	return 0;
}
