/* SPDX-License-Identifier: MIT
 *
 * element.c - the table of element types.
 */
#include "element.h"

#include <string.h>

static const struct {
    attn_dtype dtype;
    const char *safetensors;
    const char *npy;
} elements[] = {
    {ATTN_F64, "F64", "<f8"},   {ATTN_F32, "F32", "<f4"}, {ATTN_F16, "F16", "<f2"}, {ATTN_BF16, "BF16", NULL},
    {ATTN_I64, "I64", "<i8"},   {ATTN_I32, "I32", "<i4"}, {ATTN_I16, "I16", "<i2"}, {ATTN_I8, "I8", "|i1"},
    {ATTN_U64, "U64", "<u8"},   {ATTN_U32, "U32", "<u4"}, {ATTN_U16, "U16", "<u2"}, {ATTN_U8, "U8", "|u1"},
    {ATTN_BOOL, "BOOL", "|b1"},
};

enum { ELEMENTS = sizeof elements / sizeof elements[0] };

const char *attn_io_safetensors_name(attn_dtype dtype)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (elements[i].dtype == dtype) return elements[i].safetensors;
    return NULL;
}

attn_dtype attn_io_safetensors_dtype(const char *name)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (!strcmp(elements[i].safetensors, name)) return elements[i].dtype;
    return ATTN_DTYPE_DEFAULT;
}

const char *attn_io_npy_name(attn_dtype dtype)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (elements[i].dtype == dtype) return elements[i].npy;
    return NULL;
}

attn_dtype attn_io_npy_dtype(const char *name, bool *swap)
{
    *swap = false;
    if (!name[0] || !strchr("<>|", name[0])) return ATTN_DTYPE_DEFAULT;
    for (int i = 0; i < ELEMENTS; i++) {
        if (!elements[i].npy || strcmp(elements[i].npy + 1, name + 1)) continue;
        bool one_byte = elements[i].npy[0] == '|';
        if (!one_byte && name[0] == '|') return ATTN_DTYPE_DEFAULT;
        *swap = !one_byte && name[0] == '>';
        return elements[i].dtype;
    }
    return ATTN_DTYPE_DEFAULT;
}

bool attn_io_shape_bytes(attn_dtype dtype, int rank, const int64_t *shape, size_t *bytes)
{
    int64_t product = (int64_t)attn_dtype_size(dtype);
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) return false;
        if (shape[i] == 0) empty = true;
        else if (shape[i] > INT64_MAX / product) return false;
        else product *= shape[i];
    }
    if ((uint64_t)product > SIZE_MAX) return false;
    *bytes = empty ? 0 : (size_t)product;
    return true;
}
