/* SPDX-License-Identifier: MIT
 * test_no_tokens.c - any number of entries without tokens: a layer returns at once, and the gradients of its weights are 0. */
#include "promptly.h"

#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"

enum { MODEL = 4 };

static float w[2 * MODEL * MODEL], grad[4][2 * MODEL * MODEL], rows[MODEL];
static char saved[1024];

/* 2^31 - 1 entries of no tokens. */
static attn_layer_tensors call(void)
{
    return (attn_layer_tensors){.struct_size = sizeof(attn_layer_tensors),
                                .batch = INT32_MAX,
                                .saved = saved,
                                .query = attn_in(rows),
                                .output = attn_out(rows),
                                .grad_output = attn_in(rows),
                                .grad_query = attn_out(rows)};
}

static void reset(void) { memset(grad, 0xa5, sizeof grad); }

static void are_zero(int n, int count)
{
    for (int i = 0; i < count; i++) assert_true(grad[n][i] == 0);
}

static void test_layer(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) { /* by bits: without projections, with an extra key and biases */
        const int plain = variant & 1, more = variant >> 1;
        const attn_layer layer = {.struct_size = sizeof layer,
                                  .dim_model = MODEL,
                                  .heads_q = 2,
                                  .no_query = plain,
                                  .no_key = plain,
                                  .no_value = plain,
                                  .no_output = plain};
        attn_layer_weights weights = {.struct_size = sizeof weights}, gradients = weights;
        const attn_layer_tensors t = call();
        if (!plain) {
            weights.query = weights.key = weights.value = weights.output = attn_out(w);
            gradients.query = attn_out(grad[0]), gradients.output = attn_out(grad[1]);
        }
        if (more) {
            weights.extra_key = weights.extra_value = weights.query_bias = attn_out(w);
            gradients.extra_key = attn_out(grad[2]), gradients.query_bias = attn_out(grad[3]);
        }
        reset();
        PROMPTLY(attn_layer_forward(&layer, &weights, &t, NULL), ATTN_OK);
        PROMPTLY(attn_layer_backward(&layer, &weights, &t, &gradients, NULL), ATTN_OK);
        for (int n = 0; n < 4; n++)
            if (n < 2 ? !plain : more) are_zero(n, n < 2 ? MODEL * MODEL : MODEL);
    }
}

static void test_latent(void **state)
{
    const attn_latent latent = {
        .struct_size = sizeof latent, .dim_model = MODEL, .heads = 2, .head_dim = 2, .rank = 2, .dim_rotary = 2};
    const attn_latent_weights weights = {.struct_size = sizeof weights,
                                         .query = attn_out(w),
                                         .down = attn_out(w),
                                         .up = attn_out(w),
                                         .output = attn_out(w)},
                              gradients = {.struct_size = sizeof gradients, .query = attn_out(grad[0]), .up = attn_out(grad[1])};
    const attn_layer_tensors t = call();
    (void)state;
    reset();
    PROMPTLY(attn_latent_forward(&latent, &weights, &t, NULL), ATTN_OK);
    PROMPTLY(attn_latent_backward(&latent, &weights, &t, &gradients, NULL), ATTN_OK);
    are_zero(0, 2 * MODEL * MODEL);
    are_zero(1, 4 * 2 * 2);
}

static void test_seq2seq(void **state)
{
    const attn_seq2seq module = {
        .struct_size = sizeof module, .score = ATTN_SCORE_DOT, .dim_state = MODEL, .dim_memory = MODEL, .dim_output = MODEL};
    const attn_seq2seq_weights weights = {.struct_size = sizeof weights, .combine = attn_out(w)},
                               gradients = {.struct_size = sizeof gradients, .combine = attn_out(grad[1])};
    attn_layer_tensors t = call();
    (void)state;
    t.key = attn_in(rows);
    reset();
    PROMPTLY(attn_seq2seq_forward(&module, &weights, &t, NULL), ATTN_OK);
    PROMPTLY(attn_seq2seq_backward(&module, &weights, &t, &gradients, NULL), ATTN_OK);
    are_zero(1, 2 * MODEL * MODEL);
    t.batch = 0, t.len_q = INT64_MAX; /* strides would overflow beside the 0 */
    attn_error error;
    assert_int_equal(attn_seq2seq_forward(&module, &weights, &t, &error), ATTN_ERR_SHAPE);
    assert_string_equal(error.message, "layer: len_q (9223372036854775807) is more than 2147483647");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layer), cmocka_unit_test(test_latent), cmocka_unit_test(test_seq2seq)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
