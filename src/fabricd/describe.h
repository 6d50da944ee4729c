/* SPDX-License-Identifier: BSD-2-Clause */
/* A node as libibumad describes a device, and what is named in words. */
#ifndef VERBENA_FABRICD_DESCRIBE_H
#define VERBENA_FABRICD_DESCRIBE_H

#include "fabric/fabric.h"
#include "proto/fabric.h"

void describe_device(const struct fabric *fabric, uint32_t node,
		     struct proto_fabric_device *device);

/* Of a port's link, whole Gb/s times ten; 0: it is down. */
uint32_t port_rate_tenths(const struct fabric_port *port);
const char *port_speed_text(const struct fabric_port *port);
const char *port_width_text(const struct fabric_port *port);
const char *port_state_text(const struct fabric_port *port);
const char *port_physical_text(const struct fabric_port *port);

/* The name of a counter; its number, or ERRORS. */
const char *error_name(enum fabric_error error);
enum fabric_error error_find(const char *name);

#endif
