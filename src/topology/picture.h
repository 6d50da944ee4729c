/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the drawing's files only. */
#ifndef VERBENA_TOPOLOGY_PICTURE_H
#define VERBENA_TOPOLOGY_PICTURE_H

#include <stdio.h>

/* Writes a text of XML: its special characters escaped. */
void picture_text(FILE *out, const char *text);

#endif
