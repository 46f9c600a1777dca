/* SPDX-License-Identifier: MIT
 *
 * embedded.h - libattn for browsers, built into the command: for pages that compute.  One that has the module in base64 loads it by
 *
 *      const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
 *      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
 *      const attn = await load(new Response(stream));        // load is a function of the script, an ES module
 */
#ifndef ATTN_CLI_BASE_EMBEDDED_H
#define ATTN_CLI_BASE_EMBEDDED_H

#include <stddef.h>

#include "attn/types.h"

/* Only if ATTN_CLI_WASM is 1. */
extern const unsigned char embedded_wasm[], embedded_script[];
extern const size_t embedded_wasm_size, embedded_script_size;

typedef struct embedded_package {
    const unsigned char *wasm; /* attn.wasm, compressed by gzip */
    size_t wasm_bytes;
    const char *script; /* javascript/index.js, an ES module; not terminated */
    size_t script_bytes;
} embedded_package;

/* ATTN_ERR_UNSUPPORTED, with what was missing, if the command was built without it. */
attn_status embedded_find(embedded_package *package, attn_error *error);

#endif
