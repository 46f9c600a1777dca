/* SPDX-License-Identifier: MIT
 *
 * tensor_view.h - a tensor, or a part of one, as numbers for people: aligned columns, and the middle of large ones left out. */
#ifndef ATTN_CLI_BASE_TENSOR_VIEW_H
#define ATTN_CLI_BASE_TENSOR_VIEW_H

#include <stdio.h>

#include "attn/io.h"

typedef struct tensor_view {
    const attn_archive_tensor *tensor;
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    int64_t step[ATTN_MAX_RANK]; /* elements of the tensor from one to the next of an axis */
    int64_t first;               /* the first element */
    int dense;                   /* 1: its elements follow each other */
} tensor_view;

/* The whole tensor. */
tensor_view tensor_view_of(const attn_archive_tensor *tensor);
int64_t tensor_view_count(const tensor_view *v);

/* Where element n of the view is in the tensor, in the order of its axes; index (may be NULL) gets its coordinates in the view. */
int64_t tensor_view_at(const tensor_view *v, int64_t n, int64_t index[ATTN_MAX_RANK]);

/* An element of the tensor. */
double tensor_view_number(const attn_archive_tensor *t, int64_t at);
enum { VIEW_NUMBER = 40 };
/* As text from which the same bits are read again; NaN and infinities are nan, inf and -inf. */
void tensor_view_exact(char text[VIEW_NUMBER], const attn_archive_tensor *t, int64_t at);

/* Matrices of aligned numbers, each after a line with its leading indices; all: nothing is left out. */
void tensor_view_print(FILE *out, const tensor_view *v, int all);

/* Every tensor of an archive: a line with its name, type and shape, and its numbers. */
void tensor_view_print_archive(FILE *out, const attn_archive *archive);

#endif
