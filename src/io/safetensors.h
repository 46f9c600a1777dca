/* SPDX-License-Identifier: MIT
 *
 * safetensors.h - the .safetensors format (github.com/huggingface/safetensors, README "Format"):
 *
 *      8 bytes      length of the header, little-endian
 *      header       {"__metadata__": {text: text, ...}, name: {"dtype": "F32", "shape": [2, 13], "data_offsets": [0, 104]}, ...}
 *                   then spaces
 *      data         every byte of it belongs to exactly one tensor
 */
#ifndef ATTN_IO_SAFETENSORS_H
#define ATTN_IO_SAFETENSORS_H

#include "format.h"

enum {
    ATTN_IO_LENGTH_BYTES = 8,
    ATTN_IO_HEADER_MAX = 100 * 1000 * 1000 /* the limit of the format's own library */
};

attn_status attn_io_safetensors_read(const attn_io_context *context, const unsigned char *bytes, size_t size,
                                     attn_archive *tensors);

#endif
