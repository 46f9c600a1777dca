# SPDX-License-Identifier: MIT
# A toolchain for CMAKE_TOOLCHAIN_FILE: WebAssembly with SIMD128, by clang and lld, with the C library wasi-libc, on one thread
# (Debian: clang lld wasi-libc libclang-rt-dev-wasm32).  ATTN_SYSROOT is where wasi-libc is, if clang does not find it.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
if(NOT CMAKE_C_COMPILER)
  find_program(CMAKE_C_COMPILER NAMES clang clang-14 REQUIRED)
endif()
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_C_FLAGS_INIT -msimd128)
if(ATTN_SYSROOT)
  set(CMAKE_SYSROOT ${ATTN_SYSROOT})
  list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ATTN_SYSROOT)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
