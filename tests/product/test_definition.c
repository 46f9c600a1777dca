/* SPDX-License-Identifier: MIT
 * test_definition.c - products of matrices against ref/: every transposition, every remainder of every tile, strides, and numbers
 * that are not finite.  Errors are fractions of the bound in attn/product.h.  Matrices end where mapped memory ends. */
#include <math.h>

#include "product_case.h"
#include "testing/random/random.h"

static const attn_dtype types[] = {ATTN_F32, ATTN_F64};

static double run(const ref_matrices *problem, attn_dtype dtype, attn_isa isa, uint64_t seed)
{
    const attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = 1 + (int)(seed % 3)};
    product_case *c = case_create(problem, dtype, seed);
    attn_error error;
    if (attn_product(&c->problem, &c->tensors, &options, &error)) fail_msg("%s", error.message);
    const double share = case_error(c);
    if (!(share <= 1))
        fail_msg("%s %s rows %d columns %d inner %d turned %d %d add %d: %g times the bound", attn_isa_name(isa),
                 attn_dtype_name(dtype), (int)problem->rows, (int)problem->columns, (int)problem->inner, problem->a_transposed,
                 problem->b_transposed, problem->add, share);
    case_free(c);
    return share;
}

/* Mostly small sizes, where remainders matter most. */
static int64_t draw_size(random_state *r, int64_t most)
{
    return random_below(r, 8) ? random_below(r, most) : random_below(r, 6 * most);
}

static void test_drawn(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int n = 0; isa_at(n, types[t]); n++) {
            random_state r = random_from(7 + (uint64_t)t);
            double most = 0;
            for (int i = 0; i < CASES(1200); i++) {
                ref_matrices p = {0};
                p.rows = draw_size(&r, 20), p.columns = draw_size(&r, 60), p.inner = draw_size(&r, 70);
                p.a_transposed = (int)random_below(&r, 2), p.b_transposed = (int)random_below(&r, 2),
                p.add = (int)random_below(&r, 2);
                if (random_below(&r, 2)) {
                    p.stride_a = (p.a_transposed ? p.rows : p.inner) + random_below(&r, 5);
                    p.stride_b = (p.b_transposed ? p.inner : p.columns) + random_below(&r, 5);
                    p.stride_c = p.columns + random_below(&r, 5);
                }
                most = fmax(most, run(&p, types[t], isa_at(n, types[t]), (uint64_t)i));
            }
            assert_true(most > 1e-4); /* the bound is not far too wide */
        }
}

/* Sums in many parts, several blocks of rows and of columns, in every transposition. */
static void test_large(void **state)
{
    static const int64_t sizes[][3] = {{520, 60, 300}, {1, 300, 1100}, {3, 100, 5000}, {8, 600, 530}, {60, 49, 600}, {530, 70, 5}};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int n = 0; isa_at(n, types[t]); n++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (int way = 0; way < 8; way++) {
                    const ref_matrices p = {.rows = sizes[i][0],
                                            .columns = sizes[i][1],
                                            .inner = sizes[i][2],
                                            .a_transposed = way & 1,
                                            .b_transposed = way >> 1 & 1,
                                            .add = way >> 2};
                    (void)run(&p, types[t], isa_at(n, types[t]), 100 + i);
                }
}

/* NaN in a row of A affects only that row of C, and infinity in a column of B only that column (by 0: NaN). */
static void test_not_finite(void **state)
{
    static const int64_t sizes[][3] = {{1, 70, 300}, {4, 70, 300}, {20, 70, 40}, {40, 70, 300}, {40, 70, 2}};
    (void)state;
    for (int n = 0; isa_at(n, ATTN_F32); n++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int way = 0; way < 4; way++) {
                const int64_t R = sizes[s][0], C = sizes[s][1], K = sizes[s][2], row = R - 1, column = C - 1, k = K / 2;
                ref_matrices p = {.rows = R, .columns = C, .inner = K, .a_transposed = way & 1, .b_transposed = way >> 1};
                const attn_options options = {.struct_size = sizeof options, .isa = isa_at(n, ATTN_F32)};
                float *a = calloc((size_t)(R * K), sizeof *a), *b = calloc((size_t)(K * C), sizeof *b),
                      *c = calloc((size_t)(R * C), sizeof *c);
                a[p.a_transposed ? k * R + row : row * K + k] = NAN;
                b[p.b_transposed ? column * K + k : k * C + column] = INFINITY; /* by 0: NaN */
                matrices_dense(&p);
                const attn_product_problem problem = matrices_problem(&p, ATTN_F32);
                const attn_product_tensors t = matrices_tensors(&p, a, b, c);
                assert_int_equal(attn_product(&problem, &t, &options, NULL), ATTN_OK);
                for (int64_t i = 0; i < R; i++)
                    for (int64_t j = 0; j < C; j++)
                        if ((i == row || j == column) != !!isnan(c[i * C + j]) || (!isnan(c[i * C + j]) && c[i * C + j] != 0))
                            fail_msg("way %d: c[%d][%d] is %g", way, (int)i, (int)j, (double)c[i * C + j]);
                free(a), free(b), free(c);
            }
}

/* Rows that run backwards, that all are one row, and that overlap, as sliding windows of a signal: the same as copies of them. */
static void test_strides(void **state)
{
    static const int64_t sizes[][3] = {{1, 9, 30},     {4, 300, 70}, {7, 40, 300}, {40, 50, 33},
                                       {90, 130, 300}, {5, 1, 40},   {3, 1, 300}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int way = 0; way < 36; way++) {
            const int64_t R = sizes[s][0], C = sizes[s][1], K = sizes[s][2], most = 4 * (R + C) * K;
            const int a_transposed = way % 2, b_transposed = way / 2 % 2;
            const int64_t by[] = {0, 1, -1000}, a_by = by[way / 4 % 3] == -1000 ? -(a_transposed ? R : K) - 2 : by[way / 4 % 3],
                          b_by = by[way / 12] == -1000 ? -(b_transposed ? K : C) - 2 : by[way / 12];
            float *const memory = malloc((size_t)most * sizeof *memory), *const a = malloc((size_t)(R * K) * sizeof *a),
                         *const b = malloc((size_t)(K * C) * sizeof *b), *const one = malloc((size_t)(R * C) * sizeof *one),
                         *const other = malloc((size_t)(R * C) * sizeof *other);
            random_state r = random_from(s);
            for (int64_t i = 0; i < most; i++) memory[i] = (float)random_signed(&r);
            const float *const middle = memory + most / 2;
            for (int64_t i = 0; i < R; i++)
                for (int64_t k = 0; k < K; k++)
                    a[a_transposed ? k * R + i : i * K + k] = middle[a_transposed ? i + k * a_by : i * a_by + k];
            for (int64_t k = 0; k < K; k++)
                for (int64_t j = 0; j < C; j++)
                    b[b_transposed ? j * K + k : k * C + j] = middle[b_transposed ? k + j * b_by : k * b_by + j];
            ref_matrices m = {.rows = R, .columns = C, .inner = K, .a_transposed = a_transposed, .b_transposed = b_transposed};
            matrices_dense(&m);
            const attn_product_problem p = matrices_problem(&m, ATTN_F32);
            attn_product_tensors t = matrices_tensors(&m, a, b, one);
            assert_int_equal(attn_product(&p, &t, NULL, NULL), ATTN_OK);
            m.stride_a = a_by, m.stride_b = b_by;
            t = matrices_tensors(&m, middle, middle, other);
            attn_error error;
            if (attn_product(&p, &t, NULL, &error) != ATTN_OK) fail_msg("way %d: %s", way, error.message);
            /* A few rows are summed in another order if A and B are contiguous along the sums, which may hold for overlapping rows
             * but not for their copies. */
            const double off = R <= 4 && (b_transposed || C == 1) ? 1e-4 : 0;
            for (int64_t i = 0; i < R * C; i++)
                if (!(fabs((double)one[i] - (double)other[i]) <= off))
                    fail_msg("size %d way %d: element %d is %g and not %g", (int)s, way, (int)i, (double)other[i], (double)one[i]);
            free(memory), free(a), free(b), free(one), free(other);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn), cmocka_unit_test(test_large),
                                              cmocka_unit_test(test_not_finite), cmocka_unit_test(test_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
