/* SPDX-License-Identifier: MIT
 *
 * test_normalisers.c - normalisers other than softmax: softmax with one in the denominator, the sigmoid, ReLU over the number of
 * visible keys; on random combinations of all options, score kinds and storage types: forward and backward against ref/ within the
 * bound on every instruction set, backward against differences, the same bits for any number of threads.
 */
#include "drawn.h"

enum { SEEDS = 72, FIRST = 90000, KINDS = 3 };

static const char *const names[KINDS] = {"softmax one", "sigmoid", "relu"};

/* Half of them have a score other than the dot product. */
static void draw(combination *c, uint64_t seed, attn_dtype dtype, int flags)
{
    const uint64_t which = seed % KINDS;
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    spec.sink = 0;
    spec.empty = SPEC_EMPTY_ZERO;
    spec.normaliser = (int)(ATTN_NORMALISER_SOFTMAX_ONE + which);
    if (which == 1) spec.shift = -log((double)spec.shape.len_kv + 1);
    combination_of(c, &spec, (seed / KINDS % 2 ? KIND : 0) | flags);
}

static const drawn_kinds all = {names, KINDS, FIRST, SEEDS, 2, draw};

static void test_types(void **state)
{
    (void)state;
    drawn_check_types(&all);
}

static void test_differences(void **state)
{
    (void)state;
    drawn_check_differences(&all, 24);
}

static void test_same_bits(void **state)
{
    static const int thread_counts[] = {2, 8};
    (void)state;
    drawn_check_bits(&all, 4, thread_counts, sizeof thread_counts / sizeof *thread_counts);
}

/* Weights, their column sums, lse and scores at every stage against the definition. */
static void test_weights(void **state)
{
    enum { S = 19, D = 4 };
    (void)state;
    for (int kind = ATTN_NORMALISER_SOFTMAX_ONE; kind <= ATTN_NORMALISER_RELU; kind++) {
        double q[S * D], k[S * D], v[S * D], o[S * D], lse[S], weights[S * S], sums[S], expected[S] = {0};
        random_state random = random_from(7);
        attn_error error;
        attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, S, S, D, D}, .mask.causal = 1};
        attn_tensors a = {
            .struct_size = sizeof a, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o), .lse = attn_out(lse)};
        a.q.dtype = ATTN_F64, a.weights = attn_out(weights), a.column_sum = attn_out(sums);
        for (int n = 0; n < S * D; n++)
            q[n] = random_signed(&random), k[n] = 3 * random_signed(&random), v[n] = random_signed(&random);
        p.score.normaliser = (attn_normaliser)kind;
        p.score.shift = kind == ATTN_NORMALISER_SIGMOID ? -1.5 : 0;
        if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int i = 0; i < S; i++) {
            double w[S] = {0}, sum = 1;
            for (int j = 0; j <= i; j++) {
                double s = 0;
                for (int c = 0; c < D; c++) s += q[i * D + c] * k[j * D + c] / 2;
                w[j] = kind == ATTN_NORMALISER_SIGMOID ? 1 / (1 + exp(1.5 - s))
                       : kind == ATTN_NORMALISER_RELU  ? fmax(s, 0) / (i + 1)
                                                       : exp(s);
                sum += w[j];
            }
            for (int j = 0; j < S; j++) {
                if (kind == ATTN_NORMALISER_SOFTMAX_ONE) w[j] /= sum;
                assert_true(fabs(weights[i * S + j] - w[j]) < 1e-14);
                expected[j] += w[j];
            }
            const double log_of = kind == ATTN_NORMALISER_SIGMOID ? 0 : kind == ATTN_NORMALISER_RELU ? log(i + 1) : log(sum);
            assert_true(fabs(lse[i] - log_of) < 1e-14);
        }
        for (int j = 0; j < S; j++) assert_true(fabs(sums[j] - expected[j]) < 1e-13);
        for (int stage = ATTN_STAGE_RAW; stage <= ATTN_STAGE_WEIGHTS; stage++) {
            double at_stage[S * S];
            a.scores = attn_out(at_stage);
            p.outputs.scores_stage = (attn_stage)stage;
            if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
            for (int i = 0; i < S; i++)
                for (int j = 0; j < S; j++) {
                    double s = 0;
                    for (int c = 0; c < D; c++) s += q[i * D + c] * k[j * D + c] / 2;
                    if (stage == ATTN_STAGE_WEIGHTS) s = weights[i * S + j]; /* which have been compared */
                    else if (stage == ATTN_STAGE_BIASED && j > i) s = -INFINITY;
                    const double got = at_stage[i * S + j];
                    if (got != s && !(fabs(got - s) < 1e-14)) fail_msg("kind %d, stage %d: %g, not %g", kind, stage, got, s);
                }
        }
    }
}

/* Softmax with one in the denominator equals a sink of 0, to the bit. */
static void test_sink_of_zero(void **state)
{
    (void)state;
    for (uint64_t seed = FIRST + 30000; seed < FIRST + 30000 + 30 * KINDS; seed += KINDS) { /* a multiple of KINDS */
        combination c;
        draw(&c, seed, drawn_types[seed / KINDS % 4], MORE);
        assert_int_equal(c.problem.score.normaliser, ATTN_NORMALISER_SOFTMAX_ONE);
        assert_true(combination_forward(&c, ATTN_ISA_DEFAULT));
        const size_t bytes = (size_t)c.of[TENSOR(o)].count * attn_dtype_size(c.of[TENSOR(o)].layout.dtype);
        void *kept = malloc(bytes + 1);
        assert_non_null(kept);
        memcpy(kept, c.of[TENSOR(o)].memory, bytes);
        double zeros[16] = {0};
        assert_true(c.ref.Hq <= 16);
        c.problem.score.normaliser = ATTN_NORMALISER_SOFTMAX;
        c.tensors.sink = attn_in(zeros);
        assert_true(combination_forward(&c, ATTN_ISA_DEFAULT));
        assert_memory_equal(kept, c.of[TENSOR(o)].memory, bytes);
        free(kept);
        combination_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_same_bits), cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_sink_of_zero)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
