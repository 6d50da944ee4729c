/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: a peer whose published table says anything: QPs, regions, hazards, header. The other
 * side looks it up for its one-sided operations, its connections, and when it deregisters.
 */
#include "counters.h"
#include "victim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static action_fn *const actions[] = {
		act_table_qp,  act_table_qp, act_table_mr,  act_table_mr,  act_table_raw,
		act_header,    act_header,   act_post_send, act_post_send, act_post_send,
		act_post_recv, act_poll,     act_round,	    act_time,	   act_serve,
		act_modify,    act_region,   act_link,	    act_record,
	};
	struct input in = {data, data + size};

	counters_draw(data, size);
	victim_open(&in);
	victim_play(&in, actions, sizeof(actions) / sizeof(actions[0]));
	victim_close();
	return 0;
}
