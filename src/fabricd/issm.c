/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * issm files: a port claims to have a subnet manager (IsSM) while a program has the port's file
 * open, as with Linux's /dev/infiniband/issmN. Programs open it with the C library's open(), so the
 * file must be a real one: it is a FIFO in the run-time directory. inotify tells when somebody
 * opens one. Then this process opens the other end, which succeeds only while there is a reader,
 * and epoll reports on that end when the last reader is gone, however it went.
 */
#include "base/log.h"
#include "fabricd/server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define ISSM_PREFIX "issm-"

static void issm_ended(struct server *server, struct watched *watched, uint32_t events)
{
	struct server_port *port = container_of(watched, struct server_port, issm);

	(void)events;
	server_unwatch(server, watched);
	fabric_issm_set(&server->fabric, port->row, false, server_now_ms());
}

/* Looks whether a program has the file open. */
static void issm_look(struct server *server, const char *name)
{
	char *end = NULL;
	unsigned long row = strtoul(name + strlen(ISSM_PREFIX), &end, 10);
	struct server_port *port;
	struct stat st;
	int fd;

	if (*end || end == name + strlen(ISSM_PREFIX) || row >= server->fabric.header->ports ||
	    !server->fabric.ports[row].is_end_port)
		return;
	port = server_port_get(server, (uint32_t)row);
	if (!port || port->issm.fd >= 0)
		return;
	fd = openat(server->directory, name, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return; /* no reader */
	port->issm.ready = issm_ended;
	if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) ||
	    server_watch(server, &port->issm, fd, EPOLLERR) < 0) {
		close(fd);
		return;
	}
	fabric_issm_set(&server->fabric, port->row, true, server_now_ms());
}

static void files_ready(struct server *server, struct watched *watched, uint32_t events)
{
	_Alignas(struct inotify_event) char buffer[4096];
	ssize_t bytes = read(watched->fd, buffer, sizeof buffer);

	(void)events;
	for (ssize_t at = 0; at + (ssize_t)sizeof(struct inotify_event) <= bytes;) {
		const struct inotify_event *event = (void *)(buffer + at);

		if (event->len && !strncmp(event->name, ISSM_PREFIX, strlen(ISSM_PREFIX)))
			issm_look(server, event->name);
		at += (ssize_t)(sizeof *event + event->len);
	}
}

/* Ports whose file was open when the process before ended, and still is. */
static void issm_resume(struct server *server)
{
	int fd = openat(server->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!directory)
		return;
	for (uint32_t row = 0; row < server->fabric.header->ports; row++)
		if (server->fabric.ports[row].has_issm)
			fabric_issm_set(&server->fabric, row, false, server_now_ms());
	while ((entry = readdir(directory)))
		if (!strncmp(entry->d_name, ISSM_PREFIX, strlen(ISSM_PREFIX)))
			issm_look(server, entry->d_name);
	closedir(directory);
}

int issm_open(struct server *server)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	int result;

	if (fd < 0)
		return -errno;
	server->files.ready = files_ready;
	result = inotify_add_watch(fd, server->directory_path, IN_OPEN) < 0
			 ? -errno
			 : server_watch(server, &server->files, fd, EPOLLIN);
	if (result) {
		log_error("cannot watch %s for issm files: %s", server->directory_path,
			  strerror(-result));
		close(fd);
		return result;
	}
	issm_resume(server);
	return 0;
}

int issm_make(struct server *server, uint32_t port, char *path, size_t size)
{
	const char *name;

	if (snprintf(path, size, "%s/" ISSM_PREFIX "%u", server->directory_path, port) >= (int)size)
		return -ENAMETOOLONG;
	name = path + strlen(server->directory_path) + 1;
	if (mkfifoat(server->directory, name, 0600) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}
