/* SPDX-License-Identifier: MIT
 *
 * test_seq2seq.c - attention modules of sequence-to-sequence models against loops in double, their gradients against differences of
 * these loops, single steps against all at once, and their weights in files.
 */
#include "by_loops.h"

#include "attn/seq2seq.h"

enum { B = 2, LEN = 3, MEMORY = 5, LARGEST = 200 };
enum { STATES, MEM, W, STATE, MEMORY_W, BIAS, COMBINE, TENSORS };
static const char *const names[TENSORS] = {"states", "memory", "w", "state", "memory's", "bias", "combine"};
enum { THIRD = 100, SUM = 10 };

typedef struct variant {
    const char *name;
    attn_score_kind score;
    int64_t dim_state, dim_memory, dim_hidden, dim_output;
    int bias, lengths;
    double scale; /* 0: the default */
} variant;

static const variant variants[] = {
    {"dot", ATTN_SCORE_DOT, 4, 4, 0, 0, 0, 0, 0},
    {"dot, with an output", ATTN_SCORE_DOT, 4, 4, 0, 3, 0, 1, 0.5},
    {"general", ATTN_SCORE_GENERAL, 3, 5, 0, 0, 0, 1, 0},
    {"general, with an output", ATTN_SCORE_GENERAL, 5, 3, 0, 4, 0, 0, 0},
    {"additive", ATTN_SCORE_ADDITIVE, 3, 5, 6, 0, 0, 1, 0},
    {"additive, with a bias and an output", ATTN_SCORE_ADDITIVE, 5, 3, 4, 6, 1, 0, 0},
};
enum { VARIANTS = sizeof variants / sizeof *variants };
static const int64_t lengths[B] = {2, MEMORY};

typedef struct sample {
    const variant *v;
    attn_seq2seq module;
    attn_problem attention;
    int64_t out, count[TENSORS];
    double x[TENSORS][LARGEST], grad_y[LARGEST];
} sample;

static void make(sample *s, const variant *v)
{
    random_state random = {11};
    memset(s, 0, sizeof *s);
    s->v = v;
    s->attention = (attn_problem){.struct_size = sizeof s->attention};
    if (v->scale > 0) s->attention.score.scale_kind = ATTN_SCALE_VALUE, s->attention.score.scale = v->scale;
    s->module = (attn_seq2seq){.struct_size = sizeof s->module,
                               .score = v->score,
                               .dim_state = v->dim_state,
                               .dim_memory = v->dim_memory,
                               .dim_hidden = v->dim_hidden,
                               .dim_output = v->dim_output,
                               .attention = &s->attention};
    s->out = v->dim_output ? v->dim_output : v->dim_memory;
    const int64_t counts[TENSORS] = {B * LEN * v->dim_state,
                                     B * MEMORY * v->dim_memory,
                                     v->score == ATTN_SCORE_GENERAL ? v->dim_state * v->dim_memory : v->dim_hidden,
                                     v->dim_hidden * v->dim_state,
                                     v->dim_hidden * v->dim_memory,
                                     v->bias ? v->dim_hidden : 0,
                                     v->dim_output * (v->dim_memory + v->dim_state)};
    for (int t = 0; t < TENSORS; t++) {
        assert_true(counts[t] <= LARGEST);
        s->count[t] = counts[t];
        for (int64_t i = 0; i < counts[t]; i++) s->x[t][i] = (float)random_signed(&random); /* exact in f32 */
    }
    for (int64_t i = 0; i < B * LEN * s->out; i++) s->grad_y[i] = (float)random_signed(&random);
}

/* By definition.  P [b][i][j]: the weights.  Returns <grad_y, y>. */
static double reference(const sample *s, double *y, double *P)
{
    const variant *v = s->v;
    const int64_t ds = v->dim_state, dm = v->dim_memory, dh = v->dim_hidden;
    double loss = 0;
    for (int64_t r = 0; r < B * LEN; r++) {
        const double *h = s->x[STATES] + r * ds, *memory = s->x[MEM] + r / LEN * MEMORY * dm;
        const int64_t keys = v->lengths ? lengths[r / LEN] : MEMORY;
        double *weight = P + r * MEMORY, sum = 0, context[8] = {0};
        for (int64_t j = 0; j < MEMORY; j++) {
            const double *m = memory + j * dm;
            double score = 0;
            if (v->score == ATTN_SCORE_DOT)
                for (int64_t c = 0; c < dm; c++) score += h[c] * m[c];
            else if (v->score == ATTN_SCORE_GENERAL)
                for (int64_t n = 0; n < ds * dm; n++) score += h[n / dm] * s->x[W][n] * m[n % dm];
            else
                for (int64_t a = 0; a < dh; a++) {
                    double z = v->bias ? s->x[BIAS][a] : 0;
                    for (int64_t c = 0; c < ds; c++) z += s->x[STATE][a * ds + c] * h[c];
                    for (int64_t c = 0; c < dm; c++) z += s->x[MEMORY_W][a * dm + c] * m[c];
                    score += s->x[W][a] * tanh(z);
                }
            weight[j] = j < keys ? exp((v->scale > 0 ? v->scale : 1) * score) : 0;
            sum += weight[j];
        }
        for (int64_t j = 0; j < MEMORY; j++) {
            weight[j] /= sum;
            for (int64_t c = 0; c < dm; c++) context[c] += weight[j] * memory[j * dm + c];
        }
        for (int64_t o = 0; o < s->out; o++) {
            double one = context[o % 8];
            if (v->dim_output) {
                one = 0;
                for (int64_t c = 0; c < dm + ds; c++) one += s->x[COMBINE][o * (dm + ds) + c] * (c < dm ? context[c] : h[c - dm]);
                one = tanh(one);
            }
            y[r * s->out + o] = one;
            loss += one * s->grad_y[r * s->out + o];
        }
    }
    return loss;
}

typedef struct held {
    double data[TENSORS][LARGEST], grad[TENSORS][LARGEST], y[LARGEST], mean[LARGEST], grad_y[LARGEST]; /* of either type */
    void *saved;
} held;

static attn_seq2seq_weights weights_of(const sample *s, double from[TENSORS][LARGEST])
{
    void *at[TENSORS];
    for (int t = 0; t < TENSORS; t++) at[t] = s->count[t] ? from[t] : NULL;
    return (attn_seq2seq_weights){.struct_size = sizeof(attn_seq2seq_weights),
                                  .w.data = at[W],
                                  .state.data = at[STATE],
                                  .memory.data = at[MEMORY_W],
                                  .bias.data = at[BIAS],
                                  .combine.data = at[COMBINE]};
}

static void run(sample *s, held *h, attn_dtype dtype, int threads)
{
    attn_error error;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    attn_tensors pointers = {.struct_size = sizeof pointers};
    if (s->v->lengths) pointers.lengths_kv = attn_in(lengths);
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    memset(h, 0, sizeof *h);
    s->module.dtype = dtype;
    for (int t = 0; t < TENSORS; t++) (void)attn_convert(s->count[t], s->x[t], ATTN_F64, h->data[t], dtype, NULL);
    (void)attn_convert(B * LEN * s->out, s->grad_y, ATTN_F64, h->grad_y, dtype, NULL);
    const attn_seq2seq_weights w = weights_of(s, h->data), g = weights_of(s, h->grad);
    assert_int_equal(attn_seq2seq_count(&s->module, B, LEN, MEMORY, &w, &counts, &error), ATTN_OK);
    int64_t parameters = 0;
    for (int t = W; t < TENSORS; t++) parameters += s->count[t];
    assert_int_equal(counts.parameters, parameters);
    h->saved = aligned_alloc(64, (size_t)counts.saved_bytes);
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = B,
                                     .len_q = LEN,
                                     .len_kv = MEMORY,
                                     .query.data = h->data[STATES],
                                     .key.data = h->data[MEM],
                                     .output.data = h->y,
                                     .weights_mean.data = h->mean,
                                     .saved = h->saved,
                                     .attention = &pointers,
                                     .options = &options,
                                     .grad_output.data = h->grad_y,
                                     .grad_query.data = h->grad[STATES],
                                     .grad_key.data = h->grad[MEM]};
    if (attn_seq2seq_forward(&s->module, &w, &args, &error) != ATTN_OK ||
        attn_seq2seq_backward(&s->module, &w, &args, &g, &error) != ATTN_OK)
        fail_msg("%s: %s", s->v->name, error.message);
}

/* Sums of fewer than 10^2 products of numbers below 4, a few deep. */
static double allowed(attn_dtype dtype) { return roundings(dtype, 2e3); }

static void test_forward(void **state)
{
    double y[LARGEST], P[LARGEST];
    (void)state;
    for (int n = 0; n < VARIANTS; n++)
        for (int d = 0; d < 2; d++) {
            const attn_dtype dtype = d ? ATTN_F32 : ATTN_F64;
            sample s;
            held h;
            make(&s, &variants[n]);
            run(&s, &h, dtype, 1);
            (void)reference(&s, y, P);
            assert_close(s.v->name, "y", dtype, h.y, y, B * LEN * s.out, allowed(dtype));
            assert_close(s.v->name, "weights", dtype, h.mean, P, B * LEN * MEMORY, allowed(dtype));
            free(h.saved);
        }
}

static double loss(void *s)
{
    double y[LARGEST], P[LARGEST];
    return reference(s, y, P);
}

#include "gradients.inc.c"

/* One state at a time over a memory that was prepared once. */
static void test_steps(void **state)
{
    (void)state;
    for (int n = 0; n < VARIANTS; n++) {
        sample s;
        held h;
        attn_error error;
        double k[B * MEMORY * 8], v[B * MEMORY * 8], y[LARGEST], mean[B * MEMORY];
        int64_t held_tokens[B] = {0};
        make(&s, &variants[n]);
        run(&s, &h, ATTN_F64, 1);
        const attn_seq2seq_weights w = weights_of(&s, h.data);
        const attn_cache cache = {.struct_size = sizeof cache,
                                  .batch = B,
                                  .heads_kv = 1,
                                  .capacity = MEMORY,
                                  .dim_qk = s.v->dim_hidden ? s.v->dim_hidden : s.v->dim_memory,
                                  .dim_v = s.v->dim_memory,
                                  .k = {k, ATTN_F64, {0, 0, 0, 0}},
                                  .v = attn_out(v),
                                  .lengths = attn_out(held_tokens)};
        const attn_layer_tensors once = {.struct_size = sizeof once, .batch = B, .len_kv = MEMORY, .key.data = h.data[MEM]};
        if (attn_seq2seq_remember(&s.module, &w, &cache, &once, &error) != ATTN_OK) fail_msg("%s: %s", s.v->name, error.message);
        if (s.v->lengths) memcpy(held_tokens, lengths, sizeof lengths);
        for (int64_t t = 0; t < LEN; t++) {
            const attn_layer_tensors step = {
                .struct_size = sizeof step,
                .batch = B,
                .len_q = 1,
                .query = {h.data[STATES] + t * s.v->dim_state, ATTN_F64, {LEN * s.v->dim_state, 0, s.v->dim_state, 1}},
                .output = {y + t * s.out, ATTN_F64, {LEN * s.out, 0, s.out, 1}},
                .weights_mean = attn_out(mean)};
            if (attn_seq2seq_step(&s.module, &w, &cache, &step, &error) != ATTN_OK) fail_msg("%s: %s", s.v->name, error.message);
            for (int64_t i = 0; i < B * MEMORY; i++)
                assert_true(fabs(mean[i] - h.mean[(i / MEMORY * LEN + t) * MEMORY + i % MEMORY]) <= allowed(ATTN_F64));
        }
        assert_close(s.v->name, "y", ATTN_F64, y, h.y, B * LEN * s.out, allowed(ATTN_F64));
        free(h.saved);
    }
}

static void test_weights(void **state)
{
    static float w[TENSORS][LARGEST], again[TENSORS][LARGEST];
    sample s;
    attn_archive *file = NULL;
    attn_seq2seq_weights back = {.struct_size = sizeof back};
    (void)state;
    make(&s, &variants[5]);
    const attn_seq2seq_weights weights = {.struct_size = sizeof weights,
                                          .w = attn_out(w[W]),
                                          .state = attn_out(w[STATE]),
                                          .memory = attn_out(w[MEMORY_W]),
                                          .bias = attn_out(w[BIAS]),
                                          .combine = attn_out(w[COMBINE])};
    assert_int_equal(attn_seq2seq_initialise(&s.module, ATTN_INIT_XAVIER, 7, &weights, NULL), ATTN_OK);
    memcpy(again, w, sizeof w);
    assert_int_equal(attn_seq2seq_initialise(&s.module, ATTN_INIT_XAVIER, 7, &weights, NULL), ATTN_OK);
    assert_memory_equal(w, again, sizeof w);
    for (int64_t i = 0; i < s.count[STATE]; i++) assert_true(w[STATE][i] != 0 && fabs((double)w[STATE][i]) <= sqrt(6.0 / (4 + 5)));
    for (int64_t i = 0; i < s.count[BIAS]; i++) assert_true(w[BIAS][i] == 0);
    assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
    assert_int_equal(attn_seq2seq_store(&s.module, &weights, "attention.", file, NULL), ATTN_OK);
    assert_int_equal(attn_seq2seq_load(&s.module, file, "attention.", &back, NULL), ATTN_OK);
    void *const at[] = {back.w.data, back.state.data, back.memory.data, back.bias.data, back.combine.data};
    for (int t = W; t < TENSORS; t++) assert_memory_equal(at[t - W], w[t], (size_t)s.count[t] * sizeof(float));
    /* all names but the first are taken: the first is not left behind */
    assert_int_equal(attn_archive_remove(file, "attention.w", NULL), ATTN_OK);
    assert_int_equal(attn_seq2seq_store(&s.module, &weights, "attention.", file, NULL), ATTN_ERR_ARGUMENT);
    assert_null(attn_archive_find(file, "attention.w"));
    attn_archive_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward), cmocka_unit_test(test_differences), cmocka_unit_test(test_f32_and_threads),
        cmocka_unit_test(test_steps),   cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
