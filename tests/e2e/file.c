/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions in memory files, which peers map; and two optimisations of writes: one with immediate
 * data doesn't wait for earlier ones.
 * See rig.h. End A writes and reads, end B has the memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faults.h"

enum { FILE_BYTES = 1 << 20, SKIP = 12345, SEED = 5, MANY = 1000, LARGE = 8192 };

static const unsigned int every_access =
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* An end's region in a file, and the other end's description of its own. */
struct file_region {
	int fd;
	uint8_t *bytes;
	struct ibv_mr *mr;
	struct {
		uint64_t addr;
		uint32_t rkey;
	} mine, theirs;
};

static int make_file(struct rig *rig, unsigned int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(rig, fd >= 0);
	OK(rig, ftruncate(fd, FILE_BYTES));
	OK(rig, fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

/* The region doesn't begin at a page boundary. */
static void file_open(struct file_region *file, struct end *end)
{
	struct rig *rig = end->rig;

	file->fd = make_file(rig, F_SEAL_SHRINK);
	file->bytes = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	CHECK(rig, file->bytes != MAP_FAILED);
	file->mine.addr = 0x70000000 + SKIP;
	file->mr = ibv_reg_dmabuf_mr(end->pd, SKIP, FILE_BYTES - SKIP, file->mine.addr, file->fd,
				     (int)every_access);
	CHECK(rig, file->mr);
	file->mine.rkey = file->mr->rkey;
	rig_swap(rig, &file->mine, &file->theirs, sizeof(file->mine));
}

static void file_close(struct file_region *file, struct end *end)
{
	if (file->mr)
		OK(end->rig, ibv_dereg_mr(file->mr));
	munmap(file->bytes, FILE_BYTES);
	close(file->fd);
}

static int request(struct end *end, const struct file_region *file, enum ibv_wr_opcode opcode,
		   uint64_t id, uint32_t length, uint64_t at)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, opcode, id, 0, length, 0, &wr, &sge);
	wr.wr.rdma.remote_addr = file->theirs.addr + at;
	wr.wr.rdma.rkey = file->theirs.rkey;
	return ibv_post_send(end->qp, &wr, &bad);
}

static void file_moves(struct rig *rig)
{
	static const uint32_t sizes[] = {1, 8, 64, 4096, 4097, 60000};
	struct file_region file;
	struct end end;

	end_pair(&end, rig, NULL);
	file_open(&file, &end);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t size = sizes[i], at = 1000 * i;

		if (rig->role == RIG_A) {
			pattern_fill(end.buf, size, SEED + i);
			OK(rig, request(&end, &file, IBV_WR_RDMA_WRITE, i, size, at));
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		if (rig->role == RIG_B) {
			CHECK(rig, pattern_holds(file.bytes + SKIP + at, size, SEED + i));
			pattern_fill(file.bytes + SKIP + at, size, SEED + 100 + i);
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, request(&end, &file, IBV_WR_RDMA_READ, i, size, at));
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end.buf, size, SEED + 100 + i));
		}
		rig_sync(rig);
	}
	file_close(&file, &end);
	end_close(&end);
}

static void file_ends(struct rig *rig)
{
	struct file_region file;
	struct end end;

	end_pair(&end, rig, NULL);
	file_open(&file, &end);
	if (rig->role == RIG_A) {
		memset(end.buf, 1, 64);
		OK(rig, request(&end, &file, IBV_WR_RDMA_WRITE, 1, 64, FILE_BYTES - SKIP - 64));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK_EQ(rig, file.bytes[FILE_BYTES - 1], 1);
		OK(rig, ibv_dereg_mr(file.mr));
		file.mr = NULL;
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		memset(end.buf, 2, 64);
		OK(rig, request(&end, &file, IBV_WR_RDMA_WRITE, 2, 64, 0));
		wc_expect(&end, end.scq, 2, IBV_WC_REM_ACCESS_ERR);
	}
	rig_sync(rig);
	CHECK_EQ(rig, file.bytes[SKIP], 0);
	file_close(&file, &end);
	end_close(&end);
}

static void refused(struct end *end, int fd, uint64_t offset, size_t length, int error)
{
	errno = 0;
	struct ibv_mr *mr =
		ibv_reg_dmabuf_mr(end->pd, offset, length, 0, fd, IBV_ACCESS_LOCAL_WRITE);

	CHECK(end->rig, !mr);
	CHECK_EQ(end->rig, errno, error);
}

static void file_refused(struct rig *rig)
{
	struct end end;
	int ends[2], loose = make_file(rig, F_SEAL_GROW), sealed = make_file(rig, F_SEAL_SHRINK);

	end_open(&end, rig, NULL);
	OK(rig, pipe(ends));
	refused(&end, ends[0], 0, 4096, EOPNOTSUPP);
	refused(&end, -1, 0, 4096, EBADF);
	refused(&end, loose, 0, 4096, EINVAL);
	refused(&end, sealed, 0, FILE_BYTES + 1, EINVAL);
	refused(&end, sealed, FILE_BYTES, 1, EINVAL);
	refused(&end, sealed, UINT64_MAX, 2, EINVAL);
	refused(&end, sealed, 0, 0, EINVAL);
	close(ends[0]);
	close(ends[1]);
	close(loose);
	close(sealed);
	end_close(&end);
}

/* A second write with immediate data must not be visible before the first has its receive. */
static void imm_in_order(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	memset(end.buf, rig->role == RIG_A ? 7 : 0, 4096);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64, 0));
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 64, 1024));
		rig_sync(rig);
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	} else {
		rig_sync(rig);
		wc_none(&end, end.rcq);
		CHECK_EQ(rig, end.buf[1024], 0);
		OK(rig, end_recv(&end, 1, 2048, 0));
		wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rig, end.buf[63], 7);
		OK(rig, end_recv(&end, 2, 2048, 0));
		wc_expect(&end, end.rcq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(rig, end.buf[1024 + 63], 7);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Many writes as fast as possible: each one's data is there when its receive completes. */
static void imm_stream(struct rig *rig)
{
	enum { DEPTH = 64, PLACES = 2 * DEPTH };
	struct end_options opt = {.send_depth = 16, .recv_depth = DEPTH};
	uint32_t *words;
	struct end end;

	end_pair(&end, rig, &opt);
	words = (uint32_t *)(void *)end.buf;
	for (uint32_t i = 0; rig->role == RIG_B && i < DEPTH; i++)
		OK(rig, end_recv(&end, i, 0, 0));
	rig_sync(rig);
	for (uint32_t i = 0, sent = 0; i < MANY; i++) {
		if (rig->role == RIG_B) {
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
			/* Later writes may have arrived, but they don't overwrite the last few
			 * places. */
			uint32_t got = __atomic_load_n(&words[i % PLACES], __ATOMIC_RELAXED);

			CHECK_EQ(rig, got, i + 1);
			OK(rig, end_recv(&end, i + DEPTH, 0, 0));
			continue;
		}
		for (; sent < MANY && sent < i + 16; sent++) {
			words[sent % PLACES] = sent + 1;
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE_WITH_IMM, sent,
					 sent % PLACES * sizeof(*words), sizeof(*words),
					 sent % PLACES * sizeof(*words)));
		}
		wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Inline data beyond max_inline_data is refused on every carrier, without effect. */
static void inline_large(struct rig *rig)
{
	struct end_options opt = {.inline_bytes = 64};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &opt);
	OK(rig, end_recv(&end, 1, 0, 0));
	end_warm(&end);
	memset(end.buf, rig->role == RIG_A ? 0x11 : 0x22, LARGE);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (int i = 0; i < 3; i++) {
			end_request(&end, i ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, 1, 0,
				    i == 2 ? LARGE : end.cap.max_inline_data + 1, 0, &wr, &sge);
			wr.send_flags |= IBV_SEND_INLINE;
			CHECK_EQ(rig, ibv_post_send(end.qp, &wr, &bad), ENOMEM);
			CHECK(rig, bad == &wr);
		}
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 8, LARGE));
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(rig, end.buf[0], 0x22);
	}
	rig_sync(rig);
	end_close(&end);
}

/* A sparse region: much larger than what may be allocated of it. */
enum { SPARSE_BYTES = 4 << 20, ALLOCATED_MAX = 1 << 20 };

static int make_sparse(struct rig *rig)
{
	int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(rig, fd >= 0);
	OK(rig, ftruncate(fd, SPARSE_BYTES));
	OK(rig, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	CHECK_EQ(rig, pwrite(fd, "owner", 5, 8192), 5);
	return fd;
}

static bool maps_sparse(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "memfd:sparse") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

static void write_at(struct end *end, const struct file_region *file, uint64_t at)
{
	OK(end->rig, request(end, file, IBV_WR_RDMA_WRITE, 1, 8, at));
	wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
}

/* A's operations make A map B's region; pages that B never touched must not be allocated. */
static void sparse_initiate(struct end *end, const struct file_region *file)
{
	struct rig *rig = end->rig;
	struct patience patience = patience_of(RIG_SOON_MS);

	pattern_fill(end->buf, 8, SEED);
	do {
		CHECK(rig, !patience_over(&patience));
		write_at(end, file, 0);
	} while (rig->carrier == RIG_LOCAL && !maps_sparse());
	write_at(end, file, SPARSE_BYTES / 2);
	OK(rig, request(end, file, IBV_WR_RDMA_READ, 2, 5, 8192));
	wc_expect(end, end->scq, 2, IBV_WC_SUCCESS);
	CHECK(rig, !memcmp(end->buf, "owner", 5));
}

static void sparse_check(struct rig *rig, int fd)
{
	struct stat status;
	uint8_t bytes[8];

	OK(rig, fstat(fd, &status));
	CHECK(rig, status.st_blocks * 512 <= ALLOCATED_MAX);
	CHECK_EQ(rig, pread(fd, bytes, 8, SPARSE_BYTES / 2), 8);
	CHECK(rig, pattern_holds(bytes, 8, SEED));
}

static void file_sparse(struct rig *rig)
{
	struct file_region file = {.fd = make_sparse(rig)};
	struct end end;

	end_pair(&end, rig, NULL);
	file.mr = ibv_reg_dmabuf_mr(end.pd, 0, SPARSE_BYTES, 0, file.fd, (int)every_access);
	CHECK(rig, file.mr);
	file.mine.rkey = file.mr->rkey;
	rig_swap(rig, &file.mine, &file.theirs, sizeof(file.mine));
	if (rig->role == RIG_A)
		sparse_initiate(&end, &file);
	rig_sync(rig);
	if (rig->role == RIG_B)
		sparse_check(rig, file.fd);
	rig_sync(rig);
	OK(rig, ibv_dereg_mr(file.mr));
	close(file.fd);
	end_close(&end);
}

const struct rig_test file_tests[] = {
	{"file_moves", file_moves},	{"file_ends", file_ends},
	{"file_refused", file_refused}, {"file_sparse", file_sparse},
	{"imm_in_order", imm_in_order}, {"imm_stream", imm_stream},
	{"inline_large", inline_large}, {NULL, NULL},
};
