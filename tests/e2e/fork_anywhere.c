/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() where a program may call it at any time (docs/trust.md, "Fork"):
 *
 *   handlers  The program's handlers of pthread_atfork() take a lock under which other threads are
 *             in verbs calls, and call verbs themselves.
 *   signals   A signal handler makes a child at many instructions of each verbs call: the calling
 *             thread is stepped by the processor's trap flag. The children take turns: by fork(),
 *             by vfork() and execve(), by posix_spawn(), by clone() as vfork() does it, and by the
 *             system call as fork() does it. The child of fork() destroys objects of its
 *             parent and opens a device, which the child of such a fork has no right to: it stands
 *             for the child of another thread, for which the data is the same.
 *   programs  The same children, and system(), of threads beside threads in verbs calls; they do
 *             what a child for which no handler runs may do: execve() and _exit().
 *
 * Each ends by SIGALRM if it hangs.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what)                                                                   \
	do {                                                                          \
		if (!(what)) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, \
				strerror(errno));                                     \
			_exit(1);                                                     \
		}                                                                     \
	} while (0)

enum { BYTES = 8192, HANGS_AFTER_S = 240, CHILD_HANGS_AFTER_S = 60 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;	/* the calls use it */
static struct ibv_cq *spare_cq; /* children destroy these */
static struct ibv_qp *spare_qp;
static struct ibv_mr *spare_mr;
static struct ibv_qp *qp;
static uint8_t memory[BYTES];

static struct ibv_qp *qp_new(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};

	return ibv_create_qp(pd, &attr);
}

static struct ibv_context *device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (list)
		ibv_free_device_list(list);
	return opened;
}

static void objects_make(void)
{
	CHECK((context = device_open()));
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((cq = ibv_create_cq(context, 15, NULL, NULL, 0)));
	CHECK((spare_cq = ibv_create_cq(context, 15, NULL, NULL, 0)));
	CHECK((qp = qp_new()));
	CHECK((spare_qp = qp_new()));
	CHECK((spare_mr = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE)));
}

/* ------------------------------------------------------------------ the calls */

static void calls_mr(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	CHECK(!ibv_dereg_mr(mr));
}

static void calls_cq(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);

	CHECK(channel);
	struct ibv_cq *made = ibv_create_cq(context, 100, NULL, channel, 0);

	CHECK(made);
	CHECK(!ibv_req_notify_cq(made, 0));
	CHECK(!ibv_destroy_cq(made));
	CHECK(!ibv_destroy_comp_channel(channel));
}

static void calls_qp(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *made = qp_new();

	CHECK(made);
	CHECK(!ibv_modify_qp(made, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_destroy_qp(made));
}

static void calls_context(void)
{
	struct ibv_context *opened = device_open();

	CHECK(opened);
	CHECK(!ibv_close_device(opened));
}

/* A request that is flushed, since the queue pair is in ERR: the path of a message without a peer.
 */
static void calls_post(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_recv_wr wr = {.wr_id = 7}, *bad;
	struct ibv_wc wc;

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_post_recv(qp, &wr, &bad));
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_WR_FLUSH_ERR);
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {{"regions", calls_mr},
	     {"completion queues", calls_cq},
	     {"queue pairs", calls_qp},
	     {"contexts", calls_context},
	     {"posting and polling", calls_post}};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* ------------------------------------------------------------------ children */

static void child_ends_objects(void)
{
	CHECK(!ibv_destroy_qp(spare_qp));
	CHECK(!ibv_destroy_cq(spare_cq));
	CHECK(!ibv_dereg_mr(spare_mr));
}

static void child_end_is_good(pid_t pid)
{
	int status;

	CHECK(pid > 0);
	while (waitpid(pid, &status, 0) < 0)
		CHECK(errno == EINTR);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "the child: %s %d\n", WIFEXITED(status) ? "exit" : "signal",
			WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		_exit(1);
	}
}

/* What a signal handler may call besides. */
static void names_are_told(void)
{
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success"));
	CHECK(ibv_event_type_str(IBV_EVENT_COMM_EST) && ibv_node_type_str(IBV_NODE_CA) &&
	      ibv_port_state_str(IBV_PORT_ACTIVE) && ibv_rate_to_mbps(IBV_RATE_100_GBPS) > 0 &&
	      ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4);
}

/* ------------------------------------------------------------------ ways to make a child */

static char *const no_words[] = {(char *)"true", NULL};

static pid_t child_by_vfork(void)
{
	pid_t pid = vfork();

	if (!pid) {
		execv("/bin/true", no_words);
		_exit(127);
	}
	return pid;
}

static pid_t child_by_spawn(void)
{
	pid_t pid;

	return posix_spawn(&pid, "/bin/true", NULL, NULL, no_words, environ) ? -1 : pid;
}

static int becomes_true(void *nothing)
{
	(void)nothing;
	execv("/bin/true", no_words);
	_exit(127);
}

static pid_t child_by_clone(void)
{
	_Alignas(16) char stack[16384];

	return clone(becomes_true, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
}

static pid_t child_by_clone_of_memory(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (!pid)
		becomes_true(NULL);
	return pid;
}

static pid_t child_by_system(void)
{
	CHECK(system("exit 7") == 7 << 8);
	return 0; /* it has ended */
}

/* Those that a signal handler may use come first; system() isn't async-signal-safe. */
static pid_t (*const ways[])(void) = {child_by_vfork, child_by_spawn, child_by_clone,
				      child_by_clone_of_memory, child_by_system};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), WAYS_IN_HANDLERS = WAYS - 1 };

static void child_by(unsigned int way)
{
	pid_t pid = ways[way]();

	if (pid)
		child_end_is_good(pid);
}

/* ------------------------------------------------------------------ signals */

#ifdef __x86_64__
enum { TRAP_FLAG = 0x100, POINTS = 60 };

static volatile uint64_t steps, fork_every;
static volatile bool stepping;
static volatile unsigned int forks;

/* At every instruction. The signal that forks is raised here; it comes at once, or when the library
 * lets it in. */
static void on_step(int number, siginfo_t *info, void *where)
{
	ucontext_t *at = where;

	(void)number, (void)info;
	if (!stepping) {
		at->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
		return;
	}
	at->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
	if (++steps % fork_every == 0)
		raise(SIGUSR1);
}

static void on_signal_fork(void)
{
	pid_t pid = fork();

	if (!pid) {
		stepping = false;
		alarm(CHILD_HANGS_AFTER_S);
		child_ends_objects();
		if (forks % 8 == 0)
			CHECK(device_open());
		_exit(0);
	}
	child_end_is_good(pid);
}

/* fork() and one of the other ways in turn. */
static void on_signal(int number)
{
	int error = errno;

	(void)number;
	if (forks % 2 == 0)
		on_signal_fork();
	else
		child_by(forks / 2 % WAYS_IN_HANDLERS);
	names_are_told();
	forks++;
	errno = error;
}

static void call_step(void (*call)(void), uint64_t every)
{
	steps = 0;
	fork_every = every;
	stepping = true;
	raise(SIGTRAP); /* its handler sets the flag */
	call();
	stepping = false;
}

static void test_signals(void)
{
	struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	CHECK(!sigaction(SIGTRAP, &step, NULL));
	CHECK(!sigaction(SIGUSR1, &action, NULL));
	for (int i = 0; i < CALLS; i++) {
		calls[i].call();
		call_step(calls[i].call, UINT64_MAX); /* counts */
		uint64_t length = steps;
		unsigned int before = forks;

		call_step(calls[i].call, length / POINTS + 1);
		printf("%s: %llu instructions, %u forks\n", calls[i].name,
		       (unsigned long long)length, forks - before);
		/* Signals that were raised while the library holds them back come once. */
		CHECK(forks - before >= POINTS / 4);
	}
}
#else
static void test_signals(void)
{
	printf("skipped: stepping is written for x86-64\n");
}
#endif

/* ------------------------------------------------------------------ handlers */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool over;
static _Atomic uint64_t rounds[CALLS];
static bool handlers_call;

static void handler_before(void)
{
	pthread_mutex_lock(&lock);
	if (handlers_call)
		calls_mr();
}

static void handler_after(void)
{
	if (handlers_call)
		calls_mr();
	pthread_mutex_unlock(&lock);
}

static void handler_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

static void *works(void *number)
{
	uintptr_t i = (uintptr_t)number;

	while (!atomic_load(&over)) {
		pthread_mutex_lock(&lock);
		calls[i].call();
		pthread_mutex_unlock(&lock);
		atomic_fetch_add(&rounds[i], 1);
		sched_yield();
	}
	return NULL;
}

/* Forks until each thread has gone on for a while. */
static void forks_go_on(void)
{
	enum { ROUNDS = 20 };
	uint64_t from[CALLS];
	bool enough = false;

	for (int i = 0; i < CALLS; i++)
		from[i] = atomic_load(&rounds[i]);
	while (!enough) {
		pid_t pid = fork();

		if (!pid) {
			alarm(CHILD_HANGS_AFTER_S);
			child_ends_objects();
			_exit(0);
		}
		child_end_is_good(pid);
		enough = true;
		for (int i = 0; i < CALLS; i++)
			enough = enough && atomic_load(&rounds[i]) >= from[i] + ROUNDS;
	}
}

static void test_handlers(void)
{
	pthread_t threads[CALLS];

	for (uintptr_t i = 0; i < CALLS; i++)
		CHECK(!pthread_create(&threads[i], NULL, works, (void *)i));
	forks_go_on();
	handlers_call = true;
	forks_go_on();
	atomic_store(&over, true);
	for (int i = 0; i < CALLS; i++)
		pthread_join(threads[i], NULL);
}

static void test_programs(void)
{
	pthread_t threads[CALLS];

	for (uintptr_t i = 0; i < CALLS; i++)
		CHECK(!pthread_create(&threads[i], NULL, works, (void *)i));
	for (unsigned int i = 0; i < 50 * WAYS; i++)
		child_by(i % WAYS);
	atomic_store(&over, true);
	for (int i = 0; i < CALLS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < CALLS; i++)
		calls[i].call();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	alarm(HANGS_AFTER_S);
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(!pthread_atfork(handler_before, handler_after, handler_in_child));
	objects_make();
	if (!strcmp(what, "handlers"))
		test_handlers();
	else if (!strcmp(what, "signals"))
		test_signals();
	else if (!strcmp(what, "programs"))
		test_programs();
	else
		return 2;
	printf("%s: ok\n", what);
	return 0;
}
