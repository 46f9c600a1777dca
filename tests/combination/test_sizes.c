/* SPDX-License-Identifier: MIT
 *
 * test_sizes.c - extreme sizes against ref/, for every operation: sizes and lengths of 0 and 1, windows wider than the sequence,
 * offsets beyond both ends.
 */
#include "test.h"

#include "outcome.h"

static void check(const char *words)
{
    static const char *const types[] = {"f32", "f64", "f16", "bf16"};
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    for (int type = 0; type < 4; type++)
        for (int n = 0; n < (type < 2 ? 4 : 2); n++) {
            char text[300];
            combination c;
            (void)snprintf(text, sizeof text, "%s:%s", types[type], words);
            combination_parse(&c, text, 0);
            (void)outcome_fraction(&c, ops[n], 2);
            combination_free(&c);
        }
}

/* Options that treat sizes specially. */
static const char *const options[] = {
    "lse",
    "causal=bottom-right:lens:alibi=batch-head:sink",
    "packed:window=2,3:dropout=0.5",
    "mask=0.5/b1:block=3,5/0.5:bias=h1k1:empty=uniform",
    "chunk=3:softcap=1.5:temperature=0.75:scale=heads:bias=b1h1q1k1",
};
enum { OPTIONS = sizeof options / sizeof *options };

static void check_shape(int64_t b, int64_t hq, int64_t hkv, int64_t sq, int64_t skv, int64_t d, int64_t dv)
{
    for (int n = 0; n < OPTIONS; n++) {
        char words[200];
        (void)snprintf(words, sizeof words, "b%d:hq%d:hkv%d:sq%d:skv%d:d%d:dv%d:%s", (int)b, (int)hq, (int)hkv, (int)sq, (int)skv,
                       (int)d, (int)dv, options[n]);
        check(words);
    }
}

/* Each size 0 alone, and all pairs of them. */
static void test_zero(void **state)
{
    (void)state;
    for (int x = 0; x < 6; x++)
        for (int y = x; y < 6; y++) {
            int64_t size[] = {2, 4, 7, 9, 5, 6};
            size[x] = size[y] = 0;
            check_shape(size[0], size[1], size[1] ? 2 : 0, size[2], size[3], size[4], size[5]);
        }
}

static void test_one(void **state)
{
    (void)state;
    for (int x = 0; x < 6; x++) {
        int64_t size[] = {2, 2, 7, 9, 5, 6};
        size[x] = 1;
        check_shape(size[0], size[1], size[1], size[2], size[3], size[4], size[5]);
    }
    check_shape(1, 1, 1, 1, 1, 1, 1);
    check_shape(3, 5, 1, 1, 70, 3, 4); /* one query, all heads share one key head */
    check_shape(1, 1, 1, 70, 1, 3, 4);
}

static void test_lengths(void **state)
{
    (void)state;
    for (int seed = 0; seed < 12; seed++) { /* short sequences: many random lengths are 0 */
        char words[200];
        (void)snprintf(words, sizeof words, "b5:hq2:sq2:skv2:d3:dv4:%s:%s:seed=%d", seed % 3 ? "lens" : "packed",
                       seed % 2 ? "causal=bottom-right" : "alibi:sink", seed);
        check(words);
    }
}

static void test_windows_and_offsets(void **state)
{
    static const char *const words[] = {
        "window=1000,1000",
        "window=0,0",
        "window=-1,-1",
        "window=9223372036854775807,9223372036854775807",
        "window=1000,0:causal",
        "window=3,1000:offset=-5",
        "causal:offset=1000",
        "causal:offset=-1000",
        "causal:offset=-20",
        "causal:offset=-19",
        "window=3,3:offset=1000",
        "window=3,3:offset=-1000",
        "chunk=1000",
        "chunk=5:offset=1000",
        "chunk=5:offset=-1000",
        "chunk=9223372036854775807",
        "alibi:offset=-1000",
        "causal:offset=-1000:empty=uniform",
        "offset:window=4,4:causal",
        "causal=bottom-right:sink",
    };
    (void)state;
    for (size_t n = 0; n < sizeof words / sizeof *words; n++)
        for (int tall = 0; tall < 2; tall++) {
            char text[200];
            (void)snprintf(text, sizeof text, "b2:hq2:hkv1:sq%d:skv%d:d3:dv4:%s", tall ? 33 : 20, tall ? 20 : 33, words[n]);
            check(text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zero), cmocka_unit_test(test_one), cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_windows_and_offsets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
