/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that checks everything: each message, each result of a collective and each window
 * is compared with the expected value. It uses no RDMA itself; run under `verbena run` it shows
 * that an MPI library works over Verbena. Rank 0 prints one line per part; the first difference
 * aborts the job.
 *
 * usage: mpi_check [ROUNDS]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 20, TAG = 7, WORDS = 4096 };

/* Lengths below and above those that libraries send eagerly, by a rendezvous, in pieces. */
static const int lengths[] = {0, 1, 8, 63, 1000, 4096, 8193, 65536, 262145, LONGEST};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static int rank, ranks;

#define REQUIRE(condition)                                                                \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "rank %d, line %d: not so: %s\n", rank, __LINE__, \
				#condition);                                              \
			MPI_Abort(MPI_COMM_WORLD, 1);                                     \
		}                                                                         \
	} while (0)

/* Each byte depends on the sender, the round, and the position in the message. */
static uint8_t byte_of(int from, int round, int at)
{
	uint32_t x = (uint32_t)at * 2654435761u + (uint32_t)from * 40503u + (uint32_t)round * 97u;

	return (uint8_t)(x >> 24 ^ x >> 11);
}

static void message_fill(uint8_t *to, int length, int from, int round)
{
	for (int i = 0; i < length; i++)
		to[i] = byte_of(from, round, i);
}

static int message_holds(const uint8_t *bytes, int length, int from, int round)
{
	for (int i = 0; i < length; i++)
		if (bytes[i] != byte_of(from, round, i))
			return 0;
	return 1;
}

/* Each rank to its right neighbour, from its left one, all lengths. */
static void neighbours(int rounds)
{
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	uint8_t *out = malloc(LONGEST), *in = malloc(LONGEST);

	REQUIRE(out && in);
	for (int round = 0; round < rounds; round++) {
		int length = lengths[round % LENGTHS], got;
		MPI_Status status;

		message_fill(out, length, rank, round);
		memset(in, 0, (size_t)length);
		MPI_Sendrecv(out, length, MPI_BYTE, right, TAG, in, LONGEST, MPI_BYTE, left, TAG,
			     MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &got);
		REQUIRE(got == length && status.MPI_SOURCE == left);
		REQUIRE(message_holds(in, length, left, round));
	}
	free(out);
	free(in);
}

/* All ranks to all ranks at once, some messages before their receive is posted. */
static void crowd(int rounds)
{
	MPI_Request *requests = malloc(2 * (size_t)ranks * sizeof(MPI_Request));
	uint8_t *out = malloc((size_t)ranks * LONGEST), *in = malloc((size_t)ranks * LONGEST);

	REQUIRE(requests && out && in);
	for (int round = 0; round < rounds; round++) {
		int length = lengths[(round + 3) % LENGTHS], n = 0;

		for (int peer = 0; peer < ranks; peer++) {
			uint8_t *mine = out + (size_t)peer * LONGEST;

			message_fill(mine, length, rank + peer, round);
			MPI_Isend(mine, length, MPI_BYTE, peer, round, MPI_COMM_WORLD,
				  &requests[n++]);
		}
		if (round % 2)
			MPI_Barrier(MPI_COMM_WORLD);
		for (int peer = 0; peer < ranks; peer++)
			MPI_Irecv(in + (size_t)peer * LONGEST, length, MPI_BYTE, peer, round,
				  MPI_COMM_WORLD, &requests[n++]);
		MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
		for (int peer = 0; peer < ranks; peer++)
			REQUIRE(message_holds(in + (size_t)peer * LONGEST, length, peer + rank,
					      round));
	}
	free(requests);
	free(out);
	free(in);
}

static void sums(int count, int root)
{
	int64_t *mine = malloc((size_t)count * sizeof(*mine)), *all = malloc((size_t)count * 8);
	int64_t wanted = (int64_t)ranks * (ranks - 1) / 2;

	REQUIRE(mine && all);
	for (int i = 0; i < count; i++)
		mine[i] = rank + i;
	MPI_Allreduce(mine, all, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		REQUIRE(all[i] == wanted + (int64_t)i * ranks);
	memset(all, 0, (size_t)count * 8);
	MPI_Reduce(mine, all, count, MPI_INT64_T, MPI_MAX, root, MPI_COMM_WORLD);
	for (int i = 0; rank == root && i < count; i++)
		REQUIRE(all[i] == ranks - 1 + i);
	MPI_Scan(mine, all, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		REQUIRE(all[i] == (int64_t)rank * (rank + 1) / 2 + (int64_t)i * (rank + 1));
	free(mine);
	free(all);
}

static void exchanges(int length, int round)
{
	size_t bytes = (size_t)ranks * (size_t)length;
	uint8_t *out = malloc(bytes + 1), *in = malloc(bytes + 1);
	int root = round % ranks;

	REQUIRE(out && in);
	for (int peer = 0; peer < ranks; peer++)
		message_fill(out + (size_t)peer * length, length, rank * ranks + peer, round);
	MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		REQUIRE(message_holds(in + (size_t)peer * length, length, peer * ranks + rank,
				      round));
	MPI_Allgather(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		REQUIRE(message_holds(in + (size_t)peer * length, length, peer * ranks, round));
	if (rank == root)
		message_fill(in, length, 12345, round);
	MPI_Bcast(in, length, MPI_BYTE, root, MPI_COMM_WORLD);
	REQUIRE(message_holds(in, length, 12345, round));
	free(out);
	free(in);
}

static void collectives(int rounds)
{
	for (int round = 0; round < rounds; round++) {
		sums(1 + round * 997 % 20000, round % ranks);
		exchanges(lengths[round % (LENGTHS - 1)] / 4, round);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* What other ranks put into this rank's window, and what this rank gets from theirs. */
static void window_puts(MPI_Win win, int64_t *words, int64_t *buffer, int round)
{
	int per = WORDS / ranks;

	for (int i = 0; i < per; i++)
		buffer[i] = (int64_t)round << 32 | rank << 16 | i;
	MPI_Win_fence(0, win);
	for (int peer = 0; peer < ranks; peer++)
		MPI_Put(buffer, per, MPI_INT64_T, peer, (MPI_Aint)rank * per, per, MPI_INT64_T,
			win);
	MPI_Win_fence(0, win);
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < per; i++)
			REQUIRE(words[peer * per + i] == ((int64_t)round << 32 | peer << 16 | i));
	memset(buffer, 0, WORDS * sizeof(*buffer));
	for (int peer = 0; peer < ranks; peer++)
		MPI_Get(buffer + peer * per, per, MPI_INT64_T, peer, (MPI_Aint)rank * per, per,
			MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < per; i++)
			REQUIRE(buffer[peer * per + i] == ((int64_t)round << 32 | rank << 16 | i));
}

/* All ranks increment rank 0's word, by two kinds of atomics, with passive locks. */
static void window_atomics(MPI_Win win, int64_t *words, int rounds)
{
	int64_t one = 1, seen, last = -1;

	if (rank == 0)
		words[0] = words[1] = 0;
	MPI_Win_fence(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < rounds; round++) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Fetch_and_op(&one, &seen, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, win);
		MPI_Win_unlock(0, win);
		REQUIRE(seen > last && seen < (int64_t)ranks * rounds);
		last = seen;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(&seen, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
	MPI_Get(&last, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, win);
	MPI_Win_unlock(0, win);
	REQUIRE(seen == (int64_t)ranks * rounds && last == seen);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void windows(int rounds)
{
	int64_t *words, *buffer = malloc(WORDS * sizeof(*buffer));
	MPI_Win win;

	REQUIRE(buffer);
	MPI_Win_allocate(WORDS * sizeof(*words), sizeof(*words), MPI_INFO_NULL, MPI_COMM_WORLD,
			 &words, &win);
	for (int round = 0; round < rounds; round++)
		window_puts(win, words, buffer, round);
	window_atomics(win, words, rounds);
	MPI_Win_free(&win);
	free(buffer);
}

/* Half a round trip of 8 bytes between the first two ranks, in microseconds. */
static double ping_pong(int rounds)
{
	int64_t word = 0;
	double began = 0;

	for (int round = -rounds / 10; round < rounds && rank < 2; round++) {
		if (round == 0)
			began = MPI_Wtime();
		if (rank == 0)
			MPI_Send(&word, 1, MPI_INT64_T, 1, TAG, MPI_COMM_WORLD);
		MPI_Recv(&word, 1, MPI_INT64_T, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(&word, 1, MPI_INT64_T, 0, TAG, MPI_COMM_WORLD);
	}
	return (MPI_Wtime() - began) / rounds / 2 * 1e6;
}

static void part(const char *name, void (*body)(int rounds), int rounds)
{
	body(rounds);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("ok    %s, %d ranks\n", name, ranks);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int rounds = argc > 1 ? atoi(argv[1]) : 20;

	part("neighbours", neighbours, rounds);
	part("everyone to everyone", crowd, rounds);
	part("collectives", collectives, rounds);
	part("windows", windows, rounds);
	if (ranks > 1) {
		double us = ping_pong(rounds * 50);

		if (rank == 0)
			printf("8 bytes: %.2f us\n", us);
	}
	MPI_Finalize();
	return 0;
}
