/* SPDX-License-Identifier: MIT
 *
 * kernel_test.h - helpers of the kernel tests: elements of any type, inputs that end where mapped memory ends, outputs between
 * guard zones, and a pseudo-random sequence.
 */
#ifndef ATTN_KERNEL_TEST_H
#define ATTN_KERNEL_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "../../src/core/kernels/kernel.h"

enum { MAX_LANES = ATTN_MAX_LANES };

/* The kernel under test; set for every row of kernels.def in turn. */
typedef struct subject {
    const attn_kernel_row *row;
    attn_kernel kernel;
    const attn_decode_part *decode; /* NULL: the tests of decode do not run */
    attn_dtype compute;
    int lanes, vectors, tile;
    double unit; /* rounding unit of the compute type: 2^-24 or 2^-53 */
    double lowest;
} subject;
extern subject it;

int64_t size_of(attn_dtype dtype);
/* Elements of any storage type, exact on reading and rounded once on writing, by formulas independent of the library's. */
double get(attn_dtype dtype, const void *base, int64_t index);
void put(attn_dtype dtype, void *base, int64_t index, double x);
/* The nearest number of the type, and of the compute type. */
double rounded(attn_dtype dtype, double x);
double real(double x);

/* An input: `bytes` bytes (at least 1 is allocated) that end at the end of memory; reading past them is fatal. */
void *input(int64_t bytes);
/* An output or a tile buffer: filled with a pattern, aligned to 64 bytes, guard zones before and after. */
void *output(int64_t bytes);
/* Fails if a guard zone was written, and frees every input and output. */
void release_all(void);
/* 1 if these bytes still have the pattern of a fresh output. */
int untouched(const void *p, int64_t bytes);

/* Absorbs S and block_max into m, l and Ot, as the walk does.  low and high: NULL, or the visible range of each lane; nan_safe: as
 * the walk repeats it if O is not finite. */
void fold(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const void *V, void *m, void *l, void *Ot,
          const int32_t *low, const int32_t *high, int nan_safe);

/* Uniform in [-1, 1); seed() restarts the sequence. */
void seed(uint64_t value);
double uniform(void);
/* An input of n random elements. */
void *random_input(attn_dtype dtype, int64_t n, double size);

/* The tests, one file per subject; each runs for every kernel. */
void test_registry(void **state);
void test_pack_query(void **state);
void test_load_rows(void **state);
void test_pairs(void **state);
void test_score_pairs(void **state);
void test_pairs_seen(void **state);
void test_finish(void **state);
void test_store_all_patterns(void **state);
void test_weigh(void **state);
void test_score(void **state);
void test_score_same_bits(void **state);
void test_keep_range(void **state);
void test_seen(void **state);
void test_keep_mask(void **state);
void test_add_bias(void **state);
void test_bias_overflow(void **state);
void test_softcap(void **state);
void test_block_max(void **state);
void test_clear(void **state);
void test_exp(void **state);
void test_fold(void **state);
void test_fold_maximum(void **state);
void test_fold_same_bits(void **state);
void test_fold_hostile(void **state);
void test_fold_nan_safe(void **state);
void test_not_finite(void **state);
void test_gathered(void **state);
void test_transfer_rows(void **state);
void test_transfer_rotate(void **state);
void test_transfer_angles(void **state);
void test_transfer_quantise(void **state);
void test_dots(void **state);
void test_dots_same_bits(void **state);
void test_weigh_row(void **state);
void test_add_values(void **state);
void test_pair_dots(void **state);
void test_fixed_point_dots(void **state);
void test_fixed_point_values(void **state);
void test_fixed_point_rows(void **state);
void test_unpacked_blocks(void **state);
void test_unpacked_f8(void **state);
void test_block_dots(void **state);
void test_block_values(void **state);
void test_nan_safe_row(void **state);
void test_modify_row(void **state);
void test_finish_row(void **state);
void test_order(void **state);
void test_order_edges(void **state);

#endif
