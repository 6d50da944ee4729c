/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the processes of a user share of the target queue pairs that get packets
 * (shm/xrc_shared.h): the memory file, the places in it, and the sockets of slots whose processes
 * have ended. xrc.c calls the first part.
 *
 * The daemon makes the file and gives out places, and never reads what is in it.
 */
#ifndef VERBENA_DAEMON_OBJECTS_XRC_SHARE_H
#define VERBENA_DAEMON_OBJECTS_XRC_SHARE_H

#include <stdint.h>

struct user;
struct xrc;

/* Takes a place. UINT32_MAX: none is left, which doesn't happen while there are no more target
 * queue pairs than allowed. */
uint32_t xrc_place_take(struct xrc *xrc);
/* Takes this place, which a target queue pair had at the last daemon; or another one. */
uint32_t xrc_place_again(struct xrc *xrc, uint32_t place);
/* Gives the place back: empties it in the user's file. */
void xrc_place_give(struct xrc *xrc, const struct user *user, uint32_t place);

#endif
