/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attached processes. See process.h. The table is read with pread(), never mapped, so that nothing
 * that the process does to the file raises SIGBUS in the daemon.
 */
#include "daemon/core/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/proc_file.h"
#include "daemon/core/capture.h"
#include "daemon/core/closer.h"
#include "daemon/core/conn.h"
#include "daemon/core/counters.h"
#include "daemon/core/memory.h"
#include "daemon/core/return.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/link.h"
#include "daemon/net/mcast.h"
#include "daemon/net/slot_source.h"
#include "daemon/objects/context.h"

/* QPN indices are reused as late as possible: a packet in flight carries nothing else that would
 * tell two queue pairs with one QPN apart. */
enum { QPN_FIRST = 1, QPN_AGE = LIMIT_QPS_PER_SLOT, SLOT_FIRST = 1, SLOT_AGE = LIMIT_SLOTS };

void slots_init(struct slots *slots, uint32_t next)
{
	*slots = (struct slots){0};
	/* Slot 0 is the daemon's. */
	ids_init(&slots->ids, SLOT_FIRST, LIMIT_SLOTS - SLOT_FIRST, SLOT_AGE, next - SLOT_FIRST);
}

void slots_fini(struct slots *slots)
{
	ids_fini(&slots->ids);
}

struct process *process_by_slot(struct server *server, uint32_t slot)
{
	return slot < LIMIT_SLOTS ? server->slots.process[slot] : NULL;
}

struct process *process_by_cookie(struct server *server, uint64_t cookie)
{
	struct process *process = process_by_slot(server, cookie & (LIMIT_SLOTS - 1));

	return process && process->cookie == cookie ? process : NULL;
}

void process_lose_device(struct process *process, const struct device *device)
{
	list_for_each(node, &process->contexts) {
		struct context *context = container_of(node, struct context, node);

		context->removed |= context->conn->device == device;
	}
}

bool process_uses(const struct process *process, const struct device *device)
{
	list_for_each(node, &process->contexts)
		if (container_of(node, struct context, node)->conn->device == device)
			return true;
	return false;
}

/* ------------------------------------------------------------------ what is known of a process */

/* Peers write to the doorbell, so it must be an eventfd: a write to another file could have any
 * effect. */
static bool doorbell_is_sound(int fd)
{
	char path[64], target[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n < 0)
		return false;
	target[n] = 0;
	int flags = fcntl(fd, F_GETFL);

	return !strcmp(target, "anon_inode:[eventfd]") && flags >= 0 && (flags & O_NONBLOCK);
}

static void read_comm(struct process *process)
{
	proc_file_read(process->pid, "comm", process->comm, sizeof(process->comm));
	process->comm[strcspn(process->comm, "\n")] = 0;
}

enum { STATUS_BYTES = 4096 };

/* The value of a line of /proc/PID/status, within `text`; NULL: no such line. The process's name
 * can't forge a line: /proc escapes a newline in it. */
static char *read_status(const struct process *process, const char *name, char text[STATUS_BYTES])
{
	proc_file_read(process->pid, "status", text, STATUS_BYTES);
	char *line = strstr(text, name);

	if (!line)
		return NULL;
	line += strlen(name);
	line[strcspn(line, "\n")] = 0;
	return line;
}

/* Reads the PID namespace, and the pid there: the last number of the line "NSpid:". */
static void read_pid_ns(struct process *process)
{
	char path[64], text[STATUS_BYTES];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", process->pid);
	process->pid_ns = stat(path, &st) == 0 ? st.st_ino : 0;
	char *line = read_status(process, "\nNSpid:", text);
	char *last = line ? strrchr(line, '\t') : NULL;

	process->pid_in_ns = last ? (pid_t)strtol(last, NULL, 10) : 0;
}

uid_t process_uid_now(const struct process *process)
{
	char text[STATUS_BYTES];
	const char *line = read_status(process, "\nUid:", text);
	unsigned int effective;

	return line && sscanf(line, "%*u %u", &effective) == 1 ? effective : (uid_t)-1;
}

pid_t process_pid_seen(const struct process *process, const struct process *peer)
{
	/* A process with the same pid inside and outside of its namespace counts as in the
	 * daemon's: it is there, or its pid is right in both. */
	bool outer = process->pid_in_ns == process->pid;

	if (outer && (process->pid_ns == 0 || process->pid_ns == process->server->pid_ns))
		return peer->pid;
	return process->pid_ns && process->pid_ns == peer->pid_ns ? peer->pid_in_ns : 0;
}

struct pub_qp_view process_read_qp(const struct process *process, uint32_t qpn)
{
	struct pub_qp_view view = {0};
	uint64_t words[offsetof(struct pub_qp, path) / sizeof(uint64_t) + 1];
	off_t at = (off_t)(offsetof(struct pub, qp) +
			   (size_t)(qpn & (LIMIT_QPS_PER_SLOT - 1)) * sizeof(struct pub_qp));

	_Static_assert(offsetof(struct pub_qp, state) == 0 && offsetof(struct pub_qp, peer) == 8 &&
			       offsetof(struct pub_qp, path) % sizeof(uint64_t) == 0,
		       "whole words are read here");
	if (pread(process->table, words, sizeof(words), at) != sizeof(words))
		return view;
	uint64_t path = words[offsetof(struct pub_qp, path) / sizeof(uint64_t)];

	view = (struct pub_qp_view){words[0], words[1], (uint16_t)path, (uint8_t)(path >> 24)};
	return view;
}

/* ------------------------------------------------------------------ attach and end */

static void process_on_death(struct watch *watch, uint32_t events)
{
	struct process *process = container_of(watch, struct process, death);

	(void)events;
	log_info("process %d (%s) at slot %u ended", process->pid, process->comm, process->slot);
	conn_close(process->conn);
}

/* A process that has no pid in the daemon's PID namespace is watched by its sockets alone. */
static int process_watch_death(struct process *process)
{
	int fd = conn_pidfd(process->conn);

	if (fd == -ESRCH || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		return fd;
	if (fd < 0) {
		log_info("no pidfd for process %d (%s): its end shows when its sockets close",
			 process->pid, strerror(-fd));
		return 0;
	}
	int err = loop_add(&process->server->loop, &process->death, fd, EPOLLIN);

	if (err)
		close(fd);
	return err;
}

static int take_slot(struct process *process)
{
	struct slots *slots = &process->server->slots;

	if (getrandom(&process->cookie, sizeof(process->cookie), 0) != sizeof(process->cookie))
		return -EAGAIN;
	int err;

	do /* not one whose XRC target queue pairs outlived a daemon (xrc.h) */
		err = ids_take(&slots->ids, &process->slot);
	while (!err && xrc_has_slot(process->server, process->slot));
	if (err == -ENOSPC && ending_may_help(process->conn, true))
		return -EAGAIN;
	if (err == -ENOSPC)
		complain(process->user, "%u programs are attached already; no place for process %d",
			 LIMIT_SLOTS - 1, process->pid);
	process->cookie = (process->cookie & ~(uint64_t)(LIMIT_SLOTS - 1)) | process->slot;
	return err;
}

/* -EAGAIN: it may attach once processes of its user that have ended are freed. */
static int refuse_process(const struct process *process)
{
	if (ending_may_help(process->conn, false))
		return -EAGAIN;
	complain(process->user,
		 "process %d (%s) may not attach: user %u has %u processes here, and %u slots of "
		 "ended ones by XRC target queue pairs, the most that user-processes in "
		 "verbenad.conf allows",
		 process->pid, process->comm, process->user->uid, process->user->processes,
		 xrc_slots_kept(process->server, process->user));
	return -EMFILE;
}

static uint32_t process_slots_of_user(const struct process *process)
{
	return process->user->processes + xrc_slots_kept(process->server, process->user);
}

/* Takes slot, cookie and number ranges: new ones, or those that the process had at another
 * daemon. */
static int take_numbers(struct process *process, const struct proto_attach *body)
{
	struct slots *slots = &process->server->slots;
	uint8_t seed;
	int err;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return -EAGAIN;
	if (body->flags & PROTO_ATTACH_RETURN)
		err = return_begin(process, body);
	else if (process_slots_of_user(process) >= process->server->config.user_processes)
		err = refuse_process(process);
	else
		err = take_slot(process);
	if (err)
		return err;
	ids_init(&process->qpns, QPN_FIRST, LIMIT_QPS_PER_SLOT - QPN_FIRST, QPN_AGE,
		 process->returning ? body->qpn_index - QPN_FIRST
				    : slots->qpn_start[process->slot]);
	keys_init(&process->keys,
		  process->returning ? body->key_index - KEYS_FIRST
				     : slots->key_start[process->slot],
		  seed);
	slots->process[process->slot] = process;
	mcast_source_port(process->server, process->slot, 0); /* the last one's may be kept yet */
	slots->count++;
	process->user->processes++;
	roster_enter(&process->server->roster, process);
	if (!process->returning)
		mcast_reach(process->server, process->slot, process->user);
	return 0;
}

void process_slot_done(struct server *server, uint32_t slot)
{
	if (server->slots.process[slot] || server->slots.ended[slot] || xrc_has_slot(server, slot))
		return;
	udp_slots_slot_done(&server->wire, slot);
	ids_give(&server->slots.ids, slot);
}

/* The slot names no process any more, but isn't given to another one yet. */
static void leave_slot(struct process *process)
{
	struct server *server = process->server;
	struct slots *slots = &server->slots;

	slots->qpn_start[process->slot] = ids_mark(&process->qpns);
	slots->key_start[process->slot] = ids_mark(&process->keys.ids);
	roster_leave(&server->roster, process);
	slots->process[process->slot] = NULL;
	slots->ended[process->slot] = process;
	mcast_reach(server, process->slot, NULL);
	xrc_process_ended(server, process->slot);
}

static void give_numbers(struct process *process)
{
	struct slots *slots = &process->server->slots;

	ids_fini(&process->qpns);
	keys_fini(&process->keys);
	slots->ended[process->slot] = NULL;
	slots->count--;
	process->user->processes--;
	process_slot_done(process->server, process->slot);
	if (!slots->count)
		udp_slots_all_done(&process->server->wire);
}

static struct process *process_new(struct conn *conn)
{
	struct process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->server = conn->server;
	process->conn = conn;
	process->user = conn->user;
	process->pid = conn->pid;
	process->table = -1;
	process->doorbell = -1;
	process->regions = -1;
	process->source = -1;
	process->death = (struct watch){.fd = -1, .ready = process_on_death};
	list_init(&process->contexts);
	read_comm(process);
	read_pid_ns(process);
	return process;
}

static int process_check_fds(const struct process *process, const int *fds)
{
	if (fds[0] < 0 || fds[1] < 0) {
		complain(process->user, "process %d (%s) attached without its descriptors",
			 process->pid, process->comm);
		return -EINVAL;
	}
	if (!memory_is_sound(fds[0], PUB_SIZE) ||
	    (fds[2] >= 0 && !memory_is_sound(fds[2], PUB_REGIONS_SIZE))) {
		complain(process->user,
			 "process %d (%s) attached with a table that isn't a sealed memory file of "
			 "%zu (regions: %zu) bytes; does its library belong to this daemon?",
			 process->pid, process->comm, PUB_SIZE, PUB_REGIONS_SIZE);
		return -EINVAL;
	}
	if (!doorbell_is_sound(fds[1])) {
		complain(process->user,
			 "process %d (%s) attached with a doorbell that isn't a non-blocking "
			 "eventfd",
			 process->pid, process->comm);
		return -EINVAL;
	}
	return 0;
}

int process_attach(struct conn *conn, const struct proto_attach *body, int *fds,
		   struct proto_attach_resp *resp, int *event_fd)
{
	struct process *process = process_new(conn);
	int err = process ? process_check_fds(process, fds) : -ENOMEM;

	if (err)
		goto out_free;
	err = take_numbers(process, body);
	if (err)
		goto out_free;
	err = process_watch_death(process);
	if (err)
		goto out_numbers;
	err = events_open(&process->events, &process->server->loop, event_fd);
	if (err)
		goto out_death;
	process->table = fds[0];
	process->doorbell = fds[1];
	process->regions = fds[2];
	fds[0] = fds[1] = fds[2] = -1;
	conn->kind = CONN_PROCESS;
	conn->process = process;
	resp->cookie = process->cookie;
	resp->slot = process->slot;
	log_info("process %d (%s) of user %u %s slot %u", process->pid, process->comm,
		 process->user->uid, process->returning ? "comes back to" : "attached at",
		 process->slot);
	return 0;

out_death:;
	int pidfd = process->death.fd;

	loop_remove(&process->server->loop, &process->death);
	if (pidfd >= 0)
		close(pidfd);
out_numbers:
	leave_slot(process);
	give_numbers(process);
	return_end(process);
out_free:
	free(process);
	return err;
}

void process_end(struct process *process)
{
	int pidfd = process->death.fd;

	process->ended = true;
	link_free_all(process);
	capture_left(process);
	counters_keep(process);
	events_close(&process->events);
	loop_remove(&process->server->loop, &process->death);
	if (pidfd >= 0)
		close(pidfd);
	closer_close(process->user->uid,
		     (int[]){process->table, process->doorbell, process->regions}, 3);
	process->table = process->doorbell = process->regions = -1;
	leave_slot(process);
	if (process->source >= 0)
		slot_source_keep(process->server, process->slot, process->user->uid,
				 process->source);
	process->source = -1;
	return_end(process);
}

struct context *process_first_context(const struct process *process)
{
	return list_empty(&process->contexts)
		       ? NULL
		       : container_of(process->contexts.next, struct context, node);
}

void process_free(struct process *process)
{
	give_numbers(process);
	process->conn->process = NULL;
	process->conn->kind = CONN_NEW;
	free(process->links);
	free(process);
}
