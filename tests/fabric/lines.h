/* SPDX-License-Identifier: BSD-2-Clause */
/* The main loop of programs that do what lines on their standard input say: verbs_shell, cm_shell.
 * A line is a command and its parameters, and gets one answer. */
#ifndef TESTS_FABRIC_LINES_H
#define TESTS_FABRIC_LINES_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { WORDS = 12 };

struct command {
	const char *name;
	void (*run)(char **words); /* the command and its parameters, then NULL */
};

static inline void line_run(char *line, const struct command *commands, size_t commands_count)
{
	char *words[WORDS] = {0}, *rest = NULL;
	int count = 0;

	for (char *word = strtok_r(line, " \n", &rest); word && count < WORDS - 1;
	     word = strtok_r(NULL, " \n", &rest))
		words[count++] = word;
	for (size_t i = 0; count && i < commands_count; i++)
		if (!strcmp(commands[i].name, words[0])) {
			commands[i].run(words);
			fflush(stdout);
			return;
		}
	printf("unknown command\n");
	fflush(stdout);
}

/* Until the standard input ends. */
static inline void lines_run(const struct command *commands, size_t count)
{
	char line[512];

	while (fgets(line, sizeof line, stdin))
		line_run(line, commands, count);
}

#endif
