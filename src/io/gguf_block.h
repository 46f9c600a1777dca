/* SPDX-License-Identifier: MIT
 *
 * gguf_block.h - element types of .gguf files: numbers as they are, and blocks of quantised numbers, which are decoded to f32.
 */
#ifndef ATTN_IO_GGUF_BLOCK_H
#define ATTN_IO_GGUF_BLOCK_H

#include <attn/attn.h>

typedef struct attn_io_gguf_type {
    const char *name; /* "Q4_1" */
    uint32_t type;
    attn_dtype dtype;                                           /* of the decoded numbers */
    int numbers;                                                /* of a block */
    int bytes;                                                  /* of a block in the file */
    void (*decode)(const unsigned char *block, float *numbers); /* NULL: numbers as they are */
} attn_io_gguf_type;

/* NULL for a type that is not read. */
const attn_io_gguf_type *attn_io_gguf_type_of(uint32_t type);

/* "Q3_K", also of a type that is not read; NULL for an unknown one. */
const char *attn_io_gguf_type_name(uint32_t type);

/* The names of all types that are read. */
extern const char attn_io_gguf_types[];

#endif
