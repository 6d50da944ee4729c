/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A TAP device in a network namespace: what is read is what the namespace's kernel sends through
 * the device, what is written is what it receives. The device exists as long as its descriptor.
 *
 * Each frame has a struct virtio_net_hdr in front. With offloads, the kernel hands over packets of
 * up to 64 KiB that are still to be cut (TCP, and UDP with UDP_SEGMENT), and takes such; without,
 * it cuts them before, and finishes their checksums.
 */
#ifndef VERBENA_NET_TAP_H
#define VERBENA_NET_TAP_H

#include <stdbool.h>

/* Makes the device that "SPACE:NAME" asks for. SPACE is a process's number or a namespace's file
 * (/run/netns/x); without, our own namespace. Needs CAP_SYS_ADMIN in the namespace's user
 * namespace. Returns a non-blocking descriptor, or -1 with errno; `*what` then says what failed. */
int tap_open(const char *place, bool offloads, const char **what);

/* Plugs the cable in or out: the interface's own state follows. 0 or -1 with errno. */
int tap_plug(int fd, bool in);

#endif
