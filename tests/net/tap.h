/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TAP device in a network namespace: a read returns what the namespace's kernel sends through the
 * device, a write is what the kernel receives. The device exists as long as its descriptor.
 *
 * Each frame begins with a struct virtio_net_hdr. With offloads, the kernel passes packets of up to
 * 64 KiB that are still to be cut (TCP, and UDP with UDP_SEGMENT), and accepts such; without, it
 * cuts them before, and completes their checksums.
 */
#ifndef VERBENA_NET_TAP_H
#define VERBENA_NET_TAP_H

#include <stdbool.h>

/* Makes the device "SPACE:NAME". SPACE is a process's number or a namespace's file (/run/netns/x);
 * without it, this process's namespace. Needs CAP_SYS_ADMIN in the namespace's user namespace.
 * Returns a non-blocking descriptor, or -1 with errno; `*what` is then the step that failed. */
int tap_open(const char *place, bool offloads, const char **what);

/* Connects or disconnects the cable: the interface's carrier follows. 0 or -1 with errno. */
int tap_plug(int fd, bool in);

#endif
