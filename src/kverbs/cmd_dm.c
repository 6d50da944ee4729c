/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for device memory and for counters, which driver libraries call. The kernel has them as
 * methods only. Each returns 0 or a positive errno. `link` is what the driver adds; no state, any
 * thread.
 */
#include <rdma/ib_user_ioctl_cmds.h>

#include "kverbs/commands.h"

/* Runs a method that has only the object that it ends. */
static int object_end(struct ibv_context *context, uint16_t object, uint16_t number,
		      uint16_t attribute, uint32_t handle)
{
	struct method method;

	method_begin(&method, object, number);
	method_object(&method, attribute, handle);
	return destroy_result(method_run(kernel_of(context), &method));
}

/* ------------------------------------------------------------------ device memory */

EXPORT int ibv_cmd_alloc_dm(struct ibv_context *context, const struct ibv_alloc_dm_attr *attr,
			    struct provider_dm *dm, struct ibv_command_buffer *link)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
	method_object(&method, UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
	method_in_u64(&method, UVERBS_ATTR_ALLOC_DM_LENGTH, attr->length);
	method_in_u32(&method, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, attr->log_align_req);
	method_append(&method, link);
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	method_return(&method, link);
	dm->handle = (uint32_t)method_result(&method, UVERBS_ATTR_ALLOC_DM_HANDLE);
	dm->ibv.context = context;
	dm->ibv.handle = dm->handle;
	dm->ibv.comp_mask = IBV_DM_MASK_HANDLE;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_alloc_dm, ibv_cmd_alloc_dm);

EXPORT int ibv_cmd_free_dm(struct provider_dm *dm)
{
	return object_end(dm->ibv.context, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
			  UVERBS_ATTR_FREE_DM_HANDLE, dm->handle);
}
EXPORT_SINCE_34(ibv_cmd_free_dm, ibv_cmd_free_dm);

/* Such a region begins at 0, since device memory may have no address in the program. */
EXPORT int ibv_cmd_reg_dm_mr(struct ibv_pd *pd, struct provider_dm *dm, uint64_t offset,
			     size_t length, unsigned int access, struct provider_mr *mr,
			     struct ibv_command_buffer *link)
{
	struct method method;
	uint32_t lkey = 0, rkey = 0;

	if (!(access & IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	method_begin(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
	method_object(&method, UVERBS_ATTR_REG_DM_MR_HANDLE, 0);
	method_in_u64(&method, UVERBS_ATTR_REG_DM_MR_OFFSET, offset);
	method_in_u64(&method, UVERBS_ATTR_REG_DM_MR_LENGTH, length);
	method_object(&method, UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle);
	method_in_u32(&method, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access);
	method_object(&method, UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle);
	method_out(&method, UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &lkey, sizeof(lkey));
	method_out(&method, UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &rkey, sizeof(rkey));
	method_append(&method, link);
	int err = method_run(kernel_of(pd->context), &method);

	if (err)
		return err;
	method_return(&method, link);
	mr->ibv = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.length = length,
		.handle = (uint32_t)method_result(&method, UVERBS_ATTR_REG_DM_MR_HANDLE),
		.lkey = lkey,
		.rkey = rkey,
	};
	mr->type = PROVIDER_MR;
	mr->access = (int)access;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_reg_dm_mr, ibv_cmd_reg_dm_mr);

/* ------------------------------------------------------------------ counters */

EXPORT int ibv_cmd_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr,
				   struct provider_counters *counters,
				   struct ibv_command_buffer *link)
{
	struct method method;

	if (attr->comp_mask)
		return EOPNOTSUPP;
	method_begin(&method, UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE);
	method_object(&method, UVERBS_ATTR_CREATE_COUNTERS_HANDLE, 0);
	method_append(&method, link);
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	method_return(&method, link);
	counters->ibv.context = context;
	counters->handle = (uint32_t)method_result(&method, UVERBS_ATTR_CREATE_COUNTERS_HANDLE);
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_counters, ibv_cmd_create_counters);

EXPORT int ibv_cmd_destroy_counters(struct provider_counters *counters)
{
	return object_end(counters->ibv.context, UVERBS_OBJECT_COUNTERS,
			  UVERBS_METHOD_COUNTERS_DESTROY, UVERBS_ATTR_DESTROY_COUNTERS_HANDLE,
			  counters->handle);
}
EXPORT_SINCE_34(ibv_cmd_destroy_counters, ibv_cmd_destroy_counters);

EXPORT int ibv_cmd_read_counters(struct provider_counters *counters, uint64_t *values,
				 uint32_t count, uint32_t flags, struct ibv_command_buffer *link)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ);
	method_object(&method, UVERBS_ATTR_READ_COUNTERS_HANDLE, counters->handle);
	method_out(&method, UVERBS_ATTR_READ_COUNTERS_BUFF, values, count * sizeof(*values));
	method_in_u32(&method, UVERBS_ATTR_READ_COUNTERS_FLAGS, flags);
	method_append(&method, link);
	int err = method_run(kernel_of(counters->ibv.context), &method);

	if (!err)
		method_return(&method, link);
	return err;
}
EXPORT_SINCE_34(ibv_cmd_read_counters, ibv_cmd_read_counters);

/* ------------------------------------------------------------------ flow actions */

/* An attribute that says of which kind its data are. */
static void method_kind(struct method *method, uint16_t id, uint8_t kind, const void *data,
			size_t size)
{
	method_in(method, id, data, size);
	if (!method->invalid)
		method->attrs[method->count - 1].attr_data.enum_data.elem_id = kind;
}

static void esp_append(struct method *method, const struct ibv_flow_action_esp_attr *attr)
{
	if (attr->comp_mask & IBV_FLOW_ACTION_ESP_MASK_ESN)
		method_in_u32(method, UVERBS_ATTR_FLOW_ACTION_ESP_ESN, attr->esn);
	if (attr->keymat_ptr)
		method_kind(method, UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT, (uint8_t)attr->keymat_proto,
			    attr->keymat_ptr, attr->keymat_len);
	if (attr->replay_ptr)
		method_kind(method, UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY, (uint8_t)attr->replay_proto,
			    attr->replay_ptr, attr->replay_len);
	if (attr->esp_encap)
		method_in(method, UVERBS_ATTR_FLOW_ACTION_ESP_ENCAP, attr->esp_encap,
			  sizeof(*attr->esp_encap));
	if (attr->esp_attr)
		method_in(method, UVERBS_ATTR_FLOW_ACTION_ESP_ATTRS, attr->esp_attr,
			  sizeof(*attr->esp_attr));
}

EXPORT int ibv_cmd_create_flow_action_esp(struct ibv_context *context,
					  struct ibv_flow_action_esp_attr *attr,
					  struct provider_flow_action *action,
					  struct ibv_command_buffer *link)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_ESP_CREATE);
	method_object(&method, UVERBS_ATTR_CREATE_FLOW_ACTION_ESP_HANDLE, 0);
	esp_append(&method, attr);
	method_append(&method, link);
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	method_return(&method, link);
	action->ibv.context = context;
	action->type = PROVIDER_FLOW_ACTION_ESP;
	action->handle =
		(uint32_t)method_result(&method, UVERBS_ATTR_CREATE_FLOW_ACTION_ESP_HANDLE);
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_flow_action_esp, ibv_cmd_create_flow_action_esp);

EXPORT int ibv_cmd_modify_flow_action_esp(struct provider_flow_action *action,
					  struct ibv_flow_action_esp_attr *attr,
					  struct ibv_command_buffer *link)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY);
	method_object(&method, UVERBS_ATTR_MODIFY_FLOW_ACTION_ESP_HANDLE, action->handle);
	esp_append(&method, attr);
	method_append(&method, link);
	int err = method_run(kernel_of(action->ibv.context), &method);

	if (!err)
		method_return(&method, link);
	return err;
}
EXPORT_SINCE_34(ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_flow_action_esp);

EXPORT int ibv_cmd_destroy_flow_action(struct provider_flow_action *action)
{
	return object_end(action->ibv.context, UVERBS_OBJECT_FLOW_ACTION,
			  UVERBS_METHOD_FLOW_ACTION_DESTROY, UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE,
			  action->handle);
}
EXPORT_SINCE_34(ibv_cmd_destroy_flow_action, ibv_cmd_destroy_flow_action);
