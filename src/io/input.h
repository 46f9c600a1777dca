/* SPDX-License-Identifier: MIT
 *
 * input.h - the bytes of a file: read to its end, or mapped.
 */
#ifndef ATTN_IO_INPUT_H
#define ATTN_IO_INPUT_H

#include "context.h"

typedef struct attn_io_input {
    const unsigned char *bytes; /* NULL if size is 0 */
    size_t size;
    bool mapped;
} attn_io_input;

/* map: maps the file unless it is a pipe.  ATTN_ERR_IO also if the file changed while it was being read.  On failure `input` is
 * empty and need not be closed. */
attn_status attn_io_input_open(const attn_io_context *context, bool map, attn_io_input *input);

void attn_io_input_close(attn_io_input *input);

#endif
