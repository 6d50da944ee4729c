/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See route.h. The kernel is asked by connecting a UDP socket, which sends nothing and doesn't
 * wait: the result shows what the kernel will do with packets from that source. The server's
 * route_cache keeps the answers.
 */
#include "daemon/net/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/server.h"
#include "daemon/net/slot_socket.h"
#include "wire/flow.h"

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static bool is_v4(const uint8_t gid[16])
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid);
}

static bool route_gid_is_loopback(const uint8_t gid[16])
{
	return is_v4(gid) ? gid[12] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)gid);
}

/* Whether the GID is the address of one host: unspecified, broadcast and group addresses, which the
 * kernel treats otherwise, are not. */
static bool is_unicast(const uint8_t gid[16])
{
	static const uint8_t none[16];

	if (is_v4(gid))
		return gid[12] && gid[12] < 224;
	return memcmp(gid, none, sizeof(none)) != 0 && gid[0] != 0xff;
}

static socklen_t address_from(const uint8_t gid[16], uint32_t ifindex, uint16_t port,
			      union address *out)
{
	if (is_v4(gid)) {
		out->four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		memcpy(&out->four.sin_addr, gid + 12, 4);
		return sizeof(out->four);
	}
	out->six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
	memcpy(&out->six.sin6_addr, gid, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&out->six.sin6_addr))
		out->six.sin6_scope_id = ifindex;
	return sizeof(out->six);
}

/* `bound`: packets must leave by the source's interface. Returns 1: reachable, 0: not; -errno: the
 * kernel can't be asked. */
static int route_ask_kernel(const struct host_address *from, const uint8_t dgid[16], bool bound)
{
	int ifindex = (int)from->ifindex;
	union address source, destination;
	socklen_t source_size = address_from(from->gid, from->ifindex, 0, &source);
	socklen_t size = address_from(dgid, from->ifindex, WIRE_PORT, &destination);
	int fd = socket(source.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	bool yes = (!bound ||
		    setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, sizeof(ifindex)) == 0) &&
		   bind(fd, &source.any, source_size) == 0 &&
		   connect(fd, &destination.any, size) == 0;

	close(fd);
	return yes;
}

static bool has_route(struct route_cache *cache, const struct host_address *from,
		      const uint8_t dgid[16], bool bound)
{
	struct route_question question = {.ifindex = from->ifindex, .bound = bound};
	bool yes;

	if (is_v4(from->gid) != is_v4(dgid) || !is_unicast(dgid) ||
	    (route_gid_is_loopback(from->gid) && !route_gid_is_loopback(dgid)))
		return false;
	memcpy(question.from, from->gid, sizeof(question.from));
	memcpy(question.to, dgid, sizeof(question.to));
	if (route_cache_find(cache, &question, &yes))
		return yes;
	int answer = route_ask_kernel(from, dgid, bound);

	if (answer >= 0)
		route_cache_keep(cache, &question, answer);
	return answer > 0;
}

bool route_is_local(const struct server *server, const uint8_t gid[16])
{
	return route_gid_is_loopback(gid) || devices_have(&server->devices, gid);
}

int device_find_route(const struct device *device, uint32_t port, uint32_t sgid_index,
		      const uint8_t dgid[16], struct proto_route_resp *resp)
{
	const struct host_address *from =
		port == DEVICE_PORT ? gids_get(&device->gids, sgid_index) : NULL;

	if (!from)
		return -EINVAL;
	*resp = (struct proto_route_resp){.ifindex = from->ifindex};
	memcpy(resp->sgid, from->gid, sizeof(resp->sgid));
	if (flow_is_multicast(dgid)) {
		bool same = is_v4(from->gid) == is_v4(dgid);

		resp->flags = PROTO_ROUTE_GROUP |
			      (device->server->wire.count && same ? PROTO_ROUTE_WIRE : 0);
		return 0;
	}
	bool local = route_is_local(device->server, dgid);

	if (local)
		resp->flags |= PROTO_ROUTE_LOCAL;
	/* The kernel sends packets for this host over the loopback interface. */
	if (device->server->wire.count &&
	    has_route(&device->server->routes, from, dgid, device->bound && !local))
		resp->flags |= PROTO_ROUTE_WIRE;
	return 0;
}

int command_route(struct request *request, void *response)
{
	const struct proto_route *body = request->body;

	return device_find_route(request->conn->device, body->port, body->sgid_index, body->dgid,
				 response);
}
