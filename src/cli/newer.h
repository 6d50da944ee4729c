/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Systems whose rdma-core is of a later release than our libibverbs.so.1 knows. One thread.
 */
#ifndef VERBENA_CLI_NEWER_H
#define VERBENA_CLI_NEWER_H

#include <limits.h>
#include <stdbool.h>

/*
 * If the system's libibverbs.so.1 has version nodes that ours in `library_dir` lacks, programs of
 * that system end in the loader. Then this makes a copy of ours with these nodes, and in them what
 * ours has of their names, says so in one line, and writes the copy's directory. The system's
 * library is the one that the loader would find without ours. Returns 1; 0: ours has all nodes, or
 * there is no other library; or a negative errno, after a message: programs get ours as it is.
 */
int newer_release_serve(const char *library_dir, char directory[PATH_MAX]);

/* Whether a value of LD_LIBRARY_PATH begins with such a directory. */
bool newer_directory_is_first(const char *list);

#endif
