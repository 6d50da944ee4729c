/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_daemon.c. */
#ifndef VERBENA_TESTS_FUZZ_FAKE_DAEMON_H
#define VERBENA_TESTS_FUZZ_FAKE_DAEMON_H

#include <stdint.h>

enum { FAKE_SLOT = 1, FAKE_PEER_SLOT = 2, FAKE_PEER_PID = 0x3fffff };

struct fake_daemon {
	unsigned int objects; /* made and not ended */
	uint32_t next_qp;     /* index of the next QP */
	char peer_state;      /* as in /proc/PID/stat; 0: the peer has ended */
};

extern struct fake_daemon fake_daemon;

/* The peer's descriptors, by number: memory files that may be mapped, and that may not. */
enum { FAKE_FILE, FAKE_FILE_SPARSE, FAKE_FILE_SHORT, FAKE_FILE_UNSEALED, FAKE_FILES };

extern int fake_peer_files[FAKE_FILES];

#endif
