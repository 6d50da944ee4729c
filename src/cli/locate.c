/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locates library and daemon, and examines a program's file; see locate.h. Everything is found
 * relative to the command's own file, so that a build tree and an installation under any prefix
 * work without configuration. No state. Threads: any.
 */
#include "cli/locate.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/env.h"

struct layout {
	const char *library_dir;
	const char *daemon;
	const char *program_dir;
};

/* Relative to the command's directory. The installation comes first, because its path is more
 * specific; Fedora's kind of system has its libraries in lib64. */
static const struct layout layouts[] = {
	{"../lib/verbena", "../libexec/verbena/verbenad", "../libexec/verbena/bin"},
	{"../lib64/verbena", "../libexec/verbena/verbenad", "../libexec/verbena/bin"},
	{"../lib", "verbenad", "../libexec"},
};

static int path_join(char path[PATH_MAX], const char *directory, const char *name)
{
	int length = snprintf(path, PATH_MAX, "%s/%s", directory, name);

	return length < 0 || length >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int own_directory(char directory[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", directory, PATH_MAX - 1);
	char *slash;

	if (length < 0)
		return -errno;
	directory[length] = '\0';
	slash = strrchr(directory, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

/* Both parts of a layout must be there: a libibverbs.so.1 alone may be another library's. */
static int layout_try(const struct layout *layout, const char *bin_dir, struct location *location)
{
	char path[PATH_MAX], library[PATH_MAX];
	int error;

	error = path_join(path, bin_dir, layout->library_dir);
	if (error)
		return error;
	if (!realpath(path, location->library_dir))
		return -errno;
	error = path_join(library, location->library_dir, "libibverbs.so.1");
	if (error)
		return error;
	if (access(library, R_OK) != 0)
		return -errno;

	error = path_join(path, bin_dir, layout->daemon);
	if (error)
		return error;
	if (!realpath(path, location->daemon) || access(location->daemon, X_OK) != 0)
		return -errno;

	/* Programs that need no `rdma` run without. */
	if (path_join(path, bin_dir, layout->program_dir) || !realpath(path, location->program_dir))
		location->program_dir[0] = '\0';
	return 0;
}

int location_find(const char *bin_dir, struct location *location)
{
	char own[PATH_MAX];
	int error;

	if (!bin_dir) {
		error = own_directory(own);
		if (error)
			return error;
		bin_dir = own;
	}
	error = -ENOENT;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		error = layout_try(&layouts[i], bin_dir, location);
		if (error != -ENOENT)
			break;
	}
	return error;
}

/* Whether `path` is an executable file. Returns 0, -ENOENT or -EACCES. */
static int program_check(const char *path)
{
	struct stat status;

	if (stat(path, &status) != 0)
		return errno == EACCES ? -EACCES : -ENOENT;
	if (!S_ISREG(status.st_mode) || access(path, X_OK) != 0)
		return -EACCES;
	return 0;
}

int program_find(const char *name, char path[PATH_MAX])
{
	const char *search = env_get("PATH");
	int result = -ENOENT;

	if (strchr(name, '/')) {
		if (snprintf(path, PATH_MAX, "%s", name) >= PATH_MAX)
			return -ENOENT;
		return program_check(path);
	}
	if (*name == '\0')
		return -ENOENT;
	if (!search)
		search = "/bin:/usr/bin";
	for (;;) {
		size_t length = strcspn(search, ":");
		int written =
			length ? snprintf(path, PATH_MAX, "%.*s/%s", (int)length, search, name)
			       : snprintf(path, PATH_MAX, "./%s", name);

		if (written > 0 && written < PATH_MAX) {
			int error = program_check(path);

			if (error == 0)
				return 0;
			if (error == -EACCES)
				result = -EACCES;
		}
		if (search[length] == '\0')
			return result;
		search += length + 1;
	}
}

int program_find_next(const char *name, char path[PATH_MAX])
{
	const char *search = env_get("PATH");
	struct stat own, other;
	int result = -ENOENT;

	if (stat("/proc/self/exe", &own) != 0)
		return -ENOENT;
	while (search && *search) {
		int length = (int)strcspn(search, ":");
		char candidate[PATH_MAX];

		if (length &&
		    snprintf(candidate, sizeof(candidate), "%.*s/%s", length, search, name) <
			    (int)sizeof(candidate) &&
		    program_check(candidate) == 0 && stat(candidate, &other) == 0) {
			bool is_own = other.st_dev == own.st_dev && other.st_ino == own.st_ino;

			if (is_own)
				result = -ENOENT; /* what came before it may be another stand-in */
			else if (result) {
				strcpy(path, candidate);
				result = 0;
			}
		}
		search += length + (search[length] == ':');
	}
	return result;
}

static bool file_is_privileged(int fd)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		return false;
	if ((status.st_mode & S_ISUID) && status.st_uid != getuid())
		return true;
	if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid())
		return true;
	return getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0;
}

/* Whether a 64-bit ELF file names a dynamic loader; true also when it cannot be read. */
static bool elf_has_interpreter(int fd, const Elf64_Ehdr *header)
{
	for (unsigned int i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;
		off_t offset = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize);

		if (pread(fd, &segment, sizeof(segment), offset) != sizeof(segment) ||
		    segment.p_type == PT_INTERP)
			return true;
	}
	return false;
}

static enum program_obstacle file_examine(int fd)
{
	Elf64_Ehdr header, own = {0};
	int self;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return PROGRAM_FINE;

	self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (self >= 0) {
		bool known = pread(self, &own, sizeof(own), 0) == sizeof(own);

		close(self);
		if (known && (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] ||
			      header.e_machine != own.e_machine))
			return PROGRAM_FOREIGN;
	}
	if (file_is_privileged(fd))
		return PROGRAM_PRIVILEGED;
	if (header.e_ident[EI_CLASS] == ELFCLASS64 && !elf_has_interpreter(fd, &header))
		return PROGRAM_STATIC;
	return PROGRAM_FINE;
}

enum program_obstacle program_examine(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	enum program_obstacle obstacle;

	if (fd < 0)
		return PROGRAM_FINE;
	obstacle = file_examine(fd);
	close(fd);
	return obstacle;
}
