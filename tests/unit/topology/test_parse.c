/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Topology files: what is read from them, what is said about wrong ones, and that what is written
 * is read again. The texts are ours, in ibsim's and ibnetdiscover's format.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/topology.h"

static struct topology topology;
static struct topology_report report;

static int parse(const char *text)
{
	topology_free(&topology);
	return topology_parse(&topology, text, strlen(text), "test", &report);
}

static const struct topology_port *port_of(const char *node, unsigned int number)
{
	uint32_t row = topology_port(&topology, topology_find(&topology, node), number);

	assert_int_not_equal(row, TOPOLOGY_NONE);
	return &topology.ports[row];
}

/* Whether the text is refused with one error, in this line, that contains `words`. */
static void assert_refused(const char *text, uint32_t line, const char *words)
{
	assert_int_equal(parse(text), -EINVAL);
	assert_int_equal(topology.node_count, 0);
	assert_int_equal(report.errors, 1);
	assert_int_equal(report.remarks[0].line, line);
	assert_false(report.remarks[0].is_warning);
	if (!strstr(report.remarks[0].text, words))
		fail_msg("\"%s\" doesn't contain \"%s\"", report.remarks[0].text, words);
}

static void assert_warned(const char *text, uint32_t line, const char *words)
{
	assert_int_equal(parse(text), 0);
	assert_int_equal(report.count, 1);
	assert_int_equal(report.remarks[0].line, line);
	assert_true(report.remarks[0].is_warning);
	if (!strstr(report.remarks[0].text, words))
		fail_msg("\"%s\" doesn't contain \"%s\"", report.remarks[0].text, words);
}

#define PAIR "Switch 8 \"S\"\n[3] \"H\"[1]\n\nHca 1 \"H\"\n[1] \"S\"[3]\n"

static void test_pair(void **state)
{
	(void)state;
	assert_int_equal(parse(PAIR), 0);
	assert_int_equal(report.count, 0);
	assert_int_equal(topology.node_count, 2);
	assert_int_equal(topology.cable_count, 1);
	assert_int_equal(topology.nodes[0].kind, TOPOLOGY_SWITCH);
	assert_int_equal(topology.nodes[0].ports, 8);
	assert_int_equal(topology.nodes[1].kind, TOPOLOGY_CA);
	assert_ptr_equal(&topology.ports[port_of("S", 3)->peer], port_of("H", 1));
	assert_ptr_equal(&topology.ports[port_of("H", 1)->peer], port_of("S", 3));
	assert_int_equal(port_of("S", 4)->peer, TOPOLOGY_NONE);
	assert_string_equal(topology.title, "test");
	/* no port 0 of an adapter, none beyond the last */
	assert_int_equal(topology_port(&topology, 1, 0), TOPOLOGY_NONE);
	assert_int_equal(topology_port(&topology, 1, 2), TOPOLOGY_NONE);
	assert_int_equal(topology_port(&topology, 2, 1), TOPOLOGY_NONE);
	assert_int_equal(topology_find(&topology, "T"), TOPOLOGY_NONE);
}

static void test_settings_and_options(void **state)
{
	(void)state;
	assert_int_equal(parse("# Topology: a title\n"
			       "switchguid=0x500(501)\nvendid=0x2c9\ndevid=0x1234\n"
			       "sysimgguid=0x777\n"
			       "Switch\t8 \"S\"\t\t# \"the switch\" base port 0 lid 3 lmc 0\n"
			       "[3](900) \"H\"[1](a01) w=2 s=7 e=7\n"
			       "[4] \"H2\" w=8 # 12xEDR mtu=2048 delay=1.5us\r\n"
			       "\n"
			       "Switch 4 \"T\"\n\n"
			       "caguid=0xa00\nHca 2 \"H\" # ip=10.0.0.1/8\n"
			       "[1](a01) \"S\"[3] # lid 4 lmc 2 \"the switch\" lid 3 4xHDR\n\n"
			       "Hca 1 \"H2\" # \"second\" \n# a comment\n"
			       "[1] \"S\"[4] # 4xHDR ip=fd00::2/64\n"),
			 0);
	assert_int_equal(report.count, 0);
	assert_string_equal(topology.title, "a title");
	const struct topology_node *s = &topology.nodes[0];

	assert_string_equal(s->description, "the switch");
	assert_true(s->has_base_port0);
	assert_int_equal(s->guid, 0x500);
	assert_int_equal(s->system_guid, 0x777);
	assert_int_equal(s->vendor_id, 0x2c9);
	assert_int_equal(s->device_id, 0x1234);
	assert_int_equal(topology.ports[0].guid, 0x501);
	assert_int_equal(topology.ports[0].lid, 3);
	/* GUIDs count on, other settings are for one node */
	assert_int_equal(topology.nodes[1].guid, 0x501);
	assert_int_equal(topology.nodes[1].vendor_id, 0);
	assert_int_equal(topology.nodes[2].guid, 0xa00);
	assert_int_equal(topology.nodes[3].guid, 0xa03);
	assert_int_equal(port_of("H", 1)->lid, 4);
	assert_int_equal(port_of("H", 1)->lmc, 2);
	assert_int_equal(port_of("H", 1)->guid, 0xa01);
	assert_int_equal(port_of("S", 3)->width, 2);
	assert_int_equal(port_of("S", 3)->speed, TOPOLOGY_HDR);
	/* the ends of a cable agree on the lesser */
	assert_int_equal(port_of("S", 4)->width, 2);
	assert_int_equal(port_of("H2", 1)->speed, TOPOLOGY_EDR);
	assert_int_equal(port_of("H2", 1)->mtu, 4);
	assert_int_equal(port_of("H2", 1)->delay_ns, 1500);
	char text[TOPOLOGY_ADDRESS_BYTES];

	assert_string_equal(
		topology_address_text(text, &topology.addresses[port_of("H", 1)->address]),
		"10.0.0.1/8");
	assert_string_equal(
		topology_address_text(text, &topology.addresses[port_of("H2", 1)->address]),
		"fd00::2/64");
}

static void test_real_cluster(void **state)
{
	(void)state;
	/* as ibnetdiscover prints it, with a chassis, and two adapters of one description */
	static const char text[] =
		"#\n# Topology file: generated on Tue Jun  5 14:15:10 2007\n#\n"
		"# Initiated from node 0008f10403960558 port 0008f10403960559\n\n"
		"Chassis 0x8f1040041254a (guid 0x8f1040041254a)\n\n"
		"vendid=0x8f1\ndevid=0x5a06\nsysimgguid=0x8f1040041254b\n"
		"switchguid=0x8f1040041254a(8f1040041254a)\n"
		"Switch\t24 \"S-0008f1040041254a\"\t\t# \"SW6131 Voltaire\" enhanced port 0 lid 6 "
		"lmc 0\n"
		"[1][ext 13]\t\"H-0000000000000a00\"[1](a01) \t\t# \"node1 HCA-1\" lid 4 4xDDR\n"
		"[2][ext 14]\t\"H-0000000000000b00\"[1](b01) \t\t# \"spare\" lid 5 4xDDR\n"
		"[3]\t\"H-0000000000000c00\"[2](c02) \t\t# \"spare\" lid 7 1xSDR\n\n"
		"Non-Chassis Nodes\n\n"
		"caguid=0xa00\nCa\t1 \"H-0000000000000a00\"\t\t# \"node1 HCA-1\"\n"
		"[1](a01) \t\"S-0008f1040041254a\"[1]\t\t# lid 4 lmc 0 \"SW6131 Voltaire\" lid 6 "
		"4xDDR\n\n"
		"caguid=0xb00\nCa\t1 \"H-0000000000000b00\"\t\t# \"spare\"\n"
		"[1](b01) \t\"S-0008f1040041254a\"[2]\t\t# lid 5 lmc 0 \"SW6131 Voltaire\" lid 6 "
		"4xDDR\n\n"
		"caguid=0xc00\nCa\t2 \"H-0000000000000c00\"\t\t# \"spare\"\n"
		"[2](c02) \t\"S-0008f1040041254a\"[3]\t\t# lid 7 lmc 0 \"SW6131 Voltaire\" lid 6 "
		"1xSDR\n";

	assert_int_equal(parse(text), 0);
	assert_int_equal(report.count, 0);
	assert_int_equal(topology.cable_count, 3);
	assert_string_equal(topology.nodes[0].name, "SW6131 Voltaire");
	assert_string_equal(topology.nodes[1].name, "node1 HCA-1");
	assert_string_equal(topology.nodes[2].name, "H-0000000000000b00");
	assert_string_equal(topology.nodes[3].name, "H-0000000000000c00");
	assert_int_equal(topology_find(&topology, "node1 HCA-1"), 1);
	assert_int_equal(topology_find(&topology, "0xc00"), 3);
	assert_int_equal(topology_find(&topology, "spare"), TOPOLOGY_NONE);
	assert_false(topology.nodes[0].has_base_port0);
	assert_int_equal(port_of("node1 HCA-1", 1)->lid, 4);
	assert_int_equal(port_of("node1 HCA-1", 1)->speed, TOPOLOGY_DDR);
	assert_int_equal(port_of("0xc00", 2)->width, 1);
}

static void test_wrong_cables(void **state)
{
	(void)state;
	assert_refused("Switch 8 \"S\"\n[3] \"H\"[1]\n\nHca 1 \"H\"\n", 2,
		       "the cable's other end is missing: add `[1] \"S\"[3]` to \"H\" (line 4)");
	assert_refused("Switch 8 \"S\"\n[3] \"H\"[1]\n", 2, "\"H\", which isn't in the file");
	assert_refused(PAIR "\nSwitch 8 \"T\"\n[2] \"S\"[3]\n", 8,
		       "that port's (line 2) leads to port 1 of \"H\"");
	assert_refused("Switch 8 \"S\"\n[3] \"H\"[2]\n\nHca 1 \"H\"\n", 2, "has ports 1 to 1");
	assert_refused("Switch 8 \"S\"\n[3] \"S\"[3]\n", 2, "leads to itself");
	assert_refused("Switch 8 \"S\"\n[3] \"H\"[1]\n[3] \"H\"[1]\n\nHca 1 \"H\"\n[1] \"S\"[3]\n",
		       3, "has a cable already, in line 2");
	assert_refused("Switch 8 \"S\"\n[9] \"H\"[1]\n", 2, "has ports 1 to 8");
	assert_refused("Switch 8 \"S\"\n[0] \"H\"[1]\n", 2, "has ports 1 to 8");
}

static void test_wrong_lines(void **state)
{
	(void)state;
	assert_refused("", 0, "no node");
	assert_refused("Switch \"S\"\n", 1, "number of a switch's ports");
	assert_refused("Switch 255 \"S\"\n", 1, "1 to 254");
	assert_refused("Hca 0 \"S\"\n[1] \"S\"[3]\n", 1, "number of an adapter's ports");
	assert_refused("Switch 8 S\n", 1, "quotation marks");
	assert_refused("Switch 8 \"\"\n", 1, "printable UTF-8");
	assert_refused("Switch 8 \"\x1b[1m\"\n", 1, "printable UTF-8");
	assert_refused("Switch 8 \"\xc0\xaf\"\n", 1, "printable UTF-8");
	assert_refused(PAIR "\nHca 1 \"H\"\n", 7,
		       "second node with the name \"H\"; the first is in "
		       "line 4");
	assert_refused("[1] \"S\"[3]\n" PAIR, 1, "belongs to no node");
	assert_refused("Switch 8 \"S\"\n[3 \"H\"[1]\n", 2, "not a port's line");
	assert_refused("Switch 8 \"S\" # \"S\" lid 49152\n", 1, "LIDs end at 49151");
	assert_refused("Hca 1 \"S\" # ip=10.0.0.300\n", 1, "no IP address");
	assert_refused("include \"x\"\n" PAIR, 1, "only a topology that is a file");
	assert_refused("include x\n" PAIR, 1, "include \"piece.net\"");
	assert_refused("module=\"a@b\"\n" PAIR, 1, "without # and @");
	assert_refused("width=99\n" PAIR, 1, "no valid value in `width=99`");
	assert_refused("caguid=5\nHca 1 \"A\"\ncaguid=5\nHca 1 \"B\"\n", 4, "have one GUID");
	assert_refused("Switch 1 \"S\"\n[1] \"H\"[1] w=x\n\nHca 1 \"H\"\n[1] \"S\"[1]\n", 2, "w=x");
	assert_refused("Switch 1 \"S\"\n[1] \"H\"[1] # delay=2s\n\nHca 1 \"H\"\n[1] \"S\"[1]\n", 2,
		       "delay=2s");
	assert_refused("Switch 1 \"S\"\n[1] \"H\"[1] # mtu=3\n\nHca 1 \"H\"\n[1] \"S\"[1]\n", 2,
		       "mtu=3");
}

static void test_warnings(void **state)
{
	(void)state;
	assert_warned("Swich 8 \"T\"\n" PAIR, 1, "isn't understood");
	assert_warned("Switch 8 \"S\" # \"S\" lid 5\n\nSwitch 8 \"T\" # \"T\" lid 5\n", 3,
		      "have one LID, 5");
}

/* Many errors: the first ones are kept, all are counted, and warnings leave them room. */
static void test_many_errors(void **state)
{
	char text[8192] = "";

	(void)state;
	for (int i = 0; i < 100; i++)
		strcat(text, "what\n");
	strcat(text, "Switch 8 \"S\"\n");
	for (int i = 0; i < 100; i++)
		strcat(text, "[9] \"H\"[1]\n");
	assert_int_equal(parse(text), -EINVAL);
	assert_int_equal(report.errors, 100);
	assert_int_equal(report.count, TOPOLOGY_REMARKS);
	assert_int_equal(report.dropped, 200 - TOPOLOGY_REMARKS);
	assert_int_equal(report.remarks[TOPOLOGY_REMARKS / 2].line, 102);
}

static char *written(size_t *bytes)
{
	char *text;
	FILE *out = open_memstream(&text, bytes);

	topology_write(&topology, out);
	fclose(out);
	return text;
}

static void test_round_trip(void **state)
{
	size_t bytes, again_bytes;

	(void)state;
	test_settings_and_options(NULL);
	char *text = written(&bytes);

	assert_int_equal(parse(text), 0);
	assert_int_equal(report.count, 0);
	char *again = written(&again_bytes);

	assert_string_equal(text, again);
	assert_int_equal(topology.cable_count, 2);
	assert_int_equal(port_of("H2", 1)->delay_ns, 1500);
	assert_int_equal(port_of("H", 1)->lmc, 2);
	free(text);
	free(again);
}

static void test_numbering(void **state)
{
	char text[TOPOLOGY_ADDRESS_BYTES];

	(void)state;
	assert_int_equal(parse("Hca 1 \"A\"\n\nHca 1 \"B\" # ip=10.0.0.1/8\n\nHca 1 \"C\"\n\n"
			       "Switch 1 \"S\"\n"),
			 0);
	assert_int_equal(topology_number_adapters(&topology, "10.0.0.0/8"), 0);
	assert_string_equal(
		topology_address_text(text, &topology.addresses[port_of("A", 1)->address]),
		"10.0.0.2/8");
	assert_string_equal(
		topology_address_text(text, &topology.addresses[port_of("B", 1)->address]),
		"10.0.0.1/8");
	assert_string_equal(
		topology_address_text(text, &topology.addresses[port_of("C", 1)->address]),
		"10.0.0.3/8");
	assert_int_equal(port_of("S", 1)->address, TOPOLOGY_NONE);
	/* two addresses for three adapters */
	assert_int_equal(parse("Hca 1 \"A\"\n\nHca 1 \"B\"\n\nHca 1 \"C\"\n"), 0);
	assert_int_equal(topology_number_adapters(&topology, "10.0.0.0/30"), -EINVAL);
	assert_int_equal(topology_number_adapters(&topology, "10.0.0"), -EINVAL);
}

static int end(void **state)
{
	(void)state;
	topology_free(&topology);
	return 0;
}

/* A name gets its module's; a cable leads to an alias, which needn't lead back. */
static void test_modules(void **state)
{
	(void)state;
	assert_int_equal(parse("module=\"A\"\n"
			       "Switch 8 \"S\" # \"a switch\"\n[1] \"H\"[1]\n@[8] \"up\" w=1\n\n"
			       "Hca 1 \"H\"\n[1] \"S\"[1]\n\n"
			       "module=\"B\"\n"
			       "Switch 8 \"S\"\n[1] \"H\"[1]\n@[8] \"up\"\n@[7] \"other\"\n\n"
			       "Hca 1 \"H\"\n[1] \"S\"[1]\n\n"
			       "module=\"\"\n"
			       "Switch 4 \"top\"\n[1] \"A@up\"\n[2] \"B@up\"\n[3] \"A#H\"[1]\n"
			       "\nHca 1 \"H\"\n"),
			 -EINVAL);
	assert_int_equal(report.errors, 1); /* A#H has a cable already */
	assert_non_null(strstr(report.remarks[0].text, "but that port's"));
	assert_int_equal(parse("module=\"A\"\n"
			       "Switch 8 \"S\"\n[1] \"H\"[1]\n@[8] \"up\" w=1\n[2] \"@side\"\n\n"
			       "Hca 2 \"H\"\n[1] \"S\"[1]\n@[2] \"side\"\n\n"
			       "module=\"\"\nSwitch 4 \"top\"\n[1] \"A@up\"\n"),
			 0);
	assert_int_equal(topology.node_count, 3);
	assert_int_equal(topology.cable_count, 3);
	assert_ptr_equal(port_of("top", 1), &topology.ports[port_of("A#S", 8)->peer]);
	assert_int_equal(port_of("top", 1)->width, 1);
	assert_ptr_equal(port_of("A#S", 2), &topology.ports[port_of("A#H", 2)->peer]);
	/* Nobody leads to an alias: no cable. Two lead to it, or two ports have it: wrong. */
	assert_int_equal(parse("Switch 2 \"S\"\n@[1] \"up\"\n"), 0);
	assert_int_equal(topology.cable_count, 0);
	assert_refused("Switch 3 \"S\"\n@[1] \"up\"\n\nHca 1 \"H\"\n[1] \"@up\"\n\n"
		       "Hca 1 \"I\"\n[1] \"@up\"\n",
		       8, "leads to port 1 of \"H\"");
	assert_refused("Switch 3 \"S\"\n@[1] \"up\"\n@[2] \"up\"\n", 3, "two ports have the alias");
	assert_refused("Switch 3 \"S\"\n@[1] \"u@p\"\n", 2, "an alias is written");
	assert_refused("Hca 1 \"H\"\n[1] \"A@none\"\n", 2, "isn't in the file");
	topology_free(&topology);
}

static void piece_write(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static int piece_read(const char *folder, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	topology_free(&topology);
	return topology_read(&topology, path, &report);
}

static void test_included_files(void **state)
{
	static const char *const names[] = {"pod", "net", "none", "circle", "wrong", "bad", "pipe"};
	char folder[] = "/tmp/verbena-topology-XXXXXX";
	char path[256];

	(void)state;
	assert_non_null(mkdtemp(folder));
	piece_write(folder, "pod",
		    "Switch 4 \"L\"\n[1] \"H\"[1]\n@[4] \"up\"\n\nHca 1 \"H\"\n[1] \"L\"[1]\n");
	piece_write(folder, "net",
		    "module=\"a\"\ninclude \"pod\"\nmodule=\"b\"\ninclude \"pod\"\n"
		    "module=\"\"\nSwitch 4 \"S\"\n[1] \"a@up\"\n[2] \"b@up\"\n");
	assert_int_equal(piece_read(folder, "net"), 0);
	assert_int_equal(topology.node_count, 5);
	assert_int_equal(topology.cable_count, 4);
	assert_ptr_equal(port_of("S", 2), &topology.ports[port_of("b#L", 4)->peer]);
	assert_string_equal(topology.title, "net");
	piece_write(folder, "none", "\ninclude \"not-there\"\n");
	assert_int_equal(piece_read(folder, "none"), -EINVAL);
	assert_int_equal(report.remarks[0].line, 2);
	assert_non_null(strstr(report.remarks[0].text, "cannot include not-there: No such file"));
	piece_write(folder, "circle", "include \"circle\"\ninclude \"circle\"\n");
	assert_int_equal(piece_read(folder, "circle"), -EINVAL);
	assert_non_null(strstr(report.remarks[0].text, "files include one another"));
	/* Neither waits for a program that writes, nor reads a device without an end. */
	snprintf(path, sizeof(path), "%s/pipe", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	piece_write(folder, "none", "\ninclude \"pipe\"\n");
	assert_int_equal(piece_read(folder, "none"), -EINVAL);
	assert_non_null(strstr(report.remarks[0].text, "cannot include pipe: it is no file"));
	piece_write(folder, "none", "\ninclude \"/dev/zero\"\n");
	assert_int_equal(piece_read(folder, "none"), -EINVAL);
	assert_non_null(strstr(report.remarks[0].text, "cannot include /dev/zero: it is no file"));
	/* What is wrong in a piece is said with its file and line. */
	piece_write(folder, "bad", "\n\nHca x\n");
	piece_write(folder, "wrong", "Hca 1 \"H\"\n\ninclude \"bad\"\n");
	assert_int_equal(piece_read(folder, "wrong"), -EINVAL);
	assert_int_equal(report.remarks[0].line, 3);
	assert_memory_equal(report.remarks[0].text, "bad:3: ", 7);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(folder), 0);
	topology_free(&topology);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pair),	       cmocka_unit_test(test_settings_and_options),
		cmocka_unit_test(test_real_cluster),   cmocka_unit_test(test_wrong_cables),
		cmocka_unit_test(test_wrong_lines),    cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_many_errors),    cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_numbering),      cmocka_unit_test(test_modules),
		cmocka_unit_test(test_included_files),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
