/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric show` and `trace`: what a fabric has, pictures of it, and where packets go. No
 * state. One thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/quantity.h"
#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/fabric_view.h"
#include "cli/table.h"

/* Show ----------------------------------------------------------------------------------------- */

struct show_wish {
	struct fabric_picture picture;
	const char *file, *from, *to, *serve;
	bool json, links;
};

enum { SHOW_SVG = 256, SHOW_HTML, SHOW_FILE, SHOW_FROM, SHOW_TO, SHOW_SERVE };

/* Whether --serve has a port or a path; if not, a message has been printed. */
static bool place_is_good(const char *text)
{
	uint32_t port;

	if (strchr(text, '/') || quantity_number32(text, 0, UINT16_MAX, &port))
		return true;
	cli_error(
		"--serve is a port from 0 (any) to 65535, or the path of a socket, with a slash in "
		"it, not `%s`",
		text);
	return false;
}

static bool show_take(struct show_wish *wish, int option)
{
	switch (option) {
	case 'j':
		wish->json = true;
		return true;
	case 'l':
		wish->links = true;
		return true;
	case SHOW_SVG:
		wish->picture.svg = optarg;
		return true;
	case SHOW_HTML:
		wish->picture.html = optarg;
		return true;
	case SHOW_FILE:
		wish->file = optarg;
		return true;
	case SHOW_FROM:
		wish->from = optarg;
		return true;
	case SHOW_TO:
		wish->to = optarg;
		return true;
	case SHOW_SERVE:
		wish->serve = optarg;
		return place_is_good(optarg);
	default:
		return false;
	}
}

static int show_file(const struct show_wish *wish)
{
	struct fabric_picture picture = wish->picture;
	struct topology topology;
	int code = fabric_topology_read(wish->file, false, &topology);

	if (code != CLI_OK)
		return code;
	picture.topology = &topology;
	code = fabric_picture_write(&picture);
	topology_free(&topology);
	return code;
}

/* The picture of the fabric that is up, with what its counters say. */
static int show_picture(const struct show_wish *wish)
{
	struct fabric_picture picture = wish->picture;
	json_t *reply = NULL, *status = NULL, *trace = NULL;
	int code = fabric_request(json_pack("{s:s}", "op", "status"), false, &status);

	if (code == CLI_OK && isatty(STDERR_FILENO) && ctl_integer(status, "nodes") > 2000)
		fputs("reading counters ...\n", stderr);
	if (code == CLI_OK)
		code = fabric_request(json_pack("{s:s, s:b}", "op", "topology", "counters", 1),
				      false, &reply);
	if (code == CLI_OK && wish->from)
		code = fabric_request(json_pack("{s:s, s:s, s:s}", "op", "trace", "from",
						wish->from, "to", wish->to),
				      false, &trace);
	if (code == CLI_OK) {
		picture.reply = reply;
		picture.trace = trace;
		picture.title = ctl_string(status, "title");
		code = fabric_picture_write(&picture);
	}
	json_decref(trace);
	json_decref(reply);
	json_decref(status);
	return code;
}

static int show_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option known[] = {
		{"svg", required_argument, NULL, SHOW_SVG},
		{"html", required_argument, NULL, SHOW_HTML},
		{"topology", required_argument, NULL, SHOW_FILE},
		{"from", required_argument, NULL, SHOW_FROM},
		{"to", required_argument, NULL, SHOW_TO},
		{"serve", required_argument, NULL, SHOW_SERVE},
		{"links", no_argument, NULL, 'l'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct show_wish wish = {0};
	bool draws;
	int option;

	while ((option = getopt_long(argc, argv, "ljh", known, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (!show_take(&wish, option))
			return cli_usage(self);
	}
	draws = wish.picture.svg || wish.picture.html;
	if (optind < argc)
		cli_error("show takes options only; `verbena fabric node NODE` shows a node");
	else if (wish.serve && (draws || wish.file || wish.from || wish.to || wish.json))
		cli_error("--serve goes alone: the page has its own choice of a route");
	else if (wish.serve)
		return fabric_serve(wish.serve);
	else if (!draws && (wish.file || wish.from || wish.to))
		cli_error("--topology, --from and --to are for pictures: add --svg FILE or "
			  "--html FILE");
	else if (!wish.from != !wish.to || (wish.from && wish.file))
		cli_error("a route needs --from and --to, and a fabric that is up");
	else if (wish.file)
		return show_file(&wish);
	else if (draws)
		return show_picture(&wish);
	else
		return wish.links ? fabric_links_show(wish.json) : fabric_nodes_show(wish.json);
	return cli_usage(self);
}

const struct cli_command fabric_show = {
	.name = "fabric show",
	.summary = "list nodes or cables, or draw the fabric",
	.help = "usage: verbena fabric show [--links] [--json]\n"
		"       verbena fabric show --svg FILE | --html FILE [--from NODE --to NODE]\n"
		"       verbena fabric show --svg FILE | --html FILE --topology FILE\n"
		"       verbena fabric show --serve PORT | PATH\n\n"
		"Lists the nodes of the fabric, or draws it: levels, traffic, errors and states "
		"of\n"
		"all cables. The page for browsers needs nothing else: the mouse moves and scales\n"
		"it, and shows what is under it.\n\n"
		"  -l, --links          cables instead of nodes\n"
		"      --svg FILE       a picture (`-': standard output)\n"
		"      --html FILE      a page\n"
		"      --from NODE      with --to: the route between two nodes stands out\n"
		"      --to NODE\n"
		"      --topology FILE  draw a topology file; no fabric is needed\n"
		"      --serve WHERE    a page that follows the fabric, at a port of 127.0.0.1 (0: "
		"any)\n"
		"                       or at a Unix socket with this path, until a signal comes\n"
		"  -j, --json           for scripts\n"
		"  -h, --help           show this\n",
	.run = show_run,
};

/* Trace ---------------------------------------------------------------------------------------- */

struct trace_wish {
	uint32_t lid, mlid, sl, pkey;
	bool json;
};

static bool trace_take(struct trace_wish *wish, int option)
{
	switch (option) {
	case 'l':
		return cli_number32("--lid", 1, 0xbfff, &wish->lid);
	case 'm':
		return cli_number32("--mlid", 0xc000, 0xfffe, &wish->mlid);
	case 's':
		return cli_number32("--sl", 0, 15, &wish->sl);
	case 'p':
		return cli_number32("--pkey", 1, 0xffff, &wish->pkey);
	case 'j':
		wish->json = true;
		return true;
	default:
		return false;
	}
}

static void trace_print(const json_t *reply)
{
	bool colour = table_colour_wanted(stdout), ok = !strcmp(ctl_string(reply, "result"), "ok");
	const json_t *hop, *end;
	size_t i;

	json_array_foreach(json_object_get(reply, "hops"), i, hop)
		printf("%s/%" JSON_INTEGER_FORMAT " -> %s/%" JSON_INTEGER_FORMAT
		       "  (VL %" JSON_INTEGER_FORMAT ")\n",
		       ctl_string(hop, "from"), ctl_integer(hop, "from_port"),
		       ctl_string(hop, "to"), ctl_integer(hop, "to_port"), ctl_integer(hop, "vl"));
	json_array_foreach(json_object_get(reply, "reached"), i, end)
		printf("reached: %s/%" JSON_INTEGER_FORMAT ", LID %" JSON_INTEGER_FORMAT "\n",
		       ctl_string(end, "node"), ctl_integer(end, "port"), ctl_integer(end, "lid"));
	printf("%s%s%s",
	       !colour ? ""
	       : ok    ? "\033[32m"
		       : "\033[31m",
	       ctl_string(reply, "text"), colour ? "\033[0m" : "");
	if (ok && json_object_get(reply, "mtu"))
		printf("; MTU %" JSON_INTEGER_FORMAT, ctl_integer(reply, "mtu"));
	if (ctl_integer(reply, "delay_ns"))
		printf(", %" JSON_INTEGER_FORMAT " ns of delay", ctl_integer(reply, "delay_ns"));
	putchar('\n');
}

static int trace_ask(const struct trace_wish *wish, char **names, int count)
{
	json_t *reply, *request = json_pack("{s:s, s:s, s:I}", "op", "trace", "from", names[0],
					    "sl", (json_int_t)wish->sl);
	int code;

	if (count == 2)
		json_object_set_new(request, "to", json_string(names[1]));
	if (wish->lid)
		json_object_set_new(request, "lid", json_integer((json_int_t)wish->lid));
	if (wish->mlid)
		json_object_set_new(request, "mlid", json_integer((json_int_t)wish->mlid));
	if (wish->pkey)
		json_object_set_new(request, "pkey", json_integer((json_int_t)wish->pkey));
	code = fabric_request(request, wish->json, &reply);
	if (code != CLI_OK)
		return code;
	if (wish->json)
		code = ctl_print_json(reply);
	else
		trace_print(reply);
	if (code == CLI_OK && strcmp(ctl_string(reply, "result"), "ok") != 0)
		code = CLI_FAILURE;
	json_decref(reply);
	return cli_finish(code);
}

static int trace_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option known[] = {
		{"lid", required_argument, NULL, 'l'},
		{"mlid", required_argument, NULL, 'm'},
		{"sl", required_argument, NULL, 's'},
		{"pkey", required_argument, NULL, 'p'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct trace_wish wish = {0};
	int option, count;

	while ((option = getopt_long(argc, argv, "l:m:s:p:jh", known, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (!trace_take(&wish, option))
			return cli_usage(self);
	}
	count = argc - optind;
	if (count == 1 + (!wish.lid && !wish.mlid) && !(wish.lid && wish.mlid))
		return trace_ask(&wish, argv + optind, count);
	cli_error("give two nodes, or one and --lid LID or --mlid MLID");
	return cli_usage(self);
}

const struct cli_command fabric_trace = {
	.name = "fabric trace",
	.summary = "follow a packet through the forwarding tables",
	.help = "usage: verbena fabric trace [OPTION...] FROM TO\n"
		"       verbena fabric trace [OPTION...] FROM --lid LID | --mlid MLID\n\n"
		"Says which way a packet takes from one node to another, hop by hop, or why it is\n"
		"lost: then the exit code is 1.\n\n"
		"  -l, --lid LID    to this LID\n"
		"  -m, --mlid MLID  to this multicast group, such as 0xc000\n"
		"  -s, --sl SL      the packet's service level (0)\n"
		"  -p, --pkey PKEY  the packet's partition (0xffff)\n"
		"  -j, --json       for scripts: the answer\n"
		"  -h, --help       show this\n",
	.run = trace_run,
};
