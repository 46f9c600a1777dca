# SPDX-License-Identifier: MIT
# What the libraries are built on, found once, so that whoever links a static library finds the targets behind it.

# Threads of our own: what to link to build with them (ATTN_THREADS), and what a program that links libattn.a needs, by name, so
# that the program's own compiler finds it (ATTN_THREADS_INSTALLED).
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
set(ATTN_THREADS Threads::Threads)
set(ATTN_THREADS_INSTALLED -pthread)

# Modules of pkg-config: PkgConfig::NAME, by the name that pkg-config knows.
if(ATTN_IO)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(libcjson REQUIRED IMPORTED_TARGET libcjson)
  pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
endif()
if(ATTN_CLI)
  pkg_check_modules(libpng REQUIRED IMPORTED_TARGET libpng)
endif()
