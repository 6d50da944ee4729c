/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: a program with arbitrary specifications of a flow rule, and a peer or network with
 * an arbitrary frame. Specifications are refused, or can be matched; the checksums that are
 * computed are right where there is something to check; no byte outside is read or written.
 *
 * Input: how many specifications there are; how many bytes they have (two bytes, little-endian);
 * that many bytes; the rest is the frame.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "wire/steer.h"
#include "wire/toeplitz.h"

/* A copy of its own, so that a sanitizer sees the bounds. */
static uint8_t *copy_of(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	MUST(copy);
	if (size)
		memcpy(copy, bytes, size);
	return copy;
}

static void check_checksums(const uint8_t *frame, size_t size)
{
	uint8_t *filled = copy_of(frame, size), *again;
	struct ether_frame before, after;
	static const uint8_t key[TOEPLITZ_KEY] = {1, 2, 3};

	(void)ether_checksums_right(frame, size);
	ether_parse(frame, size, &before);
	ether_checksums_fill(filled, size);
	again = copy_of(filled, size);
	ether_checksums_fill(again, size);
	MUST(!memcmp(filled, again, size));
	ether_parse(filled, size, &after);
	/* Outside tunnels the headers are those that they were. */
	MUST(before.outer.version == after.outer.version &&
	     before.outer.protocol == after.outer.protocol && !before.outer.l4 == !after.outer.l4);
	MUST(toeplitz_frame(key, 0, &before) == 0);
	(void)toeplitz_frame(key, 0x1ff, &after);
	(void)toeplitz_frame(key, 0x800001ff, &after);
	free(filled);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct steer_actions actions;
	struct ether_frame parsed;
	const char *why = NULL;

	if (size < 3)
		return 0;
	size_t specs_size = data[1] | (size_t)(data[2] & 1) << 8;

	if (specs_size > size - 3)
		specs_size = size - 3;
	uint8_t *specs = copy_of(data + 3, specs_size);
	size_t frame_size = size - 3 - specs_size;
	uint8_t *frame = copy_of(data + 3 + specs_size, frame_size);
	int err = steer_check(specs, specs_size, data[0], &actions, &why);

	MUST(!err || why);
	ether_parse(frame, frame_size, &parsed);
	/* A rule without descriptions is for each frame. */
	if (!err)
		MUST(steer_same(specs, specs_size, specs, specs_size));
	if (!err)
		MUST(steer_matches(specs, specs_size, &parsed) || actions.describes);
	check_checksums(frame, frame_size);
	free(specs);
	free(frame);
	return 0;
}
