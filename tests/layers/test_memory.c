/* SPDX-License-Identifier: MIT
 *
 * test_memory.c - if memory runs out in the middle of a layer's call, its outputs stay untouched.
 */
#include "test.h"

#include <stdlib.h>

#include "attn/latent.h"
#include "attn/seq2seq.h"
#include "limited_allocator.h"

enum { B = 2, LEN = 5, DIM = 4, CAPACITY = 200, SAVED = 1 << 16 };

static float inputs[3][CAPACITY], weights[7][CAPACITY], outputs[9][CAPACITY];
static unsigned char saved[SAVED];
static limited_allocator allocator_state;
static attn_options options;
static attn_layer_tensors tensors;

static void start(void)
{
    for (int i = 0; i < 3 * CAPACITY; i++) (&inputs[0][0])[i] = (float)(i % 7) * 0.25f - 0.5f;
    for (int i = 0; i < 7 * CAPACITY; i++) (&weights[0][0])[i] = (float)(i % 5) * 0.25f - 0.25f;
    options = (attn_options){.struct_size = sizeof options, .allocator = {limited_acquire, limited_release, &allocator_state}};
    tensors = (attn_layer_tensors){.struct_size = sizeof tensors,
                                   .batch = B,
                                   .len_q = LEN,
                                   .options = &options,
                                   .saved = saved,
                                   .query = attn_in(inputs[0]),
                                   .output = attn_out(outputs[0]),
                                   .weights_mean = attn_out(outputs[1]),
                                   .grad_output = attn_in(inputs[1]),
                                   .grad_query = attn_out(outputs[2])};
}

/* Calls with 0, 1, 2 ... allocations before one fails, until a call succeeds, which takes at least `least` allocations. */
static void run_out(attn_status (*call)(attn_error *error), int least)
{
    attn_error error;
    for (int left = 0;; left++) {
        allocator_state = (limited_allocator){left, 0};
        memset(outputs, 0x55, sizeof outputs);
        const attn_status status = call(&error);
        assert_int_equal(allocator_state.held, 0);
        if (status == ATTN_OK) {
            assert_true(left >= least);
            return;
        }
        assert_int_equal(status, ATTN_ERR_MEMORY);
        for (size_t i = 0; i < sizeof outputs; i++)
            if (((unsigned char *)outputs)[i] != 0x55) fail_msg("after %d allocations byte %d was written", left, (int)i);
    }
}

static const attn_seq2seq module = {
    .struct_size = sizeof module, .score = ATTN_SCORE_GENERAL, .dim_state = DIM, .dim_memory = DIM, .dim_output = 3};
static attn_seq2seq_weights of_module, grad_module;

static attn_status seq2seq_forward(attn_error *error) { return attn_seq2seq_forward(&module, &of_module, &tensors, error); }
static attn_status seq2seq_backward(attn_error *error)
{
    return attn_seq2seq_backward(&module, &of_module, &tensors, &grad_module, error);
}

static void test_seq2seq(void **state)
{
    (void)state;
    start();
    tensors.key = attn_in(inputs[2]), tensors.len_kv = LEN, tensors.grad_key = attn_out(outputs[3]);
    of_module = (attn_seq2seq_weights){sizeof of_module, .w = attn_out(weights[0]), .combine = attn_out(weights[1])};
    grad_module = (attn_seq2seq_weights){sizeof grad_module, .w = attn_out(outputs[4]), .combine = attn_out(outputs[5])};
    run_out(seq2seq_forward, 2);
    run_out(seq2seq_backward, 2);
}

static const attn_latent latent = {
    .struct_size = sizeof latent, .dim_model = DIM, .heads = 2, .head_dim = 3, .rank = 4, .rank_query = 4, .dim_rotary = 2};
static attn_latent_weights of_latent, grad_latent;

static attn_status latent_forward(attn_error *error) { return attn_latent_forward(&latent, &of_latent, &tensors, error); }
static attn_status latent_backward(attn_error *error)
{
    return attn_latent_backward(&latent, &of_latent, &tensors, &grad_latent, error);
}

static void test_latent(void **state)
{
    (void)state;
    start();
    attn_output *const w = &of_latent.query_down, *const g = &grad_latent.query_down; /* seven slots, one after the other */
    of_latent.struct_size = grad_latent.struct_size = sizeof of_latent;
    for (int i = 0; i < 7; i++) {
        const attn_output weight = attn_out(weights[i]), gradient = attn_out(outputs[2 + i]);
        memcpy((char *)w + (size_t)i * sizeof weight, &weight, sizeof weight);
        memcpy((char *)g + (size_t)i * sizeof weight, &gradient, sizeof weight);
    }
    memset(&tensors.grad_query, 0, sizeof tensors.grad_query);
    run_out(latent_forward, 3);
    run_out(latent_backward, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seq2seq), cmocka_unit_test(test_latent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
