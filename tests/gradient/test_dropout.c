/* SPDX-License-Identifier: MIT
 *
 * test_dropout.c - the dropout mask is Philox4x32-10, implemented here independently, and the same in forward, backward and forward
 * mode (P36).  With V = I the output is the weights after dropout; so is dV, transposed, with dO = I, and O' with V' = I.
 */
#include "test.h"

#include "combination/outcome.h"

#include <math.h>

typedef struct words {
    uint32_t x[4];
} words;

/* Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3: each round
 * multiplies two counter words, and before every round but the first the golden ratio and sqrt(3) - 1 are added to the key. */
static words philox(words counter, uint32_t key0, uint32_t key1)
{
    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t first = UINT64_C(0xD2511F53) * counter.x[0], second = UINT64_C(0xCD9E8D57) * counter.x[2];
        counter = (words){{(uint32_t)(second >> 32) ^ counter.x[1] ^ (key0 + round * 0x9E3779B9u), (uint32_t)second,
                           (uint32_t)(first >> 32) ^ counter.x[3] ^ (key1 + round * 0xBB67AE85u), (uint32_t)first}};
    }
    return counter;
}

static int keeps(uint64_t seed, uint32_t offset, int64_t head, int64_t i, int64_t j, double p)
{
    const words drawn =
        philox((words){{offset, (uint32_t)head, (uint32_t)i, (uint32_t)(j / 4)}}, (uint32_t)seed, (uint32_t)(seed >> 32));
    return drawn.x[j % 4] >= p * 4294967296.0;
}

/* Known answers from Random123, kat_vectors. */
static void test_known_answers(void **state)
{
    static const struct {
        words counter;
        uint32_t key[2];
        words answer;
    } known[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {0xffffffff, 0xffffffff},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    (void)state;
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        const words got = philox(known[n].counter, known[n].key[0], known[n].key[1]);
        assert_memory_equal(got.x, known[n].answer.x, sizeof got.x);
    }
}

enum { QUERIES = 3001, KEYS = 67 };

/* Writes the dropout mask of a single head. */
static void export_mask(double p, uint64_t seed, uint32_t offset, int64_t len_q, unsigned char *keep)
{
    static float q[QUERIES], k[KEYS], v[KEYS], o[QUERIES];
    attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, len_q, KEYS, 1, 1}, .dropout = {.probability = p}};
    attn_call call = {.struct_size = sizeof call, .dropout_seed = seed, .dropout_offset = offset};
    attn_tensors t = {.struct_size = sizeof t, .call = &call, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    attn_error error;
    t.dropout_keep = attn_out(keep);
    if (attn_compute(&problem, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
}

/* The library reproduces the first known answer: a word is kept at p = word / 2^32 and dropped at the next p. */
static void test_threshold(void **state)
{
    static const uint32_t answer[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    unsigned char keep[KEYS];
    (void)state;
    for (int j = 0; j < 4; j++) {
        export_mask(answer[j] / 4294967296.0, 0, 0, 1, keep);
        assert_int_equal(keep[j], 1);
        export_mask((answer[j] + 1.0) / 4294967296.0, 0, 0, 1, keep);
        assert_int_equal(keep[j], 0);
    }
}

static void test_sampled_indices(void **state)
{
    static unsigned char keep[QUERIES * KEYS];
    random_state random = random_from(1);
    (void)state;
    for (int n = 0; n < 8; n++) {
        const uint64_t seed = random_bits(&random);
        const uint32_t offset = (uint32_t)random_bits(&random);
        const double p = (1 + n) / 9.0;
        export_mask(p, seed, offset, QUERIES, keep);
        for (int sample = 0; sample < 2000; sample++) {
            const int64_t i = random_below(&random, QUERIES), j = random_below(&random, KEYS);
            assert_int_equal(keep[i * KEYS + j], keeps(seed, offset, 0, i, j, p));
        }
    }
}

/* t[b, h, i, x] = 1 where i = x, else 0. */
static void set_identity(tensor *t)
{
    tensor_fill_bytes(t, 0);
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++) tensor_set(t, tensor_at(t, b, h, i, i), 1);
    tensor_read(t);
}

enum { N = 37 };

static void draw(combination *c, const char *type, double p, uint64_t seed)
{
    char text[120];
    (void)snprintf(text, sizeof text, "%s:b2:hq3:sq%d:skv%d:d5:dv%d:dropout=%g:seed=%d", type, N, N, N, p, (int)seed);
    combination_parse(c, text, FINITE);
    set_identity(&c->of[TENSOR(v)]), set_identity(&c->of[TENSOR(grad_o)]), set_identity(&c->of[TENSOR(tan_v)]);
    combination_drop(c, TENSOR(tan_q)), combination_drop(c, TENSOR(tan_k)), combination_give(c, TENSOR(tan_v));
}

static void test_same_mask(void **state)
{
    static const char *const types[] = {"f32", "f64"};
    (void)state;
    for (int n = 0; n < 12; n++) {
        const double p = (1 + n / 2) / 8.0;
        for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
            combination c;
            draw(&c, types[n % 2], p, (uint64_t)n);
            outcome forward = outcome_make(&c, ATTN_FORWARD);
            int runs = outcome_run(&c, &forward, (attn_isa)isa, 1);
            const double *W = outcome_find(&forward, "o")->got.value;
            outcome backward = outcome_make(&c, ATTN_BACKWARD), jvp = outcome_make(&c, ATTN_JVP);
            runs = runs && outcome_run(&c, &backward, (attn_isa)isa, 1) && outcome_run(&c, &jvp, (attn_isa)isa, 1);
            const double *dV = outcome_find(&backward, "grad_v")->got.value, *tangent = outcome_find(&jvp, "tan_o")->got.value;
            for (int64_t at = 0; runs && at < 2 * 3 * N * N; at++) {
                const int64_t head = at / N / N, i = at / N % N, j = at % N;
                const int kept = keeps(c.call.dropout_seed, c.call.dropout_offset, head, i, j, p);
                if ((W[at] != 0) != kept) fail_msg("%s: forward at %d", c.text, (int)at);
                if ((dV[(head * N + j) * N + i] != 0) != kept) fail_msg("%s: backward at %d", c.text, (int)at);
                if ((tangent[at] != 0) != kept) fail_msg("%s: forward mode at %d", c.text, (int)at);
            }
            outcome_free(&c, &jvp), outcome_free(&c, &backward), outcome_free(&c, &forward);
            combination_free(&c);
        }
    }
}

static void assert_same(const outcome *x, const outcome *y, int same)
{
    int equal = 1;
    for (int i = 0; i < x->count; i++)
        equal &= !memcmp(x->of[i].got.value, y->of[i].got.value, (size_t)x->of[i].got.count * sizeof(double));
    assert_int_equal(equal, same);
}

/* p = 0 means no dropout; equal seeds give equal results, different seeds different ones, for output and gradients. */
static void p36_seeds(void **state)
{
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD};
    (void)state;
    for (int n = 0; n < 2; n++) {
        combination c;
        draw(&c, "f32", 0.25, 5);
        outcome none = outcome_make(&c, ops[n]), one = outcome_make(&c, ops[n]), again = outcome_make(&c, ops[n]);
        assert_true(outcome_run(&c, &again, ATTN_ISA_DEFAULT, 1));
        outcome *runs[] = {&one, &again, &none};
        for (int r = 0; r < 3; r++) { /* each run has an outcome of its own */
            outcome_free(&c, runs[r]);
            if (r == 2) c.problem.dropout.probability = 0, c.ref.Z = NULL;
            *runs[r] = outcome_make(&c, ops[n]);
            assert_true(outcome_run(&c, runs[r], ATTN_ISA_DEFAULT, 1));
        }
        assert_same(&one, &again, 1);
        assert_same(&one, &none, 0);
        outcome_free(&c, &again);
        c.call.dropout_seed++; /* without dropout the seed has no effect */
        again = outcome_make(&c, ops[n]);
        assert_true(outcome_run(&c, &again, ATTN_ISA_DEFAULT, 1));
        assert_same(&none, &again, 1);
        outcome_free(&c, &again);
        c.problem.dropout.probability = 0.25;
        again = outcome_make(&c, ops[n]);
        assert_true(outcome_run(&c, &again, ATTN_ISA_DEFAULT, 1));
        assert_same(&one, &again, 0);
        outcome_free(&c, &again), outcome_free(&c, &one), outcome_free(&c, &none);
        combination_free(&c);
    }
}

/* The mean over many seeds is the output without dropout: w (1 - p) 1/(1-p) = w, with variance w^2 p / (1-p) per seed. */
static void p36_mean(void **state)
{
    enum { RUNS = 300, SIGMAS = 6 };
    const double p = 0.25;
    static double sum[2 * 3 * N * N];
    combination c;
    (void)state;
    draw(&c, "f64", p, 6);
    for (int n = 0; n < RUNS; n++) {
        c.call.dropout_seed = (uint64_t)n * 77;
        assert_true(combination_forward(&c, ATTN_ISA_DEFAULT));
        tensor_read(&c.of[TENSOR(o)]);
        for (int64_t at = 0; at < 2 * 3 * N * N; at++) sum[at] += c.of[TENSOR(o)].value[at];
    }
    c.problem.dropout.probability = 0;
    assert_true(combination_forward(&c, ATTN_ISA_DEFAULT));
    tensor_read(&c.of[TENSOR(o)]);
    for (int64_t at = 0; at < 2 * 3 * N * N; at++) {
        const double w = c.of[TENSOR(o)].value[at], sigma = w * sqrt(p / (1 - p) / RUNS);
        if (!(fabs(sum[at] / RUNS - w) <= SIGMAS * sigma)) fail_msg("mean %g of weight %g", sum[at] / RUNS, w);
    }
    combination_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_threshold), cmocka_unit_test(test_sampled_indices),
        cmocka_unit_test(test_same_mask),     cmocka_unit_test(p36_seeds),      cmocka_unit_test(p36_mean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
