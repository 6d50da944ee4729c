/* SPDX-License-Identifier: BSD-2-Clause */
/* The system's rdma(8), which PATH has behind ours: run with its output read, or executed in place
 * of this process. See rdma.h. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/locate.h"
#include "cli/rdma.h"

/* Reads until the end. False: no memory. */
static bool output_read(int fd, struct rdma_output *output)
{
	size_t room = 0;

	*output = (struct rdma_output){0};
	for (;;) {
		if (output->length == room) {
			char *text = realloc(output->text, room = room ? room * 2 : 4096);

			if (!text)
				return false;
			output->text = text;
		}
		ssize_t n = read(fd, output->text + output->length, room - output->length);

		if (n == 0)
			return true;
		if (n > 0)
			output->length += (size_t)n;
		else if (errno != EINTR)
			return false;
	}
}

/* Starts the program with its output in `fd`. Returns 0 with its pid, or an errno. */
static int system_spawn(const char *path, char **argv, int fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	int error = posix_spawn_file_actions_init(&actions);

	if (error)
		return error;
	error = posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
	if (!error)
		error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
							 O_WRONLY, 0);
	if (!error)
		error = posix_spawn(pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static bool system_succeeded(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool rdma_system_ask(char **argv, struct rdma_output *output)
{
	char path[PATH_MAX];
	int pipe_fd[2];
	pid_t pid;

	if (program_find_next("rdma", path) || pipe2(pipe_fd, O_CLOEXEC) < 0)
		return false;

	int error = system_spawn(path, argv, pipe_fd[1], &pid);
	bool read_all = false;

	close(pipe_fd[1]);
	if (!error)
		read_all = output_read(pipe_fd[0], output);
	close(pipe_fd[0]);
	if (error)
		return false;
	if (system_succeeded(pid) && read_all)
		return true;
	free(output->text);
	return false;
}

int rdma_system_become(char **argv)
{
	char path[PATH_MAX];
	int error = program_find_next("rdma", path);

	if (error)
		return error;
	execv(path, argv);
	return -errno;
}
