/* SPDX-License-Identifier: MIT
 *
 * npz.h - the .npz format: a zip archive whose members are .npy files, NAME.npy for the array NAME (numpy.savez).
 *
 * NumPy has no place for metadata in it.  Here it is one more array, so that np.load and code that loops over the arrays still
 * work: `__metadata__`, the UTF-8 bytes of a JSON object of strings.   json.loads(bytes(file["__metadata__"]))
 */
#ifndef ATTN_IO_NPZ_H
#define ATTN_IO_NPZ_H

#include <zip.h>

#include "format.h"

#define ATTN_IO_NPZ_SUFFIX ".npy"

/* Fails with `status` and the message `what: libzip's error`; out of memory and duplicate names get messages of their own. */
attn_status attn_io_npz_fail(const attn_io_context *context, attn_status status, const char *what, zip_error_t *error);

attn_status attn_io_npz_read(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors);

#endif
