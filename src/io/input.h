/* SPDX-License-Identifier: MIT
 *
 * input.h - the bytes of a file: mapped, or read to the end where it is a pipe.
 */
#ifndef ATTN_IO_INPUT_H
#define ATTN_IO_INPUT_H

#include "context.h"

typedef struct attn_io_input {
    const unsigned char *bytes; /* NULL if size is 0 */
    size_t size;
    bool mapped;
} attn_io_input;

/* On failure `input` is empty and need not be closed. */
attn_status attn_io_input_open(const attn_io_context *context, attn_io_input *input);

void attn_io_input_close(attn_io_input *input);

#endif
