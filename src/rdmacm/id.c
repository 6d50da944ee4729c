/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Identifiers: created, bound, resolved, moved to another channel, destroyed. See rdmacm.h. Owns
 * each struct id with its path records, and the channel of an id in synchronous operation.
 */
#include "rdmacm/rdmacm.h"

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/ib.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/refused.h"

size_t addr_size(const struct sockaddr *addr)
{
	switch (addr ? addr->sa_family : AF_UNSPEC) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case AF_IB:
		return sizeof(struct sockaddr_ib);
	default:
		return 0;
	}
}

/* ------------------------------------------------------------------ life */

enum ibv_qp_type id_default_type(enum rdma_port_space ps)
{
	return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

static struct id *id_alloc(struct channel *channel, void *context, enum rdma_port_space ps,
			   enum ibv_qp_type type)
{
	struct id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->pub.channel = &channel->pub;
	id->pub.context = context;
	id->pub.ps = ps;
	id->pub.qp_type = type;
	id->object.kind = OBJECT_ID;
	id->generation = channel->generation;
	joins_init(id);
	return id;
}

static int create_at_daemon(struct id *id, struct channel *channel)
{
	struct rdma_ucm_create_id body = {.uid = registry_uid(&id->object),
					  .ps = id->pub.ps,
					  .qp_type = (uint8_t)id->pub.qp_type};
	struct rdma_ucm_create_id_resp resp;

	memcpy(body.reserved, &channel->handle, sizeof(channel->handle));
	int err = cm_call(id->generation, RDMA_USER_CM_CMD_CREATE_ID, &body, sizeof(body), &resp,
			  sizeof(resp), NULL);

	if (!err)
		id->handle = resp.id;
	return err;
}

int id_create(struct channel *channel, void *context, enum rdma_port_space ps,
	      enum ibv_qp_type type, struct id **out)
{
	struct channel *own = NULL;
	int err = channel ? 0 : event_channel_create(&own);

	if (err)
		return err;
	struct id *id = id_alloc(channel ? channel : own, context, ps, type);

	err = -ENOMEM;
	if (!id)
		goto out_channel;
	id->sync = !channel;
	err = registry_add(&id->object);
	if (err)
		goto out_free;
	err = create_at_daemon(id, channel ? channel : own);
	if (err)
		goto out_registry;
	*out = id;
	return 0;

out_registry:
	registry_remove(&id->object);
out_free:
	free(id);
out_channel:
	if (own)
		event_channel_destroy(own);
	return err;
}

int id_adopt(struct id *listener, uint32_t handle, struct id **out)
{
	struct id *id = id_alloc(event_channel_of(listener->pub.channel), listener->pub.context,
				 listener->pub.ps, listener->pub.qp_type);

	if (!id)
		return -ENOMEM;
	id->handle = handle;
	id->generation = listener->generation;
	int err = registry_add(&id->object);

	if (err)
		free(id);
	else
		*out = id;
	return err;
}

static int destroy_at_daemon(struct id *id)
{
	struct rdma_ucm_destroy_id body = {.id = id->handle};
	struct rdma_ucm_destroy_id_resp resp;

	return cm_call(id->generation, RDMA_USER_CM_CMD_DESTROY_ID, &body, sizeof(body), &resp,
		       sizeof(resp), NULL);
}

void id_destroy(struct id *id)
{
	id_forget_event(id);
	/* This fails if the daemon is gone, and then its id is gone, too. */
	destroy_at_daemon(id);
	join_free_all(id);
	registry_remove(&id->object);
	if (id->sync)
		event_channel_destroy(event_channel_of(id->pub.channel));
	free(id->pub.route.path_rec);
	rdma_freeaddrinfo(id->resolved);
	free(id->ep_init);
	free(id->prefix);
	free(id);
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
			  enum rdma_port_space ps)
{
	struct id *made;
	int err = id_create(channel ? event_channel_of(channel) : NULL, context, ps,
			    id_default_type(ps), &made);

	if (!err)
		*id = &made->pub;
	return cm_result(err);
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	id_destroy(id_of(id));
	return 0;
}

/* ------------------------------------------------------------------ what the daemon knows of it */

static int id_query_kernel(struct id *id, uint32_t option, void *resp, size_t size)
{
	struct rdma_ucm_query body = {.id = id->handle, .option = option};

	return cm_call(id->generation, RDMA_USER_CM_CMD_QUERY, &body, sizeof(body), resp, size,
		       NULL);
}

/* In RoCE v2 a GID is an IP address; IPv4 addresses are mapped into IPv6. On InfiniBand an IP
 * address doesn't tell the GID; the daemon does (id_learn_gids()), and the path. */
static union ibv_gid gid_of(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_ib *ib = (const struct sockaddr_ib *)addr;
	union ibv_gid gid = {.raw = {0}};

	if (addr->ss_family == AF_INET6) {
		memcpy(gid.raw, &v6->sin6_addr, sizeof(gid.raw));
	} else if (addr->ss_family == AF_INET) {
		gid.raw[10] = gid.raw[11] = 0xff;
		memcpy(gid.raw + 12, &v4->sin_addr, sizeof(v4->sin_addr));
	} else if (addr->ss_family == AF_IB) {
		memcpy(gid.raw, ib->sib_addr.sib_raw, sizeof(gid.raw));
	}
	return gid;
}

static int bind_to_device(struct id *id, __be64 guid, uint8_t port)
{
	id->device = device_of_guid(guid);
	if (!id->device)
		return errno ? -errno : -ENODEV;
	/* Programs that create their own QPs expect the default PD here. */
	id->pub.pd = device_pd(id->device);
	if (!id->pub.pd)
		return -errno;
	id->pub.verbs = id->device->verbs;
	id->pub.port_num = port;
	return 0;
}

static int take_addr(struct id *id, const struct rdma_ucm_query_addr_resp *resp)
{
	struct rdma_addr *addr = &id->pub.route.addr;
	int err = 0;

	if (resp->src_size > sizeof(addr->src_storage) ||
	    resp->dst_size > sizeof(addr->dst_storage))
		return -EPROTO;
	memcpy(&addr->src_storage, &resp->src_addr, resp->src_size);
	memcpy(&addr->dst_storage, &resp->dst_addr, resp->dst_size);
	if (!id->pub.verbs && resp->node_guid)
		err = bind_to_device(id, (__be64)resp->node_guid, resp->port_num);
	if (!err && id->pub.verbs)
		addr->addr.ibaddr = (struct rdma_ib_addr){.sgid = gid_of(&addr->src_storage),
							  .dgid = gid_of(&addr->dst_storage),
							  .pkey = (__be16)resp->pkey};
	return err;
}

/* On a fabric an IP address doesn't tell the GIDs; once the peer is known the daemon does. */
static int id_learn_gids(struct id *id)
{
	const struct rdma_addr *addr = &id->pub.route.addr;
	struct rdma_ib_addr *gids = &id->pub.route.addr.addr.ibaddr;
	struct rdma_ucm_query_addr_resp resp;

	if (!cm_is_on_node() || !id->pub.verbs || addr->src_storage.ss_family == AF_IB ||
	    !addr->dst_storage.ss_family)
		return 0;
	int err = id_query_kernel(id, RDMA_USER_CM_QUERY_GID, &resp, sizeof(resp));

	if (err)
		return err;
	gids->sgid = gid_of((const struct sockaddr_storage *)&resp.src_addr);
	gids->dgid = gid_of((const struct sockaddr_storage *)&resp.dst_addr);
	return 0;
}

int id_learn_addr(struct id *id, const struct proto_cm_event *event)
{
	struct rdma_ucm_query_addr_resp resp;
	int err;

	if (event && event->known & PROTO_CM_KNOWS_ADDR) {
		err = take_addr(id, &event->addr);
		return err ? err : id_learn_gids(id);
	}
	err = id_query_kernel(id, RDMA_USER_CM_QUERY_ADDR, &resp, sizeof(resp));
	if (!err)
		err = take_addr(id, &resp);
	return err ? err : id_learn_gids(id);
}

/* Unpacks the daemon's path record into single fields. */
static struct ibv_sa_path_rec path_unpack(const struct ib_path_rec_data *data)
{
	struct ibv_path_record in;

	_Static_assert(sizeof(in) == sizeof(data->path_rec), "one format");
	memcpy(&in, data->path_rec, sizeof(in));
	uint32_t flow = ntohl(in.flowlabel_hoplimit);

	return (struct ibv_sa_path_rec){
		.dgid = in.dgid,
		.sgid = in.sgid,
		.dlid = in.dlid,
		.slid = in.slid,
		.flow_label = htonl(flow >> 8 & 0xfffff),
		.hop_limit = (uint8_t)flow,
		.traffic_class = in.tclass,
		.reversible = in.reversible_numpath >> 7,
		.numb_path = in.reversible_numpath & 0x7f,
		.pkey = in.pkey,
		.sl = ntohs(in.qosclass_sl) & 0xf,
		.mtu_selector = in.mtu >> 6,
		.mtu = in.mtu & 0x3f,
		.rate_selector = in.rate >> 6,
		.rate = in.rate & 0x3f,
		.packet_life_time_selector = in.packetlifetime >> 6,
		.packet_life_time = in.packetlifetime & 0x3f,
		.preference = in.preference,
	};
}

static int take_path(struct id *id, const struct ib_path_rec_data *path)
{
	struct rdma_route *route = &id->pub.route;

	if (!route->path_rec)
		route->path_rec = malloc(sizeof(*route->path_rec));
	if (!route->path_rec)
		return -ENOMEM;
	*route->path_rec = path_unpack(path);
	route->num_paths = 1;
	if (route->path_rec->dlid) {
		route->addr.addr.ibaddr.sgid = route->path_rec->sgid;
		route->addr.addr.ibaddr.dgid = route->path_rec->dgid;
	}
	return 0;
}

int id_learn_path(struct id *id, const struct proto_cm_event *event)
{
	struct {
		struct rdma_ucm_query_path_resp head;
		struct ib_path_rec_data path;
	} resp;

	if (event && event->known & PROTO_CM_KNOWS_PATH)
		return take_path(id, &event->path);
	int err = id_query_kernel(id, RDMA_USER_CM_QUERY_PATH, &resp, sizeof(resp));

	return err || !resp.head.num_paths ? err : take_path(id, &resp.path);
}

/* ------------------------------------------------------------------ addresses and routes */

/* Of the call that is named. */
#define ADDRESS_FAMILY                                                             \
	"%s: the address is NULL, or its family is none of AF_INET, AF_INET6 and " \
	"AF_IB"

static const char *address_refusal(int err)
{
	switch (err) {
	case -EADDRINUSE:
		return "another identifier has this address and port";
	case -EADDRNOTAVAIL:
		return "no device has this address, or another identifier has the port and one of "
		       "the two is bound to all addresses (the families share a port unless "
		       "RDMA_OPTION_ID_AFONLY is set)";
	case -EACCES:
		return "only root may have this port (net.ipv4.ip_unprivileged_port_start)";
	case -EINVAL:
		return "the identifier is bound already";
	case -ENODEV:
		return "no device is found by an address of the family AF_IB here";
	default:
		return strerror(-err);
	}
}

static void say_no_bind(const struct sockaddr *addr, int err)
{
	char text[INET6_ADDRSTRLEN] = "a GID";
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)addr;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)addr;

	if (addr->sa_family != AF_IB)
		inet_ntop(addr->sa_family,
			  addr->sa_family == AF_INET6 ? (const void *)&v6->sin6_addr
						      : (const void *)&v4->sin_addr,
			  text, sizeof(text));
	log_warn_few("rdma_bind_addr: %s, port %u: %s", text,
		     addr->sa_family == AF_IB ? 0u : ntohs(v4->sin_port), address_refusal(err));
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *pub, struct sockaddr *addr)
{
	struct id *id = id_of(pub);
	struct rdma_ucm_bind body = {.id = id->handle, .addr_size = (uint16_t)addr_size(addr)};

	if (!body.addr_size)
		return cm_result(
			refused(addr ? -EAFNOSUPPORT : -EINVAL, ADDRESS_FAMILY, "rdma_bind_addr"));
	memcpy(&body.addr, addr, body.addr_size);
	int err =
		cm_call(id->generation, RDMA_USER_CM_CMD_BIND, &body, sizeof(body), NULL, 0, NULL);

	if (err)
		say_no_bind(addr, err);
	return cm_result(err ? err : id_learn_addr(id, NULL));
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *pub, struct sockaddr *src_addr,
			     struct sockaddr *dst_addr, int timeout_ms)
{
	struct id *id = id_of(pub);
	struct rdma_ucm_resolve_addr body = {
		.id = id->handle,
		.timeout_ms = (uint32_t)timeout_ms,
		.src_size = (uint16_t)addr_size(src_addr),
		.dst_size = (uint16_t)addr_size(dst_addr),
	};

	if (!body.dst_size || (src_addr && !body.src_size))
		return cm_result(refused(dst_addr ? -EAFNOSUPPORT : -EINVAL, ADDRESS_FAMILY,
					 "rdma_resolve_addr"));
	if (src_addr)
		memcpy(&body.src_addr, src_addr, body.src_size);
	memcpy(&body.dst_addr, dst_addr, body.dst_size);
	id_forget_event(id);
	/* Set before the request: another thread may take the event as soon as the request is
	 * sent. */
	struct sockaddr_storage before = pub->route.addr.dst_storage;

	memcpy(&pub->route.addr.dst_storage, dst_addr, body.dst_size);
	int err = cm_call(id->generation, RDMA_USER_CM_CMD_RESOLVE_ADDR, &body, sizeof(body), NULL,
			  0, NULL);

	if (err) {
		pub->route.addr.dst_storage = before;
		return cm_result(refused(err, "rdma_resolve_addr: %s",
					 err == -EINVAL ? "the address was resolved already"
							: strerror(-err)));
	}
	return cm_result(id_complete(id));
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *pub, int timeout_ms)
{
	struct id *id = id_of(pub);
	struct rdma_ucm_resolve_route body = {id->handle, (uint32_t)timeout_ms};

	id_forget_event(id);
	int err = cm_call(id->generation, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &body, sizeof(body), NULL,
			  0, NULL);

	if (err)
		log_warn_few("rdma_resolve_route: %s",
			     err == -EINVAL ? "an address must be resolved first, and the route "
					      "only once"
					    : strerror(-err));
	return cm_result(err ? err : id_complete(id));
}

EXPORT int rdma_listen(struct rdma_cm_id *pub, int backlog)
{
	struct id *id = id_of(pub);
	struct rdma_ucm_listen body = {id->handle, (uint32_t)backlog};
	int err = cm_call(id->generation, RDMA_USER_CM_CMD_LISTEN, &body, sizeof(body), NULL, 0,
			  NULL);

	if (err)
		log_warn_few("rdma_listen: %s",
			     err == -EINVAL ? "the identifier listens already, or is connected"
					    : address_refusal(err));
	/* The daemon may have chosen the port in this call. */
	return cm_result(err ? err : id_learn_addr(id, NULL));
}

static __be16 port_of(const struct sockaddr_storage *addr)
{
	switch (addr->ss_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)addr)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)addr)->sin6_port;
	case AF_IB: {
		const struct sockaddr_ib *ib = (const struct sockaddr_ib *)addr;

		return htons((uint16_t)be64toh(ib->sib_sid & ib->sib_sid_mask));
	}
	default:
		return 0;
	}
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_storage);
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_storage);
}

/* ------------------------------------------------------------------ options and channels */

EXPORT int rdma_set_option(struct rdma_cm_id *pub, int level, int optname, void *optval,
			   size_t optlen)
{
	struct id *id = id_of(pub);
	struct {
		struct rdma_ucm_set_option head;
		uint8_t value[PROTO_CM_OPTION_MAX];
	} body = {.head = {.id = id->handle,
			   .level = (uint32_t)level,
			   .optname = (uint32_t)optname,
			   .optlen = (uint32_t)optlen}};

	if (optlen > sizeof(body.value))
		return cm_result(refused(-EINVAL,
					 "rdma_set_option: an option has %zu bytes at most",
					 sizeof(body.value)));
	if (optlen && !optval)
		return cm_result(refused(-EFAULT, "rdma_set_option: optval is NULL"));
	if (optlen)
		memcpy(body.value, optval, optlen);
	id->known = 0; /* the option may change the QP's attributes */
	int err = cm_call(id->generation, RDMA_USER_CM_CMD_SET_OPTION, &body,
			  sizeof(body.head) + optlen, NULL, 0, NULL);

	if (err)
		log_warn_few("rdma_set_option: option %d of level %d can't be set to these %zu "
			     "bytes in the identifier's state: %s",
			     optname, level, optlen, strerror(-err));
	return cm_result(err);
}

int id_migrate(struct id *id, struct channel *channel)
{
	struct channel *old = event_channel_of(id->pub.channel), *own = NULL;
	struct rdma_ucm_migrate_resp resp;
	int err = channel ? 0 : event_channel_create(&own);

	if (err)
		return err;
	struct channel *to = channel ? channel : own;
	struct rdma_ucm_migrate_id body = {.id = id->handle, .fd = to->handle};

	err = cm_call(id->generation, RDMA_USER_CM_CMD_MIGRATE_ID, &body, sizeof(body), &resp,
		      sizeof(resp), NULL);
	if (err) {
		if (!channel)
			event_channel_destroy(own);
		return err;
	}
	/* Events that were in flight on the old channel are on the new one now. */
	__atomic_store_n(&id->pub.channel, &to->pub, __ATOMIC_RELEASE);
	registry_wait(&id->object);
	if (id->sync)
		event_channel_destroy(old);
	id->sync = !channel;
	return 0;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *pub, struct rdma_event_channel *channel)
{
	struct id *id = id_of(pub);

	if (id->sync && !channel)
		return cm_result(refused(-EINVAL, "rdma_migrate_id: the identifier has no channel "
						  "of the program's to leave"));
	id_forget_event(id);
	return cm_result(id_migrate(id, channel ? event_channel_of(channel) : NULL));
}

void id_forget_event(struct id *id)
{
	struct rdma_cm_event *event = id->pub.event;

	id->pub.event = NULL;
	if (event)
		rdma_ack_cm_event(event);
}

/* Converts the status of a failed event to an errno. */
static int event_error(const struct rdma_cm_event *event)
{
	if (!event->status)
		return 0;
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	return event->status < 0 ? event->status : -event->status;
}

int id_complete(struct id *id)
{
	struct event *event;

	if (!id->sync)
		return 0;
	id_forget_event(id);
	int err = event_get(event_channel_of(id->pub.channel), &event);

	if (err)
		return err;
	id->pub.event = &event->pub;
	return event_error(&event->pub);
}
