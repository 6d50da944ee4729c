/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * umad_compare OUR-LIBIBUMAD DEBIAN-LIBIBUMAD
 *
 * What needs no device is the same in our libibumad.so.3 and in Debian's: names, addresses, lists,
 * refused arguments. Ends at the first difference. Exit code 77: Debian's isn't installed.
 */
#include "compare.h"

#include <infiniband/umad.h>
#include <infiniband/umad_str.h>

#include <errno.h>

static void names_compare(void)
{
	for (int number = 0; number < 256; number++) {
		same_text(CALL(OURS, umad_class_str)(number), CALL(DEBIANS, umad_class_str)(number),
			  "umad_class_str", number);
		for (int mgmt_class = 0; mgmt_class < 256; mgmt_class++) {
			same_text(CALL(OURS, umad_method_str)(mgmt_class, number),
				  CALL(DEBIANS, umad_method_str)(mgmt_class, number),
				  "umad_method_str", number);
			same_text(CALL(OURS, umad_attribute_str)(mgmt_class, htobe16(number)),
				  CALL(DEBIANS, umad_attribute_str)(mgmt_class, htobe16(number)),
				  "umad_attribute_str", number);
		}
	}
	for (int number = 0; number < 65536; number++) {
		same_text(CALL(OURS, umad_common_mad_status_str)(number),
			  CALL(DEBIANS, umad_common_mad_status_str)(number),
			  "umad_common_mad_status_str", number);
		same_text(CALL(OURS, umad_sa_mad_status_str)(number),
			  CALL(DEBIANS, umad_sa_mad_status_str)(number), "umad_sa_mad_status_str",
			  number);
	}
}

/*
 * Debian's library believes in the header without a P_Key index until a port was opened, so the
 * functions that depend on it aren't compared.
 */
static void addresses_compare(void)
{
	for (int round = 0; round < 200; round++) {
		uint8_t before[sizeof(struct ib_user_mad)];
		struct ib_user_mad packets[LIBRARIES];
		struct ib_mad_addr grh;
		struct captured captured;
		char *texts[LIBRARIES];
		int numbers[4] = {(int)random(), (int)random(), (int)random(), (int)random()};

		fill_random(before, sizeof before);
		fill_random(&grh, sizeof grh);
		for (int i = 0; i < LIBRARIES; i++) {
			memcpy(&packets[i], before, sizeof before);
			CALL(i, umad_set_addr)
			(&packets[i], numbers[0], numbers[1], numbers[2], numbers[3]);
			if (round % 4 == 1)
				CALL(i, umad_set_addr_net)
			(&packets[i], numbers[3], numbers[2], numbers[1], numbers[0]);
			if (round % 4 > 1)
				CALL(i, umad_set_grh)(&packets[i], round % 4 == 2 ? &grh : NULL);
			capture_begin(&captured, &stderr);
			CALL(i, umad_dump)(&packets[i]);
			texts[i] = capture_end(&captured);
			same_number(CALL(i, umad_status)(&packets[i]), (int)packets[i].status,
				    "umad_status", round);
		}
		same_bytes(&packets[OURS], &packets[DEBIANS], sizeof packets[0], "umad_set_addr",
			   round);
		same_text(texts[OURS], texts[DEBIANS], "umad_dump", round);
		for (int i = 0; i < LIBRARIES; i++)
			free(texts[i]);
	}
	if (CALL(OURS, umad_size)() != 64)
		differ("the header has %zu bytes", CALL(OURS, umad_size)());
}

static void lists_compare(void)
{
	static const char *const names[] = {"mlx5_1", "verbena0", "a", "mlx5_0", "zz", "b"};

	for (size_t size = 0; size < 9; size++) {
		for (size_t length = 0; length <= 6; length++) {
			struct umad_device_node nodes[LIBRARIES][6];
			struct umad_device_node *heads[LIBRARIES];
			char texts[LIBRARIES][128] = {{0}};
			int results[LIBRARIES];

			for (int i = 0; i < LIBRARIES; i++) {
				for (size_t k = 0; k < length; k++)
					nodes[i][k] = (struct umad_device_node){
						k + 1 < length ? &nodes[i][k + 1] : NULL, names[k]};
				heads[i] = length ? nodes[i] : NULL;
				/* Debian's library reads behind an empty list. */
				results[i] =
					length || !size
						? CALL(i, umad_sort_ca_device_list)(&heads[i], size)
						: 0;
				for (struct umad_device_node *node = heads[i]; node;
				     node = node->next)
					strcat(strcat(texts[i], node->ca_name), " ");
			}
			same_number(results[OURS], results[DEBIANS], "umad_sort_ca_device_list",
				    (long)(10 * size + length));
			same_text(texts[OURS], texts[DEBIANS], "umad_sort_ca_device_list",
				  (long)(10 * size + length));
		}
	}
}

static void refusals_compare(void)
{
	struct umad_reg_attr attr = {.mgmt_class = 0x32};
	uint8_t oui[3] = {0, 0x14, 5};
	uint32_t agent;
	int length = 256;
	int results[LIBRARIES];

#define REFUSED(what, ...)                                                     \
	do {                                                                   \
		for (int i = 0; i < LIBRARIES; i++)                            \
			results[i] = CALL(i, what)(__VA_ARGS__);               \
		same_number(results[OURS], results[DEBIANS], #what, __LINE__); \
	} while (0)
	REFUSED(umad_init);
	REFUSED(umad_done);
	REFUSED(umad_get_fd, 17);
	REFUSED(umad_close_port, -1);
	REFUSED(umad_register, -1, 4, 1, 0, NULL);
	REFUSED(umad_register_oui, -1, 0x32, 0, oui, NULL);
	REFUSED(umad_register_oui, -1, 0x2f, 0, oui, NULL);
	REFUSED(umad_register2, -1, NULL, &agent);
	REFUSED(umad_register2, -1, &attr, NULL);
	REFUSED(umad_register2, -1, &attr, &agent);
	attr.oui = 0x01001405;
	REFUSED(umad_register2, -1, &attr, &agent);
	attr.oui = 0x001405;
	REFUSED(umad_register2, -1, &attr, &agent);
	REFUSED(umad_unregister, -1, 0);
	REFUSED(umad_recv, -1, NULL, &length, 0);
	REFUSED(umad_recv, -1, &attr, NULL, 0);
	REFUSED(umad_poll, -1, 0);
	REFUSED(umad_get_ca, "nothing", &(umad_ca_t){0});
	REFUSED(umad_debug, 3);
	REFUSED(umad_debug, -1);
	REFUSED(umad_debug, 0);
}

int main(int count, char *words[])
{
	if (count != 3) {
		printf("usage: umad_compare OUR-LIBIBUMAD DEBIAN-LIBIBUMAD\n");
		return 2;
	}
	compare_open(words + 1);
	srandom(16);
	names_compare();
	addresses_compare();
	lists_compare();
	refusals_compare();
	printf("equal: %lu results\n", compared);
	return 0;
}
