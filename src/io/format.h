/* SPDX-License-Identifier: MIT
 *
 * format.h - a file format: a row of the table in format.c, with its functions.
 */
#ifndef ATTN_IO_FORMAT_H
#define ATTN_IO_FORMAT_H

#include "container.h"
#include "context.h"
#include "output.h"

typedef struct attn_io_format {
    const char *extension;
    /* Whether a file begins like this format; no other format's files do. */
    bool (*recognize)(const unsigned char *bytes, size_t size);
    /* Appends the tensors in `bytes`, which outlive the container.  The caller sorts, and destroys the container on failure. */
    attn_status (*read)(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors);
    /* Rejects what the format cannot hold, before a file is created.  NULL, as write: the format is only read. */
    attn_status (*check)(const attn_io_context *context, const attn_archive *tensors);
    attn_status (*write)(const attn_io_context *context, const attn_archive *tensors, attn_io_output *output);
} attn_io_format;

extern const attn_io_format attn_io_safetensors;
extern const attn_io_format attn_io_npz;
extern const attn_io_format attn_io_npy;
extern const attn_io_format attn_io_gguf;

#endif
