# SPDX-License-Identifier: MIT
# What the libraries are built on, found once, so that whoever links a static library finds the targets behind it.
if(ATTN_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS C)
endif()
if(ATTN_IO)
  find_package(Threads REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(cjson REQUIRED IMPORTED_TARGET libcjson)
  pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
endif()
if(ATTN_LAYERS)
  # OpenBLAS, BLIS, or whatever the system calls its BLAS: it must have the C interface, cblas.h.
  pkg_search_module(cblas REQUIRED IMPORTED_TARGET openblas blis cblas blas)
endif()
