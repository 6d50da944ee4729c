/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands to the kernel's uverbs device, in both forms.
 *
 * A *command* is one of the numbered structures of <rdma/ib_user_verbs.h>, with data of the driver
 * behind its request and behind its response. It goes as attributes of the method INVOKE_WRITE
 * (ioctl), and on kernels without that method as one write(). A *method* is a list of attributes
 * (<rdma/ib_user_ioctl_cmds.h>), which only ioctl has.
 *
 * Any thread: a call uses memory of its caller only. All functions return 0 or a positive errno.
 */
#ifndef VERBENA_KVERBS_COMMAND_H
#define VERBENA_KVERBS_COMMAND_H

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kernel_context;
struct ibv_command_buffer;

/* How commands reach the kernel; tests put their own here. Results and errno are those of the
 * system calls. */
struct kernel_io {
	ssize_t (*send)(int fd, const void *bytes, size_t size);
	int (*control)(int fd, unsigned long request, void *argument);
};
extern const struct kernel_io *kernel_io;

/* ------------------------------------------------------------------ commands */

/* What the driver appends to a request, and where its part of the response goes. */
struct driver_data {
	const void *in;
	size_t in_size;
	void *out;
	size_t out_size;
};

/* The headers that precede the request in the memory that a driver passes. */
enum { COMMAND_HEADER = 8, COMMAND_HEADER_EXTENDED = 24 };

/*
 * The driver's data behind a request of `core` bytes (with its header) and a response of `answer`
 * bytes. A size that doesn't reach beyond the core means that there is none.
 */
static inline struct driver_data driver_data_of(const void *request, size_t core, size_t size,
						void *response, size_t answer, size_t answer_size)
{
	struct driver_data data = {0};

	if (request && size > core) {
		data.in = (const char *)request + core;
		data.in_size = size - core;
	}
	if (response && answer_size > answer) {
		data.out = (char *)response + answer;
		data.out_size = answer_size - answer;
	}
	return data;
}

struct command {
	uint32_t number; /* enum ib_uverbs_write_cmds, or IB_USER_VERBS_EX_CMD_* */
	bool extended;
	const void *core; /* without a header; a legacy one with a response begins with its address,
			     which command_run() provides */
	size_t core_size;
	void *answer; /* NULL: the command has none */
	size_t answer_size;
	struct driver_data driver;
};

/* Sends the command. `answer` and the driver's part are filled on success, and zeroed or partly
 * filled otherwise. EINVAL: a part is too long for the format, or has no whole number of words. */
int command_run(struct kernel_context *kernel, const struct command *command);

/* ------------------------------------------------------------------ methods */

enum { METHOD_ATTRS_MAX = 24 };

struct method {
	unsigned int count;
	bool invalid; /* too many attributes, or a too long one: method_run() returns EINVAL */
	union {
		struct ib_uverbs_ioctl_hdr header;
		uint64_t header_words[3];
	};
	struct ib_uverbs_attr attrs[METHOD_ATTRS_MAX];
};

void method_begin(struct method *method, uint16_t object, uint16_t number);
/* Each appends a mandatory attribute. Data of up to 8 bytes are copied into it; longer ones, and
 * what the kernel fills, must stay valid until method_run() returns. */
void method_in(struct method *method, uint16_t id, const void *data, size_t size);
void method_in_u32(struct method *method, uint16_t id, uint32_t value);
void method_in_u64(struct method *method, uint16_t id, uint64_t value);
void method_out(struct method *method, uint16_t id, void *data, size_t size);
/* An object's handle, or a descriptor. */
void method_object(struct method *method, uint16_t id, uint64_t handle);
/* The driver's data, where there are any. */
void method_driver(struct method *method, const struct driver_data *data);
/* The attributes that a driver has built, and after method_run() their results back to it. */
void method_append(struct method *method, const struct ibv_command_buffer *link);
void method_return(const struct method *method, struct ibv_command_buffer *link);

/* EOPNOTSUPP: this kernel has no methods, or not this one. */
int method_run(struct kernel_context *kernel, struct method *method);
/* The value of an attribute that method_object() appended: a handle or a descriptor that the kernel
 * has filled in. */
uint64_t method_result(const struct method *method, uint16_t id);

/* Finds out whether the kernel takes commands by ioctl. */
bool command_ioctl_works(struct kernel_context *kernel);

#endif
