/* SPDX-License-Identifier: BSD-2-Clause */
/* For the files of commands that driver libraries call (cmd_*.c). */
#ifndef VERBENA_KVERBS_COMMANDS_H
#define VERBENA_KVERBS_COMMANDS_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/export.h"
#include "kverbs/command.h"
#include "kverbs/kernel.h"
#include "kverbs/provider.h"

/* Whether objects may be destroyed after the device is gone, which a driver sets. */
extern EXPORT bool verbs_allow_disassociate_destroy;

/*
 * Whether the context is another process's, too. The kernel reports asynchronous events of an
 * object to the context's first descriptor of events, which is the other process's, unless the
 * object's creation names another one. Only methods can do that, so in an imported context objects
 * with events are created by methods, and where the kernel has none that fails.
 */
static inline bool context_is_imported(struct ibv_context *context)
{
	return kernel_of(context)->imported;
}

/* The result of a command that ends an object. */
static inline int destroy_result(int err)
{
	return err == EIO && verbs_allow_disassociate_destroy ? 0 : err;
}

/*
 * The legacy command `name` with the request `core`. `size` is the size of the driver's `request`,
 * and `response` a pointer to the driver's response of `response_size` bytes, which begins with the
 * command's answer: the parameters' names of all functions that use this.
 */
#define COMMAND(context, name, core, size, response)                                              \
	command_run(                                                                              \
		kernel_of(context),                                                               \
		&(struct command){                                                                \
			.number = IB_USER_VERBS_CMD_##name,                                       \
			.core = &(core),                                                          \
			.core_size = sizeof(core),                                                \
			.answer = (response),                                                     \
			.answer_size = sizeof(*(response)),                                       \
			.driver = driver_data_of(request, COMMAND_HEADER + sizeof(core), size,    \
						 (response), sizeof(*(response)), response_size), \
		})

/* The extended command `name`, likewise. */
#define COMMAND_EXTENDED(context, name, core, size, response)                              \
	command_run(kernel_of(context),                                                    \
		    &(struct command){                                                     \
			    .number = IB_USER_VERBS_EX_CMD_##name,                         \
			    .extended = true,                                              \
			    .core = &(core),                                               \
			    .core_size = sizeof(core),                                     \
			    .answer = (response),                                          \
			    .answer_size = sizeof(*(response)),                            \
			    .driver = driver_data_of(                                      \
				    request, COMMAND_HEADER_EXTENDED + sizeof(core), size, \
				    (response), sizeof(*(response)), response_size),       \
		    })

/* A legacy command without a response and without the driver's data. */
#define COMMAND_PLAIN(context, name, core)                                          \
	command_run(kernel_of(context), &(struct command){                          \
						.number = IB_USER_VERBS_CMD_##name, \
						.core = &(core),                    \
						.core_size = sizeof(core),          \
					})

/* An extended one. */
#define COMMAND_PLAIN_EXTENDED(context, name, core)                                    \
	command_run(kernel_of(context), &(struct command){                             \
						.number = IB_USER_VERBS_EX_CMD_##name, \
						.extended = true,                      \
						.core = &(core),                       \
						.core_size = sizeof(core),             \
					})

/* One with a response that the library itself needs. */
#define COMMAND_ANSWERED(context, name, core, to)                                   \
	command_run(kernel_of(context), &(struct command){                          \
						.number = IB_USER_VERBS_CMD_##name, \
						.core = &(core),                    \
						.core_size = sizeof(core),          \
						.answer = &(to),                    \
						.answer_size = sizeof(to),          \
					})

#endif
