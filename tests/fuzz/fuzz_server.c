/* SPDX-License-Identifier: BSD-2-Clause */
/* See fuzz_server.h. */
#include "fuzz_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/core/capture.h"
#include "daemon/core/closer.h"
#include "daemon/core/conn.h"
#include "daemon/core/ctl.h"
#include "daemon/core/process.h"
#include "daemon/core/setup.h"
#include "daemon/objects/xrc.h"
#include "input.h"

/* A quota that an input can use up; steps in which ended clients are freed in a turn of the loop.
 */
enum { USER_OBJECTS = 24, STEPS = 3 };
/* More turns than the objects of all clients of an input need. */
enum { ENDING_ROUNDS = 100000 };

static struct server server;
static char dir[96];
static unsigned int scarce, until_failure, next_user;
static uint64_t time_ms;
static long fds_before;
static uint32_t left_open_before;
static uint64_t last_link_id;
static bool narrow;

/* ------------------------------------------------------------------ what the daemon calls */

static bool fails(void)
{
	if (!scarce || --until_failure)
		return false;
	until_failure = scarce;
	return true;
}

void *fuzz_malloc(size_t size)
{
	return fails() ? NULL : malloc(size);
}

void *fuzz_calloc(size_t count, size_t size)
{
	return fails() ? NULL : calloc(count, size);
}

void *fuzz_realloc(void *old, size_t size)
{
	return fails() ? NULL : realloc(old, size);
}

int fuzz_memfd_create(const char *name, unsigned int flags)
{
	if (!fails())
		return memfd_create(name, flags);
	errno = EMFILE;
	return -1;
}

static int pair_make(int domain, int type, int protocol, int *fds)
{
	int err = socketpair(domain, type, protocol, fds), least = 1;

	for (int i = 0; !err && narrow && i < 2; i++)
		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
	return err;
}

int fuzz_socketpair(int domain, int type, int protocol, int *fds)
{
	if (!fails())
		return pair_make(domain, type, protocol, fds);
	errno = EMFILE;
	return -1;
}

/* The peer's credentials: the user that the harness chose. */
int fuzz_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	int err = getsockopt(fd, level, name, value, size);

	if (!err && level == SOL_SOCKET && name == SO_PEERCRED && next_user)
		((struct ucred *)value)->uid = 50000 + next_user;
	return err;
}

int fuzz_clock_gettime(clockid_t clock, struct timespec *out)
{
	(void)clock;
	*out = (struct timespec){.tv_sec = (time_t)(time_ms / 1000),
				 .tv_nsec = (long)(time_ms % 1000 * 1000000)};
	return 0;
}

/* ------------------------------------------------------------------ the daemon */

struct server *server_now(void)
{
	return &server;
}

static void never(struct watch *watch, uint32_t events)
{
	(void)watch, (void)events;
}

static void never_idle(struct timer *timer)
{
	(void)timer;
}

static void start(void)
{
	struct server_options options = {.ready_fd = -1};
	sigset_t set;

	config_init(&options.config, false);
	snprintf(options.config.runtime_dir, sizeof(options.config.runtime_dir), "%s", dir);
	options.config.idle_ms = -1;
	options.config.wire = false; /* the machine's port: the input couldn't be repeated */
	options.config.user_objects = USER_OBJECTS;
	memset(&server, 0, sizeof(server));
	server.uverbs.ready = never;
	server.rdma_cm.ready = never;
	server.ctl.ready = never;
	server.signals.ready = never;
	timer_init(&server.idle, never_idle);
	timer_init(&server.accept_again, never_idle);
	MUST(server_setup(&server, &options) == 0);
	server.last_link_id = last_link_id;
	/* The clock stands still, so this is what divides the end of a client. */
	server.ending.steps_max = STEPS;
	/* The fuzzer wants its signals. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void end(void)
{
	last_link_id = server.last_link_id;
	while (!list_empty(&server.conns))
		conn_close(container_of(server.conns.next, struct conn, node));
	ending_finish(&server);
	ctl_close_all(&server);
	capture_close_all(&server);
	setup_undo(&server);
}

static void file_remove(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static void clean(void)
{
	static const char *const names[] = {"roster",  "lock",	  "verbenad.pid",
					    "uverbs0", "rdma_cm", "ctl"};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		file_remove(names[i]);
	rmdir(dir);
}

void server_begin(void)
{
	time_ms = 1000000;
	signal(SIGPIPE, SIG_IGN);
	const char *tmp = getenv("TMPDIR");

	/* The caller removes TMPDIR, also when a finding ends this process before clean() is
	 * called. */
	MUST(snprintf(dir, sizeof(dir), "%s/verbena-fuzz-XXXXXX", tmp ? tmp : "/tmp") <
	     (int)sizeof(dir));
	MUST(mkdtemp(dir));
	atexit(clean);
	start();
}

/* The roster is what a killed daemon leaves. */
static size_t roster_copy(void *out, size_t size, bool back)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/roster", dir);
	int fd = open(path, back ? O_WRONLY | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : back ? pwrite(fd, out, size, 0) : read(fd, out, size);

	if (fd >= 0)
		close(fd);
	return n > 0 ? (size_t)n : 0;
}

void server_restart(void)
{
	static uint8_t roster[sizeof(server.roster.entries)];
	unsigned int was_scarce = scarce;
	size_t size = roster_copy(roster, sizeof(roster), false);

	server_scarce(0);
	end();
	roster_copy(roster, size, true);
	start();
	server_scarce(was_scarce);
}

static int open_uverbs(struct server *of, int fd)
{
	return conn_open(of, fd, &of->devices.device[0]);
}

static int connect_by(int (*open_one)(struct server *server, int fd), int type, unsigned int user)
{
	int pair[2];

	MUST(pair_make(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	next_user = user;
	int err = open_one(&server, pair[1]);

	next_user = 0;
	if (!err)
		return pair[0];
	close(pair[0]);
	close(pair[1]);
	return -1;
}

int server_connect(int type, unsigned int user)
{
	return connect_by(type == SOCK_STREAM ? ctl_open : open_uverbs, type, user);
}

int server_connect_cm(unsigned int user)
{
	return connect_by(conn_open_cm, SOCK_SEQPACKET, user);
}

void server_rounds(unsigned int count)
{
	while (count--)
		MUST(loop_round(&server.loop, 0) >= 0);
}

void server_pass_time(uint64_t ms)
{
	time_ms += ms;
}

void server_scarce(unsigned int n)
{
	scarce = until_failure = n;
}

void server_narrow(bool yes)
{
	narrow = yes;
}

/* ------------------------------------------------------------------ checks */

UNTRACED static long open_fds(void)
{
	DIR *all = opendir("/proc/self/fd");
	long count = 0;

	MUST(all);
	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

void server_check_begin(void)
{
	left_open_before = closer_left_open();
	fds_before = open_fds(); /* the fuzzer opens some, too, between inputs */
}

UNTRACED void server_check_end(bool restarted)
{
	/* Each closed connection is one event; a round handles 64 of them, and then frees what they
	 * held by STEPS. */
	server_rounds(4);
	for (unsigned int i = 0; !list_empty(&server.ending.conns) || xrc_has_to_tell(&server.xrc);
	     i++) {
		MUST(i < ENDING_ROUNDS);
		server_rounds(1);
	}
	MUST(list_empty(&server.conns) && list_empty(&server.ctls));
	/* Without connections a user is kept only while its log lines count. */
	list_for_each(node, &server.users) {
		const struct user *user = container_of(node, struct user, node);

		MUST(!user->connections && !user->ending && user->xrc_memory < 0);
	}
	MUST(!server.ctl_count && !server.slots.count);
	for (unsigned int kind = 0; kind < POOL_KINDS; kind++)
		MUST(!server.pools.taken[kind]);
	for (unsigned int i = 0; i < LIMIT_SLOTS; i++)
		MUST(!server.slots.process[i] && (restarted || !server.slots.absent[i]));
	if (restarted) {
		end();
		file_remove("roster");
		start();
	}
	while (!closer_is_idle()) /* its threads close what the input's clients sent */
		sched_yield();
	long left_open = closer_left_open() - left_open_before; /* an input may refuse memory */

	if (open_fds() != fds_before + left_open)
		fprintf(stderr, "%ld descriptors before, %ld left open, %ld after\n", fds_before,
			left_open, open_fds());
	MUST(open_fds() == fds_before + left_open);
}
