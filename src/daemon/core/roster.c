/* SPDX-License-Identifier: BSD-2-Clause */
/* The roster. See roster.h. An entry is written by one pwrite(), so a daemon that is killed leaves
 * whole entries. */
#include "daemon/core/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/proc_file.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"

#define MAGIC 0x726f73746572ull
#define VERSION 1ull
#define SIZE sizeof(((struct roster *)0)->entries)

/* Start time in clock ticks since boot: the 22nd field of /proc/PID/stat; 0: no such process. */
static uint64_t process_start_time(pid_t pid)
{
	char text[1024];

	proc_file_read(pid, "stat", text, sizeof(text));
	/* The second field is a name in parentheses that may hold anything. */
	char *at = strrchr(text, ')');

	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

bool roster_alive(const struct roster_entry *entry)
{
	return entry->pid > 0 && entry->born && process_start_time(entry->pid) == entry->born;
}

static void roster_give_up(struct roster *roster, const char *what)
{
	log_warn("can't %s the roster: %s; if this daemon is killed, its programs can't return to "
		 "the next one",
		 what, strerror(errno));
	roster_close(roster);
}

static void write_entry(struct roster *roster, uint32_t slot)
{
	const struct roster_entry *entry = &roster->entries[slot];

	if (roster->fd >= 0 && pwrite(roster->fd, entry, sizeof(*entry),
				      (off_t)(slot * sizeof(*entry))) != sizeof(*entry))
		roster_give_up(roster, "write");
}

static void begin_anew(struct roster *roster)
{
	memset(roster->entries, 0, SIZE);
	roster->entries[0].cookie = MAGIC;
	roster->entries[0].born = VERSION;
	errno = 0;
	/* All of its room is allocated now, so that a disk that fills up later can't make a write
	 * fail. */
	if (ftruncate(roster->fd, 0) < 0 || ftruncate(roster->fd, (off_t)SIZE) < 0 ||
	    (errno = posix_fallocate(roster->fd, 0, (off_t)SIZE)))
		roster_give_up(roster, "begin");
	else
		write_entry(roster, 0);
}

void roster_open(struct roster *roster, int dir_fd)
{
	struct stat st;

	roster->fd = openat(dir_fd, "roster", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (roster->fd < 0) {
		roster_give_up(roster, "open");
		return;
	}
	bool sound = fstat(roster->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
		     !(st.st_mode & 077) &&
		     pread(roster->fd, roster->entries, SIZE, 0) == (ssize_t)SIZE &&
		     roster->entries[0].cookie == MAGIC && roster->entries[0].born == VERSION;

	if (!sound)
		begin_anew(roster);
}

void roster_close(struct roster *roster)
{
	if (roster->fd >= 0)
		close(roster->fd);
	roster->fd = -1;
}

uint32_t roster_next_slot(const struct roster *roster)
{
	return roster->entries[0].qpn_start % (LIMIT_SLOTS - 1) + 1;
}

void roster_enter(struct roster *roster, const struct process *process)
{
	struct roster_entry *entry = &roster->entries[process->slot];

	if (!process->returning) {
		roster->entries[0].qpn_start = process->slot;
		write_entry(roster, 0);
	}

	entry->cookie = process->cookie;
	entry->born = process_start_time(process->pid);
	entry->pid = process->pid;
	entry->uid = process->user->uid;
	write_entry(roster, process->slot);
}

void roster_leave(struct roster *roster, const struct process *process)
{
	struct roster_entry *entry = &roster->entries[process->slot];
	const struct slots *slots = &process->server->slots;

	entry->cookie = 0;
	entry->born = 0;
	entry->pid = 0;
	entry->qpn_start = slots->qpn_start[process->slot];
	entry->key_start = slots->key_start[process->slot];
	write_entry(roster, process->slot);
}
