/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of libibmad.so.5 share: an opened port, the one port of the old interface, and
 * messages. Like rdma-core's, the library has no locks: a port belongs to one thread at a time.
 */
#ifndef VERBENA_IBMAD_IBMAD_H
#define VERBENA_IBMAD_IBMAD_H

#include <infiniband/mad.h>

#include <stdbool.h>

#define CLASS_COUNT 256

struct ibmad_port {
	int fd;			       /* as umad_open_port() returned it */
	int class_agents[CLASS_COUNT]; /* the agent that serves a class; -1: none */
	int timeout;		       /* milliseconds; 0: the default */
	int retries;		       /* attempts; 0: the default */
	uint64_t smp_mkey;
};

/* The port that madrpc_init() opens, for the functions that take none. */
extern struct ibmad_port default_port;

/* True for subnet management, whose MADs travel on QP 0. */
static inline bool class_is_smi(int mgmt_class)
{
	return mgmt_class == IB_SMI_CLASS || mgmt_class == IB_SMI_DIRECT_CLASS;
}

/* The version that requests of the class carry; 0: the library doesn't know the class. */
int class_version(int mgmt_class);

/* Says what the library does, if the program (or LIBIBMAD_DEBUG_LEVEL) set ibdebug. */
#define TRACE(...)                           \
	do {                                 \
		if (ibdebug)                 \
			IBWARN(__VA_ARGS__); \
	} while (0)

#endif
