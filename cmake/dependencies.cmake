# SPDX-License-Identifier: MIT
# The dependencies of the libraries, found once, so that programs that link a static library find their targets.

# Threads: the target to link when building (ATTN_THREADS), and the flag for programs that link libattn.a, by name, so that the
# program's own compiler resolves it (ATTN_THREADS_INSTALLED).
if(NOT ATTN_HOSTED)
  return()
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
set(ATTN_THREADS Threads::Threads)
set(ATTN_THREADS_INSTALLED -pthread)

# attn_need(MODULE OPTION PACKAGE): PkgConfig::MODULE, which OPTION needs; PACKAGE has it on Debian.
macro(attn_need module option package)
  pkg_check_modules(${module} IMPORTED_TARGET ${module})
  if(NOT ${module}_FOUND)
    message(FATAL_ERROR "${option} needs ${module}, which pkg-config does not find: install it (Debian: ${package}), "
                        "or leave this part out with -D${option}=OFF (docs/building.md has all options)")
  endif()
endmacro()

# pkg-config modules: PkgConfig::NAME, with pkg-config's own names.
if(ATTN_BUNDLED)
  include(${CMAKE_CURRENT_LIST_DIR}/bundled.cmake)
  return()
endif()
if(ATTN_IO)
  find_package(PkgConfig REQUIRED)
  attn_need(libcjson ATTN_IO libcjson-dev)
  attn_need(libzip ATTN_IO libzip-dev)
endif()
if(ATTN_CLI)
  attn_need(libpng ATTN_CLI libpng-dev)
endif()
