# SPDX-License-Identifier: MIT
# The dependencies of the libraries, found once, so that programs that link a static library find their targets.

# Threads: the target to link when building (ATTN_THREADS), and the flag for programs that link libattn.a, by name, so that the
# program's own compiler resolves it (ATTN_THREADS_INSTALLED).
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
set(ATTN_THREADS Threads::Threads)
set(ATTN_THREADS_INSTALLED -pthread)

# pkg-config modules: PkgConfig::NAME, with pkg-config's own names.
if(ATTN_BUNDLED)
  include(${CMAKE_CURRENT_LIST_DIR}/bundled.cmake)
  return()
endif()
if(ATTN_IO)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(libcjson REQUIRED IMPORTED_TARGET libcjson)
  pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
endif()
if(ATTN_CLI)
  pkg_check_modules(libpng REQUIRED IMPORTED_TARGET libpng)
endif()
