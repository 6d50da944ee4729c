/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exporting functions from libibverbs.so.1.
 *
 * All code is compiled with hidden visibility. A function that programs may call is marked EXPORT
 * where it is defined, and libibverbs.map names it under the version node that it belongs to; both
 * are needed, and the test abi_symbols fails when one is missing. A function that also has a hidden
 * old version defines that under another name and exports it with EXPORT_OLD.
 */
#ifndef VERBENA_ABI_EXPORT_H
#define VERBENA_ABI_EXPORT_H

#define EXPORT __attribute__((visibility("default")))

/*
 * Exports `function` (global, EXPORT) as `name@node`, node being a string: programs linked against
 * that node find it, the linker doesn't offer it. The function's own name isn't exported, by the
 * map's "local: *".
 */
#define EXPORT_OLD(function, name, node) __asm__(".symver " #function ", " #name "@" node)

/*
 * The private nodes of rdma-core's releases: IBVERBS_PRIVATE_34 up to 56, then one for each release
 * that changed what drivers see. Each of these exports `function` as `name` in all nodes from its
 * number on, and EXPORT_PRIVATE in one node: `function` is another one than `name` where a release
 * changed the parameters. libibverbs.map can't list such functions, because it gives a function one
 * node only. The node of 34 is the one that the linker offers.
 */
#define EXPORT_PRIVATE(function, name, release) \
	EXPORT_OLD(function, name, "IBVERBS_PRIVATE_" #release)
#define EXPORT_SINCE_65(function, name) EXPORT_PRIVATE(function, name, 65)
#define EXPORT_SINCE_64(function, name)     \
	EXPORT_PRIVATE(function, name, 64); \
	EXPORT_SINCE_65(function, name)
#define EXPORT_SINCE_59(function, name)     \
	EXPORT_PRIVATE(function, name, 59); \
	EXPORT_SINCE_64(function, name)
#define EXPORT_SINCE_57(function, name)     \
	EXPORT_PRIVATE(function, name, 57); \
	EXPORT_SINCE_59(function, name)
#define EXPORT_34(function, name) EXPORT_OLD(function, name, "@IBVERBS_PRIVATE_34")
#define EXPORT_SINCE_34(function, name) \
	EXPORT_34(function, name);      \
	EXPORT_SINCE_57(function, name)

#endif
