/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket activation. See activation.h. The environment is the only state. */
#include "daemon/core/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "client/call.h"
#include "daemon/net/device.h"
#include "proto/cm.h"

#define PARK_NAME "verbena-park"

enum { FIRST_FD = 3, FDS_MAX = 64 };

/* The number of descriptors, from FIRST_FD on, that are meant for this process. */
static int count_given(void)
{
	const char *pid = env_get("LISTEN_PID"), *count = env_get("LISTEN_FDS");
	long n = pid && count && strtol(pid, NULL, 10) == getpid() ? strtol(count, NULL, 10) : 0;

	return n < 0 || n > FDS_MAX ? 0 : (int)n;
}

/* The type of `fd` if it is a listening Unix socket with a file, whose address is written; else
 * -EINVAL. */
static int activation_examine(int fd, struct sockaddr_un *address)
{
	int type = 0, listens = 0, domain = 0;
	socklen_t size = sizeof(int), length = sizeof(*address) - 1;

	memset(address, 0, sizeof(*address));
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || !listens ||
	    domain != AF_UNIX || getsockname(fd, (struct sockaddr *)address, &length) < 0 ||
	    address->sun_path[0] != '/')
		return -EINVAL;
	return type;
}

/* The name of the n-th descriptor of LISTEN_FDNAMES; empty: none. */
static void read_name(const char *names, int n, char *name, size_t size)
{
	for (; names && n; n--) {
		names = strchr(names, ':');
		names = names ? names + 1 : NULL;
	}
	snprintf(name, size, "%.*s", names ? (int)strcspn(names, ":") : 0, names ? names : "");
}

static int *activation_place(struct activation *a, const char *name)
{
	if (!strcmp(name, DEVICE_NODE))
		return &a->uverbs;
	if (!strcmp(name, PROTO_CM_NODE))
		return &a->rdma_cm;
	return !strcmp(name, "ctl") ? &a->ctl : NULL;
}

static int activation_take_one(struct activation *a, int fd, const char *name)
{
	struct sockaddr_un address;

	if (!strcmp(name, PARK_NAME) && a->park < 0) {
		a->park = fd;
		return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
	}
	int type = activation_examine(fd, &address);

	if (type < 0) {
		log_error("descriptor %d was handed in as a socket, but is not a listening Unix "
			  "socket with a file: see ListenSequentialPacket= in verbenad.socket",
			  fd);
		return type;
	}
	char *slash = strrchr(address.sun_path, '/');
	int *place = activation_place(a, name);

	if (!place)
		place = activation_place(a, slash + 1);
	if (!place || *place >= 0 || type != (place == &a->ctl ? SOCK_STREAM : SOCK_SEQPACKET)) {
		log_error("the socket %s that was handed in is not one that is wanted: " DEVICE_NODE
			  ", " PROTO_CM_NODE
			  " (ListenSequentialPacket=) and ctl (ListenStream=), once each",
			  address.sun_path);
		return -EINVAL;
	}
	*slash = 0;
	if (a->dir[0] && strcmp(a->dir, address.sun_path) != 0) {
		log_error("sockets of two directories were handed in, %s and %s; they must be in "
			  "one",
			  a->dir, address.sun_path);
		return -EINVAL;
	}
	strcpy(a->dir, address.sun_path);
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	*place = fd;
	return 0;
}

int activation_take(struct activation *activation)
{
	int count = count_given(), err = 0;
	const char *names = env_get("LISTEN_FDNAMES");

	*activation = (struct activation){.uverbs = -1, .rdma_cm = -1, .ctl = -1, .park = -1};
	for (int i = 0; !err && i < count; i++) {
		char name[64];

		read_name(names, i, name, sizeof(name));
		err = activation_take_one(activation, FIRST_FD + i, name);
	}
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	if (err)
		activation_close(activation);
	return err;
}

void activation_close(struct activation *activation)
{
	if (activation->uverbs >= 0)
		close(activation->uverbs);
	if (activation->rdma_cm >= 0)
		close(activation->rdma_cm);
	if (activation->ctl >= 0)
		close(activation->ctl);
	if (activation->park >= 0)
		close(activation->park);
	activation->uverbs = activation->rdma_cm = activation->ctl = activation->park = -1;
}

/* Sends `state` to the service manager. `stored`: a descriptor to send along; -1: none. */
static void activation_log(const char *state, int stored)
{
	const char *path = env_get("NOTIFY_SOCKET");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t length = path ? strlen(path) : 0;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {(void *)state, strlen(state)};
	struct msghdr m = {.msg_name = &a, .msg_iov = &iov, .msg_iovlen = 1};

	if (!length || length >= sizeof(a.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(a.sun_path, path, length);
	if (*path == '@')
		a.sun_path[0] = 0; /* an abstract name */
	m.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (stored >= 0)
		packet_attach(&m, control, &stored, 1);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || sendmsg(fd, &m, MSG_NOSIGNAL) < 0)
		log_warn("can't tell %s to the service manager at %s: %s", state, path,
			 strerror(errno));
	if (fd >= 0)
		close(fd);
}

void activation_tell(const char *state)
{
	activation_log(state, -1);
}

void activation_store(int fd)
{
	activation_log("FDSTORE=1\nFDNAME=" PARK_NAME, fd);
}

void activation_forget(void)
{
	activation_log("FDSTOREREMOVE=1\nFDNAME=" PARK_NAME, -1);
}
