/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process number doesn't identify a process. The peer of a queue pair ends, or replaces itself by
 * exec(), while no daemon could report it; its number is then given to an unrelated process with
 * memory at the same address. Nothing is written to that process, and no operation on the dead peer
 * succeeds.
 *
 * usage: reborn [shared]
 * shared: the memory is in a file, which this process has mapped.
 *
 * Runs as the root of a PID namespace of its own (own-pids), so that the kernel can be told which
 * number to give out next; 77 where it can't.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon_kill.h"

enum { BYTES = 1 << 20, SKIPPED = 77, TRIES = 200, PATIENCE_S = 60, REQUESTS = 50 };

static uint8_t *const target = (uint8_t *)0x7e9000000000; /* the thread sanitizer permits it */

#define MUST(condition)                                                                       \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, \
				#condition, errno);                                           \
			_exit(1);                                                             \
		}                                                                             \
	} while (0)

/* One side of a connection. */
struct side {
	int sock; /* to the other one */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	struct {
		uint32_t qpn, rkey;
	} mine, theirs;
};

static bool shared;

static void map_target(bool in_file)
{
	int fd = in_file ? memfd_create("reborn", MFD_CLOEXEC) : -1;

	MUST(!in_file || (fd >= 0 && !ftruncate(fd, BYTES)));
	MUST(mmap(target, BYTES, PROT_READ | PROT_WRITE,
		  (in_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_FIXED_NOREPLACE, fd,
		  0) == target);
}

static bool untouched(void)
{
	return !*target && !memcmp(target, target + 1, BYTES - 1);
}

static void tell(int sock, char what)
{
	MUST(write(sock, &what, 1) == 1);
}

static char hear(int sock)
{
	char what;

	MUST(read(sock, &what, 1) == 1);
	return what;
}

/* ------------------------------------------------------------------ the connection */

static void side_open(struct side *s, void *memory)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && *list && (s->context = ibv_open_device(*list)));
	ibv_free_device_list(list);
	MUST((s->pd = ibv_alloc_pd(s->context)));
	MUST((s->cq = ibv_create_cq(s->context, 16, NULL, NULL, 0)));
	MUST((s->mr = ibv_reg_mr(s->pd, memory, BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					 IBV_ACCESS_REMOTE_READ)));
	struct ibv_qp_init_attr attr = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};

	MUST((s->qp = ibv_create_qp(s->pd, &attr)));
	MUST(!ibv_query_gid(s->context, 1, 0, &s->gid));
	s->mine.qpn = s->qp->qp_num;
	s->mine.rkey = s->mr->rkey;
}

static void side_connect(struct side *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags =
					   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	MUST(write(s->sock, &s->mine, sizeof(s->mine)) == sizeof(s->mine));
	MUST(read(s->sock, &s->theirs, sizeof(s->theirs)) == sizeof(s->theirs));
	MUST(!ibv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = s->theirs.qpn,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12,
				    .ah_attr = {.is_global = 1,
						.port_num = 1,
						.grh = {.dgid = s->gid, .hop_limit = 1}}};
	MUST(!ibv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 2,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	MUST(!ibv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	tell(s->sock, 'c');
	MUST(hear(s->sock) == 'c');
}

static enum ibv_wc_status request(struct side *s, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)s->mr->addr, length, s->mr->lkey};
	struct ibv_send_wr wr = {.opcode = opcode,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {(uintptr_t)target, s->theirs.rkey}},
			   *bad;
	struct ibv_wc wc;
	time_t until = time(NULL) + PATIENCE_S;
	int n;

	MUST(!ibv_post_send(s->qp, &wr, &bad));
	while (!(n = ibv_poll_cq(s->cq, 1, &wc)))
		MUST(time(NULL) < until);
	MUST(n == 1);
	return wc.status;
}

/* ------------------------------------------------------------------ the peer and the stranger */

/* The process that has the number afterwards: its memory must stay unchanged. */
_Noreturn static void stranger(int sock)
{
	map_target(false);
	tell(sock, 's');
	hear(sock);
	tell(sock, untouched() ? 'u' : 't');
	_exit(0);
}

_Noreturn static void peer(int sock)
{
	struct side s = {.sock = sock};
	char number[16];

	map_target(shared);
	side_open(&s, target);
	side_connect(&s);
	hear(sock); /* waits for exec, or to be killed */
	snprintf(number, sizeof(number), "%d", sock);
	execl("/proc/self/exe", "reborn", number, (char *)NULL);
	_exit(1);
}

/* ------------------------------------------------------------------ the test */

/* Forks a process with this number, connected to this one by a socket. */
static void fork_as(pid_t number, int sock)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%d", number - 1);

	for (int i = 0; i < TRIES; i++) {
		int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);

		if (fd < 0 || write(fd, text, (size_t)n) != n)
			_exit(SKIPPED);
		close(fd);
		pid_t child = fork();

		MUST(child >= 0);
		if (!child) {
			if (getpid() == number)
				stranger(sock);
			_exit(0);
		}
		if (child == number)
			return;
		waitpid(child, NULL, 0);
	}
	_exit(SKIPPED);
}

/* Runs as a process of its own. */
_Noreturn static void one_case(enum ibv_wr_opcode opcode, uint32_t length, bool by_exec)
{
	int pair[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = fork();

	MUST(child >= 0);
	if (!child)
		peer(pair[1]);
	struct side s = {.sock = pair[0]};
	uint8_t *memory =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(memory != MAP_FAILED);
	memset(memory, 0xee, BYTES);
	side_open(&s, memory);
	side_connect(&s);
	/* The control thread maps the memory meanwhile. */
	for (int i = 0; i < REQUESTS; i++) {
		MUST(request(&s, opcode, length) == IBV_WC_SUCCESS);
		usleep(1000);
	}
	MUST(daemon_kill());
	if (by_exec) {
		tell(s.sock, 'e');
	} else {
		MUST(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
		fork_as(child, pair[1]);
	}
	MUST(hear(s.sock) == 's');
	enum ibv_wc_status status = request(&s, opcode, length);

	tell(s.sock, 'l');
	char seen = hear(s.sock);

	printf("%s of %u bytes, peer %s: %s, the stranger's memory is %s\n",
	       opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE", length,
	       by_exec ? "called exec" : "ended", ibv_wc_status_str(status),
	       seen == 'u' ? "untouched" : "overwritten");
	fflush(stdout);
	_exit(seen == 'u' && status != IBV_WC_SUCCESS ? 0 : 1);
}

static int run_case(enum ibv_wr_opcode opcode, uint32_t length, bool by_exec)
{
	pid_t child = fork();
	int status;

	MUST(child >= 0);
	if (!child)
		one_case(opcode, length, by_exec);
	MUST(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	static const uint32_t lengths[] = {16, 65536};
	int result = 0;

	shared = argc > 1 && !strcmp(argv[1], "shared");
	if (argc > 1 && !shared)
		stranger(atoi(argv[1]));
	for (int i = 0; i < 8; i++) {
		int one = run_case(opcodes[i & 1], lengths[i >> 1 & 1], i >> 2);

		if (one == SKIPPED)
			puts("skipped: the next process number can't be chosen here");
		if (one && result != 1)
			result = one;
	}
	return result;
}
