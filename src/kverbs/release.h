/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-core's releases, as far as a compiled driver library depends on them: a driver is of the
 * release whose registering function it has called (verbs_register_driver_59()), and each node of
 * private symbols has the functions that fit. A release is in the list when it changed a layout.
 *
 * What changed: the driver's table of functions is in the order of names, so each new one moves
 * those behind it; and `struct verbs_context` grows at its beginning, so a driver's pointer to one
 * lies before ours. Layout only: no state.
 */
#ifndef VERBENA_KVERBS_RELEASE_H
#define VERBENA_KVERBS_RELEASE_H

#include <infiniband/verbs.h>
#include <stddef.h>

struct provider_ops;

enum driver_release {
	RELEASE_UNKNOWN = -1,
	RELEASE_44, /* to 56 */
	RELEASE_57, /* and 58: commands only */
	RELEASE_59, /* to 61 */
	RELEASE_62, /* and 63: another table under the node of 59 */
	RELEASE_64,
	RELEASE_65,
	RELEASES,
};

/* Fills `ops` from a driver's table; NULL for functions that the release doesn't have. */
void release_ops_read(enum driver_release release, const void *table, struct provider_ops *ops);

/* How many functions a table has. */
unsigned int release_ops_count(enum driver_release release);

/*
 * Which release of 59 to 63 this system's drivers are of, by the names that the libibverbs.so.1
 * beside them has; asked once. RELEASE_UNKNOWN: there is none. release_of_library() asks the file
 * `library` instead.
 */
enum driver_release release_of_node_59(void);
enum driver_release release_of_library(const char *library);

/* How many functions `struct verbs_context` has before query_port. */
static inline ptrdiff_t release_slots(enum driver_release release)
{
	static const ptrdiff_t slots[RELEASES] = {0, 0, 3, 4, 6, 6};

	return release < 0 ? 0 : slots[release];
}

/* From a driver's pointer to a context to ours, and back. */
static inline ptrdiff_t release_shift(enum driver_release release)
{
	ptrdiff_t ours = offsetof(struct verbs_context, query_port);

	return release_slots(release) * (ptrdiff_t)sizeof(void (*)(void)) - ours;
}

static inline struct verbs_context *verbs_from_driver(void *driver, enum driver_release release)
{
	return (struct verbs_context *)(void *)((char *)driver + release_shift(release));
}

#endif
