/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of the family AF_IB on Ethernet, where Linux has them as far as this: a listener that
 * is bound to no GID gets the connections of clients with IP addresses, and sees their GIDs, and
 * the IP header before the private data; whatever needs a device that is found by a GID fails with
 * ENODEV. Server and client are two identifiers of this process.
 *
 * usage: cm_gids ADDRESS
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

enum { IP_HEADER = 36 }; /* of the RDMA CM's IP addressing, before the program's private data */

static const char words[] = "for the server";
static struct rdma_event_channel *channel;

static struct rdma_cm_id *id_make(void)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	return id;
}

static struct sockaddr_ib gid_address(const union ibv_gid *gid)
{
	struct sockaddr_ib ib = {
		.sib_family = AF_IB,
		.sib_sid = htobe64((uint64_t)RDMA_PS_TCP << 16),
		.sib_sid_mask = htobe64(~(uint64_t)UINT16_MAX),
	};

	if (gid)
		memcpy(&ib.sib_addr, gid, sizeof(*gid));
	return ib;
}

static struct rdma_cm_event *next_event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(channel, &event));
	MUST(event->event == type && !event->status);
	return event;
}

static void await_event(enum rdma_cm_event_type type)
{
	MUST(!rdma_ack_cm_event(next_event(type)));
}

/* ------------------------------------------------------------------ a connection */

static struct rdma_cm_id *listen_to_all(void)
{
	struct rdma_cm_id *id = id_make();
	struct sockaddr_ib any = gid_address(NULL);

	MUST(!rdma_bind_addr(id, (struct sockaddr *)&any));
	MUST(rdma_get_src_port(id) && !id->verbs);
	MUST(rdma_get_local_addr(id)->sa_family == AF_IB);
	MUST(!rdma_listen(id, 4));
	return id;
}

static struct rdma_cm_id *connect_by_ip(const char *host, __be16 port)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct rdma_conn_param param = {
		.private_data = words, .private_data_len = sizeof(words), .retry_count = 7};
	struct rdma_cm_id *id = id_make();
	struct addrinfo *found;
	char text[8];

	snprintf(text, sizeof(text), "%u", ntohs(port));
	MUST(!getaddrinfo(host, text, &hints, &found));
	MUST(!rdma_resolve_addr(id, NULL, found->ai_addr, 2000));
	freeaddrinfo(found);
	await_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(id, 2000));
	await_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(!rdma_connect(id, &param));
	return id;
}

static void same_gid(const struct sockaddr *address, const union ibv_gid *gid)
{
	const struct sockaddr_ib *ib = (const struct sockaddr_ib *)address;

	MUST(ib->sib_family == AF_IB && !memcmp(&ib->sib_addr, gid, sizeof(*gid)));
	MUST(ib->sib_pkey == htons(0xffff));
}

static void connection(const char *host)
{
	struct rdma_cm_id *listener = listen_to_all();
	struct rdma_cm_id *client = connect_by_ip(host, rdma_get_src_port(listener));
	struct rdma_cm_event *event = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	struct rdma_conn_param param = {.retry_count = 7};

	MUST(event->listen_id == listener && server->verbs);
	MUST(event->param.conn.private_data_len >= IP_HEADER + sizeof(words));
	MUST(!memcmp((const char *)event->param.conn.private_data + IP_HEADER, words,
		     sizeof(words)));
	same_gid(rdma_get_local_addr(server), &client->route.addr.addr.ibaddr.dgid);
	same_gid(rdma_get_peer_addr(server), &client->route.addr.addr.ibaddr.sgid);
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_accept(server, &param));
	MUST(!rdma_ack_cm_event(next_event(RDMA_CM_EVENT_CONNECT_RESPONSE)));
	MUST(!rdma_establish(client));
	await_event(RDMA_CM_EVENT_ESTABLISHED);

	/* What has a GID only, and no fabric. */
	struct sockaddr_ib own = gid_address(&client->route.addr.addr.ibaddr.sgid);
	struct rdma_cm_id *other = id_make();

	REFUSED(rdma_bind_addr(other, (struct sockaddr *)&own), ENODEV);
	REFUSED(rdma_resolve_addr(other, NULL, (struct sockaddr *)&own, 2000), ENODEV);
	MUST(!rdma_destroy_id(other) && !rdma_destroy_id(server));
	MUST(!rdma_destroy_id(client) && !rdma_destroy_id(listener));
}

/* Two listeners of any address share no port, whatever their families. */
static void ports(void)
{
	struct rdma_cm_id *listener = listen_to_all(), *other = id_make();
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = rdma_get_src_port(listener)};

	REFUSED(rdma_bind_addr(other, (struct sockaddr *)&any), EADDRNOTAVAIL);
	MUST(!rdma_destroy_id(other) && !rdma_destroy_id(listener));
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: cm_gids ADDRESS\n");
		return 2;
	}
	channel = rdma_create_event_channel();
	MUST(channel);
	connection(argv[1]);
	ports();
	rdma_destroy_event_channel(channel);
	return 0;
}
