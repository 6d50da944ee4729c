/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC target queue pairs change at the daemon: how this process follows (docs/xrc.md).
 *
 *   PROTO_EVENT_XRC ──► xrc_event(): stand-ins within the host follow the table, handles get the
 *                       event; the control thread asks the daemon for the state, if a handle or
 *                       a stand-in for packets is here
 *   the answer      ──► xrc_follow()
 *   a refusal here  ──► xrc_report(): the control thread tells the daemon
 *
 * The queue of what the control thread is to do is under hca.xrc->lock.
 */
#ifndef VERBENA_HCA_VERBS_XRC_FOLLOW_H
#define VERBENA_HCA_VERBS_XRC_FOLLOW_H

#include <stdint.h>

struct hca;
struct proto_xrc_state;

/* PROTO_EVENT_XRC has come. Engine thread, without locks. */
void xrc_event(struct hca *hca, uint32_t qpn, uint32_t dispatcher, uint32_t event);
/* The target queue pair is in this state now: its stand-ins here follow. Without locks. */
void xrc_follow(struct hca *hca, uint32_t qpn, const struct proto_xrc_state *is);
/* Has the control thread report an event (PROTO_XRC_REPORT) to the daemon. Any lock may be held
 * that ranks before hca.xrc->lock. */
void xrc_report(struct hca *hca, uint32_t qpn, uint32_t epoch, uint32_t event);
/* Sends the reports, and asks for the states of target queue pairs that have changed. Control
 * thread, without locks. */
void xrc_serve(struct hca *hca);

#endif
