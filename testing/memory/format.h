/* SPDX-License-Identifier: MIT
 * format.h - types of 8 and 4 bits that keys and values may have, by their definitions in ref/. */
#ifndef ATTN_TESTING_MEMORY_FORMAT_H
#define ATTN_TESTING_MEMORY_FORMAT_H

#include "attn/attn.h"
#include "attn_ref.h"

int format_is_any(attn_dtype dtype); /* i8, f8 or blocks */
int format_is_f8(attn_dtype dtype);
int format_is_blocks(attn_dtype dtype);
int64_t format_elements(attn_dtype dtype, int64_t dim); /* of a row */
/* Where q4_1c has channel c of all keys of a group: the block of a row of the group, *key. */
int64_t format_channel(int64_t dim, int64_t c, int64_t *key);
ref_format format_of(attn_dtype dtype); /* f8 or blocks */

/* An f8, or a channel of a block (q4_1c: a key). */
double format_get(const void *element, attn_dtype dtype, int64_t channel);
/* The nearest f8; a block of arbitrary steps that all depend on x, NaN and infinite if x is. */
void format_put(void *element, attn_dtype dtype, double x);
/* The block of REF_BLOCK numbers, quantised by ref/. */
void format_put_block(void *block, attn_dtype dtype, const double *x);
/* The scale of a row of i8 or f8 whose largest number has this size: that number becomes the largest of the type. */
double format_scale(attn_dtype dtype, double most);

#endif
