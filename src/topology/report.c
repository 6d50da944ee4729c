/* SPDX-License-Identifier: BSD-2-Clause */
/* Remarks on a topology file. No state but the caller's report. One thread at a time. */
#include <stdarg.h>
#include <stdio.h>

#include "topology/private.h"

/* Half of the room is kept for errors. */
#define WARNINGS_MAX (TOPOLOGY_REMARKS / 2)

static void remark_add(struct topology_report *report, uint32_t line, bool is_warning,
		       const char *format, va_list args)
{
	uint32_t warnings = 0;
	struct topology_remark *remark;
	int n = 0;

	for (uint32_t i = 0; i < report->count; i++)
		warnings += report->remarks[i].is_warning;
	if (!is_warning)
		report->errors++;
	if (report->count == TOPOLOGY_REMARKS || (is_warning && warnings >= WARNINGS_MAX)) {
		report->dropped++;
		return;
	}
	remark = &report->remarks[report->count++];
	remark->line = line;
	remark->is_warning = is_warning;
	if (report->file)
		n = snprintf(remark->text, sizeof(remark->text) / 2, "%s:%u: ", report->file,
			     report->file_line);
	if (n < 0 || (size_t)n >= sizeof(remark->text) / 2)
		n = 0;
	vsnprintf(remark->text + n, sizeof(remark->text) - (size_t)n, format, args);
}

void topology_remark_error(struct topology_report *report, uint32_t line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	remark_add(report, line, false, format, args);
	va_end(args);
}

void topology_remark_warning(struct topology_report *report, uint32_t line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	remark_add(report, line, true, format, args);
	va_end(args);
}
