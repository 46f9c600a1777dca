# SPDX-License-Identifier: MIT
# ATTN_WASM: attn.wasm and its JavaScript as bytes in the command, for pages that compute.  It is cross-compiled by a build of its own
# (cmake/wasm32-wasi.cmake) in wasm/ of the build folder.  Sets ATTN_WASM_FILES, the compressed module and the script, or
# ATTN_WASM_MISSING, what is not there.
set(ATTN_WASM AUTO CACHE STRING "Build attn.wasm into the command: AUTO (release builds without tests, if its tools are found), ON or OFF")
set_property(CACHE ATTN_WASM PROPERTY STRINGS AUTO ON OFF)
set(ATTN_WASM_FILES "")
set(ATTN_WASM_MISSING "")
if(NOT ATTN_WASM MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ATTN_WASM is '${ATTN_WASM}'; known: AUTO, ON, OFF")
endif()
if(NOT ATTN_WASM OR (ATTN_WASM STREQUAL "AUTO" AND (NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR ATTN_TESTS OR ATTN_SANITIZE OR CMAKE_CROSSCOMPILING)))
  set(ATTN_WASM_MISSING "the option ATTN_WASM=ON of CMake")
  return()
endif()

find_program(ATTN_WASM_COMPILER NAMES clang clang-14 DOC "clang, for attn.wasm")
find_program(ATTN_GZIP gzip)
mark_as_advanced(ATTN_WASM_COMPILER ATTN_GZIP)
# One program tells whether the linker, the C library and the compiler's own library are there.
set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/attn_wasm_probe)
set(status 1)
if(ATTN_WASM_COMPILER AND ATTN_GZIP)
  file(WRITE ${probe}.c "#include <math.h>\n#include <wasm_simd128.h>\nint main(int argc, char **argv) { (void)argv; return exp(argc) > 3; }\n")
  execute_process(COMMAND ${ATTN_WASM_COMPILER} --target=wasm32-wasi -msimd128 ${probe}.c -lm -o ${probe}.wasm
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
endif()
if(NOT status EQUAL 0)
  set(ATTN_WASM_MISSING "clang with lld, wasi-libc and its runtime for wasm32, and gzip (Debian: clang lld wasi-libc libclang-rt-dev-wasm32)")
  if(NOT ATTN_WASM STREQUAL "AUTO")
    message(FATAL_ERROR "ATTN_WASM needs ${ATTN_WASM_MISSING}; or leave this part out with -DATTN_WASM=OFF (docs/building.md has all options)")
  endif()
  return()
endif()

include(ExternalProject)
set(package ${PROJECT_BINARY_DIR}/wasm/javascript)
ExternalProject_Add(attn_wasm_build
  SOURCE_DIR ${PROJECT_SOURCE_DIR} BINARY_DIR ${PROJECT_BINARY_DIR}/wasm PREFIX ${PROJECT_BINARY_DIR}/wasm-project
  CMAKE_ARGS -DCMAKE_TOOLCHAIN_FILE=${PROJECT_SOURCE_DIR}/cmake/wasm32-wasi.cmake -DCMAKE_C_COMPILER=${ATTN_WASM_COMPILER}
             -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-Os\ -DNDEBUG -DATTN_WERROR=${ATTN_WERROR}
             -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER}
  BUILD_COMMAND ${CMAKE_COMMAND} --build <BINARY_DIR> --target attn_wasm
  BUILD_ALWAYS ON BUILD_BYPRODUCTS ${package}/attn.wasm INSTALL_COMMAND "")
add_custom_command(
  OUTPUT ${PROJECT_BINARY_DIR}/attn.wasm.gz
  COMMAND ${ATTN_GZIP} -9nc ${package}/attn.wasm > ${PROJECT_BINARY_DIR}/attn.wasm.gz
  DEPENDS attn_wasm_build ${package}/attn.wasm
  VERBATIM)
set(ATTN_WASM_FILES ${PROJECT_BINARY_DIR}/attn.wasm.gz ${PROJECT_SOURCE_DIR}/javascript/index.js)
