/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory that the programs of one user share, in a directory that all users may write to
 * (/tmp). They find it by its name, which other users can compute, too: the first to make it has
 * the name. So where the name belongs to another user, the programs use a directory of theirs whose
 * name begins with it, and ends with when it was made; of several the oldest. Programs that make
 * the first ones in the same microseconds may use different ones.
 */
#ifndef VERBENA_BASE_OWN_DIR_H
#define VERBENA_BASE_OWN_DIR_H

#include <stddef.h>

/*
 * Writes the path of this user's directory that is called `name` in `place`. The name itself, which
 * need not exist, unless another user (who isn't root) has it; else the directory is made. Returns
 * 0; -ENAMETOOLONG; -errno.
 */
int own_dir_find(char *path, size_t size, const char *place, const char *name);

#endif
