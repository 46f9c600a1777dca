/* SPDX-License-Identifier: MIT
 *
 * gguf_file.c - see gguf_file.h. */
#include "gguf_file.h"

void gguf_put(gguf_file *f, const void *bytes, size_t size)
{
    f->bytes = realloc(f->bytes, f->size + size + 1);
    if (!f->bytes) abort();
    if (size) memcpy(f->bytes + f->size, bytes, size);
    f->size += size;
}

void gguf_u32(gguf_file *f, uint32_t value) { gguf_put(f, &value, sizeof value); }

void gguf_u64(gguf_file *f, uint64_t value) { gguf_put(f, &value, sizeof value); }

void gguf_text(gguf_file *f, const char *text)
{
    gguf_u64(f, strlen(text));
    gguf_put(f, text, strlen(text));
}

void gguf_pad(gguf_file *f, size_t alignment)
{
    while (f->size % alignment) gguf_put(f, "", 1);
}

void gguf_begin(gguf_file *f, uint64_t tensors, uint64_t entries)
{
    *f = (gguf_file){0};
    gguf_put(f, "GGUF\3\0\0", 8);
    gguf_u64(f, tensors);
    gguf_u64(f, entries);
}

void gguf_key(gguf_file *f, const char *key, uint32_t type)
{
    gguf_text(f, key);
    gguf_u32(f, type);
}

void gguf_entry(gguf_file *f, const char *key, const char *text)
{
    gguf_key(f, key, TEXT);
    gguf_text(f, text);
}

void gguf_tensor(gguf_file *f, const char *name, uint32_t axes, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    gguf_text(f, name);
    gguf_u32(f, axes);
    gguf_put(f, ne, axes * sizeof *ne);
    gguf_u32(f, type);
    gguf_u64(f, offset);
}

gguf_file gguf_sample(void)
{
    static const float q[6] = {0, 1, 2, 3, 4, 5}, end[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    unsigned char k[34] = {0x00, 0x38}; /* 0.5 */
    gguf_file f;
    for (int i = 0; i < 32; i++) k[2 + i] = (unsigned char)(i - 16);
    gguf_begin(&f, 3, 1);
    gguf_key(&f, "tokens", LIST);
    gguf_u32(&f, TEXT);
    gguf_u64(&f, 1);
    gguf_text(&f, "it");
    gguf_tensor(&f, "q", 2, (uint64_t[]){3, 2}, 0, 0);
    gguf_tensor(&f, "k", 2, (uint64_t[]){32, 1}, 8, 32);
    gguf_tensor(&f, "end", 1, (uint64_t[]){8}, 0, 96);
    gguf_pad(&f, 32);
    gguf_put(&f, q, sizeof q);
    gguf_pad(&f, 32);
    gguf_put(&f, k, sizeof k);
    gguf_pad(&f, 32);
    gguf_put(&f, end, sizeof end);
    return f;
}
