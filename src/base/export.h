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

#endif
