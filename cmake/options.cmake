# SPDX-License-Identifier: MIT
# Compile options that every target of the project shares: link attn_options (never installed).
add_library(attn_options INTERFACE)
target_compile_options(attn_options INTERFACE -Wall -Wextra -Wconversion -Wshadow -fno-math-errno)
if(ATTN_WERROR)
  target_compile_options(attn_options INTERFACE -Werror)
endif()
if(ATTN_SANITIZE)
  target_compile_options(attn_options INTERFACE -fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(attn_options INTERFACE -fsanitize=${ATTN_SANITIZE})
endif()
