/* SPDX-License-Identifier: BSD-2-Clause */
/* Mapping memory that another process shares. See peer_map.h. No state. */
#include "hca/mem/peer_map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"
#include "hca/local/peer.h"
#include "hca/mem/shared.h"

#define XFS_MAGIC 0x58465342
#define MEMORY_FILE "/memfd:"
#define SEGMENT "/SYSV"

enum { STACK_BYTES = 256 << 10, PATH_BYTES = PROC_MAPS_NAME + 64 };

/* A mapping that is being made. */
struct job {
	const struct peer_process *peer;
	const struct peer_map_region *region;
	struct peer_map *out;
	int process; /* a pidfd of the owner's */
	int count;
	struct shared_piece piece[SHARED_PIECES];
	int file[SHARED_PIECES];      /* of each piece; -1: a segment */
	uint64_t page[SHARED_PIECES]; /* the size of its pages */
	uint64_t from, to;	      /* the owner's addresses that are mapped */
	int error;
};

/* ------------------------------------------------------------------ opening a piece's file */

static bool is_named(const struct shared_piece *piece, const char *prefix)
{
	return !strncmp(piece->first.name, prefix, strlen(prefix));
}

static int open_flags(const struct job *job)
{
	return (job->region->write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
}

/* Whether the status is that of the piece's file, and it is a regular one. */
static bool is_the_file(const struct stat *status, const struct shared_piece *piece)
{
	return S_ISREG(status->st_mode) && status->st_ino == piece->first.inode &&
	       major(status->st_dev) == piece->first.major &&
	       minor(status->st_dev) == piece->first.minor;
}

/* Whether files of the file system can be mapped by two processes, and opening one has no effect
 * and doesn't wait for another machine. */
static bool is_local(const struct statfs *status)
{
	switch ((unsigned long)status->f_type) {
	case TMPFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case RAMFS_MAGIC:
	case EXT4_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case XFS_MAGIC:
		return true;
	default:
		return false;
	}
}

static bool is_on_disk(const struct statfs *status)
{
	unsigned long type = (unsigned long)status->f_type;

	return type != TMPFS_MAGIC && type != HUGETLBFS_MAGIC && type != RAMFS_MAGIC;
}

/* Whether the descriptor is of the piece's file. */
static bool fd_is_the_file(int fd, const struct shared_piece *piece)
{
	struct stat status;
	struct statfs fs;

	return !fstat(fd, &status) && is_the_file(&status, piece) && !fstatfs(fd, &fs) &&
	       is_local(&fs);
}

/* The same file with the access that the mapping needs, from a descriptor that may lack it; takes
 * `fd` over. -1: it isn't the piece's file, or may not be opened so. */
static int fd_suited(const struct job *job, const struct shared_piece *piece, int fd)
{
	char path[PATH_BYTES];
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);

	if (flags < 0 || !fd_is_the_file(fd, piece)) {
		if (fd >= 0)
			sys_close(fd);
		return -1;
	}
	int mode = flags & O_ACCMODE;

	if (!(flags & O_PATH) && (mode == O_RDWR || (mode == O_RDONLY && !job->region->write)))
		return fd;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	int own = sys_open(path, open_flags(job));

	sys_close(fd);
	return own;
}

/* By the owner's mapping. */
static int open_map_file(const struct job *job, const struct shared_piece *piece)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", job->peer->pid,
		 (unsigned long long)piece->first.start, (unsigned long long)piece->first.end);
	/* O_PATH: nothing is opened before it is known what it is. */
	return fd_suited(job, piece, sys_open(path, O_PATH | O_CLOEXEC));
}

static int open_descriptor(const struct job *job, const struct shared_piece *piece, int number)
{
	return fd_suited(job, piece, (int)syscall(SYS_pidfd_getfd, job->process, number, 0));
}

/* By a descriptor of the owner's with the mapping's name. Their names are compared before they are
 * taken, so that no other file is touched. */
static int open_any_descriptor(const struct job *job, const struct shared_piece *piece)
{
	char path[64], name[PROC_MAPS_NAME];
	const struct dirent *entry;
	int fd = -1;

	if (!piece->first.name[0])
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd", job->peer->pid);
	DIR *dir = opendir(path);

	while (dir && fd < 0 && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, name, sizeof(name));

		if (n <= 0 || n == sizeof(name))
			continue;
		name[n] = 0;
		if (!strcmp(name, piece->first.name))
			fd = open_descriptor(job, piece, (int)strtol(entry->d_name, NULL, 10));
	}
	if (dir)
		closedir(dir);
	return fd;
}

/* By the file's name. */
static int open_path(const struct job *job, const struct shared_piece *piece)
{
	char path[PATH_BYTES];

	if (piece->first.name[0] != '/' || is_named(piece, MEMORY_FILE) || is_named(piece, SEGMENT))
		return -1;
	int fd = fd_suited(job, piece, sys_open(piece->first.name, O_PATH | O_CLOEXEC));

	if (fd >= 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/root%s", job->peer->pid, piece->first.name);
	return fd_suited(job, piece, sys_open(path, O_PATH | O_CLOEXEC));
}

/* Whether both processes name the same segments by the same numbers. */
static bool same_segments(const struct job *job)
{
	struct stat mine, theirs;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/ipc", job->peer->pid);
	return !stat("/proc/self/ns/ipc", &mine) && !stat(path, &theirs) &&
	       mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

/* Opens the piece's file; job.file stays -1 for a segment that is to be attached. */
static int piece_open(struct job *job, int i)
{
	const struct shared_piece *piece = &job->piece[i];
	struct statfs status;
	int fd = open_map_file(job, piece);

	if (fd < 0 && job->region->fd >= 0)
		fd = open_descriptor(job, piece, job->region->fd);
	if (fd < 0)
		fd = open_any_descriptor(job, piece);
	if (fd < 0)
		fd = open_path(job, piece);
	job->page[i] = (uint64_t)sysconf(_SC_PAGESIZE);
	job->file[i] = fd;
	if (fd < 0)
		return is_named(piece, SEGMENT) && same_segments(job) ? 0 : -EACCES;
	if (fstatfs(fd, &status))
		return -errno;
	if (status.f_type == HUGETLBFS_MAGIC)
		job->page[i] = (uint64_t)status.f_bsize;
	if (is_on_disk(&status))
		job->out->in_memory = false;
	return 0;
}

/* ------------------------------------------------------------------ mapping */

/* Reserves the addresses for all pieces, so that they keep their distances, and their alignment to
 * the largest pages. */
static int pieces_reserve(struct job *job)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), most = page;

	for (int i = 0; i < job->count; i++)
		most = job->page[i] > most ? job->page[i] : most;
	job->from = job->piece[0].start & ~(most - 1);
	job->to = (job->piece[job->count - 1].end + most - 1) & ~(most - 1);
	uint64_t size = job->to - job->from, extra = most - page;
	uint8_t *at = mmap(NULL, size + extra, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	uint64_t skip = -(uint64_t)(uintptr_t)at & (most - 1);

	if (skip)
		munmap(at, skip);
	if (extra - skip)
		munmap(at + skip + size, extra - skip);
	job->out->pages = at + skip;
	job->out->size = size;
	job->out->base = at + skip + (job->region->addr - job->from);
	return 0;
}

/* Attaches the piece's segment elsewhere, and moves the part that is needed to `to`. */
static int segment_map(const struct job *job, const struct shared_piece *piece, void *to,
		       uint64_t size)
{
	struct shmid_ds segment;
	int id = (int)piece->first.inode;
	uint64_t offset = shared_offset(piece, piece->start);

	if (shmctl(id, IPC_STAT, &segment) < 0)
		return -errno;
	if (offset > segment.shm_segsz || size > ((segment.shm_segsz + 4095) & ~4095ull) - offset)
		return -ERANGE;
	uint8_t *at = shmat(id, NULL, job->region->write ? 0 : SHM_RDONLY);

	if (at == (void *)-1) // NOLINT: the call's own convention
		return -errno;
	int err = mremap(at + offset, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED
			  ? -errno
			  : 0;

	/* What is left of it, at either side. */
	if (err || offset)
		munmap(at, err ? segment.shm_segsz : offset);
	if (!err && offset + size < segment.shm_segsz)
		munmap(at + offset + size, segment.shm_segsz - offset - size);
	return err;
}

/* Whether the kernel shows the same file, from the same offset, at `at` here as the owner has. */
static bool is_same_mapping(const struct shared_piece *piece, uint64_t start, const void *at)
{
	const struct proc_mapping *first = &piece->first;
	struct proc_mapping mine;
	struct proc_maps maps;

	if (proc_maps_open(&maps, 0))
		return false;
	int err = proc_maps_find(&maps, (uintptr_t)at, true, &mine);

	proc_maps_close(&maps);
	bool by_name = is_named(piece, MEMORY_FILE) || is_named(piece, SEGMENT);

	return !err && mine.shared && mine.inode == first->inode && mine.major == first->major &&
	       mine.minor == first->minor &&
	       mine.offset + ((uintptr_t)at - mine.start) == shared_offset(piece, start) &&
	       (!by_name || !strcmp(mine.name, first->name));
}

static int piece_map(const struct job *job, int i)
{
	const struct shared_piece *piece = &job->piece[i];
	uint64_t page = job->page[i], start = piece->start & ~(page - 1);
	uint64_t size = ((piece->end + page - 1) & ~(page - 1)) - start;
	uint8_t *to = (uint8_t *)job->out->pages + (start - job->from);
	int prot = PROT_READ | (job->region->write ? PROT_WRITE : 0), err = 0;

	if (job->file[i] < 0)
		err = segment_map(job, piece, to, size);
	/* Without a reservation, so that no huge page is set aside that the owner never touches. */
	else if (mmap(to, size, prot, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, job->file[i],
		      (off_t)(shared_offset(piece, piece->start) - (piece->start - start))) ==
		 MAP_FAILED)
		err = -errno;
	if (!err && !is_same_mapping(piece, start, to))
		err = -EXDEV;
	return err;
}

/* Whether the owner has memory. A process that ends gives all of it up at once, and is alive for a
 * while afterwards. */
static bool owner_has_memory(const struct job *job)
{
	struct proc_mapping any;
	struct proc_maps maps;

	if (proc_maps_open(&maps, job->peer->pid))
		return false;
	int err = proc_maps_next(&maps, 0, &any);

	proc_maps_close(&maps);
	return !err;
}

/* Whether the owner's memory is what it was when the region was registered. */
static int pieces_look(struct job *job, struct shared_piece *piece)
{
	const struct peer_map_region *region = job->region;
	struct proc_maps maps;
	int err = proc_maps_open(&maps, job->peer->pid);

	if (err)
		return err;
	int n = shared_look(&maps, region->addr, region->length, true, piece);

	proc_maps_close(&maps);
	/* It had memory until here, or what was seen may be the memory of no process. */
	if (!owner_has_memory(job) || !peer_alive(job->peer))
		return -ESRCH; /* another process may have had the number */
	if (n == -EOPNOTSUPP)
		return n;
	return n > 0 && shared_print(piece, n) == region->print ? n : -ESTALE;
}

static int pieces_map(struct job *job)
{
	struct shared_piece again[SHARED_PIECES];
	int err = 0;

	for (int i = 0; !err && i < job->count; i++)
		err = piece_open(job, i);
	if (!err)
		err = pieces_reserve(job);
	for (int i = 0; !err && i < job->count; i++)
		err = piece_map(job, i);
	/* The files that were opened by their names are those that the owner has mapped, if it has
	 * them mapped still. */
	int n = err ? err : pieces_look(job, again);

	return n < 0 ? n : 0;
}

static void job_run(struct job *job)
{
	struct peer_map *out = job->out;

	job->process = (int)syscall(SYS_pidfd_open, job->peer->pid, 0);
	job->count = job->process < 0 ? -errno : pieces_look(job, job->piece);
	job->error = job->count < 0 ? job->count : pieces_map(job);
	if (job->error) {
		peer_unmap(out);
		return;
	}
	madvise(out->pages, out->size, MADV_DONTFORK);
	madvise(out->pages, out->size, MADV_DONTDUMP);
}

/* In a thread with an empty descriptor table of its own, which the kernel closes at its end. */
static void *job_thread(void *arg)
{
	struct job *job = arg;

	job->error = -EPERM;
	if (!syscall(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE))
		job_run(job);
	return NULL;
}

int peer_map(const struct peer_process *peer, const struct peer_map_region *region,
	     struct peer_map *out)
{
	struct job *job = calloc(1, sizeof(*job));
	pthread_attr_t attributes;
	pthread_t thread;

	*out = (struct peer_map){.in_memory = true};
	if (!job)
		return -ENOMEM;
	job->peer = peer;
	job->region = region;
	job->out = out;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	/* The control thread blocks all signals, and so does its child. */
	int err = -pthread_create(&thread, &attributes, job_thread, job);

	pthread_attr_destroy(&attributes);
	if (!err) {
		pthread_join(thread, NULL);
		err = job->error;
	}
	free(job);
	return err;
}

void peer_unmap(struct peer_map *map)
{
	if (map->pages)
		munmap(map->pages, map->size);
	map->pages = map->base = NULL;
}
