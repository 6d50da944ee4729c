/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one client that does its worst costs another one, which registers and deregisters memory.
 *
 * usage: adversary [-k KIND] [-c CORE,CORE] [-p DAEMON_PID] [-s SECONDS]
 *
 * The adversary is a child that speaks the daemon's protocol by hand
 * ($VERBENA_RUNTIME_DIR/uverbs0), as fast as it can. KIND is what it does: connections   comes and
 * goes, in batches of 64 mute          asks over 20 connections, and never reads an answer; begins
 * anew once they are full half          sends the beginnings of messages: 4 bytes, less than the
 * header says, too much contexts      opens 10,000 contexts (of ten attached processes; as many as
 * it may have descriptors for), then lets one after the other go and opens another; mr, mw, cq, qp,
 * ah, pd, srq, xrc, group, id   makes as many of them as it gets (ENDS at most) in one process,
 * which then ends, again and again. The other client holds regions and a connected QP all the time;
 * afterwards they must all work. One whose call fails ends the program with an error. With -c,
 * client and (-p) daemon run on the first core, the adversary on the second.
 *
 * Prints "name value" lines:
 *   quiet_us, quiet_p99_us, quiet_max_us   registration and deregistration together: median, 99th
 *                            percentile, and the longest
 *   us, p99_us, max_us       while the adversary was at work
 *   deeds                    what the adversary did meanwhile: messages or connections a second
 *   contexts                 KIND contexts: how many it had
 */
#include "scale.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "client/call.h"
#include "proto/proto.h"
#include "shm/pub.h"

enum { SAMPLES_MAX = 1000000, HELD = 100, CORES_NONE = -1 };

static int core_client = CORES_NONE, core_adversary = CORES_NONE, daemon_pid;
static double seconds = 2;

/* In memory that both share. */
static struct board {
	_Atomic int go, at_work;
	_Atomic uint64_t deeds, contexts;
} * board;

/* ------------------------------------------------------------------ the adversary's words */

static int raw_connect(void)
{
	const char *dir = getenv("VERBENA_RUNTIME_DIR");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/uverbs0", dir ? dir : ".");
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		give_up("the adversary can't connect to %s: %s", a.sun_path, strerror(errno));
	return fd;
}

static const struct ib_uverbs_cmd_hdr list_devices = {
	.command = PROTO_LIST_DEVICES,
	.in_words = sizeof(list_devices) / 4,
	.out_words = sizeof(struct proto_list_devices_resp) / 4};

/* Attaches a process; its connection stays open. Returns the cookie. */
static uint64_t raw_attach(void)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct proto_attach body;
	} request = {.header = {.command = PROTO_ATTACH,
				.in_words = sizeof(request) / 4,
				.out_words = sizeof(struct proto_attach_resp) / 4},
		     .body = {.abi = PROTO_ABI}};
	struct proto_attach_resp resp;
	int received[PROTO_MAX_FDS];
	int table = memfd_create("adversary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int fds[] = {table, eventfd(0, EFD_NONBLOCK)};

	if (ftruncate(table, PUB_SIZE) < 0 ||
	    fcntl(table, F_ADD_SEALS,
		  F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		give_up("memfd: %s", strerror(errno));
	int err = socket_call(raw_connect(), &request, sizeof(request), fds, 2, &resp, sizeof(resp),
			      received);

	if (err)
		give_up("the adversary can't attach: %s", strerror(-err));
	close(fds[0]);
	close(fds[1]);
	return resp.cookie;
}

static int raw_context(uint64_t cookie)
{
	const struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} request = {.header = {.command = IB_USER_VERBS_CMD_GET_CONTEXT,
				.in_words = sizeof(request) / 4,
				.out_words = sizeof(struct ib_uverbs_get_context_resp) / 4},
		     .udata.cookie = cookie};
	struct ib_uverbs_get_context_resp resp;
	int fd = raw_connect();
	int err = socket_call(fd, &request, sizeof(request), NULL, 0, &resp, sizeof(resp), NULL);

	if (err)
		give_up("the adversary can't open a context: %s", strerror(-err));
	return fd;
}

static void did(int deeds)
{
	atomic_fetch_add(&board->deeds, deeds);
}

/* ------------------------------------------------------------------ the adversary's deeds */

static void flood_connections(void)
{
	enum { BATCH = 64 };
	int fd[BATCH];

	for (;;) {
		for (int i = 0; i < BATCH; i++)
			fd[i] = raw_connect();
		for (int i = 0; i < BATCH; i++)
			close(fd[i]);
		did(BATCH);
		atomic_store(&board->at_work, 1);
	}
}

static void never_read(void)
{
	enum { MUTES = 20 };
	int fd[MUTES];

	for (;;) {
		int full = 0;

		for (int i = 0; i < MUTES; i++)
			fd[i] = raw_connect();
		while (full < MUTES) {
			full = 0;
			for (int i = 0; i < MUTES; i++) {
				full += packet_send(fd[i], &list_devices, sizeof(list_devices),
						    NULL, 0, MSG_DONTWAIT) != 0;
				did(1);
			}
		}
		atomic_store(&board->at_work, 1);
		for (int i = 0; i < MUTES; i++)
			close(fd[i]);
	}
}

static void half_messages(void)
{
	static uint8_t much[2 * PROTO_MAX_MESSAGE];
	struct ib_uverbs_cmd_hdr longer = list_devices;
	const struct {
		const void *data;
		size_t size;
	} half[] = {{&list_devices, 4}, {&longer, sizeof(longer)}, {much, sizeof(much)}};
	uint8_t answer[PROTO_MAX_MESSAGE];
	int fds[PROTO_MAX_FDS], fd = raw_connect();

	longer.in_words = 64;
	for (int i = 0;; i = (i + 1) % 3) {
		if (packet_send(fd, half[i].data, half[i].size, NULL, 0, 0) ||
		    packet_receive(fd, answer, sizeof(answer), fds, 0) <= 0)
			give_up("the daemon hung up on half a message");
		did(1);
		atomic_store(&board->at_work, 1);
	}
}

static void many_contexts(void)
{
	enum { PROCESSES = 10, EACH = 1000, SPARE = 100 };
	static int fd[PROCESSES * EACH];
	uint64_t cookie[PROCESSES];
	struct rlimit limit;
	int count = PROCESSES * EACH;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < (rlim_t)count + SPARE)
		count = (int)limit.rlim_cur - SPARE;
	for (int i = 0; i < PROCESSES; i++)
		cookie[i] = raw_attach();
	for (int i = 0; i < count; i++)
		fd[i] = raw_context(cookie[i % PROCESSES]);
	atomic_store(&board->contexts, count);
	atomic_store(&board->at_work, 1);
	for (int i = 0;; i = (i + 1) % count) {
		close(fd[i]);
		/* The daemon may see the end after the next beginning; there is room for that. */
		fd[i] = raw_context(cookie[i % PROCESSES]);
		did(1);
	}
}

/* ------------------------------------------------------------------ processes that end */

enum { ENDS = 50000, GROUPS_EACH = 8192, TARGETS_EACH = 16000 };

/* What a process makes its objects of. */
struct maker {
	struct node node;
	struct ibv_qp *ud;
	struct ibv_ah_attr ah;
	struct ibv_xrcd *xrcd;
	struct rdma_event_channel *channel;
};

static bool make_mr(struct maker *m, uint32_t i)
{
	(void)i;
	return ibv_reg_mr(m->node.pd, m->node.buf, 64, IBV_ACCESS_LOCAL_WRITE);
}

static bool make_mw(struct maker *m, uint32_t i)
{
	(void)i;
	return ibv_alloc_mw(m->node.pd, IBV_MW_TYPE_2);
}

static bool make_cq(struct maker *m, uint32_t i)
{
	(void)i;
	return ibv_create_cq(m->node.ctx, 1, NULL, NULL, 0);
}

static bool make_qp(struct maker *m, uint32_t i)
{
	struct ibv_qp_init_attr attr = {.send_cq = m->node.cq,
					.recv_cq = m->node.cq,
					.qp_type = IBV_QPT_RC,
					.cap = {1, 1, 1, 1, 0}};

	(void)i;
	return ibv_create_qp(m->node.pd, &attr);
}

static bool make_pd(struct maker *m, uint32_t i)
{
	(void)i;
	return ibv_alloc_pd(m->node.ctx);
}

static bool make_ah(struct maker *m, uint32_t i)
{
	(void)i;
	return ibv_create_ah(m->node.pd, &m->ah);
}

static bool make_srq(struct maker *m, uint32_t i)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};

	(void)i;
	return ibv_create_srq(m->node.pd, &attr);
}

static bool make_target(struct maker *m, uint32_t i)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = m->xrcd};

	return i < TARGETS_EACH && ibv_create_qp_ex(m->node.ctx, &attr);
}

static bool make_attachment(struct maker *m, uint32_t i)
{
	union ibv_gid gid = {.raw = {0xff, 0x0e}};

	memcpy(gid.raw + 12, &i, sizeof(i));
	return i < GROUPS_EACH && ibv_attach_mcast(m->ud, &gid, 0) == 0;
}

static bool make_id(struct maker *m, uint32_t i)
{
	struct rdma_cm_id *id;

	(void)i;
	return rdma_create_id(m->channel, &id, NULL, RDMA_PS_TCP) == 0;
}

static void maker_open(struct maker *m)
{
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD |
							 IBV_XRCD_INIT_ATTR_OFLAGS,
					    .fd = -1,
					    .oflags = O_CREAT};

	node_open(&m->node, 16, 8192);
	struct ibv_qp_init_attr attr = {.send_cq = m->node.cq,
					.recv_cq = m->node.cq,
					.qp_type = IBV_QPT_UD,
					.cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};

	m->ud = ibv_create_qp(m->node.pd, &attr);
	m->xrcd = ibv_open_xrcd(m->node.ctx, &domain);
	m->channel = rdma_create_event_channel();
	m->ah = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	if (!m->ud || !m->xrcd || !m->channel ||
	    ibv_modify_qp(m->ud, &init,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) ||
	    ibv_query_gid(m->node.ctx, 1, 0, &m->ah.grh.dgid))
		give_up("the adversary can't make its objects: %s", strerror(errno));
}

/* One process after the other makes objects and ends. */
static void processes_end(bool (*make)(struct maker *m, uint32_t i))
{
	for (;;) {
		pid_t pid = fork();

		if (pid < 0)
			give_up("fork: %s", strerror(errno));
		if (!pid) {
			struct maker maker = {0};
			uint32_t i = 0;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			maker_open(&maker);
			while (i < ENDS && make(&maker, i))
				i++;
			did((int)i);
			_exit(i == 0);
		}
		int status;

		if (waitpid(pid, &status, 0) != pid || status)
			give_up("the adversary made nothing");
		atomic_store(&board->at_work, 1);
	}
}

static const struct kind {
	const char *name;
	void (*work)(void);
	bool (*make)(struct maker *m, uint32_t i); /* instead of `work` */
} kinds[] = {{"connections", flood_connections, NULL},
	     {"mute", never_read, NULL},
	     {"half", half_messages, NULL},
	     {"contexts", many_contexts, NULL},
	     {"mr", NULL, make_mr},
	     {"mw", NULL, make_mw},
	     {"cq", NULL, make_cq},
	     {"qp", NULL, make_qp},
	     {"ah", NULL, make_ah},
	     {"pd", NULL, make_pd},
	     {"srq", NULL, make_srq},
	     {"xrc", NULL, make_target},
	     {"group", NULL, make_attachment},
	     {"id", NULL, make_id}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static pid_t adversary_start(const struct kind *kind)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		give_up("fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	run_on_core(0, core_adversary);
	while (!atomic_load(&board->go))
		usleep(1000);
	if (kind->make)
		processes_end(kind->make);
	else
		kind->work();
	_exit(1);
}

/* ------------------------------------------------------------------ the other client */

struct client {
	struct node node;
	struct ibv_qp *qp; /* connected to itself */
	struct ibv_mr *held[HELD];
};

static struct ibv_mr *registered(struct client *client)
{
	struct ibv_mr *mr =
		ibv_reg_mr(client->node.pd, client->node.buf, 4096, IBV_ACCESS_LOCAL_WRITE);

	if (!mr)
		give_up("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

static void deregister(struct ibv_mr *mr)
{
	int err = ibv_dereg_mr(mr);

	if (err)
		give_up("ibv_dereg_mr: %s", strerror(err));
}

static void client_open(struct client *client)
{
	node_open(&client->node, 16, 8192);
	client->qp = node_qp(&client->node, 4);
	qp_connect(&client->node, client->qp, client->qp->qp_num);
	for (int i = 0; i < HELD; i++)
		client->held[i] = registered(client);
}

/* All that it held is still its own. */
static void client_close(struct client *client)
{
	qp_recv(&client->node, client->qp, 1, 4096, 64);
	qp_send(&client->node, client->qp, 2, 0, 64);
	node_wait(&client->node, 0);
	node_wait(&client->node, 0);
	for (int i = 0; i < HELD; i++)
		deregister(client->held[i]);
	if (ibv_destroy_qp(client->qp))
		give_up("ibv_destroy_qp failed");
	node_close(&client->node);
}

/* Registers and deregisters for a while; prints the figures. */
static void measure(struct client *client, const char *prefix)
{
	static double took[SAMPLES_MAX];
	double start = now_seconds(), now = start;
	int n = 0;

	while (n < SAMPLES_MAX && now < start + seconds) {
		deregister(registered(client));
		double then = now;

		now = now_seconds();
		took[n++] = now - then;
	}
	double middle = median(took, n); /* sorts them */

	printf("%sus %.2f\n%sp99_us %.2f\n%smax_us %.2f\n", prefix, middle * 1e6, prefix,
	       took[n * 99l / 100] * 1e6, prefix, took[n - 1] * 1e6);
}

static void run(const struct kind *kind)
{
	struct client client;
	pid_t adversary = adversary_start(kind);

	run_on_core(0, core_client);
	if (daemon_pid)
		run_on_core(daemon_pid, core_client);
	client_open(&client);
	measure(&client, "quiet_");
	atomic_store(&board->go, 1);
	while (!atomic_load(&board->at_work)) {
		if (waitpid(adversary, NULL, WNOHANG) != 0)
			give_up("the adversary has ended");
		deregister(registered(&client));
	}
	uint64_t deeds = atomic_load(&board->deeds);

	measure(&client, "");
	deeds = atomic_load(&board->deeds) - deeds;
	if (waitpid(adversary, NULL, WNOHANG) != 0)
		give_up("the adversary has ended");
	client_close(&client);
	kill(adversary, SIGKILL);
	waitpid(adversary, NULL, 0);
	printf("deeds %.0f\n", deeds / seconds);
	if (board->contexts)
		printf("contexts %llu\n", (unsigned long long)board->contexts);
}

int main(int argc, char **argv)
{
	const struct kind *kind = kinds;
	int option;

	while ((option = getopt(argc, argv, "k:c:p:s:")) != -1) {
		if (option == 'k')
			for (kind = kinds; kind < kinds + KINDS && strcmp(kind->name, optarg);)
				kind++;
		else if (option == 'c' &&
			 sscanf(optarg, "%d,%d", &core_client, &core_adversary) == 2)
			continue;
		else if (option == 'p')
			daemon_pid = atoi(optarg);
		else if (option == 's')
			seconds = atof(optarg);
		else
			return 2;
	}
	if (kind == kinds + KINDS)
		return 2;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED)
		give_up("mmap: %s", strerror(errno));
	run(kind);
	return 0;
}
