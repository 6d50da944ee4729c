/* SPDX-License-Identifier: BSD-2-Clause */
/* See neighbour.h. Owns the netlink socket of neighbour events while there are questions. */
#include "daemon/net/neighbour.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DISCARD_PORT = 9, ANSWER_BYTES = 4096 };

/* The link address is known, or isn't needed. */
enum { NUD_KNOWN = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY };

/* ------------------------------------------------------------------ addresses */

static size_t bits_size(const union neighbour_address *a)
{
	return a->any.sa_family == AF_INET ? 4 : 16;
}

static const void *neighbour_bits(const union neighbour_address *a)
{
	return a->any.sa_family == AF_INET ? (const void *)&a->four.sin_addr : &a->six.sin6_addr;
}

static void set_bits(union neighbour_address *a, const void *from)
{
	if (a->any.sa_family == AF_INET)
		memcpy(&a->four.sin_addr, from, 4);
	else
		memcpy(&a->six.sin6_addr, from, 16);
}

static socklen_t neighbour_address_size(const union neighbour_address *a)
{
	return a->any.sa_family == AF_INET ? sizeof(a->four) : sizeof(a->six);
}

/* ------------------------------------------------------------------ questions to the kernel */

struct query {
	struct nlmsghdr header;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
	};
	uint8_t attributes[128];
};

static void query_put(struct query *q, uint16_t type, const void *data, size_t size)
{
	struct rtattr *a = (void *)((uint8_t *)q + NLMSG_ALIGN(q->header.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(size);
	memcpy(RTA_DATA(a), data, size);
	q->header.nlmsg_len = NLMSG_ALIGN(q->header.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

/* The kernel has queued its answer when send() returns. Returns the answer's bytes, or -errno. */
static ssize_t query_ask_kernel(const struct query *q, void *answer)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	const struct nlmsghdr *header = answer;
	ssize_t n = -1;

	if (fd < 0)
		return -errno;
	if (send(fd, q, q->header.nlmsg_len, 0) >= 0)
		n = recv(fd, answer, ANSWER_BYTES, 0);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n >= 0 && !NLMSG_OK(header, n))
		return -EPROTO;
	if (n >= 0 && header->nlmsg_type == NLMSG_ERROR) {
		int err = ((const struct nlmsgerr *)NLMSG_DATA(header))->error;

		return err ? err : -EPROTO;
	}
	return n;
}

static const void *find_attribute(const struct rtattr *a, size_t left, uint16_t type, size_t size)
{
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == type && RTA_PAYLOAD(a) == size)
			return RTA_DATA(a);
	return NULL;
}

/* Finds the interface, and the address to resolve on its link. False: no address has to be
 * resolved, or it isn't known. */
static bool find_link(struct neighbour_question *question)
{
	_Alignas(NLMSG_ALIGNTO) uint8_t answer[ANSWER_BYTES] = {0};
	const union neighbour_address *to = &question->to;
	size_t size = bits_size(to);
	struct query q = {
		.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(q.route)),
			   .nlmsg_type = RTM_GETROUTE,
			   .nlmsg_flags = NLM_F_REQUEST},
		.route = {.rtm_family = (unsigned char)to->any.sa_family,
			  .rtm_dst_len = (unsigned char)(8 * size),
			  .rtm_src_len = (unsigned char)(8 * size)},
	};

	query_put(&q, RTA_DST, neighbour_bits(to), size);
	query_put(&q, RTA_SRC, neighbour_bits(&question->from), size);
	if (to->any.sa_family == AF_INET6 && to->six.sin6_scope_id)
		query_put(&q, RTA_OIF, &to->six.sin6_scope_id, sizeof(uint32_t));
	ssize_t n = query_ask_kernel(&q, answer);
	const struct nlmsghdr *header = (const void *)answer;
	const struct rtmsg *route = NLMSG_DATA(header);

	if (n < 0 || header->nlmsg_type != RTM_NEWROUTE ||
	    header->nlmsg_len < NLMSG_LENGTH(sizeof(*route)) || route->rtm_type != RTN_UNICAST)
		return false;
	size_t left = RTM_PAYLOAD(header);
	const void *ifindex = find_attribute(RTM_RTA(route), left, RTA_OIF, sizeof(uint32_t));
	const void *gateway = find_attribute(RTM_RTA(route), left, RTA_GATEWAY, size);

	/* A gateway of the other address family is in another neighbour table, which isn't
	 * searched. */
	if (!ifindex || find_attribute(RTM_RTA(route), left, RTA_VIA, sizeof(struct rtvia) + 16) ||
	    find_attribute(RTM_RTA(route), left, RTA_VIA, sizeof(struct rtvia) + 4))
		return false;
	memcpy(&question->ifindex, ifindex, sizeof(question->ifindex));
	question->link = *to;
	if (gateway)
		set_bits(&question->link, gateway);
	return true;
}

/* Interfaces without link addresses. */
static bool has_no_links(uint32_t ifindex)
{
	struct ifreq request = {0};
	int fd = if_indextoname(ifindex, request.ifr_name)
			 ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)
			 : -1;
	bool none = fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0 ||
		    request.ifr_flags & (IFF_NOARP | IFF_POINTOPOINT | IFF_LOOPBACK);

	if (fd >= 0)
		close(fd);
	return none;
}

/* Whether the link address is known now, or can't be asked for. */
static bool is_known(const struct neighbour_question *question)
{
	_Alignas(NLMSG_ALIGNTO) uint8_t answer[ANSWER_BYTES] = {0};
	struct query q = {
		.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(q.neighbour)),
			   .nlmsg_type = RTM_GETNEIGH,
			   .nlmsg_flags = NLM_F_REQUEST},
		.neighbour = {.ndm_family = (unsigned char)question->link.any.sa_family,
			      .ndm_ifindex = (int)question->ifindex},
	};

	query_put(&q, NDA_DST, neighbour_bits(&question->link), bits_size(&question->link));
	ssize_t n = query_ask_kernel(&q, answer);
	const struct nlmsghdr *header = (const void *)answer;
	const struct ndmsg *neighbour = NLMSG_DATA(header);

	if (n == -ENOENT)
		return false;
	return n < 0 || header->nlmsg_type != RTM_NEWNEIGH ||
	       header->nlmsg_len < NLMSG_LENGTH(sizeof(*neighbour)) ||
	       neighbour->ndm_state & NUD_KNOWN;
}

/* Makes the kernel resolve the link address, as any packet to the host would. */
static void neighbour_probe(const struct neighbour_question *question)
{
	union neighbour_address to = question->to, from = question->from;
	int fd = socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	if (to.any.sa_family == AF_INET) {
		to.four.sin_port = htons(DISCARD_PORT);
		from.four.sin_port = 0;
	} else {
		to.six.sin6_port = htons(DISCARD_PORT);
		from.six.sin6_port = 0;
	}
	/* Errors are ignored: a datagram that can't be sent has the same effect as no answer. */
	if (bind(fd, &from.any, neighbour_address_size(&from)) == 0)
		(void)!sendto(fd, NULL, 0, 0, &to.any, neighbour_address_size(&to));
	close(fd);
}

/* ------------------------------------------------------------------ questions to the daemon */

static void neighbours_set_timer(struct neighbours *n)
{
	uint64_t now = now_ms(), first = UINT64_MAX;

	list_for_each(node, &n->questions) {
		const struct neighbour_question *q =
			container_of(node, struct neighbour_question, node);

		first = q->until_ms < first ? q->until_ms : first;
	}
	if (first == UINT64_MAX)
		timer_cancel(&n->timer);
	else
		timer_set(n->loop, &n->timer, first > now ? first - now : 0);
}

static void stop_listening(struct neighbours *n)
{
	int fd = n->news.fd;

	if (fd < 0)
		return;
	loop_remove(n->loop, &n->news);
	close(fd);
}

static void neighbours_drop_question(struct neighbours *n, struct neighbour_question *question)
{
	list_del(&question->node);
	if (list_empty(&n->questions))
		stop_listening(n);
	neighbours_set_timer(n);
}

/* The first question for which `is` returns true; NULL: none. (An answer's callback may change the
 * list, so each search begins anew.) */
typedef bool is_one(const struct neighbour_question *question, const void *arg);

static struct neighbour_question *first_that(struct neighbours *n, is_one *is, const void *arg)
{
	list_for_each(node, &n->questions) {
		struct neighbour_question *q = container_of(node, struct neighbour_question, node);

		if (is(q, arg))
			return q;
	}
	return NULL;
}

static void answer_all(struct neighbours *n, is_one *is, const void *arg, int status)
{
	struct neighbour_question *question;

	while ((question = first_that(n, is, arg))) {
		neighbours_drop_question(n, question);
		question->answer(question, status);
	}
}

static bool is_late(const struct neighbour_question *question, const void *now)
{
	return question->until_ms <= *(const uint64_t *)now;
}

static void neighbours_on_timer(struct timer *timer)
{
	struct neighbours *n = container_of(timer, struct neighbours, timer);
	uint64_t now = now_ms();

	answer_all(n, is_late, &now, -ETIMEDOUT);
	neighbours_set_timer(n);
}

/* One neighbour in a message of the kernel. */
struct word {
	const struct ndmsg *neighbour;
	const void *address;
	size_t size;
};

static bool is_about(const struct neighbour_question *question, const void *arg)
{
	const struct word *w = arg;

	return question->link.any.sa_family == w->neighbour->ndm_family &&
	       question->ifindex == (uint32_t)w->neighbour->ndm_ifindex &&
	       !memcmp(neighbour_bits(&question->link), w->address, w->size);
}

static void take_word(struct neighbours *n, const struct nlmsghdr *header)
{
	const struct ndmsg *neighbour = NLMSG_DATA(header);
	struct word w = {.neighbour = neighbour};

	if (header->nlmsg_type != RTM_NEWNEIGH ||
	    header->nlmsg_len < NLMSG_LENGTH(sizeof(*neighbour)))
		return;
	w.size = neighbour->ndm_family == AF_INET ? 4 : 16;
	w.address = find_attribute(
		(const void *)((const uint8_t *)neighbour + NLMSG_ALIGN(sizeof(*neighbour))),
		NLMSG_PAYLOAD(header, sizeof(*neighbour)), NDA_DST, w.size);
	if (!w.address)
		return;
	if (neighbour->ndm_state & NUD_KNOWN)
		answer_all(n, is_about, &w, 0);
	else if (neighbour->ndm_state & NUD_FAILED)
		/* The kernel gave up, but the host may be coming up, and there is time left: makes
		 * it try again. */
		list_for_each(node, &n->questions) {
			struct neighbour_question *q =
				container_of(node, struct neighbour_question, node);

			if (is_about(q, &w))
				neighbour_probe(q);
		}
}

static bool is_known_now(const struct neighbour_question *question, const void *arg)
{
	(void)arg;
	return is_known(question);
}

static void on_news(struct watch *watch, uint32_t events)
{
	struct neighbours *n = container_of(watch, struct neighbours, news);
	_Alignas(NLMSG_ALIGNTO) uint8_t buffer[8192];
	ssize_t size = recv(watch->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

	(void)events;
	if (size < 0 && errno == ENOBUFS) {
		answer_all(n, is_known_now, NULL,
			   0); /* messages were lost: asks for each neighbour */
		return;
	}
	for (const struct nlmsghdr *h = (const void *)buffer; size > 0 && NLMSG_OK(h, size);
	     h = NLMSG_NEXT(h, size))
		take_word(n, h);
}

static int neighbours_open_netlink(struct neighbours *n)
{
	const struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_NEIGH};

	if (n->news.fd >= 0)
		return 0;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	int err = bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;

	if (!err)
		err = loop_add(n->loop, &n->news, fd, EPOLLIN);
	if (err)
		close(fd);
	return err;
}

void neighbours_init(struct neighbours *n, struct loop *loop)
{
	*n = (struct neighbours){.loop = loop, .news = {.fd = -1, .ready = on_news}};
	list_init(&n->questions);
	timer_init(&n->timer, neighbours_on_timer);
}

void neighbours_fini(struct neighbours *n)
{
	stop_listening(n);
	timer_cancel(&n->timer);
}

int neighbour_ask(struct neighbours *n, struct neighbour_question *question, uint32_t timeout_ms)
{
	if (!find_link(question) || has_no_links(question->ifindex))
		return 0;
	/* The socket is opened first, so that no event is missed between the query and the wait. */
	if (neighbours_open_netlink(n))
		return 0;
	list_add_tail(&n->questions, &question->node);
	question->until_ms = now_ms() + timeout_ms;
	if (is_known(question)) {
		neighbours_drop_question(n, question);
		return 0;
	}
	neighbour_probe(question);
	neighbours_set_timer(n);
	return -EINPROGRESS;
}

void neighbour_forget(struct neighbours *n, struct neighbour_question *question)
{
	if (!list_empty(&question->node))
		neighbours_drop_question(n, question);
}
