/* SPDX-License-Identifier: MIT
 *
 * share.h - the rows of one of several processes, each of which has some of the queries and some of the keys of a file.
 *
 * A tensor with a row for each token (or, like a mask, for each query) is then used in part: input_tensor.tensor keeps its shape in
 * the file, and its data and bytes are those of the process's rows, one range after the other.  What all processes need (slopes,
 * tables, lengths) is whole.
 */
#ifndef ATTN_CLI_INPUT_SHARE_H
#define ATTN_CLI_INPUT_SHARE_H

#include "input.h"

/* The bytes of a dense tensor: `outer` times `rows` rows of `row` bytes. */
typedef struct share_layout {
    int keys;     /* 1: the rows are those of keys */
    int64_t unit; /* tokens of a row: 1, or those of a block */
    int64_t outer, rows;
    size_t row;
} share_layout;

/* The layout of tensor t, which has this shape in files.  Returns 0 if it has no rows of tokens, or if one row is for all. */
int share_lay(const attention_input *input, int t, int rank, const int64_t *shape, attn_dtype dtype, share_layout *layout);

/* Sets the strides of all tensors of input->tensors that are used in part: in the order of axes that they have. */
void input_lay_share(attention_input *input);

/* Rows of a share. */
int64_t share_rows(const input_share *share, const share_layout *layout);

/* Copies the rows of a share from the whole tensor to its own. */
void share_take(const input_share *share, const share_layout *layout, const void *whole, void *own);

/* Zeros and elements of a mask or a block mask in the share; and the share dropped of the problem string, from those of all
 * processes. */
void share_count(const attention_input *input, int t, int64_t counts[2]);
void share_set_dropped(attention_input *input, int t, const int64_t counts[2]);

#endif
