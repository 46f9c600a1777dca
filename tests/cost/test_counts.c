/* SPDX-License-Identifier: MIT
 * test_counts.c - the figures of section 14 of the specification, with its rulings where a source is wrong; the estimates of
 * section 13; the effect of the scale on the variance of scores (1.15); rejected calls, with the exact message. */
#include "fails.h"

#include <math.h>

#include "attn/cost.h"
#include "testing/random/random.h"

static const double MiB = 1 << 20, GiB = 1 << 30;

static attn_cost_problem heads_of(attn_cost_method method, int64_t batch, int64_t heads, int64_t tokens, int64_t dim,
                                  attn_dtype dtype)
{
    return (attn_cost_problem){.struct_size = sizeof(attn_cost_problem),
                               .method = method,
                               .shape = {batch, heads, heads, tokens, tokens, dim, dim},
                               .dtype = dtype};
}

static attn_cost estimate(attn_cost_problem p)
{
    attn_cost c = {.struct_size = sizeof c};
    assert_int_equal(attn_cost_estimate(&p, &c, NULL), ATTN_OK);
    return c;
}

static attn_cost matrix(int64_t batch, int64_t heads, int64_t tokens, int64_t dim, attn_dtype dtype)
{
    return estimate(heads_of(ATTN_COST_METHOD_MATRIX, batch, heads, tokens, dim, dtype));
}

/* 14.1, 14.2: scores cost B H n^2 d operations, weights take B H n^2 numbers; time and memory of the plain algorithm. */
static void test_growth(void **state)
{
    (void)state;
    const attn_cost one = matrix(2, 3, 100, 8, ATTN_F32), longer = matrix(2, 3, 200, 8, ATTN_F32),
                    wider = matrix(2, 3, 100, 16, ATTN_F32), more = matrix(4, 9, 100, 8, ATTN_F32);
    assert_true(one.operations == 4.0 * 8 * 2 * 3 * 100 * 100);
    assert_true(longer.operations == 4 * one.operations && wider.operations == 2 * one.operations);
    assert_true(more.operations == 6 * one.operations && more.scores == 6 * one.scores);
    assert_true(longer.extra_bytes == 4 * one.extra_bytes && wider.extra_bytes == one.extra_bytes);
    assert_true(longer.output_bytes == 2 * one.output_bytes && wider.output_bytes == 2 * one.output_bytes);
    assert_true(one.backward_operations == 2.5 * one.operations);
    /* A causal mask sees n (n + 1) / 2 pairs of each head. */
    attn_cost_problem causal = heads_of(ATTN_COST_METHOD_TILED, 2, 3, 100, 8, ATTN_F32);
    causal.pairs = 6.0 * 100 * 101 / 2;
    assert_true(estimate(causal).operations == 4.0 * 8 * 6 * 5050);
}

/* 14.3 to 14.8: figures stated by the sources, in MiB and GiB. */
static void test_sizes(void **state)
{
    (void)state;
    assert_true(matrix(1, 1, 1000, 1, ATTN_F32).scores == 1e6 && matrix(1, 1, 100000, 1, ATTN_F32).scores == 1e10);
    const attn_cost c = matrix(1, 1, 4096, 1024, ATTN_F32);
    assert_true(c.matrix_bytes == 67108864 && c.matrix_bytes == 64 * MiB);
    assert_true(matrix(1, 1, 4096, 64, ATTN_F32).matrix_bytes == c.matrix_bytes);     /* the width does not matter, ... */
    assert_true(matrix(3, 2, 4096, 64, ATTN_F32).matrix_bytes == 6 * c.matrix_bytes); /* but batch entries do, not only heads */
    double mib = .5; /* in f16; twice that in f32; four times for each doubling of n */
    for (int64_t n = 512; n <= 131072; n *= 2, mib *= 4) {
        assert_true(matrix(1, 1, n, 64, ATTN_F16).matrix_bytes == mib * MiB);
        assert_true(matrix(1, 1, n, 64, ATTN_F32).matrix_bytes == 2 * mib * MiB);
    }
    assert_true(mib / 4 == 32 * 1024);
    assert_true(matrix(8, 32, 65536, 64, ATTN_F16).matrix_bytes == 2048 * GiB);
    const attn_cost llama = matrix(1, 32, 8192, 128, ATTN_F16);
    assert_true(llama.scores == 2147483648 && llama.matrix_bytes == 4 * GiB);
    assert_true(matrix(1, 32, 32768, 128, ATTN_F16).scores == 34359738368);
}

/* 14.12: linear attention saves n/d = 1024 of the operations at 64K tokens, not 4000. */
static void test_linear_saving(void **state)
{
    (void)state;
    const attn_cost softmax = matrix(1, 1, 65536, 64, ATTN_F16),
                    linear = estimate(heads_of(ATTN_COST_METHOD_LINEAR, 1, 1, 65536, 64, ATTN_F16));
    assert_true(softmax.operations / linear.operations == 1024);
    attn_cost_problem features = heads_of(ATTN_COST_METHOD_LINEAR, 1, 1, 65536, 64, ATTN_F16);
    features.features = 256;
    assert_true(estimate(features).operations == 4 * linear.operations && estimate(features).extra_bytes == 4 * linear.extra_bytes);
}

/* 14.13: the matrix is written and read, so the intensity is near d, not 2d.  14.14: no machine exceeds its peak rate. */
static void test_roofline(void **state)
{
    (void)state;
    const double d = 64, n = 8192, intensity = matrix(1, 1, 8192, 64, ATTN_F16).intensity;
    assert_true(fabs(intensity - 4 * n * n * d / (2 * (2 * n * n + 4 * n * d))) <= 1e-12);
    assert_true(fabs(intensity - 63.0) < .05 && intensity < d);
    assert_true(attn_attainable_rate(156e12, 2e12, 128) == 156e12); /* a source states 256e12 */
    assert_true(attn_attainable_rate(156e12, 2e12, 63) == 126e12);
}

/* 8.11, 14.15, 14.16: traffic of tiles is O(n^2 d^2 / M), that of the matrix O(n d + n^2).  M is the fast memory of one core in
 * elements, not bytes, so tiles save a factor of M / (4 d^2): 6, where a source states 1200. */
static void test_traffic(void **state)
{
    (void)state;
    enum { N = 65536, D = 64, FAST = 192 * 1024 / 2 };
    attn_cost_problem p = heads_of(ATTN_COST_METHOD_TILED, 1, 1, N, D, ATTN_F16), other = p;
    p.fast_elements = other.fast_elements = FAST;
    const double one = estimate(p).traffic_bytes, plain = matrix(1, 1, N, D, ATTN_F16).traffic_bytes;
    assert_true(fabs(one / 2 / (8.0 * N * N * D * D / FAST) - 1) < .02);
    other.shape.len_q = other.shape.len_kv = 2 * N;
    assert_true(fabs(estimate(other).traffic_bytes / one - 4) < .08);
    other = p, other.fast_elements = 2 * FAST;
    assert_true(fabs(estimate(other).traffic_bytes / one - .5) < .02);
    other = p, other.shape.dim_qk = other.shape.dim_v = 2 * D;
    assert_true(fabs(estimate(other).traffic_bytes / one - 4) < .08);
    assert_true(fabs(plain / one - FAST / (4.0 * D * D)) < .2);
    assert_true(plain == 2 * (2.0 * N * N + 4.0 * N * D));
    /* Keys and values fit in fast memory: everything moves once. */
    other = p, other.fast_elements = 0;
    assert_true(estimate(other).traffic_bytes == 2 * 4.0 * N * D + 4.0 * N);
    other.fast_elements = INT64_C(4) * N * D;
    assert_true(estimate(other).traffic_bytes == 2 * 4.0 * N * D + 4.0 * N);
}

/* The same fast memory for both methods: the products of the one with a matrix read their factors again, too. */
static void test_products_read_again(void **state)
{
    (void)state;
    enum { N = 4096, FAST = 262144 /* f32 in 1 MiB */ };
    attn_cost_problem tiled = heads_of(ATTN_COST_METHOD_TILED, 1, 1, N, 64, ATTN_F32), other = tiled;
    tiled.fast_elements = other.fast_elements = FAST;
    other.method = ATTN_COST_METHOD_MATRIX;
    /* D = 64: four strips of 1024 queries, for each of which K and V (1 MiB each) are read; the matrix comes on top. */
    assert_true(estimate(tiled).traffic_bytes == 2 * MiB + 4 * 2 * MiB + 4 * N);
    assert_true(estimate(other).traffic_bytes == 2 * MiB + 4 * 2 * MiB + 2 * 64 * MiB);
    /* D = 1024: tiles of 64 queries read K and V (16 MiB each) 64 times; products in blocks of 295 read q and K 14 times, the
     * matrix 4 times and V 14 times. */
    tiled.shape.dim_qk = tiled.shape.dim_v = other.shape.dim_qk = other.shape.dim_v = 1024;
    assert_true(estimate(tiled).traffic_bytes == (32 + 64 * 32) * MiB + 4 * N);
    assert_true(estimate(other).traffic_bytes == (14 * 32 + 64 + 4 * 64 + 14 * 16 + 16) * MiB);
    /* Grouped heads share what is read once, not what is read again. */
    other.shape.heads_q = 2;
    assert_true(estimate(other).traffic_bytes == 2.0 * (14 * 32 + 64 + 4 * 64 + 14 * 16 + 16) * MiB);
    /* A factor in half of the fast memory is read once: 2048 x 64 keys are half, 2049 more. */
    other = heads_of(ATTN_COST_METHOD_MATRIX, 1, 1, N, 64, ATTN_F32), other.fast_elements = FAST, other.shape.len_kv = 2048;
    assert_true(estimate(other).traffic_bytes == (2 + 1 + 2 * 32) * MiB);
    other.shape.len_kv = 2049;
    assert_true(estimate(other).traffic_bytes == 2 * MiB + 4.0 * 2 * 2049 * 64 * 4 + 2.0 * N * 2049 * 4);
}

/* Section 13, estimate_memory: B 2, n 1024, 12 heads of 64, f16. */
static void test_memory(void **state)
{
    (void)state;
    const double B = 2, n = 1024, H = 12, d = 64, model = 768;
    attn_cost_problem p = heads_of(ATTN_COST_METHOD_TILED, 2, 12, 1024, 64, ATTN_F16);
    attn_cost c = estimate(p);
    assert_true(c.qkv_bytes == 3 * B * n * model * 2 && c.output_bytes == B * n * model * 2);
    assert_true(c.matrix_bytes == B * H * n * n * 2 && c.lse_bytes == B * H * n * 4 && c.extra_bytes == c.lse_bytes);
    assert_true(c.state_bytes == B * H * d * d * 2 && c.latent_bytes == 0);
    p.shape.heads_kv = 3;
    p.rank = 64;
    c = estimate(p);
    assert_true(c.cache_bytes == 2 * B * n * 3 * d * 2 && c.latent_bytes == B * n * 64 * 2);
    p.dtype = ATTN_F64;
    assert_true(estimate(p).lse_bytes == B * H * n * 8);
    p.shape.len_kv = 0; /* nothing to do */
    p.shape.len_q = 0;
    assert_true(estimate(p).operations == 0 && estimate(p).intensity == 0);
}

/* 1.15, 16.25: independent components of mean 0 and variance 1 (here uniform) give scores of variance d, and 1 after the scale. The
 * sample variance of N samples has a relative error of about sqrt(2/N). */
static void test_variance_of_scores(void **state)
{
    (void)state;
    enum { LEN = 256, D = 48 };
    static double q[LEN * D], k[LEN * D], v[LEN], o[LEN], scores[LEN * LEN];
    random_state random = {7};
    for (int i = 0; i < 2 * LEN * D; i++) *(i < LEN * D ? &q[i] : &k[i - LEN * D]) = sqrt(3) * random_signed(&random);
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, LEN, LEN, D, 1}};
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = {q, ATTN_F64, {0, 0, 0, 0}},
                            .k = attn_in(k),
                            .v = attn_in(v),
                            .o = attn_out(o),
                            .scores = attn_out(scores)};
    for (int unscaled = 0; unscaled < 2; unscaled++) {
        double square = 0;
        if (unscaled) p.score.scale_kind = ATTN_SCALE_VALUE, p.score.scale = 1;
        assert_int_equal(attn_compute(&p, &t, NULL), ATTN_OK);
        for (int i = 0; i < LEN * LEN; i++) square += scores[i] * scores[i] / (LEN * LEN);
        assert_true(fabs(square / (unscaled ? D : 1) - 1) < 5 * sqrt(2.0 / (LEN * D / 2.0)));
    }
}

/* Bytes of a key and its value, with the scales of their rows; a cache that is read more than once; matrices are of dtype. */
static void test_formats(void **state)
{
    static const struct {
        attn_dtype k, v;
        int k_scaled, v_scaled, row; /* row: bytes of 64 channels of k and 32 of v */
    } rows[] = {{ATTN_DTYPE_DEFAULT, ATTN_DTYPE_DEFAULT, 0, 0, 192},
                {ATTN_F32, ATTN_F16, 0, 0, 320},
                {ATTN_I8, ATTN_I8, 0, 1, 104},
                {ATTN_F8_E4M3, ATTN_F8_E5M2, 1, 0, 100},
                {ATTN_Q8_0, ATTN_Q4_0, 0, 0, 86},
                {ATTN_Q4_1, ATTN_Q8_0, 0, 0, 74}};
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        attn_cost_problem p = {.struct_size = sizeof p,
                               .shape = {2, 4, 2, 100, 300, 64, 32},
                               .dtype = ATTN_BF16,
                               .k_dtype = rows[n].k,
                               .v_dtype = rows[n].v,
                               .k_scaled = rows[n].k_scaled,
                               .v_scaled = rows[n].v_scaled};
        const attn_cost once = estimate(p);
        assert_true(once.cache_bytes == 2.0 * 2 * 300 * rows[n].row);
        assert_true(once.qkv_bytes == 2.0 * 2 * 4 * 100 * 64 + once.cache_bytes);
        assert_true(once.traffic_bytes == once.qkv_bytes + once.output_bytes + once.lse_bytes);
        p.fast_elements = 64 * 4 * 50; /* tiles of 50 queries: each head reads K and V twice */
        assert_true(estimate(p).traffic_bytes == once.traffic_bytes + (2.0 * 4 - 2) * 2 * 300 * rows[n].row);
        assert_true(once.matrix_bytes == 2.0 * 2 * 4 * 100 * 300);
    }
}

static void test_rejected(void **state)
{
    (void)state;
    attn_cost c = {.struct_size = sizeof c, .scores = 7};
    attn_cost_problem p = heads_of(ATTN_COST_METHOD_TILED, 1, 4, 8, 8, ATTN_F32);
#define REJECTED(change, status, text)                                                                                             \
    do {                                                                                                                           \
        attn_cost_problem was = p;                                                                                                 \
        change;                                                                                                                    \
        FAILS(attn_cost_estimate(&p, &c, &error), status, text);                                                                   \
        p = was;                                                                                                                   \
    } while (0)
    REJECTED(p.struct_size = 4, ATTN_ERR_ARGUMENT, "attn_cost_problem.struct_size is 4; set it to sizeof(attn_cost_problem)");
    REJECTED(p.struct_size = sizeof p + 1, ATTN_ERR_ARGUMENT,
             "attn_cost_problem.struct_size is 145; set it to sizeof(attn_cost_problem)");
    REJECTED(p.reserved[1] = 7, ATTN_ERR_ARGUMENT, "cost: reserved[1] is 7; it must be 0");
    REJECTED(p.method = (attn_cost_method)9, ATTN_ERR_ARGUMENT, "cost: method is 9; known: 0 (tiled), 1 (matrix), 2 (linear)");
    REJECTED(p.dtype = ATTN_I8, ATTN_ERR_UNSUPPORTED, "cost: dtype is i8; it must be f32, f64, f16 or bf16");
    REJECTED(p.k_dtype = ATTN_I16, ATTN_ERR_UNSUPPORTED,
             "cost: k_dtype is i16; it must be f32, f64, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0 or q4_1");
    REJECTED((p.method = ATTN_COST_METHOD_LINEAR, p.v_dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
             "cost: v_dtype is set; keys and values of linear attention have the type of q");
    REJECTED(p.k_scaled = 2, ATTN_ERR_ARGUMENT, "cost: k_scaled is 2; it must be 0 or 1");
    REJECTED(p.v_scaled = 1, ATTN_ERR_ARGUMENT, "cost: v_scaled is set and v_dtype is neither i8 nor f8");
    REJECTED(p.v_dtype = ATTN_Q4_0, ATTN_ERR_SHAPE,
             "cost: v_dtype is q4_0 and its rows have 8 channels; blocks need a multiple of 32");
    REJECTED(p.shape.len_q = -1, ATTN_ERR_SHAPE, "cost: len_q (-1) is negative");
    REJECTED(p.shape.heads_kv = 3, ATTN_ERR_SHAPE, "cost: heads_q (4) is not a multiple of heads_kv (3)");
    REJECTED(p.pairs = -1, ATTN_ERR_ARGUMENT, "cost: pairs is -1; it must be at least 0");
    REJECTED(p.pairs = 257, ATTN_ERR_ARGUMENT, "cost: pairs (257) exceed those of the shape (256)");
    assert_int_equal(attn_cost_estimate(NULL, &c, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_cost_estimate(&p, NULL, NULL), ATTN_ERR_ARGUMENT);
    assert_true(c.scores == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_linear_saving),
        cmocka_unit_test(test_roofline),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_products_read_again),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_variance_of_scores),
        cmocka_unit_test(test_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
