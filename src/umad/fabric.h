/* SPDX-License-Identifier: BSD-2-Clause */
/* The backend that is chosen where VERBENA_NODE names a node of a fabric. */
#ifndef VERBENA_UMAD_FABRIC_H
#define VERBENA_UMAD_FABRIC_H

#include "umad/backend.h"

extern const struct umad_backend backend_fabric;

#endif
