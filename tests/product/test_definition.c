/* SPDX-License-Identifier: MIT
 * test_definition.c - products of matrices against ref/: every way they lie, every remainder of every tile, strides, and what is
 * not finite; as a share of the error bound in attn/product.h.  Matrices end where memory ends. */
#include <math.h>

#include "product_case.h"
#include "random.h"

static const attn_dtype types[] = {ATTN_F32, ATTN_F64};

static double run(const attn_product_problem *problem, attn_isa isa, uint64_t seed)
{
    const attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = 1 + (int)(seed % 3)};
    product_case *c = case_create(problem, seed);
    attn_error error;
    if (attn_product(&c->problem, c->a.data, c->b.data, c->c.data, &options, &error)) fail_msg("%s", error.message);
    const double share = case_error(c);
    if (!(share <= 1))
        fail_msg("%s %s rows %d columns %d inner %d turned %d %d add %d: %g times the bound", attn_isa_name(isa),
                 attn_dtype_name(problem->dtype), (int)problem->rows, (int)problem->columns, (int)problem->inner, problem->a_turned,
                 problem->b_turned, problem->add, share);
    case_free(c);
    return share;
}

/* A size of which remainders matter more than the rest. */
static int64_t draw_size(random_source *r, int64_t most)
{
    return random_below(r, 8) ? random_below(r, most) : random_below(r, 6 * most);
}

static void test_drawn(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int n = 0; isa_at(n, types[t]); n++) {
            random_source r = random_from(7 + (uint64_t)t);
            double most = 0;
            for (int i = 0; i < CASES(1200); i++) {
                attn_product_problem p = {.struct_size = sizeof p, .dtype = types[t]};
                p.rows = draw_size(&r, 20), p.columns = draw_size(&r, 60), p.inner = draw_size(&r, 70);
                p.a_turned = (int)random_below(&r, 2), p.b_turned = (int)random_below(&r, 2), p.add = (int)random_below(&r, 2);
                if (random_below(&r, 2)) {
                    p.stride_a = (p.a_turned ? p.rows : p.inner) + random_below(&r, 5);
                    p.stride_b = (p.b_turned ? p.inner : p.columns) + random_below(&r, 5);
                    p.stride_c = p.columns + random_below(&r, 5);
                }
                most = fmax(most, run(&p, isa_at(n, types[t]), (uint64_t)i));
            }
            assert_true(most > 1e-4); /* the bound means something */
        }
}

/* Many parts of sums, several blocks of rows and of columns, in every way of lying. */
static void test_large(void **state)
{
    static const int64_t sizes[][3] = {{520, 60, 300}, {1, 300, 1100}, {3, 100, 5000}, {8, 600, 530}, {60, 49, 600}, {530, 70, 5}};
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int n = 0; isa_at(n, types[t]); n++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (int way = 0; way < 8; way++) {
                    const attn_product_problem p = {.struct_size = sizeof p,
                                                    .dtype = types[t],
                                                    .rows = sizes[i][0],
                                                    .columns = sizes[i][1],
                                                    .inner = sizes[i][2],
                                                    .a_turned = way & 1,
                                                    .b_turned = way >> 1 & 1,
                                                    .add = way >> 2};
                    (void)run(&p, isa_at(n, types[t]), 100 + i);
                }
}

/* NaN in a row of A reaches that row of C, and NaN in a column of B that column. */
static void test_not_finite(void **state)
{
    static const int64_t sizes[][3] = {{1, 70, 300}, {4, 70, 300}, {20, 70, 40}, {40, 70, 300}, {40, 70, 2}};
    (void)state;
    for (int n = 0; isa_at(n, ATTN_F32); n++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int way = 0; way < 4; way++) {
                const int64_t R = sizes[s][0], C = sizes[s][1], K = sizes[s][2], row = R - 1, column = C - 1, k = K / 2;
                const attn_product_problem p = {
                    .struct_size = sizeof p, .rows = R, .columns = C, .inner = K, .a_turned = way & 1, .b_turned = way >> 1};
                const attn_options options = {.struct_size = sizeof options, .isa = isa_at(n, ATTN_F32)};
                float *a = calloc((size_t)(R * K), sizeof *a), *b = calloc((size_t)(K * C), sizeof *b),
                      *c = calloc((size_t)(R * C), sizeof *c);
                a[p.a_turned ? k * R + row : row * K + k] = NAN;
                b[p.b_turned ? column * K + k : k * C + column] = INFINITY; /* by 0: NaN */
                assert_int_equal(attn_product(&p, a, b, c, &options, NULL), ATTN_OK);
                for (int64_t i = 0; i < R; i++)
                    for (int64_t j = 0; j < C; j++)
                        if ((i == row || j == column) != !!isnan(c[i * C + j]) || (!isnan(c[i * C + j]) && c[i * C + j] != 0))
                            fail_msg("way %d: c[%d][%d] is %g", way, (int)i, (int)j, (double)c[i * C + j]);
                free(a), free(b), free(c);
            }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn), cmocka_unit_test(test_large),
                                              cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
