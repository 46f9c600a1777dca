/* SPDX-License-Identifier: MIT
 * embedded.c - see embedded.h; cmake/wasm.cmake makes the bytes. */
#include "embedded.h"

#include "testing/text/failure.h"

attn_status embedded_find(embedded_package *package, attn_error *error)
{
#if ATTN_CLI_WASM
    (void)error;
    *package = (embedded_package){embedded_wasm, embedded_wasm_size, (const char *)embedded_script, embedded_script_size};
    return ATTN_OK;
#else
    *package = (embedded_package){0};
    return failure(error, ATTN_ERR_UNSUPPORTED, "this attn was built without WebAssembly; it was missing %s",
                   ATTN_CLI_WASM_MISSING);
#endif
}
