/* SPDX-License-Identifier: MIT
 *
 * test_small.c - the small-sequence path, which has kernels of its own: forward and backward within the bound for any lengths and
 * offsets on every instruction set; elements hidden by a causal mask, NaN too, change no bit, nor with tiles; neither do threads
 * and batch; the same heads in tiles give the same bits if nothing is masked.
 */
#include "test.h"

#include "attn/attn.h"
#include "combination/outcome.h"

#include <math.h>

/* ---- against ref/ ---- */

/* The plan takes the small-sequence path, or tiles, which are all that plain C has. */
static void assert_path(const attn_plan *plan, int is_short, const char *text)
{
    attn_plan_description d = {.struct_size = sizeof d};
    assert_int_equal(attn_plan_describe(plan, &d, NULL), ATTN_OK);
    if ((strstr(d.why, "short") != NULL) != (is_short && d.isa != ATTN_ISA_SCALAR)) fail_msg("%s: %s", text, d.why);
}

static void assert_is_short(const combination *c, attn_op op)
{
    const attn_tensors tensors = tensors_of_op(&c->tensors, op);
    attn_problem p = c->problem;
    attn_plan *plan;
    attn_error error;
    p.op = op;
    if (attn_plan_create(&plan, &p, &tensors, NULL, &error) != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    assert_path(plan, 1, c->text);
    attn_plan_destroy(plan);
}

/* Drops the output grad_scale, which only tiles compute. */
static void leave_scale(combination *c, outcome *out)
{
    int at = 0;
    while (out->of[at].tensor != TENSOR(grad_scale)) at++;
    const output scale = out->of[at];
    out->of[at] = out->of[--out->count];
    out->of[out->count] = scale;
    c->tensors.grad_scale = (attn_output){0};
}

static double worst_of(const char *text, attn_op op)
{
    combination c;
    combination_parse(&c, text, 0);
    outcome out = outcome_make(&c, op);
    const int count = out.count;
    if (op == ATTN_BACKWARD) leave_scale(&c, &out);
    assert_is_short(&c, op);
    const double worst = outcome_worst_run(&c, &out, 1);
    out.count = count;
    outcome_free(&c, &out);
    combination_free(&c);
    return worst;
}

/* Every remainder of rows and keys modulo vectors and register tiles. */
static void test_lengths(void **state)
{
    static const int dims[] = {16, 32, 48, 64, 80, 128};
    static const int offsets[] = {0, 1, -3, 40, -40, 5};
    random_state random = random_from(7);
    double worst = 0;
    (void)state;
    for (int n = 0; n < 120; n++) {
        const int backward = n % 2, causal = n % 4 < 2, most = n % 10 ? 60 : 248, f64 = n % 7 == 0, dv = dims[n / 6 % 6];
        const int sq = 8 + (int)random_below(&random, most), values = 26 * 1024 / ((f64 ? 8 : 4) * dv);
        const int keys = backward || causal ? (sq < 128 ? 2 * sq : 256) : values < 128 ? values : 128;
        const int skv = 1 + (int)random_below(&random, keys);
        char text[200], mask[40] = "";
        if (causal && n % 3 == 0) (void)snprintf(mask, sizeof mask, ":causal:offset=%d", offsets[n / 3 % 6]);
        else if (causal) (void)snprintf(mask, sizeof mask, ":causal%s", n % 3 == 1 ? "=bottom-right" : "");
        (void)snprintf(text, sizeof text, "%s:%s:b2:hq2:sq%d:skv%d:d%d:dv%d%s:seed=%d", backward ? "bwd" : "fwd",
                       f64 ? "f64" : "f32", sq, skv, dims[n % 6], dv, mask, n);
        worst = fmax(worst, worst_of(text, backward ? ATTN_BACKWARD : ATTN_FORWARD));
    }
    print_message("short heads: at most %.3f of the bound\n", worst);
    assert_true(worst > 0.005);
}

/* ---- bits ---- */

enum { B = 5, HEADS = 3, S = 75, D = 32, HEAD = S * D, ENTRY = HEADS * HEAD, ALL = B * ENTRY };

typedef struct tensors {
    float q[ALL], k[ALL], v[ALL], grad_o[ALL];
    float o[ALL], lse[B * HEADS * S], grad_q[ALL], grad_k[ALL], grad_v[ALL];
} tensors;

static void draw(tensors *t)
{
    random_state random = random_from(3);
    for (int i = 0; i < ALL; i++) {
        t->q[i] = 2 * (float)random_signed(&random), t->k[i] = 2 * (float)random_signed(&random);
        t->v[i] = 2 * (float)random_signed(&random), t->grad_o[i] = 2 * (float)random_signed(&random);
    }
}

/* Runs entries from .. from+batch-1, of `len` tokens, at most S.  A softcap selects tiles. */
static void run_masked(tensors *t, int len, int64_t from, int64_t batch, int threads, double softcap, int causal)
{
    const int64_t at = from * HEADS * len * D;
    attn_problem p = {.struct_size = sizeof p, .shape = {batch, HEADS, HEADS, len, len, D, D}, .mask = {.causal = causal}};
    p.score.softcap = softcap;
    attn_tensors a = {.struct_size = sizeof a,
                      .q = attn_in(t->q + at),
                      .k = attn_in(t->k + at),
                      .v = attn_in(t->v + at),
                      .o = attn_out(t->o + at),
                      .lse = attn_out(t->lse + from * HEADS * len)};
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_error error;
    for (int n = 0; n < 2; n++) {
        attn_plan *plan;
        p.op = n ? ATTN_BACKWARD : ATTN_FORWARD;
        if (n) a.grad_o = attn_in(t->grad_o + at), a.grad_q = attn_out(t->grad_q + at);
        if (n) a.grad_k = attn_out(t->grad_k + at), a.grad_v = attn_out(t->grad_v + at);
        if (attn_plan_create(&plan, &p, &a, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
        assert_path(plan, softcap == 0, n ? "backward" : "forward");
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = malloc(size);
        if (attn_execute(plan, &a, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
        free(workspace);
        attn_plan_destroy(plan);
    }
}

static void run(tensors *t, int64_t from, int64_t batch, int threads, double softcap)
{
    run_masked(t, S, from, batch, threads, softcap, 1);
}

static void test_threads_and_batch(void **state)
{
    static tensors all, some;
    static const int threads[] = {2, 3, 8};
    (void)state;
    draw(&all);
    for (int n = 0; n < 12; n++) {
        const int causal = n % 2, len = n % 4 < 2 ? S : S - 8; /* 3 rows beyond full vectors */
        memset(all.o, 0, sizeof all - offsetof(tensors, o));
        some = all;
        run_masked(&all, len, 0, B, 1, 0, causal);
        run_masked(&some, len, 0, B - 1, threads[n / 4], 0, causal); /* one entry alone: its queries are split among tasks */
        run_masked(&some, len, B - 1, 1, threads[n / 4], 0, causal);
        assert_memory_equal(&some, &all, sizeof some);
    }
}

/* Fills tokens from .. to-1 of every head. */
static void fill(float *x, int from, int to, float value)
{
    for (int h = 0; h < B * HEADS; h++)
        for (int i = from * D; i < to * D; i++) x[h * HEAD + i] = value;
}

static void assert_same(const float *x, const float *y, int from, int to)
{
    for (int h = 0; h < B * HEADS; h++)
        assert_memory_equal(x + h * HEAD + from * D, y + h * HEAD + from * D, (size_t)((to - from) * D) * sizeof *x);
}

static void assert_finite(const float *x, int from, int to)
{
    for (int h = 0; h < B * HEADS; h++)
        for (int i = from * D; i < to * D; i++) assert_true(isfinite(x[h * HEAD + i]));
}

/* (With tiles, dK and dV are summed in another order if some rows are not finite.) */
static void test_no_leak(void **state)
{
    static tensors clean, dirty;
    static const float values[] = {NAN, INFINITY, 1e30f};
    (void)state;
    for (int n = 0; n < 6; n++) {
        const double softcap = n < 3 ? 0 : 20;
        const float value = values[n % 3];
        draw(&clean);
        run(&clean, 0, B, 1, softcap);
        for (int cut = 1; cut < S; cut += 9) {
            dirty = clean; /* keys invisible to queries before the cut */
            fill(dirty.k, cut, S, value), fill(dirty.v, cut, S, value);
            run(&dirty, 0, B, 1, softcap);
            assert_same(dirty.o, clean.o, 0, cut);
            assert_same(dirty.grad_q, clean.grad_q, 0, cut);
            dirty = clean; /* queries that see no key from the cut on */
            fill(dirty.q, 0, cut, value), fill(dirty.grad_o, 0, cut, value);
            run(&dirty, 0, B, 1, softcap);
            assert_same(dirty.o, clean.o, cut, S);
            assert_finite(dirty.grad_k, cut, S), assert_finite(dirty.grad_v, cut, S);
            if (softcap > 0) continue;
            assert_same(dirty.grad_k, clean.grad_k, cut, S);
            assert_same(dirty.grad_v, clean.grad_v, cut, S);
        }
    }
}

/* One head, with or without a causal mask; a mask that keeps everything selects tiles. */
static void run_head(const tensors *t, int64_t queries, int64_t keys, int causal, int masked, float *o, float *lse)
{
    static unsigned char mask[S * S];
    memset(mask, 1, sizeof mask);
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, queries, keys, D, D}, .mask = {.causal = causal}};
    attn_tensors a = {.struct_size = sizeof a, .q = attn_in(t->q), .k = attn_in(t->k), .v = attn_in(t->v)};
    a.o = attn_out(o), a.lse = attn_out(lse);
    if (masked) a.mask = attn_in(mask);
    attn_plan *plan;
    attn_error error;
    if (attn_plan_create(&plan, &p, &a, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
    assert_path(plan, !masked, masked ? "with a mask" : "without a mask");
    attn_plan_destroy(plan);
    if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
}

/* Every remainder of queries modulo vectors, and of keys modulo blocks of 4 or 16; up to 8 queries would decode. */
static void test_same_as_tiles(void **state)
{
    static tensors t;
    static float o[2][HEAD], lse[2][S];
    static const int keys[] = {1, 20, 23, 66};
    (void)state;
    draw(&t);
    for (int n = 0; n < 4; n++)
        for (int queries = 9; queries <= S; queries++) {
            run_head(&t, queries, keys[n], 0, 0, o[0], lse[0]);
            run_head(&t, queries, keys[n], 0, 1, o[1], lse[1]);
            assert_memory_equal(o[0], o[1], (size_t)(queries * D) * sizeof(float));
            assert_memory_equal(lse[0], lse[1], (size_t)queries * sizeof(float));
        }
}

/* A score of -infinity is a masked key: a row with no other scores has output 0 and lse -infinity, even with NaN values. */
static void test_no_scores(void **state)
{
    enum { KEYS = 20 };
    static tensors t;
    static float o[HEAD], lse[S];
    (void)state;
    draw(&t);
    for (int i = 0; i < KEYS * D; i++) t.k[i] = -INFINITY, t.v[i] = NAN;
    for (int i = 0; i < S * D; i++) t.q[i] = i / D % 3 ? 1.0f : -1.0f; /* every third query has scores of +infinity */
    for (int n = 0; n < 8; n++) {
        const int queries = n < 4 ? S : S - 7;
        run_head(&t, queries, KEYS, n % 2, n / 2 % 2, o, lse);
        for (int i = 0; i < queries; i++) {
            const int seen = i % 3 == 0;
            assert_true(seen ? isnan(lse[i]) : lse[i] == -INFINITY);
            for (int c = 0; c < D; c++) assert_true(seen ? isnan(o[i * D + c]) : o[i * D + c] == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_threads_and_batch),
                                       cmocka_unit_test(test_no_leak), cmocka_unit_test(test_same_as_tiles),
                                       cmocka_unit_test(test_no_scores)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_threads_and_batch"); /* the other tests use one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
