/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a program that has destroyed nothing. An adapter acknowledges a message before it
 * reports it; here the acknowledgement may wait for the engine's next pass. A server that returns
 * from main() when it has seen the last message makes none, and its client's request would fail. So
 * what is owed is sent when the process exits, after all handlers of atexit(). It can't be sent by
 * a process that is killed, or calls _exit(), in that moment: its peers on this host read what it
 * has published instead (shm/pub.h: pub_taken()), and those on others fail.
 */
#ifndef VERBENA_HCA_PROCESS_EXIT_H
#define VERBENA_HCA_PROCESS_EXIT_H

struct hca;

/* Sends the acknowledgements that the process's QPs owe. Other threads still run, and may hold
 * locks; so may the calling one, if a signal handler calls exit(). Then nothing is sent, after a
 * bounded wait. */
void exit_acknowledge(struct hca *hca);

#endif
