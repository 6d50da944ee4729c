/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers formatted for people; see format.h. No state. One thread (getpwuid).
 */
#include "cli/format.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

const char *format_duration(char *text, uint64_t duration_ms)
{
	uint64_t s = duration_ms / 1000, min = s / 60, h = min / 60, d = h / 24;

	if (duration_ms < 1000)
		snprintf(text, FORMAT_BYTES, "%" PRIu64 " ms", duration_ms);
	else if (s < 60)
		snprintf(text, FORMAT_BYTES, "%" PRIu64 " s", s);
	else if (min < 60)
		snprintf(text, FORMAT_BYTES, "%" PRIu64 " min %" PRIu64 " s", min, s % 60);
	else if (h < 24)
		snprintf(text, FORMAT_BYTES, "%" PRIu64 " h %" PRIu64 " min", h, min % 60);
	else
		snprintf(text, FORMAT_BYTES, "%" PRIu64 " d %" PRIu64 " h", d, h % 24);
	return text;
}

const char *format_size(char *text, uint64_t size_bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)size_bytes / 1024;
	size_t unit = 0;

	if (size_bytes == 0) {
		snprintf(text, FORMAT_BYTES, "0");
		return text;
	}
	if (size_bytes < 1024) {
		snprintf(text, FORMAT_BYTES, "%" PRIu64 " B", size_bytes);
		return text;
	}
	/* 1023.95 would be printed as "1024.0". */
	while (value >= 1023.95 && unit + 1 < ARRAY_LENGTH(units)) {
		value /= 1024;
		unit++;
	}
	snprintf(text, FORMAT_BYTES, "%.1f %s", value, units[unit]);
	return text;
}

const char *format_access(char *text, uint64_t access)
{
	/* Indexed by bit number. */
	static const char *const names[] = {"LW", "RW", "RR", "RA", "MW", "ZB", "OD", "HUGE", "FG"};
	size_t used = 0;

	text[0] = '\0';
	for (size_t bit = 0; bit < ARRAY_LENGTH(names); bit++) {
		if (!(access >> bit & 1))
			continue;
		used += (size_t)snprintf(text + used, FORMAT_BYTES - used, "%s%s", used ? "," : "",
					 names[bit]);
	}
	access >>= ARRAY_LENGTH(names);
	if (access)
		snprintf(text + used, FORMAT_BYTES - used, "%s0x%" PRIx64, used ? "," : "",
			 access << ARRAY_LENGTH(names));
	return text;
}

const char *format_user(char *text, uint32_t uid)
{
	const struct passwd *entry = getpwuid(uid);

	if (entry)
		snprintf(text, FORMAT_BYTES, "%s", entry->pw_name);
	else
		snprintf(text, FORMAT_BYTES, "%" PRIu32, uid);
	return text;
}
