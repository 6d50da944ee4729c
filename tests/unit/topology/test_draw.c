/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drawings: levels, that nodes don't lie upon one another and are within the picture, that hostile
 * names stay text, and which lines show what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topology/draw.h"
#include "topology/generate.h"
#include "topology/layout.h"

static struct topology topology;
static struct topology_report report;

static void make_tree(unsigned int ports, unsigned int hosts)
{
	assert_int_equal(topology_make_fat_tree(
				 &topology,
				 &(struct fat_tree_shape){.ports = ports, .hosts = hosts}, &report),
			 0);
}

/* No two nodes on one place, none outside. */
static void assert_layout(enum layout_kind kind)
{
	struct layout layout;

	assert_int_equal(layout_make(&layout, &topology), 0);
	assert_int_equal(layout.kind, kind);
	for (uint32_t i = 0; i < topology.node_count; i++) {
		assert_true(layout.x[i] > 0 && layout.x[i] < layout.width);
		assert_true(layout.y[i] > 0 && layout.y[i] < layout.height);
		for (uint32_t k = 0; k < i; k++) {
			float dx = layout.x[i] - layout.x[k], dy = layout.y[i] - layout.y[k];
			float apart = topology.nodes[i].kind == TOPOLOGY_SWITCH &&
						      topology.nodes[k].kind == TOPOLOGY_SWITCH
					      ? 18
					      : 6;

			if (dx * dx + dy * dy < apart * apart)
				fail_msg("%s and %s lie upon one another", topology.nodes[i].name,
					 topology.nodes[k].name);
		}
	}
	layout_free(&layout);
	topology_free(&topology);
}

static void test_levels(void **state)
{
	uint8_t levels[2000];

	(void)state;
	make_tree(8, 40);
	assert_int_equal(topology_levels(&topology, levels), 4);
	assert_int_equal(levels[topology_find(&topology, "H-39")], 0);
	assert_int_equal(levels[topology_find(&topology, "L-0")], 1);
	assert_int_equal(levels[topology_find(&topology, "A-3")], 2);
	assert_int_equal(levels[topology_find(&topology, "S-7")], 3);
	topology_free(&topology);
	/* a switch from which no adapter can be reached */
	assert_int_equal(topology_parse(&topology, "Switch 2 \"A\"\n", 13, "", &report), 0);
	assert_int_equal(topology_levels(&topology, levels), 2);
	topology_free(&topology);
}

static void test_layouts(void **state)
{
	(void)state;
	make_tree(8, 20);
	assert_layout(LAYOUT_LEVELS);
	make_tree(64, 1024);
	assert_layout(LAYOUT_LEVELS);
	make_tree(8, 100);
	assert_layout(LAYOUT_LEVELS);
	assert_int_equal(
		topology_make_torus(&topology, &(struct torus_shape){{5, 4, 3}, 2, 1}, &report), 0);
	assert_layout(LAYOUT_GRID);
	assert_int_equal(
		topology_make_dragonfly(&topology, &(struct dragonfly_shape){0, 4, 2, 2}, &report),
		0);
	assert_layout(LAYOUT_CIRCLE);
	assert_int_equal(topology_make_single(&topology, 200, 0, &report), 0);
	assert_layout(LAYOUT_LEVELS);
	/* nodes without cables */
	assert_int_equal(topology_parse(&topology, "Hca 1 \"A\"\n\nHca 1 \"B\"\n", 21, "", &report),
			 0);
	assert_layout(LAYOUT_LEVELS);
}

static char *drawn(const struct drawing *drawing, int (*draw)(const struct drawing *, FILE *))
{
	char *text;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_int_equal(draw(drawing, out), 0);
	fclose(out);
	return text;
}

static unsigned int count_of(const char *text, const char *what)
{
	unsigned int count = 0;

	for (; (text = strstr(text, what)); text++)
		count++;
	return count;
}

static void test_states(void **state)
{
	struct drawing drawing = {.topology = &topology};
	struct drawing_port *ports;
	uint32_t port, from;
	char *text;

	(void)state;
	make_tree(8, 20);
	text = drawn(&drawing, drawing_svg);
	assert_int_equal(count_of(text, "<path class=\"l"), 20 + 15);
	assert_null(strstr(text, "idle"));
	free(text);
	ports = calloc(topology.port_count, sizeof(*ports));
	for (uint32_t i = 0; i < topology.port_count; i++)
		ports[i].state = DRAWING_ACTIVE;
	drawing.ports = ports;
	from = topology_find(&topology, "L-0");
	port = topology_port(&topology, from, 1);
	ports[port].sent_bytes = 1000000;
	ports[port + 1].state = DRAWING_DOWN;
	ports[topology.ports[port + 2].peer].state = DRAWING_STARTING;
	ports[port + 3].errors = 7;
	ports[port + 4].is_on_route = true;
	text = drawn(&drawing, drawing_svg);
	/* one each, and the legend's */
	assert_int_equal(count_of(text, "class=\"l t4\""), 2);
	assert_int_equal(count_of(text, "class=\"l x\""), 2);
	assert_int_equal(count_of(text, "class=\"l i\""), 2);
	assert_int_equal(count_of(text, "class=\"l r\""), 2);
	assert_int_equal(count_of(text, "class=\"e\""), 2);
	assert_non_null(strstr(text, "1.0 MB"));
	assert_non_null(strstr(text, "errors: 0 at port 1, 7 at port 4"));
	free(text);
	free(ports);
	topology_free(&topology);
}

static void test_hostile_names(void **state)
{
	static const char file[] = "Hca 1 \"</title><script>alert(1)</script>&\" # \"'<b>\"\n";
	struct drawing drawing = {.topology = &topology, .subtitle = "<i>"};
	char *text;

	(void)state;
	assert_int_equal(topology_parse(&topology, file, strlen(file), "<title>", &report), 0);
	text = drawn(&drawing, drawing_html);
	assert_int_equal(count_of(text, "<script>"), 1);
	assert_int_equal(count_of(text, "<b>"), 0);
	assert_int_equal(count_of(text, "<i>"), 0);
	assert_non_null(strstr(text, "&lt;/title&gt;&lt;script&gt;alert(1)"));
	free(text);
	topology_free(&topology);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_hostile_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
