/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbenad's types. One thread, one epoll loop, no locks: every function runs to its end without
 * blocking. Ownership: the server owns connections and processes; a connection that opened a
 * context owns that context's objects; a process owns its numbers (slot, QPNs, keys) and its links.
 *
 * Nothing that a client says is believed: lengths are checked against the command table, handles
 * are looked up in the context's own tables, descriptors are checked for what they are.
 */
#ifndef VERBENA_DAEMON_DAEMON_H
#define VERBENA_DAEMON_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/table.h"
#include "proto/limits.h"
#include "proto/proto.h"
#include "shm/pub.h"

/* ------------------------------------------------------------------ the loop (loop.c) */

struct source {
	void (*ready)(struct source *source, uint32_t events);
	int fd;
};

int loop_add(struct source *source, uint32_t events);
int loop_change(struct source *source, uint32_t events);
void loop_remove(struct source *source);
/* One round: waits up to `timeout_ms` (-1: no limit), calls what is ready. */
int loop_round(int timeout_ms);
int loop_init(void);

/* ------------------------------------------------------------------ numbers (process.c) */

/* Numbers below `limit`, first in, first out: one is used again only after `aged` others were freed
 * (while fresh ones are left), so that nothing in flight names its next owner. */
struct numbers {
	uint32_t limit, fresh, aged;
	uint32_t *freed; /* ring */
	uint32_t size, head, count;
};

void numbers_init(struct numbers *n, uint32_t first, uint32_t limit, uint32_t aged);
void numbers_destroy(struct numbers *n);
int numbers_take(struct numbers *n, uint32_t *out); /* 0, -ENOSPC */
void numbers_give(struct numbers *n, uint32_t number);

/* ------------------------------------------------------------------ processes and links */

struct peer {
	struct list node;
	struct process *process;
	uint64_t link_id;
};

/* An event that found the socket full. */
struct pending {
	struct list node;
	struct proto_event event;
	int fds[3];
	unsigned int fd_count;
};

struct process {
	struct list node; /* server.processes */
	uint32_t slot;
	uint64_t cookie;
	pid_t pid;
	uid_t uid;
	char comm[16];
	int table_fd, doorbell_fd;
	const struct pub *table; /* read-only */
	struct source events;	 /* our end of its event socket */
	struct list pending;
	unsigned int pending_count;
	struct source death; /* pidfd */
	struct list peers;   /* struct peer */
	unsigned int peer_count;
	struct numbers qpns, keys;
	uint8_t *key_tags; /* by index: the next tag */
	uint32_t key_tags_size;
	uint64_t pinned_bytes;
	struct list contexts; /* struct conn.of_process */
	struct conn *conn;
};

int process_attach(struct conn *conn, int table_fd, int doorbell_fd, int *event_fd,
		   struct proto_attach_resp *resp);
void process_end(struct process *process);
struct process *process_by_cookie(uint64_t cookie, uid_t uid);
struct process *process_by_slot(uint32_t slot);
int process_send(struct process *process, const struct proto_event *event, const int *fds,
		 unsigned int fd_count);
int link_make(struct process *process, uint32_t slot);
void link_end_all(struct process *process);

/* ------------------------------------------------------------------ connections (conn.c) */

enum object_type { OBJ_PD, OBJ_MR, OBJ_CHANNEL, OBJ_CQ, OBJ_QP, OBJ_SRQ, OBJ_AH, OBJ_TYPES };

struct object {
	uint32_t handle;
	uint32_t users;		/* objects that need this one */
	struct object *uses[4]; /* counted in their `users` */
	union {
		struct {
			uint64_t addr, length;
			uint32_t access, rkey;
		} mr;
		struct {
			uint32_t cqe;
		} cq;
		struct {
			uint32_t qpn, type, max_send_wr, max_recv_wr;
		} qp;
		struct {
			uint32_t max_wr;
		} srq;
	};
};

struct conn {
	struct source source;
	struct list node; /* server.conns */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	struct process *process; /* that it is, or whose context it is */
	bool is_process;	 /* PROTO_ATTACH was here */
	bool is_context;	 /* GET_CONTEXT was here */
	struct list of_process;	 /* process.contexts */
	struct table objects[OBJ_TYPES];
};

void conn_accept(int fd);
void conn_close(struct conn *conn);
/* Frees the context's objects, users before what they use. */
void objects_free_all(struct conn *conn);

/* ------------------------------------------------------------------ commands (objects.c) */

struct request {
	const uint8_t *body; /* after the header */
	size_t size;
	int *fds; /* PROTO_MAX_FDS; a handler that keeps one puts -1 there */
};

struct response {
	uint8_t body[PROTO_MAX_MESSAGE - sizeof(struct proto_reply)];
	size_t size;
	int fd; /* to send along, closed afterwards; -1: none */
};

/* Runs one packet. Returns the result for struct proto_reply. */
int command_run(struct conn *conn, const uint8_t *packet, size_t size, int *fds,
		struct response *response);

extern const char *const object_names[OBJ_TYPES];

/* ------------------------------------------------------------------ the device (device.c) */

struct gid_entry {
	uint8_t gid[16];
	uint32_t ifindex;
	bool used;
};

struct device {
	char name[32], node[32];
	uint64_t guid; /* network order */
	struct gid_entry gids[LIMIT_GIDS];
	struct source netlink;
};

int device_init(struct device *device);
void device_query(const struct device *device, struct ib_uverbs_query_device_resp *resp);
void device_query_port(const struct device *device, struct ib_uverbs_query_port_resp *resp);

/* ------------------------------------------------------------------ the server (server.c, ctl.c)
 */

struct server {
	char dir[128];
	uint64_t started_ns;
	int idle_ms;
	bool stop;
	struct source uverbs, ctl, signals;
	struct device device;
	struct list conns, processes;
	unsigned int conn_count;
	struct process *slots[LIMIT_SLOTS];
	struct numbers slot_numbers;
	uint64_t next_link_id;
};

extern struct server server;

int server_run(const char *dir, int idle_ms, int ready_fd);
void ctl_accept(struct source *source, uint32_t events);
uint64_t clock_ns(void);

#endif
