/* SPDX-License-Identifier: BSD-2-Clause */
/* See raw.h. */
#include "raw.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/call.h"
#include "proto/cm.h"
#include "shm/pub.h"

enum { PATIENCE = RAW_NAPS };

void raw_nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* ------------------------------------------------------------------ the daemon */

int raw_wire;
uint32_t raw_files;

static void become_daemon(const struct raw_daemon *daemon, int ready, const char *const *options)
{
	const char *argv[16] = {"verbenad", "--runtime-dir", daemon->dir, "--wire",
				raw_wire ? "on" : "off"};
	char fd[16], log[128];
	const struct rlimit files = {raw_files, raw_files};
	int n = 5;

	if (raw_files && setrlimit(RLIMIT_NOFILE, &files) < 0)
		_exit(127);
	snprintf(log, sizeof(log), "%s/log", daemon->dir);
	int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (log_fd >= 0)
		dup2(log_fd, STDOUT_FILENO), dup2(log_fd, STDERR_FILENO);
	if (ready >= 0) {
		snprintf(fd, sizeof(fd), "%d", ready);
		argv[n++] = "--ready-fd";
		argv[n++] = fd;
	}
	while (options && *options && n < 15)
		argv[n++] = *options++;
	execv(getenv("VERBENA_DAEMON"), (char *const *)argv);
	_exit(127);
}

void raw_daemon_exec(struct raw_daemon *daemon, const char *const *options)
{
	int ready[2];
	char byte;

	assert_non_null(getenv("VERBENA_DAEMON"));
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (daemon->pid == 0) {
		/* Ends the daemon also when a failed test exits without raw_daemon_stop(). */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fcntl(ready[1], F_SETFD, 0);
		become_daemon(daemon, ready[1], options);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
}

void raw_daemon_start(struct raw_daemon *daemon)
{
	static const char *const options[] = {"--idle-ms", "-1", NULL};

	snprintf(daemon->dir, sizeof(daemon->dir), "/tmp/verbena-unit-XXXXXX");
	assert_non_null(mkdtemp(daemon->dir));
	raw_daemon_exec(daemon, options);
}

void raw_daemon_configured(struct raw_daemon *daemon, const char *config)
{
	char path[128];
	const char *const options[] = {"--config", path, "--idle-ms", "never", NULL};

	snprintf(daemon->dir, sizeof(daemon->dir), "/tmp/verbena-unit-XXXXXX");
	assert_non_null(mkdtemp(daemon->dir));
	assert_int_equal(chmod(daemon->dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/conf", daemon->dir);
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(config, file) >= 0);
	fclose(file);
	raw_daemon_exec(daemon, options);
}

void raw_daemon_remove(struct raw_daemon *daemon)
{
	char path[400];
	DIR *dir = opendir(daemon->dir);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", daemon->dir, entry->d_name);
		unlink(path);
	}
	if (dir)
		closedir(dir);
	rmdir(daemon->dir);
}

void raw_daemon_replace(struct raw_daemon *daemon)
{
	static const char *const options[] = {"--idle-ms", "-1", NULL};
	int status;

	assert_int_equal(kill(daemon->pid, SIGKILL), 0);
	assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
	raw_daemon_exec(daemon, options);
}

void raw_daemon_stop(struct raw_daemon *daemon)
{
	int status;

	assert_int_equal(kill(daemon->pid, SIGTERM), 0);
	assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the daemon ended with status 0x%x; its log is %s/log", status,
			 daemon->dir);
	raw_daemon_remove(daemon);
}

struct raw_daemon server;

int raw_server_start(void **state)
{
	(void)state;
	raw_daemon_start(&server);
	return 0;
}

int raw_server_stop(void **state)
{
	(void)state;
	raw_expect_count(&server, "clients", 0);
	raw_daemon_stop(&server);
	return 0;
}

long raw_daemon_fds(const struct raw_daemon *daemon)
{
	char path[64];
	long count = -2; /* "." and ".." */

	snprintf(path, sizeof(path), "/proc/%d/fd", daemon->pid);
	DIR *dir = opendir(path);

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

void raw_expect_fds(const struct raw_daemon *daemon, long most)
{
	for (int i = 0; i < PATIENCE && raw_daemon_fds(daemon) > most; i++)
		raw_nap();
	assert_in_range(raw_daemon_fds(daemon), 0, most);
}

void raw_expect_fds_equal(const struct raw_daemon *daemon, long wanted)
{
	for (int i = 0; i < PATIENCE && raw_daemon_fds(daemon) != wanted; i++)
		raw_nap();
	assert_int_equal(raw_daemon_fds(daemon), wanted);
}

long raw_daemon_rss(const struct raw_daemon *daemon)
{
	char path[64];
	long size, resident;

	snprintf(path, sizeof(path), "/proc/%d/statm", daemon->pid);
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
	fclose(f);
	return resident * 4;
}

/* ------------------------------------------------------------------ packets */

static int connect_to(const struct raw_daemon *daemon, const char *name, int type)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = 10};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", daemon->dir, name);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	/* A daemon that doesn't answer must fail the test instead of blocking it. */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

int raw_connect(const struct raw_daemon *daemon)
{
	return connect_to(daemon, "uverbs0", SOCK_SEQPACKET);
}

int raw_connect_cm(const struct raw_daemon *daemon)
{
	return connect_to(daemon, "rdma_cm", SOCK_SEQPACKET);
}

int raw_connect_ctl(const struct raw_daemon *daemon)
{
	return connect_to(daemon, "ctl", SOCK_STREAM);
}

/* Not packet_send(), so that any number of descriptors can be sent. */
int raw_send(int fd, const void *packet, size_t size, const int *fds, unsigned int count)
{
	char control[CMSG_SPACE(64 * sizeof(int))] = {0};
	struct iovec iov = {(void *)packet, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count)
		packet_attach(&m, control, fds, count);
	/* Other tests of this user may have as many descriptors in messages as it is allowed to. */
	while (sendmsg(fd, &m, MSG_NOSIGNAL) < 0) {
		if (errno != ETOOMANYREFS)
			return -errno;
		usleep(1000);
	}
	return 0;
}

int raw_receive(int fd, void *reply, size_t size, int *reply_fd)
{
	uint8_t packet[PROTO_MAX_MESSAGE];
	int fds[PROTO_MAX_FDS];
	struct proto_reply head;
	ssize_t n = packet_receive(fd, packet, sizeof(packet), fds, 0);

	if (n == 0 || n == -ECONNRESET)
		return -EPIPE;
	if (n == -EAGAIN)
		fail_msg("the daemon doesn't answer");
	assert_true(n >= (ssize_t)sizeof(head));
	memcpy(&head, packet, sizeof(head));
	if (head.result == 0 && reply) {
		assert_int_equal(n, sizeof(head) + size);
		memcpy(reply, packet + sizeof(head), size);
	}
	if (head.result)
		assert_int_equal(n, sizeof(head));
	assert_true(head.result <= 0);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0 && (i || !reply_fd))
			close(fds[i]);
	if (reply_fd)
		*reply_fd = fds[0];
	return head.result;
}

int raw_cm_exchange(int fd, uint32_t command, const void *body, size_t size, size_t in, size_t out,
		    void *reply, size_t reply_size, int *reply_fd)
{
	_Alignas(8) uint8_t packet[2048] = {0};
	const struct rdma_ucm_cmd_hdr header = {
		.cmd = command, .in = (uint16_t)in, .out = (uint16_t)out};

	assert_true(sizeof(header) + size <= sizeof(packet));
	memcpy(packet, &header, sizeof(header));
	if (size)
		memcpy(packet + sizeof(header), body, size);
	int err = raw_send(fd, packet, sizeof(header) + size, NULL, 0);

	return err ? err : raw_receive(fd, reply, reply_size, reply_fd);
}

int raw_request(int fd, uint32_t command, const void *body, size_t size, const int *fds,
		unsigned int count)
{
	_Alignas(8) uint8_t packet[1024];
	const struct ib_uverbs_cmd_hdr header = {.command = command,
						 .in_words =
							 (uint16_t)((sizeof(header) + size) / 4),
						 .out_words = 1024};

	assert_true(sizeof(header) + size <= sizeof(packet));
	memcpy(packet, &header, sizeof(header));
	if (size)
		memcpy(packet + sizeof(header), body, size);
	return raw_send(fd, packet, sizeof(header) + size, fds, count);
}

int raw_call_fds(int fd, uint32_t command, const void *body, size_t size, const int *fds,
		 unsigned int count, void *reply, size_t reply_size)
{
	int err = raw_request(fd, command, body, size, fds, count);

	return err ? err : raw_receive(fd, reply, reply_size, NULL);
}

int raw_call(int fd, uint32_t command, const void *body, size_t size, void *reply,
	     size_t reply_size)
{
	return raw_call_fds(fd, command, body, size, NULL, 0, reply, reply_size);
}

/* ------------------------------------------------------------------ processes and contexts */

int raw_table(void)
{
	return raw_memory(PUB_SIZE);
}

int raw_memory(size_t size)
{
	int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS,
			       F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL),
			 0);
	return fd;
}

void raw_attach_send(int fd, const struct proto_attach *body, const int *fds, unsigned int count)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct proto_attach body;
	} packet = {.header = {.command = PROTO_ATTACH,
			       .in_words = sizeof(packet) / 4,
			       .out_words = sizeof(struct proto_attach_resp) / 4},
		    .body = *body};

	assert_int_equal(raw_send(fd, &packet, sizeof(packet), fds, count), 0);
}

int raw_attach_fds(int fd, const struct proto_attach *body, const int *fds, unsigned int count,
		   struct proto_attach_resp *resp, int *event_fd)
{
	raw_attach_send(fd, body, fds, count);
	return raw_receive(fd, resp, sizeof(*resp), event_fd);
}

int raw_attach_body(int fd, const struct proto_attach *body, int table, int doorbell,
		    struct proto_attach_resp *resp, int *event_fd)
{
	const int fds[] = {table, doorbell};

	return raw_attach_fds(fd, body, fds, (table >= 0) + (doorbell >= 0), resp, event_fd);
}

static const struct proto_attach ordinary = {.abi = PROTO_ABI};

int raw_attach_with(int fd, int table, int doorbell, struct proto_attach_resp *resp, int *event_fd)
{
	return raw_attach_body(fd, &ordinary, table, doorbell, resp, event_fd);
}

void raw_attach(const struct raw_daemon *daemon, struct raw_process *process)
{
	raw_attach_as(daemon, process, &ordinary);
}

void raw_attach_as(const struct raw_daemon *daemon, struct raw_process *process,
		   const struct proto_attach *body)
{
	process->fd = raw_connect(daemon);
	process->table = raw_table();
	process->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(process->doorbell >= 0);
	assert_int_equal(raw_attach_body(process->fd, body, process->table, process->doorbell,
					 &process->resp, &process->event_fd),
			 0);
	assert_true(process->event_fd >= 0);
}

void raw_detach(struct raw_process *process)
{
	close(process->fd);
	close(process->event_fd);
	close(process->table);
	close(process->doorbell);
}

int raw_context(const struct raw_daemon *daemon, const struct raw_process *process)
{
	const struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} body = {.udata.cookie = process->resp.cookie};
	struct ib_uverbs_get_context_resp resp;
	int fd = raw_connect(daemon);

	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	assert_true(resp.num_comp_vectors > 0);
	return fd;
}

/* ------------------------------------------------------------------ objects */

uint32_t raw_pd(int fd)
{
	const struct ib_uverbs_alloc_pd body = {0};
	struct ib_uverbs_alloc_pd_resp resp;

	assert_int_equal(
		raw_call(fd, IB_USER_VERBS_CMD_ALLOC_PD, &body, sizeof(body), &resp, sizeof(resp)),
		0);
	return resp.pd_handle;
}

uint32_t raw_channel(int fd)
{
	const struct ib_uverbs_create_comp_channel body = {0};
	struct ib_uverbs_create_comp_channel_resp resp;

	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &body, sizeof(body),
				  &resp, sizeof(resp)),
			 0);
	return resp.fd;
}

uint32_t raw_cq(int fd, int32_t channel)
{
	const struct ib_uverbs_create_cq body = {.cqe = 16, .comp_channel = channel};
	struct ib_uverbs_create_cq_resp resp;

	assert_int_equal(
		raw_call(fd, IB_USER_VERBS_CMD_CREATE_CQ, &body, sizeof(body), &resp, sizeof(resp)),
		0);
	assert_true(resp.cqe >= 16);
	return resp.cq_handle;
}

uint32_t raw_srq(int fd, uint32_t pd)
{
	const struct ib_uverbs_create_srq body = {.pd_handle = pd, .max_wr = 8, .max_sge = 1};
	struct ib_uverbs_create_srq_resp resp;

	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_CREATE_SRQ, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	return resp.srq_handle;
}

uint32_t raw_mr(int fd, uint32_t pd, struct ib_uverbs_reg_mr_resp *resp)
{
	const struct ib_uverbs_reg_mr body = {.start = 0x10000,
					      .length = 0x2000,
					      .hca_va = 0x10000,
					      .pd_handle = pd,
					      .access_flags = 1};
	struct ib_uverbs_reg_mr_resp own;

	if (!resp)
		resp = &own;
	assert_int_equal(
		raw_call(fd, IB_USER_VERBS_CMD_REG_MR, &body, sizeof(body), resp, sizeof(*resp)),
		0);
	return resp->mr_handle;
}

uint32_t raw_qp(int fd, uint32_t pd, uint32_t cq, uint32_t *qpn)
{
	const struct ib_uverbs_create_qp body = {.pd_handle = pd,
						 .send_cq_handle = cq,
						 .recv_cq_handle = cq,
						 .max_send_wr = 4,
						 .max_recv_wr = 4,
						 .max_send_sge = 1,
						 .max_recv_sge = 1,
						 .qp_type = 2};
	struct ib_uverbs_create_qp_resp resp;

	assert_int_equal(
		raw_call(fd, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp, sizeof(resp)),
		0);
	if (qpn)
		*qpn = resp.qpn;
	return resp.qp_handle;
}

uint32_t raw_ah(int fd, uint32_t pd)
{
	const struct ib_uverbs_create_ah body = {.pd_handle = pd,
						 .attr = {.is_global = 1, .port_num = 1}};
	struct proto_create_ah_resp resp;

	assert_int_equal(
		raw_call(fd, IB_USER_VERBS_CMD_CREATE_AH, &body, sizeof(body), &resp, sizeof(resp)),
		0);
	return resp.ah_handle;
}

int raw_destroy(int fd, uint32_t command, uint32_t handle)
{
	/* The kernel's structures have the handle first, or after the unused response address. */
	const struct {
		uint64_t response;
		uint32_t handle, reserved;
	} late = {.handle = handle};
	const struct proto_handle early = {.handle = handle};

	switch (command) {
	case IB_USER_VERBS_CMD_DESTROY_CQ:
	case IB_USER_VERBS_CMD_DESTROY_QP:
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
		return raw_call(fd, command, &late, sizeof(late), NULL, 0);
	case PROTO_DESTROY_CHANNEL:
	case PROTO_FREE_DM:
		return raw_call(fd, command, &early, sizeof(early), NULL, 0);
	default:
		return raw_call(fd, command, &handle, sizeof(handle), NULL, 0);
	}
}

/* ------------------------------------------------------------------ events and control */

int raw_event_all(const struct raw_process *process, struct proto_event *event,
		  int fds[PROTO_MAX_FDS])
{
	struct pollfd p = {.fd = process->event_fd, .events = POLLIN};

	if (poll(&p, 1, 60000) != 1)
		return -ETIMEDOUT;
	ssize_t n = packet_receive(process->event_fd, event, sizeof(*event), fds, 0);

	if (n <= 0)
		return -EPIPE;
	assert_int_equal(n, sizeof(*event));
	return 0;
}

int raw_event(const struct raw_process *process, struct proto_event *event, int fds[3])
{
	int all[PROTO_MAX_FDS];
	int err = raw_event_all(process, event, all);

	if (err)
		return err;
	assert_int_equal(all[3], -1);
	memcpy(fds, all, 3 * sizeof(int));
	return 0;
}

json_t *raw_ctl(const struct raw_daemon *daemon, const char *line)
{
	static char reply[4 << 20];
	size_t length = 0;
	ssize_t n;
	int fd = connect_to(daemon, "ctl", SOCK_STREAM);

	if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0) {
		close(fd);
		return NULL;
	}
	shutdown(fd, SHUT_WR);
	while ((n = read(fd, reply + length, sizeof(reply) - 1 - length)) > 0)
		length += (size_t)n;
	reply[length] = 0;
	close(fd);
	return json_loads(reply, 0, NULL);
}

static long count_of(const json_t *client, const char *what)
{
	if (!strcmp(what, "clients"))
		return 1;
	json_t *value = json_object_get(client, what);

	if (!value)
		value = json_object_get(json_object_get(client, "objects"), what);
	assert_non_null(value);
	return (long)json_integer_value(value);
}

long raw_count(const struct raw_daemon *daemon, const char *what)
{
	json_t *reply = raw_ctl(daemon, "{\"op\":\"status\"}\n"), *client;
	long sum = 0;
	size_t i;

	assert_true(json_is_true(json_object_get(reply, "ok")));
	json_array_foreach(json_object_get(reply, "clients"), i, client) {
		sum += count_of(client, what);
	}
	json_decref(reply);
	return sum;
}

void raw_expect_count(const struct raw_daemon *daemon, const char *what, long wanted)
{
	for (int i = 0; i < PATIENCE; i++) {
		if (raw_count(daemon, what) == wanted)
			return;
		raw_nap();
	}
	assert_int_equal(raw_count(daemon, what), wanted);
}
