/* SPDX-License-Identifier: MIT
 *
 * gguf_file.h - writes .gguf files for the tests, right and wrong ones, part by part (src/io/gguf.h has the format).
 */
#ifndef ATTN_GGUF_FILE_H
#define ATTN_GGUF_FILE_H

#include "io_test.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, LIST, U64, I64, F64 }; /* types of metadata */

typedef struct gguf_file {
    unsigned char *bytes; /* the caller frees */
    size_t size;
} gguf_file;

void gguf_put(gguf_file *f, const void *bytes, size_t size);
void gguf_u32(gguf_file *f, uint32_t value);
void gguf_u64(gguf_file *f, uint64_t value);
void gguf_text(gguf_file *f, const char *text);
void gguf_pad(gguf_file *f, size_t alignment);

void gguf_begin(gguf_file *f, uint64_t tensors, uint64_t entries);
/* The key and type of an entry; its value follows. */
void gguf_key(gguf_file *f, const char *key, uint32_t type);
void gguf_entry(gguf_file *f, const char *key, const char *text);
/* ne: sizes as the file has them, the contiguous axis first. */
void gguf_tensor(gguf_file *f, const char *name, uint32_t axes, const uint64_t *ne, uint32_t type, uint64_t offset);

/* A whole file: "tokens" = ["it"] as a list, q [2, 3] of F32 that counts (io_test.h), k [1, 32] of Q8_0, and end [8] of F32. */
gguf_file gguf_sample(void);

#endif
