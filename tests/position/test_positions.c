/* SPDX-License-Identifier: MIT
 * test_positions.c - positional encodings against their definitions and published numbers, P21 of docs/coverage.md, and gradients
 * as transposes. */
#include "test.h"

#include "attn/position.h"

#include <math.h>

static attn_input input(const void *data) { return (attn_input){data, ATTN_F64, {0, 0, 0, 0}}; }
static attn_output output(void *data) { return (attn_output){data, ATTN_F64, {0, 0, 0, 0}}; }

static void assert_near(double x, double y, double rtol)
{
    if (fabs(x - y) > rtol * fmax(fabs(y), 1e-300)) fail_msg("%.17g is not %.17g", x, y);
}

static attn_rope_scaling scaling(attn_rope_scaling_kind kind, int64_t dim, double factor, int64_t original)
{
    attn_rope_scaling s = {.struct_size = sizeof s, .kind = kind, .dim = dim, .factor = factor, .original_length = original};
    return s;
}

static void frequencies_of(attn_rope_scaling s, double *frequencies, double *magnitude)
{
    attn_error error;
    if (attn_rope_frequencies(&s, frequencies, magnitude, &error) != ATTN_OK) fail_msg("%s", error.message);
}

/* Scaling rules by their published constants: which frequencies stay, which are divided, and numbers computed from the papers'
 * formulas. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { D = 128 };
    double plain[D / 2], f[D / 2], magnitude;
    frequencies_of(scaling(ATTN_ROPE_SCALING_LINEAR, D, 1, 0), plain, &magnitude);
    assert_true(magnitude == 1);
    for (int i = 0; i < D / 2; i++) assert_near(plain[i], pow(10000, -2.0 * i / D), 1e-15);

    frequencies_of(scaling(ATTN_ROPE_SCALING_LINEAR, D, 4, 0), f, NULL);
    for (int i = 0; i < D / 2; i++) assert_near(f[i], plain[i] / 4, 1e-15);

    frequencies_of(scaling(ATTN_ROPE_SCALING_NTK, D, 8, 0), f, &magnitude);
    assert_true(f[0] == 1 && magnitude == 1);
    assert_near(f[D / 2 - 1], plain[D / 2 - 1] / 8, 1e-13); /* the lowest frequency is exactly interpolated */
    for (int i = 1; i < D / 2; i++) assert_true(f[i] < plain[i] && f[i] > plain[i] / 8.0000001);

    attn_rope_scaling dynamic = scaling(ATTN_ROPE_SCALING_NTK_DYNAMIC, D, 10, 2048);
    dynamic.length = 2048;
    frequencies_of(dynamic, f, NULL);
    for (int i = 0; i < D / 2; i++) assert_true(f[i] == plain[i]); /* not longer than the trained length */
    dynamic.length = 16384;
    frequencies_of(dynamic, f, NULL);
    assert_near(f[D / 2 - 1], plain[D / 2 - 1] / (10.0 * 8 - 9), 1e-13);

    frequencies_of(scaling(ATTN_ROPE_SCALING_YARN, D, 10, 2048), f, &magnitude);
    assert_near(magnitude, 0.1 * log(10) + 1, 1e-15);
    const struct {
        int i;
        double f;
    } yarn[] = {{0, 1},
                {10, 0.23713737056616552},
                {20, 0.04813641743629388},
                {25, 0.01851171672762708},
                {30, 0.006614266303530087},
                {40, 0.0004300697617828996},
                {50, 7.4989420933245586e-05}};
    for (size_t k = 0; k < sizeof yarn / sizeof *yarn; k++) assert_near(f[yarn[k].i], yarn[k].f, 1e-12);
    for (int i = 46; i < D / 2; i++) assert_near(f[i], plain[i] / 10, 1e-13);
    frequencies_of(scaling(ATTN_ROPE_SCALING_YARN, D, 10, 4), f,
                   NULL); /* 4 tokens: no channel completes a turn, and all stay, as in the authors' code */
    for (int i = 0; i < D / 2; i++) assert_true(f[i] == plain[i]);

    attn_rope_scaling llama = scaling(ATTN_ROPE_SCALING_LLAMA3, 8, 8, 8192);
    double low[4];
    frequencies_of(llama, low, NULL);
    assert_true(low[0] == 1 && fabs(low[1] - 0.1) < 1e-16 && fabs(low[2] - 0.01) < 1e-17);
    assert_near(low[3], 2.1360754402756864e-4,
                1e-12); /* 1e-3 turns 1.3038 times in 8192 tokens: a fraction of 0.3038/3 of it stays, the rest is divided by 8 */
}

static void rotate(const attn_rope *rope, int64_t channels, const double *x, double *y, int64_t position)
{
    const int64_t shape[4] = {1, 1, 1, channels};
    const attn_input at = attn_in(&position);
    assert_int_equal(attn_rope_apply(rope, shape, &(attn_input){x, ATTN_F64, {0, 0, 0, 0}}, &at,
                                     &(attn_output){y, ATTN_F64, {0, 0, 0, 0}}, NULL),
                     ATTN_OK);
}

/* Frequencies and a magnitude of the caller: products still depend only on the distance, and the inverse is the transpose. */
static void test_scaled_rope(void **state)
{
    (void)state;
    enum { D = 12 };
    double f[D / 2], magnitude, q[D], k[D], a[D], b[D], c[D], d[D], near = 0, far = 0, there = 0, back = 0;
    frequencies_of(scaling(ATTN_ROPE_SCALING_YARN, D, 4, 32), f, &magnitude);
    for (int pairs = 0; pairs < 2; pairs++) {
        attn_rope rope = {.struct_size = sizeof rope, .pairs = (attn_rope_pairs)pairs, .frequencies = f, .magnitude = magnitude};
        for (int i = 0; i < D; i++) q[i] = sin(i + 1.0), k[i] = cos(3.0 * i);
        rotate(&rope, D, q, a, 0);
        for (int i = 0; i < D; i++) assert_near(a[i], magnitude * q[i], 1e-15);
        rotate(&rope, D, q, a, 9), rotate(&rope, D, k, b, 4), rotate(&rope, D, q, c, 109), rotate(&rope, D, k, d, 104);
        for (int i = 0; i < D; i++) near += a[i] * b[i], far += c[i] * d[i], there += a[i] * k[i];
        rope.inverse = 1;
        rotate(&rope, D, k, d, 9);
        for (int i = 0; i < D; i++) back += q[i] * d[i];
        assert_near(near, far, 1e-12);
        assert_near(there, back, 1e-12);
    }
}

/* Cosines and sines of the caller: the same rotation as with computed ones, row by row. */
static void test_tables(void **state)
{
    (void)state;
    enum { D = 6, ROWS = 5 };
    double cosines[ROWS * D / 2], sines[ROWS * D / 2], x[D], y[D], z[D];
    for (int p = 0; p < ROWS; p++)
        for (int i = 0; i < D / 2; i++) {
            cosines[p * D / 2 + i] = cos(p * pow(10000, -2.0 * i / D));
            sines[p * D / 2 + i] = sin(p * pow(10000, -2.0 * i / D));
        }
    for (int c = 0; c < D; c++) x[c] = sin(c + 0.5);
    for (int k = 0; k < 4; k++)
        for (int p = 0; p < ROWS; p++) {
            attn_rope rope = {.struct_size = sizeof rope, .pairs = (attn_rope_pairs)(k % 2), .inverse = k / 2};
            rotate(&rope, D, x, y, p);
            rope.cosines = cosines, rope.sines = sines, rope.table_rows = ROWS;
            rotate(&rope, D, x, z, p);
            for (int c = 0; c < D; c++) assert_true(fabs(z[c] - y[c]) <= 0x1p-51); /* of numbers up to 1 */
        }
}

/* Tables as slots, as engines have them: of any float type, cosines and sines in one row, or every number twice. */
static void test_table_slots(void **state)
{
    enum { D = 10, N = D / 2, ROWS = 5, HEADS = 3, TOKENS = 4 };
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    static const int64_t layouts[][3] = {
        {N, 1, ROWS * N}, {2 * N, 1, N}, {2 * N, 2, 2 * N * ROWS}}; /* strides, and from cosines to sines */
    const int64_t shape[4] = {1, HEADS, TOKENS, D}, positions[TOKENS] = {4, 0, 2, 4};
    const attn_input at = attn_in(positions);
    double x[HEADS * TOKENS * D], y[HEADS * TOKENS * D], z[HEADS * TOKENS * D], exact[2][ROWS * N], given[4 * ROWS * N];
    (void)state;
    for (int c = 0; c < HEADS * TOKENS * D; c++) x[c] = sin(c + 0.5);
    for (int t = 0; t < 4; t++)
        for (int layout = 0; layout < 3; layout++)
            for (int k = 0; k < 4; k++) {
                const int64_t *const l = layouts[layout], size = (int64_t)attn_dtype_size(types[t]);
                memset(given, 0xff, sizeof given); /* NaN */
                for (int table = 0; table < 2; table++)
                    for (int p = 0; p < ROWS; p++)
                        for (int i = 0; i < N; i++) {
                            const double angle = p * pow(10000, -2.0 * i / D), number = table ? sin(angle) : cos(angle);
                            char *to = (char *)given + (table * l[2] + p * l[0] + i * l[1]) * size;
                            (void)attn_convert(1, &number, ATTN_F64, to, types[t], NULL);
                            (void)attn_convert(1, to, types[t], &exact[table][p * N + i], ATTN_F64, NULL);
                        }
                attn_rope rope = {
                    .struct_size = sizeof rope, .pairs = (attn_rope_pairs)(k % 2), .inverse = k / 2, .table_rows = ROWS};
                attn_input from = input(x);
                attn_output to = output(y);
                rope.cosines = exact[0], rope.sines = exact[1];
                assert_int_equal(attn_rope_apply(&rope, shape, &from, &at, &to, NULL), ATTN_OK);
                rope.cosines = rope.sines = NULL, to.data = z;
                rope.cos_table = (attn_input){given, types[t], {0, 0, l[0], l[1]}};
                rope.sin_table = (attn_input){(char *)given + l[2] * size, types[t], {0, 0, l[0], l[1]}};
                assert_int_equal(attn_rope_apply(&rope, shape, &from, &at, &to, NULL), ATTN_OK);
                assert_memory_equal(y, z, sizeof y);
                rope.table_rows = 4;
                assert_int_equal(attn_rope_apply(&rope, shape, &from, &at, &to, NULL), ATTN_ERR_ARGUMENT);
            }
}

/* Several heads and tokens, also with more pairs than are rotated at a time: each row by its definition, and the same by tables. */
enum { MOST_PAIRS = 1050, HEADS = 2, TOKENS = 3, MOST = HEADS * TOKENS * (2 * MOST_PAIRS + 3) };
static void check_rows(int pairs)
{
    static double x[MOST], y[MOST], z[MOST], cosines[TOKENS * MOST_PAIRS], sines[TOKENS * MOST_PAIRS],
        both[2 * TOKENS * MOST_PAIRS];
    const int dim = 2 * pairs + 3;
    const int64_t shape[4] = {1, HEADS, TOKENS, dim};
    const attn_input from = input(x);
    attn_output to = output(y);
    for (int c = 0; c < HEADS * TOKENS * dim; c++) x[c] = sin(c + 0.5);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < pairs; i++) {
            const double angle = t * pow(10000, -(double)i / pairs);
            both[2 * (t * pairs + i)] = cosines[t * pairs + i] = cos(angle);
            both[2 * (t * pairs + i) + 1] = sines[t * pairs + i] = sin(angle);
        }
    for (int halves = 0; halves < 2; halves++) {
        attn_rope rope = {.struct_size = sizeof rope, .pairs = (attn_rope_pairs)halves, .dim_rotary = 2 * pairs};
        to.data = y;
        assert_int_equal(attn_rope_apply(&rope, shape, &from, NULL, &to, NULL), ATTN_OK);
        for (int row = 0; row < HEADS * TOKENS; row++)
            for (int c = 0; c < dim; c++) {
                const int i = halves ? c % pairs : c / 2, first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
                if (c >= 2 * pairs) {
                    assert_true(y[row * dim + c] == x[row * dim + c]);
                    continue;
                }
                const double a = x[row * dim + first], b = x[row * dim + second], cosine = cosines[row % TOKENS * pairs + i],
                             sine = sines[row % TOKENS * pairs + i];
                assert_true(fabs(y[row * dim + c] - (c == first ? a * cosine - b * sine : a * sine + b * cosine)) <= 0x1p-50);
            }
        for (int slots = 0; slots < 2; slots++) {
            attn_rope table = {.struct_size = sizeof table, .pairs = rope.pairs, .dim_rotary = 2 * pairs, .table_rows = TOKENS};
            if (slots) {
                table.cos_table = (attn_input){both, ATTN_F64, {0, 0, 2 * pairs, 2}};
                table.sin_table = (attn_input){both + 1, ATTN_F64, {0, 0, 2 * pairs, 2}};
            } else {
                table.cosines = cosines, table.sines = sines;
            }
            to.data = z;
            assert_int_equal(attn_rope_apply(&table, shape, &from, NULL, &to, NULL), ATTN_OK);
            for (int c = 0; c < HEADS * TOKENS * dim; c++) assert_true(fabs(z[c] - y[c]) <= 0x1p-50);
        }
    }
}

static void test_rows(void **state)
{
    (void)state;
    check_rows(4);
    check_rows(MOST_PAIRS);
}

/* 7.2 of docs/coverage.md, with PE(p + k) = R_k PE(p). */
static void test_sinusoidal(void **state)
{
    (void)state;
    enum { T = 7, D = 6 };
    double table[T * D], halves[T * 5], moved[D];
    const int64_t positions[T] = {0, 1, 5, 100, 105, -3, 2};
    const int32_t reversed[T] = {2, -3, 105, 100, 5, 1, 0};
    const attn_input at = attn_in(positions), short_at = {reversed + T - 1, ATTN_I32, {0, 0, -1, 0}};
    assert_int_equal(
        attn_sinusoidal(ATTN_ROPE_PAIRS_INTERLEAVED, T, D, 0, &at, &(attn_output){table, ATTN_F64, {0, 0, D, 1}}, NULL), ATTN_OK);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < D / 2; i++) {
            double angle = (double)positions[t] / pow(10000, 2.0 * i / D);
            assert_true(fabs(table[t * D + 2 * i] - sin(angle)) < 1e-13 && fabs(table[t * D + 2 * i + 1] - cos(angle)) < 1e-13);
        }
    for (int i = 0; i < D / 2; i++) { /* row 4 from row 3, 5 positions further: the pair (cos, sin) rotated */
        double angle = 5 / pow(10000, 2.0 * i / D), s = table[3 * D + 2 * i], c = table[3 * D + 2 * i + 1];
        moved[2 * i] = s * cos(angle) + c * sin(angle);
        moved[2 * i + 1] = c * cos(angle) - s * sin(angle);
        assert_true(fabs(moved[2 * i] - table[4 * D + 2 * i]) < 1e-13);
        assert_true(fabs(moved[2 * i + 1] - table[4 * D + 2 * i + 1]) < 1e-13);
    }
    /* An odd width: one more sine; sines first. */
    assert_int_equal(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, T, 5, 100, NULL, &(attn_output){halves, ATTN_F64, {0, 0, 0, 0}}, NULL),
                     ATTN_OK);
    for (int t = 0; t < T; t++)
        for (int c = 0; c < 5; c++) {
            double angle = t * pow(100, -2.0 * (c < 3 ? c : c - 3) / 5);
            assert_true(fabs(halves[t * 5 + c] - (c < 3 ? sin(angle) : cos(angle))) < 1e-14);
        }
    float single[T * 8];
    assert_int_equal(
        attn_sinusoidal(ATTN_ROPE_PAIRS_INTERLEAVED, T, D, 0, &short_at, &(attn_output){single, ATTN_F32, {0, 0, 8, 1}}, NULL),
        ATTN_OK);
    for (int t = 0; t < T; t++)
        for (int c = 0; c < D; c++) assert_true(single[t * 8 + c] == (float)table[t * D + c]);
}

/* 7.3 of docs/coverage.md: the sum, and the gradient of the table as the transpose of the sum. */
static void test_learned(void **state)
{
    (void)state;
    enum { B = 2, H = 3, T = 4, C = 5, ROWS = 6 };
    const int64_t shape[4] = {B, H, T, C}, positions[B * T] = {5, 0, 0, 2, 1, 5, 3, 0};
    double rows[ROWS * C], x[B * H * T * C], y[B * H * T * C], grad[ROWS * C], there = 0, back = 0;
    for (int n = 0; n < ROWS * C; n++) rows[n] = sin(n * 1.7);
    for (int n = 0; n < B * H * T * C; n++) x[n] = cos(n * 0.3);
    const attn_input table = input(rows), in = input(x), at = attn_in(positions), not_there = {.data = NULL},
                     one_for_all = {positions + T, ATTN_I64, {ATTN_BROADCAST, 0, 1, 0}};
    const attn_output out = output(y), in_place = output(x), grad_table = output(grad);
    assert_int_equal(attn_position_add(ROWS, shape, &in, &table, &one_for_all, &out, NULL), ATTN_OK);
    for (int b = 0; b < B; b++)
        for (int c = 0; c < T * C; c++)
            assert_true(y[b * H * T * C + c] == x[b * H * T * C + c] + rows[positions[T + c / C] * C + c % C]);
    assert_int_equal(attn_position_add(ROWS, shape, &in, &table, &at, &out, NULL), ATTN_OK);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++)
                for (int c = 0; c < C; c++) {
                    int n = ((b * H + h) * T + t) * C + c;
                    assert_true(y[n] == x[n] + rows[positions[b * T + t] * C + c]);
                }
    /* <y - x, x> as a function of the rows is linear: its gradient is that of grad_y = x. */
    assert_int_equal(attn_position_add_backward(ROWS, shape, &in, &at, &grad_table, NULL), ATTN_OK);
    for (int n = 0; n < B * H * T * C; n++) there += (y[n] - x[n]) * x[n];
    for (int n = 0; n < ROWS * C; n++) back += rows[n] * grad[n];
    assert_near(there, back, 1e-13);
    for (int c = 0; c < C; c++) assert_true(grad[4 * C + c] == 0); /* no token has this position */
    assert_int_equal(attn_position_add(ROWS, shape, &in, &table, &not_there, &in_place, NULL), ATTN_OK); /* in place */
    assert_true(x[C] == cos(C * 0.3) + rows[C]);
}

/* 7.6 and 6.10 of docs/coverage.md: the published rule, also for 12 heads; causal ALiBi equals a bias that grows with the key. */
static void test_alibi(void **state)
{
    (void)state;
    double slopes[16];
    const attn_output to = output(slopes);
    assert_int_equal(attn_alibi_slopes(8, &to, NULL), ATTN_OK);
    for (int h = 0; h < 8; h++) assert_true(slopes[h] == ldexp(1, -(h + 1))); /* 1/2 .. 1/256 */
    assert_int_equal(attn_alibi_slopes(16, &to, NULL), ATTN_OK);
    assert_near(slopes[0], sqrt(0.5), 1e-15);
    assert_int_equal(attn_alibi_slopes(12, &to, NULL), ATTN_OK);
    for (int h = 0; h < 8; h++) assert_true(slopes[h] == ldexp(1, -(h + 1)));
    for (int h = 8; h < 12; h++) assert_near(slopes[h], pow(2, -0.5 * (2 * (h - 8) + 1)), 1e-15); /* 2^-0.5, 2^-1.5, ... */
    assert_int_equal(attn_alibi_slopes(1, &to, NULL), ATTN_OK);
    assert_true(slopes[0] == ldexp(1, -8));
    float single[6] = {7, 7, 7, 7, 7, 7};
    const attn_output dense = attn_out(single), backwards = {single + 4, ATTN_F32, {0, -2, 0, 0}};
    assert_int_equal(attn_alibi_slopes(3, &dense, NULL), ATTN_OK);
    assert_true(single[0] == 0x1p-4f && single[1] == 0x1p-8f && single[2] == 0x1p-2f && single[3] == 7);
    assert_int_equal(attn_alibi_slopes(3, &backwards, NULL), ATTN_OK);
    assert_true(single[4] == 0x1p-4f && single[2] == 0x1p-8f && single[0] == 0x1p-2f && single[1] == 0x1p-8f && single[3] == 7);

    /* Weights under -m (i - j), causal, equal those under +m j. */
    enum { S = 9, D = 3 };
    double q[S * D], k[S * D], v[S * D], o[S * D], bias[S], other[S * D], m = 0.25;
    for (int n = 0; n < S * D; n++) q[n] = sin(n), k[n] = cos(2.0 * n), v[n] = sin(3.0 * n);
    for (int j = 0; j < S; j++) bias[j] = m * j;
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, S, S, D, D}, .mask.causal = 1};
    attn_tensors t = {.struct_size = sizeof t, .q = input(q), .k = input(k), .v = input(v), .o = output(o)};
    attn_tensors with_bias = t;
    t.alibi_slopes = attn_in(&m);
    assert_int_equal(attn_compute(&p, &t, NULL), ATTN_OK);
    with_bias.bias = (attn_input){bias, ATTN_F64, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, 1}};
    with_bias.o = output(other);
    assert_int_equal(attn_compute(&p, &with_bias, NULL), ATTN_OK);
    for (int n = 0; n < S * D; n++) assert_true(fabs(o[n] - other[n]) < 1e-14);
}

/* 7.4 of docs/coverage.md: buckets as in the code of T5, exact below 8 (16.28), and clipped distances. */
static void test_buckets(void **state)
{
    (void)state;
    attn_distance_bias t5 = {.struct_size = sizeof t5};
    const struct {
        int64_t d, both, causal;
    } rows[] = {{0, 0, 0},    {1, 1, 1},     {7, 7, 7},     {8, 8, 8},           {11, 8, 11},       {12, 9, 12},  {15, 9, 15},
                {16, 10, 16}, {19, 10, 17},  {23, 11, 18},  {32, 12, 21},        {45, 12, 23},      {46, 13, 24}, {64, 14, 26},
                {91, 15, 29}, {127, 15, 31}, {128, 15, 31}, {100000, 15, 31},    {-1, 17, 0},       {-7, 23, 0},  {-8, 24, 0},
                {-16, 26, 0}, {-64, 30, 0},  {-999, 31, 0}, {INT64_MAX, 15, 31}, {INT64_MIN, 31, 0}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        t5.causal = 0;
        if (attn_distance_bucket(&t5, rows[k].d) != rows[k].both)
            fail_msg("distance %d: bucket %d", (int)rows[k].d, (int)attn_distance_bucket(&t5, rows[k].d));
        t5.causal = 1;
        if (attn_distance_bucket(&t5, rows[k].d) != rows[k].causal)
            fail_msg("distance %d, causal: bucket %d", (int)rows[k].d, (int)attn_distance_bucket(&t5, rows[k].d));
    }
    assert_int_equal(attn_distance_buckets(&t5), 32);
    attn_distance_bias clipped = {.struct_size = sizeof clipped, .kind = ATTN_DISTANCE_CLIPPED, .max_distance = 3};
    const int64_t distances[] = {-9, -3, -2, 0, 2, 3, 4, INT64_MAX}, buckets[] = {0, 0, 1, 3, 5, 6, 6, 6};
    for (int k = 0; k < 8; k++) assert_int_equal(attn_distance_bucket(&clipped, distances[k]), buckets[k]);
    assert_int_equal(attn_distance_buckets(&clipped), 7);
}

/* 4.13 of docs/coverage.md: the bias, and its gradient, which is the transpose of filling. */
static void test_distance_bias(void **state)
{
    (void)state;
    enum { H = 2, Q = 9, K = 12 };
    for (int kind = 0; kind < 3; kind++) {
        attn_distance_bias rule = {.struct_size = sizeof rule, .heads = H, .len_q = Q, .len_kv = K, .offset_q = 3};
        if (kind == 2) rule.kind = ATTN_DISTANCE_CLIPPED, rule.max_distance = 4;
        else rule.buckets = 8, rule.max_distance = 9, rule.causal = kind;
        double table[H * 9], bias[H * Q * K], grad_bias[H * Q * K], grad[H * 9], there = 0, back = 0;
        const int64_t n = attn_distance_buckets(&rule);
        for (int i = 0; i < H * n; i++) table[i] = sin(i + 0.5);
        for (int i = 0; i < H * Q * K; i++) grad_bias[i] = cos(i * 1.1);
        const attn_input from = input(table), grad_from = input(grad_bias);
        const attn_output to = output(bias), grad_to = output(grad);
        assert_int_equal(attn_distance_bias_fill(&rule, &from, &to, NULL), ATTN_OK);
        for (int h = 0; h < H; h++)
            for (int i = 0; i < Q; i++)
                for (int j = 0; j < K; j++)
                    assert_true(bias[(h * Q + i) * K + j] == table[h * n + attn_distance_bucket(&rule, i + 3 - j)]);
        assert_int_equal(attn_distance_bias_backward(&rule, &grad_from, &grad_to, NULL), ATTN_OK);
        for (int i = 0; i < H * Q * K; i++) there += bias[i] * grad_bias[i];
        for (int i = 0; i < H * n; i++) back += table[i] * grad[i];
        assert_near(there, back, 1e-12);
        /* As in T5's files, [bucket][head], and the bias [query][key][head]: other strides and types, the same numbers. */
        double transposed[9 * H], grad_transposed[9 * H];
        float flat[Q * K * H];
        for (int i = 0; i < H * n; i++) transposed[i % n * H + i / n] = table[i];
        const attn_input from_transposed = {transposed, ATTN_F64, {0, 1, H, 0}}, from_flat = {flat, ATTN_F32, {0, 1, K * H, H}};
        const attn_output to_flat = {flat, ATTN_F32, {0, 1, K * H, H}}, to_transposed = {grad_transposed, ATTN_F64, {0, 1, H, 0}};
        assert_int_equal(attn_distance_bias_fill(&rule, &from_transposed, &to_flat, NULL), ATTN_OK);
        for (int i = 0; i < H * Q * K; i++) assert_true(flat[i % (Q * K) * H + i / (Q * K)] == (float)bias[i]);
        for (int i = 0; i < H * Q * K; i++) flat[i % (Q * K) * H + i / (Q * K)] = (float)grad_bias[i];
        assert_int_equal(attn_distance_bias_backward(&rule, &from_flat, &to_transposed, NULL), ATTN_OK);
        for (int i = 0; i < H * n; i++) assert_near(grad_transposed[i % n * H + i / n], grad[i], 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_frequencies), cmocka_unit_test(test_scaled_rope),
                                       cmocka_unit_test(test_tables),      cmocka_unit_test(test_table_slots),
                                       cmocka_unit_test(test_rows),        cmocka_unit_test(test_sinusoidal),
                                       cmocka_unit_test(test_learned),     cmocka_unit_test(test_alibi),
                                       cmocka_unit_test(test_buckets),     cmocka_unit_test(test_distance_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
