/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A topology as SVG: cables, then what carries traffic or is broken, then nodes, each with a
 * <title> that browsers show and that draw_html.c's page makes a panel of. No state. One thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "topology/draw.h"
#include "topology/layout.h"
#include "topology/links.h"
#include "topology/picture.h"

#define SHOWN_CABLES 6u

static const char style[] =
	".bg{fill:#fbfbfd}.l{fill:none;stroke:#8fa3b8;stroke-width:1.1}"
	".t1{stroke:#4c8fd6}.t2{stroke:#1f9e8f;stroke-width:1.5}"
	".t3{stroke:#e0952b;stroke-width:2}.t4{stroke:#d1495b;stroke-width:2.6}"
	".i{stroke:#b58a00;stroke-dasharray:5 3}.x{stroke:#c1121f;stroke-width:1.8;"
	"stroke-dasharray:2 3}.r{stroke:#7b2cbf;stroke-width:4;stroke-opacity:.9;"
	"stroke-linecap:round}.e{fill:#c1121f}"
	".s rect{fill:#23395b;stroke:#16263f}.s text{fill:#fff;font-size:11px}"
	".h rect{fill:#e8f0fa;stroke:#6d8fb8}.h text{fill:#23395b;font-size:11px}"
	"circle.h{fill:#5f8dc4}circle.u,.u rect{fill:#c9ccd3;stroke:#9a9fa8}.u text{fill:#70757f}"
	".o rect{stroke:#7b2cbf;stroke-width:3}circle.o{fill:#7b2cbf}"
	".c{fill:#1b263b;font-weight:600}.d{fill:#5c6779}"
	"text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif}";

/* Texts ---------------------------------------------------------------------------------------- */

void picture_text(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc(*text, out);
		}
}

/* At most `most` characters of a name; a longer one ends in a point that stands for the rest. */
static void picture_label(FILE *out, const char *name, unsigned int most)
{
	char text[TOPOLOGY_NAME_MAX + 1];
	size_t end = 0, characters = 0;

	while (end < TOPOLOGY_NAME_MAX && name[end]) {
		if (((unsigned char)name[end] & 0xc0) != 0x80 && ++characters > most)
			break;
		end++;
	}
	memcpy(text, name, end);
	text[end] = '\0';
	picture_text(out, text);
	if (name[end])
		fputs("…", out);
}

static const char *bytes_text(char *text, size_t size, uint64_t bytes)
{
	static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1000;
		unit++;
	}
	snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

static void cable_title(const struct drawing *drawing, uint32_t port, FILE *out)
{
	static const char *const states[] = {"", ", active", ", waits for a subnet manager",
					     ", down"};
	const struct topology *topology = drawing->topology;
	const struct topology_port *a = &topology->ports[port], *b = &topology->ports[a->peer];
	const struct drawing_port *left, *right;
	char sent[24], received[24];

	fprintf(out, "\nport %u – port %u", a->number, b->number);
	if (a->width || a->speed)
		fprintf(out, ", %ux%s", topology_lanes(a->width ? a->width : 2),
			topology_speed_name(a->speed ? a->speed : TOPOLOGY_HDR));
	if (!drawing->ports)
		return;
	left = &drawing->ports[port];
	right = &drawing->ports[a->peer];
	fprintf(out, "%s\n  → %s, %" PRIu64 " packets, ← %s, %" PRIu64 " packets",
		states[left->state > right->state ? left->state : right->state],
		bytes_text(sent, sizeof(sent), left->sent_bytes), left->sent_packets,
		bytes_text(received, sizeof(received), right->sent_bytes), right->sent_packets);
	if (drawing->is_live && left->bytes_per_second + right->bytes_per_second)
		fprintf(out, "\n  now → %s/s, ← %s/s",
			bytes_text(sent, sizeof(sent), left->bytes_per_second),
			bytes_text(received, sizeof(received), right->bytes_per_second));
	if (left->errors + right->errors)
		fprintf(out, "\n  errors: %" PRIu64 " at port %u, %" PRIu64 " at port %u",
			left->errors, a->number, right->errors, b->number);
}

static void link_title(const struct drawing *drawing, const struct drawn_links *links,
		       const struct drawn_link *link, FILE *out)
{
	const struct topology *topology = drawing->topology;

	fputs("<title>", out);
	picture_text(out, topology->nodes[link->a].name);
	fputs(" – ", out);
	picture_text(out, topology->nodes[link->b].name);
	if (link->cables > 1)
		fprintf(out, ", %u cables", link->cables);
	for (uint32_t i = 0; i < link->cables && i < SHOWN_CABLES; i++)
		cable_title(drawing, links->cables[link->first + i], out);
	if (link->cables > SHOWN_CABLES)
		fprintf(out, "\n(%u more)", link->cables - SHOWN_CABLES);
	fputs("</title>", out);
}

static void node_title(const struct drawing *drawing, uint32_t node, FILE *out)
{
	static const char *const kinds[] = {[TOPOLOGY_CA] = "adapter",
					    [TOPOLOGY_SWITCH] = "switch",
					    [TOPOLOGY_ROUTER] = "router"};
	const struct topology *topology = drawing->topology;
	const struct topology_node *row = &topology->nodes[node];
	unsigned int cables = 0;
	char address[TOPOLOGY_ADDRESS_BYTES];

	for (unsigned int i = 1; i <= row->ports; i++)
		cables += topology->ports[row->first_port + i].peer != TOPOLOGY_NONE;
	fputs("<title>", out);
	picture_text(out, row->name);
	if (strcmp(row->name, row->description) != 0) {
		fputs("\n", out);
		picture_text(out, row->description);
	}
	fprintf(out, "\n%s, %u port%s, %u cable%s", kinds[row->kind], row->ports,
		row->ports == 1 ? "" : "s", cables, cables == 1 ? "" : "s");
	for (unsigned int i = 1; row->kind != TOPOLOGY_SWITCH && i <= row->ports; i++) {
		uint32_t ip = topology->ports[row->first_port + i].address;

		if (ip != TOPOLOGY_NONE)
			fprintf(out, "\n%s",
				topology_address_text(address, &topology->addresses[ip]));
	}
	if (drawing->nodes && drawing->nodes[node].lid)
		fprintf(out, "\nLID %u", drawing->nodes[node].lid);
	if (drawing->nodes && drawing->nodes[node].is_off)
		fputs("\nwithout power", out);
	if (drawing->nodes && drawing->nodes[node].is_mute)
		fputs("\nits management agents don't answer", out);
	fputs("</title>", out);
}

/* Cables --------------------------------------------------------------------------------------- */

static void link_path(const struct layout *layout, const struct drawn_link *link, bool is_dense,
		      FILE *out)
{
	float ax = layout->x[link->a], ay = layout->y[link->a];
	float bx = layout->x[link->b], by = layout->y[link->b];
	float dx = bx - ax, dy = by - ay, length = hypotf(dx, dy);
	float pull = 0.1f + 0.55f * length / layout->width; /* towards the circle's centre */
	bool is_host = layout->levels[link->a] == 0 || layout->levels[link->b] == 0;

	if (layout->kind == LAYOUT_CIRCLE && !is_host)
		fprintf(out, "d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"", ax, ay,
			(ax + bx) / 2 * (1 - pull) + layout->width / 2 * pull,
			(ay + by) / 2 * (1 - pull) + layout->height / 2 * pull, bx, by);
	else if (layout->kind == LAYOUT_GRID && !is_host && length > 170)
		fprintf(out, "d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"", ax, ay,
			(ax + bx) / 2 + dy * 0.09f, (ay + by) / 2 - dx * 0.09f, bx, by);
	else if (layout->kind == LAYOUT_LEVELS && fabsf(dy) > 40 && !is_dense)
		fprintf(out, "d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"", ax, ay, ax,
			ay + dy * 0.45f, bx, by - dy * 0.45f, bx, by);
	else
		fprintf(out, "d=\"M%.1f %.1fL%.1f %.1f\"", ax, ay, bx, by);
}

/* Whether the cable needs no line: an adapter that is drawn as a dot at its switch. */
static bool link_is_hidden(const struct layout *layout, const struct drawn_link *link)
{
	uint32_t host = layout->levels[link->a] == 0 ? link->a : link->b;

	return !layout->has_boxes && layout->levels[host] == 0 && !link->is_on_route &&
	       (layout->home[host] == link->a || layout->home[host] == link->b);
}

static void link_draw(const struct drawing *drawing, const struct layout *layout,
		      const struct drawn_links *links, const struct drawn_link *link, FILE *out)
{
	unsigned int load = drawn_link_load(links, link);

	fprintf(out, "<path class=\"l%s", link->is_on_route ? " r" : "");
	if (link->down)
		fputs(" x", out);
	else if (link->starting)
		fputs(" i", out);
	else if (load)
		fprintf(out, " t%u", load);
	fprintf(out, "\" data-a=\"%u\" data-b=\"%u\" ", link->a, link->b);
	if (link->cables > 1 && !link->is_on_route && !load && !link->down)
		fprintf(out, "style=\"stroke-width:%.1f\" ",
			link->cables < 8 ? 0.9f + 0.35f * (float)link->cables : 4.0f);
	link_path(layout, link, links->count > 150 && !link->is_on_route, out);
	fputc('>', out);
	link_title(drawing, links, link, out);
	fputs("</path>\n", out);
	if (link->errors)
		fprintf(out, "<circle class=\"e\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n",
			(layout->x[link->a] + layout->x[link->b]) / 2,
			(layout->y[link->a] + layout->y[link->b]) / 2);
}

/* How far forward a cable is drawn: plain ones first, the route last. */
static unsigned int link_layer(const struct drawn_links *links, const struct drawn_link *link)
{
	return link->is_on_route						 ? 2
	       : link->down || link->errors || drawn_link_load(links, link) >= 3 ? 1
										 : 0;
}

static double layer_opacity(unsigned int layer, double plain)
{
	if (layer == 2)
		return 0.95;
	if (layer == 1)
		return plain < 0.25 ? 0.7 : 0.95;
	return plain < 0.2 ? 0.2 : plain;
}

static void links_draw(const struct drawing *drawing, const struct layout *layout,
		       const struct drawn_links *links, FILE *out)
{
	double opacity = links->count < 60 ? 0.85 : 9 / sqrt((double)links->count);

	for (unsigned int layer = 0; layer < 3; layer++) {
		fprintf(out, "<g class=\"k%u\" stroke-opacity=\"%.2f\">\n", layer,
			layer_opacity(layer, opacity));
		for (uint32_t i = 0; i < links->count; i++)
			if (link_layer(links, &links->links[i]) == layer &&
			    !link_is_hidden(layout, &links->links[i]))
				link_draw(drawing, layout, links, &links->links[i], out);
		fputs("</g>\n", out);
	}
}

/* Nodes ---------------------------------------------------------------------------------------- */

/* Whether no cable of an adapter works. */
static bool node_is_down(const struct drawing *drawing, uint32_t node)
{
	const struct topology_node *row = &drawing->topology->nodes[node];

	if (drawing->nodes && drawing->nodes[node].is_off)
		return true;
	if (!drawing->ports || row->kind == TOPOLOGY_SWITCH)
		return false;
	for (unsigned int i = 1; i <= row->ports; i++)
		if (drawing->topology->ports[row->first_port + i].peer != TOPOLOGY_NONE &&
		    drawing->ports[row->first_port + i].state != DRAWING_DOWN)
			return false;
	return true;
}

static void node_draw(const struct drawing *drawing, const struct layout *layout, uint32_t node,
		      FILE *out)
{
	bool is_switch = drawing->topology->nodes[node].kind == TOPOLOGY_SWITCH;
	float x = layout->x[node], y = layout->y[node];
	char class[16];

	snprintf(class, sizeof(class), "%s%s%s", is_switch ? "s" : "h",
		 node_is_down(drawing, node) ? " u" : "",
		 drawing->nodes && drawing->nodes[node].is_on_route ? " o" : "");
	if (!is_switch && !layout->has_boxes) {
		fprintf(out, "<circle id=\"n%u\" class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\">",
			node, class, x, y);
		node_title(drawing, node, out);
		fputs("</circle>\n", out);
		return;
	}
	fprintf(out,
		"<g id=\"n%u\" class=\"%s\" transform=\"translate(%.1f %.1f)\"><rect x=\"-23\" "
		"y=\"-10\" width=\"46\" height=\"20\" rx=\"%d\"/><text y=\"4\" "
		"text-anchor=\"middle\">",
		node, class, x, y, is_switch ? 4 : 10);
	picture_label(out, drawing->topology->nodes[node].name, 7);
	fputs("</text>", out);
	node_title(drawing, node, out);
	fputs("</g>\n", out);
}

/* The whole ------------------------------------------------------------------------------------ */

static void legend_entry(FILE *out, float x, const char *class, const char *text)
{
	fprintf(out,
		"<path class=\"l %s\" d=\"M%.0f -4h26\"/><text class=\"d\" x=\"%.0f\" "
		"font-size=\"12\">%s</text>",
		class, x, x + 32, text);
}

/* Title and legend, in units of a picture of ordinary size. */
static void head_draw(const struct drawing *drawing, float scale, FILE *out)
{
	const struct topology *topology = drawing->topology;

	fprintf(out,
		"<g transform=\"scale(%.2f)\"><text class=\"c\" x=\"24\" y=\"34\" "
		"font-size=\"20\">",
		scale);
	picture_text(out, topology->title);
	fputs("</text><text class=\"d\" x=\"24\" y=\"54\" font-size=\"13\">", out);
	if (drawing->subtitle)
		picture_text(out, drawing->subtitle);
	else
		fprintf(out, "%u nodes, %u cables", topology->node_count, topology->cable_count);
	fputs("</text>", out);
	if (drawing->ports) {
		fputs("<g transform=\"translate(24 78)\">", out);
		legend_entry(out, 0, "", "idle");
		legend_entry(out, 74, "t1", "little traffic");
		legend_entry(out, 200, "t3", "much");
		legend_entry(out, 286, "t4", "most");
		legend_entry(out, 366, "i", "not active");
		legend_entry(out, 474, "x", "down");
		legend_entry(out, 556, "r", "route");
		fputs("<circle class=\"e\" cx=\"654\" cy=\"-4\" r=\"4\"/><text class=\"d\" "
		      "x=\"666\" font-size=\"12\">errors</text></g>",
		      out);
	}
	fputs("</g>\n", out);
}

static void svg_draw(const struct drawing *drawing, const struct layout *layout,
		     const struct drawn_links *links, FILE *out)
{
	float width = layout->width > 760 ? layout->width : 760;
	float scale = width > 1500 ? width / 1500 : 1, head = (drawing->ports ? 96 : 70) * scale;

	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
		"width=\"%.0f\" height=\"%.0f\">\n<style>%s</style>\n"
		"<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n",
		width, layout->height + head, width, layout->height + head, style);
	head_draw(drawing, scale, out);
	fprintf(out, "<g transform=\"translate(%.1f %.1f)\">\n", (width - layout->width) / 2, head);
	links_draw(drawing, layout, links, out);
	for (uint32_t i = 0; i < drawing->topology->node_count; i++)
		node_draw(drawing, layout, i, out);
	fputs("</g>\n</svg>\n", out);
}

int drawing_svg(const struct drawing *drawing, FILE *out)
{
	struct drawn_links links = {0};
	struct layout layout;
	int err = layout_make(&layout, drawing->topology);

	if (!err)
		err = drawn_links_make(&links, drawing);
	if (!err)
		svg_draw(drawing, &layout, &links, out);
	drawn_links_free(&links);
	layout_free(&layout);
	return err;
}
