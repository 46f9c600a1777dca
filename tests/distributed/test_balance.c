/* SPDX-License-Identifier: MIT
 *
 * test_balance.c - attn_split_balance: the work of the busiest rank is at most 1.05 times the average, where parts are small beside
 * a rank's share. */
#include "test.h"

#include "attn/distributed.h"
#include "testing/random/random.h"

enum { DOCUMENTS = 600, PART = 256, MOST = 4096 };

static int64_t starts[DOCUMENTS + 1];
static int32_t owners_q[MOST], owners_kv[MOST];

/* Pairs that a causal mask leaves to each rank, counted one by one; the busiest of them, as a multiple of the average. */
static double imbalance(int64_t count, int64_t window, int ranks)
{
    double work[64] = {0}, all = 0, most = 0;
    for (int64_t b = 0; b < count; b++)
        for (int64_t i = starts[b]; i < starts[b + 1]; i++) {
            const int64_t before = i - starts[b] + 1;
            work[owners_q[i / PART]] += (double)(window && before > window ? window : before);
        }
    for (int r = 0; r < ranks; r++) {
        all += work[r];
        if (work[r] > most) most = work[r];
    }
    return most * ranks / all;
}

/* Lengths whose logarithms are even: many short documents, and few long ones. */
static int64_t draw_documents(uint64_t seed)
{
    random_state r = random_from(seed);
    int64_t longest = 0, n = 0;
    for (; n < DOCUMENTS && starts[n] < 100000; n++) {
        const int64_t length = (int64_t)1 << random_below(&r, 14);
        const int64_t drawn = length + random_below(&r, length);
        starts[n + 1] = starts[n] + drawn;
        if (drawn > longest) longest = drawn;
    }
    return n;
}

static void check(uint64_t seed, int64_t window, int ranks)
{
    const int64_t count = draw_documents(seed);
    int64_t longest = 0;
    for (int64_t b = 0; b < count; b++)
        if (starts[b + 1] - starts[b] > longest) longest = starts[b + 1] - starts[b];
    attn_problem p = {.struct_size = sizeof p, .shape = {count, 1, 1, longest, longest, 8, 8}, .mask.causal = 1};
    if (window) p.mask.window = 1, p.mask.window_left = window - 1, p.mask.window_right = -1;
    const attn_tensors t = {.struct_size = sizeof t, .cu_seqlens_q = attn_in(starts), .cu_seqlens_kv = attn_in(starts)};
    const attn_split split = {.struct_size = sizeof split, .part = PART};
    const attn_output q = {owners_q, ATTN_I32, {0, 0, 0, 0}}, kv = {owners_kv, ATTN_I32, {0, 0, 0, 0}};
    attn_error error;
    if (attn_split_balance(&p, ranks, &t, &split, &q, &kv, &error) != ATTN_OK) fail_msg("%s", error.message);
    const double found = imbalance(count, window, ranks);
    if (found > 1.05)
        fail_msg("seed %d, window %d, %d ranks: the busiest has %.3f of the average", (int)seed, (int)window, ranks, found);
    for (int64_t n = 0; n < (starts[count] + PART - 1) / PART; n++) assert_int_equal(owners_q[n], owners_kv[n]);
}

static void test_documents(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int ranks = 1; ranks <= 32; ranks *= 2)
            for (int64_t window = 0; window <= 500; window += 500) check(seed, window, ranks);
}

static void test_rejected(void **state)
{
    (void)state;
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 100, 100, 8, 8}};
    const attn_tensors t = {.struct_size = sizeof t};
    const attn_output q = {owners_q, ATTN_I32, {0, 0, 0, 0}}, wide = {starts, ATTN_I64, {0, 0, 0, 0}}, none = {0};
    attn_error error;
    assert_int_equal(attn_split_balance(&p, 0, &t, NULL, &q, &q, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "ranks is 0; it must be at least 1");
    assert_int_equal(attn_split_balance(&p, 2, &t, NULL, &wide, &q, &error), ATTN_ERR_UNSUPPORTED);
    assert_string_equal(error.message, "owners_q is i64; it must be i32");
    assert_int_equal(attn_split_balance(&p, 2, &t, NULL, &q, &none, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "owners_kv is missing");
    assert_int_equal(attn_split_balance(&p, 2, &t, NULL, NULL, &q, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "owners_q is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_documents), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
