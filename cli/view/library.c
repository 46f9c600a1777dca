/* SPDX-License-Identifier: MIT
 *
 * library.c - the library in the page. */
#include "library.h"

#include "encode.h"

static void write_bytes(text_buffer *out, const char *name, const unsigned char *bytes, size_t count)
{
    view_base64 stream = {.out = out};
    text_print(out, "<script type=\"text/plain\" id=\"attn-%s\" data-bytes=\"%zu\">", name, count);
    for (size_t k = 0; k < count; k++) view_base64_u8(&stream, bytes[k]);
    view_base64_end(&stream);
    text_string(out, "</script>\n");
}

void view_write_library(text_buffer *out, const embedded_package *package)
{
    write_bytes(out, "library", (const unsigned char *)package->script, package->script_bytes);
    write_bytes(out, "wasm", package->wasm, package->wasm_bytes);
}
