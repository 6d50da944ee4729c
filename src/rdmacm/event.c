/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event channels and events. See rdmacm.h.
 *
 * A channel's descriptor is the socket on which the daemon sends one packet for each event, so that
 * poll(), epoll and O_NONBLOCK behave as on any socket. The thread that reads a packet handles its
 * event; several threads may wait on one channel. Some events are processed before the program sees
 * them: after a resolution the results are queried, a connection request becomes an id, a response
 * moves the QP on.
 *
 * Owns each struct event until the program acknowledges it.
 *
 * A program may destroy a channel while another thread waits on it or is about to (rping does both
 * when it ends). As in the kernel, a thread that waits keeps waiting, since programs leave such a
 * thread behind and would take a returned error for a failure; a thread that comes later gets
 * EBADF. So the descriptor, and the daemon's channel, exist until the last reader has left, and the
 * memory of the latest channels that ended is kept: a late call finds there that the channel is
 * destroyed, and neither reads another file's descriptor nor changes memory of the program.
 */
#include "rdmacm/rdmacm.h"

#include <rdma/later.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/marshall.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/sys.h"

/* ------------------------------------------------------------------ channels */

enum { ENDED_KEPT = 64 };

struct mutex channels_lock = MUTEX_INITIALIZER(RANK_RDMACM_CHANNELS);
/* The latest channels that ended: a ring. */
static struct channel *ended[ENDED_KEPT] GUARDED_BY(channels_lock);
static unsigned int ended_next GUARDED_BY(channels_lock);
uint32_t rdmacm_forks;

FORK_KEEP(channels_lock);

static void channels_after_fork_in_child(void)
{
	rdmacm_forks++;
}

__attribute__((constructor)) static void channels_watch_forks(void)
{
	pthread_atfork(NULL, NULL, channels_after_fork_in_child);
}

/* A child has none of its parent's threads. */
static unsigned int *channel_readers(struct channel *channel) REQUIRES(channels_lock)
{
	if (channel->readers_fork != rdmacm_forks) {
		channel->readers_fork = rdmacm_forks;
		channel->readers = 0;
	}
	return &channel->readers;
}

int event_channel_create(struct channel **out)
{
	struct proto_cm_create_channel_resp resp;
	struct channel *channel = calloc(1, sizeof(*channel));
	int err = channel ? cm_conn_open(&channel->generation) : -ENOMEM;

	if (!err)
		err = cm_call(channel->generation, PROTO_CM_CREATE_CHANNEL, NULL, 0, &resp,
			      sizeof(resp), &channel->pub.fd);
	if (!err && channel->pub.fd < 0)
		err = -EPROTO;
	if (err) {
		free(channel);
		return err;
	}
	channel->handle = resp.channel;
	*out = channel;
	return 0;
}

/* The channel is destroyed and has no reader. */
static void channel_end(struct channel *channel)
{
	struct proto_cm_channel body = {.channel = channel->handle};

	cm_call(channel->generation, PROTO_CM_DESTROY_CHANNEL, &body, sizeof(body), NULL, 0, NULL);
	sys_close(channel->pub.fd);
	channel->pub.fd = -1;
	mutex_take(&channels_lock);
	unsigned int place = ended_next;
	struct channel *oldest = ended[place];

	ended_next = (place + 1) % ENDED_KEPT; /* first, for a child: the place is used once */
	FORK_POINT();
	ended[place] = channel;
	mutex_give(&channels_lock);
	free(oldest);
}

void event_channel_destroy(struct channel *channel)
{
	mutex_take(&channels_lock);
	bool ends = !channel->destroyed && !*channel_readers(channel);

	channel->destroyed = true;
	mutex_give(&channels_lock);
	if (ends)
		channel_end(channel);
}

static bool reader_enters(struct channel *channel)
{
	mutex_take(&channels_lock);
	bool exists = !channel->destroyed;

	*channel_readers(channel) += exists;
	mutex_give(&channels_lock);
	return exists;
}

static void reader_leaves(void *arg)
{
	struct channel *channel = arg;

	mutex_take(&channels_lock);
	bool ends = !--*channel_readers(channel) && channel->destroyed;

	mutex_give(&channels_lock);
	if (ends)
		channel_end(channel);
}

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *channel = NULL;

	return cm_result(event_channel_create(&channel)) ? NULL : &channel->pub;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	event_channel_destroy(event_channel_of(channel));
}

/* ------------------------------------------------------------------ parameters */

static void take_private_data(struct event *event, const uint8_t *data, uint8_t size)
{
	memcpy(event->private_data, data, size);
}

static void take_conn(struct event *event, const struct rdma_ucm_conn_param *in)
{
	take_private_data(event, in->private_data, in->private_data_len);
	event->pub.param.conn = (struct rdma_conn_param){
		.private_data = in->private_data_len ? event->private_data : NULL,
		.private_data_len = in->private_data_len,
		.responder_resources = in->responder_resources,
		.initiator_depth = in->initiator_depth,
		.flow_control = in->flow_control,
		.retry_count = in->retry_count,
		.rnr_retry_count = in->rnr_retry_count,
		.srq = in->srq,
		.qp_num = in->qp_num,
	};
}

static void take_ud(struct event *event, const struct rdma_ucm_ud_param *in)
{
	take_private_data(event, in->private_data, in->private_data_len);
	event->pub.param.ud = (struct rdma_ud_param){
		.private_data = in->private_data_len ? event->private_data : NULL,
		.private_data_len = in->private_data_len,
		.qp_num = in->qp_num,
		.qkey = in->qkey,
	};
	ibv_copy_ah_attr_from_kern(&event->pub.param.ud.ah_attr, &in->ah_attr);
}

static void take_param(struct event *event, const struct id *id,
		       const struct rdma_ucm_event_resp *resp)
{
	/* Copied first: the union is packed, so it may be less aligned than its members require. */
	if (id->pub.qp_type == IBV_QPT_UD)
		take_ud(event, &resp->param.ud);
	else
		take_conn(event, &resp->param.conn);
}

/* An event that this process has written: its status may be any number. */
static void take_written(struct event *event, const struct rdma_ucm_event_resp *resp)
{
	event->pub.status = (int)resp->status;
	memcpy(&event->pub.param, resp->param.conn.private_data, sizeof(uint64_t));
}

/* ------------------------------------------------------------------ one event */

/* If a query for the results fails, the event becomes an error. */
static void event_resolved(struct event *event, int err, enum rdma_cm_event_type failed)
{
	if (!err)
		return;
	event->pub.event = failed;
	event->pub.status = err;
}

static void reject_unknown(struct id *id)
{
	struct rdma_ucm_reject body = {.id = id->handle};

	cm_call(id->generation, RDMA_USER_CM_CMD_REJECT, &body, sizeof(body), NULL, 0, NULL);
}

/* Makes an id for the request. A request that can't be passed to the program is rejected on its
 * behalf. */
static bool event_take_request(struct event *event, struct id *listener,
			       const struct proto_cm_event *packet)
{
	const struct rdma_ucm_event_resp *resp = &packet->event;
	struct id *id;
	int err = id_adopt(listener, resp->id, &id);

	if (err) {
		struct rdma_ucm_destroy_id body = {.id = resp->id};
		struct rdma_ucm_destroy_id_resp ignored;

		cm_call(listener->generation, RDMA_USER_CM_CMD_DESTROY_ID, &body, sizeof(body),
			&ignored, sizeof(ignored), NULL);
		return false;
	}
	err = id_learn_addr(id, packet);
	if (!err)
		err = id_learn_path(id, packet);
	if (err) {
		/* This fails if the peer has given up. */
		log_info("rdma_cm: a connection request is refused: %s", strerror(-err));
		reject_unknown(id);
		id_destroy(id);
		return false;
	}
	event->pub.id = &id->pub;
	event->pub.listen_id = &listener->pub;
	qp_learn(id, packet);
	id->remote_ece = resp->ece;
	if (id->pub.qp_type != IBV_QPT_UD) {
		id->initiator_depth = resp->param.conn.initiator_depth;
		id->responder_resources = resp->param.conn.responder_resources;
	}
	return true;
}

/* False: the connection ended meanwhile, and another event reports that. */
static bool event_responded(struct event *event, struct id *id)
{
	int err = connect_finish(id);

	if (err == CONNECT_NO_QP)
		return true; /* rdma_establish() */
	if (err == -EALREADY)
		return false;
	event->pub.event = err ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
	__atomic_store_n(&id->established, !err, __ATOMIC_RELAXED);
	event->pub.status = err;
	return true;
}

/* False: the program doesn't get the event. */
static bool take_id_event(struct event *event, struct id *id, const struct proto_cm_event *packet)
{
	const struct rdma_ucm_event_resp *resp = &packet->event;

	event->pub.id = &id->pub;
	if (resp->event >= PROTO_CM_WRITTEN_FIRST && resp->event <= PROTO_CM_WRITTEN_LAST) {
		take_written(event, resp);
		return true;
	}
	take_param(event, id, resp);
	switch (event->pub.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		event_resolved(event, id_learn_addr(id, packet), RDMA_CM_EVENT_ADDR_ERROR);
		qp_learn(id, packet);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		event_resolved(event, id_learn_path(id, packet), RDMA_CM_EVENT_ROUTE_ERROR);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return event_take_request(event, id, packet);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		qp_learn(id, packet);
		id->remote_ece = resp->ece;
		return event_responded(event, id);
	case RDMA_CM_EVENT_ESTABLISHED:
		__atomic_store_n(&id->established, id->pub.qp_type != IBV_QPT_UD, __ATOMIC_RELAXED);
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		qp_of_connection_to_error(id);
		break;
	default:
		break;
	}
	return true;
}

static bool is_of_group(const struct event *event)
{
	return event->pub.event == RDMA_CM_EVENT_MULTICAST_JOIN ||
	       event->pub.event == RDMA_CM_EVENT_MULTICAST_ERROR;
}

static bool take_join_event(struct event *event, struct join *join,
			    const struct rdma_ucm_event_resp *resp)
{
	event->pub.id = &join->id->pub;
	take_ud(event, &resp->param.ud);
	if (event->pub.event == RDMA_CM_EVENT_MULTICAST_JOIN)
		event_resolved(event, join_attach(join, &event->pub.param.ud.ah_attr),
			       RDMA_CM_EVENT_MULTICAST_ERROR);
	event->pub.param.ud.private_data = join->context;
	event->pub.param.ud.private_data_len = 0;
	return true;
}

/* Whether the event's object is on this channel; it may have been migrated meanwhile. */
static bool is_of(const struct object *object, struct channel *channel)
{
	const struct id *id = object->kind == OBJECT_ID
				      ? container_of(object, struct id, object)
				      : container_of(object, struct join, object)->id;

	return __atomic_load_n(&id->pub.channel, __ATOMIC_ACQUIRE) == &channel->pub;
}

/* The event's status: a negative errno, or the peer's reject reason. */
static int status_of(const struct rdma_ucm_event_resp *resp)
{
	enum { ERRNO_MAX = 4095, REASON_MAX = UINT16_MAX };
	int status = (int)resp->status;

	return status >= -ERRNO_MAX && status <= REASON_MAX ? status : -EPROTO;
}

/* 1: `out` is for the program. 0: the event is dropped. */
static int event_take(struct channel *channel, const struct proto_cm_event *packet,
		      struct event **out)
{
	const struct rdma_ucm_event_resp *resp = &packet->event;
	struct object *object = registry_get(resp->uid);

	if (!object)
		return 0;
	if (!is_of(object, channel)) {
		registry_put(object);
		return 0;
	}
	struct event *event = calloc(1, sizeof(*event));
	bool wanted = false;

	if (event) {
		event->owner = object;
		event->pub.event = (enum rdma_cm_event_type)resp->event;
		event->pub.status = status_of(resp);
		/* A correct daemon never sends an event of the wrong kind. */
		if ((object->kind == OBJECT_ID) == is_of_group(event))
			wanted = false;
		else if (object->kind == OBJECT_ID)
			wanted = take_id_event(event, container_of(object, struct id, object),
					       packet);
		else
			wanted = take_join_event(event, container_of(object, struct join, object),
						 resp);
	}
	if (!wanted) {
		registry_put(object);
		free(event);
		return event ? 0 : -ENOMEM;
	}
	*out = event;
	return 1;
}

static int channel_next_event(struct channel *channel, struct event **out)
{
	for (;;) {
		struct proto_cm_event packet;
		ssize_t n = recv(channel->pub.fd, &packet, sizeof(packet), 0);

		if (n < 0)
			return errno == ECONNRESET ? -ENODEV : -errno;
		if (n == 0)
			return -ENODEV; /* the daemon ended */
		if (n != sizeof(packet))
			return -EPROTO;
		int taken = event_take(channel, &packet, out);

		if (taken)
			return taken < 0 ? taken : 0;
	}
}

int event_get(struct channel *channel, struct event **out)
{
	int err;

	if (!reader_enters(channel))
		return -EBADF;
	/* The thread may be cancelled while it waits. */
	pthread_cleanup_push(reader_leaves, channel);
	err = channel_next_event(channel, out);
	pthread_cleanup_pop(1);
	return err;
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct event *got = NULL;

	if (!event)
		return cm_result(-EINVAL);
	int err = event_get(event_channel_of(channel), &got);

	if (!err)
		*event = &got->pub;
	return cm_result(err);
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *pub)
{
	if (!pub)
		return cm_result(-EINVAL);
	struct event *event = container_of(pub, struct event, pub);

	registry_put(event->owner);
	free(event);
	return 0;
}

EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
#define NAME(event) [event] = #event
		NAME(RDMA_CM_EVENT_ADDR_RESOLVED),
		NAME(RDMA_CM_EVENT_ADDR_ERROR),
		NAME(RDMA_CM_EVENT_ROUTE_RESOLVED),
		NAME(RDMA_CM_EVENT_ROUTE_ERROR),
		NAME(RDMA_CM_EVENT_CONNECT_REQUEST),
		NAME(RDMA_CM_EVENT_CONNECT_RESPONSE),
		NAME(RDMA_CM_EVENT_CONNECT_ERROR),
		NAME(RDMA_CM_EVENT_UNREACHABLE),
		NAME(RDMA_CM_EVENT_REJECTED),
		NAME(RDMA_CM_EVENT_ESTABLISHED),
		NAME(RDMA_CM_EVENT_DISCONNECTED),
		NAME(RDMA_CM_EVENT_DEVICE_REMOVAL),
		NAME(RDMA_CM_EVENT_MULTICAST_JOIN),
		NAME(RDMA_CM_EVENT_MULTICAST_ERROR),
		NAME(RDMA_CM_EVENT_ADDR_CHANGE),
		NAME(RDMA_CM_EVENT_TIMEWAIT_EXIT),
		NAME(RDMA_CM_EVENT_ADDRINFO_RESOLVED),
		NAME(RDMA_CM_EVENT_ADDRINFO_ERROR),
		NAME(RDMA_CM_EVENT_USER),
#undef NAME
	};

	if ((unsigned int)event >= sizeof(names) / sizeof(names[0]))
		return "UNKNOWN EVENT";
	return names[event];
}
