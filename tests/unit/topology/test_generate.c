/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Generated topologies: numbers of nodes and cables, that all nodes are connected, distances, and
 * that the file that is written of one is read without a remark.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topology/generate.h"

static struct topology topology;
static struct topology_report report;

/* The longest way from a node in cables; all nodes must be on one. */
static unsigned int farthest(uint32_t from)
{
	unsigned int *distance = malloc(topology.node_count * sizeof(*distance));
	uint32_t *queue = malloc(topology.node_count * sizeof(*queue));
	uint32_t head = 0, tail = 0;

	memset(distance, 0xff, topology.node_count * sizeof(*distance));
	distance[from] = 0;
	queue[tail++] = from;
	while (head < tail) {
		const struct topology_node *node = &topology.nodes[queue[head]];

		for (unsigned int i = 1; i <= node->ports; i++) {
			uint32_t peer = topology.ports[node->first_port + i].peer;

			if (peer == TOPOLOGY_NONE ||
			    distance[topology.ports[peer].node] != UINT32_MAX)
				continue;
			distance[topology.ports[peer].node] = distance[queue[head]] + 1;
			queue[tail++] = topology.ports[peer].node;
		}
		head++;
	}
	assert_int_equal(tail, topology.node_count);
	unsigned int most = distance[queue[tail - 1]];

	free(distance);
	free(queue);
	return most;
}

/* Writes the topology and reads it again. */
static void round_trip(void)
{
	uint32_t nodes = topology.node_count, cables = topology.cable_count;
	char *text;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	topology_write(&topology, out);
	fclose(out);
	topology_free(&topology);
	assert_int_equal(topology_parse(&topology, text, bytes, "", &report), 0);
	assert_int_equal(report.count, 0);
	assert_int_equal(topology.node_count, nodes);
	assert_int_equal(topology.cable_count, cables);
	free(text);
}

static void assert_shape(uint32_t nodes, uint32_t cables, unsigned int diameter)
{
	assert_int_equal(topology.node_count, nodes);
	assert_int_equal(topology.cable_count, cables);
	assert_int_equal(topology.nodes[0].kind, TOPOLOGY_CA);
	assert_int_equal(farthest(0), diameter);
	round_trip();
	assert_int_equal(farthest(0), diameter);
	topology_free(&topology);
}

static void make_tree(struct fat_tree_shape shape)
{
	int err = topology_make_fat_tree(&topology, &shape, &report);

	if (err)
		fail_msg("%d: %s", err, report.remarks[0].text);
}

static void test_fat_trees(void **state)
{
	(void)state;
	make_tree((struct fat_tree_shape){.ports = 4});
	assert_shape(8 + 4 + 2, 16, 4);
	make_tree((struct fat_tree_shape){.ports = 36, .hosts = 18 * 6, .spines = 3});
	assert_shape(117, 18 * 6 * 2, 4);
	/* uneven: the last leaf isn't full */
	make_tree((struct fat_tree_shape){.ports = 36, .hosts = 100});
	assert_shape(100 + 6 + 3, 100 + 108, 4);
	make_tree((struct fat_tree_shape){.ports = 4, .levels = 3});
	assert_shape(16 + 8 + 8 + 4, 16 + 16 + 16, 6);
	/* three levels because two can't */
	make_tree((struct fat_tree_shape){.ports = 8, .hosts = 40});
	assert_shape(40 + 12 + 12 + 8, 40 + 48 + 48, 6);
	/* oversubscribed */
	make_tree((struct fat_tree_shape){.ports = 8, .hosts_per_leaf = 6, .leaves = 4});
	assert_shape(24 + 4 + 1, 24 + 8, 4);
}

static void test_large_fat_tree(void **state)
{
	(void)state;
	make_tree((struct fat_tree_shape){.ports = 64, .levels = 3, .pods = 10});
	assert_shape(11040, 30720, 6);
}

static void test_tori(void **state)
{
	(void)state;
	assert_int_equal(
		topology_make_torus(&topology, &(struct torus_shape){{4, 4, 0}, 1, 1}, &report), 0);
	assert_int_not_equal(topology_find(&topology, "S-3-2"), TOPOLOGY_NONE);
	assert_shape(32, 16 + 32, 1 + 4 + 1);
	assert_int_equal(
		topology_make_torus(&topology, &(struct torus_shape){{3, 4, 5}, 2, 2}, &report), 0);
	assert_int_not_equal(topology_find(&topology, "S-2-3-4"), TOPOLOGY_NONE);
	assert_shape(180, 120 + 3 * 60 * 2, 1 + 1 + 2 + 2 + 1);
	/* two in a circle have one cable, one has none */
	assert_int_equal(
		topology_make_torus(&topology, &(struct torus_shape){{2, 2, 1}, 1, 1}, &report), 0);
	assert_shape(8, 4 + 4, 4);
}

static void test_dragonflies(void **state)
{
	(void)state;
	/* as many groups as can be: each pair has one cable */
	assert_int_equal(
		topology_make_dragonfly(&topology, &(struct dragonfly_shape){0, 4, 2, 2}, &report),
		0);
	assert_shape(72 + 36, 72 + 9 * 6 + 36, 5);
	/* fewer groups: several cables for each pair */
	assert_int_equal(
		topology_make_dragonfly(&topology, &(struct dragonfly_shape){3, 4, 2, 2}, &report),
		0);
	assert_shape(24 + 12, 24 + 3 * 6 + 3 * 4, 4);
	assert_int_equal(
		topology_make_dragonfly(&topology, &(struct dragonfly_shape){1, 4, 0, 1}, &report),
		0);
	assert_shape(8, 4 + 6, 3);
}

static void test_single(void **state)
{
	(void)state;
	assert_int_equal(topology_make_single(&topology, 20, 36, &report), 0);
	assert_shape(21, 20, 2);
}

#define assert_refused(call, words)                                                     \
	do {                                                                            \
		assert_int_equal(call, -EINVAL);                                        \
		assert_int_equal(report.errors, 1);                                     \
		if (!strstr(report.remarks[0].text, words))                             \
			fail_msg("\"%s\" lacks \"%s\"", report.remarks[0].text, words); \
		assert_int_equal(topology.node_count, 0);                               \
	} while (0)

static void test_refusals(void **state)
{
	(void)state;
	assert_refused(topology_make_single(&topology, 255, 0, &report), "1 to 254");
	assert_refused(topology_make_single(&topology, 9, 8, &report), "hosts: 9");
	assert_refused(
		topology_make_fat_tree(&topology, &(struct fat_tree_shape){.ports = 1}, &report),
		"ports of a switch");
	assert_refused(topology_make_fat_tree(&topology,
					      &(struct fat_tree_shape){.ports = 64, .levels = 3},
					      &report),
		       "switches and hosts");
	assert_refused(topology_make_fat_tree(
			       &topology,
			       &(struct fat_tree_shape){.ports = 8, .levels = 2, .hosts = 33},
			       &report),
		       "leaves under spines of two levels: 9");
	assert_refused(topology_make_fat_tree(&topology,
					      &(struct fat_tree_shape){.ports = 8, .spines = 1},
					      &report),
		       "cables that a spine needs: 32");
	assert_refused(topology_make_torus(&topology, &(struct torus_shape){{300, 300, 300}, 1, 1},
					   &report),
		       "switches and hosts");
	assert_refused(
		topology_make_dragonfly(&topology, &(struct dragonfly_shape){20, 4, 2, 2}, &report),
		"groups: 20; possible: 1 to 9");
}

static void test_links(void **state)
{
	(void)state;
	assert_int_equal(topology_make_single(&topology, 2, 8, &report), 0);
	topology_set_links(&topology, 2, TOPOLOGY_EDR, 5, 200);
	round_trip();
	uint32_t row = topology_port(&topology, topology_find(&topology, "H-1"), 1);

	assert_int_equal(topology.ports[row].speed, TOPOLOGY_EDR);
	assert_int_equal(topology.ports[row].width, 2);
	assert_int_equal(topology.ports[row].mtu, 5);
	assert_int_equal(topology.ports[row].delay_ns, 200);
	topology_free(&topology);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fat_trees), cmocka_unit_test(test_large_fat_tree),
		cmocka_unit_test(test_tori),	  cmocka_unit_test(test_dragonflies),
		cmocka_unit_test(test_single),	  cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
