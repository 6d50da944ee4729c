/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small HTTP server for pages that this command makes, to be looked at by browsers of this
 * machine: on a port of the loopback interface, or a Unix socket. It only answers GET and HEAD, one
 * request to a connection. Clients aren't trusted: a request that is too long, too slow, malformed,
 * or meant for another host (a page elsewhere whose name was made to lead here) is refused, and
 * none can hold up the others: when there are as many clients as the server has room for, a new one
 * takes the place of that which has been silent the longest. One thread.
 */
#ifndef VERBENA_CLI_HTTP_H
#define VERBENA_CLI_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

struct http_request {
	const char *path;  /* as sent: percent signs and all */
	const char *query; /* behind the question mark; "": none */
};

struct http_answer {
	int status;	  /* 200, 400, 404, 502 or 503 */
	const char *type; /* of the body */
	char *body;	  /* by malloc(), the server's from then on; NULL: the status as text */
	size_t bytes;
	char nonce[40]; /* of the page's script; "": it has none */
};

struct http_service {
	/* Makes the answer to a request. */
	void (*answer)(void *context, const struct http_request *request,
		       struct http_answer *answer);
	void *context;
};

struct http_listener {
	int fd;
	int port;					     /* 0: a Unix socket */
	char path[sizeof((struct sockaddr_un){0}.sun_path)]; /* of that */
};

/* Listens at `where`: a number (0: any port), or a path with a slash. 0 or a negative errno;
 * -EINVAL: it is neither. */
int http_listen(struct http_listener *listener, const char *where);
void http_close(struct http_listener *listener);

/* Serves until `stop` can be read. 0 or a negative errno. */
int http_serve(const struct http_listener *listener, int stop, const struct http_service *service);

/* A parameter of a query, decoded. False: it isn't there, is malformed, or hasn't room. */
bool http_parameter(const char *query, const char *name, char *value, size_t size);

#endif
