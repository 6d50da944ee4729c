/* SPDX-License-Identifier: BSD-2-Clause */
/* What is copied into a peer's memory past the caches: every byte of every segment, nothing beside
 * it, and false where a segment isn't mapped. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/string_move.h"
#include "hca/local/peer.h"
#include "hca/mem/copy.h"
#include "hca/mem/foreign.h"
#include "hca/mem/guard.h"
#include "hca/mem/streaming.h"

/* The result must be the same for both kinds of processors. */
static bool moves_slowly;

bool string_move_is_slow(void)
{
	return moves_slowly;
}

/* No region is another process's here. */
bool foreign_get(void *to, const void *marked, size_t length)
{
	(void)to, (void)marked, (void)length;
	return false;
}

bool foreign_put(void *marked, const void *from, size_t length)
{
	(void)marked, (void)from, (void)length;
	return false;
}

bool foreign_among(const struct iovec *list, int count)
{
	(void)list, (void)count;
	return false;
}

static unsigned int announced; /* copies that take several calls */

void hazard_takes_several(void)
{
	announced++;
}

enum { PAGE = 4096, MARGIN = 64, MOST = 3 * STREAMING_LEAST, FILL = 0xa5 };

static _Alignas(PAGE) uint8_t from[MOST + MARGIN], to[MOST + PAGE + 2 * MARGIN];

/* Neighbours differ, and so do bytes that are a line or a page apart. */
static void fill_source(void)
{
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 31 + i / 251);
}

/* Checks that `length` bytes from the list arrive at to + MARGIN + shift. */
static void check(const struct iovec *list, int count, size_t shift, size_t length)
{
	uint8_t *out = to + MARGIN + shift;
	size_t at = 0;

	memset(to, FILL, sizeof(to));
	assert_true(copy_gather_far(out, list, count, length));
	for (int i = 0; i < count; at += list[i++].iov_len)
		assert_memory_equal(out + at, list[i].iov_base, list[i].iov_len);
	assert_int_equal(at, length);
	for (const uint8_t *p = to; p < out; p++)
		assert_int_equal(*p, FILL);
	for (const uint8_t *p = out + length; p < to + sizeof(to); p++)
		assert_int_equal(*p, FILL);
}

static void any_alignment_and_length(void **state)
{
	static const size_t lengths[] = {1,
					 100,
					 STREAMING_LEAST - 1,
					 STREAMING_LEAST,
					 STREAMING_LEAST + 1,
					 STREAMING_LEAST + 63,
					 STREAMING_LEAST + 64,
					 STREAMING_LEAST + 65,
					 MOST};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t shift = 0; shift < MARGIN; shift += 7) {
			struct iovec whole = {from + (shift * 5) % MARGIN, lengths[i]};

			check(&whole, 1, shift, lengths[i]);
		}
}

static void any_segments(void **state)
{
	struct iovec list[] = {{from + 1, 1},	{from + 2, 0},
			       {from + 77, 63}, {from + 5000, STREAMING_LEAST},
			       {from, 65},	{from + 300, 1}};

	(void)state;
	check(list, 6, 3, 1 + 63 + STREAMING_LEAST + 65 + 1);
	/* The last byte is a segment's only one, or not. */
	check(list, 5, 60, 1 + 63 + STREAMING_LEAST + 65);
}

/* Payloads: lengths about those where the kind of copying changes, at places as in a packet; some
 * a little ahead of the source, modulo the page. */
static void payloads(void **state)
{
	static const size_t lengths[] = {1,    767,  768,  769,	 775,  1500, 2047, 2048, 2049,
					 2304, 4090, 4095, 4096, 4097, 6144, 8160, MOST};
	static const size_t shifts[] = {0, 12, 28, PAGE - MARGIN, PAGE - MARGIN + 12};

	moves_slowly = *state;
	fill_source();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t k = 0; k < sizeof(shifts) / sizeof(shifts[0]); k++) {
			struct iovec source = {from, lengths[i]};
			uint8_t *out = to + MARGIN + shifts[k];
			struct iovec target = {out, lengths[i]};

			memset(to, FILL, sizeof(to));
			assert_true(copy_gather(out, &source, 1, 0, lengths[i]));
			assert_memory_equal(out, from, lengths[i]);
			assert_int_equal(out[-1], FILL);
			assert_int_equal(out[lengths[i]], FILL);
			memset(to, FILL, sizeof(to));
			assert_true(copy_scatter(&target, 1, 0, from, lengths[i]));
			assert_memory_equal(out, from, lengths[i]);
			assert_int_equal(out[-1], FILL);
			assert_int_equal(out[lengths[i]], FILL);
		}
}

/* By the kernel, to this process; the last byte is the only one of its segment, or not, or an empty
 * segment follows it. */
static void to_a_process(void **state)
{
	static const struct process_life alive;
	const struct peer_process self = {.pid = getpid(), .life = &alive};
	struct iovec list[] = {{from + 1, 100}, {from + 200, 1}, {from + 300, 5000}, {from, 0}};
	static const int firsts[] = {0, 1, 1, 2, 0}, counts[] = {3, 1, 3, 2, 2};

	(void)state;
	fill_source();
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		const struct iovec *segment = list + firsts[i];
		size_t length = 0, at = 0;
		uint8_t *out = to + MARGIN + i;

		for (int k = 0; k < counts[i]; k++)
			length += segment[k].iov_len;
		memset(to, FILL, sizeof(to));
		int err = copy_to_process(&self, (uintptr_t)out, segment, counts[i], length);

		if (err == -ENOSYS || err == -EPERM)
			skip(); /* an emulator; or not allowed */
		assert_int_equal(err, 0);
		for (int k = 0; k < counts[i]; at += segment[k++].iov_len)
			assert_memory_equal(out + at, segment[k].iov_base, segment[k].iov_len);
		assert_int_equal(out[-1], FILL);
		assert_int_equal(out[length], FILL);
	}
}

/* A list with a marked address is copied piece by piece, which is announced before the first call:
 * the owner of the memory would take the end of one call for the end of the copy. */
static void several_calls(void **state)
{
	static const struct process_life alive;
	const struct peer_process self = {.pid = getpid(), .life = &alive};
	struct iovec list[] = {{from, 10}, {(void *)(1ull << 63 | 4096), 10}}; /* NOLINT */

	(void)state;
	announced = 0;
	copy_from_process(&self, (uintptr_t)to, list, 1, 10);
	assert_int_equal(announced, 0);
	assert_int_not_equal(copy_from_process(&self, (uintptr_t)to, list, 2, 20), 0);
	assert_int_equal(announced, 1);
	assert_int_not_equal(copy_to_process(&self, (uintptr_t)to, list, 2, 20), 0);
	assert_int_equal(announced, 2);
}

static void what_is_not_mapped(void **state)
{
	uint8_t *gone = mmap(NULL, STREAMING_LEAST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec list[] = {{from, STREAMING_LEAST}, {gone, STREAMING_LEAST}};

	(void)state;
	signal(SIGSEGV, SIG_DFL); /* with a mask of its own, which must not become ours */
	guard_install();
	assert_ptr_not_equal(gone, MAP_FAILED);
	assert_false(copy_gather_far(to, list, 2, 2 * STREAMING_LEAST));
	assert_false(copy_gather_far(gone, list, 1, STREAMING_LEAST));
	munmap(gone, STREAMING_LEAST);
	/* Copying still works after that. */
	check(list, 1, 0, STREAMING_LEAST);
}

/* A WRITE is tried by ordinary stores; after one that took long, some are streamed without a try,
 * and then one is tried again. */
static void streams_after_a_slow_try(void **state)
{
	enum { LONG = 65536, QUICK_NS = LONG / 32, SLOW_NS = LONG / 4 };
	unsigned int streamed = 0;

	(void)state;
	assert_int_equal(streaming_choose(STREAMING_LEAST - 1), STREAMING_NOT);
	if (streaming_choose(LONG) == STREAMING_NOT)
		skip(); /* on this processor it never pays */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(streaming_choose(LONG), STREAMING_TRY);
		streaming_tried(LONG, QUICK_NS);
	}
	assert_int_equal(streaming_choose(LONG), STREAMING_TRY);
	streaming_tried(LONG, SLOW_NS);
	assert_int_equal(streaming_choose(STREAMING_LEAST - 1), STREAMING_NOT);
	while (streaming_choose(LONG) == STREAMING_DO)
		streamed++;
	assert_in_range(streamed, 1, 100);
	streaming_tried(LONG, QUICK_NS);
	assert_int_equal(streaming_choose(LONG), STREAMING_TRY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_after_a_slow_try),
		cmocka_unit_test(any_alignment_and_length),
		cmocka_unit_test(any_segments),
		cmocka_unit_test(payloads),
		{"payloads, strings move slowly", payloads, NULL, NULL, &moves_slowly},
		cmocka_unit_test(to_a_process),
		cmocka_unit_test(several_calls),
		cmocka_unit_test(what_is_not_mapped),
	};

	fill_source();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
