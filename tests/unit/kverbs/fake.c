/* SPDX-License-Identifier: BSD-2-Clause */
/* A fake kernel and a fake driver. See fake.h. */
#include "fake.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake_kernel fake;
static char base[64];
static char sysfs[80], nodes[80];
/* The program's constructor registers the only driver: nothing is to be loaded. */
static struct scan_roots roots = {.sysfs = sysfs, .nodes = nodes, .config = nodes};
static const struct kernel_io *real_io;

/* ------------------------------------------------------------------ the kernel */

/* Whether this command is to fail. */
static bool fake_fails(void)
{
	if (!fake.fail)
		return false;
	if (!fake.fail_after)
		return true;
	fake.fail_after--;
	return false;
}

static ssize_t fake_write(int fd, const void *bytes, size_t size)
{
	struct ib_uverbs_cmd_hdr header;
	struct ib_uverbs_ex_cmd_hdr more;
	uint64_t response;
	size_t room;

	(void)fd;
	fake.writes++;
	bool fails = fake_fails();

	memcpy(fake.message, bytes, size);
	fake.message_size = size;
	memcpy(&header, bytes, sizeof(header));
	memcpy(&response, (const char *)bytes + sizeof(header), sizeof(response));
	room = (size_t)header.out_words * 4;
	if (header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
		memcpy(&more, (const char *)bytes + sizeof(header), sizeof(more));
		response = more.response;
		room = ((size_t)header.out_words + more.provider_out_words) * 8;
	}
	if (room)
		memcpy((void *)(uintptr_t)response, fake.answer, room);
	if (!fails)
		return (ssize_t)size;
	errno = (int)fake.fail;
	return -1;
}

const struct ib_uverbs_attr *fake_attr(uint16_t id)
{
	for (unsigned int i = 0; i < fake.header.num_attrs; i++)
		if (fake.attrs[i].attr_id == id)
			return &fake.attrs[i];
	return NULL;
}

const void *fake_value(uint16_t id)
{
	const struct ib_uverbs_attr *attr = fake_attr(id);

	if (!attr)
		return NULL;
	return attr->len <= 8 ? (const void *)&attr->data : fake.values[attr - fake.attrs];
}

/* Keeps what the attributes point to, which is gone when the command has returned. */
static void keep_values(void)
{
	for (unsigned int i = 0; i < fake.header.num_attrs; i++) {
		const struct ib_uverbs_attr *attr = &fake.attrs[i];

		if (attr->len > 8 && attr->len <= FAKE_VALUE)
			memcpy(fake.values[i], (void *)(uintptr_t)attr->data, attr->len);
	}
}

static void invoke_write(void)
{
	const struct ib_uverbs_attr *in = fake_attr(UVERBS_ATTR_CORE_IN);
	const struct ib_uverbs_attr *out = fake_attr(UVERBS_ATTR_CORE_OUT);
	const struct ib_uverbs_attr *driver = fake_attr(UVERBS_ATTR_UHW_OUT);

	fake.command = fake_attr(UVERBS_ATTR_WRITE_CMD)->data;
	if (in)
		memcpy(fake.core,
		       in->len <= 8 ? (const void *)&in->data : (void *)(uintptr_t)in->data,
		       in->len);
	if (out)
		memcpy((void *)(uintptr_t)out->data, fake.answer, out->len);
	if (driver)
		memcpy((void *)(uintptr_t)driver->data, fake.answer + (out ? out->len : 0),
		       driver->len);
}

/* A method that creates an object has the object's handle as its first attribute, but there are
 * others, so tests look at a result only where it is one. */
static void method_answer(struct ib_uverbs_ioctl_hdr *header)
{
	if (header->object_id == UVERBS_OBJECT_DEVICE &&
	    header->method_id == UVERBS_METHOD_INVOKE_WRITE) {
		invoke_write();
		return;
	}
	for (unsigned int i = 0; i < header->num_attrs; i++)
		if (!header->attrs[i].len && !header->attrs[i].data)
			header->attrs[i].data = FAKE_HANDLE;
	if (header->object_id == UVERBS_OBJECT_ASYNC_EVENT)
		header->attrs[0].data = (uint64_t)dup(0);
}

static int fake_ioctl(int fd, unsigned long request, void *argument)
{
	struct ib_uverbs_ioctl_hdr *header = argument;

	(void)fd, (void)request;
	fake.ioctls++;
	if (!fake.has_ioctl) {
		errno = ENOTTY;
		return -1;
	}
	bool fails = fake_fails();

	fake.header = *header;
	memcpy(fake.attrs, header->attrs, header->num_attrs * sizeof(fake.attrs[0]));
	keep_values();
	method_answer(header);
	errno = (int)fake.fail;
	return fails ? -1 : 0;
}

static const struct kernel_io fake_io = {.send = fake_write, .control = fake_ioctl};

/* ------------------------------------------------------------------ sysfs */

void fake_file(const char *path, const char *text)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", sysfs, path);
	for (char *slash = strchr(full + strlen(base) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	FILE *file = fopen(full, "w");

	if (!file || fprintf(file, "%s\n", text) < 0 || fclose(file))
		abort();
}

const struct scan_roots *fake_begin(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.has_ioctl = true;
	strcpy(base, "/tmp/verbena-kverbs-XXXXXX");
	if (!mkdtemp(base))
		abort();
	snprintf(sysfs, sizeof(sysfs), "%s/sys", base);
	snprintf(nodes, sizeof(nodes), "%s/dev", base);
	mkdir(nodes, 0755);
	fake_file("class/infiniband_verbs/abi_version", "6");
	scan_use_roots(&roots);
	real_io = kernel_io;
	kernel_io = &fake_io;
	return &roots;
}

void fake_end(void)
{
	char command[128];

	kernel_io = real_io;
	snprintf(command, sizeof(command), "rm -r %s", base);
	if (system(command))
		abort();
}

static void device_file(const char *node, const char *file, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "class/infiniband_verbs/%s/%s", node, file);
	if (text)
		fake_file(path, text);
}

void fake_device(const char *node, const char *name, const char *number, const char *modalias)
{
	char path[PATH_MAX];

	device_file(node, "ibdev", name);
	device_file(node, "dev", number);
	device_file(node, "abi_version", "1");
	device_file(node, "device/modalias", modalias);
	snprintf(path, sizeof(path), "class/infiniband/%s/node_type", name);
	fake_file(path, "1: CA");
	snprintf(path, sizeof(path), "class/infiniband/%s/node_guid", name);
	fake_file(path, "0011:2233:4455:6677");
	snprintf(path, sizeof(path), "%s/%s", nodes, node);
	if (symlink("/dev/null", path))
		abort();
}

/* ------------------------------------------------------------------ the driver */

enum driver_release fake_release;

/* The driver's structure: something before the context, and the context of its release. */
enum { CONTEXT_OFFSET = 64 };

/* The calls that differ between releases. */
struct release_calls {
	void *(*alloc)(struct ibv_device *device, int cmd_fd, size_t size, void *offset,
		       uint32_t driver_id);
	void (*set_ops)(void *verbs, const void *table);
	void (*uninit)(void *verbs);
	int (*get)(void *verbs, void *request, size_t size, const void *descriptors,
		   struct ib_uverbs_get_context_resp *response, size_t response_size);
};

static int get_context_44(void *verbs, void *request, size_t size, const void *descriptors,
			  struct ib_uverbs_get_context_resp *response, size_t response_size)
{
	(void)descriptors;
	return ibv_cmd_get_context(verbs, request, size, response, response_size);
}

static const struct release_calls *calls(void)
{
	static const struct release_calls of_44 = {_verbs_init_and_alloc_context, verbs_set_ops,
						   verbs_uninit_context, get_context_44};
#define CALLS(node)                                                             \
	{                                                                       \
		_verbs_init_and_alloc_context_##node, verbs_set_ops_##node,     \
			verbs_uninit_context_##node, ibv_cmd_get_context_##node \
	}
	static const struct release_calls of_57 = CALLS(57), of_64 = CALLS(64), of_65 = CALLS(65);

	switch (fake_release) {
	case RELEASE_57:
		return &of_57;
	case RELEASE_64:
		return &of_64;
	case RELEASE_65:
		return &of_65;
	default:
		return &of_44;
	}
}

static void *verbs_of_context(struct ibv_context *context)
{
	return (char *)context - table_context_at(fake_release);
}

static struct ibv_context *context_of_verbs(void *verbs)
{
	return (struct ibv_context *)(void *)((char *)verbs + table_context_at(fake_release));
}

/* The driver's pointer to a new context, or NULL. */
static void *fake_context_make(struct ibv_device *device, int fd)
{
	char *memory = calls()->alloc(device, fd, CONTEXT_OFFSET + table_context_size(fake_release),
				      (void *)(uintptr_t)CONTEXT_OFFSET, FAKE_DRIVER_ID);

	return memory ? memory + CONTEXT_OFFSET : NULL;
}

static void fake_context_end(void *verbs)
{
	calls()->uninit(verbs);
	free((char *)verbs - CONTEXT_OFFSET);
}

static struct ibv_pd *fake_alloc_pd(struct ibv_context *context)
{
	struct {
		uint8_t header[8];
		struct ib_uverbs_alloc_pd core;
		uint64_t driver;
	} request = {.driver = 0x1122334455667788};
	struct {
		struct ib_uverbs_alloc_pd_resp core;
		uint32_t driver;
	} response;
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (ibv_cmd_alloc_pd(context, pd, &request, sizeof(request), &response.core,
			     sizeof(response))) {
		free(pd);
		return NULL;
	}
	return pd;
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
	int err = ibv_cmd_dealloc_pd(pd);

	if (!err)
		free(pd);
	return err;
}

static struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct {
		uint8_t header[8];
		struct ib_uverbs_create_qp core;
	} request;
	struct ib_uverbs_create_qp_resp response;
	struct provider_qp *qp = calloc(1, sizeof(*qp));

	if (ibv_cmd_create_qp(pd, &qp->ibv, attr, &request, sizeof(request), &response,
			      sizeof(response))) {
		free(qp);
		return NULL;
	}
	return &qp->ibv;
}

static int fake_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct {
		uint8_t header[8];
		struct ib_uverbs_query_port core;
	} request;

	return ibv_cmd_query_port(context, port, attr, &request, sizeof(request));
}

static void fake_free_context(struct ibv_context *context)
{
	fake_context_end(verbs_of_context(context));
}

static struct ibv_mr *fake_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct provider_mr *mr = calloc(1, sizeof(*mr));

	if (ibv_cmd_query_mr(pd, mr, handle)) {
		free(mr);
		return NULL;
	}
	return &mr->ibv;
}

static void fake_unimport_mr(struct ibv_mr *mr)
{
	free(container_of(mr, struct provider_mr, ibv));
}

static struct ibv_dmah *fake_alloc_dmah(struct ibv_context *context,
					struct ibv_dmah_init_attr *attr)
{
	struct provider_dmah *dmah = calloc(1, sizeof(*dmah));

	if (ibv_cmd_alloc_dmah(context, dmah, attr)) {
		free(dmah);
		return NULL;
	}
	return &dmah->ibv;
}

static int fake_dealloc_dmah(struct ibv_dmah *dmah)
{
	int err = ibv_cmd_free_dmah(container_of(dmah, struct provider_dmah, ibv));

	if (!err)
		free(container_of(dmah, struct provider_dmah, ibv));
	return err;
}

static struct ibv_mr *fake_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	struct provider_mr *mr = calloc(1, sizeof(*mr));

	if (ibv_cmd_reg_mr_ex(pd, mr, attr)) {
		free(mr);
		return NULL;
	}
	return &mr->ibv;
}

static const struct provider_ops fake_ops = {
	.alloc_pd = fake_alloc_pd,
	.dealloc_pd = fake_dealloc_pd,
	.create_qp = fake_create_qp,
	.free_context = fake_free_context,
	.import_mr = fake_import_mr,
	.unimport_mr = fake_unimport_mr,
	.query_port = fake_query_port,
	.alloc_dmah = fake_alloc_dmah,
	.dealloc_dmah = fake_dealloc_dmah,
	.reg_mr_ex = fake_reg_mr_ex,
	.query_port_speed = ibv_cmd_query_port_speed,
	.set_err_comp_cntr = ibv_cmd_set_err_comp_cntr,
};

static void fake_set_ops(void *verbs)
{
	void **table = table_make(fake_release, &fake_ops);

	calls()->set_ops(verbs, table);
	free(table);
}

static void *fake_alloc_context(struct ibv_device *device, int fd, void *data)
{
	struct {
		uint8_t header[8];
		struct ib_uverbs_get_context core;
	} request;
	struct ib_uverbs_get_context_resp response;
	void *verbs = fake_context_make(device, fd);

	(void)data;
	if (!verbs)
		return NULL;
	if (calls()->get(verbs, &request, sizeof(request), NULL, &response, sizeof(response))) {
		fake_context_end(verbs);
		return NULL;
	}
	fake_set_ops(verbs);
	return verbs;
}

/* Another context over the same descriptor, which it owns. */
static void *fake_import_context(struct ibv_device *device, int fd)
{
	void *verbs = fake_context_make(device, fd);

	if (!verbs)
		return NULL;
	if (ibv_cmd_query_context(context_of_verbs(verbs), NULL)) {
		fake_context_end(verbs);
		return NULL;
	}
	fake_set_ops(verbs);
	return verbs;
}

static struct provider_device *fake_alloc_device(struct found_device *found)
{
	(void)found;
	return calloc(1, sizeof(struct provider_device));
}

static void fake_uninit_device(struct provider_device *device)
{
	free(device);
}

static const struct provider_match fake_matches[] = {
	{.kind = PROVIDER_MATCH_DRIVER_ID, .driver_id = FAKE_DRIVER_ID},
	{.kind = PROVIDER_MATCH_MODALIAS, .modalias = "rdma_device:*Nfake*"},
	{.kind = PROVIDER_MATCH_PCI, .vendor = 0x15b3, .device = 0x1017},
	{.kind = PROVIDER_MATCH_END},
};

const struct provider fake_provider = {
	.name = "fake",
	.abi_min = 1,
	.abi_max = 1,
	.matches = fake_matches,
	.alloc_context = fake_alloc_context,
	.import_context = fake_import_context,
	.alloc_device = fake_alloc_device,
	.uninit_device = fake_uninit_device,
};

struct kernel_context *fake_open(struct ibv_device *device)
{
	struct ibv_context *context = kernel_open(kernel_device_of(device));

	return context ? kernel_of(context) : NULL;
}

/* ------------------------------------------------------------------ a device that is open */

struct ibv_device **listed;

struct kernel_context *device_open(bool has_ioctl)
{
	struct device_choice choice = {.kernel = true};
	int count = 0;

	fake_begin();
	fake.has_ioctl = has_ioctl;
	fake_device("uverbs3", "fake0", "1:3", NULL);
	listed = kernel_list_append(calloc(1, sizeof(*listed)), &count, &choice);
	if (count != 1 || listed[1])
		abort();
	/* The answer to GET_CONTEXT by write(): a descriptor of events and 5 vectors. */
	struct ib_uverbs_get_context_resp answer = {.async_fd = (uint32_t)dup(0),
						    .num_comp_vectors = 5};

	memcpy(fake.answer, &answer, sizeof(answer));
	if (has_ioctl)
		close((int)answer.async_fd);
	struct kernel_context *kernel = fake_open(listed[0]);

	if (!kernel)
		abort();
	return kernel;
}

void device_close(struct kernel_context *kernel)
{
	kernel_close(kernel);
	kernel_device_put(kernel_device_of(listed[0]));
	free(listed);
	fake_end();
}
