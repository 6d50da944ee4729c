/* SPDX-License-Identifier: BSD-2-Clause */
/* Passes over the rings and the socket: for the threads that drive the engine (lease.c, engine.c).
 */
#ifndef VERBENA_HCA_ENGINE_PASS_H
#define VERBENA_HCA_ENGINE_PASS_H

#include <stdbool.h>

#include "hca/process/hca.h"

enum { PASS_RECORDS = 64 }; /* of a link in one pass: bounds how long hca.engine is held */

/* One pass over the rings of all links. Returns the number of records handled;
 * adds the number of rings looked at to *looked. */
unsigned int engine_pass_links(struct hca *hca, unsigned int *looked) REQUIRES(hca->engine);

/* Passes until the rings are empty. False: `most` passes were made and there may be more. */
bool engine_pass_until_idle(struct hca *hca, unsigned int most);

/* Resumes the QPs that wait for links which aren't on hca.links (they went down), so that no pass
 * looks at them. Waiters of a link that is still to come up keep waiting. */
void engine_wake_unlisted(struct hca *hca);

/* A device is gone: fails its QPs; its contexts are marked already. */
void engine_fail_removed(struct hca *hca);

/* Fails the QPs of CQs that have overrun. */
void engine_fail_overrun(struct hca *hca);

#endif
