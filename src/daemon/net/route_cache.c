/* SPDX-License-Identifier: BSD-2-Clause */
/* See route_cache.h. */
#include "daemon/net/route_cache.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static int route_open_netlink(void)
{
	static const int groups[] = {RTNLGRP_LINK,	 RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
				     RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,  RTNLGRP_IPV4_RULE,
				     RTNLGRP_IPV6_RULE,	 RTNLGRP_NEXTHOP};
	const struct sockaddr_nl address = {.nl_family = AF_NETLINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	int err = bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;

	for (size_t i = 0; !err && i < sizeof(groups) / sizeof(groups[0]); i++)
		if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &groups[i],
			       sizeof(groups[i])) < 0)
			err = -errno;
	if (err)
		close(fd);
	return err ? err : fd;
}

void route_cache_open(struct route_cache *cache)
{
	*cache = (struct route_cache){.fd = route_open_netlink(), .epoch = 1};
	if (cache->fd < 0)
		log_info("the kernel's news of routes aren't to be had (%s): it is asked for each",
			 strerror(-cache->fd));
}

void route_cache_close(struct route_cache *cache)
{
	if (cache->fd >= 0)
		close(cache->fd);
	cache->fd = -1;
}

static void take_news(struct route_cache *cache)
{
	char byte;
	bool changed = false;

	while (recv(cache->fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0 ||
	       errno == EINTR || errno == ENOBUFS)
		changed = true;
	if (changed && !++cache->epoch) {
		memset(cache->answer, 0, sizeof(cache->answer));
		cache->epoch = 1;
	}
}

static struct route_answer *route_cache_place(struct route_cache *cache,
					      const struct route_question *question)
{
	const uint8_t *byte = (const uint8_t *)question;
	uint32_t h = 0x811c9dc5; /* FNV-1a */

	for (size_t i = 0; i < sizeof(*question); i++)
		h = (h ^ byte[i]) * 0x01000193;
	return &cache->answer[(h ^ h >> 16) % ROUTE_CACHE_PLACES];
}

bool route_cache_find(struct route_cache *cache, const struct route_question *question, bool *yes)
{
	if (cache->fd < 0)
		return false;
	take_news(cache);
	const struct route_answer *answer = route_cache_place(cache, question);

	if (answer->epoch != cache->epoch ||
	    memcmp(&answer->question, question, sizeof(*question)) != 0)
		return false;
	*yes = answer->yes;
	return true;
}

void route_cache_keep(struct route_cache *cache, const struct route_question *question, bool yes)
{
	if (cache->fd >= 0)
		*route_cache_place(cache, question) = (struct route_answer){
			.question = *question, .epoch = cache->epoch, .yes = yes};
}
