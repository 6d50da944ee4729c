/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: a peer that writes what it likes into the memory of a link, and now and then
 * something that makes sense, while the other side works. See victim.h for what must hold.
 */
#include "counters.h"
#include "victim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Records are what this is about, so they come up more often. */
	static action_fn *const actions[] = {
		act_record,    act_record,    act_record, act_record, act_raw,	act_post_send,
		act_post_recv, act_post_recv, act_poll,	  act_round,  act_time, act_consume,
		act_serve,     act_table_qp,  act_modify, act_region, act_link,
	};
	struct input in = {data, data + size};

	counters_draw(data, size);
	victim_open(&in);
	victim_play(&in, actions, sizeof(actions) / sizeof(actions[0]));
	victim_close();
	return 0;
}
