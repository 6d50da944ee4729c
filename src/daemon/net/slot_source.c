/* SPDX-License-Identifier: BSD-2-Clause */
/* See slot_source.h. */
#include "daemon/net/slot_source.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "daemon/core/closer.h"
#include "daemon/core/server.h"
#include "daemon/net/mcast.h"
#include "daemon/net/slot_socket.h"

enum { SOURCE_KEPT_MS = 2000 };

static int source_option(int fd, int level, int name)
{
	socklen_t size = sizeof(int);
	int value;

	return getsockopt(fd, level, name, &value, &size) < 0 ? -1 : value;
}

static bool host_lacks_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

/* Whether a socket of the other family, or at another interface, can't have the port beside it. */
static bool source_is_everywhere(int fd, bool ipv6)
{
	return source_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX) == 0 &&
	       (ipv6 ? source_option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 0 : host_lacks_ipv6());
}

int slot_source_port(int fd)
{
	bool ipv6, anywhere = false;

	if (!slot_socket_is_udp(fd, &ipv6) || !source_is_everywhere(fd, ipv6))
		return -EINVAL;
	int port = slot_socket_port(fd, ipv6, &anywhere);

	return anywhere && port ? port : -EINVAL;
}

/* ------------------------------------------------------------------ after a process's end */

static struct kept_source *oldest_source(struct slot_sources *sources)
{
	return &sources->kept[sources->first];
}

static void give_up_oldest(struct server *server)
{
	struct slot_sources *sources = &server->sources;
	struct kept_source *kept = oldest_source(sources);

	/* First nothing from the port is believed, then others may have it. */
	if (!server->slots.process[kept->slot] &&
	    mcast_source_port_of(server, kept->slot) == kept->port)
		mcast_source_port(server, kept->slot, 0);
	closer_close(kept->uid, &kept->fd, 1);
	sources->first = (sources->first + 1) % SOURCES_KEPT;
	sources->count--;
}

static void sources_expire(struct timer *timer)
{
	struct server *server = container_of(timer, struct server, sources.timer);
	struct slot_sources *sources = &server->sources;
	uint64_t now = now_ms();

	while (sources->count && oldest_source(sources)->until_ms <= now)
		give_up_oldest(server);
	if (sources->count)
		timer_set(&server->loop, timer, oldest_source(sources)->until_ms - now);
}

void slot_sources_init(struct server *server)
{
	server->sources.first = server->sources.count = 0;
	timer_init(&server->sources.timer, sources_expire);
}

void slot_sources_close(struct server *server)
{
	timer_cancel(&server->sources.timer);
	while (server->sources.count)
		give_up_oldest(server);
}

void slot_source_keep(struct server *server, uint32_t slot, uid_t uid, int fd)
{
	struct slot_sources *sources = &server->sources;

	if (sources->count == SOURCES_KEPT)
		give_up_oldest(server);
	sources->kept[(sources->first + sources->count++) % SOURCES_KEPT] =
		(struct kept_source){.fd = fd,
				     .uid = uid,
				     .slot = slot,
				     .port = mcast_source_port_of(server, slot),
				     .until_ms = now_ms() + SOURCE_KEPT_MS};
	if (sources->count == 1)
		timer_set(&server->loop, &sources->timer, SOURCE_KEPT_MS);
}
