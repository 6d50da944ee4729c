/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections of queue pairs by IP address. See rdma_cm(7).
 *
 * Functions return 0, or -1 with the reason in errno, where nothing else is said.
 */
#ifndef RDMA_CMA_H
#define RDMA_CMA_H

#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#include <netinet/in.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an event says; its status is 0, a negative errno, or a reason of the InfiniBand CM. */
enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED = 0,
	RDMA_CM_EVENT_ADDR_ERROR = 1,
	RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
	RDMA_CM_EVENT_ROUTE_ERROR = 3,
	RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	RDMA_CM_EVENT_CONNECT_RESPONSE = 5, /* only for an id without a QP */
	RDMA_CM_EVENT_CONNECT_ERROR = 6,
	RDMA_CM_EVENT_UNREACHABLE = 7,
	RDMA_CM_EVENT_REJECTED = 8,
	RDMA_CM_EVENT_ESTABLISHED = 9,
	RDMA_CM_EVENT_DISCONNECTED = 10,
	RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
	RDMA_CM_EVENT_MULTICAST_JOIN = 12,
	RDMA_CM_EVENT_MULTICAST_ERROR = 13,
	RDMA_CM_EVENT_ADDR_CHANGE = 14,
	RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
	RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16,
	RDMA_CM_EVENT_ADDRINFO_ERROR = 17,
	RDMA_CM_EVENT_USER = 18,
	RDMA_CM_EVENT_INTERNAL = 19, /* never a program's */
};

/* Each has ports of its own. */
enum rdma_port_space {
	RDMA_PS_IPOIB = 0x0002,
	RDMA_PS_TCP = 0x0106, /* reliable connections */
	RDMA_PS_UDP = 0x0111, /* datagrams */
	RDMA_PS_IB = 0x013F,  /* any type of QP */
};

/* A service's number: its port space and its port. */
#define RDMA_IB_IP_PS_MASK 0xFFFFFFFFFFFF0000ULL
#define RDMA_IB_IP_PORT_MASK 0x000000000000FFFFULL
#define RDMA_IB_IP_PS_TCP 0x0000000001060000ULL
#define RDMA_IB_IP_PS_UDP 0x0000000001110000ULL
#define RDMA_IB_PS_IB 0x00000000013F0000ULL

/* The queue key of RDMA_PS_UDP. */
#define RDMA_UDP_QKEY 0x01234567

struct rdma_ib_addr {
	union ibv_gid sgid;
	union ibv_gid dgid;
	__be16 pkey;
};

struct rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	union {
		struct rdma_ib_addr ibaddr;
	} addr;
};

struct rdma_route {
	struct rdma_addr addr;
	struct ibv_sa_path_rec *path_rec; /* num_paths of them */
	int num_paths;
};

struct rdma_event_channel {
	int fd; /* readable while there is an event */
};

/* An identifier: what a socket is to TCP. */
struct rdma_cm_id {
	struct ibv_context *verbs; /* NULL until the id is bound to a device */
	struct rdma_event_channel *channel;
	void *context; /* the program's */
	struct ibv_qp *qp;
	struct rdma_route route;
	enum rdma_port_space ps;
	uint8_t port_num;
	struct rdma_cm_event *event; /* synchronous operation: of the last call */
	/* What the library made for the QP: */
	struct ibv_comp_channel *send_cq_channel;
	struct ibv_cq *send_cq;
	struct ibv_comp_channel *recv_cq_channel;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	enum ibv_qp_type qp_type;
};

/* In struct rdma_conn_param: as many as the device has. */
enum { RDMA_MAX_RESP_RES = 0xFF, RDMA_MAX_INIT_DEPTH = 0xFF };

struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources; /* RDMA READs and atomics that we answer at a time */
	uint8_t initiator_depth;     /* ... that we have under way at a time */
	uint8_t flow_control;
	uint8_t retry_count; /* ignored when accepting */
	uint8_t rnr_retry_count;
	/* Without a QP on the id: */
	uint8_t srq;
	uint32_t qp_num;
};

struct rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct ibv_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct rdma_cm_event {
	struct rdma_cm_id *id;
	struct rdma_cm_id *listen_id; /* CONNECT_REQUEST */
	enum rdma_cm_event_type event;
	int status;
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud; /* RDMA_PS_UDP, RDMA_PS_IPOIB */
		uint64_t arg;		 /* RDMA_CM_EVENT_USER */
	} param;
};

/* rdma_addrinfo.ai_flags */
#define RAI_PASSIVE 0x00000001
#define RAI_NUMERICHOST 0x00000002
#define RAI_NOROUTE 0x00000004
#define RAI_FAMILY 0x00000008
/* For rdma_resolve_addrinfo(). */
#define RAI_SA 0x00000010  /* ask the subnet administration for a service: EOPNOTSUPP */
#define RAI_DNS 0x00000020 /* ask the system's resolver, which is the default */

struct rdma_addrinfo {
	int ai_flags;
	int ai_family;
	int ai_qp_type;
	int ai_port_space;
	socklen_t ai_src_len;
	socklen_t ai_dst_len;
	struct sockaddr *ai_src_addr;
	struct sockaddr *ai_dst_addr;
	char *ai_src_canonname;
	char *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route; /* struct ibv_path_data[] */
	size_t ai_connect_len;
	void *ai_connect; /* goes in front of the program's private data */
	struct rdma_addrinfo *ai_next;
};

/* Which members of struct rdma_cm_join_mc_attr_ex are valid. */
enum rdma_cm_join_mc_attr_mask {
	RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
	RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
	RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2,
};

enum rdma_cm_mc_join_flags {
	RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
	RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1, /* sends to the group, gets nothing from it */
	RDMA_MC_JOIN_FLAG_RESERVED = 2,
};

struct rdma_cm_join_mc_attr_ex {
	uint32_t comp_mask;  /* enum rdma_cm_join_mc_attr_mask */
	uint32_t join_flags; /* enum rdma_cm_mc_join_flags */
	struct sockaddr *addr;
};

/* Event channels. NULL on error. A channel may be destroyed when no id is on it. */
struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *channel);

/* channel == NULL: synchronous operation; calls wait for their event and leave it in id->event. */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps);
/* Bound, or resolved, with a QP or knowing what QPs of its connections shall be like. */
int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr);
/* With its QP and its SRQ. */
void rdma_destroy_ep(struct rdma_cm_id *id);
/* Waits until all its events are acknowledged. */
int rdma_destroy_id(struct rdma_cm_id *id);

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
		      int timeout_ms);
int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);

/* Without a PD the library's own; without CQs the QP gets some (id->send_cq, id->recv_cq). */
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr);
int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *qp_init_attr);
void rdma_destroy_qp(struct rdma_cm_id *id);

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);
/* After CONNECT_RESPONSE, with a QP of the program's own. */
int rdma_establish(struct rdma_cm_id *id);
int rdma_listen(struct rdma_cm_id *id, int backlog);
/* Synchronous operation: waits for a request. */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);
int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len);
int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len);
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event);
int rdma_disconnect(struct rdma_cm_id *id);

/* `context` comes back as the event's private data. */
int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context);
int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr);
int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *mc_join_attr,
			   void *context);

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
int rdma_ack_cm_event(struct rdma_cm_event *event);

/* 0 when there is none. */
__be16 rdma_get_src_port(struct rdma_cm_id *id);
__be16 rdma_get_dst_port(struct rdma_cm_id *id);

static inline struct sockaddr *rdma_get_local_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.src_addr;
}

static inline struct sockaddr *rdma_get_peer_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}

/* All devices, open; NULL ends the list, and says that there was an error. */
struct ibv_context **rdma_get_devices(int *num_devices);
void rdma_free_devices(struct ibv_context **list);

const char *rdma_event_str(enum rdma_cm_event_type event);

/* Levels and names of options. */
enum { RDMA_OPTION_ID = 0, RDMA_OPTION_IB = 1 };

enum {
	RDMA_OPTION_ID_TOS = 0,		/* uint8_t */
	RDMA_OPTION_ID_REUSEADDR = 1,	/* int */
	RDMA_OPTION_ID_AFONLY = 2,	/* int */
	RDMA_OPTION_ID_ACK_TIMEOUT = 3, /* uint8_t: 4.096 us times two to this power */
};

enum { RDMA_OPTION_IB_PATH = 1 }; /* struct ibv_path_data[] */

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen);

/* channel == NULL: to synchronous operation. Waits for acknowledgements like rdma_destroy_id(). */
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);

/* 0, -1 with errno, or EAI_* of getaddrinfo(3). */
int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res);
void rdma_freeaddrinfo(struct rdma_addrinfo *res);

/* As rdma_getaddrinfo(). The result comes as ADDRINFO_RESOLVED or, with a status, ADDRINFO_ERROR on
 * the identifier's channel; if the identifier is synchronous, the call waits for it. EBUSY: one has
 * been begun, and its result wasn't taken. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
/* Takes the result; rdma_freeaddrinfo() frees it. ENOENT: there is none. */
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);

/* Writes an event of the type USER on the identifier's channel. `arg` is in the first eight bytes
 * of its `param`. EAGAIN: the program has too many events that it hasn't read. */
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

/* What ibv_modify_qp() needs to move a QP of the program's own to qp_attr->qp_state. */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask);

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece);

#ifdef __cplusplus
}
#endif

#endif /* RDMA_CMA_H */
