/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric show --serve`: the drawing of the fabric as a page that follows it. The page asks
 * for the picture again and again; each is drawn of the fabric's answer, which is at most a second
 * old, with the traffic since the answer before. Owns these two answers. One thread.
 *
 *   /             the page
 *   /picture.svg  the picture; ?from=NODE&to=NODE: with the route between two nodes
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/http.h"

#define SAMPLE_SECONDS 0.9 /* between two questions to the fabric */

struct serving {
	json_t *now, *before; /* answers of `topology` with counters */
	json_t *status;
	double now_s, before_s;
};

static double serving_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Answers of the fabric ------------------------------------------------------------------------ */

/* False: the fabric doesn't answer. */
static bool serving_refresh(struct serving *serving)
{
	double now = serving_clock();
	json_t *reply, *status;

	if (serving->now && now - serving->now_s < SAMPLE_SECONDS)
		return true;
	status = fabric_ask_silently(json_pack("{s:s}", "op", "status"));
	reply = status ? fabric_ask_silently(
				 json_pack("{s:s, s:b}", "op", "topology", "counters", 1))
		       : NULL;
	if (!reply) {
		json_decref(status);
		return false;
	}
	json_decref(serving->status);
	json_decref(serving->before);
	serving->status = status;
	serving->before = serving->now;
	serving->before_s = serving->now_s;
	serving->now = reply;
	serving->now_s = now;
	return true;
}

static void serving_end(struct serving *serving)
{
	json_decref(serving->status);
	json_decref(serving->before);
	json_decref(serving->now);
}

/* The route that the query wants, to be freed. False: the query is malformed. */
static bool serving_route(const char *query, json_t **trace)
{
	char from[TOPOLOGY_NAME_MAX + 1], to[TOPOLOGY_NAME_MAX + 1];
	json_t *request;

	*trace = NULL;
	if (!*query)
		return true;
	if (!http_parameter(query, "from", from, sizeof(from)) ||
	    !http_parameter(query, "to", to, sizeof(to)))
		return false;
	/* NULL: what the client sent is no text. */
	request = json_pack("{s:s, s:s, s:s}", "op", "trace", "from", from, "to", to);
	if (request)
		*trace = fabric_ask_silently(request);
	return request != NULL;
}

/* Pages ---------------------------------------------------------------------------------------- */

static bool nonce_make(char nonce[40])
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return false;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(nonce + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

static void serving_draw(const struct serving *serving, const json_t *trace, bool is_page,
			 struct http_answer *answer)
{
	struct fabric_picture picture = {
		.reply = serving->now,
		.before = serving->before,
		.seconds = serving->now_s - serving->before_s,
		.trace = trace,
		.title = ctl_string(serving->status, "title"),
		.nonce = answer->nonce,
		.is_live = true,
	};
	FILE *out = open_memstream(&answer->body, &answer->bytes);
	int err = out ? fabric_picture_draw(&picture, out, is_page) : -ENOMEM;

	if (out && fclose(out))
		err = -ENOMEM;
	answer->status = err ? 503 : 200;
	answer->type = is_page ? "text/html; charset=utf-8" : "image/svg+xml";
	if (!err)
		return;
	free(answer->body);
	answer->body = NULL;
}

static void serving_answer(void *context, const struct http_request *request,
			   struct http_answer *answer)
{
	bool is_page = !strcmp(request->path, "/");
	json_t *trace = NULL;

	if (!is_page && strcmp(request->path, "/picture.svg") != 0)
		return;
	if (!serving_route(request->query, &trace))
		answer->status = 400;
	else if (!serving_refresh(context))
		answer->status = 502;
	else if (is_page && !nonce_make(answer->nonce))
		answer->status = 503;
	else
		serving_draw(context, trace, is_page, answer);
	json_decref(trace);
}

/* The command ---------------------------------------------------------------------------------- */

static int serving_signals(void)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &stop, SFD_CLOEXEC);
}

int fabric_serve(const char *where)
{
	struct serving serving = {0};
	const struct http_service service = {serving_answer, &serving};
	struct http_listener listener;
	json_t *status;
	int stop, code = fabric_request(json_pack("{s:s}", "op", "status"), false, &status);

	if (code != CLI_OK)
		return code;
	json_decref(status);
	code = http_listen(&listener, where);
	if (code) {
		cli_error(
			"cannot serve at `%s`: %s; it is a port of 127.0.0.1 (0: any), or the path "
			"of a socket, with a slash",
			where, strerror(-code));
		return CLI_FAILURE;
	}
	stop = serving_signals();
	if (listener.port)
		printf("http://127.0.0.1:%d/\n", listener.port);
	else
		printf("%s\n", listener.path);
	fflush(stdout);
	code = stop < 0 ? -errno : http_serve(&listener, stop, &service);
	if (code)
		cli_error("serving has ended: %s", strerror(-code));
	http_close(&listener);
	if (stop >= 0)
		close(stop);
	serving_end(&serving);
	return code ? CLI_FAILURE : cli_finish(CLI_OK);
}
