/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's loop. An exchange is a connection with one request and its answer; exchanges are
 * rows of a table.
 *
 *   FREE    -> READING  exchange_accept()
 *   READING -> WRITING  the request is complete, or can't be one
 *   READING, WRITING -> FREE  done, the client has gone, its time is up, or all rows are in use and
 *                             a new client comes: of all, this one's has been silent the longest
 */
#include "cli/http.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/quantity.h"

#define EXCHANGES 16
#define REQUEST_MAX 8192
#define HEAD_MAX 1024
#define READ_MS 5000   /* for a whole request */
#define WRITE_MS 20000 /* for the next part of an answer */

enum exchange_state { FREE, READING, WRITING };

struct exchange {
	enum exchange_state state;
	int fd;
	long long since_ns; /* its client connected, or took a part of the answer */
	size_t length, sent;
	char request[REQUEST_MAX + 1];
	char head[HEAD_MAX];
	size_t head_bytes;
	struct http_answer answer;
};

struct http_server {
	const struct http_listener *listener;
	const struct http_service *service;
	struct exchange exchanges[EXCHANGES];
};

static long long http_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Listening ------------------------------------------------------------------------------------ */

static int http_listen_port(struct http_listener *listener, unsigned long port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((unsigned short)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	int one = 1;

	listener->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return -errno;
	setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener->fd, (struct sockaddr *)&address, size) ||
	    listen(listener->fd, EXCHANGES) ||
	    getsockname(listener->fd, (struct sockaddr *)&address, &size))
		return -errno;
	listener->port = ntohs(address.sin_port);
	return 0;
}

/* Removes a socket at which no process listens any more. */
static void http_stale_remove(const struct sockaddr_un *address)
{
	struct stat status;
	int fd;

	if (lstat(address->sun_path, &status) || !S_ISSOCK(status.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) &&
	    errno == ECONNREFUSED)
		unlink(address->sun_path);
	close(fd);
}

static int http_listen_path(struct http_listener *listener, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int result;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return -errno;
	http_stale_remove(&address);
	mask = umask(0177);
	result = bind(listener->fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (result)
		return result;
	strcpy(listener->path, path);
	return listen(listener->fd, EXCHANGES) ? -errno : 0;
}

int http_listen(struct http_listener *listener, const char *where)
{
	uint32_t port;
	int result;

	*listener = (struct http_listener){.fd = -1};
	if (strchr(where, '/'))
		result = http_listen_path(listener, where);
	else if (quantity_number32(where, 0, UINT16_MAX, &port))
		result = http_listen_port(listener, port);
	else
		result = -EINVAL;
	if (result)
		http_close(listener);
	return result;
}

void http_close(struct http_listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
	if (*listener->path)
		unlink(listener->path);
	*listener->path = '\0';
}

/* Requests ------------------------------------------------------------------------------------- */

static int http_hex_digit(char c)
{
	return isdigit((unsigned char)c)    ? c - '0'
	       : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
					    : -1;
}

/* Decodes up to `&` or the end. */
static bool parameter_decode(const char *text, char *value, size_t size)
{
	size_t length = 0;

	for (; *text && *text != '&'; text++) {
		char c = *text == '+' ? ' ' : *text;

		if (*text == '%') {
			int high = http_hex_digit(text[1]);
			int low = high < 0 ? -1 : http_hex_digit(text[2]);

			if (low < 0 || !(high | low))
				return false;
			c = (char)(high << 4 | low);
			text += 2;
		}
		if (length + 1 >= size)
			return false;
		value[length++] = c;
	}
	value[length] = '\0';
	return true;
}

bool http_parameter(const char *query, const char *name, char *value, size_t size)
{
	size_t length = strlen(name);

	while (*query) {
		if (!strncmp(query, name, length) && query[length] == '=')
			return parameter_decode(query + length + 1, value, size);
		query += strcspn(query, "&");
		query += *query == '&';
	}
	return false;
}

/* The value of a header line; NULL: there is none. Its end is a space or the line's. */
static const char *http_header_find(const char *request, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = strstr(request, "\r\n"); line; line = strstr(line + 2, "\r\n"))
		if (!strncasecmp(line + 2, name, length) && line[2 + length] == ':')
			return line + 3 + length + strspn(line + 3 + length, " \t");
	return NULL;
}

/* Whether the client asked for this machine: else a page elsewhere may be the one that asks. */
static bool host_is_local(const struct http_listener *listener, const char *request)
{
	static const char *const names[] = {"127.0.0.1", "localhost"};
	const char *host = http_header_find(request, "Host");
	char wanted[40];

	if (!listener->port)
		return true;
	for (size_t i = 0; host && i < sizeof(names) / sizeof(names[0]); i++) {
		size_t length =
			(size_t)snprintf(wanted, sizeof(wanted), "%s:%d", names[i], listener->port);

		if (!strncasecmp(host, wanted, length) && isspace((unsigned char)host[length]))
			return true;
		/* Browsers leave the usual port out. */
		if (listener->port == 80 && !strncasecmp(host, names[i], strlen(names[i])) &&
		    isspace((unsigned char)host[strlen(names[i])]))
			return true;
	}
	return false;
}

/* Splits the first line. Returns the status if the request is refused, or 0. */
static int http_request_split(char *request, struct http_request *parts, bool *is_head)
{
	char *target = strchr(request, ' '), *end, *query;

	if (!target || strchr(request, ' ') > strstr(request, "\r\n"))
		return 400;
	*target++ = '\0';
	*is_head = !strcmp(request, "HEAD");
	if (!*is_head && strcmp(request, "GET") != 0)
		return 405;
	end = target;
	while (*end > ' ' && *end < 0x7f)
		end++;
	if (*target != '/' || strncmp(end, " HTTP/1.", 8) != 0)
		return 400;
	*end = '\0';
	query = target + strcspn(target, "?");
	parts->path = target;
	parts->query = *query ? query + 1 : query;
	*query = '\0';
	return 0;
}

/* Answers -------------------------------------------------------------------------------------- */

static const char *http_status_text(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 421:
		return "Misdirected Request";
	case 431:
		return "Request Header Fields Too Large";
	case 502:
		return "Bad Gateway";
	default:
		return "Service Unavailable";
	}
}

/* What a browser may do with the answer: nothing that isn't in it, but for asking here again. */
static void http_head_write(struct exchange *exchange, bool is_head)
{
	struct http_answer *answer = &exchange->answer;
	char script[128] = "";

	if (*answer->nonce)
		snprintf(script, sizeof(script), "script-src 'nonce-%s'; connect-src 'self'; ",
			 answer->nonce);
	exchange->head_bytes = (size_t)snprintf(
		exchange->head, sizeof(exchange->head),
		"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		"Connection: close\r\nCache-Control: no-store\r\n"
		"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
		"Cross-Origin-Resource-Policy: same-origin\r\n"
		"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; %s"
		"frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\r\n",
		answer->status, http_status_text(answer->status), answer->type, answer->bytes,
		script);
	if (is_head)
		answer->bytes = 0;
}

static void exchange_answer(struct exchange *exchange, bool is_head)
{
	struct http_answer *answer = &exchange->answer;

	if (!answer->body) {
		answer->body = strdup(http_status_text(answer->status));
		answer->bytes = answer->body ? strlen(answer->body) : 0;
		answer->type = "text/plain; charset=utf-8";
	}
	http_head_write(exchange, is_head);
	exchange->state = WRITING;
	exchange->sent = 0;
	exchange->since_ns = http_clock_ns();
}

static void exchange_refuse(struct exchange *exchange, int status)
{
	exchange->answer = (struct http_answer){.status = status};
	exchange_answer(exchange, false);
}

static void http_request_answer(struct http_server *server, struct exchange *exchange)
{
	struct http_request parts;
	bool is_head = false, is_local = host_is_local(server->listener, exchange->request);
	int refused = http_request_split(exchange->request, &parts, &is_head);

	if (!refused && !is_local)
		refused = 421;
	if (refused) {
		exchange_refuse(exchange, refused);
		return;
	}
	exchange->answer = (struct http_answer){.status = 404};
	server->service->answer(server->service->context, &parts, &exchange->answer);
	exchange_answer(exchange, is_head);
}

/* Connections ---------------------------------------------------------------------------------- */

static void exchange_end(struct exchange *exchange)
{
	close(exchange->fd);
	free(exchange->answer.body);
	exchange->answer.body = NULL;
	exchange->state = FREE;
}

static bool exchange_is_over(const struct exchange *exchange)
{
	long long limit = exchange->state == READING ? READ_MS : WRITE_MS;

	return exchange->since_ns + limit * 1000000 <= http_clock_ns();
}

/* A free row. Clients that say nothing, or take nothing, don't keep others out. */
static struct exchange *exchange_find_room(struct http_server *server)
{
	struct exchange *found = server->exchanges;

	for (int i = 0; i < EXCHANGES; i++) {
		struct exchange *exchange = &server->exchanges[i];

		if (exchange->state == FREE)
			return exchange;
		if (exchange->since_ns < found->since_ns)
			found = exchange;
	}
	exchange_end(found);
	return found;
}

static void exchange_accept(struct http_server *server)
{
	int fd = accept4(server->listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct exchange *exchange;

	if (fd < 0)
		return;
	exchange = exchange_find_room(server);
	exchange->state = READING;
	exchange->fd = fd;
	exchange->length = 0;
	exchange->since_ns = http_clock_ns();
}

static void exchange_read(struct http_server *server, struct exchange *exchange)
{
	ssize_t count = read(exchange->fd, exchange->request + exchange->length,
			     REQUEST_MAX - exchange->length);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count <= 0) {
		exchange_end(exchange);
		return;
	}
	exchange->length += (size_t)count;
	exchange->request[exchange->length] = '\0';
	if (memchr(exchange->request, '\0', exchange->length))
		exchange_refuse(exchange, 400);
	else if (strstr(exchange->request, "\r\n\r\n"))
		http_request_answer(server, exchange);
	else if (exchange->length == REQUEST_MAX)
		exchange_refuse(exchange, 431);
}

static void exchange_write(struct exchange *exchange)
{
	const struct http_answer *answer = &exchange->answer;
	bool is_head = exchange->sent < exchange->head_bytes;
	const char *from = is_head ? exchange->head + exchange->sent
				   : answer->body + (exchange->sent - exchange->head_bytes);
	size_t left = is_head ? exchange->head_bytes - exchange->sent
			      : exchange->head_bytes + answer->bytes - exchange->sent;
	ssize_t count = send(exchange->fd, from, left, MSG_NOSIGNAL);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count > 0) {
		exchange->sent += (size_t)count;
		exchange->since_ns = http_clock_ns();
	}
	if (count < 0 || exchange->sent == exchange->head_bytes + answer->bytes) {
		shutdown(exchange->fd, SHUT_WR);
		exchange_end(exchange);
	}
}

static void exchanges_act(struct http_server *server, const struct pollfd *entries)
{
	for (int i = 0; i < EXCHANGES; i++) {
		struct exchange *exchange = &server->exchanges[i];

		if (exchange->state == FREE)
			continue;
		if (exchange_is_over(exchange))
			exchange_end(exchange);
		else if (!entries[i].revents)
			continue;
		else if (exchange->state == READING)
			exchange_read(server, exchange);
		else
			exchange_write(exchange);
	}
}

/* Waits for something to do. False: the end, with its reason in *result. */
static bool server_wait(struct http_server *server, int stop, struct pollfd *entries, int *result)
{
	bool has_any = false;

	for (int i = 0; i < EXCHANGES; i++) {
		const struct exchange *exchange = &server->exchanges[i];

		has_any |= exchange->state != FREE;
		entries[i] = (struct pollfd){
			.fd = exchange->state == FREE ? -1 : exchange->fd,
			.events = exchange->state == READING ? POLLIN : POLLOUT,
		};
	}
	entries[EXCHANGES] = (struct pollfd){.fd = server->listener->fd, .events = POLLIN};
	entries[EXCHANGES + 1] = (struct pollfd){.fd = stop, .events = POLLIN};
	while (poll(entries, EXCHANGES + 2, has_any ? 500 : -1) < 0)
		if (errno != EINTR) {
			*result = -errno;
			return false;
		}
	return !entries[EXCHANGES + 1].revents;
}

int http_serve(const struct http_listener *listener, int stop, const struct http_service *service)
{
	struct http_server *server = calloc(1, sizeof(*server));
	struct pollfd entries[EXCHANGES + 2];
	int result = 0;

	if (!server)
		return -ENOMEM;
	server->listener = listener;
	server->service = service;
	while (server_wait(server, stop, entries, &result)) {
		exchanges_act(server, entries);
		if (entries[EXCHANGES].revents)
			exchange_accept(server);
	}
	for (int i = 0; i < EXCHANGES; i++)
		if (server->exchanges[i].state != FREE)
			exchange_end(&server->exchanges[i]);
	free(server);
	return result;
}
