/* SPDX-License-Identifier: BSD-2-Clause */
/* See netns.h. */
#include "netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int err = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static int become_root(void)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWUSER) < 0)
		return -errno;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	int err = write_file("/proc/self/uid_map", map);

	if (!err)
		err = write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return err ? err : write_file("/proc/self/gid_map", map);
}

int netns_enter(int lo)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	if (geteuid()) {
		int err = become_root();

		if (err)
			return err;
	}
	if (unshare(CLONE_NEWNET) < 0)
		return -errno;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = fd < 0 || (lo && ioctl(fd, SIOCSIFFLAGS, &request) < 0) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}
