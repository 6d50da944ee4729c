/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rig's runner: processes, threads, sockets, events, the command line. See rig.h.
 *
 * The main process never calls a verb: each test runs in children of its own, so that a crash or a
 * hang of one is a failure of one. It owns the children and a socket pair for each test.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon_kill.h"
#include "rig.h"

const char *const rig_carrier_names[RIG_CARRIERS] = {"self",  "self2", "local",	    "ring",
						     "split", "found", "converted", "wire"};

enum { TEST_SECONDS = 150, EVENTS_KEPT = 64, EXIT_FAILED = 1, EXIT_PEER_GONE = 2 };
enum { SKIPPED = 77 };

/* Events that were taken from a device context and not claimed by a test yet. Both ends of one
 * context share them. */
struct rig_event {
	pthread_mutex_t lock; /* guards all below */
	int count;
	struct {
		enum ibv_event_type type;
		const void *element;
	} kept[EVENTS_KEPT];
};

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#elif __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* The sanitizer that this program was built with; it is known without ctest's environment, too. */
static const char *sanitizer_built_in(void)
{
#if defined(__SANITIZE_THREAD__)
	return "thread";
#elif defined(__SANITIZE_ADDRESS__)
	return "address";
#else
	return NULL;
#endif
}

static const char *sanitizer(void)
{
	const char *given = getenv("VERBENA_SANITIZE");

	return given && *given ? given : sanitizer_built_in();
}

/* It has a thread in each program. */
static bool sanitizes_threads(void)
{
	return sanitizer() && strcmp(sanitizer(), "thread") == 0;
}

int rig_slowness(void)
{
	return sanitizes_threads() ? 8 : sanitizer() ? 3 : 1;
}

double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

struct patience patience_of(double ms)
{
	return (struct patience){.left = ms, .looked = now_ms()};
}

bool patience_over(struct patience *patience)
{
	double now = now_ms(), passed = now - patience->looked;

	patience->looked = now;
	patience->left -= passed < PATIENCE_STEP_MS ? passed : PATIENCE_STEP_MS;
	return patience->left < 0;
}

/* ------------------------------------------------------------------ other processes */

/* The state letter of a thread; 0: it has ended. */
static char thread_state(int directory, const char *thread)
{
	char path[64], line[256] = "", state = 0;

	snprintf(path, sizeof(path), "%.20s/stat", thread);
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, line, sizeof(line) - 1) > 0)
		sscanf(line, "%*d (%*[^)]) %c", &state);
	close(fd);
	return state;
}

static bool process_is_stopped(pid_t pid)
{
	char path[64];
	bool stopped = true;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *tasks = opendir(path);

	for (struct dirent *e; tasks && (e = readdir(tasks));) {
		char state = e->d_name[0] == '.' ? 'T' : thread_state(dirfd(tasks), e->d_name);

		stopped &= state == 'T' || !state;
	}
	if (tasks)
		closedir(tasks);
	return stopped;
}

void rig_await_stop(pid_t pid)
{
	while (!process_is_stopped(pid))
		sched_yield();
}

void rig_kill_daemon(struct rig *rig)
{
	CHECK(rig, daemon_kill());
}

void rig_fail(const struct rig *rig, const char *file, int line, const char *format, ...)
{
	const char *slash = strrchr(file, '/');
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "  %s over %s, end %c, %s:%d: %s\n", rig->name,
		rig_carrier_names[rig->carrier], rig->role == RIG_A ? 'A' : 'B',
		slash ? slash + 1 : file, line, text);
	if (getenv("RIG_HOLD"))
		pause();
	_exit(EXIT_FAILED);
}

/* Socket ------------------------------------------------------------------------------------- */

void rig_swap(struct rig *rig, const void *mine, void *theirs, size_t size)
{
	/* Where both ends are threads, this shows the thread sanitizer the order that the socket
	 * establishes. */
	static _Atomic unsigned int swaps;
	size_t done = 0;
	ssize_t got;

	atomic_fetch_add(&swaps, 1);
	if (send(rig->sock, mine, size, MSG_NOSIGNAL) != (ssize_t)size)
		_exit(EXIT_PEER_GONE);
	while (done < size) {
		got = recv(rig->sock, (char *)theirs + done, size - done, 0);
		if (got < 0 && errno == EINTR)
			continue;
		/* The other end has failed and printed the reason. */
		if (got <= 0)
			_exit(EXIT_PEER_GONE);
		done += (size_t)got;
	}
	atomic_fetch_add(&swaps, 1);
}

uint32_t rig_datagram(const struct rig *rig)
{
	struct ibv_port_attr port;

	OK(rig, ibv_query_port(rig->ctx, 1, &port));
	return 128u << port.active_mtu;
}

void rig_sync(struct rig *rig)
{
	char mine = 's', theirs;

	rig_swap(rig, &mine, &theirs, 1);
	CHECK_EQ(rig, theirs, 's');
}

/* Events ------------------------------------------------------------------------------------- */

static const void *event_element(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp;
	default:
		return NULL;
	}
}

/* Takes the device context's events; the caller holds the lock. */
static void events_take(struct rig *rig)
{
	struct rig_event *events = rig->events;
	struct pollfd ready = {.fd = rig->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	while (poll(&ready, 1, 0) == 1) {
		if (ibv_get_async_event(rig->ctx, &event))
			rig_fail(rig, __FILE__, __LINE__,
				 "the descriptor of events is readable, but there is none: %s",
				 strerror(errno));
		if (events->count < EVENTS_KEPT) {
			events->kept[events->count].type = event.event_type;
			events->kept[events->count++].element = event_element(&event);
		}
		ibv_ack_async_event(&event);
	}
}

static bool event_find(struct rig *rig, enum ibv_event_type type, const void *element)
{
	struct rig_event *events = rig->events;
	bool found = false;

	pthread_mutex_lock(&events->lock);
	events_take(rig);
	for (int i = 0; i < events->count && !found; i++) {
		if (events->kept[i].type != type || events->kept[i].element != element)
			continue;
		events->kept[i] = events->kept[--events->count];
		found = true;
	}
	pthread_mutex_unlock(&events->lock);
	return found;
}

bool event_seen(struct rig *rig, enum ibv_event_type type, const void *element, int ms)
{
	struct patience patience = patience_of(ms);

	while (!event_find(rig, type, element)) {
		if (patience_over(&patience))
			return false;
		usleep(500);
	}
	return true;
}

void event_expect_at(struct rig *rig, enum ibv_event_type type, const void *element,
		     const char *file, int line)
{
	if (!event_seen(rig, type, element, RIG_SOON_MS))
		rig_fail(rig, file, line, "no event \"%s\"", ibv_event_type_str(type));
}

int rig_poll(struct pollfd *fds, unsigned long count, int ms)
{
	struct patience patience = patience_of(ms);
	int n;

	do
		n = poll(fds, count, ms < PATIENCE_STEP_MS ? ms : PATIENCE_STEP_MS);
	while (!n && !patience_over(&patience));
	return n;
}

bool channel_readable(struct ibv_comp_channel *channel, int ms)
{
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};

	return rig_poll(&ready, 1, ms) == 1;
}

/* Running ------------------------------------------------------------------------------------ */

static struct ibv_context *device_open(const struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	if (list && list[0])
		ctx = ibv_open_device(list[0]);
	if (!ctx)
		rig_fail(rig, __FILE__, __LINE__, "no device can be opened: %s", strerror(errno));
	ibv_free_device_list(list);
	return ctx;
}

struct part {
	struct rig rig;
	const struct rig_test *test;
	pthread_t thread;
};

static void *part_run(void *argument)
{
	struct part *part = argument;

	part->test->body(&part->rig);
	rig_sync(&part->rig);
	return NULL;
}

static void part_prepare(struct part *part, const struct rig_test *test, enum rig_carrier carrier,
			 int role, int sock)
{
	part->test = test;
	part->rig =
		(struct rig){.name = test->name, .role = role, .carrier = carrier, .sock = sock};
	part->rig.ctx = device_open(&part->rig);
	part->rig.events = calloc(1, sizeof(*part->rig.events));
	pthread_mutex_init(&part->rig.events->lock, NULL);
}

static void part_finish(struct part *part)
{
	OK(&part->rig, ibv_close_device(part->rig.ctx));
	pthread_mutex_destroy(&part->rig.events->lock);
	free(part->rig.events);
}

/* Runs both ends in this process. */
static void run_threads(const struct rig_test *test, enum rig_carrier carrier, const int sock[2])
{
	struct part part[2];
	bool shared = carrier == RIG_SELF;

	part_prepare(&part[0], test, carrier, RIG_A, sock[0]);
	if (shared) {
		part[1] = part[0];
		part[1].rig.role = RIG_B;
		part[1].rig.sock = sock[1];
	} else {
		part_prepare(&part[1], test, carrier, RIG_B, sock[1]);
	}
	for (int i = 0; i < 2; i++)
		if (pthread_create(&part[i].thread, NULL, part_run, &part[i]))
			rig_fail(&part[i].rig, __FILE__, __LINE__, "no thread");
	for (int i = 0; i < 2; i++)
		pthread_join(part[i].thread, NULL);
	for (int i = 0; i < (shared ? 1 : 2); i++)
		part_finish(&part[i]);
}

/* RIG_USERS=A,B: the ends run as two users (numbers, which are also the groups'). */
static void become_user(int role)
{
	const char *users = getenv("RIG_USERS");
	char *end;

	if (!users)
		return;
	unsigned long id = strtoul(users, &end, 10);

	if (role == RIG_B && *end == ',')
		id = strtoul(end + 1, NULL, 10);
	if (setgroups(0, NULL) || setresgid((gid_t)id, (gid_t)id, (gid_t)id) ||
	    setresuid((uid_t)id, (uid_t)id, (uid_t)id)) {
		perror("  RIG_USERS");
		_exit(EXIT_FAILED);
	}
	/* As in a program that this user started. */
	prctl(PR_SET_DUMPABLE, 1);
}

/* RIG_HOSTS=SPACE,DIR,SPACE,DIR: the ends are on two hosts, each of which is a network namespace
 * (its file) and a run-time directory. */
static void enter_host(int role)
{
	const char *hosts = getenv("RIG_HOSTS");
	char *words[4] = {NULL}, *rest = hosts ? strdup(hosts) : NULL;
	int count = 0, fd;

	if (!hosts)
		return;
	while (rest && count < 4)
		words[count++] = strsep(&rest, ",");
	fd = count == 4 ? open(words[2 * role], O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || setns(fd, CLONE_NEWNET)) {
		fprintf(stderr, "  RIG_HOSTS=%s: %s\n", hosts, strerror(errno));
		_exit(EXIT_FAILED);
	}
	close(fd);
	setenv("VERBENA_RUNTIME_DIR", words[2 * role + 1], 1);
	free(words[0]);
}

static void run_process(const struct rig_test *test, enum rig_carrier carrier, int role, int sock)
{
	struct part part;

	enter_host(role);
	become_user(role);
	part_prepare(&part, test, carrier, role, sock);
	part_run(&part);
	part_finish(&part);
}

/* Private memory isn't converted, or returned, while a pipe of the process's has bytes that its
 * reader hasn't taken: they may be the memory's (docs/memory.md). This program's output may go to
 * such a pipe, so the ends' output goes to a file, which is shown when they have ended. -1: it
 * goes where this program's goes. */
static int output_apart(enum rig_carrier carrier)
{
	return carrier == RIG_CONVERTED ? memfd_create("rig-output", MFD_CLOEXEC) : -1;
}

static void output_show(int fd)
{
	char text[4096];
	ssize_t n;

	for (off_t at = 0; fd >= 0 && (n = pread(fd, text, sizeof(text), at)) > 0; at += n)
		fwrite(text, 1, (size_t)n, stderr);
	if (fd >= 0)
		close(fd);
}

static pid_t child_start(const struct rig_test *test, enum rig_carrier carrier, int role,
			 const int sock[2], int output)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	signal(SIGPIPE, SIG_IGN);
	if (output >= 0 && (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0))
		exit(2);
	if (carrier == RIG_SELF || carrier == RIG_SELF_TWO) {
		run_threads(test, carrier, sock);
	} else {
		close(sock[!role]);
		run_process(test, carrier, role, sock[role]);
	}
	exit(0);
}

/* Waits for a child until the time is over, then kills it. Returns whether it exited with
 * success. */
static bool child_wait(pid_t pid, struct patience *patience, const char *what)
{
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (patience_over(patience)) {
			fprintf(stderr, "  %s hangs\n", what);
			if (getenv("RIG_HOLD")) {
				fprintf(stderr, "  (RIG_HOLD: pid %d is left for a debugger)\n",
					(int)pid);
				pause();
			}
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return false;
		}
		usleep(500);
	}
	if (WIFSIGNALED(status))
		fprintf(stderr, "  %s was ended by signal %d (%s)\n", what, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) > EXIT_PEER_GONE)
		fprintf(stderr, "  %s ended with %d\n", what, WEXITSTATUS(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The kind of memory that this program's caller wants for all programs (tests/suite-on). */
static bool kind_is_private, kind_is_ring;

static bool is_set(const char *name, const char *value)
{
	const char *is = getenv(name);

	return is && strcmp(is, value) == 0;
}

/* Before environment_choose() changes it. */
__attribute__((constructor)) static void kind_find(void)
{
	kind_is_private = is_set("VERBENA_MEMORY", "private");
	kind_is_ring = is_set("VERBENA_LOCAL_COPY", "ring");
}

bool rig_maps_files(const struct rig *rig)
{
	return (rig->carrier == RIG_LOCAL && !kind_is_private) || rig->carrier == RIG_FOUND ||
	       rig->carrier == RIG_CONVERTED;
}

bool rig_reaches_memory(const struct rig *rig)
{
	return rig->carrier != RIG_RING &&
	       !(kind_is_ring && (rig->carrier <= RIG_SELF_TWO || rig->carrier == RIG_WIRE));
}

/* What a carrier is about is said in any case. The rest is as this program's caller wants it: a
 * variable that is unset counts as it was when the program began. */
static void environment_choose(enum rig_carrier carrier)
{
	bool direct = carrier == RIG_FOUND || carrier == RIG_CONVERTED;

	if (carrier == RIG_RING || carrier == RIG_SPLIT || direct)
		setenv("VERBENA_LOCAL_COPY", direct ? "auto" : rig_carrier_names[carrier], 1);
	else
		unsetenv("VERBENA_LOCAL_COPY");
	if (direct)
		setenv("VERBENA_MEMORY", carrier == RIG_CONVERTED ? "shared" : "", 1);
	else
		unsetenv("VERBENA_MEMORY");
	if (carrier == RIG_WIRE)
		setenv("VERBENA_CARRIER", "wire", 1);
	else
		unsetenv("VERBENA_CARRIER");
}

bool rig_run(const struct rig_test *test, enum rig_carrier carrier)
{
	struct patience patience = patience_of(TEST_SECONDS * 1000.0 * rig_slowness());

	if (carrier == RIG_LOCAL && kind_is_ring)
		carrier = RIG_RING;
	bool threads = carrier == RIG_SELF || carrier == RIG_SELF_TWO;
	int sock[2], output = output_apart(carrier);
	pid_t pid[2] = {-1, -1};
	bool fine;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock))
		return false;
	environment_choose(carrier);
	pid[0] = child_start(test, carrier, RIG_A, sock, output);
	if (!threads)
		pid[1] = child_start(test, carrier, RIG_B, sock, output);
	close(sock[0]);
	close(sock[1]);
	fine = child_wait(pid[0], &patience, threads ? "the process" : "end A");
	if (!fine)
		patience = patience_of(2000);
	if (!threads)
		fine &= child_wait(pid[1], &patience, "end B");
	output_show(output);
	return fine;
}

/* Command line ------------------------------------------------------------------------------- */

static _Noreturn void usage(const char *program, const struct rig_test *tests)
{
	fprintf(stderr,
		"usage: %s [-c self|self2|local|ring|split|found|converted|wire]... [-n TIMES] "
		"[PATTERN...]\n"
		"RIG_HOLD=1 leaves a test that fails or hangs for a debugger. Tests:\n",
		program);
	for (; tests->name; tests++)
		fprintf(stderr, "  %s\n", tests->name);
	exit(2);
}

static bool wanted(const char *name, char **patterns)
{
	if (!*patterns)
		return true;
	for (; *patterns; patterns++)
		if (fnmatch(*patterns, name, 0) == 0)
			return true;
	return false;
}

static int carrier_named(const char *name)
{
	for (int i = 0; i < RIG_CARRIERS; i++)
		if (strcmp(name, rig_carrier_names[i]) == 0)
			return i;
	return -1;
}

void rig_main(int argc, char **argv, const struct rig_test *tests)
{
	unsigned int carriers = 0, passed = 0, failed = 0;
	long times = 1;
	int option, carrier;

	while ((option = getopt(argc, argv, "c:n:h")) != -1) {
		if (option == 'c' && (carrier = carrier_named(optarg)) >= 0)
			carriers |= 1u << carrier;
		else if (option == 'n')
			times = strtol(optarg, NULL, 10);
		else
			usage(argv[0], tests);
	}
	if (carriers & 1u << RIG_CONVERTED && sanitizes_threads()) {
		printf("skipped: in programs with several threads nothing is converted\n");
		exit(SKIPPED);
	}
	for (carrier = 0; carrier < RIG_CARRIERS; carrier++) {
		if (carriers && !(carriers & 1u << carrier))
			continue;
		for (const struct rig_test *test = tests; test->name; test++) {
			if (!wanted(test->name, argv + optind))
				continue;
			for (long i = 0; i < times; i++) {
				double began = now_ms();
				bool fine = rig_run(test, (enum rig_carrier)carrier);

				printf("%s  %s over %s (%.0f ms)\n", fine ? "ok  " : "FAIL",
				       test->name, rig_carrier_names[carrier], now_ms() - began);
				fflush(stdout);
				fine ? passed++ : failed++;
			}
		}
	}
	printf("%u passed, %u failed\n", passed, failed);
	exit(failed || !passed ? 1 : 0);
}
