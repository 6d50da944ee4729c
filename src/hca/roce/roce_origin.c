/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where packets with a source address of this host come from. Every program of the host can send
 * such packets, so a process believes them only if their source port is the one that the daemon
 * publishes for the slot of the QPN that they claim to come from (struct groups.source_port). Only
 * processes that send to their own host by UDP (VERBENA_CARRIER=wire) have such a port; the socket
 * of any other process doesn't take what this host sends (PROTO_ATTACH_LOOPS), and what comes all
 * the same is from another host that uses this one's address.
 *
 * The source of a packet from another host can't be checked (docs/trust.md).
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sys.h"
#include "hca/exec/mcast.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"

/* ------------------------------------------------------------------ this process's port */

/* Binds a socket to any free port, at any address. Returns a descriptor or -errno. */
static int source_open(int family, uint16_t *port)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} name = {.any.sa_family = (sa_family_t)family};
	socklen_t size = family == AF_INET6 ? sizeof(name.six) : sizeof(name.four);
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);
	int off = 0, on = 1, err = 0;

	if (fd < 0)
		return -errno;
	if ((family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0 ||
	    bind(fd, &name.any, size) < 0 || getsockname(fd, &name.any, &size) < 0)
		err = -errno;
	if (err) {
		sys_close(fd);
		return err;
	}
	*port = ntohs(family == AF_INET6 ? name.six.sin6_port : name.four.sin_port);
	return fd;
}

int roce_origin_name(struct roce *roce, struct daemon_conn *conn)
{
	int err = roce->source_fd < 0 ? 0 : daemon_source(conn, roce->source_fd);

	if (err)
		log_warn("processes of this host won't take this one's packets: %s",
			 strerror(-err));
	return err;
}

void roce_origin_make(struct roce *roce)
{
	uint16_t port = 0;

	roce->source_fd = -1;
	if (!roce->hca->roce_forced)
		return;
	int fd = source_open(AF_INET6, &port);

	if (fd < 0)
		fd = source_open(AF_INET, &port);
	if (fd < 0) {
		log_warn("no UDP port to send to this host from: %s", strerror(-fd));
		return;
	}
	roce->source_fd = fd;
	roce->tx.near_port = port;
	roce_origin_name(roce, &roce->hca->conn);
}

void roce_origin_unmake(struct roce *roce)
{
	if (roce->source_fd >= 0)
		sys_close(roce->source_fd);
	roce->source_fd = -1;
}

/* ------------------------------------------------------------------ the others' */

bool roce_is_near(struct roce *roce, const uint8_t gid[16])
{
	uint64_t addresses = mcast_addresses(roce->hca);

	if (likely(roce->stranger.addresses == addresses &&
		   !memcmp(roce->stranger.gid, gid, sizeof(roce->stranger.gid))))
		return false;
	if (groups_is_loopback(gid) || (addresses && mcast_is_own(roce->hca, gid, &roce->own)))
		return true;
	roce->stranger.addresses = addresses;
	memcpy(roce->stranger.gid, gid, sizeof(roce->stranger.gid));
	return false;
}

/* The port of a slot that a former daemon has published counts until its processes are back. */
static uint16_t source_port_of(const struct hca *hca, uint32_t slot)
{
	const struct mcast_tables tables = mcast_tables(hca);
	uint16_t port = 0;

	if (tables.table)
		port = atomic_load_explicit(&tables.table->source_port[slot], memory_order_relaxed);
	if (!port && tables.old)
		port = atomic_load_explicit(&tables.old->source_port[slot], memory_order_relaxed);
	return port;
}

bool roce_is_some_slots_port(const struct roce *roce, uint16_t port)
{
	for (uint32_t slot = 0; port && slot < LIMIT_SLOTS; slot++)
		if (source_port_of(roce->hca, slot) == port)
			return true;
	return false;
}

bool roce_is_slots_port(const struct roce *roce, uint32_t qpn, uint16_t port)
{
	return port && port == source_port_of(roce->hca, qpn >> LIMIT_QP_BITS);
}
