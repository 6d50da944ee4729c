/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files whose texts are made when they are read; see live.h.
 *
 * The protocol is <linux/fuse.h>'s, without a library: the root has number 1, and file I has number
 * FIRST + I. The files don't change but for their texts, so the kernel may keep names and
 * attributes for good. It keeps no text: each read() comes here (FOPEN_DIRECT_IO). A read at the
 * begin of a file makes its text anew; what follows continues that text, for programs that read a
 * byte at a time. One thread.
 */
#include "cli/live.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The protocol's version that is spoken here: that of Linux 4.18. */
enum { MAJOR = 7, MINOR = 27 };

enum { FIRST = FUSE_ROOT_ID + 1, WRITE_BYTES = 4096, REQUEST_BYTES = 16384, ANSWER_BYTES = 4096 };
enum { LIVES = 2, HANDLES = 4096 };

#define FOREVER_S (1u << 30)

struct live_handle {
	bool used;
	size_t length;
	char text[LIVE_TEXT_BYTES];
};

struct request {
	const struct fuse_in_header *header;
	const void *body;
	size_t length;
};

struct answer {
	size_t length;
	_Alignas(8) uint8_t body[ANSWER_BYTES];
};

/* A function's result: the kernel wants no answer to this request. */
enum { SILENT = 1 };

/* ------------------------------------------------------------------ names and attributes */

static bool is_file(const struct live *live, uint64_t node)
{
	return node >= FIRST && node - FIRST < live->count;
}

static void put_attributes(struct fuse_attr *attr, uint64_t node)
{
	attr->ino = node;
	attr->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0555 : S_IFREG | 0444;
	attr->nlink = node == FUSE_ROOT_ID ? 2 : 1;
	/* As sysfs says, whose files don't know their lengths either. */
	attr->size = node == FUSE_ROOT_ID ? 0 : 4096;
	attr->blksize = 4096;
	attr->uid = geteuid();
	attr->gid = getegid();
}

static int answer_init(struct live *live, const struct request *request, struct answer *answer)
{
	const struct fuse_init_in *in = request->body;
	struct fuse_init_out *out = (void *)answer->body;

	(void)live;
	if (in->major < MAJOR)
		return -EPROTO;
	out->major = MAJOR;
	out->minor = in->minor < MINOR ? in->minor : MINOR;
	out->max_readahead = in->max_readahead;
	out->max_write = WRITE_BYTES;
	answer->length = sizeof(*out);
	return 0;
}

static int answer_lookup(struct live *live, const struct request *request, struct answer *answer)
{
	struct fuse_entry_out *out = (void *)answer->body;
	const char *name = request->body;
	size_t file = 0;

	if (request->header->nodeid != FUSE_ROOT_ID || !memchr(name, 0, request->length))
		return -ENOENT;
	while (file < live->count && strcmp(live->names[file], name) != 0)
		file++;
	if (file == live->count)
		return -ENOENT;
	out->nodeid = FIRST + file;
	out->entry_valid = out->attr_valid = FOREVER_S;
	put_attributes(&out->attr, out->nodeid);
	answer->length = sizeof(*out);
	return 0;
}

static int answer_attributes(struct live *live, const struct request *request,
			     struct answer *answer)
{
	struct fuse_attr_out *out = (void *)answer->body;
	uint64_t node = request->header->nodeid;

	if (node != FUSE_ROOT_ID && !is_file(live, node))
		return -ENOENT;
	out->attr_valid = FOREVER_S;
	put_attributes(&out->attr, node);
	answer->length = sizeof(*out);
	return 0;
}

/* Adds an entry of the directory, unless it is too long for `room`. */
static bool put_entry(struct answer *answer, size_t room, uint64_t index, uint64_t node,
		      const char *name)
{
	struct fuse_dirent *entry = (void *)(answer->body + answer->length);
	size_t length = strlen(name);
	size_t bytes = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);

	if (bytes > room - answer->length)
		return false;
	entry->ino = node;
	entry->off = index + 1;
	entry->namelen = (uint32_t)length;
	entry->type = node == FUSE_ROOT_ID ? S_IFDIR >> 12 : S_IFREG >> 12;
	memcpy(entry->name, name, length);
	answer->length += bytes;
	return true;
}

static int answer_directory(struct live *live, const struct request *request, struct answer *answer)
{
	static const char *const own[] = {".", ".."};
	const struct fuse_read_in *in = request->body;
	size_t room = in->size < ANSWER_BYTES ? in->size : ANSWER_BYTES;

	if (request->header->nodeid != FUSE_ROOT_ID)
		return -ENOTDIR;
	for (uint64_t i = in->offset; i < 2 + live->count; i++)
		if (!put_entry(answer, room, i, i < 2 ? FUSE_ROOT_ID : FIRST + i - 2,
			       i < 2 ? own[i] : live->names[i - 2]))
			break;
	return 0;
}

static int answer_statfs(struct live *live, const struct request *request, struct answer *answer)
{
	struct fuse_statfs_out *out = (void *)answer->body;

	(void)live;
	(void)request;
	out->st.bsize = out->st.frsize = 4096;
	out->st.namelen = 255;
	answer->length = sizeof(*out);
	return 0;
}

/* ------------------------------------------------------------------ open files */

/* Finds a free handle; returns its index or -errno. */
static int handle_take(struct live *live)
{
	size_t i = 0, count = live->handle_count ? live->handle_count * 2 : 16;

	while (i < live->handle_count && live->handles[i].used)
		i++;
	if (i == live->handle_count) {
		struct live_handle *more =
			count > HANDLES ? NULL : realloc(live->handles, count * sizeof(*more));

		if (!more)
			return -ENFILE;
		memset(more + i, 0, (count - i) * sizeof(*more));
		live->handles = more;
		live->handle_count = count;
	}
	live->handles[i] = (struct live_handle){.used = true};
	return (int)i;
}

static int answer_open(struct live *live, const struct request *request, struct answer *answer)
{
	const struct fuse_open_in *in = request->body;
	struct fuse_open_out *out = (void *)answer->body;
	int handle;

	if (!is_file(live, request->header->nodeid))
		return -ENOENT;
	if ((in->flags & O_ACCMODE) != O_RDONLY)
		return -EACCES;
	handle = handle_take(live);
	if (handle < 0)
		return handle;
	out->fh = (uint64_t)handle;
	out->open_flags = FOPEN_DIRECT_IO;
	answer->length = sizeof(*out);
	return 0;
}

static int answer_open_directory(struct live *live, const struct request *request,
				 struct answer *answer)
{
	(void)live;
	answer->length = sizeof(struct fuse_open_out);
	return request->header->nodeid == FUSE_ROOT_ID ? 0 : -ENOTDIR;
}

static int answer_read(struct live *live, const struct request *request, struct answer *answer)
{
	const struct fuse_read_in *in = request->body;
	uint64_t node = request->header->nodeid;
	struct live_handle *handle;

	if (!is_file(live, node) || in->fh >= live->handle_count || !live->handles[in->fh].used)
		return -EBADF;
	handle = &live->handles[in->fh];
	if (!in->offset) {
		int length = live->read(live->context, node - FIRST, handle->text);

		if (length < 0)
			return length;
		handle->length = (size_t)length;
	}
	if (in->offset >= handle->length)
		return 0;
	answer->length = handle->length - in->offset;
	if (answer->length > in->size)
		answer->length = in->size;
	memcpy(answer->body, handle->text + in->offset, answer->length);
	return 0;
}

static int answer_release(struct live *live, const struct request *request, struct answer *answer)
{
	const struct fuse_release_in *in = request->body;

	(void)answer;
	if (in->fh < live->handle_count)
		live->handles[in->fh].used = false;
	return 0;
}

static int answer_nothing(struct live *live, const struct request *request, struct answer *answer)
{
	(void)live;
	(void)request;
	(void)answer;
	return 0;
}

static int answer_silently(struct live *live, const struct request *request, struct answer *answer)
{
	(void)live;
	(void)request;
	(void)answer;
	return SILENT;
}

/* ------------------------------------------------------------------ requests */

/* A kernel older than the header has shorter requests, of which only this much is looked at. */
#define UP_TO(type, member) (offsetof(type, member) + sizeof(((type *)NULL)->member))

static const struct operation {
	int (*answer)(struct live *live, const struct request *request, struct answer *answer);
	size_t least; /* bytes of the request's body */
} operations[] = {
	[FUSE_INIT] = {answer_init, UP_TO(struct fuse_init_in, max_readahead)},
	[FUSE_LOOKUP] = {answer_lookup, 1},
	[FUSE_GETATTR] = {answer_attributes, 0},
	[FUSE_OPEN] = {answer_open, UP_TO(struct fuse_open_in, flags)},
	[FUSE_READ] = {answer_read, UP_TO(struct fuse_read_in, size)},
	[FUSE_RELEASE] = {answer_release, UP_TO(struct fuse_release_in, fh)},
	[FUSE_OPENDIR] = {answer_open_directory, 0},
	[FUSE_READDIR] = {answer_directory, UP_TO(struct fuse_read_in, size)},
	[FUSE_RELEASEDIR] = {answer_nothing, 0},
	[FUSE_STATFS] = {answer_statfs, 0},
	[FUSE_FORGET] = {answer_silently, 0},
	[FUSE_BATCH_FORGET] = {answer_silently, 0},
	[FUSE_INTERRUPT] = {answer_silently, 0},
	[FUSE_DESTROY] = {answer_nothing, 0},
};

static int request_execute(struct live *live, const struct request *request, struct answer *answer)
{
	uint32_t opcode = request->header->opcode;

	if (opcode >= sizeof(operations) / sizeof(operations[0]) || !operations[opcode].answer)
		return -ENOSYS;
	if (request->length < operations[opcode].least)
		return -EINVAL;
	return operations[opcode].answer(live, request, answer);
}

/* Executes one request. Returns false when there will be none any more. */
static bool live_answer(struct live *live)
{
	static _Alignas(8) uint8_t bytes[REQUEST_BYTES];
	static struct answer answer;
	const struct fuse_in_header *header = (const void *)bytes;
	struct request request = {.header = header, .body = bytes + sizeof(*header)};
	struct fuse_out_header out = {0};
	ssize_t n = read(live->fd, bytes, sizeof(bytes));
	int result;

	/* ENOENT: the program didn't wait for the answer. */
	if (n < 0)
		return errno == EINTR || errno == EAGAIN || errno == ENOENT;
	if ((size_t)n < sizeof(*header))
		return false;
	request.length = (size_t)n - sizeof(*header);
	memset(&answer, 0, sizeof(answer));
	result = request_execute(live, &request, &answer);
	if (result == SILENT)
		return true;

	struct iovec pieces[] = {{&out, sizeof(out)}, {answer.body, result ? 0 : answer.length}};

	out.unique = header->unique;
	out.error = result;
	out.len = (uint32_t)(pieces[0].iov_len + pieces[1].iov_len);
	n = writev(live->fd, pieces, 2);
	return n >= 0 || errno == ENOENT || errno == EINTR;
}

/* ------------------------------------------------------------------ the mounts */

int live_mount(struct live *live, const struct place *parent, const char *name)
{
	char target[300], options[128];
	int error = 0;

	live->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (live->fd < 0)
		return -errno;
	snprintf(target, sizeof(target), "/proc/self/fd/%d/%s", parent->fd, name);
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40555,user_id=%u,group_id=%u,allow_other,default_permissions",
		 live->fd, geteuid(), getegid());
	if (mkdirat(parent->fd, name, 0755) < 0) {
		error = -errno;
	} else if (mount("verbena", target, "fuse", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
			 options) < 0) {
		error = -errno;
		unlinkat(parent->fd, name, AT_REMOVEDIR);
	}
	if (error) {
		close(live->fd);
		live->fd = -1;
	}
	return error;
}

/* Leaves the mount namespace, and what is mounted at `path` and below. Returns 0 or -errno. */
static int mounts_leave(const char *path)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", "", MS_SLAVE | MS_REC, NULL) < 0 ||
	    umount2(path, MNT_DETACH) < 0)
		return -errno;
	return 0;
}

void live_serve(struct live *const lives[], size_t count, const char *path)
{
	struct pollfd wait[LIVES];
	size_t left = 0;

	if (count > LIVES || mounts_leave(path) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		wait[i] = (struct pollfd){.fd = lives[i]->fd, .events = POLLIN};
		left += wait[i].fd >= 0;
	}
	while (left) {
		if (poll(wait, count, -1) < 0 && errno != EINTR)
			return;
		for (size_t i = 0; i < count; i++)
			if (wait[i].fd >= 0 && wait[i].revents && !live_answer(lives[i])) {
				wait[i].fd = -1;
				left--;
			}
	}
}
