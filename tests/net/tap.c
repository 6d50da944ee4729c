/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TAP devices, see tap.h. Making one requires entering its namespace for a moment, so the program
 * must have one thread then.
 */
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Linux 6.2; Debian 12's headers are older. */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

/* Opens the file of the device's namespace; -1 with errno. */
static int space_open(const char *place, size_t length)
{
	char path[256];

	if (length == 0)
		return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (strspn(place, "0123456789") == length)
		snprintf(path, sizeof(path), "/proc/%.*s/ns/net", (int)length, place);
	else
		snprintf(path, sizeof(path), "%.*s", (int)length, place);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int device_make(const char *name, bool offloads, const char **what)
{
	unsigned int wanted = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO4 | TUN_F_USO6;
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd;

	*what = "/dev/net/tun";
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -1;
	*what = "making the device";
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &request) < 0)
		goto out_close;
	*what = "its offloads (UDP segmentation needs Linux 6.2)";
	if (ioctl(fd, TUNSETOFFLOAD, offloads ? wanted : 0) < 0)
		goto out_close;
	return fd;
out_close:
	close(fd);
	return -1;
}

int tap_open(const char *place, bool offloads, const char **what)
{
	const char *colon = strrchr(place, ':');
	const char *name = colon ? colon + 1 : place;
	int home, space, fd = -1;

	*what = "our own network namespace";
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (home < 0)
		return -1;
	*what = "the network namespace";
	space = space_open(place, colon ? (size_t)(colon - place) : 0);
	if (space < 0)
		goto out_home;
	*what = "entering the network namespace";
	if (setns(space, CLONE_NEWNET) == 0)
		fd = device_make(name, offloads, what);

	int error = errno;

	if (setns(home, CLONE_NEWNET) < 0 && fd >= 0) {
		*what = "returning from the network namespace";
		error = errno;
		close(fd);
		fd = -1;
	}
	errno = error;
	close(space);
out_home:
	close(home);
	return fd;
}

int tap_plug(int fd, bool in)
{
	int value = in;

	return ioctl(fd, TUNSETCARRIER, &value);
}
