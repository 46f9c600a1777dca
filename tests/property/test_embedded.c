/* SPDX-License-Identifier: MIT
 *
 * test_embedded.c - a sequence has the same bits in every memory layout: on its own, in longer tensors, padded in a batch, packed
 * between others, in pages; on any number of threads, in all four operations, with options that change scores, masks and weights.
 */
#include "embedded.h"
#include "testing/random/share.h"

/* One in `every` of the options, or a share of these, from number `from` on: so that shares of several loops are not of the same.
 */
#define EACH_OPTION(option, every, from)                                                                                           \
    for (int stride = EVERY(every) * (int)share_stride(), option = (from) % stride % OPTIONS; option < OPTIONS; option += stride)

static void at_lengths(int option, attn_dtype dtype, int64_t len_q, int64_t len_kv)
{
    const sizes of = {len_q, len_kv, 4, 2, DV, 0};
    each_place(option, dtype, &of);
}

static void test_lengths(void **state)
{
    (void)state;
    EACH_OPTION(option, 1, 0) at_lengths(option, ATTN_F32, 77, 301);
    EACH_OPTION(option, 1, 3) at_lengths(option, ATTN_F32, 12, 1300);
}

static void test_types(void **state)
{
    (void)state;
    at_lengths(0, ATTN_F64, 61, 340);
    at_lengths(3, ATTN_F64, 61, 340);
    EACH_OPTION(option, 3, 5) at_lengths(option, ATTN_BF16, 61, 340);
    EACH_OPTION(option, 3, 10) at_lengths(option, ATTN_F16, 61, 340);
}

static void test_many_queries(void **state)
{
    (void)state;
    EACH_OPTION(option, 4, 9) at_lengths(option, ATTN_F32, 500, 1100);
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
