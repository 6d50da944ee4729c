/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's end of the control socket; see ctl.h.
 *
 * A connection serves one request and is closed. The reply is read until the daemon closes, into
 * a buffer that grows up to a bound, and is then parsed. One thread; blocks for at most the
 * socket's time limit.
 */
#include "cli/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "client/call.h"
#include "client/rundir.h"
#include "client/start.h"
#include "proto/proto.h"

#define REPLY_TIMEOUT_S 10
#define REPLY_MAX_BYTES (256u << 20)
#define ERROR_BYTES 512

struct buffer {
	char *data;
	size_t length, space;
};

static const struct ctl_server daemon_server = {
	.socket = "ctl",
	.absent = "no daemon runs",
	.remedy = "it starts with the first program that needs it",
	.limit_s = REPLY_TIMEOUT_S,
};

/* The reason why a request failed, for people. */
struct failure {
	int code; /* exit code */
	char text[ERROR_BYTES];
};

static void failure_set(struct failure *failure, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void failure_set(struct failure *failure, int code, const char *format, ...)
{
	va_list args;

	failure->code = code;
	va_start(args, format);
	vsnprintf(failure->text, sizeof(failure->text), format, args);
	va_end(args);
}

/* Returns a connected socket, or -1 with `failure` set. */
static int ctl_connect(const struct ctl_server *server, struct failure *failure)
{
	struct timeval limit = {.tv_sec = server->limit_s};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[sizeof(address.sun_path)];
	int fd, length, error;

	error = rundir_find(directory, sizeof(directory));
	if (error) {
		failure_set(failure, CLI_FAILURE,
			    "cannot find the run-time directory: %s; see FILES in verbena(7)",
			    strerror(-error));
		return -1;
	}
	length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory,
			  server->socket);
	if (length < 0 || (size_t)length >= sizeof(address.sun_path)) {
		failure_set(failure, CLI_FAILURE,
			    "the run-time directory's name is too long for a socket: %s",
			    directory);
		return -1;
	}

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		failure_set(failure, CLI_FAILURE, "cannot make a socket: %s", strerror(errno));
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;

	if (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED)
		failure_set(failure, CLI_NO_DAEMON, "%s (looked in %s); %s", server->absent,
			    directory, server->remedy);
	else if (errno == EACCES)
		failure_set(failure, CLI_FAILURE,
			    "no permission to open %s: ask the administrator of this machine",
			    address.sun_path);
	else
		failure_set(failure, CLI_FAILURE, "cannot connect to %s: %s", address.sun_path,
			    strerror(errno));
	close(fd);
	return -1;
}

static const char *io_error(void)
{
	return errno == EAGAIN ? "the time is up; is it stopped?" : strerror(errno);
}

static int ctl_send(int fd, const char *line, struct failure *failure)
{
	size_t length = strlen(line), done = 0;

	while (done < length) {
		ssize_t n = send(fd, line + done, length - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			failure_set(failure, CLI_FAILURE, "cannot ask the daemon: %s", io_error());
			return -1;
		}
		done += (size_t)n;
	}
	return 0;
}

static int buffer_grow(struct buffer *buffer)
{
	size_t space = buffer->space ? buffer->space * 2 : 64 * 1024;
	char *data;

	if (space > REPLY_MAX_BYTES)
		return -EMSGSIZE;
	data = realloc(buffer->data, space);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->space = space;
	return 0;
}

/* As recv(), and takes the descriptor that came, if the caller expects one. */
static ssize_t receive_some(int fd, void *to, size_t room, int *descriptor)
{
	int fds[PROTO_MAX_FDS];
	ssize_t n = packet_receive(fd, to, room, fds, 0);

	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++) {
		if (fds[i] >= 0 && descriptor && *descriptor < 0)
			*descriptor = fds[i];
		else if (fds[i] >= 0)
			close(fds[i]);
	}
	if (n < 0)
		errno = (int)-n;
	return n < 0 ? -1 : n;
}

static int ctl_receive(int fd, struct buffer *buffer, int *descriptor, struct failure *failure)
{
	for (;;) {
		ssize_t n;
		int error;

		if (buffer->length == buffer->space && (error = buffer_grow(buffer)) != 0) {
			failure_set(failure, CLI_FAILURE, "the daemon's answer is too large: %s",
				    strerror(-error));
			return -1;
		}
		n = receive_some(fd, buffer->data + buffer->length, buffer->space - buffer->length,
				 descriptor);
		if (n == 0)
			return 0;
		if (n > 0) {
			buffer->length += (size_t)n;
		} else {
			failure_set(failure, CLI_FAILURE, "the daemon does not answer: %s",
				    io_error());
			return -1;
		}
	}
}

/* Parses the reply; NULL with `failure` set. */
static json_t *ctl_parse(const struct buffer *buffer, struct failure *failure)
{
	json_error_t error;
	json_t *reply;

	if (buffer->length == 0) {
		failure_set(failure, CLI_FAILURE, "the daemon hung up without an answer");
		return NULL;
	}
	reply = json_loadb(buffer->data, buffer->length, 0, &error);
	if (!json_is_object(reply)) {
		failure_set(failure, CLI_FAILURE, "the daemon's answer cannot be understood: %s",
			    reply ? "not a JSON object" : error.text);
		json_decref(reply);
		return NULL;
	}
	if (!json_is_true(json_object_get(reply, "ok"))) {
		const char *text = ctl_string(reply, "error");

		failure_set(failure, CLI_FAILURE, "%s",
			    *text ? text : "the daemon refused, without a reason");
		json_decref(reply);
		return NULL;
	}
	return reply;
}

static json_t *ctl_exchange(const struct ctl_server *server, const char *line, int *descriptor,
			    struct failure *failure)
{
	struct buffer buffer = {0};
	json_t *reply = NULL;
	int fd = ctl_connect(server, failure);

	if (fd < 0)
		return NULL;
	if (ctl_send(fd, line, failure) == 0 && ctl_receive(fd, &buffer, descriptor, failure) == 0)
		reply = ctl_parse(&buffer, failure);
	free(buffer.data);
	close(fd);
	return reply;
}

static void failure_report(const struct failure *failure, bool json)
{
	json_t *object;

	cli_error("%s", failure->text);
	if (!json)
		return;
	object = json_pack("{s:b, s:s}", "ok", 0, "error", failure->text);
	ctl_print_json(object);
	json_decref(object);
}

/* Sends `request` (stolen). Returns the reply, or NULL with `failure` set. */
static json_t *request_send(const struct ctl_server *server, json_t *request, int *descriptor,
			    struct failure *failure)
{
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	char *line = NULL;
	json_t *result = NULL;

	*failure = (struct failure){.code = CLI_FAILURE, .text = "out of memory"};
	json_decref(request);
	if (text && asprintf(&line, "%s\n", text) > 0)
		result = ctl_exchange(server, line, descriptor, failure);
	free(line);
	free(text);
	return result;
}

static int request_any(const struct ctl_server *server, json_t *request, bool json, json_t **reply,
		       int *descriptor)
{
	struct failure failure;
	json_t *result = request_send(server, request, descriptor, &failure);

	if (!result) {
		failure_report(&failure, json);
		return failure.code;
	}
	if (reply)
		*reply = result;
	else
		json_decref(result);
	return CLI_OK;
}

int ctl_request_at(const struct ctl_server *server, json_t *request, bool json, json_t **reply)
{
	return request_any(server, request, json, reply, NULL);
}

int ctl_request(json_t *request, bool json, json_t **reply)
{
	return request_any(&daemon_server, request, json, reply, NULL);
}

json_t *ctl_ask_at(const struct ctl_server *server, json_t *request)
{
	struct failure failure;

	return request_send(server, request, NULL, &failure);
}

json_t *ctl_ask(json_t *request)
{
	return ctl_ask_at(&daemon_server, request);
}

json_t *ctl_ask_starting(const char *op)
{
	int fd, silent = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (silent >= 0)
		log_open(silent, "verbena");
	fd = start_connect(NULL);
	log_open(STDERR_FILENO, "verbena");
	if (silent >= 0)
		close(silent);
	if (fd < 0)
		return NULL;

	json_t *reply = ctl_ask(json_pack("{s:s}", "op", op));

	/* closed last, because a daemon without connections may leave */
	close(fd);

	/* A daemon that was started in a container has another path to the same directory. */
	char directory[RUNDIR_MAX];

	if (reply && !rundir_find(directory, sizeof(directory)))
		json_object_set_new(reply, "runtime_dir", json_string(directory));
	return reply;
}

int ctl_request_fd(json_t *request, json_t **reply, int *fd)
{
	*fd = -1;
	return request_any(&daemon_server, request, false, reply, fd);
}

int ctl_request_fd_at(const struct ctl_server *server, json_t *request, json_t **reply, int *fd)
{
	*fd = -1;
	return request_any(server, request, false, reply, fd);
}

int ctl_print_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	putchar('\n');
	return cli_finish(CLI_OK);
}

json_int_t ctl_integer(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

const char *ctl_string(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}
