/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric up`, `down`, `status`, `save` and `load`: the life of a fabric. Starts
 * verbena-fabric, which goes on in the background. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/format.h"
#include "cli/locate.h"
#include "cli/table.h"

#define EXIT_TIMEOUT_MS 10000

/* How often `status --watch` looks, and what is buffered of it. */
#define WATCH_MS 1000
#define WATCH_BUFFER (64 * 1024)

/* Up ------------------------------------------------------------------------------------------ */

/* The path of a program that is beside verbenad, or (in a build tree) beside this command. */
bool fabric_program_find(const char *name, char path[PATH_MAX])
{
	struct location location;
	ssize_t length;
	char *slash;

	if (!location_find(NULL, &location)) {
		slash = strrchr(location.daemon, '/');
		if (slash &&
		    snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - location.daemon),
			     location.daemon, name) < PATH_MAX &&
		    !access(path, X_OK))
			return true;
	}
	length = readlink("/proc/self/exe", path, PATH_MAX - 32);
	if (length <= 0)
		return false;
	path[length] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, name);
	return !access(path, X_OK);
}

/* Runs a program until it ends or has gone into the background. Returns its exit code, or -1. */
static int program_wait(char *const argv[])
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return -1;
	if (!child) {
		execv(argv[0], argv);
		_exit(127);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The name of the first adapter, to be freed; NULL: the fabric has none, or doesn't answer. */
static char *adapter_first(bool json)
{
	json_t *reply, *node;
	char *name = NULL;
	size_t i;

	if (fabric_request(json_pack("{s:s}", "op", "topology"), json, &reply) != CLI_OK)
		return NULL;
	json_array_foreach(json_object_get(reply, "nodes"), i, node) {
		if (!name && !strcmp(ctl_string(node, "type"), "ca"))
			name = strdup(ctl_string(node, "name"));
	}
	json_decref(reply);
	return name;
}

/* Starts a subnet manager on the first adapter, and waits until the subnet is up. */
static int up_manage(bool json)
{
	char command[PATH_MAX], sm[] = "sm", node[] = "--node", detach[] = "--detach";
	char quiet[] = "--quiet";
	char *name = adapter_first(json);
	char *args[] = {command, sm, node, name, detach, quiet, NULL};
	ssize_t length = readlink("/proc/self/exe", command, sizeof(command) - 1);
	int code = CLI_FAILURE;

	if (!name) {
		cli_error("the fabric has no adapter where a subnet manager could be");
		return CLI_FAILURE;
	}
	if (length > 0) {
		command[length] = '\0';
		code = program_wait(args) ? CLI_FAILURE : CLI_OK;
	}
	if (code != CLI_OK)
		cli_error("the fabric is up, but its subnet manager isn't");
	free(name);
	return code;
}

static int up_start(char *const argv[], bool json, bool has_manager)
{
	json_t *reply;
	int code = program_wait(argv);

	if (code == 127 || code < 0) {
		cli_error("cannot run %s: is Verbena installed completely?", argv[0]);
		return CLI_FAILURE;
	}
	if (code != 0)
		return CLI_FAILURE; /* it has said why */
	if (has_manager && up_manage(json) != CLI_OK)
		return CLI_FAILURE;
	code = fabric_request(json_pack("{s:s}", "op", "status"), json, &reply);
	if (code != CLI_OK)
		return code;
	if (json) {
		code = ctl_print_json(reply);
	} else {
		printf("up: %s: %" JSON_INTEGER_FORMAT " switches, %" JSON_INTEGER_FORMAT
		       " adapters, %" JSON_INTEGER_FORMAT " cables\n",
		       ctl_string(reply, "title"), ctl_integer(reply, "switches"),
		       ctl_integer(reply, "adapters"), ctl_integer(reply, "cables"));
		code = cli_finish(CLI_OK);
	}
	json_decref(reply);
	return code;
}

/* The topology is read here first, for messages that say more than a log's line can. */
static int up_check(const char *path, bool json)
{
	struct topology topology;
	int code = fabric_topology_read(path, json, &topology);

	if (code == CLI_OK && isatty(STDERR_FILENO) && topology.node_count > 2000)
		fprintf(stderr, "starting %u nodes ...\n", topology.node_count);
	topology_free(&topology);
	return code;
}

static int up_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option known[] = {
		{"resume", no_argument, NULL, 'r'},
		{"restore", required_argument, NULL, 's'},
		{"sm", no_argument, NULL, 'm'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{"timing", optional_argument, NULL, 't'},
		{NULL, 0, NULL, 0},
	};
	char program[PATH_MAX], detach[] = "--detach", resume[] = "--resume";
	char restore[] = "--restore", timing[32] = "";
	char *args[6] = {program, detach};
	bool json = false, has_manager = false;
	int option, count = 2;

	while ((option = getopt_long(argc, argv, "jh", known, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (option == 'j') {
			json = true;
		} else if (option == 'm') {
			has_manager = true;
		} else if (option == 't') {
			snprintf(timing, sizeof(timing), "--timing=%s", optarg ? optarg : "1");
		} else if (option == 'r' && count == 2) {
			args[count++] = resume;
		} else if (option == 's' && count == 2) {
			args[count++] = restore;
			args[count++] = optarg;
		} else {
			return cli_usage(self);
		}
	}
	if ((count == 2) != (argc - optind == 1)) {
		cli_error("give one topology file, or --resume, or --restore FILE");
		return cli_usage(self);
	}
	if (*timing && count != 2) {
		cli_error("--timing is part of the state that --resume and --restore go on with");
		return cli_usage(self);
	}
	if (!fabric_program_find("verbena-fabric", program)) {
		cli_error("cannot find verbena-fabric: is Verbena installed completely?");
		return CLI_FAILURE;
	}
	if (count == 2) {
		args[count++] = argv[optind];
		if (*timing)
			args[count++] = timing;
		option = strcmp(argv[optind], "-") != 0 ? up_check(argv[optind], json) : CLI_OK;
		if (option != CLI_OK)
			return option;
	}
	return up_start(args, json, has_manager);
}

const struct cli_command fabric_up = {
	.name = "fabric up",
	.summary = "start a fabric from a topology file",
	.help = "usage: verbena fabric up [--json] [--sm] [--timing[=SLOW]] TOPOLOGY | --resume |\n"
		"                         --restore FILE\n\n"
		"Starts verbena-fabric, which plays all switches and adapters of TOPOLOGY: a file\n"
		"in ibsim's format, what `ibnetdiscover` printed of a real cluster, or what\n"
		"`verbena fabric gen` made (`-': standard input). It goes on in the background.\n\n"
		"      --resume        go on with the state that the last one left, tables and "
		"all\n"
		"      --restore FILE  begin with a state that `verbena fabric save` wrote\n"
		"      --sm            start a subnet manager, too: `verbena sm` on the first\n"
		"                      adapter; it ends with the fabric\n"
		"      --timing[=SLOW] data takes the time that links need for it, by their "
		"width,\n"
		"                      speed and delay, and waits for other data; SLOW (1) times "
		"as\n"
		"                      long as with adapters, so that this machine keeps up\n"
		"  -j, --json          for scripts: the status of the new fabric\n"
		"  -h, --help          show this\n\n"
		"Example: verbena fabric gen fat-tree --hosts 64 | verbena fabric up -\n",
	.run = up_run,
};

/* Down ---------------------------------------------------------------------------------------- */

/* Waits until the process behind `pidfd` has ended. */
static int end_wait(int pidfd)
{
	struct pollfd entry = {.fd = pidfd, .events = POLLIN};
	int n;

	do
		n = poll(&entry, 1, EXIT_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : -ETIMEDOUT;
}

/* Ends the subnet managers of `verbena sm`: left alone, they would wait for the fabric to come
 * back, and find the next one. */
static void managers_end(const json_t *status)
{
	static const char name[] = "/verbena-sm";
	char link[64], path[PATH_MAX];
	const json_t *client;
	ssize_t length;
	size_t i;

	json_array_foreach(json_object_get(status, "clients"), i, client) {
		pid_t pid = (pid_t)ctl_integer(client, "pid");

		snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
		length = readlink(link, path, sizeof(path));
		if (pid > 1 && length > (ssize_t)strlen(name) &&
		    !memcmp(path + length - strlen(name), name, strlen(name)))
			kill(pid, SIGTERM);
	}
}

static int down_act(const struct fabric_call *call)
{
	json_t *status;
	int pidfd, code;

	code = fabric_request(json_pack("{s:s}", "op", "status"), call->json, &status);
	if (code != CLI_OK)
		return code;
	pidfd = (int)syscall(SYS_pidfd_open, (pid_t)ctl_integer(status, "pid"), 0);
	managers_end(status);
	code = fabric_change(json_pack("{s:s}", "op", "down"), call->json, "down");
	if (pidfd >= 0 && code == CLI_OK && end_wait(pidfd)) {
		cli_error("the fabric agreed to end but is still there after %d s",
			  EXIT_TIMEOUT_MS / 1000);
		code = CLI_FAILURE;
	}
	if (pidfd >= 0)
		close(pidfd);
	json_decref(status);
	return code;
}

const struct fabric_command fabric_down = {
	.cli.name = "fabric down",
	.cli.summary = "end the fabric",
	.cli.help = "usage: verbena fabric down [--json]\n\n"
		    "Ends the fabric and waits until its process is gone. Its state is kept for\n"
		    "`verbena fabric up --resume`.\n\n"
		    "  -j, --json   for scripts: the answer\n"
		    "  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.act = down_act,
};

/* Status -------------------------------------------------------------------------------------- */

static void fabric_clients_print(const json_t *clients, bool colour)
{
	static const struct table_column columns[] = {
		{"PID", true},	  {"PROGRAM", false}, {"NODE", false},	  {"PORT", true},
		{"AGENTS", true}, {"SENT", true},     {"RECEIVED", true}, {"DROPPED", true},
	};
	static const char *const numbers[] = {"port", "agents", "sent", "received", "dropped"};
	const json_t *client;
	struct table table;
	size_t i;

	if (!json_array_size(clients))
		return;
	putchar('\n');
	table_set_columns(&table, columns, sizeof(columns) / sizeof(columns[0]));
	json_array_foreach(clients, i, client) {
		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(client, "pid"));
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(client, "program"));
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(client, "node"));
		for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
			table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
				       ctl_integer(client, numbers[k]));
	}
	table_print(&table, stdout, colour);
	table_free(&table);
}

/* "drop at S1/7: 0.5 %" */
static void fault_print(const json_t *fault)
{
	const char *kind = ctl_string(fault, "kind");

	printf("  %s at %s", kind, ctl_string(fault, "node"));
	if (json_object_get(fault, "port"))
		printf("/%" JSON_INTEGER_FORMAT, ctl_integer(fault, "port"));
	if (json_object_get(fault, "percent"))
		printf(": %g %%", json_number_value(json_object_get(fault, "percent")));
	if (ctl_integer(fault, "attribute"))
		printf(" of MADs with attribute 0x%" PRIx64,
		       (uint64_t)ctl_integer(fault, "attribute"));
	if (json_object_get(fault, "ns"))
		printf(": %" JSON_INTEGER_FORMAT " ns", ctl_integer(fault, "ns"));
	if (json_object_get(fault, "width"))
		printf(": %s %s", ctl_string(fault, "width"), ctl_string(fault, "speed"));
	if (json_object_get(fault, "per_second"))
		printf(": %s, %g per second", ctl_string(fault, "counter"),
		       json_number_value(json_object_get(fault, "per_second")));
	putchar('\n');
}

static void timing_print(json_int_t slow)
{
	if (slow == 1)
		puts("timing: data takes the time that links need for it");
	else if (slow > 1)
		printf("timing: data takes the time that links need for it, and "
		       "%" JSON_INTEGER_FORMAT " times as long as with adapters\n",
		       slow);
}

static int fabric_status_print(const json_t *reply)
{
	const json_t *managers = json_object_get(reply, "managers");
	const json_t *faults = json_object_get(reply, "faults"), *row;
	char text[FORMAT_BYTES];
	size_t i;

	printf("%s: %" JSON_INTEGER_FORMAT " switches, %" JSON_INTEGER_FORMAT " adapters\n",
	       ctl_string(reply, "title"), ctl_integer(reply, "switches"),
	       ctl_integer(reply, "adapters"));
	printf("cables: %" JSON_INTEGER_FORMAT ", up %" JSON_INTEGER_FORMAT
	       ", active %" JSON_INTEGER_FORMAT "\n",
	       ctl_integer(reply, "cables"), ctl_integer(reply, "links_up"),
	       ctl_integer(reply, "links_active"));
	printf("verbena-fabric %s, process %" JSON_INTEGER_FORMAT ", up for %s%s",
	       ctl_string(reply, "version"), ctl_integer(reply, "pid"),
	       format_duration(text, (uint64_t)ctl_integer(reply, "uptime_ms")),
	       json_is_true(json_object_get(reply, "resumed")) ? " (resumed)" : "");
	printf(", %s of tables\n", format_size(text, (uint64_t)ctl_integer(reply, "state_bytes")));
	timing_print(ctl_integer(reply, "timing"));
	printf("management datagrams: %" JSON_INTEGER_FORMAT ", lost %" JSON_INTEGER_FORMAT "\n",
	       ctl_integer(reply, "mads"), ctl_integer(reply, "mads_dropped"));
	fputs("subnet manager:", stdout);
	json_array_foreach(managers, i, row)
		printf("%s %s/%" JSON_INTEGER_FORMAT " (LID %" JSON_INTEGER_FORMAT ")",
		       i ? "," : "", ctl_string(row, "node"), ctl_integer(row, "port"),
		       ctl_integer(row, "lid"));
	puts(json_array_size(managers) ? "" : " none; ports stay in state Init until one runs");
	if (json_array_size(faults))
		puts("faults:");
	json_array_foreach(faults, i, row)
		fault_print(row);
	fabric_clients_print(json_object_get(reply, "clients"), table_colour_wanted(stdout));
	return cli_finish(CLI_OK);
}

static int fabric_status_once(bool json)
{
	json_t *reply;
	int code = fabric_ask(json_pack("{s:s}", "op", "status"), json, &reply);

	if (code != FABRIC_GO_ON)
		return code;
	code = fabric_status_print(reply);
	json_decref(reply);
	return code;
}

/* Again and again, until the fabric is gone or a signal ends this process. On a terminal each
 * status takes the place of the one before. */
static int fabric_status_watch(void)
{
	bool clears = isatty(STDOUT_FILENO);
	int code;

	/* Written as a whole, so that a terminal doesn't flicker. */
	setvbuf(stdout, NULL, _IOFBF, WATCH_BUFFER);
	do {
		fputs(clears ? "\033[H\033[J" : "", stdout);
		code = fabric_status_once(false);
		if (!clears)
			putchar('\n');
		if (code == CLI_OK)
			code = cli_finish(CLI_OK);
		poll(NULL, 0, WATCH_MS);
	} while (code == CLI_OK);
	return code;
}

static int fabric_status_act(const struct fabric_call *call)
{
	if (call->flag && call->json) {
		cli_error("--watch is for people, --json for scripts: give one");
		return cli_usage(call->self);
	}
	return call->flag ? fabric_status_watch() : fabric_status_once(call->json);
}

const struct fabric_command fabric_status = {
	.cli.name = "fabric status",
	.cli.summary = "show the fabric, its faults, and the programs that are on it",
	.cli.help =
		"usage: verbena fabric status [--json | --watch]\n\n"
		"Shows the fabric as a whole: how many links are up, where subnet managers run,\n"
		"which faults are set, and the programs that have a port open.\n\n"
		"  -w, --watch  again each second\n"
		"  -j, --json   for scripts: the whole answer\n"
		"  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.flag = "watch",
	.act = fabric_status_act,
};

/* Save and load ------------------------------------------------------------------------------- */

/* The path as the other process must see it. NULL, after a message. */
static char *absolute_path(const char *path)
{
	char directory[PATH_MAX], *whole = NULL;

	if (*path == '/')
		whole = strdup(path);
	else if (!getcwd(directory, sizeof(directory)) ||
		 asprintf(&whole, "%s/%s", directory, path) < 0)
		whole = NULL;
	if (!whole)
		cli_error("cannot tell where %s is: %s", path, strerror(errno));
	return whole;
}

static int file_act(const struct fabric_call *call, const char *op, const char *said)
{
	char *path = absolute_path(call->argument[0]);
	int code;

	if (!path)
		return CLI_FAILURE;
	code = fabric_change(json_pack("{s:s, s:s}", "op", op, "path", path), call->json, said,
			     path);
	free(path);
	return code;
}

static int save_act(const struct fabric_call *call)
{
	return file_act(call, "save", "saved into %s");
}

const struct fabric_command fabric_save = {
	.cli.name = "fabric save",
	.cli.summary = "write the state of all tables into a file",
	.cli.help =
		"usage: verbena fabric save [--json] FILE\n\n"
		"Writes the fabric's whole state into FILE: LIDs, forwarding tables, counters,\n"
		"faults. `verbena fabric load` brings it back; `verbena fabric up --restore`\n"
		"starts a fabric with it.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.least = 1,
	.most = 1,
	.act = save_act,
};

static int load_act(const struct fabric_call *call)
{
	return file_act(call, "load", "loaded %s");
}

const struct fabric_command fabric_load = {
	.cli.name = "fabric load",
	.cli.summary = "bring back a state that was saved",
	.cli.help =
		"usage: verbena fabric load [--json] FILE\n\n"
		"Gives all tables the state that `verbena fabric save` wrote of this topology.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.least = 1,
	.most = 1,
	.act = load_act,
};
