/* SPDX-License-Identifier: MIT
 *
 * library.h - the library in the page, for `attn view --live`: <script type="text/plain" id="attn-wasm"> of attn.wasm, compressed
 * by gzip, and "attn-library" of its script, both in base64; data-bytes says how many bytes count. */
#ifndef ATTN_CLI_VIEW_LIBRARY_H
#define ATTN_CLI_VIEW_LIBRARY_H

#include "cli/base/embedded.h"
#include "cli/base/text_buffer.h"

/* What the page's policy must allow besides: the end of its list of scripts. */
#define VIEW_LIBRARY_POLICY " 'wasm-unsafe-eval'; worker-src blob:"

void view_write_library(text_buffer *out, const embedded_package *package);

#endif
