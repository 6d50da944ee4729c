/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What only the kernel's RDMA netlink says about devices: the index, the number of ports, and the
 * id of the kernel's driver, by which most driver libraries recognise their devices. A kernel
 * without it (before 5.1) leaves the devices as the scan found them.
 *
 * No state: a socket lives for one call. Any thread. All that the kernel sends is checked against
 * the length of its message.
 */
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/sys.h"
#include "kverbs/provider.h"
#include "kverbs/scan.h"

enum { REPLY_BYTES = 16384, WAIT_SECONDS = 5 };

struct reply {
	_Alignas(struct nlmsghdr) uint8_t bytes[REPLY_BYTES];
};

/* A request with room for the attributes of RDMA_NLDEV_CMD_GET_CHARDEV. */
struct request {
	struct nlmsghdr header;
	uint8_t attrs[64];
};

/* ------------------------------------------------------------------ attributes */

/* The attributes of one device. */
struct answer {
	uint32_t index, ports, driver_id;
	char name[IBV_SYSFS_NAME_MAX];
};

static void attr_read(struct answer *answer, unsigned int type, const uint8_t *data, size_t size)
{
	uint32_t number = 0;

	if (size >= sizeof(number))
		memcpy(&number, data, sizeof(number));
	switch (type) {
	case RDMA_NLDEV_ATTR_DEV_INDEX:
		answer->index = number;
		break;
	case RDMA_NLDEV_ATTR_PORT_INDEX:
		answer->ports = number;
		break;
	case RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID:
		answer->driver_id = number;
		break;
	case RDMA_NLDEV_ATTR_DEV_NAME:
		if (size <= sizeof(answer->name) && size && !data[size - 1])
			memcpy(answer->name, data, size);
		break;
	default:
		break;
	}
}

static void attrs_read(struct answer *answer, const uint8_t *bytes, size_t left)
{
	struct nlattr attr;

	memset(answer, 0, sizeof(*answer));
	while (left >= sizeof(attr)) {
		memcpy(&attr, bytes, sizeof(attr));
		if (attr.nla_len < sizeof(attr) || attr.nla_len > left)
			return;
		attr_read(answer, attr.nla_type & NLA_TYPE_MASK, bytes + sizeof(attr),
			  attr.nla_len - sizeof(attr));
		size_t step = NLA_ALIGN(attr.nla_len);

		if (step > left)
			return;
		bytes += step;
		left -= step;
	}
}

static void attr_append(struct request *request, uint16_t type, const void *data, size_t size)
{
	struct nlattr attr = {.nla_len = (uint16_t)(sizeof(attr) + size), .nla_type = type};
	uint8_t *to = (uint8_t *)request + request->header.nlmsg_len;

	memcpy(to, &attr, sizeof(attr));
	memcpy(to + sizeof(attr), data, size);
	request->header.nlmsg_len += NLA_ALIGN(attr.nla_len);
}

/* ------------------------------------------------------------------ messages */

static int nldev_socket_open(void)
{
	const struct timeval limit = {.tv_sec = WAIT_SECONDS};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void nldev_request_begin(struct request *request, unsigned int number, uint16_t flags)
{
	memset(request, 0, sizeof(*request));
	request->header.nlmsg_len = sizeof(request->header);
	request->header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, number);
	request->header.nlmsg_flags = NLM_F_REQUEST | flags;
}

static bool nldev_request_send(int fd, const struct request *request)
{
	return sys_write(fd, request, request->header.nlmsg_len) ==
	       (ssize_t)request->header.nlmsg_len;
}

static void answer_apply(const struct answer *answer, struct list *found)
{
	list_for_each(node, found) {
		struct found_device *device = container_of(node, struct found_device, node);

		if (strcmp(device->name, answer->name))
			continue;
		device->index = (int)answer->index;
		device->ports = answer->ports;
	}
}

/* Handles the messages of one packet. False: it was the last. `device` gets the driver's id if it
 * isn't NULL; else the devices in `found` get what the messages say. */
static bool packet_read(const struct reply *reply, size_t left, struct list *found,
			struct found_device *device)
{
	const uint8_t *bytes = reply->bytes;
	struct nlmsghdr header;
	struct answer answer;
	bool more = true;

	while (left >= sizeof(header)) {
		memcpy(&header, bytes, sizeof(header));
		if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > left)
			return false;
		if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR)
			return false;
		attrs_read(&answer, bytes + sizeof(header), header.nlmsg_len - sizeof(header));
		if (device)
			device->driver_id = answer.driver_id;
		else
			answer_apply(&answer, found);
		more = header.nlmsg_flags & NLM_F_MULTI;
		size_t step = NLMSG_ALIGN(header.nlmsg_len);

		if (step > left)
			break;
		bytes += step;
		left -= step;
	}
	return more;
}

static void replies_read(int fd, struct list *found, struct found_device *device)
{
	struct reply reply;
	ssize_t n;

	do
		n = sys_read(fd, reply.bytes, sizeof(reply.bytes));
	while (n > 0 && packet_read(&reply, (size_t)n, found, device));
}

static void driver_ask(struct found_device *device)
{
	static const char type[] = "uverbs";
	uint32_t index = (uint32_t)device->index;
	struct request request;
	int fd = nldev_socket_open(); /* its own: a late answer can't be taken for another's */

	if (fd < 0)
		return;
	nldev_request_begin(&request, RDMA_NLDEV_CMD_GET_CHARDEV, 0);
	attr_append(&request, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	attr_append(&request, RDMA_NLDEV_ATTR_CHARDEV_TYPE, type, sizeof(type));
	if (nldev_request_send(fd, &request))
		replies_read(fd, NULL, device);
	sys_close(fd);
}

void scan_add_netlink(struct list *found)
{
	struct request request;
	int fd = list_empty(found) ? -1 : nldev_socket_open();

	if (fd < 0)
		return;
	nldev_request_begin(&request, RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	if (nldev_request_send(fd, &request))
		replies_read(fd, found, NULL);
	sys_close(fd);
	list_for_each(node, found) {
		struct found_device *device = container_of(node, struct found_device, node);

		if (device->index >= 0)
			driver_ask(device);
	}
}
