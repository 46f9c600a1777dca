/* SPDX-License-Identifier: MIT
 *
 * gguf.h - the .gguf format (github.com/ggml-org/ggml, docs/gguf.md), which is read only:
 *
 *      4 bytes      G G U F
 *      4 bytes      version: 2 or 3
 *      8 bytes      number of tensors
 *      8 bytes      number of metadata entries
 *      metadata     of each entry: key, type (4 bytes), value
 *      tensors      of each: name, number of axes (4 bytes), sizes (8 bytes each, the contiguous axis first), type (4 bytes),
 * offset in the data (8 bytes) padding      to a multiple of the alignment: 32, or the metadata entry general.alignment data of one
 * tensor after the other, each padded to the alignment
 *
 * A text is its length (8 bytes) and its bytes; a list is the type of its items (4 bytes), their number (8 bytes) and the items.
 * All numbers are little-endian.
 */
#ifndef ATTN_IO_GGUF_H
#define ATTN_IO_GGUF_H

#include "format.h"

/* A place in the bytes of a file. */
typedef struct attn_io_cursor {
    const unsigned char *bytes;
    size_t size;
    size_t at;
} attn_io_cursor;

/* Copies the next `size` bytes to `number` and moves past them; fails with "the file ends inside WHAT". */
attn_status attn_io_take(const attn_io_context *context, attn_io_cursor *cursor, const char *what, void *number, size_t size);

/* *text = the next text, NUL-terminated, which the caller frees; NULL on failure.  Rejects NUL and what is not UTF-8. */
attn_status attn_io_take_text(const attn_io_context *context, attn_io_cursor *cursor, const char *what, char **text);

/*
 * Appends a metadata entry whose value begins at the cursor, as text: a number in decimal (the shortest that gives the same number
 * back), true or false, a text as it is, a list as JSON.  *alignment is set if this is the entry general.alignment.
 */
attn_status attn_io_gguf_read_value(const attn_io_context *context, attn_io_cursor *cursor, const char *key, attn_archive *tensors,
                                    uint64_t *alignment);

#endif
