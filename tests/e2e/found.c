/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that the program has shared already: a peer maps it, and then executes WRITE, READ and
 * atomics itself. See rig.h. End B has the memory, end A operates on it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "found.h"

bool is_mapped(const struct found *found)
{
	return maps_find(NULL, &found->theirs.line).inode != 0;
}

void found_register(struct found *found, struct end *end, uint8_t *at, unsigned int rights)
{
	struct rig *rig = end->rig;

	*found = (struct found){.at = at, .mine.pid = getpid()};
	if (rig->role == RIG_B) {
		CHECK(rig, (found->mr = ibv_reg_mr(end->pd, at, BYTES, (int)rights)));
		found->mine.addr = (uintptr_t)at;
		found->mine.rkey = found->mr->rkey;
		found->mine.line = maps_find(at, NULL);
	}
	rig_swap(rig, &found->mine, &found->theirs, sizeof(found->mine));
}

void operate(struct end *end, const struct found *found, enum ibv_wr_opcode opcode, uint64_t id,
	     uint32_t length, uint64_t at, enum ibv_wc_status status)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, opcode, id, 0, length, 0, &wr, &sge);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = found->theirs.addr + at;
		wr.wr.atomic.rkey = found->theirs.rkey;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.swap = 77;
	} else {
		wr.wr.rdma.remote_addr = found->theirs.addr + at;
		wr.wr.rdma.rkey = found->theirs.rkey;
	}
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	wc_expect(end, end->scq, id, status);
}

void await_mapping(struct end *end, const struct found *found, enum ibv_wr_opcode opcode)
{
	struct patience patience = patience_of(RIG_SOON_MS);

	do {
		CHECK(end->rig, !patience_over(&patience));
		operate(end, found, opcode, 1, 1, BYTES - 1, IBV_WC_SUCCESS);
	} while (!is_mapped(found));
	/* It is used once its pages have been populated. */
	for (int i = 0; i < 50; i++) {
		operate(end, found, opcode, 1, 1, BYTES - 1, IBV_WC_SUCCESS);
		usleep(100);
	}
}

void use_all(struct end *end, const struct found *found)
{
	static const uint32_t at[] = {0, 64, BYTES / 2 - 24, BYTES - 48};
	struct rig *rig = end->rig;

	for (unsigned int i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		if (rig->role == RIG_A) {
			pattern_fill(end->buf, 48, SEED + i);
			operate(end, found, IBV_WR_RDMA_WRITE, 2, 48, at[i], IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		if (rig->role == RIG_B) {
			CHECK(rig, pattern_holds(found->at + at[i], 48, SEED + i));
			memset(found->at + at[i], 0, 48);
			found->at[at[i]] = 5;
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			operate(end, found, IBV_WR_RDMA_READ, 3, 48, at[i], IBV_WC_SUCCESS);
			CHECK_EQ(rig, end->buf[0], 5);
			operate(end, found, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8, at[i],
				IBV_WC_SUCCESS);
			CHECK_EQ(rig, *(uint64_t *)(void *)end->buf, 5);
			operate(end, found, IBV_WR_ATOMIC_CMP_AND_SWP, 5, 8, at[i] + 8,
				IBV_WC_SUCCESS);
			CHECK_EQ(rig, *(uint64_t *)(void *)end->buf, 0);
		}
		rig_sync(rig);
		if (rig->role == RIG_B)
			CHECK_EQ(rig, *(uint64_t *)(void *)(found->at + at[i]), 6);
		rig_sync(rig);
	}
}

void end_region(struct end *end, struct found *found, bool was_mapped)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct rig *rig = end->rig;

	if (rig->role == RIG_B)
		OK(rig, ibv_dereg_mr(found->mr));
	rig_sync(rig);
	while (rig->role == RIG_A && was_mapped && is_mapped(found)) {
		CHECK(rig, !patience_over(&patience));
		usleep(1000);
	}
	if (rig->role == RIG_A)
		operate(end, found, IBV_WR_RDMA_WRITE, 9, 8, 0, IBV_WC_REM_ACCESS_ERR);
	rig_sync(rig);
}

/* ------------------------------------------------------------------ kinds of shared memory */

static uint8_t *map_at(struct rig *rig, uint8_t *at, size_t bytes, int fd, size_t offset)
{
	at = mmap(at, bytes, PROT_READ | PROT_WRITE,
		  MAP_SHARED | (at ? MAP_FIXED : 0) | (fd < 0 ? MAP_ANONYMOUS : 0), fd,
		  (off_t)offset);
	CHECK(rig, at != MAP_FAILED);
	return at;
}

static int file_at(struct rig *rig, char *path)
{
	int fd = mkstemp(path);

	CHECK(rig, fd >= 0);
	OK(rig, ftruncate(fd, 2 * BYTES));
	return fd;
}

static uint8_t *in_memory_file(struct rig *rig, int *fd, char *path)
{
	(void)path;
	*fd = memfd_create("found", MFD_CLOEXEC);
	CHECK(rig, *fd >= 0);
	OK(rig, ftruncate(*fd, 2 * BYTES));
	return map_at(rig, NULL, 2 * BYTES, *fd, 0);
}

static uint8_t *in_file(struct rig *rig, int *fd, char *path)
{
	*fd = file_at(rig, path);
	return map_at(rig, NULL, 2 * BYTES, *fd, 0);
}

/* The name alone leads to it. */
static uint8_t *in_closed_file(struct rig *rig, int *fd, char *path)
{
	uint8_t *at = in_file(rig, fd, path);

	close(*fd);
	*fd = -1;
	return at;
}

/* A descriptor alone leads to it. */
static uint8_t *in_nameless_file(struct rig *rig, int *fd, char *path)
{
	uint8_t *at = in_file(rig, fd, path);

	OK(rig, unlink(path));
	*path = 0;
	return at;
}

static uint8_t *in_segment(struct rig *rig, int *fd, char *path)
{
	int id = shmget(IPC_PRIVATE, 2 * BYTES, 0600);

	(void)fd, (void)path;
	CHECK(rig, id >= 0);
	uint8_t *at = shmat(id, NULL, 0);

	OK(rig, shmctl(id, IPC_RMID, NULL));
	return at;
}

/* Parts of one file in another order, one of another file, and a segment. */
static uint8_t *in_several(struct rig *rig, int *fd, char *path)
{
	uint8_t *at = in_memory_file(rig, fd, path);
	char other[] = "/dev/shm/verbena-found-XXXXXX";
	int more = file_at(rig, other), id = shmget(IPC_PRIVATE, 4 * PAGE, 0600);

	map_at(rig, at + SKIP - 40, PAGE, *fd, 5 * PAGE);
	map_at(rig, at + SKIP - 40 + 4 * PAGE, PAGE, more, PAGE);
	CHECK(rig, id >= 0);
	CHECK(rig, shmat(id, at + SKIP - 40 + 5 * PAGE, SHM_REMAP) == at + SKIP - 40 + 5 * PAGE);
	OK(rig, shmctl(id, IPC_RMID, NULL));
	unlink(other);
	return at; /* `more` stays open: the way to a file without a name */
}

/* Either side is private, or both: not mapped, but used all the same. */
static uint8_t *in_private(struct rig *rig, int *fd, char *path)
{
	uint8_t *at = in_memory_file(rig, fd, path);

	CHECK(rig, mmap(at + SKIP - 40 + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_FIXED, *fd, 0) != MAP_FAILED);
	return at;
}

static const struct kind {
	const char *path;
	uint8_t *(*make)(struct rig *rig, int *fd, char *path);
	bool mapped;
} kinds[] = {
	{"", in_memory_file, true},
	{"/dev/shm/verbena-found-XXXXXX", in_file, true},
	{"/dev/shm/verbena-found-XXXXXX", in_closed_file, true},
	{"/dev/shm/verbena-found-XXXXXX", in_nameless_file, true},
	{"", in_segment, true},
	{"", in_several, true},
	{"", in_private, false},
};

static void found_kind(struct rig *rig, const struct kind *kind)
{
	struct found found;
	struct end end;
	char path[64];
	int fd = -1;
	uint8_t *at = NULL;

	end_pair(&end, rig, NULL);
	snprintf(path, sizeof(path), "%s", kind->path);
	if (rig->role == RIG_B)
		at = kind->make(rig, &fd, path) + SKIP;
	found_register(&found, &end, at, ALL_RIGHTS);
	use_all(&end, &found);
	bool maps = kind->mapped && rig_maps_files(rig);

	if (rig->role == RIG_A && maps)
		await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
	rig_sync(rig);
	use_all(&end, &found);
	end_region(&end, &found, maps);
	if (fd >= 0)
		close(fd);
	if (*path && rig->role == RIG_B)
		unlink(path);
	if (at)
		munmap(at - SKIP, 2 * BYTES);
	end_close(&end);
}

static void found_kinds(struct rig *rig)
{
	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		found_kind(rig, &kinds[i]);
}

/* ------------------------------------------------------------------ what only a mapping does */

/* A pair, and B's memory in a file: `*at` and `*fd`, which stay as they are for A. False, and
 * nothing is open, where processes don't map each other's memory. */
static bool file_pair(struct end *end, struct rig *rig, uint8_t **at, int *fd)
{
	if (!rig_maps_files(rig))
		return false;
	end_pair(end, rig, NULL);
	if (rig->role == RIG_B)
		*at = in_memory_file(rig, fd, NULL);
	return true;
}

static void file_pair_close(struct end *end, uint8_t *at, int fd)
{
	if (at)
		munmap(at, 2 * BYTES);
	if (fd >= 0)
		close(fd);
	end_close(end);
}

/* While B is stopped, all operations on its memory go on. */
static void found_stopped(struct rig *rig)
{
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int fd = -1;

	if (!file_pair(&end, rig, &at, &fd))
		return;
	found_register(&found, &end, at, ALL_RIGHTS);
	if (rig->role == RIG_A) {
		await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
		OK(rig, kill(found.theirs.pid, SIGSTOP));
		rig_await_stop(found.theirs.pid);
		for (uint64_t i = 0; i < 1000; i++) {
			operate(&end, &found, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8, 64,
				IBV_WC_SUCCESS);
			CHECK_EQ(rig, *(uint64_t *)(void *)end.buf, i);
		}
		operate(&end, &found, IBV_WR_RDMA_READ, 3, 8, 64, IBV_WC_SUCCESS);
		CHECK_EQ(rig, *(uint64_t *)(void *)end.buf, 1000);
		end.buf[0] = OLD;
		operate(&end, &found, IBV_WR_RDMA_WRITE, 5, 1, 0, IBV_WC_SUCCESS);
		OK(rig, kill(found.theirs.pid, SIGCONT));
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK_EQ(rig, at[0], OLD);
	end_region(&end, &found, true);
	file_pair_close(&end, at, fd);
}

/* A region that grants READs only can't be written, by any fault of the initiator. */
static void found_read_only(struct rig *rig)
{
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int fd = -1;

	if (!file_pair(&end, rig, &at, &fd))
		return;
	if (rig->role == RIG_B)
		at[BYTES - 1] = OLD;
	found_register(&found, &end, at, IBV_ACCESS_REMOTE_READ);
	if (rig->role == RIG_A) {
		await_mapping(&end, &found, IBV_WR_RDMA_READ);
		CHECK_EQ(rig, end.buf[0], OLD);
		CHECK(rig, !strcmp(maps_find(NULL, &found.theirs.line).rights, "r--s"));
	}
	rig_sync(rig);
	end_region(&end, &found, true);
	file_pair_close(&end, at, fd);
}

/* A child of A's has no mapping of B's memory, however it is made. */
static void found_not_inherited(struct rig *rig)
{
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int fd = -1, status;

	if (!file_pair(&end, rig, &at, &fd))
		return;
	found_register(&found, &end, at, ALL_RIGHTS);
	if (rig->role == RIG_A) {
		await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
		for (int plain = 0; plain < 2; plain++) {
			pid_t pid = plain ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();

			if (!pid)
				_exit(is_mapped(&found));
			CHECK_EQ(rig, waitpid(pid, &status, 0), pid);
			CHECK_EQ(rig, status, 0);
		}
		CHECK(rig, is_mapped(&found));
		end.buf[0] = OLD;
		operate(&end, &found, IBV_WR_RDMA_WRITE, 5, 1, 0, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK_EQ(rig, at[0], OLD);
	end_region(&end, &found, true);
	file_pair_close(&end, at, fd);
}

/* ------------------------------------------------------------------ replaced memory */

/* B replaces the memory of a region that A has mapped: A's stores go where they went before. */
static void found_replaced(struct rig *rig)
{
	struct found found;
	struct end end;
	uint8_t *at = NULL, *file = NULL;
	int fd = -1;

	if (!file_pair(&end, rig, &at, &fd))
		return;
	if (rig->role == RIG_B)
		file = map_at(rig, NULL, 2 * BYTES, fd, 0);
	found_register(&found, &end, at, ALL_RIGHTS);
	if (rig->role == RIG_A)
		await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK(rig, mmap(at, 2 * BYTES, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		memset(at, NEW, 2 * BYTES);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		memset(end.buf, OLD, BYTES);
		operate(&end, &found, IBV_WR_RDMA_WRITE, 2, BYTES, 0, IBV_WC_SUCCESS);
		operate(&end, &found, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 8, 64, IBV_WC_SUCCESS);
		operate(&end, &found, IBV_WR_RDMA_READ, 4, 8, 128, IBV_WC_SUCCESS);
		CHECK_EQ(rig, end.buf[0], OLD);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		for (unsigned int i = 0; i < 2 * BYTES; i++)
			CHECK_EQ(rig, at[i], NEW);
		CHECK_EQ(rig, file[0], OLD);
	}
	end_region(&end, &found, true);
	if (file)
		munmap(file, 2 * BYTES);
	file_pair_close(&end, at, fd);
}

/* B replaces it by another file before A has mapped it: A notices, and operations are refused. */
static void found_replaced_before(struct rig *rig)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int fd = -1, other = -1;

	if (!file_pair(&end, rig, &at, &fd))
		return;
	found_register(&found, &end, at, ALL_RIGHTS);
	if (rig->role == RIG_B) {
		other = memfd_create("other", MFD_CLOEXEC);
		OK(rig, ftruncate(other, 2 * BYTES));
		map_at(rig, at, 2 * BYTES, other, 0);
		found.mine.line = maps_find(at, NULL);
	}
	rig_swap(rig, &found.mine, &found.theirs, sizeof(found.mine));
	for (bool refused = rig->role == RIG_B; !refused;) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		CHECK(rig, !patience_over(&patience));
		end_request(&end, IBV_WR_RDMA_READ, 1, 0, 8, 0, &wr, &sge);
		wr.wr.rdma.remote_addr = found.theirs.addr;
		wr.wr.rdma.rkey = found.theirs.rkey;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		struct ibv_wc wc = wc_wait(&end, end.scq);

		refused = wc.status == IBV_WC_REM_ACCESS_ERR;
		CHECK(rig, refused || wc.status == IBV_WC_SUCCESS);
		CHECK(rig, !is_mapped(&found));
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, ibv_dereg_mr(found.mr));
		close(other);
	}
	file_pair_close(&end, at, fd);
}

/* The file shrinks under A's mapping: an error, and A lives. */
static void found_truncated(struct rig *rig)
{
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int fd = -1;

	if (!file_pair(&end, rig, &at, &fd))
		return;
	found_register(&found, &end, at, ALL_RIGHTS);
	if (rig->role == RIG_A)
		await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ftruncate(fd, 0));
	rig_sync(rig);
	if (rig->role == RIG_A)
		operate(&end, &found, IBV_WR_RDMA_WRITE, 2, BYTES, 0, IBV_WC_REM_ACCESS_ERR);
	else
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dereg_mr(found.mr));
	file_pair_close(&end, at, fd);
}

/* A's fcntl() lock on a file that it maps for a peer stays, though the library opens and closes
 * the file. */
static void found_keeps_locks(struct rig *rig)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	struct {
		char path[64];
	} mine = {""}, theirs;
	struct found found;
	struct end end;
	uint8_t *at = NULL;
	int fd = -1;

	if (!rig_maps_files(rig))
		return;
	end_pair(&end, rig, NULL);
	if (rig->role == RIG_B) {
		strcpy(mine.path, "/dev/shm/verbena-found-XXXXXX");
		at = in_closed_file(rig, &fd, mine.path);
	}
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	found_register(&found, &end, at, ALL_RIGHTS);
	if (rig->role == RIG_A) {
		fd = open(theirs.path, O_RDWR);
		CHECK(rig, fd >= 0);
		OK(rig, fcntl(fd, F_SETLK, &lock));
		await_mapping(&end, &found, IBV_WR_RDMA_WRITE);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		fd = open(mine.path, O_RDWR);
		OK(rig, fcntl(fd, F_GETLK, &lock));
		CHECK_EQ(rig, lock.l_type, F_WRLCK);
		CHECK_EQ(rig, lock.l_pid, found.theirs.pid);
	}
	end_region(&end, &found, true);
	if (rig->role == RIG_B)
		unlink(mine.path);
	file_pair_close(&end, at, fd);
}

const struct rig_test found_tests[] = {
	{"found_kinds", found_kinds},
	{"found_stopped", found_stopped},
	{"found_read_only", found_read_only},
	{"found_not_inherited", found_not_inherited},
	{"found_replaced", found_replaced},
	{"found_replaced_before", found_replaced_before},
	{"found_truncated", found_truncated},
	{"found_keeps_locks", found_keeps_locks},
	{NULL, NULL},
};
