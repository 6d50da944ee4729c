/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links, where something fails or has failed: the next link at a slot begins without what its
 * predecessor has left. The file is link.c itself, with a daemon and memory that can be refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/daemon.h"
#include "hca/process/books.h"

/* ------------------------------------------------------------------ what link.c calls */

static bool no_memory;
static struct {
	int result; /* of the next calls */
	uint32_t slot;
	uint64_t unlinked; /* the last link that was given back */
	unsigned int unlinks, asked, returns;
} fake_daemon;

static void *scarce_malloc(size_t size)
{
	return no_memory ? NULL : malloc(size);
}

static void *scarce_calloc(size_t count, size_t size)
{
	return no_memory ? NULL : calloc(count, size);
}

static int fake_unlink(struct daemon_conn *conn, uint32_t slot, uint64_t id)
{
	(void)conn;
	fake_daemon.slot = slot;
	fake_daemon.unlinked = id;
	fake_daemon.unlinks++;
	return fake_daemon.result;
}

static int fake_link(struct daemon_conn *conn, uint32_t slot)
{
	(void)conn, (void)slot;
	fake_daemon.asked++;
	return fake_daemon.result;
}

/* Starts the next daemon. */
static void fake_return(struct hca *of)
{
	(void)of;
	fake_daemon.returns++;
}

#define malloc scarce_malloc
#define calloc scarce_calloc
#define daemon_unlink fake_unlink
#define daemon_link fake_link
#define return_for_link fake_return
#include "hca/local/link.c"
#undef malloc
#undef calloc

/* ------------------------------------------------------------------ the process */

enum { SLOT = 5, PEER_PID = 4711 };

static struct hca *hca;
static struct qp *no_qps[LIMIT_QPS_PER_SLOT];
static struct xrc_here no_xrc;
static struct pub own_table;
static int event_pid = PEER_PID;
static bool same_user;	  /* the event brings the regions' file */
static bool shut_by_peer; /* the event's link */
static int hca_epoll;

/* In src/abi, which isn't linked. */
const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status ? "error" : "success";
}

static int setup(void **state)
{
	(void)state;
	no_memory = same_user = shut_by_peer = false;
	hca_epoll = epoll_create1(EPOLL_CLOEXEC);
	event_pid = PEER_PID;
	memset(&fake_daemon, 0, sizeof(fake_daemon));
	hca = calloc(1, sizeof(*hca));
	assert_non_null(hca);
	mutex_init(&hca->lock, RANK_HCA);
	mutex_init(&hca->events_lock, RANK_EVENTS);
	rwlock_init(&hca->books, RANK_BOOKS);
	lock_init(&hca->engine, RANK_ENGINE);
	hca->qps = no_qps;
	hca->xrc = &no_xrc;
	hca->slot = SLOT + 1;
	hca->epoll = hca_epoll;
	hca->pub = &own_table;
	list_init(&hca->acks);
	list_init(&hca->tagged);
	hca->kicked = hca->control_woken = true; /* neither thread exists */
	list_init(&hca->links);
	hca->link_idle_ns = 1000000000;
	atomic_store(&hca->link_idle_at, UINT64_MAX);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(atomic_load(&hca->link_by_slot[SLOT]));
	free(hca);
	close(hca_epoll);
	return 0;
}

static int file_of(size_t size, const void *begin, size_t bytes)
{
	int fd = memfd_create("link", MFD_CLOEXEC);

	assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	assert_true(!bytes || pwrite(fd, begin, bytes, 0) == (ssize_t)bytes);
	return fd;
}

/* The daemon's event: a link with this id to the process at SLOT. `fds` keeps the descriptors,
 * which link_install() takes over. */
static void link_event(uint64_t id, uint32_t side, int *fds)
{
	const struct proto_event event = {.type = PROTO_EVENT_LINK,
					  .slot = SLOT,
					  .link_id = id,
					  .side = side,
					  .pid = event_pid,
					  .uid = geteuid()};
	const struct pub_header header = {.magic = PUB_MAGIC, .version = PUB_VERSION};
	int taken[PROTO_MAX_FDS];

	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		fds[i] = -1;
	fds[0] = file_of(LINK_SIZE, NULL, 0);
	fds[1] = file_of(PUB_SIZE, &header, sizeof(header));
	fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (same_user)
		fds[3] = file_of(PUB_REGIONS_SIZE, NULL, 0);
	memcpy(taken, fds, sizeof(taken));
	if (shut_by_peer) {
		const uint32_t shut = LINK_PART_SHUT;
		off_t at = (off_t)offsetof(struct link_memory, part[side]);

		assert_int_equal(pwrite(fds[0], &shut, sizeof(shut), at), sizeof(shut));
	}
	mutex_take(&hca->events_lock);
	link_install(hca, &event, taken);
	mutex_give(&hca->events_lock);
}

/* The engine thread's passes until the memory of links that end has been given back. */
static void reap(void)
{
	struct link *link = atomic_load(&hca->link_by_slot[SLOT]);

	lock_take(&hca->engine);
	list_del(&link->node); /* as the next pass over hca.links does */
	lock_give(&hca->engine);
	link_reap(hca);
}

static struct link *link_made(uint64_t id)
{
	int fds[PROTO_MAX_FDS];

	link_event(id, 0, fds);
	struct link *link = atomic_load(&hca->link_by_slot[SLOT]);

	assert_true(link && link_is(link, LINK_UP) && link->id == id);
	return link;
}

static bool ends_with_backlog(struct link *link, bool patient)
{
	const struct ring_header header = {.kind = REC_KICK};

	lock_take(&link->tx_lock);
	assert_true(backlog_add(link, &header, NULL, 0));
	lock_give(&link->tx_lock);
	return waits_for_room(link, patient);
}

/* A QP that ended with a backlog has found that the peer makes no room. The next process at the
 * slot isn't judged by that: its last acknowledgements are waited for. */
static void a_stuck_peer_does_not_pass_on(void **state)
{
	(void)state;
	struct link *link = link_made(1);

	assert_true(ends_with_backlog(link, true));
	assert_false(waits_for_room(link, false));
	assert_false(waits_for_room(link, true));
	link_down(hca, SLOT, 1);
	reap();
	assert_true(link_is(link, LINK_DOWN));
	link_made(2);
	assert_true(ends_with_backlog(link, true));
	link_down(hca, SLOT, 2);
	reap();
}

static void expect_given_back(uint64_t id, const int *fds)
{
	fake_daemon.unlinks = 0;
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.unlinks, 1);
	assert_int_equal(fake_daemon.slot, SLOT);
	assert_true(fake_daemon.unlinked == id);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		assert_true(fds[i] < 0 || fcntl(fds[i], F_GETFD) < 0);
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.unlinks, 1);
}

/* Else the daemon goes on to have the link, and makes no other for the two processes. */
static void a_link_without_memory_is_given_back(void **state)
{
	int fds[PROTO_MAX_FDS];

	(void)state;
	no_memory = true;
	link_event(1, 0, fds);
	assert_null(atomic_load(&hca->link_by_slot[SLOT]));
	expect_given_back(1, fds);
}

/* The last link's memory is still in use, and there is none to keep the next one's event. */
static void a_link_that_cannot_be_kept_is_given_back(void **state)
{
	struct link *link = link_made(1);
	int fds[PROTO_MAX_FDS];

	(void)state;
	link_down(hca, SLOT, 1);
	no_memory = true;
	link_event(2, 0, fds);
	expect_given_back(2, fds);
	assert_int_equal(fake_daemon.asked, 0);
	no_memory = false;
	reap(); /* the peer needs a link */
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.asked, 1);
	assert_true(link_is(link, LINK_ASKED));
}

static void a_link_that_is_not_understood_is_given_back(void **state)
{
	int fds[PROTO_MAX_FDS];

	(void)state;
	link_event(1, 2, fds);
	expect_given_back(1, fds);
	assert_true(link_is(atomic_load(&hca->link_by_slot[SLOT]), LINK_DOWN));
}

static void a_second_link_is_given_back(void **state)
{
	struct link *link = link_made(1);
	int fds[PROTO_MAX_FDS];

	(void)state;
	link_event(2, 0, fds);
	expect_given_back(2, fds);
	assert_true(link_is(link, LINK_UP) && link->id == 1);
	link_down(hca, SLOT, 1);
	reap();
}

/* ------------------------------------------------------------------ another daemon */

static void set_named(bool named)
{
	mutex_take(&hca->events_lock);
	hca->links_named = named;
	hca->generation += !named;
	mutex_give(&hca->events_lock);
}

/* The links have been named to the next daemon: one that the former daemon made isn't among them,
 * so the next daemon ends it at the peer. The next daemon is asked for another one. */
static void a_link_after_the_names_is_refused(void **state)
{
	int fds[PROTO_MAX_FDS];
	struct link *link = link_get(hca, SLOT);

	(void)state;
	link_ask_daemon(hca);
	set_named(true);
	link_event(1, 0, fds);
	assert_true(link_is(link, LINK_ASKED) && !link->memory);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		assert_true(fds[i] < 0 || fcntl(fds[i], F_GETFD) < 0);
	assert_true(link_any_request(hca));
	set_named(false);
	link_event(2, 0, fds);
	assert_true(link_is(link, LINK_UP) && link->id == 2);
	link_down(hca, SLOT, 2);
	reap();
}

/* Nor is one whose event came while the last link was ending. */
static void a_link_that_was_kept_is_refused(void **state)
{
	struct link *link = link_made(1);
	int fds[PROTO_MAX_FDS];

	(void)state;
	link_down(hca, SLOT, 1);
	link_event(2, 0, fds);
	link_get(hca, SLOT);
	set_named(true);
	set_named(false);
	reap();
	assert_true(link_is(link, LINK_WISHED));
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		assert_true(fds[i] < 0 || fcntl(fds[i], F_GETFD) < 0);
	link_event(3, 0, fds);
	assert_true(link_is(link, LINK_UP) && link->id == 3);
	link_down(hca, SLOT, 3);
	reap();
}

/* The peer left the link before this side came to it: the next one is asked for, after the daemon
 * has heard of the end of this one. */
static void a_link_that_the_peer_shut_is_refused(void **state)
{
	int fds[PROTO_MAX_FDS];
	struct link *link = link_get(hca, SLOT);

	(void)state;
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.asked, 1);
	shut_by_peer = true;
	link_event(1, 0, fds);
	assert_true(link_is(link, LINK_WISHED) && !link->memory);
	expect_given_back(1, fds);
	assert_int_equal(fake_daemon.asked, 2);
	shut_by_peer = false;
	link_event(2, 0, fds);
	assert_true(link_is(link, LINK_UP) && link->id == 2);
	link_down(hca, SLOT, 2);
	reap();
}

/* The daemon ends a link that connects a QP to a living process: the next one is asked for, and
 * until then the QP's requests wait. */
static void a_living_peer_gets_the_next_link(void **state)
{
	struct link *link = link_made(1);

	(void)state;
	link_take(hca, SLOT);
	link_down(hca, SLOT, 1);
	assert_true(link_pending(link));
	reap();
	assert_true(link_is(link, LINK_WISHED));
	link_put(link);
}

/* The peer, which has asked for the end, learns of it from the next daemon. */
static void an_end_without_daemon_starts_one(void **state)
{
	struct link *link = link_made(1);

	(void)state;
	link_break(link, "a test");
	reap();
	assert_true(link_any_request(hca));
	fake_daemon.result = -EIO;
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.returns, 1);
	assert_true(link_any_request(hca)); /* the engine thread looks when it hears of the loss */
	fake_daemon.result = 0;
	links_request(hca); /* as the return does */
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.unlinks, 2);
	assert_int_equal(fake_daemon.returns, 1);
	assert_false(link_any_request(hca));
}

/* ------------------------------------------------------------------ the peer's last copies */

/* A link to a living process of this user, which has it as well. */
static struct link *link_to_living(uint64_t id)
{
	same_user = true;
	event_pid = getpid();
	struct link *link = link_made(id);

	assert_non_null(link->regions);
	atomic_store(&link->memory->part[1], LINK_PART_TAKEN);
	atomic_store(&link->memory->installed[1], 1);
	return link;
}

/* Without them (valgrind 3.19, kernels before 5.3) a peer's end is looked for by polling. */
static void needs_process_descriptors(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0)
		skip();
	close(fd);
}

/* The link has ended here, and the peer may begin another copy: its hazards are looked at until it
 * has left, without polling. */
static void a_link_stays_until_the_peer_leaves(void **state)
{
	(void)state;
	needs_process_descriptors();
	struct link *link = link_to_living(1);

	link_down(hca, SLOT, 1);
	reap();
	assert_true(link_is(link, LINK_ENDING));
	assert_non_null(link->regions);
	assert_int_equal(atomic_load(&link->memory->left[0]), 1);
	assert_false(work_is_left(&hca->engine_work, ENGINE_DEATHS));
	assert_false(link_parts_unwatched(hca));
	link_reap(hca);
	assert_true(link_is_mapped(link));
	link_get(hca, SLOT); /* the next link isn't asked for before */
	assert_true(link_is(link, LINK_ENDING_WANTED));
	atomic_store(&link->memory->left[1], 1); /* and rings */
	link_reap(hca);
	assert_true(link_is(link, LINK_WISHED));
	assert_null(link->regions);
	assert_null(hca->parting);
}

/* The daemon hears of the end at once: only then does the peer leave. */
static void a_break_is_told_before_the_peer_leaves(void **state)
{
	struct link *link = link_to_living(1);

	(void)state;
	link_break(link, "a test");
	reap();
	assert_true(link_is(link, LINK_ENDING));
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.unlinks, 1);
	assert_true(fake_daemon.unlinked == 1);
	atomic_store(&link->memory->left[1], 1);
	link_reap(hca);
	assert_true(link_is(link, LINK_DOWN));
	link_ask_daemon(hca);
	assert_int_equal(fake_daemon.unlinks, 1);
}

/* A peer that couldn't take the link, or one that has ended, isn't waited for. */
static void a_peer_that_never_came_is_not_waited_for(void **state)
{
	struct link *link = link_to_living(1);

	(void)state;
	atomic_store(&link->memory->part[1], LINK_PART_OPEN);
	link_down(hca, SLOT, 1);
	reap();
	assert_true(link_is(link, LINK_DOWN));
}

static void a_peer_that_ends_is_not_waited_for(void **state)
{
	struct epoll_event event;

	(void)state;
	needs_process_descriptors();
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when a test crashes */
		for (;;)
			pause();
	}
	same_user = true;
	event_pid = pid;
	struct link *link = link_made(1);

	atomic_store(&link->memory->part[1], LINK_PART_TAKEN);
	link_down(hca, SLOT, 1);
	reap();
	assert_true(link_is(link, LINK_ENDING));
	assert_int_equal(epoll_wait(hca->epoll, &event, 1, 0), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(epoll_wait(hca->epoll, &event, 1, -1), 1); /* its end is reported */
	work_leave(&hca->engine_work, ENGINE_DEATHS);
	/* As the kernel does, which knows no mutex of that child's. */
	struct pub *table = mmap(NULL, PUB_SIZE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(table, MAP_FAILED);
	*(uint32_t *)(void *)&table->header.life = FUTEX_OWNER_DIED;
	link->process.life = &table->header.life;
	link_reap(hca);
	assert_true(link_is(link, LINK_DOWN));
	munmap(table, PUB_SIZE);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_stuck_peer_does_not_pass_on),
		TEST(a_link_without_memory_is_given_back),
		TEST(a_link_that_cannot_be_kept_is_given_back),
		TEST(a_link_that_is_not_understood_is_given_back),
		TEST(a_second_link_is_given_back),
		TEST(a_link_after_the_names_is_refused),
		TEST(a_link_that_was_kept_is_refused),
		TEST(a_link_that_the_peer_shut_is_refused),
		TEST(a_living_peer_gets_the_next_link),
		TEST(an_end_without_daemon_starts_one),
		TEST(a_link_stays_until_the_peer_leaves),
		TEST(a_break_is_told_before_the_peer_leaves),
		TEST(a_peer_that_never_came_is_not_waited_for),
		TEST(a_peer_that_ends_is_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
