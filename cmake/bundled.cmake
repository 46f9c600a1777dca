# SPDX-License-Identifier: MIT
# ATTN_BUNDLED: the dependencies built from pinned releases and linked statically, so that a wheel needs none of the system.  Each is
# downloaded while building, or taken from the folder ATTN_SOURCES: its archive under the name of the release, which must have the
# checksum below, or its unpacked sources in a folder of the dependency's name, which are used as they are.
include(ExternalProject)
if(POLICY CMP0135) # (not in 3.22)
  cmake_policy(SET CMP0135 NEW)
endif()
set(ATTN_SOURCES "" CACHE PATH "A folder with the sources of the bundled dependencies, in place of the network")
set(bundled_prefix ${PROJECT_BINARY_DIR}/bundled)
file(MAKE_DIRECTORY ${bundled_prefix}/include/cjson) # folders of imported targets must exist from the start
set(ATTN_BUNDLED_SOURCES "")

# Quoted, since folders may have blanks; and in a file, since the scripts of ExternalProject do not hand quotes on.
set(bundled_flags "-fvisibility=hidden -ffunction-sections -fdata-sections \"-ffile-prefix-map=${bundled_prefix}=.\"")
if(ATTN_SOURCES)
  string(APPEND bundled_flags " \"-ffile-prefix-map=${ATTN_SOURCES}=.\"")
endif()
if(ATTN_HARDEN)
  string(APPEND bundled_flags " -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
endif()
file(WRITE ${bundled_prefix}/flags.cmake "set(CMAKE_C_FLAGS [==[${bundled_flags}]==] CACHE STRING \"\")\n")

add_link_options(LINKER:--gc-sections) # what nothing calls

# attn_bundle(NAME VERSION LIBRARY MODULE SHA256 sum URLS url... [NEEDS module...] [OPTIONS option...]): PkgConfig::MODULE becomes
# lib/LIBRARY of the dependency NAME.
function(attn_bundle name version library module)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "SHA256" "URLS;NEEDS;OPTIONS")
  list(GET arg_URLS 0 url)
  get_filename_component(archive ${url} NAME)
  set(source ${bundled_prefix}/${name}/source)
  if(ATTN_SOURCES AND EXISTS ${ATTN_SOURCES}/${name}/CMakeLists.txt)
    set(source ${ATTN_SOURCES}/${name})
    set(where DOWNLOAD_COMMAND "")
    message(STATUS "${name}: ${source}, without a checksum")
  else()
    if(ATTN_SOURCES)
      set(arg_URLS ${ATTN_SOURCES}/${archive})
    endif()
    set(where URL ${arg_URLS} URL_HASH SHA256=${arg_SHA256} DOWNLOAD_NO_PROGRESS ON)
  endif()
  set(file ${bundled_prefix}/lib/${library})
  ExternalProject_Add(bundled_${name}
    ${where}
    PREFIX ${bundled_prefix}/${name} SOURCE_DIR ${source} BINARY_DIR ${bundled_prefix}/${name}/build
    INSTALL_DIR ${bundled_prefix}
    CMAKE_ARGS
      -C${bundled_prefix}/flags.cmake -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-Os\ -DNDEBUG
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
      -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER} -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE}
      -DCMAKE_INSTALL_PREFIX=${bundled_prefix} -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF
      -DZLIB_LIBRARY=${bundled_prefix}/lib/libz.a -DZLIB_INCLUDE_DIR=${bundled_prefix}/include ${arg_OPTIONS}
    BUILD_BYPRODUCTS ${file}
    LOG_DOWNLOAD ON LOG_CONFIGURE ON LOG_BUILD ON LOG_INSTALL ON LOG_OUTPUT_ON_FAILURE ON)
  add_library(PkgConfig::${module} STATIC IMPORTED GLOBAL)
  set_target_properties(PkgConfig::${module} PROPERTIES IMPORTED_LOCATION ${file} INTERFACE_INCLUDE_DIRECTORIES ${bundled_prefix}/include)
  foreach(need ${arg_NEEDS})
    add_dependencies(bundled_${name} bundled_${need})
    target_link_libraries(PkgConfig::${module} INTERFACE PkgConfig::${need})
  endforeach()
  add_dependencies(PkgConfig::${module} bundled_${name})
  list(APPEND ATTN_BUNDLED_SOURCES ${name}=${source})
  set(ATTN_BUNDLED_SOURCES ${ATTN_BUNDLED_SOURCES} PARENT_SCOPE)
  # For the SBOM (release.cmake).
  set(${module}_VERSION ${version} PARENT_SCOPE)
  set(${module}_LIBRARIES ${name} PARENT_SCOPE)
endfunction()

attn_bundle(zlib 1.3.2 libz.a zlib
  SHA256 bb329a0a2cd0274d05519d61c667c062e06990d72e125ee2dfa8de64f0119d16
  URLS https://zlib.net/fossils/zlib-1.3.2.tar.gz https://github.com/madler/zlib/releases/download/v1.3.2/zlib-1.3.2.tar.gz
  OPTIONS -DZLIB_BUILD_SHARED=OFF -DZLIB_BUILD_TESTING=OFF)
attn_bundle(cjson 1.7.19 libcjson.a libcjson
  SHA256 7fa616e3046edfa7a28a32d5f9eacfd23f92900fe1f8ccd988c1662f30454562
  URLS https://github.com/DaveGamble/cJSON/archive/refs/tags/v1.7.19.tar.gz
  OPTIONS -DENABLE_CJSON_TEST=OFF -DENABLE_CUSTOM_COMPILER_FLAGS=OFF -DENABLE_LOCALES=OFF -DENABLE_PUBLIC_SYMBOLS=OFF)
# (Only what .npz files use: no cryptography, no other compression; arc4random would demand glibc 2.36.)
attn_bundle(libzip 1.11.4 libzip.a libzip
  SHA256 8a247f57d1e3e6f6d11413b12a6f28a9d388de110adc0ec608d893180ed7097b
  URLS https://libzip.org/download/libzip-1.11.4.tar.xz https://github.com/nih-at/libzip/releases/download/v1.11.4/libzip-1.11.4.tar.xz
  NEEDS zlib
  OPTIONS -DENABLE_COMMONCRYPTO=OFF -DENABLE_GNUTLS=OFF -DENABLE_MBEDTLS=OFF -DENABLE_OPENSSL=OFF -DENABLE_BZIP2=OFF -DENABLE_LZMA=OFF
          -DENABLE_ZSTD=OFF -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF -DBUILD_OSSFUZZ=OFF -DHAVE_ARC4RANDOM=OFF)
attn_bundle(libpng 1.6.59 libpng16.a libpng
  SHA256 d80dd2a38a37f803cb9b6ac7b14bd6e74ddc3b654780a8380bdf93523fdb4389
  URLS https://download.sourceforge.net/libpng/libpng-1.6.59.tar.xz
  NEEDS zlib
  OPTIONS -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_TOOLS=OFF -DPNG_FRAMEWORK=OFF)
