/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues: their descriptor is readable exactly while there are events, also under races. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakes.h"
#include "hca/process/context.h"
#include "hca/verbs/event.h"

static int a, b; /* two objects */

static void set_nonblocking(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

static void events_come_out_in_order(void **state)
{
	struct event_queue queue;
	struct event event;
	uint32_t reported = 0;

	(void)state;
	assert_int_equal(event_queue_init(&queue), 0);
	set_nonblocking(queue.fd);
	assert_false(fd_readable(queue.fd));
	event_queue_push(&queue, &a, NULL, &reported);
	event_queue_push(&queue, &b, NULL, NULL);
	assert_true(fd_readable(queue.fd));
	assert_int_equal(reported, 0); /* given out, not raised */
	assert_int_equal(event_queue_read(&queue, &event), 0);
	assert_ptr_equal(event.object, &a);
	assert_int_equal(reported, 1);
	assert_true(fd_readable(queue.fd));
	assert_int_equal(event_queue_read(&queue, &event), 0);
	assert_ptr_equal(event.object, &b);
	assert_false(fd_readable(queue.fd));
	assert_int_equal(event_queue_read(&queue, &event), -1);
	assert_int_equal(errno, EAGAIN);
	event_queue_destroy(&queue);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static bool refuses_memory;

void *__libc_malloc(size_t size);

/* In place of the C library's, in the whole program. */
void *malloc(size_t size)
{
	return refuses_memory ? NULL : __libc_malloc(size);
}

/* Events are raised and read, a few at a time, while there is no memory. */
static void events_need_no_memory(void **state)
{
	struct event_queue queue;
	struct event event;

	(void)state;
	assert_int_equal(event_queue_init(&queue), 0);
	refuses_memory = true;
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 8; i++)
			event_queue_push(&queue, &a, NULL, NULL);
		event_queue_forget(&queue, &a);
		for (int i = 0; i < 8; i++)
			event_queue_push(&queue, &b, NULL, NULL);
		for (int i = 0; i < 8; i++)
			event_queue_read(&queue, &event);
	}
	refuses_memory = false;
	assert_ptr_equal(event.object, &b);
	assert_false(fd_readable(queue.fd));
	event_queue_destroy(&queue);
	refuses_memory = true;
	int err = event_queue_init(&queue);

	refuses_memory = false;
	assert_int_equal(err, -ENOMEM);
}
#endif

static void forgotten_events_leave_nothing_to_read(void **state)
{
	struct event_queue queue;
	struct event event;

	(void)state;
	assert_int_equal(event_queue_init(&queue), 0); /* blocking: forget must not block */
	event_queue_forget(&queue, &a);
	event_queue_push(&queue, &a, NULL, NULL);
	event_queue_push(&queue, &b, NULL, NULL);
	event_queue_push(&queue, &a, NULL, NULL);
	event_queue_forget(&queue, &a);
	assert_true(fd_readable(queue.fd));
	assert_int_equal(event_queue_read(&queue, &event), 0);
	assert_ptr_equal(event.object, &b);
	assert_false(fd_readable(queue.fd));
	event_queue_push(&queue, &a, NULL, NULL);
	event_queue_forget(&queue, &a);
	assert_false(fd_readable(queue.fd));
	event_queue_destroy(&queue);
}

/* A reader that holds a count when its event is forgotten goes back to sleep. */
static void reader_in_flight_sees_no_empty_queue(void **state)
{
	struct event_queue queue;
	struct event event;
	uint64_t count;

	(void)state;
	assert_int_equal(event_queue_init(&queue), 0);
	set_nonblocking(queue.fd);
	event_queue_push(&queue, &a, NULL, NULL);
	assert_int_equal(read(queue.fd, &count, sizeof(count)), sizeof(count));
	event_queue_forget(&queue, &a); /* finds no count to take back */
	assert_false(fd_readable(queue.fd));
	event_queue_push(&queue, &b, NULL, NULL);
	assert_int_equal(event_queue_read(&queue, &event), 0);
	assert_ptr_equal(event.object, &b);
	event_queue_destroy(&queue);
}

enum { ROUNDS = 20000, STOP = 1 };

struct race {
	struct event_queue queue;
	uint32_t reported;
	uint32_t got;
	char stop;
};

static void *race_reader(void *arg)
{
	struct race *race = arg;
	struct event event;

	while (event_queue_read(&race->queue, &event) == 0 && event.object != &race->stop)
		race->got++;
	return NULL;
}

static void *race_pusher(void *arg)
{
	struct race *race = arg;

	for (int i = 0; i < ROUNDS; i++)
		event_queue_push(&race->queue, i % 2 ? &a : &b, NULL, &race->reported);
	return NULL;
}

static void *race_forgetter(void *arg)
{
	struct race *race = arg;

	for (int i = 0; i < ROUNDS; i++)
		event_queue_forget(&race->queue, &a);
	return NULL;
}

static void counts_and_events_agree_after_races(void **state)
{
	static struct race race;
	pthread_t readers[2], pusher, forgetter;

	(void)state;
	assert_int_equal(event_queue_init(&race.queue), 0);
	pthread_create(&readers[0], NULL, race_reader, &race);
	pthread_create(&forgetter, NULL, race_forgetter, &race);
	pthread_create(&pusher, NULL, race_pusher, &race);
	pthread_join(pusher, NULL);
	pthread_join(forgetter, NULL);
	event_queue_push(&race.queue, &race.stop, NULL, NULL);
	pthread_join(readers[0], NULL);
	assert_int_equal(race.got, race.reported);
	assert_true(race.got >= ROUNDS / 2); /* b's are never forgotten */
	assert_false(fd_readable(race.queue.fd));
	assert_true(list_empty(&race.queue.events));
	event_queue_destroy(&race.queue);
}

static void device_events_reach_the_devices_contexts(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_async_event event;

	(void)state;
	async_device(context_of(context)->hca, IBV_EVENT_PORT_ACTIVE, 1, 1); /* another's */
	async_device(context_of(context)->hca, IBV_EVENT_PORT_ERR, 0, 1);
	assert_int_equal(async_get_event(context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_PORT_ERR);
	assert_int_equal(event.element.port_num, 1);
	async_ack_event(&event);
	fake_close(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_out_in_order),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		cmocka_unit_test(events_need_no_memory),
#endif
		cmocka_unit_test(forgotten_events_leave_nothing_to_read),
		cmocka_unit_test(reader_in_flight_sees_no_empty_queue),
		cmocka_unit_test(counts_and_events_agree_after_races),
		cmocka_unit_test(device_events_reach_the_devices_contexts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
