/* SPDX-License-Identifier: BSD-2-Clause */
/* See mcast_net.h. Owns the memberships and the daemon's own member sockets. */
#include "daemon/net/mcast_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/conn.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/net/udp_group.h"
#include "daemon/objects/context.h"
#include "wire/ip.h"

/* Member sockets may use one FILES_SHARE-th of the descriptors. */
enum { FILES_SHARE = 8 };

static struct process *attachment_owner(const struct attachment *attachment)
{
	return attachment->qp->object.context->process;
}

/* ------------------------------------------------------------------ the daemon's own sockets */

static bool membership_may_add(uint32_t count)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) < 0 || count <= limit.rlim_cur / FILES_SHARE;
}

/* Makes the socket at this place a member; makes the socket first if there is none. */
static int try_place(struct member_socket *s, const struct mcast_group *group, uint32_t ifindex)
{
	if (!s->groups) {
		bool ipv6 = !ip_is_v4(group->gid);
		int fd = udp_group_socket(ipv6);

		if (fd < 0)
			return fd;
		*s = (struct member_socket){.fd = fd, .ipv6 = ipv6};
	}
	int err = udp_group_join(s->fd, group->gid, ifindex);

	if (!err)
		s->groups++;
	else if (!s->groups)
		close(s->fd);
	return err;
}

/* Makes one of the sockets a member. Returns its place, or -errno. */
static int member_begin(struct mcast *mcast, const struct mcast_group *group, uint32_t ifindex)
{
	bool ipv6 = !ip_is_v4(group->gid);
	int empty = -1;
	uint32_t count = 0;

	for (int i = 0; i < MEMBER_SOCKETS; i++) {
		struct member_socket *s = &mcast->members[i];

		count += s->groups != 0;
		if (!s->groups && empty < 0)
			empty = i;
		if (!s->groups || s->full || s->ipv6 != ipv6)
			continue;
		int err = try_place(s, group, ifindex);

		if (err != -ENOBUFS)
			return err ? err : i;
		s->full = true;
	}
	if (empty < 0 || !membership_may_add(count + 1))
		return -EMFILE;
	int err = try_place(&mcast->members[empty], group, ifindex);

	return err ? err : empty;
}

static void member_end(struct mcast *mcast, const struct mcast_group *group,
		       const struct membership *m)
{
	struct member_socket *s = &mcast->members[m->socket];

	udp_group_leave(s->fd, group->gid, m->ifindex);
	s->full = false;
	if (!--s->groups)
		close(s->fd);
}

/* ------------------------------------------------------------------ the slots' sockets */

/* -1: the slot has no socket. */
static int slot_socket(const struct process *process)
{
	const struct wire *wire = &process->server->wire;

	return process->slot < wire->count ? wire->fd[process->slot] : -1;
}

static void slot_join(const struct mcast_group *group, const struct membership *m,
		      const struct process *process)
{
	int fd = slot_socket(process);
	int err = fd < 0 ? 0 : udp_group_join(fd, group->gid, m->ifindex);

	if (err != -ENOBUFS)
		return;
	log_debug("slot %u is a member of as many groups as it can: it hears all", process->slot);
	udp_group_hear_all(fd, true);
}

/* Removes the membership, unless the daemon is leaving: then the sockets of processes that live on
 * stay as they are. */
static void slot_leave(const struct mcast_group *group, const struct membership *m,
		       const struct process *process)
{
	int fd = process->server->wire.leaving ? -1 : slot_socket(process);

	if (fd >= 0)
		udp_group_leave(fd, group->gid, m->ifindex);
}

void mcast_net_enter(struct mcast_group *group, const struct process *process)
{
	list_for_each(node, &group->listening) {
		const struct membership *m = container_of(node, struct membership, node);

		if (m->socket >= 0)
			slot_join(group, m, process);
	}
}

void mcast_net_leave(struct mcast_group *group, const struct process *process)
{
	list_for_each(node, &group->listening)
		slot_leave(group, container_of(node, struct membership, node), process);
}

/* ------------------------------------------------------------------ listening */

static void say_deaf(const struct mcast_group *group, const struct membership *m, int err)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, group->gid, text, sizeof(text));
	log_info("interface %u can't listen for group %s: %s", m->ifindex, text, strerror(-err));
}

static int membership_begin(struct mcast_group *group, struct membership *m)
{
	if (m->socket >= 0)
		return 0;
	int place = member_begin(group->mcast, group, m->ifindex);

	if (place < 0) {
		say_deaf(group, m, place);
		return place;
	}
	m->socket = place;
	list_for_each(node, &group->attachments)
		slot_join(group, m,
			  attachment_owner(container_of(node, struct attachment, by_group)));
	return 0;
}

static void membership_end(struct mcast_group *group, struct membership *m)
{
	list_for_each(node, &group->attachments)
		slot_leave(group, m,
			   attachment_owner(container_of(node, struct attachment, by_group)));
	if (m->socket >= 0)
		member_end(group->mcast, group, m);
	list_del(&m->node);
	free(m);
}

static struct membership *membership_find(struct mcast_group *group, uint32_t ifindex)
{
	list_for_each(node, &group->listening) {
		struct membership *m = container_of(node, struct membership, node);

		if (m->ifindex == ifindex)
			return m;
	}
	struct membership *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->ifindex = ifindex;
	m->socket = -1;
	list_add_tail(&group->listening, &m->node);
	return m;
}

static bool is_scarcity(int err)
{
	return err == -ENOMEM || err == -ENOBUFS || err == -EMFILE || err == -ENFILE;
}

/* False: it doesn't listen, because descriptors or memory are scarce. */
static bool membership_want(struct mcast_group *group, uint32_t ifindex)
{
	struct membership *m = membership_find(group, ifindex);

	if (m)
		m->wanted = !is_scarcity(membership_begin(group, m));
	return m && m->wanted;
}

/* The device's interface to which the host's routes for the group lead, or its first. */
static uint32_t interface_for(const struct mcast_group *group, const struct device *device)
{
	const struct host_address *entry = NULL;
	uint8_t source[16];

	if (udp_group_source(group->gid, source) == 0)
		entry = gids_find(&device->gids, source);
	return entry ? entry->ifindex : device->ifindex;
}

static bool want_all(struct mcast_group *group)
{
	const struct device *last = NULL;
	bool all = true;

	list_for_each(node, &group->joins)
		all &= membership_want(group, container_of(node, struct mcast_join, node)->ifindex);
	list_for_each(node, &group->attachments) {
		const struct attachment *a = container_of(node, struct attachment, by_group);
		const struct device *device = a->qp->object.context->conn->device;

		if (!a->alone || device == last)
			continue;
		all &= membership_want(group, interface_for(group, device));
		last = device;
	}
	return all;
}

int mcast_net_update(struct mcast_group *group)
{
	/* Without the wire no packets come from the network. */
	if (!group->mcast->server->wire.count)
		return 0;
	list_for_each(node, &group->listening)
		container_of(node, struct membership, node)->wanted = false;
	bool all = want_all(group);

	list_for_each(node, &group->listening) {
		struct membership *m = container_of(node, struct membership, node);

		if (!m->wanted)
			membership_end(group, m);
	}
	return all ? 0 : -ENOMEM;
}

bool mcast_net_listens(const struct mcast_group *group, uint32_t ifindex)
{
	list_for_each(node, &group->listening) {
		const struct membership *m = container_of(node, struct membership, node);

		if (m->ifindex == ifindex)
			return m->socket >= 0;
	}
	return !group->mcast->server->wire.count;
}

void mcast_net_end(struct mcast_group *group)
{
	list_for_each(node, &group->listening)
		membership_end(group, container_of(node, struct membership, node));
}

void mcast_listening(const struct mcast_group *group, char *text, size_t size)
{
	char name[IF_NAMESIZE];
	size_t length = 0;

	snprintf(text, size, "-");
	list_for_each(node, &group->listening) {
		const struct membership *m = container_of(node, struct membership, node);

		if (m->socket < 0 || !if_indextoname(m->ifindex, name))
			continue;
		int n = snprintf(text + length, size - length, "%s%s", length ? " " : "", name);

		length += (size_t)n;
		if (length >= size)
			return;
	}
}
