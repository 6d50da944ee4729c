/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A verbenad of the test's own, and clients that speak its protocol directly: what any program
 * could send, not only what the library sends. A failed expectation ends the test at once.
 */
#ifndef VERBENA_TESTS_DAEMON_RAW_H
#define VERBENA_TESTS_DAEMON_RAW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "proto/proto.h"

/* A daemon in a fresh directory under /tmp; the program is $VERBENA_DAEMON. */
struct raw_daemon {
	char dir[64];
	pid_t pid;
};

/* Whether daemons open the RoCEv2 port: only in a network namespace of the test's own. */
extern int raw_wire;

/* The hard limit of open files of daemons that are started from now on; 0: the test's own. */
extern uint32_t raw_files;

void raw_daemon_start(struct raw_daemon *daemon);
/* Starts a daemon in an existing directory. Extra options end with NULL. */
void raw_daemon_exec(struct raw_daemon *daemon, const char *const *options);
/* Starts one with this configuration in a new directory, which other users may search. */
void raw_daemon_configured(struct raw_daemon *daemon, const char *config);
/* Kills the daemon and starts another in its directory, without idle exit. */
void raw_daemon_replace(struct raw_daemon *daemon);
/* Ends the daemon by SIGTERM, expects it to exit with 0, removes the directory. */
void raw_daemon_stop(struct raw_daemon *daemon);
void raw_daemon_remove(struct raw_daemon *daemon);

/* The daemon that a file's tests use: set-up and tear-down of one test or of all. The latter
 * expects that no client is left. */
extern struct raw_daemon server;
int raw_server_start(void **state);
int raw_server_stop(void **state);

int raw_connect(const struct raw_daemon *daemon);
int raw_connect_cm(const struct raw_daemon *daemon); /* to the node rdma_cm */

/* Sends these bytes and descriptors unchanged. 0 or -errno. */
int raw_send(int fd, const void *packet, size_t size, const int *fds, unsigned int count);
/* Receives a reply and returns its result; the rest goes to `reply`. -EPIPE: the daemon closed the
 * connection. */
int raw_receive(int fd, void *reply, size_t size, int *reply_fd);

/* Sends the connection manager a command of `size` bytes whose header says `in` and `out`; returns
 * the result, as raw_receive(). */
int raw_cm_exchange(int fd, uint32_t command, const void *body, size_t size, size_t in, size_t out,
		    void *reply, size_t reply_size, int *reply_fd);

/* Sends a well-formed legacy command: header, `body`. Returns the result. */
int raw_call(int fd, uint32_t command, const void *body, size_t size, void *reply,
	     size_t reply_size);

/* The request alone; raw_receive() has the answer. 0 or -errno. */
int raw_request(int fd, uint32_t command, const void *body, size_t size, const int *fds,
		unsigned int count);

/* raw_call() with descriptors. */
int raw_call_fds(int fd, uint32_t command, const void *body, size_t size, const int *fds,
		 unsigned int count, void *reply, size_t reply_size);

/* An attached process: its connection, event socket, and the descriptors that it handed in. */
struct raw_process {
	int fd, event_fd, table, doorbell;
	struct proto_attach_resp resp;
};

int raw_table(void); /* a sealed table as the library makes it */
int raw_memory(size_t size);
/* Sends the request only; the answer waits in `fd`. */
void raw_attach_send(int fd, const struct proto_attach *body, const int *fds, unsigned int count);
/* Attaches over `fd` with these descriptors (-1: none from here on). Returns the result. */
int raw_attach_with(int fd, int table, int doorbell, struct proto_attach_resp *resp, int *event_fd);
int raw_attach_body(int fd, const struct proto_attach *body, int table, int doorbell,
		    struct proto_attach_resp *resp, int *event_fd);
int raw_attach_fds(int fd, const struct proto_attach *body, const int *fds, unsigned int count,
		   struct proto_attach_resp *resp, int *event_fd);
void raw_attach(const struct raw_daemon *daemon, struct raw_process *process);
/* The same with this request. */
void raw_attach_as(const struct raw_daemon *daemon, struct raw_process *process,
		   const struct proto_attach *body);
void raw_detach(struct raw_process *process);
/* A context of this process. */
int raw_context(const struct raw_daemon *daemon, const struct raw_process *process);

/* Objects with ordinary attributes; return the handle. */
uint32_t raw_pd(int fd);
uint32_t raw_channel(int fd);
uint32_t raw_cq(int fd, int32_t channel);
uint32_t raw_srq(int fd, uint32_t pd);
uint32_t raw_mr(int fd, uint32_t pd, struct ib_uverbs_reg_mr_resp *resp);
uint32_t raw_qp(int fd, uint32_t pd, uint32_t cq, uint32_t *qpn);
uint32_t raw_ah(int fd, uint32_t pd);
int raw_destroy(int fd, uint32_t command, uint32_t handle); /* any DESTROY_*, DEALLOC_*, DEREG_* */

/* Takes the next event, within five seconds; missing descriptors are -1 in `fds`. 0 or -EPIPE,
 * -ETIMEDOUT. */
int raw_event(const struct raw_process *process, struct proto_event *event, int fds[3]);
/* The same for a process that has handed in regions. */
int raw_event_all(const struct raw_process *process, struct proto_event *event,
		  int fds[PROTO_MAX_FDS]);

int raw_connect_ctl(const struct raw_daemon *daemon);
/* Sends a line to the control socket and returns the parsed reply, which the caller frees. NULL: no
 * reply. */
json_t *raw_ctl(const struct raw_daemon *daemon, const char *line);
/* A sum over all clients of status: "clients", "contexts", or a kind of object. */
long raw_count(const struct raw_daemon *daemon, const char *what);
/* Waits up to five seconds until raw_count() is `wanted`. */
void raw_expect_count(const struct raw_daemon *daemon, const char *what, long wanted);

/* The daemon's open descriptors and its resident memory in KiB. */
long raw_daemon_fds(const struct raw_daemon *daemon);
/* The daemon has no more descriptors than that, once its threads have closed what ended clients
 * left. */
void raw_expect_fds(const struct raw_daemon *daemon, long most);
/* The same, and it has no fewer. */
void raw_expect_fds_equal(const struct raw_daemon *daemon, long wanted);
long raw_daemon_rss(const struct raw_daemon *daemon);

void raw_nap(void); /* 5 ms */
/* The most naps for what must happen: a minute, because the machine may be loaded. */
enum { RAW_NAPS = 12000 };

#endif
