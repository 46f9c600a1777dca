/* SPDX-License-Identifier: MIT
 * test_packed.c - packed sequences of different lengths give the results of one call per sequence, forward and backward. */
#include "test.h"

#include <math.h>

#include "attn/layers.h"

enum { E = 8, SEQUENCES = 4, TOTAL_Q = 11, TOTAL_KV = 13, LONGEST = 6, NUMBERS = 4 * E * E };

static const int64_t begin_q[SEQUENCES + 1] = {0, 3, 3, 9, 11}, begin_kv[SEQUENCES + 1] = {0, 5, 6, 9, 13};
static const int32_t narrow_q[SEQUENCES + 1] = {0, 3, 3, 9, 11};

typedef struct numbers {
    double w[4][E * E], b[4][E], extra[2][E], xq[TOTAL_Q * E], xk[TOTAL_KV * E], dy[TOTAL_Q * E];
} numbers;

typedef struct results {
    double y[TOTAL_Q * E], dq[TOTAL_Q * E], dk[TOTAL_KV * E], dw[4][E * E], db[4][E], dextra[2][E],
        mean[SEQUENCES * LONGEST * (LONGEST + 1)];
} results;

static void draw(numbers *n)
{
    double *x = (double *)n;
    for (size_t i = 0; i < sizeof *n / sizeof *x; i++) x[i] = sin(1.7 * (double)i + 0.3 * (double)(i % 11));
}

static attn_layer_weights weights_of(numbers *n)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query.data = n->w[0],
                                .query_bias.data = n->b[0],
                                .key.data = n->w[1],
                                .key_bias.data = n->b[1],
                                .value.data = n->w[2],
                                .value_bias.data = n->b[2],
                                .output.data = n->w[3],
                                .output_bias.data = n->b[3],
                                .extra_key.data = n->extra[0],
                                .extra_value.data = n->extra[1]};
}

static attn_layer_weights gradients_of(results *r)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query.data = r->dw[0],
                                .query_bias.data = r->db[0],
                                .key.data = r->dw[1],
                                .key_bias.data = r->db[1],
                                .value.data = r->dw[2],
                                .value_bias.data = r->db[2],
                                .output.data = r->dw[3],
                                .output_bias.data = r->db[3],
                                .extra_key.data = r->dextra[0],
                                .extra_value.data = r->dextra[1]};
}

/* Forward and backward of one call, whose first query and key are those given. */
static void run(const attn_layer *layer, numbers *n, results *r, attn_layer_tensors a, int self, int64_t first_q, int64_t first_kv)
{
    static double saved[16 * 1024];
    attn_error error;
    const attn_layer_weights w = weights_of(n), g = gradients_of(r);
    a.struct_size = sizeof a;
    a.saved = saved;
    a.query.data = n->xq + first_q * E;
    a.output.data = r->y + first_q * E;
    a.grad_output.data = n->dy + first_q * E;
    a.grad_query.data = r->dq + first_q * E;
    if (!self) a.key.data = n->xk + first_kv * E, a.grad_key.data = r->dk + first_kv * E;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    assert_int_equal(attn_layer_count(layer, 1, TOTAL_Q, TOTAL_KV, &w, &counts, NULL), ATTN_OK);
    assert_true(counts.saved_bytes <= (int64_t)sizeof saved);
    if (attn_layer_forward(layer, &w, &a, &error) != ATTN_OK || attn_layer_backward(layer, &w, &a, &g, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static void expect(const double *got, const double *expected, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++) /* sums of fewer than 1000 products below 10 */
        if (!(fabs(got[i] - expected[i]) <= 1e4 * 0x1p-53))
            fail_msg("%s[%d] is %.17g, not %.17g", what, (int)i, got[i], expected[i]);
}

static void compare(int self, int narrow)
{
    static numbers n;
    static results packed, single, sum;
    const attn_rope rope = {.struct_size = sizeof rope, .base = 50};
    attn_problem options = {.struct_size = sizeof options};
    attn_layer layer = {.struct_size = sizeof layer,
                        .dtype = ATTN_F64,
                        .dim_model = E,
                        .heads_q = 4,
                        .heads_kv = 4,
                        .rope = &rope,
                        .attention = &options};
    const int64_t *const keys = self ? begin_q : begin_kv;
    attn_tensors pointers = {.struct_size = sizeof pointers, .cu_seqlens_q = attn_in(begin_q), .cu_seqlens_kv = attn_in(keys)};
    draw(&n);
    memset(&sum, 0, sizeof sum);
    options.mask.causal = 1;
    if (narrow) pointers.cu_seqlens_q = pointers.cu_seqlens_kv = (attn_input){narrow_q, ATTN_I32, {0, 0, 0, 0}};
    attn_layer_tensors args = {.batch = SEQUENCES,
                               .len_q = LONGEST,
                               .len_kv = self ? 0 : LONGEST,
                               .attention = &pointers,
                               .weights_mean = attn_out(packed.mean)};
    run(&layer, &n, &packed, args, self, 0, 0);

    for (int b = 0; b < SEQUENCES; b++) {
        const int64_t q = begin_q[b + 1] - begin_q[b], kv = keys[b + 1] - keys[b];
        static double mean[LONGEST * (LONGEST + 1)];
        args = (attn_layer_tensors){.batch = 1, .len_q = q, .len_kv = self ? 0 : kv, .weights_mean = attn_out(mean)};
        run(&layer, &n, &single, args, self, begin_q[b], keys[b]);
        for (int64_t i = 0; i < q; i++) { /* columns: keys, and the extra key, which is the last one in both */
            const double *got = packed.mean + (b * LONGEST + i) * (LONGEST + 1), *expected = mean + i * (kv + 1);
            expect(got, expected, kv, "mean weights");
            expect(got + LONGEST, expected + kv, 1, "weight of the extra key");
        }
        for (int p = 0; p < 4; p++) {
            for (int i = 0; i < E * E; i++) sum.dw[p][i] += single.dw[p][i];
            for (int i = 0; i < E; i++) sum.db[p][i] += single.db[p][i];
        }
        for (int i = 0; i < 2 * E; i++) sum.dextra[i / E][i % E] += single.dextra[i / E][i % E];
    }
    expect(packed.y, single.y, TOTAL_Q * E, "y");
    expect(packed.dq, single.dq, TOTAL_Q * E, "grad_query");
    if (!self) expect(packed.dk, single.dk, TOTAL_KV * E, "grad_key");
    expect(packed.dw[0], sum.dw[0], NUMBERS, "gradient of a weight");
    expect(packed.db[0], sum.db[0], 4 * E, "gradient of a bias");
    expect(packed.dextra[0], sum.dextra[0], 2 * E, "gradient of the extra key");
}

static void test_self(void **state)
{
    (void)state;
    compare(1, 0);
    compare(1, 1);
}

static void test_cross(void **state)
{
    (void)state;
    compare(0, 0);
}

/* Weights of each head: those of the keys and the extra key add up to 1. */
static void test_weights(void **state)
{
    static numbers n;
    static double y[TOTAL_Q * E], P[4 * TOTAL_Q * TOTAL_Q], mean[TOTAL_Q * (TOTAL_Q + 1)];
    attn_problem options = {.struct_size = sizeof options};
    const attn_layer layer = {.struct_size = sizeof layer, .dtype = ATTN_F64, .dim_model = E, .heads_q = 4, .attention = &options};
    const attn_tensors pointers = {.struct_size = sizeof pointers, .weights = attn_out(P)};
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = 1,
                                     .len_q = TOTAL_Q,
                                     .query = {.data = n.xq},
                                     .output = {.data = y},
                                     .attention = &pointers,
                                     .weights_mean = attn_out(mean)};
    (void)state;
    draw(&n);
    const attn_layer_weights w = weights_of(&n);
    assert_int_equal(attn_layer_forward(&layer, &w, &args, NULL), ATTN_OK);
    for (int i = 0; i < TOTAL_Q; i++) {
        double left = 1;
        for (int j = 0; j < TOTAL_Q; j++) {
            double sum = 0;
            for (int h = 0; h < 4; h++) sum += P[(h * TOTAL_Q + i) * TOTAL_Q + j] / 4;
            assert_true(fabs(sum - mean[i * (TOTAL_Q + 1) + j]) < 64 * 0x1p-53);
            left -= sum;
        }
        assert_true(fabs(left - mean[i * (TOTAL_Q + 1) + TOTAL_Q]) < 64 * 0x1p-53);
        assert_true(left > 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_self), cmocka_unit_test(test_cross), cmocka_unit_test(test_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
