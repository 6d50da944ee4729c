/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes: attaching (slot, cookie, published table), their numbers, their event sockets, their
 * end. A process's death is seen by its pidfd, also when forked children still hold its sockets. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "daemon/daemon.h"

enum { PENDING_MAX = 2 * LIMIT_SLOTS };

/* ------------------------------------------------------------------ numbers */

void numbers_init(struct numbers *n, uint32_t first, uint32_t limit, uint32_t aged)
{
	*n = (struct numbers){.limit = limit, .fresh = first, .aged = aged};
}

void numbers_destroy(struct numbers *n)
{
	free(n->freed);
	n->freed = NULL;
}

int numbers_take(struct numbers *n, uint32_t *out)
{
	if (n->count > n->aged || (n->fresh == n->limit && n->count)) {
		*out = n->freed[n->head];
		n->head = (n->head + 1) & (n->size - 1);
		n->count--;
		return 0;
	}
	if (n->fresh == n->limit)
		return -ENOSPC;
	*out = n->fresh++;
	return 0;
}

void numbers_give(struct numbers *n, uint32_t number)
{
	if (n->count == n->size) {
		uint32_t size = n->size ? n->size * 2 : 64;
		uint32_t *ring = malloc(size * sizeof(*ring));

		if (!ring)
			return; /* the number is lost, which is safe */
		for (uint32_t i = 0; i < n->count; i++)
			ring[i] = n->freed[(n->head + i) & (n->size - 1)];
		free(n->freed);
		n->freed = ring;
		n->size = size;
		n->head = 0;
	}
	n->freed[(n->head + n->count++) & (n->size - 1)] = number;
}

/* ------------------------------------------------------------------ attaching */

/* A table must be ours to map for good: right size, and nobody can shrink or change it. */
static const struct pub *table_map(int fd)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size != (off_t)PUB_SIZE ||
	    (fcntl(fd, F_GET_SEALS) & seals) != seals)
		return NULL;
	void *p = mmap(NULL, PUB_SIZE, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void read_comm(struct process *p)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/comm", p->pid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(p->comm, 1, sizeof(p->comm) - 1, f) : 0;

	if (f)
		fclose(f);
	p->comm[n] = 0;
	p->comm[strcspn(p->comm, "\n")] = 0;
	for (char *c = p->comm; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static void on_death(struct source *source, uint32_t events)
{
	(void)events;
	process_end(container_of(source, struct process, death));
}

static void flush_pending(struct process *p);

static void on_event_socket(struct source *source, uint32_t events)
{
	struct process *p = container_of(source, struct process, events);

	if (events & EPOLLOUT)
		flush_pending(p);
	else
		process_end(p); /* nothing is ever sent to us here: it hung up */
}

static int watch_death(struct process *p)
{
	p->death = (struct source){.ready = on_death, .fd = syscall(SYS_pidfd_open, p->pid, 0)};
	if (p->death.fd < 0)
		return errno == ESRCH ? -ESRCH : 0; /* of another pid namespace: its sockets tell */
	return loop_add(&p->death, EPOLLIN);
}

static void process_free(struct process *p)
{
	if (p->table)
		munmap((void *)p->table, PUB_SIZE);
	if (p->death.fd >= 0)
		close(p->death.fd);
	if (p->events.fd >= 0)
		close(p->events.fd);
	if (p->table_fd >= 0)
		close(p->table_fd);
	if (p->doorbell_fd >= 0)
		close(p->doorbell_fd);
	numbers_destroy(&p->qpns);
	numbers_destroy(&p->keys);
	free(p->key_tags);
	free(p);
}

static struct process *process_new(struct conn *conn)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->pid = conn->pid;
	p->uid = conn->uid;
	p->conn = conn;
	p->table_fd = p->doorbell_fd = p->events.fd = p->death.fd = -1;
	list_init(&p->pending);
	list_init(&p->peers);
	list_init(&p->contexts);
	numbers_init(&p->qpns, 1, LIMIT_QPS_PER_SLOT, LIMIT_QPS_PER_SLOT / 4);
	numbers_init(&p->keys, 1, LIMIT_MRS_PER_SLOT, 64);
	read_comm(p);
	return p;
}

int process_attach(struct conn *conn, int table_fd, int doorbell_fd, int *event_fd,
		   struct proto_attach_resp *resp)
{
	int pair[2], err;
	const struct pub *table = table_map(table_fd);
	struct process *p = table ? process_new(conn) : NULL;

	if (!p) {
		if (table)
			munmap((void *)table, PUB_SIZE);
		return table ? -ENOMEM : -EINVAL;
	}
	p->table = table;
	err = numbers_take(&server.slot_numbers, &p->slot);
	if (err) {
		log_warn("no free slot for process %d: %u processes are attached", p->pid,
			 LIMIT_SLOTS - 1);
		process_free(p);
		return -EUSERS;
	}
	if (getrandom(&p->cookie, sizeof(p->cookie), 0) != sizeof(p->cookie) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
		err = -errno;
		goto out_slot;
	}
	p->events = (struct source){.ready = on_event_socket, .fd = pair[0]};
	err = loop_add(&p->events, EPOLLRDHUP);
	if (!err)
		err = watch_death(p);
	if (err) {
		loop_remove(&p->events);
		close(pair[1]);
		goto out_slot;
	}
	p->table_fd = table_fd;
	p->doorbell_fd = doorbell_fd;
	list_add_tail(&server.processes, &p->node);
	server.slots[p->slot] = p;
	conn->process = p;
	conn->is_process = true;
	*event_fd = pair[1];
	*resp = (struct proto_attach_resp){.cookie = p->cookie, .slot = p->slot};
	return 0;
out_slot:
	numbers_give(&server.slot_numbers, p->slot);
	process_free(p);
	return err;
}

struct process *process_by_slot(uint32_t slot)
{
	return slot < LIMIT_SLOTS ? server.slots[slot] : NULL;
}

struct process *process_by_cookie(uint64_t cookie, uid_t uid)
{
	list_for_each(node, &server.processes) {
		struct process *p = container_of(node, struct process, node);

		if (p->cookie == cookie && p->uid == uid)
			return p;
	}
	return NULL;
}

void process_end(struct process *p)
{
	log_debug("process %d (%s) at slot %u has ended", p->pid, p->comm, p->slot);
	link_end_all(p);
	while (!list_empty(&p->contexts))
		conn_close(container_of(p->contexts.next, struct conn, of_process));
	struct conn *conn = p->conn;

	conn->process = NULL;
	conn_close(conn);
	loop_remove(&p->events);
	if (p->death.fd >= 0)
		loop_remove(&p->death);
	while (!list_empty(&p->pending)) {
		struct pending *e = container_of(list_pop(&p->pending), struct pending, node);

		for (unsigned int i = 0; i < e->fd_count; i++)
			close(e->fds[i]);
		free(e);
	}
	list_del(&p->node);
	server.slots[p->slot] = NULL;
	numbers_give(&server.slot_numbers, p->slot);
	process_free(p);
}

/* ------------------------------------------------------------------ events */

static void flush_pending(struct process *p)
{
	while (!list_empty(&p->pending)) {
		struct pending *e = container_of(p->pending.next, struct pending, node);

		if (packet_send(p->events.fd, &e->event, sizeof(e->event), e->fds, e->fd_count,
				MSG_DONTWAIT) == -EAGAIN)
			return;
		list_del(&e->node);
		p->pending_count--;
		for (unsigned int i = 0; i < e->fd_count; i++)
			close(e->fds[i]);
		free(e);
	}
	loop_change(&p->events, EPOLLRDHUP);
}

static int queue_event(struct process *p, const struct proto_event *event, const int *fds,
		       unsigned int fd_count)
{
	struct pending *e = p->pending_count < PENDING_MAX ? calloc(1, sizeof(*e)) : NULL;

	if (!e)
		return -ENOBUFS;
	e->event = *event;
	for (unsigned int i = 0; i < fd_count; i++) {
		e->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
		if (e->fds[i] < 0) {
			while (i > 0)
				close(e->fds[--i]);
			free(e);
			return -EMFILE;
		}
	}
	e->fd_count = fd_count;
	list_add_tail(&p->pending, &e->node);
	p->pending_count++;
	return loop_change(&p->events, EPOLLRDHUP | EPOLLOUT);
}

/* Never blocks: what doesn't fit waits until the process reads. */
int process_send(struct process *p, const struct proto_event *event, const int *fds,
		 unsigned int fd_count)
{
	if (list_empty(&p->pending)) {
		int err = packet_send(p->events.fd, event, sizeof(*event), fds, fd_count,
				      MSG_DONTWAIT);

		if (err != -EAGAIN)
			return err;
	}
	return queue_event(p, event, fds, fd_count);
}
