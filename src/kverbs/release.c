/* SPDX-License-Identifier: BSD-2-Clause */
/* What rdma-core's releases have in a driver's table of functions. See release.h. Owns the answer
 * of release_of_node_59(), which is written once. */
#include "kverbs/release.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "kverbs/provider.h"

/* The functions that came after 56. */
static const struct {
	size_t at;
	enum driver_release since;
} later[] = {
#define LATER(name, release)                                 \
	{                                                    \
		offsetof(struct provider_ops, name), release \
	}
	LATER(alloc_buf, RELEASE_64),
	LATER(alloc_dmah, RELEASE_59),
	LATER(create_comp_cntr, RELEASE_65),
	LATER(dealloc_dmah, RELEASE_59),
	LATER(destroy_comp_cntr, RELEASE_65),
	LATER(dm_export_dmabuf_fd, RELEASE_62),
	LATER(free_buf, RELEASE_64),
	LATER(inc_comp_cntr, RELEASE_65),
	LATER(inc_err_comp_cntr, RELEASE_65),
	LATER(qp_attach_comp_cntr, RELEASE_65),
	LATER(query_comp_cntr_caps, RELEASE_65),
	LATER(query_port_speed, RELEASE_62),
	LATER(read_comp_cntr, RELEASE_65),
	LATER(read_err_comp_cntr, RELEASE_65),
	LATER(reg_mr_ex, RELEASE_59),
	LATER(set_comp_cntr, RELEASE_65),
	LATER(set_err_comp_cntr, RELEASE_65),
#undef LATER
};

enum { LATERS = sizeof(later) / sizeof(later[0]) };

typedef void (*function)(void);

static bool release_has(enum driver_release release, size_t at)
{
	for (unsigned int i = 0; i < LATERS; i++)
		if (later[i].at == at)
			return later[i].since <= release;
	return true;
}

void release_ops_read(enum driver_release release, const void *table, struct provider_ops *ops)
{
	function all[PROVIDER_OPS];
	const char *from = table;

	for (unsigned int i = 0; i < PROVIDER_OPS; i++) {
		all[i] = NULL;
		if (!release_has(release, i * sizeof(function)))
			continue;
		memcpy(&all[i], from, sizeof(function));
		from += sizeof(function);
	}
	memcpy(ops, all, sizeof(all));
}

unsigned int release_ops_count(enum driver_release release)
{
	unsigned int count = PROVIDER_OPS - LATERS;

	for (unsigned int i = 0; i < LATERS; i++)
		count += later[i].since <= release;
	return count;
}

/* ------------------------------------------------------------------ 59 to 63 */

static bool bytes_have(const char *bytes, size_t size, const char *name)
{
	return memmem(bytes, size, name, strlen(name) + 1) != NULL;
}

/* By the names in the file: 62 brought ibv_cmd_query_port_speed() and kept the node. */
static enum driver_release release_by_names(const char *bytes, size_t size)
{
	if (!bytes_have(bytes, size, "IBVERBS_PRIVATE_59") ||
	    bytes_have(bytes, size, "VERBENA_1.0"))
		return RELEASE_UNKNOWN; /* another release's, or our own in its place */
	return bytes_have(bytes, size, "ibv_cmd_query_port_speed") ? RELEASE_62 : RELEASE_59;
}

enum driver_release release_of_library(const char *library)
{
	enum driver_release release = RELEASE_UNKNOWN;
	int fd = sys_open(library, O_RDONLY | O_CLOEXEC);
	struct stat file;

	if (fd < 0)
		return RELEASE_UNKNOWN;
	if (!fstat(fd, &file) && file.st_size > (off_t)sizeof(Elf64_Ehdr)) {
		size_t size = (size_t)file.st_size;
		char *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (bytes != MAP_FAILED) {
			release = release_by_names(bytes, size);
			munmap(bytes, size);
		}
	}
	sys_close(fd);
	return release;
}

static enum driver_release of_node_59;

static void of_node_59_find(void)
{
	of_node_59 = release_of_library(VERBENA_PROVIDER_DIR "/../libibverbs.so.1");
}

enum driver_release release_of_node_59(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, of_node_59_find);
	return of_node_59;
}
