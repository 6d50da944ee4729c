/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's configuration: nodes, limits and the run-time directory. The file is decoded once,
 * at the start, into a struct with checked fields; verbenad.conf(5) has the keys. The command line
 * overrides the file.
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
#define CONFIG_USER_FILE "verbena/verbenad.conf"
#define CONFIG_UNLIMITED UINT32_MAX

/* The access rights of a node (a socket of the run-time directory). */
struct node_rule {
	mode_t mode;
	uid_t owner; /* (uid_t)-1: the daemon's own */
	gid_t group; /* (gid_t)-1: the daemon's own */
};

/* One configured device: its name, and the interfaces that it is bound to. */
enum { CONFIG_DEVICES = 16, CONFIG_DEVICE_NAME = 32, CONFIG_INTERFACES = 8 };
struct config_device {
	char name[CONFIG_DEVICE_NAME];
	char ifname[CONFIG_INTERFACES][IF_NAMESIZE];
	uint32_t count;
};

struct config {
	bool system;		    /* one daemon for the whole machine */
	char file[PATH_MAX];	    /* the file that was read; empty: none */
	char runtime_dir[PATH_MAX]; /* empty: the usual one */
	int64_t idle_ms;       /* ms without clients until the daemon leaves; < 0: it never does */
	bool memlock;	       /* enforce RLIMIT_MEMLOCK on programs */
	bool wire;	       /* speak RoCEv2 with other hosts */
	struct node_rule node; /* uverbs0 */
	struct node_rule ctl;
	struct config_device device[CONFIG_DEVICES];
	uint32_t device_count;	 /* 0: one device, for all interfaces */
	uint32_t user_processes; /* attached processes of a user; or CONFIG_UNLIMITED */
	uint32_t user_objects;	 /* objects (of all kinds) of a user's processes; likewise */
};

/* Sets the defaults. `system`: those of a daemon that serves the whole machine. */
void config_init(struct config *config, bool system);

/*
 * Sets the defaults and reads the configuration file: `option`, the one that the command line
 * names; else CONFIG_FILE with `system`; else the user's own, which need not exist
 * ($VERBENA_CONFIG, or verbena/verbenad.conf in $XDG_CONFIG_HOME or ~/.config). Returns 0, or
 * -errno after a line in the log.
 */
int config_load(struct config *config, bool system, const char *option);

/*
 * Reads the file at `path`; its keys override what `config` holds. Returns 0; -ENOENT: no such
 * file, not logged; -errno, -EINVAL or -EPERM after a line in the log that names file, line, and
 * what to do.
 */
int config_read(struct config *config, const char *path);

/* As config_read(), of an open file that messages call `name`. Returns 0; -EINVAL with the message
 * in `error` (`size` bytes). */
int config_decode(struct config *config, FILE *file, const char *name, char *error, size_t size);

/* Whether any user but the daemon's own may open a node. */
bool config_is_shared(const struct config *config);

/* Parses milliseconds, or "never" (-1). Returns whether `text` is either. */
bool config_idle_parse(const char *text, int64_t *ms);

#endif
