/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned memory: what registrations cost, counted as the kernel does it for a real adapter.
 *
 * Each registration counts all pages that it touches, again for each registration, against the
 * process's RLIMIT_MEMLOCK as it is at that moment; CAP_IPC_LOCK lifts the limit. Nothing is
 * locked in fact (processes of one host reach each other's pages wherever they are), but a program
 * that would fail on an adapter shall fail here too.
 */
#ifndef VERBENA_DAEMON_OBJECTS_PINNED_H
#define VERBENA_DAEMON_OBJECTS_PINNED_H

#include <stdint.h>

struct process;

/* Bytes of whole pages that [start, start + length) touches; no overflow (checked before). */
uint64_t pinned_bytes(uint64_t start, uint64_t length);

/* Counts so many bytes more for the process and its user. 0; -ENOMEM beyond the limit (said in the
 * log). */
int pinned_add(struct process *process, uint64_t bytes);
void pinned_sub(struct process *process, uint64_t bytes);

/* The process's limit now, in bytes; UINT64_MAX: none, or the kernel doesn't tell. */
uint64_t pinned_limit(const struct process *process);

#endif
