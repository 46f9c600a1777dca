/* SPDX-License-Identifier: MIT
 *
 * test_run_outputs.c - `attn run` writes statistics and scores with the documented names and shapes, and the values of ref/.
 */
#include "run_example.h"

enum { B = 2, HQ = 4, HKV = 2, SQ = 3, SKV = 5, D = 4, TOP = 6, ROWS = B * HQ * SQ, PAIRS = ROWS * SKV };

static double Q[ROWS * D], K[B * HKV * SKV * D], O[ROWS * D], lse[ROWS], S[PAIRS], P[PAIRS];
static double raw[PAIRS], capped[PAIRS], row_max[ROWS], entropy[ROWS], effective[ROWS], sums[B * HQ * SKV], top[ROWS * TOP];
static int64_t index_of[ROWS * TOP];

static void add(attn_archive *file, const char *name, int64_t heads, int64_t tokens, double *values, double phase)
{
    for (int64_t k = 0; k < B * heads * tokens * D; k++) values[k] = (float)number(k, phase);
    add_floats(file, name, 4, (int64_t[]){B, heads, tokens, D}, values);
}

/* Writes in.safetensors, with v the same as k, and computes the results of ref/ with causal=bottom-right. */
static void prepare(int64_t share, int64_t last)
{
    static const int64_t offset[B] = {SKV - SQ, SKV - SQ};
    attn_archive *file = new_file();
    add(file, "q", HQ, SQ, Q, 0);
    add(file, "k", HKV, SKV, K, 1);
    add(file, "v", HKV, SKV, K, 1);
    write_file(file, "in.safetensors");
    const ref_problem p = {.B = B,
                           .Hq = HQ,
                           .Hkv = HKV,
                           .Sq = SQ,
                           .Skv = SKV,
                           .D = D,
                           .Dv = D,
                           .Q = Q,
                           .K = K,
                           .V = K,
                           .scale = 0.5,
                           .causal = 1,
                           .offset = offset};
    const ref_outputs rows = {raw, capped, row_max, entropy, effective, TOP, index_of, top, share, last, sums};
    ref_forward(&p, O, lse, S, P);
    ref_outputs_of(&p, S, P, &rows);
}

static attn_archive *outputs(const char *words)
{
    char all[400];
    snprintf(all, sizeof all, "in.safetensors -o out.safetensors --causal=bottom-right %s", words);
    run(all);
    return read_file("out.safetensors");
}

static void assert_tensor(const attn_archive *out, const char *name, int rank, const int64_t *shape, const double *expected)
{
    const attn_archive_tensor *t = attn_archive_find(out, name);
    int64_t count = 1;
    if (!t) fail_msg("no %s", name);
    assert_int_equal(t->rank, rank);
    for (int axis = 0; axis < rank; axis++) {
        assert_int_equal(t->shape[axis], shape[axis]);
        count *= shape[axis];
    }
    for (int64_t k = 0; k < count; k++) {
        double x = t->dtype == ATTN_I64 ? (double)((const int64_t *)t->data)[k] : (double)((const float *)t->data)[k];
        if (x != expected[k] && !(fabs(x - expected[k]) < 1e-5))
            fail_msg("%s[%d] is %g instead of %g", name, (int)k, x, expected[k]);
    }
}

static void statistics(void **state)
{
    double indices[ROWS * TOP];
    (void)state;
    prepare(1, 0);
    for (int k = 0; k < ROWS * TOP; k++) indices[k] = (double)index_of[k];
    attn_archive *out = outputs("--row-max --entropy --effective-keys --column-sum --topk=6");
    assert_tensor(out, "row_max", 3, (int64_t[]){B, HQ, SQ}, row_max);
    assert_tensor(out, "entropy", 3, (int64_t[]){B, HQ, SQ}, entropy);
    assert_tensor(out, "effective_keys", 3, (int64_t[]){B, HQ, SQ}, effective);
    assert_tensor(out, "column_sum", 3, (int64_t[]){B, HQ, SKV}, sums);
    assert_tensor(out, "topk_index", 4, (int64_t[]){B, HQ, SQ, TOP}, indices);
    assert_tensor(out, "topk_weight", 4, (int64_t[]){B, HQ, SQ, TOP}, top);
    assert_null(attn_archive_find(out, "scores"));
    attn_archive_destroy(out);
}

static void column_sums(void **state)
{
    (void)state;
    prepare(HQ / HKV, 2);
    attn_archive *out = outputs("--column-sum=group --column-queries=2");
    assert_tensor(out, "column_sum", 3, (int64_t[]){B, HKV, SKV}, sums);
    attn_archive_destroy(out);
    prepare(HQ, 0);
    out = outputs("--column-sum=all");
    assert_tensor(out, "column_sum", 3, (int64_t[]){B, 1, SKV}, sums);
    attn_archive_destroy(out);
}

static void scores(void **state)
{
    static const struct {
        const char *words;
        const double *expected;
    } stages[] = {
        {"--scores", raw}, {"--scores=raw", raw}, {"--scores=capped", capped}, {"--scores=biased", S}, {"--scores=weights", P}};
    (void)state;
    prepare(1, 0);
    for (size_t k = 0; k < sizeof stages / sizeof *stages; k++) {
        attn_archive *out = outputs(stages[k].words);
        assert_tensor(out, "scores", 4, (int64_t[]){B, HQ, SQ, SKV}, stages[k].expected);
        attn_archive_destroy(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(statistics), cmocka_unit_test(column_sums), cmocka_unit_test(scores)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
