/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An attached process: its slot, the numbers that it may give out, its published table and
 * doorbell, its contexts and links. It lives as long as its process connection and its process: it
 * ends when either does (a forked child may hold the connection open; the pidfd shows that the
 * process has ended).
 */
#ifndef VERBENA_DAEMON_CORE_PROCESS_H
#define VERBENA_DAEMON_CORE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/core/events.h"
#include "daemon/core/ids.h"
#include "daemon/core/loop.h"
#include "daemon/objects/keys.h"
#include "daemon/objects/objects.h"
#include "proto/limits.h"
#include "proto/proto.h"
#include "shm/pub.h"

struct absent;
struct claim;
struct conn;
struct link;
struct server;
struct slot_set;
struct user;

struct process {
	struct server *server;
	struct conn *conn; /* process connection */
	struct user *user;
	pid_t pid; /* as the daemon sees it */
	char comm[16];
	/* Its PID namespace, and its pid there: needed to report its pid to peers. */
	uint64_t pid_ns;
	pid_t pid_in_ns;
	uint32_t slot;
	uint64_t cookie;
	int table;    /* its published memory: sealed, only the process itself writes it */
	int doorbell; /* its eventfd */
	int regions;  /* its regions' file, sealed, for processes of its user; -1: none */
	int source;   /* a socket at the port that it sends to this host from; -1: none */
	bool loops;   /* its UDP socket takes what this host sends, as it asked when it attached */
	struct events events;
	struct watch death; /* pidfd */
	struct keys keys;
	struct ids qpns; /* indices; the QPN has the slot in its upper bits */
	struct list contexts;
	uint32_t context_count;
	uint32_t objects[OBJECT_KINDS];
	uint64_t pinned;	/* bytes; see pinned.h */
	uint64_t device_memory; /* bytes, whole pages (objects/dm.c) */
	bool no_memlock;	/* RLIMIT_MEMLOCK isn't enforced, as it asked when it attached */
	uint64_t may_lock_until_ms; /* until then it counts as having CAP_IPC_LOCK (pinned.c) */
	/* It comes from another daemon (return.h): set by return_begin(), cleared by
	 * command_returned(). While it is set, the process may send only commands by which it
	 * returns, and its pinned memory isn't limited. The daemon is one thread, so no lock guards
	 * the fields here. */
	bool returning;
	bool ended;	     /* see ending.h; never cleared */
	struct link **links; /* by the peer's slot; NULL until the first link */
	uint32_t link_count;
	struct claim *claims;	     /* links that it had at another daemon, by slot; NULL: none */
	struct slot_set *awaited_by; /* slots that want a link once it is back; NULL: none */
};

/* The slots, and the processes in them. */
struct slots {
	struct process *process[LIMIT_SLOTS];
	struct absent *absent[LIMIT_SLOTS]; /* slots kept for returning processes: return.h */
	/* Slots of processes that have ended, but whose contexts aren't freed yet (ending.h). */
	struct process *ended[LIMIT_SLOTS];
	struct ids ids;
	uint32_t count;
	/* First QPN index and key index for the slot's next process. */
	uint32_t qpn_start[LIMIT_SLOTS], key_start[LIMIT_SLOTS];
};

/* `next`: the first slot to give out. */
void slots_init(struct slots *slots, uint32_t next);
void slots_fini(struct slots *slots);

/*
 * Executes PROTO_ATTACH on `conn`. `fds`: table, doorbell, regions; taken over (set to -1) on
 * success. On success *event_fd is the process's end of the event socket, to be sent and closed.
 * Returns 0; -EINVAL: a descriptor isn't what it should be; -ENOSPC: no slot; -ESTALE: the roster
 * doesn't know the returning process; -EMFILE, -ENOMEM.
 */
int process_attach(struct conn *conn, const struct proto_attach *body, int *fds,
		   struct proto_attach_resp *resp, int *event_fd);

/* The process has ended (ending.h): nothing leads to it any more. */
void process_end(struct process *process);
/* One of its contexts; NULL: none is left. */
struct context *process_first_context(const struct process *process);
/* Frees it, with its numbers, when no context is left. Its own connection stays. */
void process_free(struct process *process);

/* The process's effective uid now; (uid_t)-1 when /proc can't be read. */
uid_t process_uid_now(const struct process *process);

/* Whether it has a context on this device. */
struct device;
bool process_uses(const struct process *process, const struct device *device);
/* The device's last interface is gone, so that its contexts are removed. */
void process_lose_device(struct process *process, const struct device *device);

/* Gives the slot back, and its socket, unless a process (also one that has ended and isn't freed
 * yet) or XRC target queue pairs have it. */
void process_slot_done(struct server *server, uint32_t slot);

/* The process with this cookie; NULL: none. */
struct process *process_by_cookie(struct server *server, uint64_t cookie);
/* The process at the slot; NULL: none, or no such slot. */
struct process *process_by_slot(struct server *server, uint32_t slot);

/* `peer`'s pid as `process` sees it; 0: it has none in that PID namespace, or that isn't known. */
pid_t process_pid_seen(const struct process *process, const struct process *peer);

/* The published entry of the queue pair with this number; all zero when it can't be read. */
struct pub_qp_view {
	uint64_t state, peer;
	uint16_t lid; /* on a fabric: where its packets go, and by which port */
	uint8_t port;
};
struct pub_qp_view process_read_qp(const struct process *process, uint32_t qpn);

#endif
