/* SPDX-License-Identifier: MIT
 *
 * test_outputs.c - every output of attn_outputs, all of them at once, against ref/outputs.c for random combinations of options; the
 * same bits for any number of threads.
 */
#include "requested.h"

static const attn_dtype storages[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};

/* Results of the reference for a drawn problem. */
typedef struct expected {
    double *O, *lse, *S, *P, *after; /* weights after dropout */
    double *keep, *top_index;
    ref_outputs rows;
} expected;

static void reference(drawn *d, expected *e)
{
    const ref_problem *r = &d->ref;
    const attn_outputs *settings = &d->problem.outputs;
    int64_t rows = r->B * r->Hq * r->Sq, pairs = rows * r->Skv;
    e->O = draw_memory(d, rows * r->Dv, sizeof(double));
    e->lse = draw_memory(d, rows, sizeof(double));
    e->S = draw_memory(d, pairs, sizeof(double));
    e->P = draw_memory(d, pairs, sizeof(double));
    e->after = draw_memory(d, pairs, sizeof(double));
    e->keep = draw_memory(d, pairs, sizeof(double));
    e->top_index = draw_memory(d, rows * settings->topk, sizeof(double));
    e->rows.raw = draw_memory(d, pairs, sizeof(double));
    e->rows.capped = draw_memory(d, pairs, sizeof(double));
    e->rows.row_max = draw_memory(d, rows, sizeof(double));
    e->rows.entropy = draw_memory(d, rows, sizeof(double));
    e->rows.effective_keys = draw_memory(d, rows, sizeof(double));
    e->rows.k = settings->topk;
    e->rows.topk_index = draw_memory(d, rows * settings->topk, sizeof(int64_t));
    e->rows.topk_weight = draw_memory(d, rows * settings->topk, sizeof(double));
    e->rows.share = settings->column_heads == ATTN_COLUMNS_EACH    ? 1
                    : settings->column_heads == ATTN_COLUMNS_GROUP ? r->Hq / r->Hkv
                                                                   : r->Hq;
    e->rows.last = settings->column_queries;
    e->rows.column_sum = draw_memory(d, r->B * r->Hq * r->Skv, sizeof(double));
    ref_forward(r, e->O, e->lse, e->S, e->P);
    ref_outputs_of(r, e->S, e->P, &e->rows);
    for (int64_t k = 0; k < pairs; k++) {
        e->after[k] = e->P[k] * (r->Z ? r->Z[k] : 1);
        e->keep[k] = !r->Z || r->Z[k] != 0;
    }
}

static const double *stage_of(const expected *e, attn_stage stage, int after)
{
    return stage == ATTN_STAGE_RAW      ? e->rows.raw
           : stage == ATTN_STAGE_CAPPED ? e->rows.capped
           : stage == ATTN_STAGE_BIASED ? e->S
           : after                      ? e->after
                                        : e->P;
}

static double tolerance_of(attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 1e-12 : dtype == ATTN_F32 ? 5e-5 : dtype == ATTN_F16 ? 0x1p-10 : 0x1p-7;
}

/* The reference selects the k largest of the library's own weights, so that rounding cannot change the selection. */
static void check_top(drawn *d, expected *e, const requested *w)
{
    const ref_problem *r = &d->ref;
    int64_t rows = r->B * r->Hq * r->Sq;
    double *own = draw_memory(d, rows * r->Skv, sizeof *own);
    for (int64_t b = 0, at = 0; b < r->B; b++)
        for (int64_t h = 0; h < r->Hq; h++)
            for (int64_t i = 0; i < r->Sq; i++)
                for (int64_t j = 0; j < r->Skv; j++) own[at++] = requested_at(w, OUT_WEIGHTS, b, h, i, j);
    ref_outputs_of(r, e->S, own, &e->rows);
    for (int64_t k = 0; k < rows * e->rows.k; k++) e->top_index[k] = (double)e->rows.topk_index[k];
    requested_compare(w, OUT_TOP_INDEX, e->top_index, 0, d->text);
    requested_compare(w, OUT_TOP_WEIGHT, e->rows.topk_weight, 0, d->text);
}

static void check_all(drawn *d, expected *e, const requested *w)
{
    const attn_outputs *settings = &d->problem.outputs;
    const double tolerance = tolerance_of(d->compute), stored = tolerance_of(d->tensors.weights.dtype);
    for (int64_t k = 0; k < d->ref.B * d->ref.Hq * d->ref.Sq; k++)
        if (w->visits[k] != 1) fail_msg("%s: row %d was visited %d times", d->text, (int)k, w->visits[k]);
    requested_compare(w, OUT_LSE, e->lse, tolerance, d->text);
    requested_compare(w, OUT_WEIGHTS, settings->after_dropout ? e->after : e->P, stored, d->text);
    requested_compare(w, OUT_SCORES, stage_of(e, settings->scores_stage, settings->after_dropout), stored, d->text);
    requested_compare(w, OUT_VIEW, stage_of(e, settings->rows_stage, settings->after_dropout), tolerance, d->text);
    requested_compare(w, OUT_KEEP, e->keep, 0, d->text);
    requested_compare(w, OUT_ROW_MAX, e->rows.row_max, tolerance, d->text);
    requested_compare(w, OUT_ENTROPY, e->rows.entropy, tolerance, d->text);
    requested_compare(w, OUT_EFFECTIVE, e->rows.effective_keys, 10 * tolerance, d->text);
    requested_compare(w, OUT_COLUMNS, e->rows.column_sum, tolerance, d->text);
    requested_compare(w, OUT_TOP_WEIGHT, e->rows.topk_weight, tolerance, d->text);
}

/* The bytes of all outputs, concatenated. */
static unsigned char *snapshot(const requested *w, size_t *size)
{
    size_t at = 0;
    *size = 0;
    for (int k = 0; k < OUTS; k++) *size += w->outputs[k].bytes;
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    for (int k = 0; k < OUTS; k++) {
        memcpy(bytes + at, w->outputs[k].data, w->outputs[k].bytes);
        at += w->outputs[k].bytes;
    }
    return bytes;
}

static void check_threads(drawn *d, requested *w, attn_isa isa)
{
    static const int counts[] = {2, 3, 5, 8};
    size_t size;
    unsigned char *one = snapshot(w, &size);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        requested_run(w, d, isa, counts[k]);
        unsigned char *many = snapshot(w, &size);
        if (memcmp(one, many, size) != 0) fail_msg("%s: bits differ with %d threads", d->text, counts[k]);
        free(many);
    }
    free(one);
}

static void check_seed(uint64_t seed, attn_dtype storage)
{
    drawn d;
    requested w;
    expected e;
    draw(&d, seed, storage);
    requested_init(&w, &d, draw_below(&d, 2) == 0);
    reference(&d, &e);
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
        if (!can_run((attn_isa)isa)) continue;
        d.problem.outputs.after_dropout = 1;
        requested_run(&w, &d, (attn_isa)isa, 1);
        check_all(&d, &e, &w);
        d.problem.outputs.after_dropout = 0;
        requested_run(&w, &d, (attn_isa)isa, 1);
        check_all(&d, &e, &w);
        if (seed % 4 == (uint64_t)isa) check_threads(&d, &w, (attn_isa)isa);
        if (d.tensors.weights.dtype == d.compute) check_top(&d, &e, &w);
        ref_outputs_of(&d.ref, e.S, e.P, &e.rows);
    }
    drawn_free(&d);
}

static void test_random(void **state)
{
    const char *range = getenv("ATTN_TEST_SEEDS"); /* the number of seeds */
    uint64_t seeds = range ? strtoull(range, NULL, 10) : CASES(80);
    (void)state;
    for (uint64_t seed = 0; seed < seeds; seed++) check_seed(seed, storages[seed % 4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
