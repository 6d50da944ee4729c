/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric's nodes as files of sysfs, for programs that read /sys/class/infiniband and
 * /sys/class/infiniband_mad themselves (ibstatus, rdma-ndd).
 *
 * The files of all nodes are in one tmpfs, the mirror. It is mounted over a directory of the cover
 * that sysfs.h makes; a program's mount namespace then shows one node's two directories, read-only.
 * The process that has the mirror open replaces files whose texts have changed, so that each file
 * always has one whole text. Only node_desc can be written by programs, and that is passed on to
 * the fabric, where it causes a trap. One thread.
 */
#ifndef VERBENA_CLI_MIRROR_H
#define VERBENA_CLI_MIRROR_H

#include <stddef.h>
#include <stdint.h>

#include "cli/node_facts.h"

/* The only device of a fabric's node. */
#define MIRROR_DEVICE "verbena0"

/* How old a text may become, in milliseconds, where nothing else takes time. */
#define MIRROR_REFRESH_MS 1000

/* A node in the mirror. */
struct mirror_node {
	int mirror;	  /* what mirror_mount() returned */
	int fd;		  /* its directory, writable; -1: there is none */
	char name[24];	  /* of the directory */
	uint64_t *hashes; /* of the texts that the files have, in their order */
	size_t count;
	char guid[24];	      /* by which the fabric is asked for it */
	char description[80]; /* what node_desc had last */
};

/*
 * Mounts the mirror in this mount namespace, which sysfs_cover_fabric() has prepared. Returns its
 * directory, writable and close-on-exec, or -errno.
 */
int mirror_mount(void);

/* Adds a node; `number` names its directory. Returns 0, or -errno with nothing changed. */
int mirror_node_make(struct mirror_node *node, int mirror, size_t number,
		     const struct node_facts *facts);

/* Brings its files up to date; a description that a program wrote goes to the fabric. */
void mirror_node_refresh(struct mirror_node *node, const struct node_facts *facts);

/* Removes its files, if there are any. */
void mirror_node_remove(struct mirror_node *node);

/* Shows the node in this process's mount namespace. Returns 0 or -errno. */
int mirror_node_show(const struct mirror_node *node);

#endif
