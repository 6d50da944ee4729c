/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hazards: no thread accesses a region that has ended, with membarrier() and without; nested
 * scopes; the wait for a peer ends when its hazard is cleared, its process ends, or the time is
 * over.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/peer.h"
#include "hca/mem/hazard.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

enum { SLOT = 3, PEER_SLOT = 5, PEER_PID = 4711, KEY = 0x1201, OTHER_KEY = 0x1301, THREADS = 1 };
enum { ROUNDS = 300, DWELL = 20000 };

/* ------------------------------------------------------------------ what hazard.c calls */

static _Atomic uint64_t clock_ns;
static bool ended, stopped;
static unsigned int broken;
static const char *broken_why;

uint64_t now_ns(void)
{
	return atomic_fetch_add(&clock_ns, 300000000) + 1;
}

bool peer_ended(const struct peer_process *peer)
{
	(void)peer;
	return ended;
}

char peer_state(const struct peer_process *peer)
{
	(void)peer;
	return stopped ? 'T' : 'S';
}

/* The thread that is stopped at the end of its copy; 0: none is. */
static uint32_t copied;

bool peer_stopped_after_copy(const struct peer_process *peer, uint32_t thread)
{
	(void)peer;
	return copied && thread == copied;
}

void link_break(struct link *link, const char *why)
{
	broken++;
	broken_why = why;
	atomic_store(&link->state, LINK_ENDING);
}

/* ------------------------------------------------------------------ the process */

static struct hca *hca;
static struct link *peer_link;
static struct pub_regions *peer_regions;

/* Zeroes, at a page's beginning as the process's own are. Freed by free(). */
static void *pages_of(size_t size)
{
	size_t whole = (size + 4095) & ~(size_t)4095;
	void *at = aligned_alloc(4096, whole);

	assert_non_null(at);
	return memset(at, 0, whole);
}

static int setup(void **state)
{
	(void)state;
	hca = calloc(1, sizeof(*hca));
	hca->pub = pages_of(sizeof(*hca->pub));
	hca->slot = SLOT;
	mutex_init(&hca->lock, RANK_HCA);
	lock_init(&hca->engine, RANK_ENGINE);
	peer_regions = pages_of(sizeof(*peer_regions));
	peer_link = calloc(1, sizeof(*peer_link));
	peer_link->hca = hca;
	peer_link->slot = PEER_SLOT;
	peer_link->pid = PEER_PID;
	peer_link->regions = peer_regions;
	atomic_store(&peer_link->state, LINK_UP);
	ended = stopped = false;
	copied = 0;
	broken = 0;
	return hazard_make(hca);
}

static int teardown(void **state)
{
	(void)state;
	hazard_unmake(hca);
	free(peer_link);
	free(peer_regions);
	free(hca->pub);
	free(hca);
	return 0;
}

/* ------------------------------------------------------------------ own hazards */

struct user {
	pthread_t thread;
	struct own_hazards *own;
};

static _Atomic bool registered, over, finish;
static _Atomic uint32_t touches, violations;

/* As a copy does: names the region, looks it up, accesses it. */
static void touch(struct own_hazards *own)
{
	const struct qp qp = {.hazards = own};
	HAZARD_SCOPE(holds, &qp);

	assert_true(hazard_push(&holds, OTHER_KEY) && hazard_push(&holds, KEY));
	hazard_publish();
	if (!atomic_load_explicit(&registered, memory_order_relaxed))
		return;
	atomic_fetch_add(&touches, 1);
	for (volatile int i = 0; i < DWELL; i++)
		if (atomic_load_explicit(&over, memory_order_relaxed))
			atomic_fetch_add(&violations, 1);
}

static void *use(void *arg)
{
	struct user *user = arg;

	while (!atomic_load_explicit(&finish, memory_order_relaxed))
		touch(user->own);
	return NULL;
}

static void end_while_used(void)
{
	struct user users[THREADS];

	atomic_store(&finish, false);
	atomic_store(&over, false);
	for (uint32_t i = 0; i < THREADS; i++) {
		users[i].own = hazard_own(hca);
		assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		atomic_store(&over, false);
		atomic_store(&registered, true);
		uint32_t before = atomic_load(&touches);

		/* In half of the rounds during an access. */
		while (i % 2 && atomic_load(&touches) == before)
			sched_yield();
		atomic_store(&registered, false);
		atomic_store(&clock_ns, 0);
		while (hazard_wait_region(hca, KEY)) /* the clock runs fast here */
			;
		atomic_store(&over, true);
		for (volatile int spin = 0; spin < 200; spin++)
			;
	}
	atomic_store(&finish, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(users[i].thread, NULL);
	assert_int_equal(atomic_load(&violations), 0);
}

static void no_touch_after_the_end(void **state)
{
	(void)state;
	end_while_used();
}

/* As where membarrier() is refused. */
static void no_touch_with_fences(void **state)
{
	(void)state;
	hazard_fences = true;
	end_while_used();
}

static void scopes_nest(void **state)
{
	struct own_hazards *own = hazard_own(hca);
	struct hazard_scope outer = hazard_scope_begin(own), inner;

	(void)state;
	assert_true(hazard_push(&outer, KEY));
	inner = hazard_scope_begin(own);
	assert_true(hazard_push(&inner, OTHER_KEY));
	assert_int_equal(hazard_wait_region(hca, OTHER_KEY), -EBUSY);
	assert_int_equal(atomic_load(&hca->pub->held_up.pid), getpid());
	hazard_scope_end(&inner);
	assert_int_equal(hazard_wait_region(hca, OTHER_KEY), 0);
	assert_int_equal(atomic_load(&hca->pub->held_up.pid), 0);
	assert_int_equal(hazard_wait_region(hca, KEY), -EBUSY);
	hazard_scope_end(&outer);
	assert_int_equal(hazard_wait_region(hca, KEY), 0);
}

static void too_many_keys(void **state)
{
	struct hazard_scope scope = hazard_scope_begin(hazard_own(hca));

	(void)state;
	for (int i = 0; i < OWN_HAZARDS_MAX; i++)
		assert_true(hazard_push(&scope, KEY));
	assert_false(hazard_push(&scope, KEY));
	hazard_scope_end(&scope);
	assert_int_equal(hazard_wait_region(hca, KEY), 0);
}

/* A process that makes and destroys QPs for years uses as many own hazards as it has QPs at once,
 * and each deregistration reads only these. */
static void places_are_used_again(void **state)
{
	struct own_hazards *kept = hazard_own(hca), *own[3];

	(void)state;
	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 3; i++) {
			own[i] = hazard_own(hca);
			struct hazard_scope scope = hazard_scope_begin(own[i]);

			assert_int_equal(scope.mark, 0);
			assert_true(hazard_push(&scope, KEY + (uint32_t)i));
		}
		assert_true(own[0] != own[1] && own[1] != own[2] && own[2] != own[0]);
		for (int i = 0; i < 3; i++) {
			assert_ptr_not_equal(own[i], kept);
			assert_int_equal(atomic_load(&own[i]->key[0]), KEY + i);
			hazard_scope_end(&(struct hazard_scope){own[i], 0});
		}
		for (int i = 0; i < 3; i++)
			hazard_disown(hca, own[(round + i) % 3]);
	}
	assert_int_equal(atomic_load(&hca->own_hazards_used), 4);
}

/* ------------------------------------------------------------------ peers' hazards */

static void peer_names(uint32_t key)
{
	atomic_store(&hca->link_by_slot[PEER_SLOT], peer_link);
	atomic_store(&peer_regions->hazard[7].thread, 4712);
	atomic_store(&peer_regions->hazard[7].target, key ? (uint64_t)SLOT << 32 | key : 0);
}

static void stuck_peer(void **state)
{
	(void)state;
	peer_names(KEY);
	assert_int_equal(hazard_wait_region(hca, OTHER_KEY), 0);
	assert_int_equal(hazard_wait_region(hca, KEY), -EBUSY);
	assert_int_equal(broken, 1);
	assert_non_null(strstr(broken_why, "held up a deregistration"));
	assert_int_equal(atomic_load(&hca->pub->held_up.pid), PEER_PID);
	assert_int_equal(atomic_load(&hca->pub->held_up.thread), 4712);
	assert_int_equal(atomic_load(&hca->pub->held_up.key), KEY);
	assert_int_equal(atomic_load(&peer_link->watchers), 0);
	/* The link is down, but the peer's hazard still counts. */
	assert_true(hazard_from_peer(peer_link));
	assert_int_equal(hazard_wait_region(hca, KEY), -EBUSY);
	assert_int_equal(broken, 1);
	peer_names(0);
	assert_false(hazard_from_peer(peer_link));
	assert_int_equal(hazard_wait_region(hca, KEY), 0);
	assert_int_equal(atomic_load(&hca->pub->held_up.pid), 0);
}

static void stopped_peer(void **state)
{
	(void)state;
	stopped = true;
	peer_names(KEY);
	uint64_t before = atomic_load(&clock_ns);

	assert_int_equal(hazard_wait_region(hca, KEY), -EBUSY);
	assert_true(atomic_load(&clock_ns) - before < HAZARD_PATIENCE_NS / 2);
}

/* A thread that is stopped at its copy's end isn't waited for, another one of the same process that
 * is stopped elsewhere is. */
static void stopped_after_copy(void **state)
{
	(void)state;
	stopped = true;
	copied = 4712;
	peer_names(KEY);
	assert_int_equal(hazard_wait_region(hca, KEY), 0);
	assert_int_equal(hazard_look_region(hca, KEY, 0), HAZARD_NONE);
	atomic_store(&peer_regions->hazard[9].thread, 4713);
	atomic_store(&peer_regions->hazard[9].target, (uint64_t)SLOT << 32 | KEY);
	assert_int_equal(hazard_wait_region(hca, KEY), -EBUSY);
	assert_int_equal(atomic_load(&hca->pub->held_up.thread), 4713);
	assert_int_equal(hazard_look_region(hca, KEY, 0), HAZARD_STUCK);
	atomic_store(&peer_regions->hazard[9].target, 0);
	assert_int_equal(hazard_wait_region(hca, KEY), 0);
}

/* The copy takes more calls than the one at whose end its thread is stopped. */
static void stopped_between_calls(void **state)
{
	struct pub_regions *own = pages_of(sizeof(*own));

	(void)state;
	stopped = true;
	copied = 4712;
	peer_names(KEY);
	atomic_store(&peer_regions->hazard[7].thread, copied | PUB_HAZARD_SEVERAL);
	assert_int_equal(hazard_wait_region(hca, KEY), -EBUSY);
	assert_int_equal(atomic_load(&hca->pub->held_up.thread), 4712);

	/* As the peer announces it. */
	hazard_unmake(hca);
	hca->regions = own;
	assert_int_equal(hazard_make(hca), 0);
	_Atomic uint64_t *hazard = hazard_set(hca, PEER_SLOT, OTHER_KEY);
	_Atomic uint64_t *inner = hazard_set_inner(hca, PEER_SLOT, OTHER_KEY);

	hazard_takes_several();
	for (int i = 0; i < (int)PUB_HAZARDS; i++)
		assert_int_equal(atomic_load(&own->hazard[i].thread),
				 &own->hazard[i].target == hazard || &own->hazard[i].target == inner
					 ? (uint32_t)gettid() | PUB_HAZARD_SEVERAL
					 : 0);
	hazard_clear(hazard);
	hazard_clear(inner);
	hazard = hazard_set(hca, PEER_SLOT, OTHER_KEY);
	assert_int_equal(atomic_load(&own->hazard[0].thread), gettid()); /* not the next copy */
	hazard_clear(hazard);
	free(own);
}

static void ended_peer(void **state)
{
	(void)state;
	ended = true;
	peer_names(KEY);
	assert_int_equal(hazard_wait_region(hca, KEY), 0);
	assert_false(hazard_from_peer(peer_link));
	assert_int_equal(broken, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(no_touch_after_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(no_touch_with_fences, setup, teardown),
		cmocka_unit_test_setup_teardown(scopes_nest, setup, teardown),
		cmocka_unit_test_setup_teardown(too_many_keys, setup, teardown),
		cmocka_unit_test_setup_teardown(places_are_used_again, setup, teardown),
		cmocka_unit_test_setup_teardown(stuck_peer, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped_peer, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped_after_copy, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped_between_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(ended_peer, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
