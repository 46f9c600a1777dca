/* SPDX-License-Identifier: MIT
 *
 * npy.h - the .npy format (numpy.lib.format), which is also that of the members of an .npz:
 *
 *      6 bytes      \x93 N U M P Y
 *      2 bytes      version: 1.0, 2.0 (a longer length) or 3.0 (UTF-8)
 *      2 bytes      length of the header, little-endian; 4 bytes from version 2.0 on
 *      header       {'descr': '<f4', 'fortran_order': False, 'shape': (2, 13), } then blanks and a newline
 *      data
 */
#ifndef ATTN_IO_NPY_H
#define ATTN_IO_NPY_H

#include "format.h"

typedef struct attn_io_npy_header {
    attn_dtype dtype;
    bool swap;          /* the bytes of each element are in the other order */
    bool fortran_order; /* the first axis is the contiguous one */
    int rank;
    int64_t shape[ATTN_MAX_RANK];
} attn_io_npy_header;

/* Parses the text of a header: a Python literal of a fixed form, parsed by a grammar and never evaluated. */
attn_status attn_io_npy_parse_header(const attn_io_context *context, const char *text, size_t length, attn_io_npy_header *header);

enum { ATTN_IO_NPY_PREAMBLE = 384 };

/* Everything before the data, in version 1.0 as NumPy writes it; returns its size, a multiple of 64.  Not for bf16. */
size_t attn_io_npy_print_preamble(char buffer[ATTN_IO_NPY_PREAMBLE], const attn_archive_tensor *tensor);

/* Appends the array in `bytes` as a tensor of this name.  `owned` is NULL or the allocation that starts at `bytes`; ownership
 * passes even on failure. */
attn_status attn_io_npy_append(const attn_io_context *context, const char *name, const unsigned char *bytes, size_t size,
                               void *owned, attn_archive *tensors);

/* ATTN_ERR_UNSUPPORTED for a tensor of bf16. */
attn_status attn_io_npy_check_dtype(const attn_io_context *context, const attn_archive_tensor *tensor);

#endif
