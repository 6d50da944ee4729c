/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma(8) for programs of `verbena run`: options, arguments and output; see rdma.h. No state beyond
 * a call. One thread. */
#include "cli/rdma.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl.h"

struct rdma_question {
	enum rdma_object object;
	bool json, pretty, details, oneline;
	const char *which; /* DEV, or DEV/PORT of a link; NULL: all */
	const char *extra; /* an argument too many; NULL: none */
};

/* ------------------------------------------------------------------ arguments */

/* Words may be abbreviated. */
static bool is_short_for(const char *given, const char *word)
{
	return *given && strncmp(given, word, strlen(given)) == 0;
}

/* Reads the words after the options. False: not a question that is answered here. */
static bool question_read_words(struct rdma_question *question, int count, char **words)
{
	static const char *const objects[] = {
		[RDMA_DEV] = "dev", [RDMA_LINK] = "link", [RDMA_RESOURCE] = "resource"};
	size_t object = 0;

	while (count && object < 3 && !is_short_for(words[0], objects[object]))
		object++;
	if (!count || object == 3)
		return false;
	question->object = (enum rdma_object)object;
	if (count > 1 && !is_short_for(words[1], "show") && !is_short_for(words[1], "list"))
		return false;
	question->which = count > 2 ? words[2] : NULL;
	question->extra = count > 3 ? words[3] : NULL;
	return true;
}

/* As question_read_words(), of the whole command line, whose words getopt_long() sorts. */
static bool question_read(struct rdma_question *question, int argc, char **argv)
{
	static const struct option options[] = {
		{"version", no_argument, NULL, 'V'},	 {"help", no_argument, NULL, 'h'},
		{"json", no_argument, NULL, 'j'},	 {"oneline", no_argument, NULL, 'o'},
		{"pretty", no_argument, NULL, 'p'},	 {"details", no_argument, NULL, 'd'},
		{"raw", no_argument, NULL, 'r'},	 {"force", no_argument, NULL, 'f'},
		{"batch", required_argument, NULL, 'b'}, {NULL, 0, NULL, 0},
	};
	int option;

	opterr = 0; /* what is wrong is the system's to say */
	while ((option = getopt_long(argc, argv, ":Vhdropjfb:", options, NULL)) != -1) {
		switch (option) {
		case 'j':
			question->json = true;
			break;
		case 'p':
			question->pretty = true;
			break;
		case 'd':
			question->details = true;
			break;
		case 'o':
			question->oneline = true;
			break;
		case 'r':
		case 'f':
			break;
		default:
			return false;
		}
	}
	return question_read_words(question, argc - optind, argv + optind);
}

/* ------------------------------------------------------------------ output */

static void text_print_caps(const json_t *caps, bool oneline)
{
	const json_t *name;
	size_t i;

	printf("%s    caps: <", oneline ? "\\" : "\n");
	json_array_foreach(caps, i, name)
		printf("%s%s", i ? ", " : "", json_string_value(name));
	putchar('>');
}

/* Prints `key value ` for every member but those that the line began with. */
static void text_print_members(const json_t *entry, const struct rdma_question *question)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)entry, key, value) {
		if (!strcmp(key, "ifindex") || !strcmp(key, "ifname") || !strcmp(key, "port") ||
		    (!strcmp(key, "netdev_index") && !question->details))
			continue;
		if (json_is_array(value))
			text_print_caps(value, question->oneline);
		else if (json_is_integer(value))
			printf("%s %" JSON_INTEGER_FORMAT " ", key, json_integer_value(value));
		else
			printf("%s %s ", key, json_string_value(value));
	}
	putchar('\n');
}

static void text_print(const json_t *entries, const struct rdma_question *question)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(entries, i, entry) {
		if (question->object == RDMA_LINK)
			printf("link %s/%" JSON_INTEGER_FORMAT " ", ctl_string(entry, "ifname"),
			       ctl_integer(entry, "port"));
		else
			printf("%" JSON_INTEGER_FORMAT ": %s: ", ctl_integer(entry, "ifindex"),
			       ctl_string(entry, "ifname"));
		text_print_members(entry, question);
	}
}

/* Prints the system's entries (NULL: none), then ours. */
static int answer_print(const struct rdma_output *system, json_t *entries,
			const struct rdma_question *question)
{
	if (!question->json) {
		if (system)
			fwrite(system->text, 1, system->length, stdout);
		text_print(entries, question);
		return cli_finish(CLI_OK);
	}
	json_t *all = system ? json_loadb(system->text, system->length, 0, NULL) : NULL;

	if (!json_is_array(all)) {
		json_decref(all);
		all = json_array();
	}
	json_array_extend(all, entries);

	int error = json_dumpf(all, stdout, question->pretty ? JSON_INDENT(4) : JSON_COMPACT);

	putchar('\n');
	json_decref(all);
	return cli_finish(error ? CLI_FAILURE : CLI_OK);
}

/* ------------------------------------------------------------------ the question */

/* Whether `which` names the entry: its device, or a link's device and port. */
static bool entry_is(const json_t *entry, const struct rdma_question *question)
{
	const char *name = ctl_string(entry, "ifname");
	char link[128];

	if (question->object != RDMA_LINK)
		return !strcmp(question->which, name);
	snprintf(link, sizeof(link), "%s/%" JSON_INTEGER_FORMAT, name, ctl_integer(entry, "port"));
	return !strcmp(question->which, link);
}

/* Whether `which` names one of our devices, with whatever port. */
static bool which_is_ours(const json_t *entries, const struct rdma_question *question)
{
	size_t length = strcspn(question->which, "/");
	const json_t *entry;
	size_t i;

	json_array_foreach(entries, i, entry) {
		const char *name = ctl_string(entry, "ifname");

		if (strlen(name) == length && !strncmp(name, question->which, length))
			return true;
	}
	return false;
}

/* The answer to a question about one of our devices. */
static int answer_one(json_t *entries, const struct rdma_question *question)
{
	for (size_t i = json_array_size(entries); i-- > 0;)
		if (!entry_is(json_array_get(entries, i), question))
			json_array_remove(entries, i);
	if (!json_array_size(entries)) {
		fputs("Wrong device name\n", stderr);
		return CLI_FAILURE;
	}
	if (question->extra) {
		/* As in iproute2 that isn't a failure. */
		fprintf(stderr, "Unknown parameter '%s'.\n", question->extra);
		return CLI_OK;
	}
	return answer_print(NULL, entries, question);
}

/* Everything that isn't answered here. */
static int question_pass_on(char **argv)
{
	int error = rdma_system_become(argv);

	fprintf(stderr,
		"rdma: only `dev`, `link` and `resource` of Verbena's devices can be shown here: "
		"the system's own rdma (of iproute2) can't be run: %s\n",
		strerror(-error));
	return CLI_FAILURE;
}

static json_t *question_entries(const struct rdma_question *question)
{
	json_t *status = ctl_ask_starting("status"), *resources = NULL, *entries = NULL;

	if (status && question->object == RDMA_RESOURCE)
		resources = ctl_ask(json_pack("{s:s}", "op", "resources"));
	if (status && (resources || question->object != RDMA_RESOURCE))
		entries = rdma_entries(question->object, status, resources, question->details);
	json_decref(status);
	json_decref(resources);
	return entries;
}

int rdma_run(int argc, char **argv)
{
	struct rdma_question question = {0};
	struct rdma_output system;
	/* getopt_long() changes the order; the system's rdma gets the words as they were given */
	char **words = calloc((size_t)argc + 1, sizeof(*words));
	json_t *entries = NULL;
	int code;

	if (!words)
		return CLI_FAILURE;
	memcpy(words, argv, (size_t)argc * sizeof(*words));
	if (question_read(&question, argc, argv))
		entries = question_entries(&question);
	if (!entries || (question.which && !which_is_ours(entries, &question))) {
		code = question_pass_on(words);
	} else if (question.which) {
		code = answer_one(entries, &question);
	} else {
		bool others = rdma_system_ask(words, &system);

		code = answer_print(others ? &system : NULL, entries, &question);
		if (others)
			free(system.text);
	}
	json_decref(entries);
	free(words);
	return code;
}
