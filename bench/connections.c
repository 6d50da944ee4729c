/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast does the connection manager make connections, and what does one cost that stays?
 *
 * usage: connections [-n CONNECTIONS] [-k KEPT] [-w WINDOW] [-c CORE,CORE] [-p DAEMON_PID]
 *
 * Two processes: a server, which accepts whatever is asked of it, and a client. Each connection is
 * a full one: an id and an RC QP on both sides, addresses and route resolved, established, and all
 * of it ended again.
 *
 * First CONNECTIONS are made and ended, WINDOW at a time; then as many connections of TCP on the
 * same two cores, one at a time: connect, accept, a byte, close. Then KEPT connections are made
 * that stay, beside which single ones are made and ended when there are 100, and when there are
 * all. Memory is the growth (Pss) of both processes, and of the daemon with -p, from 100 on.
 *
 * Prints "name value" lines:
 *   rate              connections made and ended in a second
 *   tcp_rate          the same of TCP
 *   few_us, many_us   to make one beside 100, and beside KEPT
 *   kept_bytes        memory of one that stays: the server's process and the daemon
 *   both_bytes        the same with the client's process
 *   server_fds, client_fds, daemon_fds   descriptors that one takes
 */
#include "scale.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEW = 100, SINGLES = 101, TIMEOUT_MS = 2000, TCP_BACKLOG = 128, DEPTH = 128 };

static int count = 3000, kept, window = 1, cores[2] = {-1, -1};
static int daemon_pid, server_pid;

/* ------------------------------------------------------------------ either side */

static void must(int result, const char *what)
{
	if (result)
		give_up("%s: %s", what, strerror(errno));
}

/* All QPs of the process complete into one queue. */
static void add_qp(struct rdma_cm_id *id)
{
	static struct ibv_cq *cq;

	if (!cq)
		cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	must(!cq, "ibv_create_cq");
	must(rdma_create_qp(id, NULL, &init), "rdma_create_qp");
}

static void end_id(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	must(rdma_destroy_id(id), "rdma_destroy_id");
}

static struct rdma_conn_param usual = {
	.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};

/* ------------------------------------------------------------------ the server */

static void serve_one(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	id = event->id;
	type = event->event;
	must(rdma_ack_cm_event(event), "rdma_ack_cm_event");
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		add_qp(id);
		must(rdma_accept(id, &usual), "rdma_accept");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_disconnect(id);
		end_id(id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		give_up("the server got %s", rdma_event_str(type));
	}
}

/* Says its port, and ends when it is killed. */
static _Noreturn void serve(int report)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *listener;

	must(!channel, "rdma_create_event_channel");
	must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_bind_addr(listener, (struct sockaddr *)&any), "rdma_bind_addr");
	must(rdma_listen(listener, 0), "rdma_listen");
	uint16_t port = rdma_get_src_port(listener);

	if (write(report, &port, sizeof(port)) != sizeof(port))
		give_up("the client is gone");
	for (;;)
		serve_one(channel);
}

/* ------------------------------------------------------------------ the client */

static struct rdma_event_channel *channel;
static struct sockaddr_in server = {.sin_family = AF_INET};

static void begin(void)
{
	struct rdma_cm_id *id;

	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, TIMEOUT_MS),
	     "rdma_resolve_addr");
}

/* One step of any connection: the id if it is established now. */
static struct rdma_cm_id *step(void)
{
	struct rdma_cm_event *event;

	must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;

	must(rdma_ack_cm_event(event), "rdma_ack_cm_event");
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(rdma_resolve_route(id, TIMEOUT_MS), "rdma_resolve_route");
		return NULL;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		add_qp(id);
		must(rdma_connect(id, &usual), "rdma_connect");
		return NULL;
	case RDMA_CM_EVENT_ESTABLISHED:
		return id;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return NULL;
	default:
		give_up("the client got %s", rdma_event_str(type));
	}
}

static void finish(struct rdma_cm_id *id)
{
	must(rdma_disconnect(id), "rdma_disconnect");
	end_id(id);
}

/* The time for each in us. */
static double loop(int n, int at_once)
{
	double start = now_seconds();
	int begun = 0, ended = 0;

	while (ended < n) {
		struct rdma_cm_id *id;

		while (begun < n && begun - ended < at_once) {
			begin();
			begun++;
		}
		id = step();
		if (id) {
			finish(id);
			ended++;
		}
	}
	return (now_seconds() - start) / n * 1e6;
}

/* The usual time to make one, beside those that are there. */
static double single_us(void)
{
	double took[SINGLES];

	for (int i = 0; i < SINGLES; i++) {
		double start = now_seconds();
		struct rdma_cm_id *id;

		begin();
		while (!(id = step()))
			;
		took[i] = (now_seconds() - start) * 1e6;
		finish(id);
	}
	return median(took, SINGLES);
}

/* ------------------------------------------------------------------ those that stay */

static struct rdma_cm_id **held;
static int held_count;

static void hold(int n)
{
	for (int begun = held_count; held_count < n;) {
		while (begun < n && begun - held_count < 16) {
			begin();
			begun++;
		}
		struct rdma_cm_id *id = step();

		if (id)
			held[held_count++] = id;
	}
}

struct weight {
	uint64_t client, server, daemon;
	int client_fds, server_fds, daemon_fds;
};

static int descriptors(int pid)
{
	char path[64];
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	DIR *dir = opendir(path);

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static struct weight weigh(void)
{
	struct weight w = {.client = process_bytes(0),
			   .server = process_bytes(server_pid),
			   .client_fds = descriptors(getpid()),
			   .server_fds = descriptors(server_pid)};

	if (daemon_pid) {
		w.daemon = process_bytes(daemon_pid);
		w.daemon_fds = descriptors(daemon_pid);
	}
	return w;
}

static void measure_kept(void)
{
	held = calloc((size_t)kept, sizeof(struct rdma_cm_id *));
	must(!held, "calloc");
	hold(FEW);
	printf("few_us %.1f\n", single_us());
	struct weight few = weigh();

	hold(kept);
	struct weight many = weigh();

	printf("many_us %.1f\n", single_us());
	double n = kept - FEW;
	double daemons = (double)(many.daemon - few.daemon),
	       servers = (double)(many.server - few.server);

	printf("kept_bytes %.0f\n", (servers + daemons) / n);
	printf("both_bytes %.0f\n", (servers + daemons + (double)(many.client - few.client)) / n);
	printf("server_fds %.3f\n", (many.server_fds - few.server_fds) / n);
	printf("client_fds %.3f\n", (many.client_fds - few.client_fds) / n);
	printf("daemon_fds %.3f\n", (many.daemon_fds - few.daemon_fds) / n);
	fflush(stdout);
	while (held_count)
		finish(held[--held_count]);
}

/* ------------------------------------------------------------------ TCP */

static _Noreturn void tcp_serve(int listener)
{
	char byte = 1;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0 || write(fd, &byte, 1) != 1)
			give_up("TCP's server: %s", strerror(errno));
		if (read(fd, &byte, 1) > 0)
			give_up("TCP's server got a byte");
		close(fd);
	}
}

static void tcp_connect(const struct sockaddr_in *to)
{
	/* No port waits for a minute until it may be used again. */
	struct linger at_once = {.l_onoff = 1};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char byte;

	must(fd < 0, "socket");
	must(connect(fd, (const struct sockaddr *)to, sizeof(*to)), "connect");
	must(read(fd, &byte, 1) != 1, "read");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

static double tcp_rate(int n)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	must(listener < 0, "socket");
	must(bind(listener, (struct sockaddr *)&at, size), "bind");
	must(listen(listener, TCP_BACKLOG), "listen");
	must(getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_on_core(0, cores[1]);
		tcp_serve(listener);
	}
	double start = now_seconds();

	for (int i = 0; i < n; i++)
		tcp_connect(&at);
	double took = now_seconds() - start;

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(listener);
	return n / took;
}

/* ------------------------------------------------------------------ */

static void options(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "n:k:w:c:p:")) > 0) {
		if (option == 'n')
			count = atoi(optarg);
		else if (option == 'k')
			kept = atoi(optarg);
		else if (option == 'w')
			window = atoi(optarg);
		else if (option == 'p')
			daemon_pid = atoi(optarg);
		else if (option != 'c' || sscanf(optarg, "%d,%d", &cores[0], &cores[1]) != 2)
			give_up("usage: connections [-n CONNECTIONS] [-k KEPT] [-w WINDOW] "
				"[-c CORE,CORE] [-p DAEMON_PID]");
	}
	if (count < 0 || window < 1 || kept < 0 || (kept && kept <= FEW))
		give_up("-n is at least 0, -w at least 1, -k none or more than %d", FEW);
}

static void start_server(void)
{
	int report[2];

	must(pipe(report), "pipe");
	server_pid = fork();
	if (server_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_on_core(0, cores[1]);
		serve(report[1]);
	}
	must(server_pid < 0, "fork");
	close(report[1]);
	uint16_t port;

	if (read(report[0], &port, sizeof(port)) != sizeof(port))
		give_up("the server didn't start");
	close(report[0]);
	server.sin_port = port;
	server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

int main(int argc, char **argv)
{
	options(argc, argv);
	start_server();
	run_on_core(0, cores[0]);
	channel = rdma_create_event_channel();
	must(!channel, "rdma_create_event_channel");
	if (count) {
		loop(FEW, window); /* the first ones make links and tables */
		printf("rate %.0f\n", 1e6 / loop(count, window));
		printf("tcp_rate %.0f\n", tcp_rate(count));
	}
	if (kept)
		measure_kept();
	kill(server_pid, SIGKILL);
	waitpid(server_pid, NULL, 0);
	return 0;
}
