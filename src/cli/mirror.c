/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric's nodes as files of sysfs; see mirror.h.
 *
 * A file whose text other files have as well (a P_Key that isn't set, a counter that is 0) is a
 * link to a file in the directory COMMON, since each file of a tmpfs takes a page. One thread.
 */
#include "cli/mirror.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/mirror_texts.h"

#define CLASS "/sys/class"
#define PLACE_OF_DEVICE CLASS "/infiniband/" MIRROR_DEVICE
#define PLACE_OF_MADS CLASS "/infiniband_mad"

#define COMMON "common"
#define NEW "new" /* a file before it has its name */
#define DESCRIPTION MIRROR_OF_DEVICE "/node_desc"

#define MOUNT_FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* Files ---------------------------------------------------------------------------------------- */

/* Makes a new file with a line of text. Returns 0 or -errno. */
static int file_make(int directory, const char *name, const char *text)
{
	int fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (dprintf(fd, "%s\n", text) < 0)
		error = -errno;
	close(fd);
	return error;
}

/* Makes the new file `name` as a link to COMMON's with that text. COMMON is reached from above,
 * since a node's parent directory may be covered by what is shown of it. Returns 0 or -errno. */
static int common_link(const struct mirror_node *node, const char *name, const char *text)
{
	char path[160];
	int error;

	snprintf(path, sizeof(path), COMMON "/%s", text);
	for (char *at = path + sizeof(COMMON); *at; at++)
		if (*at == '/')
			*at = '\\';
	if (linkat(node->mirror, path, node->fd, name, 0) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	error = file_make(node->mirror, path, text);
	if (error)
		return error == -EEXIST ? -ENOENT : error; /* it is `name` that can't be made */
	return linkat(node->mirror, path, node->fd, name, 0) < 0 ? -errno : 0;
}

static int text_put(const struct mirror_node *node, const char *name, const char *text,
		    bool is_common)
{
	return is_common ? common_link(node, name, text) : file_make(node->fd, name, text);
}

/* Makes the directories of a path. Returns 0 or -errno. */
static int parents_make(int directory, const char *path)
{
	char parent[128];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
		if (mkdirat(directory, parent, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Makes the file at `path`. Returns 0 or -errno. */
static int file_create(const struct mirror_node *node, const char *path, const char *text,
		       bool is_common)
{
	int error = text_put(node, path, text, is_common);

	if (error != -ENOENT)
		return error;
	error = parents_make(node->fd, path);
	return error ? error : text_put(node, path, text, is_common);
}

/* Gives the file at `path` another text, so that any reader finds a whole one. Returns 0 or
 * -errno. */
static int file_replace(const struct mirror_node *node, const char *path, const char *text,
			bool is_common)
{
	int error = text_put(node, NEW, text, is_common);

	if (!error && renameat(node->fd, NEW, node->fd, path) < 0) {
		error = -errno;
		unlinkat(node->fd, NEW, 0);
	}
	return error;
}

/* Nodes ---------------------------------------------------------------------------------------- */

struct writer {
	struct mirror_node *node;
	size_t at;
	int error;
};

static uint64_t text_hash(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
	return hash | 1; /* 0: there is no file */
}

static void writer_take(void *context, const char *path, const char *text, bool is_common)
{
	struct writer *writer = context;
	struct mirror_node *node = writer->node;
	uint64_t hash = text_hash(text), *known;

	if (writer->error || writer->at >= node->count)
		return;
	known = &node->hashes[writer->at++];
	if (*known == hash)
		return;
	writer->error = (*known ? file_replace : file_create)(node, path, text, is_common);
	if (!writer->error)
		*known = hash;
}

static void writer_count(void *context, const char *path, const char *text, bool is_common)
{
	(void)path;
	(void)text;
	(void)is_common;
	++*(size_t *)context;
}

/* What the file of the description says; empty: nothing, or a program is writing it. */
static void description_read(const struct mirror_node *node, char *text, size_t size)
{
	int fd = openat(node->fd, DESCRIPTION, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* In place, since the file is mounted. Returns 0 or -errno. */
static int description_write(const struct mirror_node *node)
{
	int fd = openat(node->fd, DESCRIPTION,
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (dprintf(fd, "%s\n", node->description) < 0)
		error = -errno;
	close(fd);
	return error;
}

/* The description has two writers: programs by the file, others by the fabric. */
static void description_refresh(struct mirror_node *node, const json_t *facts)
{
	const char *now = ctl_string(facts, "description");
	char written[sizeof(node->description)];

	description_read(node, written, sizeof(written));
	if (*written && strcmp(written, node->description) != 0) {
		json_decref(
			fabric_ask_silently(json_pack("{s:s, s:s, s:s}", "op", "describe", "node",
						      node->guid, "description", written)));
		snprintf(node->description, sizeof(node->description), "%s", written);
		return;
	}
	if (strncmp(now, node->description, sizeof(node->description) - 1) == 0)
		return;
	snprintf(node->description, sizeof(node->description), "%s", now);
	description_write(node);
}

int mirror_node_make(struct mirror_node *node, int mirror, size_t number,
		     const struct node_facts *facts)
{
	struct writer writer = {.node = node};

	*node = (struct mirror_node){.fd = -1, .mirror = mirror};
	mirror_texts_give(facts, writer_count, &node->count);
	snprintf(node->name, sizeof(node->name), "node%zu", number);
	node->hashes = calloc(node->count, sizeof(*node->hashes));
	if (!node->hashes)
		return -ENOMEM;
	if (mkdirat(mirror, node->name, 0755) < 0)
		writer.error = -errno;
	else
		node->fd = openat(mirror, node->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!writer.error && node->fd < 0)
		writer.error = -errno;
	mirror_texts_give(facts, writer_take, &writer);
	snprintf(node->guid, sizeof(node->guid), "%s", ctl_string(facts->node, "guid"));
	snprintf(node->description, sizeof(node->description), "%s",
		 ctl_string(facts->node, "description"));
	if (!writer.error)
		writer.error = description_write(node);
	if (writer.error)
		mirror_node_remove(node);
	return writer.error;
}

void mirror_node_refresh(struct mirror_node *node, const struct node_facts *facts)
{
	struct writer writer = {.node = node};

	if (node->fd < 0)
		return;
	mirror_texts_give(facts, writer_take, &writer);
	description_refresh(node, facts->node);
}

/* Removes a directory with all that is in it. */
static void tree_remove(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!directory) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(directory))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (unlinkat(fd, entry->d_name, 0) < 0 && errno == EISDIR)
			tree_remove(fd, entry->d_name);
	}
	closedir(directory);
	unlinkat(parent, name, AT_REMOVEDIR);
}

void mirror_node_remove(struct mirror_node *node)
{
	if (node->fd >= 0) {
		close(node->fd);
		tree_remove(node->mirror, node->name);
	}
	free(node->hashes);
	*node = (struct mirror_node){.fd = -1};
}

/* Mounts --------------------------------------------------------------------------------------- */

int mirror_mount(void)
{
	int mirror, error;

	if (mount("verbena", PLACE_OF_DEVICE, "tmpfs", MOUNT_FLAGS, "mode=755") < 0)
		return -errno;
	mirror = open(PLACE_OF_DEVICE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mirror >= 0 && mkdirat(mirror, "common", 0755) == 0)
		return mirror;
	error = -errno;
	if (mirror >= 0)
		close(mirror);
	umount2(PLACE_OF_DEVICE, MNT_DETACH);
	return error;
}

/* Shows a file or directory of a node's directory at `place`. Returns 0 or -errno. */
static int place_show(int directory, const char *name, const char *place, bool is_read_only)
{
	char source[64];

	snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", directory, name);
	if (mount(source, place, "", MS_BIND, NULL) < 0)
		return -errno;
	if (is_read_only &&
	    mount(NULL, place, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MOUNT_FLAGS, NULL) < 0)
		return -errno;
	return 0;
}

int mirror_node_show(const struct mirror_node *node)
{
	char path[96];
	int directory, error;

	/* Not node->fd, since that may be of another mount namespace, whose mounts can't be bound.
	 */
	snprintf(path, sizeof(path), PLACE_OF_DEVICE "/%s", node->name);
	directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return -errno;
	error = place_show(directory, MIRROR_OF_DEVICE, PLACE_OF_DEVICE, true);
	if (!error)
		error = place_show(directory, DESCRIPTION, PLACE_OF_DEVICE "/node_desc", false);
	if (!error)
		error = place_show(directory, MIRROR_OF_MADS, PLACE_OF_MADS, true);
	close(directory);
	return error;
}
