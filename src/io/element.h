/* SPDX-License-Identifier: MIT
 *
 * element.h - element types: their names in the file formats, and the bytes of a shape.
 */
#ifndef ATTN_IO_ELEMENT_H
#define ATTN_IO_ELEMENT_H

#include <attn/attn.h>
#include <stdbool.h>

/* Files hold little-endian numbers and are mapped as they are. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libattn_io maps little-endian files into memory and so needs a little-endian machine"
#endif

/* "BF16"; NULL for an invalid dtype. */
const char *attn_io_safetensors_name(attn_dtype dtype);
/* ATTN_DTYPE_DEFAULT for an unknown name. */
attn_dtype attn_io_safetensors_dtype(const char *name);

/* "<f4", "|u1"; NULL for bf16, which NumPy does not have, and for an invalid dtype. */
const char *attn_io_npy_name(attn_dtype dtype);
/* Accepts either byte order; *swap: bytes must be swapped.  ATTN_DTYPE_DEFAULT for an unknown name. */
attn_dtype attn_io_npy_dtype(const char *name, bool *swap);

/* The bytes of a dense tensor; false if a size is negative or the product overflows int64, zeros not counted (so that strides
 * never overflow either). */
bool attn_io_shape_bytes(attn_dtype dtype, int rank, const int64_t *shape, size_t *bytes);

#endif
