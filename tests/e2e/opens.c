/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens the first device and says whether that worked: for users.py, which gives it rights that its
 * caller doesn't have. */
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!ctx) {
		perror("no device");
		return 1;
	}
	puts("opened");
	return 0;
}
