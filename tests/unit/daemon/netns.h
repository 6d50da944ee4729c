/* SPDX-License-Identifier: BSD-2-Clause */
/* A network namespace of the test's own, with nothing but a loopback interface. */
#ifndef VERBENA_TESTS_DAEMON_NETNS_H
#define VERBENA_TESTS_DAEMON_NETNS_H

/* Moves this process there; `lo`: whether loopback is up. 0, or -errno if this machine doesn't
 * permit it. A user without privileges gets a user namespace, too, and is root there. */
int netns_enter(int lo);

#endif
