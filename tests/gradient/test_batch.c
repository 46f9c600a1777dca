/* SPDX-License-Identifier: MIT
 * test_batch.c - gradients of a batch entry have the same bits alone and in a batch, whatever the schedule. */
#include "test.h"

#include "attn/attn.h"
#include "testing/random/random.h"

enum { B = 9, HEADS = 2, SQ = 200, SKV = 180, D = 16, WHOLE = HEADS * SQ * D, KEYS = HEADS * SKV * D };

static float q[B * WHOLE], k[B * KEYS], v[B * KEYS], dO[B * WHOLE];

typedef struct results {
    float o[B * WHOLE], lse[B * HEADS * SQ], dq[B * WHOLE], dk[B * KEYS], dv[B * KEYS];
} results;

static void run(int64_t batch, int64_t from, results *r)
{
    attn_problem p = {.struct_size = sizeof p, .shape = {batch, HEADS, HEADS, SQ, SKV, D, D}, .mask = {.causal = 1}};
    attn_tensors a = {.struct_size = sizeof a,
                      .q = attn_in(q + from * WHOLE),
                      .k = attn_in(k + from * KEYS),
                      .v = attn_in(v + from * KEYS),
                      .o = attn_out(r->o),
                      .lse = attn_out(r->lse)};
    attn_error error;
    if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
    p.op = ATTN_BACKWARD;
    a.grad_o = attn_in(dO + from * WHOLE), a.grad_q = attn_out(r->dq), a.grad_k = attn_out(r->dk), a.grad_v = attn_out(r->dv);
    if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static void test_batch(void **state)
{
    static results all, one;
    random_state r = random_from(12345);
    float *inputs[] = {q, k, v, dO};
    const size_t counts[] = {B * WHOLE, B * KEYS, B * KEYS, B * WHOLE};
    (void)state;
    for (int n = 0; n < 4; n++)
        for (size_t i = 0; i < counts[n]; i++) inputs[n][i] = (float)random_signed(&r);
    run(B, 0, &all); /* 18 key heads: one task computes all splits of a head */
    for (int64_t b = 0; b < B; b += 4) {
        run(1, b, &one); /* 2 key heads: splits run concurrently */
        assert_memory_equal(one.dq, all.dq + b * WHOLE, WHOLE * sizeof(float));
        assert_memory_equal(one.dk, all.dk + b * KEYS, KEYS * sizeof(float));
        assert_memory_equal(one.dv, all.dv + b * KEYS, KEYS * sizeof(float));
    }
    run(3, 0, &one); /* 6 key heads: two splits at a time */
    assert_memory_equal(one.dk, all.dk, 3 * KEYS * sizeof(float));
    assert_memory_equal(one.dv, all.dv, 3 * KEYS * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
