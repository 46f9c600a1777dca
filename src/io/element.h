/* SPDX-License-Identifier: MIT
 *
 * element.h - element types: what the file formats call them, and how many bytes a shape of them takes.
 */
#ifndef ATTN_IO_ELEMENT_H
#define ATTN_IO_ELEMENT_H

#include <attn/attn.h>
#include <stdbool.h>

/* Files hold little-endian numbers and are mapped as they are. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libattn_io maps little-endian files into memory and so needs a little-endian machine"
#endif

/* "BF16"; NULL for what is no type. */
const char *attn_io_safetensors_name(attn_dtype dtype);
/* ATTN_DTYPE_DEFAULT for an unknown name. */
attn_dtype attn_io_safetensors_dtype(const char *name);

/* "<f4", "|u1"; NULL for bf16, which NumPy does not have, and for what is no type. */
const char *attn_io_npy_name(attn_dtype dtype);
/* From any byte order; *swap says whether its bytes are in the other one.  ATTN_DTYPE_DEFAULT for an unknown name. */
attn_dtype attn_io_npy_dtype(const char *name, bool *swap);

/* The bytes of a dense tensor; false where a size is negative or where the product overflows int64, zeros not counted (so that
 * strides never overflow either). */
bool attn_io_shape_bytes(attn_dtype dtype, int rank, const int64_t *shape, size_t *bytes);

#endif
