/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The socket `fabctl`: a client sends a line of JSON, gets one, and is done. Requests have a
 * limited length, answers are sent as the client reads them, and a client that does neither is
 * closed when others need its place.
 */
#include "fabricd/control.h"
#include "fabricd/members.h"
#include "fabricd/tap.h"

#include "client/call.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_AT_ONCE = 32, REQUEST_BYTES = 8192 };

/* An answer of so many bytes was made of so much memory that it goes back to the system. */
#define ANSWER_IS_LARGE (256 << 10)

struct control_client {
	struct list node; /* on server.controls, the oldest first */
	struct watched watched;
	size_t received, sent, length;
	char *answer; /* NULL: the request isn't complete */
	bool ends_fabric;
	int passed; /* the descriptor that goes with the answer; -1: none */
	char request[REQUEST_BYTES];
};

static void client_free(struct server *server, struct control_client *client)
{
	bool ends = client->ends_fabric;
	bool is_large = client->length > ANSWER_IS_LARGE;

	server_unwatch(server, &client->watched);
	list_del(&client->node);
	if (client->passed >= 0)
		close(client->passed);
	free(client->answer);
	free(client);
	if (is_large)
		malloc_trim(0);
	server->is_over |= ends;
}

void controls_close(struct server *server)
{
	list_for_each(node, &server->controls)
		client_free(server, container_of(node, struct control_client, node));
}

/* Makes the line of the answer. False: there is none. */
static bool answer_make(struct server *server, struct control_client *client)
{
	json_t *request =
		json_loadb(client->request, client->received, JSON_REJECT_DUPLICATES, NULL);
	json_t *answer = json_is_object(request)
				 ? operation_answer(server, request)
				 : answer_refuse("a request is one line with a JSON object");
	char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;

	if (json_is_true(json_object_get(answer, "ok"))) {
		client->ends_fabric = !strcmp(request_text(request, "op"), "down");
		if (!strcmp(request_text(request, "op"), "capture"))
			client->passed = tap_begin(server, (uint32_t)json_integer_value(
								   json_object_get(answer, "row")));
	}
	json_decref(answer);
	json_decref(request);
	if (!text)
		return false;
	client->length = strlen(text) + 1;
	if (client->length > ANSWER_IS_LARGE)
		malloc_trim(0);
	client->answer = text;
	text[client->length - 1] = '\n'; /* in place of the terminating zero */
	return true;
}

/* Sends what the socket takes. False: it is over. */
static bool answer_continue(struct control_client *client)
{
	if (client->passed >= 0) {
		/* The answer to a capture is short: it goes as a whole. */
		int result = packet_send(client->watched.fd, client->answer, client->length,
					 &client->passed, 1, MSG_DONTWAIT);

		if (!result)
			client->sent = client->length;
		return result == -EAGAIN;
	}
	while (client->sent < client->length) {
		ssize_t n = send(client->watched.fd, client->answer + client->sent,
				 client->length - client->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		client->sent += (size_t)n;
	}
	return false;
}

/* Reads the request. False: the client is gone, or sent too much. */
static bool request_continue(struct control_client *client, bool *is_complete)
{
	ssize_t n = recv(client->watched.fd, client->request + client->received,
			 sizeof client->request - client->received, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	client->received += (size_t)n;
	*is_complete = memchr(client->request, '\n', client->received) != NULL;
	return n && (*is_complete || client->received < sizeof client->request);
}

static void client_ready(struct server *server, struct watched *watched, uint32_t events)
{
	struct control_client *client = container_of(watched, struct control_client, watched);
	bool is_complete = false;
	bool goes_on;

	(void)events;
	if (client->answer) {
		goes_on = answer_continue(client);
	} else {
		goes_on = request_continue(client, &is_complete);
		if (goes_on && is_complete) {
			members_fold(server);
			goes_on = answer_make(server, client) && answer_continue(client);
			server_watch_change(server, &client->watched, EPOLLOUT);
		}
	}
	if (!goes_on)
		client_free(server, client);
}

void control_accept(struct server *server, int fd)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof peer;
	struct control_client *client = NULL;
	unsigned int count = 0;

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	if (peer.uid == geteuid() || !peer.uid)
		client = calloc(1, sizeof *client);
	list_for_each(node, &server->controls)
		count++;
	if (client && count >= CLIENTS_AT_ONCE)
		client_free(server,
			    container_of(server->controls.next, struct control_client, node));
	if (!client || server_watch(server, &client->watched, fd, EPOLLIN) < 0) {
		free(client);
		close(fd);
		return;
	}
	client->watched.ready = client_ready;
	client->passed = -1;
	list_add_tail(&server->controls, &client->node);
}
