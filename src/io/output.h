/* SPDX-License-Identifier: MIT
 *
 * output.h - a file that appears whole or not at all: written under a temporary name in the folder of its target, then renamed.
 */
#ifndef ATTN_IO_OUTPUT_H
#define ATTN_IO_OUTPUT_H

#include <attn/io.h>

#include "context.h"

typedef struct attn_io_output {
    char *target;               /* context->path with a symbolic link followed */
    attn_unfinished *temporary; /* in the folder of target: the caller's, or `local` */
    attn_unfinished local;
    int descriptor;
} attn_io_output;

/* unfinished: NULL, or where to keep the name of the temporary file.  On failure nothing is left behind and `output` must not be
 * used. */
attn_status attn_io_output_open(const attn_io_context *context, attn_io_output *output, attn_unfinished *unfinished);

attn_status attn_io_output_write(const attn_io_context *context, attn_io_output *output, const void *bytes, size_t size);

/* Closes an open output: if `written` is ATTN_OK, syncs and renames; else removes the temporary file.
 * Returns `written`, or the error of closing. */
attn_status attn_io_output_close(const attn_io_context *context, attn_io_output *output, attn_status written);

#endif
