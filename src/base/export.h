/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a function gets out of libibverbs.so.1.
 *
 * Everything is compiled with hidden visibility. A function that programs may call is marked
 * EXPORT where it is defined, and libibverbs.map names it under the version node that it belongs
 * to; both are needed. The test abi_symbols fails when one is forgotten. A function with a hidden
 * old version is defined under another name and joined to it with EXPORT_OLD.
 */
#ifndef VERBENA_ABI_EXPORT_H
#define VERBENA_ABI_EXPORT_H

#define EXPORT __attribute__((visibility("default")))

/*
 * Exports `function` (global, EXPORT) as `name@node`, node being a string: found by programs that
 * were linked against that node, not offered to the linker. The function's own name stays inside,
 * by the map's "local: *".
 */
#define EXPORT_OLD(function, name, node) __asm__(".symver " #function ", " #name "@" node)

#endif
