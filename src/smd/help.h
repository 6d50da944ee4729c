/* SPDX-License-Identifier: BSD-2-Clause */
/* The options that verbena-sm and `verbena sm`, which becomes it, have in common, for their help.
 */
#ifndef VERBENA_SMD_HELP_H
#define VERBENA_SMD_HELP_H

#define SMD_HELP                                                                                \
	"      --device NAME      the device that libibumad names; else the first that is up\n" \
	"      --port N           its port\n"                                                   \
	"      --priority N       0 to 15: the manager with the highest one is the master\n"    \
	"      --routing KIND     minhop (the default) or updown\n"                             \
	"      --lmc N            0 to 7: each port of an adapter gets 2^N LIDs, else 0\n"      \
	"      --window N         requests under way at once: 1 to 1024, else 64\n"             \
	"      --timeout MS       until a request is repeated, else 200\n"                      \
	"      --retries N        copies of a request, else 3\n"                                \
	"      --sweep MS         between looks at all switches, else 10000\n"                  \
	"      --poll MS          between a standby's questions to the master, else 2000\n"     \
	"      --qos              write SL to VL tables and VL arbitration\n"                   \
	"      --policy FILE      service levels: their lanes, and which paths get which\n"     \
	"      --partitions FILE  partitions, as in OpenSM's partitions.conf\n"                 \
	"      --enforce WHERE    both, in, out or off: partitions, on switch ports\n"          \
	"      --m-key KEY        that ports get: a number, or `random'\n"                      \
	"      --m-key-lease S    seconds until a port's protection ends, else 0: never\n"      \
	"      --m-key-protect N  0 to 3: what ports refuse without the key, else 1\n"          \
	"      --once             end when the subnet is up\n"                                  \
	"      --detach           return when the subnet is up; go on in the background\n"      \
	"      --quiet            no line for each sweep\n"

#endif
