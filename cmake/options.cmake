# SPDX-License-Identifier: MIT
# Compile options that every target of the project shares: link attn_options (never installed).
add_library(attn_options INTERFACE)
target_compile_options(attn_options INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wdate-time -fno-math-errno)
# Only an explicit fma in the code fuses a product with a sum, so that bits do not depend on compiler and CPU.
target_compile_options(attn_options INTERFACE -ffp-contract=off)
if(ATTN_WERROR)
  target_compile_options(attn_options INTERFACE -Werror)
endif()
if(ATTN_SANITIZE)
  target_compile_options(attn_options INTERFACE -fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(attn_options INTERFACE -fsanitize=${ATTN_SANITIZE})
endif()
# For what starts no thread and would take most of the time under TSan, which need not watch it.  Linked after attn_options, whose
# options come first then.
add_library(attn_one_thread INTERFACE)
if(ATTN_SANITIZE STREQUAL "thread")
  target_compile_options(attn_one_thread INTERFACE -fno-sanitize=thread)
endif()
# The memory sanitizer sees neither the writes of assembly (the products of AVX2) nor what masked loads and stores leave unchanged, so
# it gets the kernels in plain C: they are the same *.inc.c, and everything around them is the same.  valgrind, which sees
# instructions, covers the others.  (The preset msan also tracks where memory was allocated, which doubles the time to compile.)
if(ATTN_SANITIZE MATCHES "memory")
  target_compile_definitions(attn_options INTERFACE ATTN_SCALAR_ONLY)
endif()

if(ATTN_COVERAGE)
  target_link_options(attn_options INTERFACE --coverage)
endif()

# The same bytes wherever it is built: no build folders in debugging information or __FILE__.  (-ffile-prefix-map would move the files
# of gcov too; for debugging, and in reports of sanitizers, full names are more useful.)
include(CheckCCompilerFlag)
foreach(flag -fdebug-prefix-map -fmacro-prefix-map)
  string(MAKE_C_IDENTIFIER "ATTN_HAVE${flag}" have)
  check_c_compiler_flag(${flag}=/a=. ${have})
  if(${have} AND NOT ATTN_SANITIZE)
    foreach(folder ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
      target_compile_options(attn_options INTERFACE "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:${flag}=${folder}=.>")
    endforeach()
  endif()
endforeach()

# Hardening, for everything that is installed: link attn_harden.  (It is separate from attn_options so that another project's program
# that links the static library from the build tree keeps its own flags.)
include(CheckLinkerFlag)
add_library(attn_harden INTERFACE)
if(ATTN_HARDEN)
  foreach(flag -fstack-protector-strong -fcf-protection=full)
    string(MAKE_C_IDENTIFIER "ATTN_HAVE${flag}" have)
    check_c_compiler_flag(${flag} ${have})
    if(${have})
      target_compile_options(attn_harden INTERFACE ${flag})
    endif()
  endforeach()
  if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    # (Some systems define it already; without optimization it does nothing but warn.)
    target_compile_options(attn_harden INTERFACE $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=3>)
  endif()
  check_linker_flag(C "LINKER:-z,relro,-z,now" ATTN_HAVE_RELRO)
  if(ATTN_HAVE_RELRO)
    target_link_options(attn_harden INTERFACE LINKER:-z,relro,-z,now)
  endif()
endif()
