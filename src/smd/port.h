/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port of a device as libibumad has it: its agents for subnet management and administration, and
 * its issm file, which tells the subnet that a manager is there. The library is loaded when the
 * program begins, so that the system's, Verbena's, or a simulator's is used, whichever the loader
 * finds.
 */
#ifndef VERBENA_SMD_PORT_H
#define VERBENA_SMD_PORT_H

#include "sm/sm.h"

#include <infiniband/umad.h>

#define PORT_AGENTS 3

struct umad_calls {
	int (*init)(void);
	int (*get_port)(const char *name, int number, umad_port_t *port);
	int (*release_port)(umad_port_t *port);
	int (*get_issm_path)(const char *name, int number, char path[], int max);
	int (*open_port)(const char *name, int number);
	int (*close_port)(int fd);
	int (*register_agent)(int fd, int mgmt_class, int version, uint8_t rmpp, long methods[]);
	int (*send)(int fd, int agent, void *umad, int length, int timeout_ms, int retries);
	int (*receive)(int fd, void *umad, int *length, int timeout_ms);
};

struct smd_port {
	struct umad_calls calls;
	char device[UMAD_CA_NAME_LEN];
	int number;
	uint64_t guid;
	int fd;	  /* -1: not open */
	int issm; /* -1: none */
	int agents[PORT_AGENTS];
	uint8_t *buffer; /* struct ib_user_mad and a message */
	size_t room;
};

/* Loads the library and finds the port; `device` NULL, `number` 0: the first that is up. 0, or a
 * negative errno after a line in the log. */
int smd_port_find(struct smd_port *port, const char *device, int number);
/* Opens it and registers its agents. */
int smd_port_open(struct smd_port *port);
void smd_port_close(struct smd_port *port);
void smd_port_free(struct smd_port *port);

void smd_port_send(struct smd_port *port, const struct sm_peer *to, const uint8_t *mad,
		   size_t bytes, uint32_t timeout_ms);
/* The next message: its bytes, with `*mad` and `from`; 0: it was none for the manager; -EAGAIN:
 * there is none; another negative errno: the device is gone. */
ssize_t smd_port_receive(struct smd_port *port, struct sm_peer *from, const uint8_t **mad);

#endif
