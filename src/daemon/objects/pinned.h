/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned memory: the cost of registrations, counted as the kernel does it for an adapter.
 *
 * Each registration counts all pages that it touches, again for each registration, against the
 * process's RLIMIT_MEMLOCK as it is at that moment; CAP_IPC_LOCK lifts the limit. No page is really
 * locked (processes of one host reach each other's pages wherever they are), but a program that
 * would fail on an adapter has to fail here too.
 */
#ifndef VERBENA_DAEMON_OBJECTS_PINNED_H
#define VERBENA_DAEMON_OBJECTS_PINNED_H

#include <stdint.h>

struct process;

/* Bytes of the whole pages that [start, start + length) touches; the caller has excluded
 * overflow. */
uint64_t pinned_bytes(uint64_t start, uint64_t length);

/* Counts `bytes` more for the process and its user. Returns 0; -ENOMEM: beyond the limit
 * (logged). */
int pinned_add(struct process *process, uint64_t bytes);
void pinned_sub(struct process *process, uint64_t bytes);

/* The process's limit now, in bytes; UINT64_MAX: none, or not known. */
uint64_t pinned_limit(const struct process *process);

#endif
