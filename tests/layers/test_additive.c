/* SPDX-License-Identifier: MIT
 * test_additive.c - additive attention with projections of queries and keys of different widths: a layer with additive scores. */
#include "test.h"

#include <math.h>

#include "attn/layers.h"
#include "testing/random/random.h"

/* Bahdanau's w.tanh(Wq q + Wk k + b) with queries and keys of different widths, and Luong's concat w.tanh(W [q; k]), where W is [Wq
 * Wk]: a layer of one head whose projections are parts of one matrix, and whose values are not transformed. */
static void test_projected(void **state)
{
    enum { B = 2, QUERIES = 4, KEYS = 6, OF_Q = 3, OF_K = 5, HIDDEN = 9, WIDE = OF_Q + OF_K };
    double W[HIDDEN * WIDE], b[HIDDEN], w[HIDDEN], q[B * QUERIES * OF_Q], k[B * KEYS * OF_K], same[OF_K * OF_K] = {0};
    double y[B * QUERIES * OF_K];
    random_state random = {5};
    (void)state;
    for (int n = 0; n < HIDDEN * WIDE; n++) W[n] = 2 * random_unit(&random) - 1;
    for (int n = 0; n < HIDDEN; n++) b[n] = random_unit(&random), w[n] = 2 * random_unit(&random) - 1;
    for (int n = 0; n < B * QUERIES * OF_Q; n++) q[n] = 2 * random_unit(&random) - 1;
    for (int n = 0; n < B * KEYS * OF_K; n++) k[n] = 2 * random_unit(&random) - 1;
    for (int n = 0; n < OF_K; n++) same[n * OF_K + n] = 1;

    const attn_problem additive = {.struct_size = sizeof additive, .score = {.kind = ATTN_SCORE_ADDITIVE}};
    const attn_tensors weights_of_scores = {.struct_size = sizeof weights_of_scores, .score_matrix = {w, ATTN_F64, {0, 0, 0, 0}}};
    const attn_layer layer = {.struct_size = sizeof layer,
                              .dtype = ATTN_F64,
                              .dim_model = OF_Q,
                              .dim_key = OF_K,
                              .heads_q = 1,
                              .head_dim = HIDDEN,
                              .head_dim_v = OF_K,
                              .no_output = 1,
                              .attention = &additive};
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query = {W, ATTN_F64, {0, HIDDEN * WIDE, WIDE, 1}},
                                        .query_bias.data = b,
                                        .key = {W + OF_Q, ATTN_F64, {0, HIDDEN * WIDE, WIDE, 1}},
                                        .value.data = same};
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = B,
                                     .len_q = QUERIES,
                                     .len_kv = KEYS,
                                     .query = {.data = q},
                                     .key = {.data = k},
                                     .output = {.data = y},
                                     .attention = &weights_of_scores};
    attn_error error;
    if (attn_layer_forward(&layer, &weights, &args, &error) != ATTN_OK) fail_msg("%s", error.message);

    for (int i = 0; i < B * QUERIES; i++) {
        const double *keys = k + i / QUERIES * KEYS * OF_K;
        double P[KEYS], sum = 0;
        for (int j = 0; j < KEYS; j++) {
            double s = 0;
            for (int h = 0; h < HIDDEN; h++) {
                double z = b[h];
                for (int c = 0; c < WIDE; c++) z += W[h * WIDE + c] * (c < OF_Q ? q[i * OF_Q + c] : keys[j * OF_K + c - OF_Q]);
                s += w[h] * tanh(z);
            }
            sum += P[j] = exp(s);
        }
        for (int c = 0; c < OF_K; c++) {
            double o = 0;
            for (int j = 0; j < KEYS; j++) o += P[j] / sum * keys[j * OF_K + c];
            assert_true(fabs(o - y[i * OF_K + c]) < 1e-13);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_projected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
