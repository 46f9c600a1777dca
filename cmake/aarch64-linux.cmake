# SPDX-License-Identifier: MIT
# A toolchain for CMAKE_TOOLCHAIN_FILE: Linux on AArch64, cross-compiled by Debian's cross compiler (or by clang, with
# -DCMAKE_C_COMPILER=clang), with headers and libraries in ATTN_SYSROOT, and tests run by qemu-aarch64.  script/arm fills that folder.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_SYSROOT ${ATTN_SYSROOT})
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ATTN_SYSROOT)
if(NOT CMAKE_C_COMPILER)
  set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
endif()
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu) # for clang
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${ATTN_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${ATTN_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${ATTN_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${ATTN_SYSROOT}/usr/share/pkgconfig)
