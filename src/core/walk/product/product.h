/* SPDX-License-Identifier: MIT
 * product.h - the walk over a matrix product: independent blocks of C. */
#ifndef ATTN_WALK_PRODUCT_PRODUCT_H
#define ATTN_WALK_PRODUCT_PRODUCT_H

#include "../../kernels/kernel.h"
#include "attn/product.h"

/* A, B and C after all checks: sizes, type, and layout. */
typedef struct attn_product_matrices {
    attn_dtype dtype;
    int add;
    int in_chains; /* no sums in lanes: few rows are summed like many, and the same on every instruction set */
    int64_t rows, columns, inner;
    int a_transposed, b_transposed;       /* 1: A lies in memory as [inner][rows], B as [columns][inner] */
    int64_t stride_a, stride_b, stride_c; /* elements from one row in memory to the next */
    const void *a, *b;
    void *c;
} attn_product_matrices;

/* Up to this many rows are multiplied along the sums. */
enum { ATTN_PRODUCT_DOT_ROWS = 4 };

/* How a block of C is computed. */
typedef enum attn_product_way {
    ATTN_PRODUCT_PACKED,
    ATTN_PRODUCT_IN_PLACE, /* matrices that stay in a cache, B not turned */
    ATTN_PRODUCT_SWEEP,    /* few rows and a large B, or few terms; B not turned */
    ATTN_PRODUCT_DOTS      /* few rows, B turned and A not */
} attn_product_way;

typedef struct attn_product_walk {
    attn_product_matrices problem;
    const attn_matrix_part *kernel;
    attn_product_way way;
    int64_t size;                      /* bytes of an element */
    int64_t block_rows, block_columns; /* of a task */
    int64_t row_blocks, column_blocks, tasks;
    int64_t packed_a, bytes; /* of one worker: packed rows of A, and in all */
    int workers;
    attn_parallel_for *parallel_for;
    void *parallel_context;
} attn_product_walk;

/* 1 for a product that takes a few microseconds, which is not worth waking other threads for. */
int attn_product_is_small(const attn_product_matrices *problem);

/* Computes sizes from problem, kernel and threads.  The problem's matrices fit an address space. */
void attn_product_walk_init(attn_product_walk *walk, int threads);

/* Bytes that suffice for all workers of any product that is no larger in any size, whatever its layout. */
int64_t attn_product_walk_max(const attn_product_walk *walk, int threads);

/* workspace: aligned to 64, workers * bytes. */
void attn_run_product(const attn_product_walk *walk, void *workspace);

#endif
