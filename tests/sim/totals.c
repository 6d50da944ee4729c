/* SPDX-License-Identifier: BSD-2-Clause */
/* Coverage of many runs: a simulator whose packets all arrive finds no faults. */
#include <stdio.h>

#include "sim.h"

struct sim_totals sim_totals;

bool sim_totals_print(void)
{
	static const enum ibv_wc_status errors[] = {
		IBV_WC_LOC_PROT_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_OP_ERR,   IBV_WC_RETRY_EXC_ERR,   IBV_WC_RNR_RETRY_EXC_ERR,
	};
	const struct tp_counters *c = &sim_totals.counters;
	const struct {
		const char *name;
		uint64_t count;
	} met[] = {
		{"packets", sim_totals.packets},
		{"requests that succeed", sim_totals.errors[IBV_WC_SUCCESS]},
		{"sent again", c->resent},
		{"timeouts", c->timeouts},
		{"sequence NAKs", c->sequence_naks},
		{"RNR NAKs", c->rnr_naks},
		{"too early", c->out_of_sequence},
		{"duplicates", c->duplicates},
		{"dropped", c->dropped},
		{"waits for credits", c->credit_waits},
		{"drained", sim_totals.drained},
		{"messages unasked", sim_totals.unasked},
		{"hostile runs", sim_totals.hostile},
		{"UC runs", sim_totals.uc},
		{"XRC runs", sim_totals.xrc},
		{"responders handed on", sim_totals.handed_on},
		{"packets that waited", sim_totals.waited},
		{"processes that died", sim_totals.died},
	};
	bool all = true;

	for (size_t i = 0; i < sizeof(met) / sizeof(met[0]); i++) {
		printf("%-22s %llu\n", met[i].name, (unsigned long long)met[i].count);
		all = all && met[i].count;
	}
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		printf("status %-15d %llu\n", errors[i],
		       (unsigned long long)sim_totals.errors[errors[i]]);
		all = all && sim_totals.errors[errors[i]];
	}
	return all;
}
