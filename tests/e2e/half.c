/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon is killed after it has told one end of a link, and before it tells the other: the
 * first end sends by the link, which the other end never gets. Nothing is lost, nothing is executed
 * twice, and no queue pair's time is up meanwhile, however short it is. See rig.h.
 *
 * The order is forced: the daemon has lost_event.c preloaded, by which it doesn't send one event,
 * and is killed when the first end has sent. The next daemon sends all.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

enum { SLOT_SHIFT = 14, BYTES = 512, SENDS = 6, LAST = 10, ANSWER = 32768, COUNTER = 40960 };

static void in_directory(char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", getenv("VERBENA_RUNTIME_DIR"), name);
}

/* The event that tells the other end of this one is lost. */
static void lose_event_of(struct rig *rig, const struct end *end)
{
	char name[32], path[512];

	snprintf(name, sizeof(name), "lose-%u", end->qp->qp_num >> SLOT_SHIFT);
	in_directory(path, sizeof(path), name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	CHECK(rig, fd >= 0);
	close(fd);
}

static bool is_lost(struct end *end)
{
	char name[32], path[512];

	snprintf(name, sizeof(name), "lose-%u", end->qp->qp_num >> SLOT_SHIFT);
	in_directory(path, sizeof(path), name);
	return access(path, F_OK) != 0;
}

static void to_rts(struct end *end)
{
	end_rtr(end);
	end_rts(end);
}

/* Completes when it is in the ring, so this process has the link then. No QP receives it. */
static void wait_for_link(struct end *uc)
{
	OK(uc->rig, end_send(uc, IBV_WR_SEND, 0, 0, 8, 0));
	wc_expect(uc, uc->scq, 0, IBV_WC_SUCCESS);
}

/* Requests of all kinds. Those after the SENDs wait for what is before them, or for the peer. */
static void post_all(struct end *end)
{
	struct rig *rig = end->rig;

	for (uint64_t i = 0; i < SENDS; i++) {
		pattern_fill(end->buf + i * BYTES, BYTES, (uint32_t)(rig->role * 100 + i));
		OK(rig, end_send(end, IBV_WR_SEND, i, i * BYTES, BYTES, 0));
	}
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, IBV_WR_ATOMIC_FETCH_AND_ADD, SENDS, ANSWER, 8, COUNTER, &wr, &sge);
	wr.wr.atomic.compare_add = 1;
	OK(rig, ibv_post_send(end->qp, &wr, &bad));
	OK(rig, end_send(end, IBV_WR_RDMA_WRITE, SENDS + 1, 0, BYTES, COUNTER + 64));
	OK(rig, end_send(end, IBV_WR_RDMA_READ, SENDS + 2, ANSWER + 64, BYTES, COUNTER + 64));
	OK(rig, end_send(end, IBV_WR_SEND, SENDS + 3, 0, BYTES, 0));
}

static void expect_all(struct end *end)
{
	struct rig *rig = end->rig;

	for (uint64_t i = 0; i < LAST; i++)
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i <= SENDS; i++) {
		wc_expect(end, end->rcq, i, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf + 16384 + i * BYTES, BYTES,
					 (uint32_t)(!rig->role * 100 + i % SENDS)));
	}
	wc_none(end, end->rcq);
	rig_sync(rig); /* the other end's requests have completed */
	uint64_t counter;

	memcpy(&counter, end->buf + COUNTER, sizeof(counter));
	CHECK_EQ(rig, counter, 1);
	CHECK(rig, pattern_holds(end->buf + ANSWER + 64, BYTES, (uint32_t)(rig->role * 100)));
}

/* `told` is the end that has the link; `asker` the one that asks for it. */
static void one_is_told(struct rig *rig, int told, int asker)
{
	const struct end_options unreliable = {.type = IBV_QPT_UC};
	struct end end, uc;

	end_open(&end, rig, NULL); /* its time is up after 12 ms */
	end_open(&uc, rig, &unreliable);
	memset(end.buf + COUNTER, 0, 8);
	end_init(&end);
	for (uint64_t i = 0; i <= SENDS; i++)
		OK(rig, end_recv(&end, i, 16384 + i * BYTES, BYTES));
	end_init(&uc);
	end_meet(&end);
	end_meet(&uc);
	if (rig->role == told)
		lose_event_of(rig, &end);
	rig_sync(rig);
	for (int turn = 0; turn < 2; turn++) {
		if ((rig->role == asker) == !turn) {
			to_rts(&uc);
			to_rts(&end);
		}
		rig_sync(rig);
	}
	if (rig->role == told) {
		wait_for_link(&uc);
		CHECK(rig, is_lost(&end));
	}
	post_all(&end);
	rig_sync(rig);
	if (rig->role == told)
		rig_kill_daemon(rig);
	expect_all(&end);
	rig_sync(rig);
	end_close(&uc);
	end_close(&end);
}

static void the_asker_is_told(struct rig *rig)
{
	one_is_told(rig, RIG_A, RIG_A);
}

static void the_other_is_told(struct rig *rig)
{
	one_is_told(rig, RIG_A, RIG_B);
}

/* Writes the script that starts a daemon with lost_event.c, and has the library use it. */
static void prepare_daemon(const char *preload)
{
	char path[512];

	in_directory(path, sizeof(path), "daemon");
	FILE *script = fopen(path, "w");

	if (!script ||
	    fprintf(script, "#!/bin/sh\nLD_PRELOAD=%s exec %s \"$@\"\n", preload,
		    getenv("VERBENA_DAEMON")) < 0 ||
	    fclose(script) || chmod(path, 0700) || setenv("VERBENA_DAEMON", path, 1)) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"the_asker_is_told", the_asker_is_told},
		{"the_other_is_told", the_other_is_told},
		{0},
	};

	if (argc < 2 || !getenv("VERBENA_DAEMON")) {
		fprintf(stderr, "usage: own-daemon half PRELOAD [RIG'S OPTIONS]\n");
		return 2;
	}
	prepare_daemon(argv[1]);
	argv[1] = argv[0];
	rig_main(argc - 1, argv + 1, tests);
}
