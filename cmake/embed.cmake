# SPDX-License-Identifier: MIT
# cmake -DNAMES=a;b -DFILES=path;path -DHEADER=x.h -DOUTPUT=x.c -P embed.cmake: the files as C arrays, NAME and NAME_size.
set(code "/* Made by cmake/embed.cmake. */\n#include \"${HEADER}\"\n")
foreach(name path IN ZIP_LISTS NAMES FILES)
  file(READ ${path} bytes HEX)
  file(SIZE ${path} size)
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND code "const unsigned char ${name}[] = {\n${bytes}};\nconst size_t ${name}_size = ${size};\n")
endforeach()
file(WRITE ${OUTPUT} "${code}")
