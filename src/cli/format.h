/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers formatted for people. Each function writes a terminated text to `text`, which has
 * FORMAT_BYTES bytes, and returns it.
 */
#ifndef VERBENA_CLI_FORMAT_H
#define VERBENA_CLI_FORMAT_H

#include <stdint.h>

#define FORMAT_BYTES 64

/* "850 ms", "12 s", "3 min 5 s", "2 h 10 min", "4 d 3 h". */
const char *format_duration(char *text, uint64_t duration_ms);

/* "0", "512 B", "4.0 KiB", "1.5 GiB". */
const char *format_size(char *text, uint64_t size_bytes);

/*
 * enum ibv_access_flags, short: LW local write, RW remote write, RR remote read, RA remote atomic,
 * MW window binding, ZB zero based, OD on demand, HUGE huge pages, FG flush to
 * visibility; other bits in hexadecimal.
 */
const char *format_access(char *text, uint64_t access);

/* A user's name, else the number. */
const char *format_user(char *text, uint32_t uid);

#endif
