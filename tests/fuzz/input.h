/* SPDX-License-Identifier: BSD-2-Clause */
/* A fuzzer's input as a stream of small numbers; zeros follow its end. */
#ifndef VERBENA_TESTS_FUZZ_INPUT_H
#define VERBENA_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
	const uint8_t *at, *end;
};

static inline bool input_left(const struct input *in)
{
	return in->at < in->end;
}

/* Reads up to `size` bytes; missing ones are zeros. */
static inline void input_bytes(struct input *in, void *out, size_t size)
{
	size_t left = (size_t)(in->end - in->at), n = left < size ? left : size;

	memset(out, 0, size);
	memcpy(out, in->at, n);
	in->at += n;
}

static inline uint8_t input_u8(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint64_t input_u64(struct input *in)
{
	uint64_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

/* For functions of the harness: their branches aren't instrumented, because a fuzzer learns nothing
 * from them. */
#ifdef __clang__
#define UNTRACED __attribute__((no_sanitize("coverage")))
#else
#define UNTRACED
#endif

/* Defined by every target: runs one input, from a clean state to a clean state. Ends the process
 * when a check fails. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process, so that the fuzzer keeps the input. */
#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s doesn't hold\n", __FILE__, __LINE__, \
				#condition);                                            \
			abort();                                                        \
		}                                                                       \
	} while (0)

#endif
