/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's configuration: what the administrator says of the nodes, limits and the directory.
 * Decoded once, at the start, into a struct whose every field is checked; verbenad.conf(5) has the
 * keys. The command line wins over the file.
 */
#ifndef VERBENA_DAEMON_CORE_CONFIG_H
#define VERBENA_DAEMON_CORE_CONFIG_H

#include <limits.h>
#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define CONFIG_FILE "/etc/verbena/verbenad.conf"
#define CONFIG_UNLIMITED UINT32_MAX

/* Who may open a node (a socket of the run-time directory). */
struct node_rule {
	mode_t mode;
	uid_t owner; /* (uid_t)-1: the daemon's own */
	gid_t group; /* (gid_t)-1: the daemon's own */
};

/* A device of several: its name, and the interfaces that it is bound to. */
enum { CONFIG_DEVICES = 16, CONFIG_DEVICE_NAME = 32, CONFIG_INTERFACES = 8 };
struct config_device {
	char name[CONFIG_DEVICE_NAME];
	char ifname[CONFIG_INTERFACES][IF_NAMESIZE];
	uint32_t count;
};

struct config {
	bool system;		    /* one for the whole machine */
	char runtime_dir[PATH_MAX]; /* empty: the usual one */
	int64_t idle_ms;	    /* < 0: never leave for lack of clients */
	bool memlock;		    /* hold programs to RLIMIT_MEMLOCK */
	bool wire;		    /* speak RoCEv2 with other hosts */
	struct node_rule node;	    /* uverbs0 */
	struct node_rule ctl;
	struct config_device device[CONFIG_DEVICES];
	uint32_t device_count;	 /* 0: one device, for all interfaces */
	uint32_t user_processes; /* how many a user may have attached; or CONFIG_UNLIMITED */
	uint32_t user_objects;	 /* how many, of all kinds, its processes may hold; likewise */
};

/* What holds without a file; `system`: for a daemon that serves the whole machine. */
void config_init(struct config *config, bool system);

/*
 * Reads a file over what is there. 0; -ENOENT there is none, which is not said; -errno, -EINVAL or
 * -EPERM after a line in the log that names file, line, and what to do.
 */
int config_read(struct config *config, const char *path);

/* The same of an open file that messages call `name`. 0; -EINVAL with `error` written. */
int config_decode(struct config *config, FILE *file, const char *name, char *error, size_t size);

/* Whether anybody but the owner may open a node. */
bool config_is_shared(const struct config *config);

/* Milliseconds, or "never" (-1). Whether `text` is that. */
bool config_idle_parse(const char *text, int64_t *ms);

#endif
