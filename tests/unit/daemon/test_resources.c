/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena resources` with many objects (daemon/core/resources.h): the answer is written as the
 * client reads it, so it takes no memory, and what ends meanwhile does no harm.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw.h"

enum { REGIONS = 40000, ANSWER_MAX = 64 << 20, GROWS_KIB = 4096 };

static int context_with_regions(const struct raw_process *process, int count)
{
	struct ib_uverbs_reg_mr_resp resp;
	int ctx = raw_context(&server, process);
	uint32_t pd = raw_pd(ctx);

	for (int i = 0; i < count; i++)
		raw_mr(ctx, pd, &resp);
	return ctx;
}

/* Asks; returns the connection, with the answer's beginning in it. */
static int ask(void)
{
	static const char question[] = "{\"op\":\"resources\"}\n";
	int fd = raw_connect_ctl(&server);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	assert_int_equal(send(fd, question, strlen(question), 0), strlen(question));
	assert_int_equal(poll(&p, 1, 60000), 1);
	return fd;
}

static json_t *answer_of(int fd)
{
	char *text = malloc(ANSWER_MAX);
	size_t size = 0;
	ssize_t n;

	assert_non_null(text);
	while ((n = read(fd, text + size, ANSWER_MAX - size)) > 0)
		size += (size_t)n;
	assert_int_equal(n, 0);
	json_t *answer = json_loadb(text, size, 0, NULL);

	assert_non_null(answer);
	free(text);
	close(fd);
	return answer;
}

/* Each region is in the answer once. Returns how many there are. */
static size_t regions_in(const json_t *answer)
{
	static uint8_t seen[1 << 20];
	const json_t *mr;
	size_t i;

	memset(seen, 0, sizeof(seen));
	json_array_foreach(json_object_get(answer, "mr"), i, mr) {
		uint32_t rkey = (uint32_t)json_integer_value(json_object_get(mr, "rkey"));

		assert_int_equal(seen[rkey >> 8]++, 0);
	}
	return json_array_size(json_object_get(answer, "mr"));
}

static void an_unread_answer_takes_no_memory(void **state)
{
	struct raw_process process;

	(void)state;
	raw_attach(&server, &process);
	int ctx = context_with_regions(&process, REGIONS);
	long rss = raw_daemon_rss(&server);
	int fd = ask();

	raw_pd(ctx); /* the daemon goes on */
	assert_true(raw_daemon_rss(&server) - rss < GROWS_KIB);
	json_t *answer = answer_of(fd);

	assert_int_equal(regions_in(answer), REGIONS);
	json_decref(answer);
	close(ctx);
	raw_detach(&process);
	raw_expect_count(&server, "clients", 0);
}

static void objects_end_while_it_is_written(void **state)
{
	struct raw_process process;

	(void)state;
	raw_attach(&server, &process);
	int first = context_with_regions(&process, REGIONS / 2);
	int second = context_with_regions(&process, REGIONS / 2);
	int fd = ask();

	close(first);
	raw_pd(second);
	json_t *answer = answer_of(fd);

	/* The socket has room for a part of the first context's only. */
	assert_in_range(regions_in(answer), REGIONS / 2, REGIONS - 1);
	json_decref(answer);
	fd = ask();
	close(second);
	raw_detach(&process);
	raw_expect_count(&server, "clients", 0);
	json_decref(answer_of(fd));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unread_answer_takes_no_memory),
		cmocka_unit_test(objects_end_while_it_is_written),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
