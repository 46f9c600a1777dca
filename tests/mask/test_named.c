/* SPDX-License-Identifier: MIT
 * test_named.c - every mask that sparse= names, with every kind of causality, window, length and packing, in every operation: the
 * library, which gets fields and tensors, against the definitions of ref/pattern.c; and which combinations are refused. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "testing/problem/sparse.h"
#include "testing/random/share.h"
#include "testing/verdict/run.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* by_position: what the mask needs to know of queries: 0 nothing, 1 positions relative to keys, which fields have, 2 positions. */
static const struct {
    const char *name;
    int by_position;
} masks[] = {{"window/9/4", 1},
             {"sliding/7", 1},
             {"radius/5", 1},
             {"local/12", 1},
             {"diagonal/11", 1},
             {"strided/4", 1},
             {"columns/5", 0},
             {"columns/20", 0},
             {"dilated/3/4", 1},
             {"fixed/8/2", 2},
             {"fixed/7/3", 2},
             {"longformer/10/3", 1},
             {"bigbird/5/3/1/2", 0},
             {"prefix/9", 2},
             {"lengths/31/23", 0},
             {"documents/10/0/15/8", 0},
             {"documents/12/12+strided/3", 1},       /* ranges and a dilation */
             {"bigbird/4/1/2/1+columns/3", 0},       /* blocks and a row of the mask */
             {"bigbird/8/3/1/1+bigbird/6/3/1/1", 0}, /* blocks of 2 */
             {"bigbird/4/3/1/1+fixed/8/4", 2},       /* blocks of 4 */
             {"longformer/8/2+window/3/3", 2},       /* a window as ranges */
             {"radius/6+longformer/8/2", 2},
             {"longformer/8/2+strided/2", 2}, /* the second needs a matrix */
             {"diagonal/9+diagonal/6", 2}};

/* unknown: positions differ from entry to entry. */
static const struct {
    const char *words;
    int unknown;
} others[] = {{"", 0},
              {":causal", 0},
              {":causal=bottom-right", 0},
              {":skv57:causal=bottom-right", 0},
              {":skv57:window=-1,6", 0},
              {":window=12,3", 0},
              {":window=12,3:align=bottom-right", 1},
              {":causal:offset=3", 1},
              {":offset", 1},
              {":lens", 0},
              {":lens:causal", 0},
              {":lens:causal=bottom-right", 1},
              {":packed", 0},
              {":packed:causal", 0},
              {":packed:causal=bottom-right", 1},
              {":chunk=10", 0},
              {":mask=0.3", 0},
              {":mask=0.3/q1", 0},
              {":block=6,9", 0},
              {":bias:alibi:softcap=4", 0},
              {":empty=uniform", 0},
              {":hq4:hkv2:sq2:skv150", 0},
              {":index=i32:poison=nan:memory=padded", 0}};

static const char *const ops[] = {"fwd", "bwd", "jvp", "bwd2"};
static const char *const dtypes[] = {"f32", "f64", "f16", "bf16"};

static int has_size(const char *words, const char *size) { return strstr(words, size) != NULL; }

static void parse(check_case *c, const char *op, const char *dtype, const char *mask, const char *words)
{
    char text[300];
    attn_error error;
    snprintf(text, sizeof text, "%s:%s:b2%s%s:d16:seed=3:sparse=%s%s", op, dtype, has_size(words, ":hq") ? "" : ":hq2",
             has_size(words, ":sq") ? "" : ":sq45", mask, words);
    if (case_parse(text, c, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
}

/* Documents are as long as the queries, of which one case has two. */
static int fits(size_t m, size_t w) { return strncmp(masks[m].name, "documents", 9) != 0 || !has_size(others[w].words, ":sq2"); }

/* Positions that a mask needs and that are not known; Longformer's global tokens and another window are not fields together. */
static int is_refused(size_t m, size_t w)
{
    const int both = strncmp(masks[m].name, "longformer", 10) == 0 && has_size(others[w].words, ":window");
    return (masks[m].by_position == 2 || both) && others[w].unknown;
}

static void test_combinations(void **state)
{
    (void)state;
    int refused = 0, passed = 0, n = 0;
    for (size_t m = 0; m < COUNT(masks); m++)
        for (size_t w = 0; w < COUNT(others); w++)
            for (size_t o = 0; o < COUNT(ops); o++, n++) {
                check_case c;
                check_result r;
                const check_setting setting = {.options = {.struct_size = sizeof(attn_options), .threads = 1}};
                if (!fits(m, w)) continue;
                parse(&c, ops[o], dtypes[(m + w + o) % COUNT(dtypes)], masks[m].name, others[w].words);
                check_run_case(&r, &c, &setting);
                const int refuse = is_refused(m, w);
                if (r.status != (refuse ? CHECK_SKIPPED : CHECK_PASSED) ||
                    (refuse && !strstr(r.reason, " needs queries at positions ")))
                    fail_msg("%s:sparse=%s%s: %s: %s", ops[o], masks[m].name, others[w].words, check_status_name(r.status),
                             r.reason);
                refused += refuse;
                passed += !refuse;
            }
    print_message("%d combinations agree with their definitions, %d are refused\n", passed, refused);
    assert_true(refused > 0 && passed > 15 * refused / 2);
}

static void change(check_outputs *out, void *context)
{
    (void)context;
    out->numbers[TENSOR(o)][7] += 1e-3;
}

/* The comparison can fail: of results that are changed, and of a definition that is another. */
static void test_it_can_fail(void **state)
{
    (void)state;
    const check_setting setting = {.options = {.struct_size = sizeof(attn_options), .threads = 1}, .tamper = change};
    check_case c;
    check_result r;
    parse(&c, "fwd", "f32", "bigbird/5/3/1/2", "");
    check_run_case(&r, &c, &setting);
    assert_int_equal(r.status, CHECK_FAILED);
}

/* A mask has the same pairs for sets, for the reference, and at another seed of BigBird other ones. */
static void test_definitions(void **state)
{
    (void)state;
    for (size_t m = 0; m < COUNT(masks); m++) {
        attn_error error;
        sparse_masks all;
        attn_pattern list[SPARSE_MOST];
        attn_pattern_set *set;
        assert_int_equal(sparse_parse(masks[m].name, 3, &all, &error), ATTN_OK);
        for (int n = 0; n < all.count; n++) list[n] = all.named[n].pattern;
        assert_int_equal(attn_pattern_set_create(&set, 45, 45, all.count, list, &error), ATTN_OK);
        check_case c;
        check_call call;
        parse(&c, "fwd", "f32", masks[m].name, "");
        assert_int_equal(check_call_create(&call, &c, &error), ATTN_OK);
        for (int64_t i = 0; i < 45; i++)
            for (int64_t j = 0; j < 45; j++)
                if (ref_visible(&call.expected.ref, 1, 1, i, j) != attn_pattern_set_sees(set, i, j))
                    fail_msg("%s: query %d, key %d", masks[m].name, (int)i, (int)j);
        check_call_destroy(&call);
        attn_pattern_set_destroy(set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_definitions), cmocka_unit_test(test_it_can_fail),
                                       cmocka_unit_test(test_combinations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
