/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands to the kernel's uverbs device. See command.h. Owns nothing; any thread. */
#include "kverbs/command.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/export.h"
#include "base/sys.h"
#include "kverbs/kernel.h"
#include "kverbs/provider.h"

enum {
	WORD = 4,	   /* lengths of a legacy command count these */
	WORD_EXTENDED = 8, /* those of an extended one these */
	WORDS_MAX = UINT16_MAX,
	ON_STACK = 1024, /* larger messages are allocated */
};

static ssize_t io_send(int fd, const void *bytes, size_t size)
{
	return sys_write(fd, bytes, size);
}

static int io_control(int fd, unsigned long request, void *argument)
{
	return ioctl(fd, request, argument);
}

static const struct kernel_io system_io = {.send = io_send, .control = io_control};
const struct kernel_io *kernel_io = &system_io;

static int command_error(void)
{
	return errno ? errno : EIO;
}

/* ------------------------------------------------------------------ write() */

/* The sizes of a message: header, request and the driver's part; and of its response. */
struct message_size {
	size_t in, out;
};

static bool words_fit(const struct command *command)
{
	size_t word = command->extended ? WORD_EXTENDED : WORD;
	const size_t sizes[] = {command->core_size, command->answer_size, command->driver.in_size,
				command->driver.out_size};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i] % word || sizes[i] / word > WORDS_MAX / 4)
			return false;
	return true;
}

static void message_header(uint8_t *message, const struct command *command,
			   const struct message_size *size, const void *response)
{
	struct ib_uverbs_cmd_hdr header = {
		.command = command->number,
		.in_words = size->in / WORD,
		.out_words = size->out / WORD,
	};
	struct ib_uverbs_ex_cmd_hdr more = {
		.response = (uintptr_t)response,
		.provider_in_words = command->driver.in_size / WORD_EXTENDED,
		.provider_out_words = command->driver.out_size / WORD_EXTENDED,
	};

	if (command->extended) {
		header.command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		header.in_words = command->core_size / WORD_EXTENDED;
		header.out_words = command->answer_size / WORD_EXTENDED;
		memcpy(message + sizeof(header), &more, sizeof(more));
	}
	memcpy(message, &header, sizeof(header));
}

/* `message` has room for size->in bytes, `response` for size->out, and is zero. */
static int command_message_send(struct kernel_context *kernel, const struct command *command,
				const struct message_size *size, uint8_t *message,
				uint8_t *response)
{
	size_t header = command->extended ? COMMAND_HEADER_EXTENDED : COMMAND_HEADER;
	uint64_t address = (uintptr_t)response;

	message_header(message, command, size, size->out ? response : NULL);
	memcpy(message + header, command->core, command->core_size);
	if (!command->extended && size->out)
		memcpy(message + header, &address, sizeof(address));
	if (command->driver.in_size)
		memcpy(message + header + command->core_size, command->driver.in,
		       command->driver.in_size);
	errno = 0;
	int err = kernel_io->send(kernel_fd(kernel), message, size->in) == (ssize_t)size->in
			  ? 0
			  : command_error();

	/* A command that posts requests has an answer also when it fails. */
	if (command->answer)
		memcpy(command->answer, response, command->answer_size);
	if (!err && command->driver.out_size)
		memcpy(command->driver.out, response + command->answer_size,
		       command->driver.out_size);
	return err;
}

static int command_write(struct kernel_context *kernel, const struct command *command)
{
	size_t header = command->extended ? COMMAND_HEADER_EXTENDED : COMMAND_HEADER;
	struct message_size size = {
		.in = header + command->core_size + command->driver.in_size,
		.out = command->answer_size + command->driver.out_size,
	};
	_Alignas(8) uint8_t small[ON_STACK] = {0};
	uint8_t *memory = small;
	size_t offset = (size.in + 7) & ~(size_t)7;

	if (offset + size.out > sizeof(small))
		memory = calloc(1, offset + size.out);
	if (!memory)
		return ENOMEM;
	int err = command_message_send(kernel, command, &size, memory, memory + offset);

	if (memory != small)
		free(memory);
	return err;
}

/* ------------------------------------------------------------------ ioctl */

void method_begin(struct method *method, uint16_t object, uint16_t number)
{
	memset(method->header_words, 0, sizeof(method->header_words));
	method->count = 0;
	method->invalid = false;
	method->header.object_id = object;
	method->header.method_id = number;
}

static struct ib_uverbs_attr *method_next(struct method *method, uint16_t id, size_t size)
{
	if (method->count == METHOD_ATTRS_MAX || size > UINT16_MAX) {
		method->invalid = true;
		return NULL;
	}
	struct ib_uverbs_attr *attr = &method->attrs[method->count++];

	*attr = (struct ib_uverbs_attr){
		.attr_id = id,
		.len = (uint16_t)size,
		.flags = UVERBS_ATTR_F_MANDATORY,
	};
	return attr;
}

void method_in(struct method *method, uint16_t id, const void *data, size_t size)
{
	struct ib_uverbs_attr *attr = method_next(method, id, size);

	if (!attr)
		return;
	if (size <= sizeof(attr->data))
		memcpy(&attr->data, data, size);
	else
		attr->data = (uintptr_t)data;
}

void method_in_u32(struct method *method, uint16_t id, uint32_t value)
{
	method_in(method, id, &value, sizeof(value));
}

void method_in_u64(struct method *method, uint16_t id, uint64_t value)
{
	method_in(method, id, &value, sizeof(value));
}

void method_out(struct method *method, uint16_t id, void *data, size_t size)
{
	struct ib_uverbs_attr *attr = method_next(method, id, size);

	if (attr)
		attr->data = (uintptr_t)data;
}

void method_object(struct method *method, uint16_t id, uint64_t handle)
{
	struct ib_uverbs_attr *attr = method_next(method, id, 0);

	if (attr)
		attr->data = handle;
}

void method_driver(struct method *method, const struct driver_data *data)
{
	if (data->in_size)
		method_in(method, UVERBS_ATTR_UHW_IN, data->in, data->in_size);
	if (data->out_size)
		method_out(method, UVERBS_ATTR_UHW_OUT, data->out, data->out_size);
}

void method_append(struct method *method, const struct ibv_command_buffer *link)
{
	for (; link; link = link->next) {
		const struct ib_uverbs_attr *from = link->header.attrs;

		method->invalid |= link->error;
		for (; from != link->next_attr; from++) {
			struct ib_uverbs_attr *to = method_next(method, from->attr_id, from->len);

			if (to)
				*to = *from;
		}
	}
}

void method_return(const struct method *method, struct ibv_command_buffer *link)
{
	unsigned int linked = 0, at;

	for (const struct ibv_command_buffer *each = link; each; each = each->next)
		linked += (unsigned int)(each->next_attr - each->header.attrs);
	at = method->count - linked;
	for (; link; link = link->next)
		for (struct ib_uverbs_attr *to = link->header.attrs; to != link->next_attr; to++)
			*to = method->attrs[at++];
}

uint64_t method_result(const struct method *method, uint16_t id)
{
	for (unsigned int i = 0; i < method->count; i++)
		if (method->attrs[i].attr_id == id)
			return method->attrs[i].data;
	return 0;
}

/* One ioctl with the attributes behind the header: 0 or a positive errno. */
static int attributes_send(struct kernel_context *kernel, struct ib_uverbs_ioctl_hdr *header,
			   size_t count)
{
	header->num_attrs = (uint16_t)count;
	header->length = (uint16_t)(sizeof(*header) + count * sizeof(struct ib_uverbs_attr));
	header->driver_id = kernel->driver_id;
	header->reserved1 = 0;
	header->reserved2 = 0;
	errno = 0;
	return kernel_io->control(kernel_fd(kernel), RDMA_VERBS_IOCTL, header) ? command_error()
									       : 0;
}

static int method_send(struct kernel_context *kernel, struct method *method)
{
	_Static_assert(offsetof(struct method, attrs) - offsetof(struct method, header) ==
			       sizeof(struct ib_uverbs_ioctl_hdr),
		       "attributes follow the header");
	return method->invalid ? EINVAL : attributes_send(kernel, &method->header, method->count);
}

int method_run(struct kernel_context *kernel, struct method *method)
{
	if (!kernel->ioctl)
		return EOPNOTSUPP;
	int err = method_send(kernel, method);

	return err == ENOTTY || err == EPROTONOSUPPORT ? EOPNOTSUPP : err;
}

static int command_ioctl(struct kernel_context *kernel, const struct command *command)
{
	struct method method;
	uint64_t number = command->number;

	if (command->extended)
		number |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
	method_begin(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	method_in_u64(&method, UVERBS_ATTR_WRITE_CMD, number);
	if (command->core_size)
		method_in(&method, UVERBS_ATTR_CORE_IN, command->core, command->core_size);
	if (command->answer_size)
		method_out(&method, UVERBS_ATTR_CORE_OUT, command->answer, command->answer_size);
	method_driver(&method, &command->driver);
	return method_send(kernel, &method);
}

/* A request without its parts fails with ENOSPC where the method exists. */
bool command_ioctl_works(struct kernel_context *kernel)
{
	const struct command probe = {.number = IB_USER_VERBS_CMD_QUERY_DEVICE};
	int err = command_ioctl(kernel, &probe);

	return err != ENOTTY && err != EPROTONOSUPPORT;
}

int command_run(struct kernel_context *kernel, const struct command *command)
{
	if (!words_fit(command))
		return EINVAL;
	if (command->answer)
		memset(command->answer, 0, command->answer_size);
	return kernel->ioctl ? command_ioctl(kernel, command) : command_write(kernel, command);
}

/* ------------------------------------------------------------------ commands of drivers */

/* Whether objects may be destroyed after the device is gone. Drivers set it. */
extern EXPORT bool verbs_allow_disassociate_destroy;
EXPORT bool verbs_allow_disassociate_destroy;
EXPORT_SINCE_34(verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy);

EXPORT unsigned int __ioctl_final_num_attrs(unsigned int attrs,
					    const struct ibv_command_buffer *link);
EXPORT unsigned int __ioctl_final_num_attrs(unsigned int attrs,
					    const struct ibv_command_buffer *link)
{
	for (; link; link = link->next)
		attrs += (unsigned int)(link->next_attr - link->header.attrs);
	return attrs;
}
EXPORT_SINCE_34(__ioctl_final_num_attrs, __ioctl_final_num_attrs);

/* Copies the attributes of the linked buffers behind those of `command`. */
static size_t buffers_gather(struct ibv_command_buffer *command)
{
	struct ib_uverbs_attr *end = command->next_attr;

	for (struct ibv_command_buffer *link = command->next; link; link = link->next)
		for (const struct ib_uverbs_attr *from = link->header.attrs;
		     from != link->next_attr; from++)
			*end++ = *from;
	return (size_t)(end - command->header.attrs);
}

static void buffers_scatter(struct ibv_command_buffer *command)
{
	const struct ib_uverbs_attr *from = command->next_attr;

	for (struct ibv_command_buffer *link = command->next; link; link = link->next)
		for (struct ib_uverbs_attr *to = link->header.attrs; to != link->next_attr; to++)
			*to = *from++;
}

EXPORT int execute_ioctl(struct ibv_context *context, struct ibv_command_buffer *command);
EXPORT int execute_ioctl(struct ibv_context *context, struct ibv_command_buffer *command)
{
	struct kernel_context *kernel = kernel_of(context);
	int err = EOPNOTSUPP;

	if (command->error)
		err = EINVAL;
	else if (kernel && kernel->ioctl)
		err = attributes_send(kernel, &command->header, buffers_gather(command));
	if (!err)
		buffers_scatter(command);
	else
		errno = err;
	return err;
}
EXPORT_SINCE_34(execute_ioctl, execute_ioctl);
