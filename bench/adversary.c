/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one client that does its worst costs another one, which registers and deregisters memory.
 *
 * usage: adversary [-k KIND] [-u UID] [-c CORE,CORE] [-p DAEMON_PID] [-s SECONDS]
 *
 * The adversary is a child that speaks the daemon's protocol by hand
 * ($VERBENA_RUNTIME_DIR/uverbs0), as fast as it can. When the program is root's, the adversary is
 * of another user (-u; 60001), who must have access to the nodes (node-mode and ctl-mode 0666,
 * memlock off); else a line on stderr says that both are of one user. KIND is what it does:
 *   connections  comes and goes, in batches of 64
 *   mute         asks over 20 connections, and never reads an answer; begins anew once they are
 * full half         sends the beginnings of messages: 4 bytes, less than the header says, too much
 *   contexts     opens 10,000 contexts (of ten attached processes; as many as it may have
 *                descriptors for), then lets one after the other go and opens another
 *   queries      asks over 20 connections, and reads the answers
 *   resources    has 20,000 objects, and asks `ctl` for them over 8 connections
 *   captures     asks `ctl` for a capture, again and again
 *   links        100 processes with links among all of them, which read no event, then end
 *   mr, mw, cq, qp, ah, pd, srq, xrc, group, id, dm, flow, channel, xrcd, join, listen
 *                makes as many of them as it gets (ENDS at most) in one process, which then ends,
 *                again and again
 * The other client holds regions and a connected QP all the time; afterwards they must all work.
 * One whose call fails ends the program with an error. With -c, client and (-p) daemon run on the
 * first core, the adversary on the second.
 *
 * Prints "name value" lines:
 *   quiet_us, quiet_p99_us, quiet_max_us   registration and deregistration together: median, 99th
 *                            percentile, and the longest
 *   us, p99_us, max_us       while the adversary was at work
 *   deeds                    what the adversary did meanwhile: messages or connections a second
 *   late                     how many pairs took longer than 20 ms while the adversary was at work
 *   users                    1: the adversary is of the same user, 2: it isn't
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

enum { SAMPLES_MAX = 1000000, HELD = 100, CORES_NONE = -1, OTHER_USER = 60001 };

/* No client waits longer because of another one. */
static const double bound_seconds = 0.02;

static int core_client = CORES_NONE, core_adversary = CORES_NONE, daemon_pid;
static uid_t adversary_uid = OTHER_USER;
static double seconds = 2;

/* In memory that both share. */
static struct board {
	_Atomic int go, at_work;
	_Atomic uint64_t deeds, contexts;
} * board;

/* ------------------------------------------------------------------ the adversary's words */

/* A connection to one of the daemon's sockets, or -errno. */
static int try_connect(const char *name, int type)
{
	const char *dir = getenv("VERBENA_RUNTIME_DIR");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", dir ? dir : ".", name);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	int err = -errno;

	if (fd >= 0)
		close(fd);
	return err;
}

static int raw_connect_to(const char *name, int type)
{
	int fd = try_connect(name, type);

	if (fd < 0)
		give_up("the adversary can't connect to %s: %s", name, strerror(-fd));
	return fd;
}

static int raw_connect(void)
{
	return raw_connect_to("uverbs0", SOCK_SEQPACKET);
}

static const struct ib_uverbs_cmd_hdr list_devices = {
	.command = PROTO_LIST_DEVICES,
	.in_words = sizeof(list_devices) / 4,
	.out_words = sizeof(struct proto_list_devices_resp) / 4};

/* Attaches a process over a connection. Returns the event socket. */
static int raw_attach_over(int fd, struct proto_attach_resp *resp)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct proto_attach body;
	} request = {.header = {.command = PROTO_ATTACH,
				.in_words = sizeof(request) / 4,
				.out_words = sizeof(struct proto_attach_resp) / 4},
		     .body = {.abi = PROTO_ABI}};
	int received[PROTO_MAX_FDS];
	int table = memfd_create("adversary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int fds[] = {table, eventfd(0, EFD_NONBLOCK)};

	if (ftruncate(table, PUB_SIZE) < 0 ||
	    fcntl(table, F_ADD_SEALS,
		  F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		give_up("memfd: %s", strerror(errno));
	int err = socket_call(fd, &request, sizeof(request), fds, 2, resp, sizeof(*resp), received);

	if (err)
		give_up("the adversary can't attach: %s", strerror(-err));
	close(fds[0]);
	close(fds[1]);
	return received[0];
}

/* Attaches a process; its connection stays open. Returns the cookie. */
static uint64_t raw_attach(void)
{
	struct proto_attach_resp resp;

	raw_attach_over(raw_connect(), &resp);
	return resp.cookie;
}

/* A context of the process, or -errno: the daemon hangs up when its user has its share. */
static int try_context(uint64_t cookie)
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

	if (!err)
		return fd;
	close(fd);
	return err;
}

static int raw_context(uint64_t cookie)
{
	int fd = try_context(cookie);

	if (fd < 0)
		give_up("the adversary can't open a context: %s", strerror(-fd));
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

/* Allows itself as many descriptors as it may have. */
static rlim_t files_raise(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur;
}

static void many_contexts(void)
{
	enum { PROCESSES = 10, EACH = 1000, SPARE = 100 };
	static int fd[PROCESSES * EACH];
	uint64_t cookie[PROCESSES];
	int count = PROCESSES * EACH;
	rlim_t most = files_raise();

	if (most < (rlim_t)count + SPARE)
		count = (int)most - SPARE;
	for (int i = 0; i < PROCESSES; i++)
		cookie[i] = raw_attach();
	for (int i = 0; i < count; i++) {
		fd[i] = try_context(cookie[i % PROCESSES]);
		if (fd[i] >= 0)
			continue;
		/* Ends are seen a little later than beginnings. */
		count = i - SPARE;
		for (int k = count; k < i; k++)
			close(fd[k]);
	}
	if (count < 1)
		give_up("the adversary can't open contexts");
	atomic_store(&board->contexts, count);
	atomic_store(&board->at_work, 1);
	for (int i = 0;; i = (i + 1) % count) {
		close(fd[i]);
		/* The daemon may see the end after the next beginning; there is room for that. */
		fd[i] = raw_context(cookie[i % PROCESSES]);
		did(1);
	}
}

static void flood_queries(void)
{
	enum { ASKERS = 20, AT_ONCE = 16 };
	uint8_t answer[PROTO_MAX_MESSAGE];
	int fd[ASKERS], fds[PROTO_MAX_FDS];

	for (int i = 0; i < ASKERS; i++)
		fd[i] = raw_connect();
	for (;;) {
		for (int i = 0; i < ASKERS * AT_ONCE; i++)
			if (packet_send(fd[i % ASKERS], &list_devices, sizeof(list_devices), NULL,
					0, 0))
				give_up("the daemon hung up on a query");
		for (int i = 0; i < ASKERS * AT_ONCE; i++)
			if (packet_receive(fd[i % ASKERS], answer, sizeof(answer), fds, 0) <= 0)
				give_up("the daemon doesn't answer a query");
		did(ASKERS * AT_ONCE);
		atomic_store(&board->at_work, 1);
	}
}

/* Links among all of many processes, none of which reads its events; then they end. */
static void link_processes(void)
{
	enum { PROCESSES = 100 };
	int fd[PROCESSES], events[PROCESSES];
	struct proto_attach_resp resp[PROCESSES];

	files_raise();
	for (;;) {
		for (int i = 0; i < PROCESSES; i++) {
			fd[i] = raw_connect();
			events[i] = raw_attach_over(fd[i], &resp[i]);
		}
		for (int i = 0; i < PROCESSES; i++)
			for (int k = 0; k < i; k++) {
				const struct {
					struct ib_uverbs_cmd_hdr header;
					struct proto_link body;
				} wish = {.header = {.command = PROTO_LINK,
						     .in_words = sizeof(wish) / 4},
					  .body.slot = resp[k].slot};

				did(socket_call(fd[i], &wish, sizeof(wish), NULL, 0, NULL, 0,
						NULL) == 0);
			}
		atomic_store(&board->at_work, 1);
		for (int i = 0; i < PROCESSES; i++) {
			close(fd[i]);
			close(events[i]);
		}
	}
}

/* ------------------------------------------------------------------ questions to `ctl` */

/* Sends the line over as many connections as a user may have, and reads the answers to the end. */
static void ctl_ask(const char *line)
{
	enum { ASKERS = 8 };
	static char answer[1 << 16];
	int fd[ASKERS];

	for (int i = 0; i < ASKERS; i++) {
		fd[i] = raw_connect_to("ctl", SOCK_STREAM);
		send(fd[i], line, strlen(line), MSG_NOSIGNAL);
	}
	for (int i = 0; i < ASKERS; i++) {
		while (read(fd[i], answer, sizeof(answer)) > 0)
			;
		close(fd[i]);
	}
	did(ASKERS);
	atomic_store(&board->at_work, 1);
}

static void ask_captures(void)
{
	for (;;)
		ctl_ask("{\"op\":\"capture\"}\n");
}

static void ask_resources(void)
{
	enum { OBJECTS = 20000 };
	struct node node;

	node_open(&node, 16, 8192);
	for (int i = 0; i < OBJECTS; i++)
		if (!ibv_alloc_mw(node.pd, IBV_MW_TYPE_2))
			give_up("ibv_alloc_mw: %s", strerror(errno));
	for (;;)
		ctl_ask("{\"op\":\"resources\"}\n");
}

/* ------------------------------------------------------------------ processes that end */

enum { ENDS = 50000, GROUPS_EACH = 8192, TARGETS_EACH = 16000 };

/* What a process makes its objects of. */
struct maker {
	struct node node;
	struct ibv_qp *ud;
	struct ibv_ah_attr ah;
	struct ibv_qp *raw;
	struct ibv_xrcd *xrcd;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *joiner;
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

static bool make_dm(struct maker *m, uint32_t i)
{
	struct ibv_alloc_dm_attr attr = {.length = 64};

	(void)i;
	return ibv_alloc_dm(m->node.ctx, &attr);
}

static bool make_flow(struct maker *m, uint32_t i)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		{.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 1, .port = 1},
		{.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth)}};

	rule.eth.val.dst_mac[0] = 2;
	memcpy(rule.eth.val.dst_mac + 2, &i, sizeof(i));
	memset(rule.eth.mask.dst_mac, 0xff, sizeof(rule.eth.mask.dst_mac));
	return m->raw && ibv_create_flow(m->raw, &rule.attr);
}

static bool make_channel(struct maker *m, uint32_t i)
{
	(void)i;
	return ibv_create_comp_channel(m->node.ctx);
}

static struct ibv_xrcd *open_domain(struct maker *m)
{
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD |
							 IBV_XRCD_INIT_ATTR_OFLAGS,
					    .fd = -1,
					    .oflags = O_CREAT};

	return ibv_open_xrcd(m->node.ctx, &domain);
}

static bool make_domain(struct maker *m, uint32_t i)
{
	(void)i;
	return open_domain(m);
}

static bool make_join(struct maker *m, uint32_t i)
{
	struct sockaddr_in group = {.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(0xef000000u | (i + 1))};

	return rdma_join_multicast(m->joiner, (struct sockaddr *)&group, NULL) == 0;
}

static bool make_listener(struct maker *m, uint32_t i)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *id;

	(void)i;
	return rdma_create_id(m->channel, &id, NULL, RDMA_PS_TCP) == 0 &&
	       rdma_bind_addr(id, (struct sockaddr *)&any) == 0 && rdma_listen(id, 1) == 0;
}

/* An identifier at the device, for groups. */
static bool joiner_open(struct maker *m)
{
	struct sockaddr_in here = {.sin_family = AF_INET};

	memcpy(&here.sin_addr, m->ah.grh.dgid.raw + 12, sizeof(here.sin_addr));
	if (rdma_create_id(m->channel, &m->joiner, NULL, RDMA_PS_UDP))
		return false;
	return rdma_bind_addr(m->joiner, (struct sockaddr *)&here) == 0;
}

static bool is_v4(const union ibv_gid *gid)
{
	return gid->raw[10] == 0xff && gid->raw[11] == 0xff;
}

/* A GID of the device with an IPv4 address. */
static bool maker_find_gid(struct maker *m)
{
	for (int i = 0; ibv_query_gid(m->node.ctx, 1, i, &m->ah.grh.dgid) == 0; i++)
		if (is_v4(&m->ah.grh.dgid)) {
			m->ah.grh.sgid_index = (uint8_t)i;
			return true;
		}
	return false;
}

static void maker_open(struct maker *m)
{

	node_open(&m->node, 16, 8192);
	struct ibv_qp_init_attr attr = {.send_cq = m->node.cq,
					.recv_cq = m->node.cq,
					.qp_type = IBV_QPT_UD,
					.cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};

	m->ud = ibv_create_qp(m->node.pd, &attr);
	m->xrcd = open_domain(m);
	attr.qp_type = IBV_QPT_RAW_PACKET;
	m->raw = ibv_create_qp(m->node.pd, &attr); /* NULL: the user may make none */
	m->channel = rdma_create_event_channel();
	m->ah = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	if (!m->ud || !m->xrcd || !m->channel ||
	    ibv_modify_qp(m->ud, &init,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) ||
	    !maker_find_gid(m) || !joiner_open(m))
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
	     {"queries", flood_queries, NULL},
	     {"resources", ask_resources, NULL},
	     {"captures", ask_captures, NULL},
	     {"links", link_processes, NULL},
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
	     {"id", NULL, make_id},
	     {"dm", NULL, make_dm},
	     {"flow", NULL, make_flow},
	     {"channel", NULL, make_channel},
	     {"xrcd", NULL, make_domain},
	     {"join", NULL, make_join},
	     {"listen", NULL, make_listener}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Becomes the other user. Returns 0 or -errno. */
static int become_other(void)
{
	if (setgid(adversary_uid) < 0 || setuid(adversary_uid) < 0)
		return -errno;
	int fd = try_connect("uverbs0", SOCK_SEQPACKET);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* Whether there are two users. */
static bool other_user_has_access(void)
{
	int status = -1;
	pid_t pid = geteuid() == 0 ? fork() : -1;

	if (!pid)
		_exit(-become_other());
	if (pid > 0)
		waitpid(pid, &status, 0);
	if (status)
		fprintf(stderr, "adversary: of the same user: %s\n",
			pid < 0 ? "the program isn't root's"
				: "the other one has no access to the daemon (node-mode)");
	return !status;
}

static pid_t adversary_start(const struct kind *kind, bool other)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		give_up("fork: %s", strerror(errno));
	if (pid)
		return pid;
	if (other && become_other())
		_exit(1);
	setenv("VERBENA_LOG", "error", 0); /* it is refused a lot */
	prctl(PR_SET_PDEATHSIG, SIGKILL);  /* after setuid(), which clears it */
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

	int late = 0;

	while (late < n && took[n - 1 - late] > bound_seconds)
		late++;
	printf("%sus %.2f\n%sp99_us %.2f\n%smax_us %.2f\n", prefix, middle * 1e6, prefix,
	       took[n * 99l / 100] * 1e6, prefix, took[n - 1] * 1e6);
	if (!*prefix)
		printf("late %d\n", late);
}

static void run(const struct kind *kind)
{
	struct client client;
	bool other = other_user_has_access();
	pid_t adversary = adversary_start(kind, other);

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
	printf("users %d\ndeeds %.0f\n", other ? 2 : 1, deeds / seconds);
	if (board->contexts)
		printf("contexts %llu\n", (unsigned long long)board->contexts);
}

int main(int argc, char **argv)
{
	const struct kind *kind = kinds;
	int option;

	while ((option = getopt(argc, argv, "k:u:c:p:s:")) != -1) {
		if (option == 'k')
			for (kind = kinds; kind < kinds + KINDS && strcmp(kind->name, optarg);)
				kind++;
		else if (option == 'c' &&
			 sscanf(optarg, "%d,%d", &core_client, &core_adversary) == 2)
			continue;
		else if (option == 'u')
			adversary_uid = (uid_t)atoi(optarg);
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
