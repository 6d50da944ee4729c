/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket that bursts are sent by. See socket.h. */
#include "net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/sys.h"
#include "wire/flow.h"
#include "wire/ip.h"

enum { SEND_BUFFER = 4 << 20 }; /* the system may allow less */

/* ------------------------------------------------------------------ opening */

static int sender_set_option(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

static int socket_options(int fd, bool ipv4, unsigned int flags)
{
	int echo = !!(flags & NET_SOCKET_ECHO);
	/* No fragmentation: RoCE forbids it, and only with this option is the identification 0. */
	int err = ipv4 ? sender_set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
		       : sender_set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);

	if (!err && !ipv4)
		err = sender_set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (!err)
		err = ipv4 ? sender_set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, echo)
			   : sender_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, echo);
	if (!err && flags & NET_SOCKET_SHARED)
		err = sender_set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (err)
		return -errno;
	sender_set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER);
	if (sender_set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER) < 0 && errno != EPERM)
		log_debug("SO_SNDBUFFORCE: %s", strerror(errno));
	sender_set_option(fd, SOL_SOCKET, SO_RCVBUF, 0); /* nothing is received here */
	return 0;
}

static int bind_socket_to(int fd, const uint8_t source[16], uint16_t port, int family)
{
	struct sockaddr_storage at;
	socklen_t size = flow_address(source, port, 0, family, &at);

	return bind(fd, (struct sockaddr *)&at, size) < 0 ? -errno : 0;
}

/* Binds to the port, or to any port if that is taken and not `fixed`. */
static int bind_near(int fd, const uint8_t source[16], uint16_t port, bool fixed, int family)
{
	int err = bind_socket_to(fd, source, port, family);

	return err == -EADDRINUSE && port && !fixed ? bind_socket_to(fd, source, 0, family) : err;
}

/* Whether sends from this address, to this one, have no interface to name. */
static bool is_plain(const uint8_t source[16], const uint8_t destination[16])
{
	return !flow_is_link_local(source) && !flow_is_link_local(destination) &&
	       !flow_is_multicast(destination);
}

/* Binds to the path's source address where sends needn't name an interface, else to none. */
static int socket_bind(int fd, struct net_socket *s, const struct net_path *path, uint16_t port,
		       bool fixed)
{
	static const uint8_t any[2][16] = {{0}, {[10] = 0xff, 0xff}};
	int family = s->ipv4 ? AF_INET : AF_INET6, err = -EADDRNOTAVAIL;

	memset(s->source, 0, sizeof(s->source));
	if (is_plain(path->ip.source, path->ip.destination))
		err = bind_near(fd, path->ip.source, port, fixed, family);
	if (!err)
		memcpy(s->source, path->ip.source, sizeof(s->source));
	else /* also an address that isn't the host's yet, or any more */
		err = bind_near(fd, any[s->ipv4], port, fixed, family);
	return err;
}

static int sender_bound_port(int fd, uint16_t *port)
{
	struct sockaddr_storage at = {0};
	socklen_t size = sizeof(at);
	uint8_t gid[16];

	if (getsockname(fd, (struct sockaddr *)&at, &size) < 0)
		return -errno;
	if (!flow_gid((struct sockaddr *)&at, gid, port))
		return -EAFNOSUPPORT;
	return 0;
}

/* QPs tend to have the same hop limit. Groups have a limit of their own. */
static uint8_t usual_hop_limit(int fd, bool ipv4, uint8_t wanted)
{
	int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;

	if (wanted &&
	    sender_set_option(fd, level, ipv4 ? IP_TTL : IPV6_UNICAST_HOPS, wanted) == 0 &&
	    sender_set_option(fd, level, ipv4 ? IP_MULTICAST_TTL : IPV6_MULTICAST_HOPS, wanted) ==
		    0)
		return wanted;
	return 0;
}

int net_socket_open(struct net_socket *s, const struct net_path *path, uint16_t port,
		    unsigned int flags)
{
	bool ipv4 = ip_is_v4(path->ip.source);
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	*s = (struct net_socket){.fd = -1, .ipv4 = ipv4};
	int err = socket_options(fd, ipv4, flags);

	if (!err)
		err = socket_bind(fd, s, path, port, flags & NET_SOCKET_SHARED);
	if (!err)
		err = sender_bound_port(fd, &s->port);
	if (err) {
		sys_close(fd);
		return err;
	}
	s->hop_limit = usual_hop_limit(fd, ipv4, path->hop_limit);
	s->fd = fd;
	return 0;
}

void net_socket_close(struct net_socket *s)
{
	if (s->fd >= 0)
		sys_close(s->fd);
	s->fd = -1;
}

/* ------------------------------------------------------------------ what a send names */

/* The control messages of a send. */
struct control {
	_Alignas(struct cmsghdr)
		uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 3 * CMSG_SPACE(sizeof(int))];
	struct msghdr message;
};

static void *control_add(struct control *c, int level, int type, size_t size)
{
	struct cmsghdr *at = (struct cmsghdr *)(c->bytes + c->message.msg_controllen);

	at->cmsg_level = level;
	at->cmsg_type = type;
	at->cmsg_len = CMSG_LEN(size);
	c->message.msg_controllen += CMSG_SPACE(size);
	return CMSG_DATA(at);
}

static void control_ipv4(struct control *c, const struct net_path *path)
{
	struct in_pktinfo from = {0};

	memcpy(&from.ipi_spec_dst, path->ip.source + 12, 4);
	if (flow_is_multicast(path->ip.destination))
		from.ipi_ifindex = (int)path->ifindex;
	memcpy(control_add(c, IPPROTO_IP, IP_PKTINFO, sizeof(from)), &from, sizeof(from));
}

static void control_ipv6(struct control *c, const struct net_path *path)
{
	struct in6_pktinfo from = {0};

	memcpy(&from.ipi6_addr, path->ip.source, 16);
	if (flow_is_link_local(path->ip.destination) || flow_is_multicast(path->ip.destination))
		from.ipi6_ifindex = path->ifindex;
	memcpy(control_add(c, IPPROTO_IPV6, IPV6_PKTINFO, sizeof(from)), &from, sizeof(from));
}

/* Names the source address, and the interface, unless the socket's address says it all. */
static void control_source(struct control *c, const struct net_socket *s,
			   const struct net_path *path)
{
	if (likely(!memcmp(s->source, path->ip.source, sizeof(s->source))) &&
	    likely(is_plain(path->ip.source, path->ip.destination)))
		return;
	if (s->ipv4)
		control_ipv4(c, path);
	else
		control_ipv6(c, path);
}

/* The hop limit that a send must name; 0: the socket's is right. */
static uint8_t named_hop_limit(const struct net_socket *s, uint8_t wanted)
{
	if (!wanted && !s->hop_limit)
		return 0; /* the host's default, whatever it is */
	uint8_t hop_limit = ip_hop_limit(wanted);

	return hop_limit == s->hop_limit ? 0 : hop_limit;
}

static void control_attributes(struct control *c, const struct net_socket *s,
			       const struct net_path *path)
{
	uint8_t hop_limit = named_hop_limit(s, path->hop_limit);
	int level = s->ipv4 ? IPPROTO_IP : IPPROTO_IPV6;

	if (unlikely(path->traffic_class))
		*(int *)control_add(c, level, s->ipv4 ? IP_TOS : IPV6_TCLASS, sizeof(int)) =
			path->traffic_class;
	if (unlikely(hop_limit))
		*(int *)control_add(c, level, s->ipv4 ? IP_TTL : IPV6_HOPLIMIT, sizeof(int)) =
			hop_limit;
}

/* ------------------------------------------------------------------ segments */

static bool socket_cuts_right(const struct net_socket *s, uint32_t size, uint32_t segment)
{
	return segment ? s->segment == segment : size <= s->segment || !s->segment;
}

static void socket_set_segment(struct net_socket *s, uint16_t segment)
{
	if (sender_set_option(s->fd, SOL_UDP, UDP_SEGMENT, segment) == 0)
		s->segment = segment;
	s->alike = 0;
}

/* A send had to name `segment`. */
static void socket_note_segment(struct net_socket *s, uint16_t segment)
{
	s->alike = segment == s->named ? s->alike + 1 : 1;
	s->named = segment;
	if (unlikely(s->alike == NET_SOCKET_ALIKE) && !s->no_segment)
		socket_set_segment(s, segment);
}

bool net_socket_cannot_cut(int err)
{
	return err == EIO || err == EINVAL || err == EMSGSIZE || err == EOPNOTSUPP;
}

/* ------------------------------------------------------------------ sending */

/* A message that names its destination only needs no struct msghdr, which the kernel would copy and
 * check: 50 to 100 ns. */
static ssize_t socket_send_message(int fd, const struct msghdr *m)
{
	if (likely(!m->msg_controllen))
		return sys_sendto(fd, m->msg_iov->iov_base, m->msg_iov->iov_len, 0, m->msg_name,
				  m->msg_namelen);
	return sys_sendmsg(fd, m, 0);
}

static int socket_send(struct net_socket *s, const struct net_path *path, uint8_t *at,
		       uint32_t size, uint32_t segment)
{
	struct sockaddr_storage to;
	struct iovec bytes = {at, size};
	struct control c = {.message = {.msg_name = &to, .msg_iov = &bytes, .msg_iovlen = 1}};
	bool right = socket_cuts_right(s, size, segment);

	c.message.msg_control = c.bytes;
	c.message.msg_namelen = flow_address(path->ip.destination, path->ip.destination_port,
					     path->ifindex, s->ipv4 ? AF_INET : AF_INET6, &to);
	if (unlikely(!c.message.msg_namelen))
		return EHOSTUNREACH;
	control_source(&c, s, path);
	control_attributes(&c, s, path);
	if (!right)
		*(uint16_t *)control_add(&c, SOL_UDP, UDP_SEGMENT, sizeof(uint16_t)) =
			(uint16_t)segment;
	if (unlikely(socket_send_message(s->fd, &c.message) < 0))
		return errno;
	if (!right)
		socket_note_segment(s, (uint16_t)segment);
	return 0;
}

int net_socket_send(struct net_socket *s, const struct net_path *path, uint8_t *at, uint32_t size,
		    uint32_t segment)
{
	int err = socket_send(s, path, at, size, segment);

	if (likely(!err) || segment || !s->segment || !net_socket_cannot_cut(err))
		return err;
	/* With a segment, some kernels refuse even what needn't be cut where the path's device
	 * computes no checksums; a burst on another path has set it. */
	socket_set_segment(s, 0);
	s->no_segment = true;
	return socket_send(s, path, at, size, segment);
}
