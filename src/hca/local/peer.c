/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer's process. See peer.h. No state. */
#include "hca/local/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/proc_file.h"
#include "base/sys.h"

/* Whether `fd` is the address space in which the peer's regions' file is mapped. */
static bool is_memory_of(int fd, const struct pub_regions *regions)
{
	uint64_t value = 0;

	return sys_pread(fd, &value, sizeof(value), (off_t)regions->probe_addr) == sizeof(value) &&
	       value == regions->probe;
}

static int open_memory(int32_t pid, const struct pub_regions *regions)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && !is_memory_of(fd, regions)) {
		sys_close(fd);
		fd = -1;
	}
	return fd;
}

/* Opens a pidfd. If the peer is still alive after the call, the number was the peer's during the
 * call. */
static int open_pidfd(const struct peer_process *peer)
{
	int fd = (int)syscall(SYS_pidfd_open, peer->pid, 0);

	if (fd >= 0 && !peer_alive(peer)) {
		sys_close(fd);
		fd = -1;
	}
	return fd;
}

void peer_open(struct peer_process *peer, int32_t pid, const struct pub *table,
	       const struct pub_regions *regions)
{
	*peer = (struct peer_process){.pid = pid, .fd = -1, .life = &table->header.life};
	/* A process that hasn't mapped our regions' file copies nothing, so its end needn't be
	 * known. */
	if (pid <= 0 || !regions)
		return;
	peer->probe_addr = regions->probe_addr;
	peer->fd = open_memory(pid, regions);
	peer->is_memory = peer->fd >= 0;
	if (peer->fd < 0)
		peer->fd = open_pidfd(peer);
	if (peer->fd < 0)
		log_debug("process %d has no descriptor here: %m", pid);
}

void peer_close(struct peer_process *peer)
{
	sys_end(&peer->fd);
}

/* The state in this file of /proc/PID; 0: the process has ended, or the file can't be read. */
static char state_of(const struct peer_process *peer, const char *file)
{
	char line[512];
	char *end = peer->pid > 0 && proc_file_read(peer->pid, file, line, sizeof(line))
			    ? strrchr(line, ')')
			    : NULL;
	char state = end && end[1] ? end[2] : 0;

	return peer_alive(peer) ? state : 0;
}

int peer_end_descriptor(const struct peer_process *peer)
{
	return peer->pid > 0 ? open_pidfd(peer) : -1;
}

char peer_state(const struct peer_process *peer)
{
	return state_of(peer, "stat");
}

bool peer_runs(const struct peer_process *peer)
{
	char state = peer_state(peer);

	return state ? state == 'R' || state == 'S' || state == 'D' : peer_alive(peer);
}

bool peer_ended(const struct peer_process *peer)
{
	struct pollfd pidfd = {.fd = peer->fd, .events = POLLIN};
	uint8_t byte;

	if (peer_alive(peer))
		return false;
	if (peer->fd < 0)
		return true;
	return peer->is_memory ? sys_pread(peer->fd, &byte, 1, (off_t)peer->probe_addr) == 0
			       : sys_poll(&pidfd, 1, 0) == 1;
}

/* The number of the system call that the thread is in or stands at the end of; -1: none, or it
 * isn't known. */
static long thread_call(const struct peer_process *peer, uint32_t thread)
{
	char path[64], line[256], *end;

	/* "-1 ..." is a thread that was stopped in its own code, "running" one that isn't
	 * stopped. */
	snprintf(path, sizeof(path), "task/%u/syscall", thread);
	if (peer->pid <= 0 || !proc_file_read(peer->pid, path, line, sizeof(line)))
		return -1;
	long call = strtol(line, &end, 10);

	return end != line && *end == ' ' ? call : -1;
}

bool peer_stopped_after_copy(const struct peer_process *peer, uint32_t thread)
{
	char path[64];

	if (!thread)
		return false;
	long call = thread_call(peer, thread);

	if (call != SYS_process_vm_readv && call != SYS_process_vm_writev)
		return false;
	/* A thread within a call isn't stopped: so this state, seen after the call, is its end. The
	 * state of the thread itself: while it waits in the call for a page the others are stopped
	 * already. */
	snprintf(path, sizeof(path), "task/%u/stat", thread);
	return state_of(peer, path) == 'T';
}
