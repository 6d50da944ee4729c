/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding the kernel's devices in sysfs. See scan.h. Owns the default roots, set once. */
#include "kverbs/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/sys.h"
#include "kverbs/provider.h"

enum {
	ABI_MIN = 6, /* of the commands; kernels since 2.6.20 have 6 */
	ABI_MAX = 6,
};

static char sysfs_from_env[IBV_SYSFS_PATH_MAX];
static struct scan_roots default_roots = {
	.sysfs = "/sys", .nodes = "/dev/infiniband", .config = "/etc/libibverbs.d"};
static pthread_once_t default_roots_once = PTHREAD_ONCE_INIT;

static void default_roots_choose(void)
{
	const char *env = env_get("SYSFS_PATH");
	size_t length = env ? strlen(env) : 0;

	while (length && env[length - 1] == '/')
		length--;
	if (!length || length >= sizeof(sysfs_from_env))
		return;
	snprintf(sysfs_from_env, sizeof(sysfs_from_env), "%.*s", (int)length, env);
	default_roots.sysfs = sysfs_from_env;
}

const struct scan_roots *scan_default_roots(void)
{
	pthread_once(&default_roots_once, default_roots_choose);
	return &default_roots;
}

void scan_use_roots(const struct scan_roots *roots)
{
	scan_default_roots();
	default_roots = *roots;
}

/* ------------------------------------------------------------------ attributes */

int scan_read(const char *dir, const char *file, char *value, size_t size)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t length = sys_read(fd, value, size - 1); /* an attribute comes in one piece */
	int err = errno;

	sys_close(fd);
	errno = err;
	if (length < 0)
		return -1;
	if (length && value[length - 1] == '\n')
		length--;
	value[length] = '\0';
	return (int)length;
}

static bool attr_number_read(const char *dir, const char *file, uint32_t *number)
{
	char text[32], *end;

	if (scan_read(dir, file, text, sizeof(text)) <= 0)
		return false;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);

	if (errno || *end || value > UINT32_MAX)
		return false;
	*number = (uint32_t)value;
	return true;
}

/* "231:192" */
static bool read_node_number(const char *dir, dev_t *number)
{
	unsigned int high, low;
	char text[32], rest;

	if (scan_read(dir, "dev", text, sizeof(text)) <= 0 ||
	    sscanf(text, "%u:%u%c", &high, &low, &rest) != 2)
		return false;
	*number = makedev(high, low);
	return true;
}

/* "1: CA" */
static enum ibv_node_type read_node_type(const char *dir)
{
	static const enum ibv_node_type types[] = {
		IBV_NODE_UNKNOWN, IBV_NODE_CA,	  IBV_NODE_SWITCH,    IBV_NODE_ROUTER,
		IBV_NODE_RNIC,	  IBV_NODE_USNIC, IBV_NODE_USNIC_UDP, IBV_NODE_UNSPECIFIED,
	};
	char text[32];
	unsigned int type;

	if (scan_read(dir, "node_type", text, sizeof(text)) <= 0 ||
	    sscanf(text, "%u", &type) != 1 || type >= sizeof(types) / sizeof(types[0]))
		return IBV_NODE_UNKNOWN;
	return types[type];
}

static void read_guid(struct found_device *found)
{
	unsigned int part[4];
	char text[32];

	if (scan_read(found->sysfs_path, "node_guid", text, sizeof(text)) <= 0 ||
	    sscanf(text, "%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3]) != 4)
		return;
	for (int i = 0; i < 4; i++)
		found->guid = found->guid << 16 | part[i];
	found->flags |= FOUND_GUID_READ;
}

/* ------------------------------------------------------------------ devices */

/*
 * The node must be the device that sysfs names, and open for this program. `verbena run` shows
 * directories and nodes for Verbena's own devices: those have no number, or another one, and aren't
 * taken for the kernel's.
 */
static bool node_fits(const struct scan_roots *roots, const struct found_device *found)
{
	char path[PATH_MAX];
	struct stat node;

	if (snprintf(path, sizeof(path), "%s/%s", roots->nodes, found->node_name) >=
	    (int)sizeof(path))
		return false;
	return !stat(path, &node) && S_ISCHR(node.st_mode) && node.st_rdev == found->node_number &&
	       !access(path, R_OK | W_OK);
}

/* Reads the directory infiniband_verbs/NODE. */
static bool device_read(const struct scan_roots *roots, const char *node,
			struct found_device *found)
{
	char dir[PATH_MAX];
	struct stat made;

	if (strlen(node) >= sizeof(found->node_name) ||
	    snprintf(dir, sizeof(dir), "%s/class/infiniband_verbs/%s", roots->sysfs, node) >=
		    (int)sizeof(dir))
		return false;
	strcpy(found->node_name, node);
	if (stat(dir, &made) || !S_ISDIR(made.st_mode) ||
	    !read_node_number(dir, &found->node_number))
		return false;
	found->created = made.st_mtim;
	if (scan_read(dir, "ibdev", found->name, sizeof(found->name)) <= 0 ||
	    strchr(found->name, '/') || !attr_number_read(dir, "abi_version", &found->abi_version))
		return false;
	if (snprintf(found->sysfs_path, sizeof(found->sysfs_path), "%s/class/infiniband/%s",
		     roots->sysfs, found->name) >= (int)sizeof(found->sysfs_path))
		return false;
	if (scan_read(dir, "device/modalias", found->modalias, sizeof(found->modalias)) < 0)
		found->modalias[0] = '\0';
	found->flags = FOUND_MODALIAS_READ;
	found->index = -1;
	found->node_type = read_node_type(found->sysfs_path);
	read_guid(found);
	return node_fits(roots, found);
}

static int device_append(const struct scan_roots *roots, const char *node, struct list *list)
{
	struct found_device *found = calloc(1, sizeof(*found));

	if (!found)
		return -ENOMEM;
	if (device_read(roots, node, found))
		list_add_tail(list, &found->node);
	else
		free(found);
	return 0;
}

bool scan_worthwhile(const struct scan_roots *roots)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/class/infiniband_verbs", roots->sysfs);
	return !access(path, R_OK);
}

static bool abi_is_known(const struct scan_roots *roots)
{
	char dir[PATH_MAX];
	uint32_t version;

	snprintf(dir, sizeof(dir), "%s/class/infiniband_verbs", roots->sysfs);
	if (!attr_number_read(dir, "abi_version", &version))
		return false;
	if (version >= ABI_MIN && version <= ABI_MAX)
		return true;
	log_warn("the kernel's RDMA devices aren't used: its interface has version %u, not %u",
		 version, ABI_MAX);
	return false;
}

int scan_devices(const struct scan_roots *roots, struct list *found)
{
	struct dirent **names;
	char path[PATH_MAX];
	int err = 0;

	if (!abi_is_known(roots))
		return 0;
	snprintf(path, sizeof(path), "%s/class/infiniband_verbs", roots->sysfs);
	int count = scandir(path, &names, NULL, versionsort);

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		if (!err && names[i]->d_name[0] != '.' && strcmp(names[i]->d_name, "abi_version"))
			err = device_append(roots, names[i]->d_name, found);
		free(names[i]);
	}
	free(names);
	return err;
}

/* ------------------------------------------------------------------ matching */

static bool entry_has_id(const struct provider_match *entry, const struct found_device *found)
{
	return entry->kind == PROVIDER_MATCH_DRIVER_ID && found->driver_id &&
	       found->driver_id == entry->driver_id;
}

/* Devices without hardware are recognised by their name. */
static bool entry_has_name(const struct provider_match *entry, const struct found_device *found)
{
	char text[IBV_SYSFS_NAME_MAX + 32];

	snprintf(text, sizeof(text), "rdma_device:N%s", found->name);
	return entry->kind == PROVIDER_MATCH_MODALIAS && !fnmatch(entry->modalias, text, 0);
}

static bool entry_has_hardware(const struct provider_match *entry, const struct found_device *found)
{
	char text[64];

	if (entry->kind == PROVIDER_MATCH_MODALIAS)
		return !fnmatch(entry->modalias, found->modalias, 0);
	snprintf(text, sizeof(text), "pci:v%08Xd%08Xsv*", (unsigned int)entry->vendor,
		 (unsigned int)entry->device);
	return entry->kind == PROVIDER_MATCH_PCI && !fnmatch(text, found->modalias, 0);
}

/* A driver's id counts more than a name, a name more than the hardware, as in rdma-core. */
static const struct provider_match *entry_find(const struct provider *provider,
					       const struct found_device *found)
{
	static bool (*const fits[])(const struct provider_match *, const struct found_device *) = {
		entry_has_id, entry_has_name, entry_has_hardware};

	for (unsigned int by = 0; by < sizeof(fits) / sizeof(fits[0]); by++)
		for (const struct provider_match *i = provider->matches;
		     i && i->kind != PROVIDER_MATCH_END; i++)
			if (fits[by](i, found))
				return i;
	return NULL;
}

bool scan_match(struct found_device *found, const struct provider *provider)
{
	found->match = entry_find(provider, found);
	if (provider->match_device ? !provider->match_device(found) : !found->match)
		return false;
	if (found->abi_version >= provider->abi_min && found->abi_version <= provider->abi_max)
		return true;
	log_warn("the driver library %s takes versions %u to %u of the kernel's interface; %s has "
		 "%u",
		 provider->name, provider->abi_min, provider->abi_max, found->name,
		 found->abi_version);
	return false;
}
