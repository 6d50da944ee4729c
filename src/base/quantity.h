/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers, sizes and times as people write them: on command lines, in configuration files, in
 * topology files. All commands use these functions, so that a value is right or wrong everywhere.
 *
 * A text is a value only as a whole: nothing before it (no sign, no space) and nothing after it. A
 * value outside its limits is none. No function changes its result when it returns false. The
 * functions own nothing and may be called by any thread.
 */
#ifndef VERBENA_BASE_QUANTITY_H
#define VERBENA_BASE_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nanoseconds of the units that quantity_time() may be given as the usual one. */
#define QUANTITY_NS UINT64_C(1)
#define QUANTITY_MS UINT64_C(1000000)
#define QUANTITY_S UINT64_C(1000000000)

/* Parses a number, decimal or hexadecimal ("0x1f"), from `least` to `most`. */
bool quantity_number(const char *text, uint64_t least, uint64_t most, uint64_t *number);

/* The same for a result of 32 bits. */
bool quantity_number32(const char *text, uint32_t least, uint32_t most, uint32_t *number);

/* Parses an octal number up to `most`, such as a file's mode. */
bool quantity_octal(const char *text, uint64_t most, uint64_t *number);

/*
 * Parses a size in bytes from `least` to `most`: a number, and for units of 1024 a letter K, M, G
 * or T of either case, which may be followed by "iB" ("4096", "64K", "2GiB").
 */
bool quantity_size(const char *text, uint64_t least, uint64_t most, uint64_t *bytes);

/*
 * Parses the time in the first `length` bytes of `text`: a decimal fraction and ns, us, ms, s, min
 * or h ("200ns", "1.5s"). A number without unit is in `usual` nanoseconds; with `usual` 0 it is no
 * time. The result, rounded to nanoseconds, is at most `most_ns`.
 */
bool quantity_time(const char *text, size_t length, uint64_t usual, uint64_t most_ns, uint64_t *ns);

/* Parses a decimal fraction from 0 to `most` ("12", "0.25"). */
bool quantity_fraction(const char *text, double most, double *fraction);

/*
 * Parses up to `room` numbers from `least` to `most` with an x between them ("4x4x3") into `sizes`.
 * Returns how many there are; 0: the text isn't of this form.
 */
size_t quantity_dimensions(const char *text, uint32_t least, uint32_t most, uint32_t *sizes,
			   size_t room);

#endif
