/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric exec`: one program on many nodes at once, each as `verbena run --node` starts it.
 *
 * Chooses the nodes (fabric_pattern.h), and lets crowd.h run the programs. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/crowd.h"
#include "cli/crowd_output.h"
#include "cli/ctl.h"
#include "cli/devices.h"
#include "cli/fabric.h"
#include "cli/fabric_pattern.h"
#include "cli/launch.h"
#include "cli/mirror.h"
#include "cli/table.h"

#define NS_PER_S 1e9
/* As long as a limit may be, in seconds: some years. */
#define LIMIT_MAX_NS (100000000 * QUANTITY_S)

/* What the processes of a daemon are limited to (proto/limits.h) is enough for most crowds. */
#define AT_ONCE_DEFAULT 1000

/* So many nodes' files are refreshed in a row, in a part of the time that this takes with the pause
 * after it. */
#define REFRESH_PART 16
#define REFRESH_PAUSE 20

struct exec_wish {
	bool all, adapters, list, no_prefix, no_sysfs;
	const char *output; /* directory */
	unsigned long jobs;
	uint64_t limit_ns; /* 0: none */
	char **program;	   /* and its arguments */
};

/* What runs. */
struct exec {
	const struct exec_wish *wish;
	struct node_choice choice;
	struct crowd_result *results;
	char **prefixes; /* by node, made when it is started */
	int directory;	 /* of outputs; -1: none */
	int mirror;	 /* of nodes' files; -1: none */
	struct mirror_node *nodes;
	size_t refreshed; /* nodes, each time that it was */
	bool is_coloured;
};

enum { EXEC_ALL = 256, EXEC_ADAPTERS, EXEC_LIST, EXEC_NO_PREFIX, EXEC_NO_SYSFS };

/* Options -------------------------------------------------------------------------------------- */

static bool exec_take(struct exec_wish *wish, int option)
{
	switch (option) {
	case EXEC_ALL:
		wish->all = true;
		return true;
	case EXEC_ADAPTERS:
		wish->adapters = true;
		return true;
	case EXEC_LIST:
		wish->list = true;
		return true;
	case EXEC_NO_PREFIX:
		wish->no_prefix = true;
		return true;
	case EXEC_NO_SYSFS:
		wish->no_sysfs = true;
		return true;
	case 'o':
		wish->output = optarg;
		return true;
	case 'J':
		return cli_number("--jobs", 1, 100000, &wish->jobs);
	case 't':
		return cli_time("--timeout", LIMIT_MAX_NS, &wish->limit_ns);
	default:
		return false;
	}
}

/* Arguments and environment -------------------------------------------------------------------- */

/* `text` with {node} and {index} replaced; allocated. */
static char *argument_expand(const char *text, const char *node, size_t index)
{
	static const struct {
		const char *word;
		size_t length;
	} words[] = {{"{node}", 6}, {"{index}", 7}};
	char number[24], *result = NULL;
	size_t size;
	FILE *out = open_memstream(&result, &size);

	if (!out)
		return NULL;
	snprintf(number, sizeof(number), "%zu", index);
	while (*text) {
		if (!strncmp(text, words[0].word, words[0].length)) {
			fputs(node, out);
			text += words[0].length;
		} else if (!strncmp(text, words[1].word, words[1].length)) {
			fputs(number, out);
			text += words[1].length;
		} else {
			fputc(*text++, out);
		}
	}
	if (fclose(out) == 0)
		return result;
	free(result);
	return NULL;
}

static int environment_number(const char *name, size_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%zu", number);
	return setenv(name, text, 1);
}

/* Shows the node's files to the program, if they are there. */
static void exec_node_show(const struct exec *exec, size_t i)
{
	int error;

	if (!exec->nodes || exec->nodes[i].fd < 0)
		return;
	error = unshare(CLONE_NEWNS) < 0 ? -errno : mirror_node_show(&exec->nodes[i]);
	if (error)
		cli_error("warning: cannot show the node in /sys/class/infiniband: %s",
			  strerror(-error));
}

/* The program's words for a node, allocated; NULL: no memory. */
static char **words_expand(char **given, const char *node, size_t index)
{
	size_t count = 0;
	char **words;

	while (given[count])
		count++;
	words = calloc(count + 1, sizeof(*words));
	for (size_t k = 0; words && k < count; k++) {
		words[k] = argument_expand(given[k], node, index);
		if (!words[k])
			return NULL;
	}
	return words;
}

/* In the new process: becomes the program on its node. Returns an exit code if it can't. */
static int exec_become(void *context, size_t i)
{
	const struct exec *exec = context;
	const char *node = node_choice_name(&exec->choice, i);
	char **words = words_expand(exec->wish->program, node, i);

	if (!words || !words[0] || setenv(NODE_VARIABLE, node, 1) ||
	    environment_number("VERBENA_NODE_INDEX", i) ||
	    environment_number("VERBENA_NODE_COUNT", exec->choice.count)) {
		cli_error("out of memory");
		return CLI_NOT_EXECUTABLE;
	}
	exec_node_show(exec, i);
	execvp(words[0], words);
	return launch_failed(words[0], errno);
}

/* Outputs -------------------------------------------------------------------------------------- */

/* "NODE: ", coloured on a terminal. */
static const char *exec_prefix(void *context, size_t i)
{
	struct exec *exec = context;
	char name[PREFIX_BYTES / 2];

	if (exec->wish->no_prefix)
		return "";
	snprintf(name, sizeof(name), "%s", node_choice_name(&exec->choice, i));
	table_text_clean(name);
	if (!exec->prefixes[i] &&
	    asprintf(&exec->prefixes[i], exec->is_coloured ? "\033[36m%s:\033[0m " : "%s: ", name) <
		    0)
		exec->prefixes[i] = NULL;
	return exec->prefixes[i] ? exec->prefixes[i] : "";
}

/* A node's name as a file's: names of real clusters may have slashes. */
static void file_name(char *text, size_t size, const char *name)
{
	size_t used = 0;

	for (const char *at = name; *at && used + 4 < size; at++) {
		bool is_plain = *at != '/' && *at != '%' && !(*at == '.' && at == name);

		used += (size_t)snprintf(text + used, size - used, is_plain ? "%c" : "%%%02x",
					 (unsigned char)*at);
	}
}

static int exec_output(void *context, size_t i)
{
	const struct exec *exec = context;
	char name[512];
	int fd;

	file_name(name, sizeof(name), node_choice_name(&exec->choice, i));
	fd = openat(exec->directory, name,
		    O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
	return fd < 0 ? -errno : fd;
}

/* The directory of --output, made if needed. Returns an exit code. */
static int directory_open(struct exec *exec)
{
	const char *path = exec->wish->output;

	exec->directory = -1;
	if (!path)
		return CLI_OK;
	if (mkdir(path, 0777) < 0 && errno != EEXIST) {
		cli_error("cannot make the directory %s: %s", path, strerror(errno));
		return CLI_FAILURE;
	}
	exec->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (exec->directory >= 0)
		return CLI_OK;
	cli_error("cannot write into %s: %s", path, strerror(errno));
	return CLI_FAILURE;
}

/* Files of nodes ------------------------------------------------------------------------------- */

static void exec_node_prepare(void *context, size_t i)
{
	struct exec *exec = context;
	struct node_facts facts;

	if (node_facts_ask(node_choice_name(&exec->choice, i), &facts) != 0)
		return;
	mirror_node_make(&exec->nodes[i], exec->mirror, i, &facts);
	node_facts_free(&facts);
}

static void exec_node_dispose(void *context, size_t i)
{
	struct exec *exec = context;

	mirror_node_remove(&exec->nodes[i]);
}

/* Refreshes the files of a part of the nodes, so that other work doesn't wait; returns when to do
 * the next part. It takes a small part of the time, however many nodes there are. */
static unsigned int exec_nodes_refresh(void *context)
{
	struct exec *exec = context;
	struct timespec before, after;
	size_t count = exec->choice.count, left = REFRESH_PART;
	struct node_facts facts;
	uint64_t took_ms;

	clock_gettime(CLOCK_MONOTONIC, &before);
	for (size_t n = 0; n < count && left; n++) {
		struct mirror_node *node = &exec->nodes[exec->refreshed++ % count];

		if (node->fd < 0 || node_facts_ask(node->guid, &facts) != 0)
			continue;
		mirror_node_refresh(node, &facts);
		node_facts_free(&facts);
		left--;
	}
	clock_gettime(CLOCK_MONOTONIC, &after);
	took_ms = (uint64_t)((after.tv_sec - before.tv_sec) * 1000 +
			     (after.tv_nsec - before.tv_nsec) / 1000000);
	/* All of them were visited: that is enough for a while. */
	if (left)
		return MIRROR_REFRESH_MS;
	return (unsigned int)(took_ms * REFRESH_PAUSE + MIRROR_REFRESH_MS * REFRESH_PART / count +
			      1);
}

/* Makes the mirror, if it can be had. */
static void exec_mirror_make(struct exec *exec)
{
	exec->nodes = calloc(exec->choice.count, sizeof(*exec->nodes));
	for (size_t i = 0; exec->nodes && i < exec->choice.count; i++)
		exec->nodes[i].fd = -1;
	if (exec->nodes && !exec->wish->no_sysfs)
		devices_show(&exec->mirror);
	if (exec->mirror >= 0)
		return;
	free(exec->nodes);
	exec->nodes = NULL;
}

/* Results -------------------------------------------------------------------------------------- */

static void result_text(const struct crowd_result *result, char *text, size_t size)
{
	switch (result->outcome) {
	case CROWD_EXITED:
		snprintf(text, size, "exit code %d", result->value);
		return;
	case CROWD_SIGNALLED:
		snprintf(text, size, "killed by signal %d (%s)", result->value,
			 strsignal(result->value));
		return;
	case CROWD_LATE:
		snprintf(text, size, "the time was up");
		return;
	case CROWD_NOT_STARTED:
		snprintf(text, size, result->value ? "not started: %s" : "not started%s",
			 result->value ? strerror(result->value) : "");
		return;
	}
}

/* Reports all nodes whose result is that of node `first`, and marks them as reported. */
static void failure_report_alike(struct exec *exec, size_t first, bool *is_reported)
{
	const struct crowd_result *result = &exec->results[first];
	size_t total = exec->choice.count, count = 0;
	const char **names = calloc(total, sizeof(*names));
	char text[128], *folded;

	for (size_t i = first; names && i < total; i++)
		if (exec->results[i].outcome == result->outcome &&
		    exec->results[i].value == result->value) {
			is_reported[i] = true;
			names[count++] = node_choice_name(&exec->choice, i);
		}
	folded = names ? names_fold(names, count) : NULL;
	result_text(result, text, sizeof(text));
	fprintf(stderr, "  %s: %s\n", folded ? folded : "some nodes", text);
	free(folded);
	free(names);
}

/* Says where it failed, and returns the highest exit code. */
static int results_report(struct exec *exec)
{
	bool *is_reported = calloc(exec->choice.count, sizeof(bool));
	size_t failed = 0;
	int code = CLI_OK;

	for (size_t i = 0; i < exec->choice.count; i++) {
		int one = crowd_code(&exec->results[i]);

		failed += one != 0;
		code = one > code ? one : code;
	}
	/* What a single program does needs no report, unless it couldn't be seen otherwise. */
	if (failed && is_reported &&
	    (exec->choice.count > 1 || exec->results[0].outcome != CROWD_EXITED)) {
		cli_error("failed on %zu of %zu nodes:", failed, exec->choice.count);
		for (size_t i = 0; i < exec->choice.count; i++)
			if (crowd_code(&exec->results[i]) && !is_reported[i])
				failure_report_alike(exec, i, is_reported);
	}
	free(is_reported);
	return code;
}

/* Running -------------------------------------------------------------------------------------- */

static int crowd_start_all(struct exec *exec)
{
	const struct exec_wish *wish = exec->wish;
	const struct crowd_plan plan = {
		.count = exec->choice.count,
		.at_once = wish->jobs ? wish->jobs : AT_ONCE_DEFAULT,
		.limit_ns = wish->limit_ns,
		.is_direct = wish->no_prefix,
		.context = exec,
		.prefix = exec_prefix,
		.output_open = wish->output ? exec_output : NULL,
		.become = exec_become,
		.prepare = exec->nodes ? exec_node_prepare : NULL,
		.dispose = exec->nodes ? exec_node_dispose : NULL,
		.tick = exec->nodes ? exec_nodes_refresh : NULL,
	};
	int stopped = crowd_run(&plan, exec->results), code;

	if (stopped < 0)
		return CLI_FAILURE;
	code = results_report(exec);
	return stopped && code < 128 + stopped ? 128 + stopped : code;
}

static int exec_on(struct exec *exec)
{
	char path[PATH_MAX];
	int code;

	if (launch_environment() != 0)
		return CLI_FAILURE;
	/* A program that is another one on each node is looked for there. */
	code = strchr(exec->wish->program[0], '{') ? CLI_OK
						   : launch_program(exec->wish->program[0], path);
	if (code == CLI_OK)
		code = directory_open(exec);
	if (code != CLI_OK)
		return code;
	exec_mirror_make(exec);
	exec->is_coloured = table_colour_wanted(stdout);
	exec->results = calloc(exec->choice.count, sizeof(*exec->results));
	exec->prefixes = calloc(exec->choice.count, sizeof(*exec->prefixes));
	if (exec->results && exec->prefixes)
		code = crowd_start_all(exec);
	else
		cli_error("out of memory"), code = CLI_FAILURE;
	for (size_t i = 0; exec->prefixes && i < exec->choice.count; i++)
		free(exec->prefixes[i]);
	free(exec->prefixes);
	free(exec->results);
	free(exec->nodes);
	if (exec->mirror >= 0)
		close(exec->mirror);
	if (exec->directory >= 0)
		close(exec->directory);
	return code;
}

static int nodes_list(const struct node_choice *choice)
{
	for (size_t i = 0; i < choice->count; i++)
		puts(node_choice_name(choice, i));
	return cli_finish(CLI_OK);
}

/* Chooses the nodes; returns an exit code. */
static int nodes_choose(struct node_choice *choice, const struct exec_wish *wish,
			const char *pattern)
{
	int error = 0;

	if (pattern)
		error = node_choice_add(choice, pattern);
	else
		node_choice_add_all(choice, wish->adapters);
	if (error == -ENOMEM)
		cli_error("out of memory");
	if (!error && !choice->count) {
		cli_error("the fabric has no such nodes");
		error = -ENOENT;
	}
	return !error ? CLI_OK : error == -EINVAL ? CLI_USAGE : CLI_FAILURE;
}

static int exec_start(const struct exec_wish *wish, const char *pattern)
{
	struct exec exec = {.wish = wish, .directory = -1, .mirror = -1};
	json_t *topology;
	int code = fabric_request(json_pack("{s:s}", "op", "topology"), false, &topology);

	if (code != CLI_OK)
		return code;
	/* Of a large fabric the cables take most of the memory. */
	json_object_del(topology, "links");
	if (node_choice_begin(&exec.choice, json_object_get(topology, "nodes"))) {
		cli_error("out of memory");
		json_decref(topology);
		return CLI_FAILURE;
	}
	code = nodes_choose(&exec.choice, wish, pattern);
	if (code == CLI_OK)
		code = wish->list ? nodes_list(&exec.choice) : exec_on(&exec);
	node_choice_free(&exec.choice);
	json_decref(topology);
	return code;
}

/* Options up to the first argument that is none; those behind the program's name are the program's.
 * Returns FABRIC_GO_ON or an exit code. */
static int exec_options(const struct cli_command *self, int argc, char **argv,
			struct exec_wish *wish)
{
	static const struct option known[] = {
		{"all", no_argument, NULL, EXEC_ALL},
		{"ca", no_argument, NULL, EXEC_ADAPTERS},
		{"list", no_argument, NULL, EXEC_LIST},
		{"no-prefix", no_argument, NULL, EXEC_NO_PREFIX},
		{"no-sysfs", no_argument, NULL, EXEC_NO_SYSFS},
		{"output", required_argument, NULL, 'o'},
		{"jobs", required_argument, NULL, 'J'},
		{"timeout", required_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "+o:t:h", known, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (!exec_take(wish, option))
			return cli_usage(self);
	}
	return FABRIC_GO_ON;
}

static int exec_run(const struct cli_command *self, int argc, char **argv)
{
	struct exec_wish wish = {0};
	const char *pattern = NULL;
	int code = exec_options(self, argc, argv, &wish);

	if (code == FABRIC_GO_ON && !wish.all && !wish.adapters && optind < argc) {
		pattern = argv[optind++];
		/* Options may stand behind the nodes as well. */
		code = exec_options(self, argc, argv, &wish);
	}
	if (code != FABRIC_GO_ON)
		return code;
	wish.program = argv + optind;
	if ((wish.all || wish.adapters) && (pattern || (wish.all && wish.adapters)))
		cli_error("give the nodes by name, or --ca, or --all");
	else if (!pattern && !wish.all && !wish.adapters)
		cli_error("on which nodes? For example 'H-[0-15]', --ca or --all");
	else if (optind == argc && !wish.list)
		cli_error("run what? Name a program");
	else
		return exec_start(&wish, pattern);
	return cli_usage(self);
}

const struct cli_command fabric_exec = {
	.name = "fabric exec",
	.summary = "run one program on many nodes at once",
	.help = "usage: verbena fabric exec [OPTION...] NODES PROGRAM [ARGUMENT...]\n"
		"       verbena fabric exec [OPTION...] --ca | --all PROGRAM [ARGUMENT...]\n\n"
		"Runs PROGRAM on each of the nodes, all at once, as `verbena run' does on a "
		"single\n"
		"one. NODES are names with ranges, lists and wildcards: 'H-[0-15,20]', 'H-*',\n"
		"'H-1,S-[0-3]'. In arguments {node} becomes the node's name and {index} its place\n"
		"among them; VERBENA_NODE, VERBENA_NODE_INDEX and VERBENA_NODE_COUNT are set.\n\n"
		"      --ca           on all adapters\n"
		"      --all          on all nodes, switches as well\n"
		"      --list         show which nodes these are; run nothing\n"
		"  -o, --output DIR   outputs go into a file for each node\n"
		"      --no-prefix    lines don't begin with the node's name\n"
		"      --jobs N       so many at a time (1000)\n"
		"  -t, --timeout S    a program may take so many seconds\n"
		"      --no-sysfs     as of `verbena run'\n"
		"  -h, --help         show this\n\n"
		"Ends with the highest exit code of all; 124 stands for a program whose time was\n"
		"up, 128 and more for one that a signal ended.\n"
		"Example: verbena fabric exec 'H-[0-15]' ibstat\n",
	.run = exec_run,
};
