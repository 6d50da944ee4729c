# SPDX-License-Identifier: BSD-2-Clause
# Toolchain for tools/cross-aarch64: Debian's cross compiler, libraries of arm64 unpacked into
# VERBENA_SYSROOT, and QEMU to run the tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER NOTFOUND) # only one test is C++, of headers that don't differ
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VERBENA_SYSROOT)
set(ENV{PKG_CONFIG_LIBDIR} ${VERBENA_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${VERBENA_SYSROOT})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${VERBENA_SYSROOT}/usr/lib/aarch64-linux-gnu)
