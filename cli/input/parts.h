/* SPDX-License-Identifier: MIT
 *
 * parts.h - functions shared by input.c and its parts; private to this folder. */
#ifndef ATTN_CLI_INPUT_PARTS_H
#define ATTN_CLI_INPUT_PARTS_H

#include "share.h"

/* Puts data of this type, or of the default one (0), into the slot of a tensor; input_set_as: the file's tensor, converted. */
void input_set(attention_input *input, int t, const void *data, attn_dtype dtype);
void input_set_as(attention_input *input, int t, attn_dtype dtype);
/* Memory that input_free frees. */
void *input_alloc(attention_input *input, int64_t count, size_t size);

/* "tensor 'k' [..] does not fit 'q' [..]: " and the reason; ATTN_ERR_SHAPE. */
attn_status input_mismatch(const input_tensor *t, const input_tensor *other, attn_error *error, const char *format, int64_t a,
                           int64_t b);
attn_status input_check_type(const input_tensor *t, int fits, const char *expected, attn_error *error);
attn_status input_check_float(const input_tensor *t, attn_error *error);

/* ATTN_OK for floats of the shape `required`. */
attn_status input_check_shape(const input_tensor *t, int rank, const int64_t *required, attn_error *error);
/* f64, or f32 for all others. */
attn_dtype input_compute_dtype(const attention_input *input);

/* The data of a tensor in this type: a copy if it is stored in another. */
const void *input_convert(attention_input *input, const attn_archive_tensor *t, attn_dtype dtype);

/* ATTN_OK for a k or v of a float type, or of i8 with its scales. */
attn_status input_check_int8(const attention_input *input, int r, attn_error *error);
/* Its data, and with i8 its scales; has_dtype: converted to that of the problem, quantised for int8. */
void input_rows(attention_input *input, int r, int has_dtype);
/* The layouts of scales, once those of k and v are known. */
void input_lay_int8(attention_input *input);

/* Zeros of a mask, and the share of them for the problem string: to four digits. */
int64_t input_zeros(const attn_archive_tensor *mask);
double input_dropped(int64_t zeros, int64_t elements);

/* Tokens that are used: all, or those of the share.  Packed: of all sequences. */
int64_t input_tokens(const attention_input *input, int keys);
/* Keeps those of the share of [batch, token] numbers, one after the other. */
void input_keep_share(const attention_input *input, int keys, int64_t batch, int64_t *numbers);

/* Steps of input_load, in this order. */
attn_status input_read_packed(attention_input *input, attn_error *error);
attn_status input_take_share(attention_input *input, const input_settings *settings, attn_error *error);
attn_status input_read_masks(attention_input *input, int drop, attn_error *error);
attn_status input_read_indices(attention_input *input, attn_error *error);
attn_status input_read_heads(attention_input *input, attn_error *error);
attn_status input_read_terms(attention_input *input, attn_error *error);
attn_status input_read_gradients(attention_input *input, attn_error *error);
/* Packed sequences as batch entries: the sizes and lengths, once all else is read; then the data. */
attn_status input_set_unpacked(attention_input *input, attn_error *error);
void input_unpack(attention_input *input);
/* --rope: q and k rotated, once their layouts are known. */
attn_status input_rotate(attention_input *input, const input_settings *settings, attn_error *error);
/* Turns the block mask into one with a row for each query, which can be cut between any two (slice.h). */
void input_block_rows(attention_input *input);

#endif
