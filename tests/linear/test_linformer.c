/* SPDX-License-Identifier: MIT
 * test_linformer.c - projections along the tokens and their gradients, against ref/; attention over them; what is refused. */
#include "test.h"

#include <math.h>

#include "attn/linear.h"
#include "attn_ref.h"
#include "random.h"

enum { B = 2, H = 3, LEN = 101, RANK = 13, DIM = 20, DIM_V = 7 };

static void *drawn(double *exact, int64_t count, attn_dtype dtype, random_source *random)
{
    void *data = malloc((size_t)count * attn_dtype_size(dtype) + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) exact[i] = random_signed(random);
    attn_convert(data, dtype, exact, ATTN_F64, count);
    attn_convert(exact, ATTN_F64, data, dtype, count);
    return data;
}

/* A sum of `terms` products in any order, the numbers within +-1. */
static void expect_near(const void *got, attn_dtype dtype, const double *exact, int64_t count, int64_t terms, const char *what)
{
    const double unit = dtype == ATTN_F64 ? 0x1p-53 : dtype == ATTN_F32 ? 0x1p-24 : 0x1p-8;
    for (int64_t i = 0; i < count; i++) {
        double x;
        attn_convert(&x, ATTN_F64, (const char *)got + (size_t)i * attn_dtype_size(dtype), dtype, 1);
        const double bound = (dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24) * (double)(terms * terms) + unit * fabs(exact[i]);
        if (!(fabs(x - exact[i]) <= bound)) fail_msg("%s[%d] is %g, not %g", what, (int)i, x, exact[i]);
    }
}

static void check(attn_dtype dtype, int shared)
{
    enum { X = B * H * LEN * DIM, Y = B * H * RANK * DIM, E = H * LEN * RANK };
    static double x[X], e[E], y[Y], dy[Y], dx[X], de[E];
    const attn_dtype compute = dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int64_t heads = shared ? 1 : H;
    random_source random = {5 + (uint64_t)dtype};
    attn_error error;
    const attn_linformer l = {
        .struct_size = sizeof l, .batch = B, .heads = H, .len = LEN, .rank = RANK, .dim = DIM, .shared = shared, .x.dtype = dtype};
    void *X_ = drawn(x, X, dtype, &random), *E_ = drawn(e, heads * LEN * RANK, compute, &random),
         *dY = drawn(dy, Y, compute, &random);
    void *Y_ = malloc(Y * sizeof(double)), *dX = malloc(X * sizeof(double)), *dE = malloc(E * sizeof(double));
    if (attn_linformer_project(&l, E_, X_, Y_, &error)) fail_msg("%s", error.message);
    if (attn_linformer_backward(&l, E_, X_, dY, dX, dE, &error)) fail_msg("%s", error.message);
    ref_linformer(B, H, LEN, RANK, DIM, shared, e, x, y);
    ref_linformer_backward(B, H, LEN, RANK, DIM, shared, e, x, dy, dx, de);
    expect_near(Y_, compute, y, Y, LEN, "y");
    expect_near(dX, dtype, dx, X, RANK, "grad_x");
    expect_near(dE, compute, de, heads * LEN * RANK, B * H * DIM, "grad_projection");
    free(X_), free(E_), free(dY), free(Y_), free(dX), free(dE);
}

static void test_types(void **state)
{
    static const attn_dtype types[] = {ATTN_F64, ATTN_F32, ATTN_BF16};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int shared = 0; shared < 2; shared++) check(types[t], shared);
}

/* Tokens before heads, and a projection that is a slice: the same bits as dense tensors have. */
static void test_strides(void **state)
{
    static double x[B * H * LEN * DIM], e[LEN * (RANK + 3)];
    static float swapped[B * LEN * H * DIM], dense[LEN * RANK], y[2][B * H * RANK * DIM];
    random_source random = {9};
    attn_linformer l = {.struct_size = sizeof l, .batch = B, .heads = H, .len = LEN, .rank = RANK, .dim = DIM, .shared = 1};
    (void)state;
    float *X_ = drawn(x, B * H * LEN * DIM, ATTN_F32, &random), *E_ = drawn(e, LEN * (RANK + 3), ATTN_F32, &random);
    for (int64_t i = 0; i < B * H * LEN * DIM; i++)
        swapped[((i / DIM / LEN / H * LEN + i / DIM % LEN) * H + i / DIM / LEN % H) * DIM + i % DIM] = X_[i];
    for (int64_t i = 0; i < LEN * RANK; i++) dense[i] = E_[i / RANK * (RANK + 3) + i % RANK];
    assert_int_equal(attn_linformer_project(&l, dense, X_, y[0], NULL), ATTN_OK);
    memcpy(l.x.stride, (int64_t[4]){LEN * H * DIM, DIM, H * DIM, 1}, sizeof l.x.stride);
    memcpy(l.projection.stride, (int64_t[4]){0, 0, RANK + 3, 1}, sizeof l.projection.stride);
    assert_int_equal(attn_linformer_project(&l, E_, swapped, y[1], NULL), ATTN_OK);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    free(X_), free(E_);
}

/* With as many rows as tokens and the identity for a projection it is plain attention; so far the whole mechanism. */
static void test_attention(void **state)
{
    enum { N = 24 };
    static double q[N * DIM], k[N * DIM], v[N * DIM_V], kept[N * DIM], projected_v[N * DIM_V], o[2][N * DIM_V], one[N * N];
    random_source random = {3};
    (void)state;
    for (int i = 0; i < N * DIM; i++) q[i] = random_signed(&random), k[i] = random_signed(&random);
    for (int i = 0; i < N * DIM_V; i++) v[i] = random_signed(&random);
    for (int i = 0; i < N; i++) one[i * N + i] = 1;
    attn_linformer l = {.struct_size = sizeof l, .batch = 1, .heads = 1, .len = N, .rank = N, .dim = DIM, .x.dtype = ATTN_F64};
    assert_int_equal(attn_linformer_project(&l, one, k, kept, NULL), ATTN_OK);
    l.dim = DIM_V;
    assert_int_equal(attn_linformer_project(&l, one, v, projected_v, NULL), ATTN_OK);
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, N, N, DIM, DIM_V}, .q.dtype = ATTN_F64};
    attn_args a = {.struct_size = sizeof a, .q = q, .k = k, .v = v, .o = o[0]};
    assert_int_equal(attn_forward(&p, &a, NULL), ATTN_OK);
    a.k = kept, a.v = projected_v, a.o = o[1];
    assert_int_equal(attn_forward(&p, &a, NULL), ATTN_OK);
    assert_memory_equal(o[0], o[1], sizeof o[0]);
}

static void refused(attn_linformer l, attn_status status, const char *message)
{
    float x[64] = {0}, y[64] = {0}, e[64] = {0};
    attn_error error;
    assert_int_equal(attn_linformer_project(&l, e, x, y, &error), status);
    assert_string_equal(error.message, message);
}

static void test_refused(void **state)
{
    attn_error error;
    const attn_linformer good = {.struct_size = sizeof good, .batch = 1, .heads = 2, .len = 3, .rank = 2, .dim = 4};
    attn_linformer l;
    float x[64] = {0};
    (void)state;
    assert_int_equal(attn_linformer_project(NULL, x, x, x, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "linformer: problem is NULL");
    l = good, l.struct_size = 8;
    refused(l, ATTN_ERR_ARGUMENT, "attn_linformer.struct_size is 8; set it to sizeof(attn_linformer)");
    l = good, l.rank = -1;
    refused(l, ATTN_ERR_SHAPE, "linformer: rank (-1) is negative");
    l = good, l.len = INT64_MAX / 2;
    refused(l, ATTN_ERR_SHAPE, "linformer: the arrays have more bytes than 64 bits count");
    l = good, l.shared = 2;
    refused(l, ATTN_ERR_ARGUMENT, "linformer: shared is 2; it is 0 or 1");
    l = good, l.reserved[3] = 1;
    refused(l, ATTN_ERR_ARGUMENT, "linformer: reserved[3] is 1; it must be 0");
    l = good, l.y.dtype = ATTN_BF16;
    refused(l, ATTN_ERR_UNSUPPORTED, "linformer: y is bf16; it must be f32");
    assert_int_equal(attn_linformer_backward(&good, x, x, x, x, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "linformer: grad_projection is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_strides),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
