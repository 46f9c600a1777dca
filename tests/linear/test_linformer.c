/* SPDX-License-Identifier: MIT
 * test_linformer.c - projections along the tokens and their gradients, against ref/; attention over projected keys; what is
 * rejected. */
#include "fails.h"

#include <math.h>

#include "attn/linear.h"
#include "attn_ref.h"
#include "testing/random/random.h"

enum { B = 2, H = 3, LEN = 101, RANK = 13, DIM = 20, DIM_V = 7 };

static void *drawn(double *exact, int64_t count, attn_dtype dtype, random_state *random)
{
    void *data = malloc((size_t)count * attn_dtype_size(dtype) + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) exact[i] = random_signed(random);
    (void)attn_convert(count, exact, ATTN_F64, data, dtype, NULL);
    (void)attn_convert(count, data, dtype, exact, ATTN_F64, NULL);
    return data;
}

/* Fails unless `got` is near sums of `terms` products in any order, of numbers within +-1. */
static void expect_near(const void *got, attn_dtype dtype, const double *exact, int64_t count, int64_t terms, const char *what)
{
    const double unit = dtype == ATTN_F64 ? 0x1p-53 : dtype == ATTN_F32 ? 0x1p-24 : 0x1p-8;
    for (int64_t i = 0; i < count; i++) {
        double x;
        (void)attn_convert(1, (const char *)got + (size_t)i * attn_dtype_size(dtype), dtype, &x, ATTN_F64, NULL);
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
    random_state random = {5 + (uint64_t)dtype};
    attn_error error;
    const attn_linformer_problem l = {.struct_size = sizeof l, .batch = B, .heads = H, .len = LEN, .rank = RANK, .dim = DIM};
    attn_linformer_tensors t = {.struct_size = sizeof t};
    void *X_ = drawn(x, X, dtype, &random), *E_ = drawn(e, heads * LEN * RANK, compute, &random),
         *dY = drawn(dy, Y, compute, &random);
    void *Y_ = malloc(Y * sizeof(double)), *dX = malloc(X * sizeof(double)), *dE = malloc(E * sizeof(double));
    t.x = (attn_input){X_, dtype, {0, 0, 0, 0}};
    t.projection = attn_in(E_);
    if (shared) t.projection.stride[2] = RANK, t.projection.stride[3] = 1;
    t.y = attn_out(Y_);
    if (attn_linformer_project(&l, &t, NULL, &error)) fail_msg("%s", error.message);
    t.y = (attn_output){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    t.grad_y = attn_in(dY);
    t.grad_x = attn_out(dX);
    t.grad_projection = attn_out(dE);
    if (attn_linformer_backward(&l, &t, NULL, &error)) fail_msg("%s", error.message);
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
    random_state random = {9};
    const attn_linformer_problem l = {.struct_size = sizeof l, .batch = B, .heads = H, .len = LEN, .rank = RANK, .dim = DIM};
    attn_linformer_tensors t = {.struct_size = sizeof t};
    (void)state;
    float *X_ = drawn(x, B * H * LEN * DIM, ATTN_F32, &random), *E_ = drawn(e, LEN * (RANK + 3), ATTN_F32, &random);
    for (int64_t i = 0; i < B * H * LEN * DIM; i++)
        swapped[((i / DIM / LEN / H * LEN + i / DIM % LEN) * H + i / DIM / LEN % H) * DIM + i % DIM] = X_[i];
    for (int64_t i = 0; i < LEN * RANK; i++) dense[i] = E_[i / RANK * (RANK + 3) + i % RANK];
    t.x = attn_in(X_);
    t.projection = (attn_input){dense, ATTN_F32, {0, 0, RANK, 1}};
    t.y = attn_out(y[0]);
    assert_int_equal(attn_linformer_project(&l, &t, NULL, NULL), ATTN_OK);
    t.x = (attn_input){swapped, ATTN_F32, {LEN * H * DIM, DIM, H * DIM, 1}};
    t.projection = (attn_input){E_, ATTN_F32, {0, 0, RANK + 3, 1}};
    t.y = attn_out(y[1]);
    assert_int_equal(attn_linformer_project(&l, &t, NULL, NULL), ATTN_OK);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    free(X_), free(E_);
}

/* With a rank of all tokens and the identity as the projection, the whole mechanism is plain attention. */
static void test_attention(void **state)
{
    enum { N = 24 };
    static double q[N * DIM], k[N * DIM], v[N * DIM_V], kept[N * DIM], projected_v[N * DIM_V], o[2][N * DIM_V], one[N * N];
    random_state random = {3};
    (void)state;
    for (int i = 0; i < N * DIM; i++) q[i] = random_signed(&random), k[i] = random_signed(&random);
    for (int i = 0; i < N * DIM_V; i++) v[i] = random_signed(&random);
    for (int i = 0; i < N; i++) one[i * N + i] = 1;
    attn_linformer_problem l = {.struct_size = sizeof l, .batch = 1, .heads = 1, .len = N, .rank = N, .dim = DIM};
    attn_linformer_tensors t = {
        .struct_size = sizeof t, .x = {k, ATTN_F64, {0, 0, 0, 0}}, .projection = attn_in(one), .y = attn_out(kept)};
    assert_int_equal(attn_linformer_project(&l, &t, NULL, NULL), ATTN_OK);
    l.dim = DIM_V;
    t.x.data = v, t.y.data = projected_v;
    assert_int_equal(attn_linformer_project(&l, &t, NULL, NULL), ATTN_OK);
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, N, N, DIM, DIM_V}};
    attn_tensors a = {
        .struct_size = sizeof a, .q = {q, ATTN_F64, {0, 0, 0, 0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o[0])};
    assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
    a.k = attn_in(kept), a.v = attn_in(projected_v), a.o = attn_out(o[1]);
    assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
    assert_memory_equal(o[0], o[1], sizeof o[0]);
}

static float x[64], y[64], e[64];
static const attn_linformer_problem good = {.struct_size = sizeof good, .batch = 1, .heads = 2, .len = 3, .rank = 2, .dim = 4};
static const attn_linformer_tensors good_tensors = {
    .struct_size = sizeof good_tensors, .x = {.data = x}, .projection = {.data = e}, .y = {.data = y}};

static void rejected(attn_linformer_problem l, attn_linformer_tensors t, attn_status status, const char *message)
{
    FAILS(attn_linformer_project(&l, &t, NULL, &error), status, message);
}

static void test_rejected(void **state)
{
    attn_linformer_problem l;
    attn_linformer_tensors t = good_tensors;
    (void)state;
    assert_int_equal(attn_linformer_project(&good, &t, NULL, NULL), ATTN_OK);
    FAILS(attn_linformer_project(NULL, &t, NULL, &error), ATTN_ERR_ARGUMENT, "linformer: problem is NULL");
    FAILS(attn_linformer_project(&good, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "linformer: tensors is NULL");
    l = good, l.struct_size = 8;
    rejected(l, t, ATTN_ERR_ARGUMENT, "attn_linformer_problem.struct_size is 8; set it to sizeof(attn_linformer_problem)");
    l = good, l.rank = -1;
    rejected(l, t, ATTN_ERR_SHAPE, "linformer: rank (-1) is negative");
    l = good, l.len = INT64_MAX / 2;
    rejected(l, t, ATTN_ERR_SHAPE, "linformer: the arrays are too large: their bytes overflow 64 bits");
    l = good, l.reserved[3] = 1;
    rejected(l, t, ATTN_ERR_ARGUMENT, "linformer: reserved[3] is 1; it must be 0");
    t.struct_size = 8;
    rejected(good, t, ATTN_ERR_ARGUMENT, "attn_linformer_tensors.struct_size is 8; set it to sizeof(attn_linformer_tensors)");
    t = good_tensors, t.y.dtype = ATTN_BF16;
    rejected(good, t, ATTN_ERR_UNSUPPORTED, "linformer: y is bf16; it must be f32");
    t = good_tensors, t.projection = attn_in(NULL);
    rejected(good, t, ATTN_ERR_ARGUMENT, "linformer: projection is NULL");
    t = good_tensors, t.grad_x = attn_out(x);
    rejected(good, t, ATTN_ERR_ARGUMENT, "linformer: grad_x is set; attn_linformer_project does not use it");
    t = good_tensors, t.y = (attn_output){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}}, t.grad_y = attn_in(y), t.grad_x = attn_out(y);
    FAILS(attn_linformer_backward(&good, &t, NULL, &error), ATTN_ERR_ARGUMENT, "linformer: grad_projection is NULL");
}

/* Outputs of backward may overlap nothing; this includes grad_projection, which the core never gets. */
static void test_overlap(void **state)
{
    static float gx[64], gp[64];
    const attn_output none = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    const struct {
        attn_output grad_x, grad_projection;
        const char *message;
    } cases[] = {
        {attn_out(gx), attn_out(e + 3),
         "linformer: grad_projection and projection share elements; an output must not overlap another tensor"},
        {attn_out(gx), attn_out(x), "linformer: grad_projection and x share elements; an output must not overlap another tensor"},
        {attn_out(gx), attn_out(y + 15),
         "linformer: grad_projection and grad_y share elements; an output must not overlap another tensor"},
        {attn_out(gx), attn_out(gx),
         "linformer: grad_projection and grad_x share elements; an output must not overlap another tensor"},
        {attn_out(e), attn_out(gp), "linformer: grad_x and projection share elements; an output must not overlap another tensor"},
        {attn_out(gx),
         {gp, ATTN_DTYPE_DEFAULT, {0, 6, 1, 1}},
         "linformer: grad_projection overlaps itself: stride[3] is 1 and the axes with smaller strides span 3 elements"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_linformer_tensors t = good_tensors;
        t.y = none, t.grad_y = attn_in(y), t.grad_x = attn_out(gx), t.grad_projection = attn_out(gp);
        assert_int_equal(attn_linformer_backward(&good, &t, NULL, NULL), ATTN_OK);
        memset(e, 0x3f, sizeof e);
        float before[64];
        memcpy(before, e, sizeof e);
        t.grad_x = cases[i].grad_x, t.grad_projection = cases[i].grad_projection;
        FAILS(attn_linformer_backward(&good, &t, NULL, &error), ATTN_ERR_STRIDE, cases[i].message);
        assert_memory_equal(e, before, sizeof e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_strides),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_rejected),
                                       cmocka_unit_test(test_overlap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
