/* SPDX-License-Identifier: MIT
 *
 * test_embedded_mixed.c - the same in batches whose sequences take different walks: a plan chooses the walk of each sequence by its
 * own lengths, so here batches mix sequences of few and of many queries, short and long ones.
 */
#include "embedded.h"

/* Sequences under test of 1 .. 80 queries, short and long, with any grouping of heads, among sequences that take other walks. */
static void test_mixed(void **state)
{
    static const int64_t heads[][2] = {{4, 1}, {4, 4}, {8, 2}, {32, 1}, {3, 3}};
    static const int64_t keys[] = {20, 60, 64, 100, 160, 256, 257, 500, 1100};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F64};
    (void)state;
    for (int n = 0; n < 120; n += EVERY(1)) {
        const int64_t *shape = heads[n % 5], len_q = n < 80 ? n + 1 : 1 + n * 37 % 80;
        const int option = n % 2 ? n / 2 % 7 : n % 4 / 2;
        const attn_dtype dtype = types[n / 5 % 5];
        if (dtype == ATTN_F64 && option > 1) continue;
        const sizes of = {len_q,          n % 3 == 0 ? len_q + n / 40 : keys[n % 9], shape[0], shape[1], n % 4 == 3 ? DV : 16,
                          1 + (uint64_t)n};
        each_place(option, dtype, &of);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
