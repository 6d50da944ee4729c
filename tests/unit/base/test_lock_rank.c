/* SPDX-License-Identifier: BSD-2-Clause */
/* Locks that are taken in a wrong order abort, with both names. Each case is a child, which is
 * compiled with VERBENA_LOCK_RANKS as the sanitizers' builds are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/mutex.h"

static struct lock qp, other_qp, cq, unranked;
static struct mutex hca = MUTEX_INITIALIZER(RANK_HCA);

static void right_order(void)
{
	for (int i = 0; i < 2; i++) {
		mutex_take(&hca);
		lock_take(&qp);
		lock_take(&cq);
		mutex_give(&hca);
		lock_give(&cq);
		lock_give(&qp);
		lock_take(&other_qp);
		lock_give(&other_qp);
	}
}

static void wrong_order(void)
{
	lock_take(&cq);
	lock_take(&qp);
}

static void mutex_inside(void)
{
	lock_take(&qp);
	mutex_take(&hca);
}

static void two_of_a_kind(void)
{
	lock_take(&qp);
	lock_take(&other_qp);
}

static void twice(void)
{
	lock_take(&qp);
	lock_take(&qp);
}

static void not_held(void)
{
	lock_give(&qp);
}

static void without_rank(void)
{
	lock_take(&unranked);
}

/* Trying can't deadlock; but a lock that was tried counts for those taken after it. */
static void tried(void)
{
	lock_take(&cq);
	if (lock_try(&qp))
		lock_take(&other_qp);
}

/* A call to the daemon under hca.lock, or under a lock of a fast path. */
static void blocks_outside(void)
{
	lock_take(&qp);
	lock_give(&qp);
	rank_check_blocking("a call");
}

static void blocks_with_qp(void)
{
	lock_take(&qp);
	rank_check_blocking("a call");
}

static void blocks_with_hca(void)
{
	mutex_take(&hca);
	rank_check_blocking("a call");
}

static void within(void)
{
	lock_take(&qp);
	lock_take_within(&cq, &qp);
	lock_give(&cq);
	lock_give(&qp);
}

static void within_nothing(void)
{
	lock_take_within(&cq, &qp);
}

/* As if another thread held it, without the outer lock. */
static void within_and_held(void)
{
	lock_take(&qp);
	atomic_store(&cq.word, 1);
	lock_take_within(&cq, &qp);
}

/* What the child wrote to stderr; *aborted: whether it aborted. */
static void run(void (*what)(void), char *said, size_t size, bool *aborted)
{
	int fds[2], status;
	size_t used = 0;
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	pid_t child = fork();

	if (!child) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		dup2(fds[1], 2);
		what();
		_exit(0);
	}
	close(fds[1]);
	while (used < size - 1 && (n = read(fds[0], said + used, size - 1 - used)) > 0)
		used += (size_t)n;
	said[used] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	*aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
	assert_true(*aborted || (WIFEXITED(status) && !WEXITSTATUS(status)));
}

static void orders(void **state)
{
	static const struct {
		void (*what)(void);
		const char *says; /* NULL: nothing is wrong */
	} cases[] = {
		{right_order, NULL},
		{wrong_order, "takes qp.lock while holding cq.lock"},
		{mutex_inside, "takes hca.lock while holding qp.lock"},
		{two_of_a_kind, "takes qp.lock while holding qp.lock"},
		{twice, "takes again qp.lock"},
		{not_held, "gives back a lock that it doesn't hold"},
		{without_rank, "takes (a lock without a rank)"},
		{blocks_outside, NULL},
		{blocks_with_qp, "a call may block while holding qp.lock"},
		{blocks_with_hca, "a call may block while holding hca.lock"},
		{tried, "takes qp.lock while holding cq.lock"},
		{within, NULL},
		{within_nothing, "doesn't hold qp.lock"},
		{within_and_held, "takes within another, though a thread holds it, cq.lock"},
	};

	(void)state;
	lock_init(&qp, RANK_QP);
	lock_init(&other_qp, RANK_QP);
	lock_init(&cq, RANK_CQ);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char said[4096];
		bool aborted;

		run(cases[i].what, said, sizeof(said), &aborted);
		assert_int_equal(aborted, cases[i].says != NULL);
		if (cases[i].says && !strstr(said, cases[i].says))
			fail_msg("case %zu: %s", i, said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(orders)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
