/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles, and deriving one from a received message. Ports are Ethernet, so every address
 * is a GID: an IPv6 address, or an IPv4 one mapped into IPv6. No state.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>

#include "abi/verbs_abi.h"
#include "base/log.h"
#include "base/refused.h"
#include "hca/exec/datagram_fabric.h"
#include "hca/fabric/membership.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/route.h"

enum {
	GRH_BYTES = 40,
	IPV4_BYTES = 20,
	IPV4_OFFSET = GRH_BYTES - IPV4_BYTES,
	HOP_LIMIT_DEFAULT = 64,
	NO_VLAN = 0xffff,
};

/* ------------------------------------------------------------------ making and ending */

static void ah_fill_request(struct ib_uverbs_ah_attr *out, const struct ibv_ah_attr *attr)
{
	*out = (struct ib_uverbs_ah_attr){
		.grh.flow_label = attr->grh.flow_label,
		.grh.sgid_index = attr->grh.sgid_index,
		.grh.hop_limit = attr->grh.hop_limit,
		.grh.traffic_class = attr->grh.traffic_class,
		.dlid = attr->dlid,
		.sl = attr->sl,
		.src_path_bits = attr->src_path_bits,
		.static_rate = attr->static_rate,
		.is_global = attr->is_global,
		.port_num = attr->port_num,
	};
	memcpy(out->grh.dgid, attr->grh.dgid.raw, sizeof(out->grh.dgid));
}

static void fill_address(struct record_ud *to, const struct ibv_ah_attr *attr, const uint8_t *sgid)
{
	*to = (struct record_ud){.flow_label = attr->grh.flow_label,
				 .hop_limit = attr->grh.hop_limit,
				 .traffic_class = attr->grh.traffic_class,
				 .sl = attr->sl};
	memcpy(to->sgid, sgid, sizeof(to->sgid));
	memcpy(to->dgid, attr->grh.dgid.raw, sizeof(to->dgid));
}

/* Creates the handle at the daemon, which determines its source GID. Returns a positive errno. */
static int ah_announce(struct context *context, struct ah *ah, const struct ibv_ah_attr *attr)
{
	struct proto_create_ah_resp resp;

	if (context->hca->membership)
		return datagram_address(context->hca->membership, ah, attr);
	if (!attr->is_global) {
		log_warn("an address handle on an Ethernet port needs a GRH (is_global = 1)");
		return EINVAL;
	}
	ah_fill_request(&ah->request, attr);
	books_enter(context->hca);
	int err = -daemon_create_ah(&context->conn, pd_of(ah->ibv.pd)->handle, &ah->request, &resp);

	if (!err) {
		ah->ibv.handle = ah->handle = resp.ah_handle;
		fill_address(&ah->to, attr, resp.route.sgid);
		ah->carrier = route_of_datagrams(context->hca, &resp.route);
		ah->beyond = route_group_is_roce(context->hca, &resp.route);
		ah->ifindex = resp.route.ifindex;
		books_add(context, HELD_AH, &ah->held);
	}
	books_leave(context->hca);
	if (err == EINVAL)
		log_warn("an address handle can't use GID %u of port %u: there is none",
			 attr->grh.sgid_index, attr->port_num);
	return err;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel)
		return kernel_create_ah(kernel, pd, attr);
	struct context *context = context_of(pd->context);

	if (handle_check("ibv_create_ah", pd->handle, pd_of(pd)->shown))
		return fail_null(ENOENT);
	struct ah *ah = calloc(1, sizeof(*ah));

	if (!ah)
		return fail_null(ENOMEM);
	ah->ibv.pd = pd;
	ah->ibv.context = pd->context;
	int err = ah_announce(context, ah, attr);

	if (err) {
		free(ah);
		return fail_null(err);
	}
	pd_use(pd, 1);
	context_count(pd->context, 1);
	return &ah->ibv;
}

/* Ends the handle at the daemon, which doesn't know those of a fabric. */
static int ah_end(struct context *context, struct ah *ah)
{
	if (context->hca->membership)
		return 0;
	books_enter(context->hca);
	int err = daemon_destroy_ah(&context->conn, ah->handle);

	if (err == -EIO) /* without a daemon there is no object to destroy */
		err = 0;
	if (!err)
		books_drop(context, &ah->held);
	books_leave(context->hca);
	return err;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel)
		return kernel_destroy_ah(kernel, ibv);
	int bad = handle_check("ibv_destroy_ah", ibv->handle, ah_of(ibv)->handle);

	if (bad)
		return fail_errno(bad);
	int err = ah_end(context_of(ibv->context), ah_of(ibv));

	if (err)
		return fail_errno(-err);
	pd_use(ibv->pd, -1);
	context_count(ibv->context, -1);
	free(ah_of(ibv));
	return 0;
}

/* ------------------------------------------------------------------ answering a sender */

/* The sender of a message, from the 40 bytes before it. */
struct sender {
	union ibv_gid source, destination;
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
};

static bool ipv4_checksum_fits(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < IPV4_BYTES; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/*
 * RoCE v2 over IPv4 stores the IP header in the last 20 of the 40 bytes; the others are undefined.
 * Either header begins with its version; where both may be valid, the checksum decides.
 */
static bool is_ipv4(const uint8_t *bytes)
{
	const uint8_t *header = bytes + IPV4_OFFSET;

	if (header[0] != 0x45)
		return false;
	return bytes[0] >> 4 != 6 || ipv4_checksum_fits(header);
}

static void gid_from_ipv4(union ibv_gid *gid, const uint8_t *address)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, address, 4);
}

static void parse_sender(const struct ibv_grh *grh, struct sender *out)
{
	const uint8_t *bytes = (const uint8_t *)grh;
	const uint8_t *ipv4 = bytes + IPV4_OFFSET;

	memset(out, 0, sizeof(*out));
	if (is_ipv4(bytes)) {
		out->traffic_class = ipv4[1];
		out->hop_limit = ipv4[8];
		gid_from_ipv4(&out->source, ipv4 + 12);
		gid_from_ipv4(&out->destination, ipv4 + 16);
	} else {
		uint32_t word = ntohl(grh->version_tclass_flow);

		out->traffic_class = word >> 20 & 0xff;
		out->flow_label = word & 0xfffff;
		out->hop_limit = grh->hop_limit;
		out->source = grh->sgid;
		out->destination = grh->dgid;
	}
	if (out->hop_limit < 2) /* used up on the path, or not filled in */
		out->hop_limit = HOP_LIMIT_DEFAULT;
}

static int kernel_gid_find(struct kernel_context *kernel, uint8_t port, const union ibv_gid *gid)
{
	struct ibv_port_attr attr = {0};
	struct ibv_gid_entry entry;
	int err = kernel_query_port(kernel, port, &attr, sizeof(attr));

	for (int i = 0; !err && i < attr.gid_tbl_len; i++)
		if (!kernel_query_gid(kernel, port, (uint32_t)i, &entry) &&
		    entry.gid_type != IBV_GID_TYPE_ROCE_V1 &&
		    !memcmp(&entry.gid, gid, sizeof(*gid)))
			return i;
	return err ? -err : -ENOENT;
}

static int node_gid_find(const struct node *node, uint8_t port, const union ibv_gid *gid)
{
	struct ibv_gid_entry entry;

	for (uint32_t i = 0; i < FABRIC_GUIDS; i++)
		if (!node_query_gid(node, port, i, &entry) &&
		    !memcmp(&entry.gid, gid, sizeof(*gid)))
			return (int)i;
	return -ENOENT;
}

static bool gid_is_loopback(const union ibv_gid *gid)
{
	const struct in6_addr *address = (const struct in6_addr *)gid->raw;

	return IN6_IS_ADDR_LOOPBACK(address) ||
	       (IN6_IS_ADDR_V4MAPPED(address) && gid->raw[12] == 127);
}

/* The index of `gid` in the port's table, or a negative errno. */
static int gid_index_find(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	struct kernel_context *kernel = kernel_context_of(context);
	const struct membership *membership = kernel ? NULL : context_of(context)->hca->membership;

	if (kernel)
		return kernel_gid_find(kernel, port, gid);
	if (membership)
		return node_gid_find(membership->node, port, gid);
	/* Datagrams that the connection manager arranged may have come to an address behind the
	 * table; those of the loopback interface are there. */
	uint32_t start = gid_is_loopback(gid) ? LIMIT_GIDS : 0;

	for (uint32_t n = 0; n < LIMIT_GID_INDICES; n++) {
		struct proto_query_gid_resp resp;
		uint32_t i = (start + n) % LIMIT_GID_INDICES;
		int err = daemon_query_gid(conn_of(context), port, i, &resp);

		if (!err && !memcmp(resp.gid, gid->raw, sizeof(resp.gid)))
			return (int)i;
		if (err && err != -ENODATA)
			return err;
	}
	return -ENOENT;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			       struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
{
	struct sender sender;

	*ah_attr = (struct ibv_ah_attr){
		.dlid = wc->slid,
		.sl = wc->sl,
		.src_path_bits = wc->dlid_path_bits,
		.port_num = port_num,
	};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	parse_sender(grh, &sender);
	int index = gid_index_find(context, port_num, &sender.destination);

	if (index < 0) {
		log_warn_few("ibv_init_ah_from_wc: port %u has no GID that is the address which "
			     "the message was for (its first 40 bytes): %s",
			     port_num, strerror(-index));
		errno = -index;
		return -1;
	}
	ah_attr->is_global = 1;
	ah_attr->grh = (struct ibv_global_route){
		.dgid = sender.source,
		.flow_label = sender.flow_label,
		.sgid_index = index,
		.hop_limit = sender.hop_limit,
		.traffic_class = sender.traffic_class,
	};
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					    struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) < 0)
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* ------------------------------------------------------------------ Ethernet addresses */

static bool ifaddr_has_gid(const struct ifaddrs *i, const union ibv_gid *gid)
{
	union ibv_gid own = {0};

	if (!i->ifa_addr)
		return false;
	if (i->ifa_addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)i->ifa_addr;

		gid_from_ipv4(&own, (const uint8_t *)&in->sin_addr);
	} else if (i->ifa_addr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)i->ifa_addr;

		memcpy(own.raw, &in6->sin6_addr, sizeof(own.raw));
	} else {
		return false;
	}
	return !memcmp(&own, gid, sizeof(own));
}

static bool copy_mac(const struct ifaddrs *i, const char *name, uint8_t *mac)
{
	if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET || strcmp(i->ifa_name, name) != 0)
		return false;
	const struct sockaddr_ll *ll = (const struct sockaddr_ll *)i->ifa_addr;

	if (ll->sll_halen != ETHERNET_LL_SIZE)
		return false;
	memcpy(mac, ll->sll_addr, ETHERNET_LL_SIZE);
	return true;
}

/*
 * The Ethernet address of attr's destination if it is an interface of this host; the RoCE carrier
 * resolves other hosts' addresses itself. 0 or a positive errno.
 */
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				       uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	struct ifaddrs *list;
	const char *name = NULL;
	bool found = false;

	(void)context;
	if (!attr->is_global)
		return fail_errno(refused(EINVAL, "ibv_resolve_eth_l2_from_gid: the address has no "
						  "GID (is_global is 0)"));
	if (getifaddrs(&list) < 0)
		return errno;
	for (const struct ifaddrs *i = list; i && !name; i = i->ifa_next)
		if (ifaddr_has_gid(i, &attr->grh.dgid))
			name = i->ifa_name;
	for (const struct ifaddrs *i = list; i && name && !found; i = i->ifa_next)
		found = copy_mac(i, name, eth_mac);
	freeifaddrs(list);
	if (!found)
		return fail_errno(refused(EHOSTUNREACH,
					  "ibv_resolve_eth_l2_from_gid: no interface of this host "
					  "has the GID's address and an Ethernet address; other "
					  "hosts' are resolved by the device only"));
	if (vid)
		*vid = NO_VLAN;
	return 0;
}
