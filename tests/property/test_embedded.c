/* SPDX-License-Identifier: MIT
 *
 * test_embedded.c - a sequence has the same bits in every memory layout: on its own, in longer tensors, padded in a batch, packed
 * between others, in pages; on any number of threads, in all four operations, with options that change scores, masks and weights.
 */
#include "embedded.h"
#include "testing/random/share.h"

static void at_lengths(int option, attn_dtype dtype, int64_t len_q, int64_t len_kv)
{
    const sizes of = {len_q, len_kv, 4, 2, DV, 0};
    each_place(option, dtype, &of);
}

static void test_lengths(void **state)
{
    (void)state;
    for (int option = 0; option < OPTIONS; option += EVERY(1) * (int)share_stride()) {
        at_lengths(option, ATTN_F32, 77, 301);
        at_lengths(option, ATTN_F32, 12, 1300);
    }
}

static void test_types(void **state)
{
    static const attn_dtype types[] = {ATTN_F64, ATTN_BF16, ATTN_F16};
    (void)state;
    for (int type = 0; type < 3; type++)
        for (int option = 0; option < OPTIONS; option += EVERY(3) * (int)share_stride()) {
            if (types[type] == ATTN_F64 && option != 0 && option != 3) continue;
            at_lengths(option, types[type], 61, 340);
        }
}

static void test_many_queries(void **state)
{
    (void)state;
    for (int option = 0; option < OPTIONS; option += EVERY(4) * (int)share_stride()) at_lengths(option, ATTN_F32, 500, 1100);
    at_lengths(1, ATTN_F32, 5, 4200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_many_queries)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_lengths"); /* the others run the same walks on the same threads */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
