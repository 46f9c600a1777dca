/* SPDX-License-Identifier: MIT
 *
 * view.h - tensors of a case as strided arrays, so that foreign layouts become ours without copies.
 *
 * A pool owns any copies that are still needed until the case is done.  Its memory comes from need_memory: never NULL.
 */
#ifndef ATTN_TESTING_CONFORMANCE_VIEW_H
#define ATTN_TESTING_CONFORMANCE_VIEW_H

#include <stdint.h>

#include "attn/attn.h"
#include "attn/io.h"

typedef struct view {
    attn_dtype dtype;
    int rank; /* 0 and data NULL: no tensor */
    int64_t size[ATTN_MAX_RANK];
    int64_t stride[ATTN_MAX_RANK]; /* elements; 0 broadcasts */
    const void *data;
} view;

typedef struct view_pool {
    void **owned;
    int64_t count, capacity;
} view_pool;

void *pool_take(view_pool *pool, int64_t count, size_t size);
void pool_empty(view_pool *pool);

view view_of(const attn_archive_tensor *tensor); /* no tensor for NULL */
int view_present(const view *v);

int64_t view_count(const view *v);
/* Element number n in row-major order. */
double view_get(const view *v, int64_t n);

/* Prepends axes of size 1 until there are `rank`; if there are more, makes a dense copy with the leading axes folded into one. */
view view_to_rank(view_pool *pool, const view *v, int rank);
/* Swaps two axes. */
view view_swap(const view *v, int a, int b);
/* Splits the last axis into (parts, size/parts).  Returns 0 if it is not divisible. */
int view_split(const view *v, int64_t parts, view *out);
/* Broadcasts axes of size 1 to size[], with stride 0.  Returns 0 if another size differs. */
int view_expand(const view *v, const int64_t *size, view *out);
/* Concatenates a and b along an axis.  Returns 0 if other sizes, ranks or types differ. */
int view_join(view_pool *pool, const view *a, const view *b, int axis, view *out);
/* Pads the last axis to `size` with copies of `value`. */
view view_pad(view_pool *pool, const view *v, int64_t size, double value);
/* A dense copy, multiplied and rounded once. */
view view_scale(view_pool *pool, const view *v, double factor);
/* A view of `data`, a dense array. */
view view_made(attn_dtype dtype, int rank, const int64_t *size, const void *data);
/* A dense copy in another type, each number rounded once; types of numbers only. */
view view_convert(view_pool *pool, const view *v, attn_dtype dtype);

#endif
