/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: a daemon with arbitrary answers to a program's connection library. Its replies are
 * valid, nearly valid, or any bytes, come with descriptors or without, or not at all; it sends
 * events of any kind for any id, and disconnects. The program makes all calls in any order.
 *
 * Each call must return 0, or -1 with an errno; each event must name an existing id, and have
 * readable private data. When the program has ended all its objects, no queue pair, descriptor or
 * memory is left.
 *
 * There is one thread: the daemon acts while the library sends its request. No call blocks, because
 * the program's ends of the channels, and of the connection, are non-blocking.
 *
 * Input: actions of the program, a byte each, then their parameters, and the daemon's behaviour for
 * each request.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "client/call.h"
#include "client/start.h"
#include "input.h"
#include "rdmacm/rdmacm.h"

enum { IDS = 8, CHANNELS = 4, UIDS = 16, EVENTS_KEPT = 4, FDS = 256, REPLY_MAX = 1024 };

static struct input *in;

/* ------------------------------------------------------------------ verbs: they always work */

static struct ibv_device device;
static struct ibv_device *device_list[] = {&device, NULL};
static struct ibv_context context = {.device = &device};
static struct ibv_pd domain = {.context = &context};
static const __be64 device_guid = 0x0102030405060708;
static int made; /* created and not destroyed */

struct ibv_device **ibv_get_device_list(int *count)
{
	if (count)
		*count = 1;
	return device_list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	MUST(list == device_list);
}

__be64 ibv_get_device_guid(struct ibv_device *of)
{
	MUST(of == &device);
	return device_guid;
}

struct ibv_context *ibv_open_device(struct ibv_device *of)
{
	MUST(of == &device);
	return &context;
}

int ibv_close_device(struct ibv_context *of)
{
	MUST(of == &context);
	return 0;
}

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *attr)
{
	MUST(of == &context);
	*attr = (struct ibv_device_attr){.max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16};
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of)
{
	MUST(of == &context);
	return &domain;
}

#define MAKE(type, name, ...)                                     \
	struct type *name(__VA_ARGS__)                            \
	{                                                         \
		struct type *object = calloc(1, sizeof(*object)); \
                                                                  \
		MUST(object);                                     \
		made++;                                           \
		object->context = &context;                       \
		return object;                                    \
	}
#define END(type, name)               \
	int name(struct type *object) \
	{                             \
		free(object);         \
		made--;               \
		return 0;             \
	}

MAKE(ibv_qp, ibv_create_qp, struct ibv_pd *pd __attribute__((unused)),
     struct ibv_qp_init_attr *init __attribute__((unused)))
MAKE(ibv_srq, ibv_create_srq, struct ibv_pd *pd __attribute__((unused)),
     struct ibv_srq_init_attr *init __attribute__((unused)))
MAKE(ibv_comp_channel, ibv_create_comp_channel, struct ibv_context *of __attribute__((unused)))
MAKE(ibv_cq, ibv_create_cq, struct ibv_context *of __attribute__((unused)),
     int entries __attribute__((unused)), void *user __attribute__((unused)),
     struct ibv_comp_channel *channel __attribute__((unused)), int vector __attribute__((unused)))
END(ibv_qp, ibv_destroy_qp)
END(ibv_srq, ibv_destroy_srq)
END(ibv_comp_channel, ibv_destroy_comp_channel)
END(ibv_cq, ibv_destroy_cq)

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	MUST(srq->context == &context);
	*attr = (struct ibv_srq_attr){.max_wr = 16, .max_sge = 1};
	return 0;
}

/* Fails for invalid numbers as the soft HCA does. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)mask;
	qp->state = attr->qp_state;
	return attr->qp_state > IBV_QPS_ERR ? EINVAL : 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	return EOPNOTSUPP;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return 0;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return 0;
}

void fork_keep(struct mutex *mutex, void (*mend)(void))
{
	(void)mutex, (void)mend;
}

/* ------------------------------------------------------------------ the daemon */

static struct {
	int fd; /* -1: no connection, or the daemon has closed it */
	int channels[CHANNELS];
	uint64_t uids[UIDS];
	uint32_t uid_count, handles;
} evil;

/* Keeps one end for the daemon and returns the other, which doesn't block. */
static int make_ends(int *own)
{
	int pair[2];

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	*own = pair[0];
	return pair[1];
}

void start_pause(int tries)
{
	(void)tries;
}

int start_connect(const char *node)
{
	MUST(!strcmp(node, PROTO_CM_NODE));
	if (evil.fd >= 0)
		close(evil.fd);
	return make_ends(&evil.fd);
}

static void hang_up(void)
{
	if (evil.fd >= 0)
		close(evil.fd);
	evil.fd = -1;
}

/* Records the library's numbers of its objects, from the commands that contain them. */
static void learn_uid(const struct rdma_ucm_cmd_hdr *header, const void *body, size_t size)
{
	uint64_t uid;

	if (header->cmd != RDMA_USER_CM_CMD_CREATE_ID && header->cmd != RDMA_USER_CM_CMD_ACCEPT &&
	    header->cmd != RDMA_USER_CM_CMD_JOIN_MCAST)
		return;
	_Static_assert(offsetof(struct rdma_ucm_create_id, uid) == 0, "the first");
	_Static_assert(offsetof(struct rdma_ucm_accept, uid) == 0, "the first");
	if (size < sizeof(uid))
		return;
	memcpy(&uid,
	       (const uint8_t *)body + (header->cmd == RDMA_USER_CM_CMD_JOIN_MCAST
						? offsetof(struct rdma_ucm_join_mcast, uid)
						: 0),
	       sizeof(uid));
	evil.uids[evil.uid_count++ % UIDS] = uid;
}

static void put_address(struct __kernel_sockaddr_storage *to, uint16_t *size)
{
	const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = 1};

	*size = sizeof(four);
	memcpy(to, &four, sizeof(four));
}

static void put_addr(struct rdma_ucm_query_addr_resp *addr)
{
	addr->node_guid = device_guid;
	addr->port_num = 1;
	put_address(&addr->src_addr, &addr->src_size);
	put_address(&addr->dst_addr, &addr->dst_size);
}

/* Replaces some bytes of a valid reply. */
static void spoil(void *bytes, size_t size)
{
	for (uint8_t n = input_u8(in) % 8; n; n--)
		((uint8_t *)bytes)[input_u32(in) % size] = input_u8(in);
}

/* Makes the reply of a correct daemon. */
static void answer(const struct rdma_ucm_cmd_hdr *header, uint8_t *reply)
{
	uint32_t *word = (uint32_t *)(reply + sizeof(struct proto_reply));

	switch (header->cmd) {
	case RDMA_USER_CM_CMD_QUERY:
		if (header->out == sizeof(struct rdma_ucm_query_addr_resp))
			put_addr((void *)word);
		else
			*word = 1; /* paths */
		break;
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		((struct ib_uverbs_qp_attr *)word)->qp_state = input_u8(in) % 8;
		break;
	case RDMA_USER_CM_CMD_CREATE_ID:
	case RDMA_USER_CM_CMD_JOIN_MCAST:
	case PROTO_CM_CREATE_CHANNEL:
		*word = ++evil.handles;
		break;
	default:
		break;
	}
}

static void send_event(void)
{
	struct {
		struct proto_cm_event event;
		uint8_t more[16];
	} packet = {0};
	struct proto_cm_event *e = &packet.event;
	int to = evil.channels[input_u8(in) % CHANNELS];
	uint8_t what = input_u8(in), size = input_u8(in);

	e->event.uid = evil.uids[input_u8(in) % UIDS];
	e->event.id = what < 128 ? evil.handles + 1 : input_u32(in);
	e->event.event = what % 20;
	e->event.status = what >= 200 ? input_u32(in) : 0;
	e->known = input_u8(in);
	put_addr(&e->addr);
	e->init.qp_state = IBV_QPS_INIT;
	e->rtr.qp_state = IBV_QPS_RTR;
	e->rts.qp_state = IBV_QPS_RTS;
	spoil(e, sizeof(*e));
	size_t bytes = size < 16 ? sizeof(*e) - size : size < 32 ? sizeof(packet) : sizeof(*e);

	if (to >= 0)
		(void)!send(to, &packet, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Adds descriptors to a reply. Correct: the channel's. */
static unsigned int put_fds(const struct rdma_ucm_cmd_hdr *header, uint8_t how, int *fds)
{
	unsigned int count = header->cmd == PROTO_CM_CREATE_CHANNEL;

	if (how >= 240)
		count = how % (PROTO_MAX_FDS + 1);
	for (unsigned int i = 0; i < count; i++) {
		int *own = &evil.channels[input_u8(in) % CHANNELS];

		if (*own >= 0)
			close(*own);
		fds[i] = make_ends(own);
	}
	return count;
}

static void reply_to(const struct rdma_ucm_cmd_hdr *header)
{
	_Alignas(8) uint8_t reply[REPLY_MAX] = {0};
	struct proto_reply head = {0};
	size_t size = sizeof(head) + header->out;
	uint8_t how = input_u8(in);
	int fds[PROTO_MAX_FDS];

	if (how >= 250) {
		if (how == 255)
			hang_up();
		return; /* no reply */
	}
	answer(header, reply);
	if (how >= 180)
		spoil(reply + sizeof(head), sizeof(reply) - sizeof(head));
	if (how >= 200 && how < 220)
		head.result = (int32_t)input_u32(in);
	if (how >= 220)
		size = input_u32(in) % sizeof(reply);
	memcpy(reply, &head, sizeof(head));
	unsigned int count = put_fds(header, how, fds);

	packet_send(evil.fd, reply, size, fds, count, MSG_DONTWAIT);
	for (unsigned int i = 0; i < count; i++)
		close(fds[i]);
}

/* The library's sendmsg(): the daemon has answered when it returns. */
ssize_t fuzz_sendmsg(int fd, const struct msghdr *message, int flags)
{
	_Alignas(8) uint8_t packet[PROTO_CM_MAX_MESSAGE];
	struct rdma_ucm_cmd_hdr header;
	ssize_t sent = sendmsg(fd, message, flags);

	if (sent < 0 || evil.fd < 0)
		return sent;
	ssize_t n = recv(evil.fd, packet, sizeof(packet), MSG_DONTWAIT);

	if (n < (ssize_t)sizeof(header))
		return sent; /* the daemon's own, to the library */
	memcpy(&header, packet, sizeof(header));
	MUST((size_t)n == sizeof(header) + header.in);
	MUST(header.out <= REPLY_MAX - sizeof(struct proto_reply));
	learn_uid(&header, packet + sizeof(header), (size_t)n - sizeof(header));
	for (uint8_t events = input_u8(in) % 4; events; events--)
		send_event();
	reply_to(&header);
	return sent;
}

/* ------------------------------------------------------------------ the program */

static struct rdma_event_channel *channels[CHANNELS];
static struct rdma_cm_id *ids[IDS];
static struct rdma_cm_event *events[EVENTS_KEPT];
static uint32_t event_count;
static volatile unsigned int seen;

/* Checks that the call succeeded, or failed with an errno. */
static int called(int result)
{
	MUST(result == 0 || (result == -1 && errno > 0));
	return result;
}

static void ack_all(void)
{
	while (event_count)
		called(rdma_ack_cm_event(events[--event_count]));
}

static void take_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	if (event_count == EVENTS_KEPT)
		ack_all();
	if (called(rdma_get_cm_event(channel, &event)))
		return;
	MUST(event->id);
	events[event_count++] = event;
	const struct rdma_conn_param *conn = &event->param.conn;
	const uint8_t *data = conn->private_data;

	if (event->event == RDMA_CM_EVENT_MULTICAST_JOIN ||
	    event->event == RDMA_CM_EVENT_MULTICAST_ERROR)
		return; /* it is the join's context there */
	for (unsigned int i = 0; i < conn->private_data_len; i++)
		seen += data[i]; /* reads every byte */
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST || !event->listen_id)
		return;
	struct rdma_cm_id *id = event->id;

	for (int i = 0; i < IDS; i++)
		if (!ids[i]) {
			ids[i] = id;
			return;
		}
	ack_all();
	called(rdma_destroy_id(id));
}

static void end_id(struct rdma_cm_id **id)
{
	if (!*id)
		return;
	ack_all();
	rdma_destroy_qp(*id);
	called(rdma_destroy_id(*id));
	*id = NULL;
}

static void act_create(struct rdma_cm_id **id)
{
	static const enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB};
	enum rdma_port_space space = spaces[input_u8(in) % 3];
	struct rdma_event_channel **channel = &channels[input_u8(in) % CHANNELS];
	bool alone = input_u8(in) > 200;

	if (*id)
		return;
	if (!*channel)
		*channel = rdma_create_event_channel();
	if ((*channel || alone) && called(rdma_create_id(alone ? NULL : *channel, id, NULL, space)))
		*id = NULL;
}

static void act_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.qp_type = id->qp_type};

	called(rdma_create_qp(id, NULL, &init));
}

static void act_get_request(struct rdma_cm_id *id)
{
	struct rdma_cm_id *got;

	if (called(rdma_get_request(id, &got)))
		return;
	/* The event belongs to the listener, whose end would wait for its acknowledgement. */
	called(rdma_ack_cm_event(got->event));
	got->event = NULL;
	for (int i = 0; i < IDS; i++)
		if (!ids[i]) {
			ids[i] = got;
			return;
		}
	rdma_destroy_qp(got);
	called(rdma_destroy_id(got));
}

static void act_on(struct rdma_cm_id *id, uint8_t what)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = 7};
	struct sockaddr *any = (struct sockaddr *)&address;
	struct rdma_conn_param param = {.retry_count = 7};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct rdma_event_channel *channel = channels[input_u8(in) % CHANNELS];
	uint8_t value = 1;
	int mask;

	switch (what) {
	case 0:
		called(rdma_bind_addr(id, any));
		break;
	case 1:
		called(rdma_resolve_addr(id, NULL, any, 1));
		break;
	case 2:
		called(rdma_resolve_route(id, 1));
		break;
	case 3:
		act_qp(id);
		break;
	case 4:
		called(rdma_connect(id, &param));
		break;
	case 5:
		called(rdma_listen(id, 1));
		break;
	case 6:
		called(rdma_accept(id, &param));
		break;
	case 7:
		called(rdma_reject(id, "no", 2));
		break;
	case 8:
		called(rdma_disconnect(id));
		break;
	case 9:
		called(rdma_init_qp_attr(id, &attr, &mask));
		break;
	case 10:
		called(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 1));
		break;
	case 11:
		ack_all();
		if (channel)
			called(rdma_migrate_id(id, channel));
		break;
	case 12:
		called(rdma_establish(id));
		break;
	case 13:
		called(rdma_join_multicast(id, any, NULL));
		break;
	case 14:
		ack_all();
		called(rdma_leave_multicast(id, any));
		break;
	default:
		act_get_request(id);
	}
}

static void act(void)
{
	uint8_t what = input_u8(in);
	struct rdma_cm_id **id = &ids[input_u8(in) % IDS];
	struct rdma_event_channel *channel = channels[input_u8(in) % CHANNELS];

	if (what < 40)
		act_create(id);
	else if (what < 100 && channel)
		take_event(channel);
	else if (what < 120)
		end_id(id);
	else if (*id)
		act_on(*id, what % 16);
}

/* ------------------------------------------------------------------ one input */

static unsigned int descriptors(void)
{
	unsigned int count = 0;

	for (int fd = 0; fd < FDS; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void end_all(void)
{
	ack_all();
	for (int i = 0; i < IDS; i++)
		end_id(&ids[i]);
	for (int i = 0; i < CHANNELS; i++) {
		if (channels[i])
			rdma_destroy_event_channel(channels[i]);
		channels[i] = NULL;
	}
	/* Until the library has noticed that the daemon is gone, and has no connection any more. */
	for (struct rdma_event_channel *c; hang_up(), c = rdma_create_event_channel();)
		rdma_destroy_event_channel(c);
	for (int i = 0; i < CHANNELS; i++) {
		if (evil.channels[i] >= 0)
			close(evil.channels[i]);
		evil.channels[i] = -1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, data + size};
	static bool began;

	if (!began)
		log_open(open("/dev/null", O_WRONLY | O_CLOEXEC), "fuzz");
	began = true;
	in = &input;
	evil.fd = -1;
	evil.uid_count = evil.handles = 0;
	memset(evil.uids, 0, sizeof(evil.uids));
	for (int i = 0; i < CHANNELS; i++)
		evil.channels[i] = -1;
	unsigned int before = descriptors();

	while (input_left(in))
		act();
	end_all();
	MUST(!made);
	MUST(descriptors() == before);
	return 0;
}
