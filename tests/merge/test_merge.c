/* SPDX-License-Identifier: MIT
 * test_merge.c - parts of the keys merge to the whole (P19), for any split; the gradient against differences; what is refused. */
#include "test.h"

#include <math.h>

#include "attn/attn.h"
#include "random.h"

enum { B = 2, H = 3, SQ = 7, SKV = 50, D = 6, DV = 5, PARTS = 4 };

static random_source source = {7};
static double draw(void) { return random_signed(&source); }

static double q[B][H][SQ][D], k[B][H][SKV][D], v[B][H][SKV][DV];

/* Keys low .. high-1 alone. */
static void part(int64_t low, int64_t high, double *o, double *lse)
{
    attn_problem p = {
        .struct_size = sizeof p, .shape = {B, H, H, SQ, high - low, D, DV}, .q = {.dtype = ATTN_F64}, .want = {.lse = 1}};
    p.k.stride[0] = H * SKV * D, p.k.stride[1] = SKV * D, p.k.stride[2] = D, p.k.stride[3] = 1;
    p.v.stride[0] = H * SKV * DV, p.v.stride[1] = SKV * DV, p.v.stride[2] = DV, p.v.stride[3] = 1;
    attn_args a = {.struct_size = sizeof a, .q = q, .k = k[0][0][0] + low * D, .v = v[0][0][0] + low * DV, .o = o, .lse = lse};
    assert_int_equal(attn_forward(&p, &a, NULL), ATTN_OK);
}

static const attn_merge_problem whole = {
    .struct_size = sizeof whole, .parts = PARTS, .batch = B, .heads = H, .len_q = SQ, .dim_v = DV, .o = {.dtype = ATTN_F64}};

static void test_split(void **state)
{
    static double o[PARTS][B][H][SQ][DV], lse[PARTS][B][H][SQ], all_o[B][H][SQ][DV], all_lse[B][H][SQ], got[B][H][SQ][DV],
        got_lse[B][H][SQ];
    static const int64_t cuts[][PARTS + 1] = {{0, 10, 20, 30, 50}, {0, 0, 1, 49, 50}, {0, 50, 50, 50, 50}, {0, 7, 7, 8, 50}};
    (void)state;
    for (double *x = &q[0][0][0][0]; x < &q[0][0][0][0] + sizeof q / 8; x++) *x = 3 * draw();
    for (double *x = &k[0][0][0][0]; x < &k[0][0][0][0] + sizeof k / 8; x++) *x = 3 * draw();
    for (double *x = &v[0][0][0][0]; x < &v[0][0][0][0] + sizeof v / 8; x++) *x = draw();
    part(0, SKV, &all_o[0][0][0][0], &all_lse[0][0][0]);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        const void *os[PARTS], *lses[PARTS];
        for (int i = 0; i < PARTS; i++) {
            part(cuts[c][i], cuts[c][i + 1], &o[i][0][0][0][0], &lse[i][0][0][0]);
            os[i] = o[i], lses[i] = lse[i];
            if (cuts[c][i] == cuts[c][i + 1]) memset(o[i], 0xff, sizeof o[i]); /* NaN in a part without keys reaches nothing */
        }
        assert_int_equal(attn_merge(&whole, os, lses, got, got_lse, NULL), ATTN_OK);
        for (size_t i = 0; i < sizeof got / 8; i++) assert_true(fabs((&got[0][0][0][0])[i] - (&all_o[0][0][0][0])[i]) < 1e-14);
        for (size_t i = 0; i < sizeof got_lse / 8; i++) assert_true(fabs((&got_lse[0][0][0])[i] - (&all_lse[0][0][0])[i]) < 1e-14);
    }
}

static void test_nothing(void **state)
{
    const attn_merge_problem one = {.struct_size = sizeof one, .parts = 2, .batch = 1, .heads = 1, .len_q = 1, .dim_v = 2};
    const float a[2] = {1, 2}, b[2] = {3, 4}, none = -INFINITY;
    const void *os[] = {a, b}, *lses[] = {&none, &none};
    float o[2] = {9, 9}, lse = 9;
    (void)state;
    assert_int_equal(attn_merge(&one, os, lses, o, &lse, NULL), ATTN_OK);
    assert_true(o[0] == 0 && o[1] == 0 && lse == -INFINITY);
}

static void test_gradient(void **state)
{
    enum { N = 3, C = 70 }; /* more channels than are summed at a time */
    static double o[N][C], lse[N] = {0.3, -1.2, 0.9}, dO[C], dlse = 0.7, go[N][C], glse[N], out[C], out_lse;
    const attn_merge_problem p = {
        .struct_size = sizeof p, .parts = N, .batch = 1, .heads = 1, .len_q = 1, .dim_v = C, .o = {.dtype = ATTN_F64}};
    const void *os[N], *lses[N];
    void *gos[N], *glses[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        os[i] = o[i], lses[i] = &lse[i], gos[i] = go[i], glses[i] = &glse[i];
        for (int c = 0; c < C; c++) o[i][c] = draw();
    }
    for (int c = 0; c < C; c++) dO[c] = draw();
    assert_int_equal(attn_merge_backward(&p, os, lses, dO, &dlse, gos, glses, NULL), ATTN_OK);
    for (int i = 0; i < N; i++)
        for (int c = -1; c < C; c++) {
            double *x = c < 0 ? &lse[i] : &o[i][c], old = *x, loss[2];
            for (int side = 0; side < 2; side++) {
                *x = old + (side ? 1e-6 : -1e-6);
                assert_int_equal(attn_merge(&p, os, lses, out, &out_lse, NULL), ATTN_OK);
                loss[side] = dlse * out_lse;
                for (int k2 = 0; k2 < C; k2++) loss[side] += dO[k2] * out[k2];
            }
            *x = old;
            assert_true(fabs((loss[1] - loss[0]) / 2e-6 - (c < 0 ? glse[i] : go[i][c])) < 1e-8);
        }
}

static void test_refused(void **state)
{
    double o[1] = {0}, lse[1] = {0}, out[1];
    const void *os[] = {o}, *lses[] = {lse}, *null[] = {NULL};
    attn_error error;
    (void)state;
#define REFUSED(change, text)                                                                                                      \
    do {                                                                                                                           \
        attn_merge_problem p = {                                                                                                   \
            .struct_size = sizeof p, .parts = 1, .batch = 1, .heads = 1, .len_q = 1, .dim_v = 1, .o = {.dtype = ATTN_F64}};        \
        const void *const *o_parts = os, *const *lse_parts = lses;                                                                 \
        void *result = out;                                                                                                        \
        change;                                                                                                                    \
        assert_int_not_equal(attn_merge(&p, o_parts, lse_parts, result, NULL, &error), ATTN_OK);                                   \
        assert_string_equal(error.message, text);                                                                                  \
    } while (0)
    REFUSED(p.struct_size = 0, "attn_merge_problem.struct_size is 0; set it to sizeof(attn_merge_problem)");
    REFUSED(p.parts = 0, "merge: parts is 0; it is at least 1");
    REFUSED(p.heads = -1, "merge: heads (-1) is negative");
    REFUSED(p.o.dtype = ATTN_I8, "merge: o.dtype is i8; it must be f32, f64, f16 or bf16");
    REFUSED(p.lse.dtype = ATTN_F32, "merge: lse.dtype is f32; it must be f64, as o is f64");
    REFUSED((p.len_q = p.batch = INT64_C(1) << 40), "merge: o has more elements than 64 bits count");
    REFUSED((p.len_q = INT64_C(1) << 61), "merge: o has more bytes than 64 bits count");
    REFUSED((p.dim_v = 2, p.o.stride[3] = 2), "merge: o.stride[3] is 2; the last axis must be contiguous (1)");
    REFUSED((p.len_q = 2, p.o.stride[3] = 1), "merge: o.stride[2] is 0; it must be above 0, since the result has this layout too");
    REFUSED(o_parts = NULL, "merge: o_parts is NULL");
    REFUSED(lse_parts = null, "merge: lse_parts[0] is NULL");
    REFUSED(result = NULL, "merge: o is NULL");
    assert_int_equal(attn_merge(NULL, os, lses, out, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "problem is NULL");
}

static void test_gradient_refused(void **state)
{
    double o[1] = {0}, lse[1] = {0}, go[1], glse[1];
    const void *os[] = {o}, *lses[] = {lse};
    void *gos[] = {go}, *glses[] = {glse};
    attn_error error;
    const attn_merge_problem p = {
        .struct_size = sizeof p, .parts = 1, .batch = 1, .heads = 1, .len_q = 1, .dim_v = 1, .o = {.dtype = ATTN_F64}};
    (void)state;
    assert_int_equal(attn_merge_backward(&p, os, lses, NULL, NULL, gos, glses, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "merge: grad_o is NULL");
    assert_int_equal(attn_merge_backward(&p, os, lses, o, NULL, NULL, glses, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "merge: grad_o_parts is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split), cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_gradient), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_gradient_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
