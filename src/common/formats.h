/* SPDX-License-Identifier: MIT
 * formats.h - the formats of keys and values (attn/types.h): what kind each type is, and the elements of a row. */
#ifndef ATTN_COMMON_FORMATS_H
#define ATTN_COMMON_FORMATS_H

#include "attn/types.h"

static inline int attn_is_dtype(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_Q4_1C; }
static inline int attn_is_f8(attn_dtype dtype) { return dtype == ATTN_F8_E4M3 || dtype == ATTN_F8_E5M2; }
static inline int attn_is_blocks(attn_dtype dtype) { return dtype >= ATTN_Q8_0 && dtype <= ATTN_Q4_1C; }
/* Blocks of several keys, not of several channels: rows cannot be read or written one by one. */
static inline int attn_is_by_channel(attn_dtype dtype) { return dtype == ATTN_Q4_1C; }
/* The formats that only keys and values have. */
static inline int attn_is_quantised(attn_dtype dtype) { return dtype == ATTN_I8 || attn_is_f8(dtype) || attn_is_blocks(dtype); }
/* Elements of a row of so many channels. */
static inline int64_t attn_row_elements(attn_dtype dtype, int64_t dim) { return attn_is_blocks(dtype) ? dim / ATTN_BLOCK : dim; }

#endif
