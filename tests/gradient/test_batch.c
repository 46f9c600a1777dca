/* SPDX-License-Identifier: MIT
 * test_batch.c - the gradients of a batch entry have the same bits alone and among others, whatever that does to the schedule. */
#include "test.h"

#include "attn/attn.h"

enum { B = 9, HEADS = 2, SQ = 200, SKV = 180, D = 16, WHOLE = HEADS * SQ * D, KEYS = HEADS * SKV * D };

static float q[B * WHOLE], k[B * KEYS], v[B * KEYS], dO[B * WHOLE];

typedef struct results {
    float o[B * WHOLE], lse[B * HEADS * SQ], dq[B * WHOLE], dk[B * KEYS], dv[B * KEYS];
} results;

static void run(int64_t batch, int64_t from, results *r)
{
    attn_problem p = {
        .struct_size = sizeof p, .shape = {batch, HEADS, HEADS, SQ, SKV, D, D}, .mask = {.causal = 1}, .want = {.lse = 1}};
    attn_args a = {.struct_size = sizeof a,
                   .q = q + from * WHOLE,
                   .k = k + from * KEYS,
                   .v = v + from * KEYS,
                   .o = r->o,
                   .lse = r->lse,
                   .grad_o = dO + from * WHOLE,
                   .grad_q = r->dq,
                   .grad_k = r->dk,
                   .grad_v = r->dv};
    attn_error error;
    if (attn_forward(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
    p.op = ATTN_BACKWARD;
    if (attn_forward(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static void test_batch(void **state)
{
    static results all, one;
    uint32_t x = 12345;
    float *inputs[] = {q, k, v, dO};
    const size_t counts[] = {B * WHOLE, B * KEYS, B * KEYS, B * WHOLE};
    (void)state;
    for (int n = 0; n < 4; n++)
        for (size_t i = 0; i < counts[n]; i++) inputs[n][i] = (float)((x = x * 1664525u + 1013904223u) >> 8) / (float)(1 << 23) - 1;
    run(B, 0, &all); /* 18 key heads: a task goes through all splits of one */
    for (int64_t b = 0; b < B; b += 4) {
        run(1, b, &one); /* 2: splits run at the same time */
        assert_memory_equal(one.dq, all.dq + b * WHOLE, WHOLE * sizeof(float));
        assert_memory_equal(one.dk, all.dk + b * KEYS, KEYS * sizeof(float));
        assert_memory_equal(one.dv, all.dv + b * KEYS, KEYS * sizeof(float));
    }
    run(3, 0, &one); /* 6: two at a time */
    assert_memory_equal(one.dk, all.dk, 3 * KEYS * sizeof(float));
    assert_memory_equal(one.dv, all.dv, 3 * KEYS * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
