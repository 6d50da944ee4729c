/* SPDX-License-Identifier: BSD-2-Clause */
/* See interface.h. */
#include "hca/roce/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/env.h"
#include "base/log.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/exec/segment.h"
#include "hca/mem/copy.h"
#include "hca/process/counters.h"
#include "wire/ether.h"

/* One byte more than the longest frame shows that a frame is longer. */
enum { BATCH = 8, ROOM = LIMIT_FRAME + 1, CONTROL = 64 };

/* ------------------------------------------------------------------ opening */

/* Has the socket receive all frames of the interface, but not those that this host sends by it. */
static int packet_socket_bind(int fd, unsigned int ifindex)
{
	const struct sockaddr_ll at = {.sll_family = AF_PACKET,
				       .sll_protocol = htons(ETH_P_ALL),
				       .sll_ifindex = (int)ifindex};
	const struct packet_mreq all = {.mr_ifindex = (int)ifindex, .mr_type = PACKET_MR_PROMISC};
	const int yes = 1;

	if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &yes, sizeof(yes)) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) < 0 ||
	    bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
		return errno;
	return 0;
}

/* 0: there is no such interface. if_nametoindex() would be a cancellation point. */
static unsigned int packet_interface_index(int fd, const char *name)
{
	struct ifreq ask = {0};

	if (strlen(name) >= sizeof(ask.ifr_name))
		return 0;
	memcpy(ask.ifr_name, name, strlen(name));
	return ioctl(fd, SIOCGIFINDEX, &ask) < 0 ? 0 : (unsigned int)ask.ifr_ifindex;
}

static int packet_socket_open(const char *name, int *out)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unsigned int ifindex = fd < 0 ? 0 : packet_interface_index(fd, name);
	int err = fd < 0 ? errno : ifindex ? packet_socket_bind(fd, ifindex) : ENODEV;

	if (err == ENODEV)
		log_warn("VERBENA_RAW_INTERFACE: there is no interface %s", name);
	else if (err == EPERM)
		log_warn("raw packets on the interface %s need the capability CAP_NET_RAW, which "
			 "this process doesn't have; without VERBENA_RAW_INTERFACE raw packet "
			 "queue pairs reach the processes of this host, and need none",
			 name);
	else if (err)
		log_warn("raw packets on the interface %s aren't possible: %s", name,
			 strerror(err));
	if (err && fd >= 0)
		sys_close(fd);
	*out = fd;
	return err;
}

static int interface_open(struct hca *hca, const char *name, uint32_t device)
{
	struct interface *interface = calloc(1, sizeof(*interface));
	uint8_t *buffers = malloc((size_t)BATCH * ROOM);
	int err = interface && buffers ? packet_socket_open(name, &interface->fd) : ENOMEM;

	if (!err && !engine_hear_frames(hca, interface->fd)) {
		err = errno;
		sys_close(interface->fd);
	}
	if (err) {
		free(buffers);
		free(interface);
		return err;
	}
	interface->device = device;
	interface->buffers = buffers;
	/* Frames may have come before the pointer is set: then their edge found no interface. */
	atomic_store_explicit(&interface->ready, true, memory_order_relaxed);
	atomic_store_explicit(&hca->interface, interface, memory_order_release);
	engine_kick(hca);
	return 0;
}

int interface_want(struct hca *hca, uint32_t device)
{
	const char *name = env_get("VERBENA_RAW_INTERFACE");

	if (!name || !*name)
		return 0;
	mutex_take(&hca->lock);
	int err = atomic_load_explicit(&hca->interface, memory_order_acquire)
			  ? 0
			  : interface_open(hca, name, device);

	mutex_give(&hca->lock);
	return err;
}

void interface_leave(struct hca *hca)
{
	struct interface *interface = atomic_load_explicit(&hca->interface, memory_order_acquire);

	if (!interface)
		return;
	sys_close(interface->fd);
	interface->fd = -1;
	atomic_store_explicit(&interface->ready, false, memory_order_relaxed);
}

void interface_unmake(struct hca *hca)
{
	struct interface *interface = atomic_load_explicit(&hca->interface, memory_order_acquire);

	if (!interface)
		return;
	if (interface->fd >= 0)
		sys_close(interface->fd);
	free(interface->buffers);
	free(interface);
}

/* ------------------------------------------------------------------ sending */

static int frame_transmit(struct hca *hca, struct iovec *pieces, int count)
{
	const struct interface *interface =
		atomic_load_explicit(&hca->interface, memory_order_acquire);
	const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};

	if (sys_sendmsg(interface->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	if (errno == EFAULT || errno == EMSGSIZE)
		return -errno;
	counters_rare(hca,
		      errno == EAGAIN || errno == ENOBUFS ? PUB_SENT_NO_ROOM : PUB_SENT_REFUSED);
	return 0;
}

int interface_send(struct hca *hca, const struct iovec *local, int count, uint32_t length,
		   bool checksums)
{
	uint8_t frame[LIMIT_FRAME];
	struct iovec whole = {frame, length}, pieces[LIMIT_SGE];

	if (!checksums) {
		memcpy(pieces, local, (size_t)count * sizeof(pieces[0]));
		return frame_transmit(hca, pieces, count);
	}
	if (!copy_gather(frame, local, count, 0, length))
		return -EFAULT;
	ether_checksums_fill(frame, length);
	return frame_transmit(hca, &whole, 1);
}

/* ------------------------------------------------------------------ receiving */

void interface_heard(struct hca *hca)
{
	struct interface *interface = atomic_load_explicit(&hca->interface, memory_order_acquire);

	if (interface) /* else it is being opened, and begins ready */
		atomic_store_explicit(&interface->ready, true, memory_order_relaxed);
}

static const struct tpacket_auxdata *auxdata_of(struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
		if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA &&
		    c->cmsg_len >= CMSG_LEN(sizeof(struct tpacket_auxdata)))
			return (const struct tpacket_auxdata *)CMSG_DATA(c);
	return NULL;
}

/* The kernel has taken the VLAN tag out: puts it in again. Returns the frame's length. */
static uint32_t tag_restore(uint8_t *frame, uint32_t length, const struct tpacket_auxdata *aux)
{
	enum { ADDRESSES = 12 };

	if (!(aux->tp_status & TP_STATUS_VLAN_VALID) || length < ETHER_HEADER ||
	    length + ETHER_TAG > LIMIT_FRAME)
		return length;
	uint16_t type =
		aux->tp_status & TP_STATUS_VLAN_TPID_VALID ? aux->tp_vlan_tpid : ETHERTYPE_VLAN;

	memmove(frame + ADDRESSES + ETHER_TAG, frame + ADDRESSES, length - ADDRESSES);
	frame[ADDRESSES] = (uint8_t)(type >> 8);
	frame[ADDRESSES + 1] = (uint8_t)type;
	frame[ADDRESSES + 2] = (uint8_t)(aux->tp_vlan_tci >> 8);
	frame[ADDRESSES + 3] = (uint8_t)aux->tp_vlan_tci;
	return length + ETHER_TAG;
}

static void interface_take(struct hca *hca, const struct interface *interface,
			   struct mmsghdr *message, uint8_t *frame) REQUIRES(hca->engine)
{
	const struct tpacket_auxdata *aux = auxdata_of(&message->msg_hdr);
	uint32_t length = message->msg_len;

	if (length > LIMIT_FRAME) {
		counters_rare(hca, PUB_CAME_TOO_LONG);
		return;
	}
	if (aux)
		length = tag_restore(frame, length, aux);
	/* A frame that never was on a network: its sender left the checksum to a card. */
	if (aux && aux->tp_status & TP_STATUS_CSUMNOTREADY)
		ether_checksums_fill(frame, length);
	segment_take_outer(hca, interface->device, frame, length);
}

unsigned int interface_pass(struct hca *hca, struct interface *interface)
{
	_Alignas(struct cmsghdr) uint8_t control[BATCH][CONTROL];
	struct mmsghdr messages[BATCH] = {0};
	struct iovec pieces[BATCH];

	for (int i = 0; i < BATCH; i++) {
		pieces[i] = (struct iovec){interface->buffers + (size_t)i * ROOM, ROOM};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i],
						      .msg_iovlen = 1,
						      .msg_control = control[i],
						      .msg_controllen = CONTROL};
	}
	/* Before the look: an edge that comes meanwhile sets it again. */
	atomic_store_explicit(&interface->ready, false, memory_order_relaxed);
	int n = sys_recvmmsg(interface->fd, messages, BATCH, MSG_DONTWAIT, NULL);

	for (int i = 0; i < n; i++)
		interface_take(hca, interface, &messages[i], pieces[i].iov_base);
	if (n > 0) /* there may be more: an edge comes only for new ones */
		atomic_store_explicit(&interface->ready, true, memory_order_relaxed);
	return n > 0 ? (unsigned int)n : 0;
}
