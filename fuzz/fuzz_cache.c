/* SPDX-License-Identifier: MIT
 *
 * fuzz_cache.c - fuzzes attn_cache_append, attn_cache_attend, attn_cache_shift, attn_cache_move, attn_quantise and what
 * attn/choose.h has (target.h; cache_case.h): steps of tokens into a cache whose every byte is checked, by lengths and by slots;
 * attention over it equals attention over a dense copy, for any threads, pages and other batch entries. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_bound.h"
#include "attn_ref.h"
#include "cache_case.h"

const char *const target_cases = "caches";

static cache_case c;
static attn_error last;

void target_print(void)
{
    const attn_cache *k = &c.cache;
    fprintf(stderr,
            "B %" PRId64 " Hkv %" PRId64 " Hq %" PRId64 " capacity %" PRId64 " D %" PRId64 " Dv %" PRId64 " pages %" PRId64
            " of %" PRId64 " rope %d table %" PRId64 " len %" PRId64 " threads %d invariant %d window %d %" PRId64 " softcap %g\n",
            k->batch, k->heads_kv, c.problem.shape.heads_q, k->capacity, k->dim_qk, k->dim_v, k->pages, k->page_size,
            k->rope != NULL, c.rope.table_rows, c.tokens.len, c.options.threads, c.options.invariant, c.problem.mask.window,
            c.problem.mask.window_left, c.problem.score.softcap);
    for (int64_t b = 0; b < k->batch && b < MAX_BATCH; b++) fprintf(stderr, "  %" PRId64 " + %" PRId64, c.lengths[b], c.added[b]);
    fputc('\n', stderr);
    blocks_print(c.blocks, C_BLOCKS);
}

/* Checks every byte of the cache. */
static void check_cache(const char *what)
{
    for (int t = 0; t < C_OWN; t++)
        for (size_t i = 0; i < c.blocks[t].bytes; i++)
            if (c.blocks[t].memory[i] != c.shadow[t][i])
                finding("%s: byte %zu of %s is %d, should be %d", what, i, c.blocks[t].name, c.blocks[t].memory[i], c.shadow[t][i]);
}

static int append(void)
{
    memset(&last, 0x55, sizeof last);
    const attn_status status = attn_cache_append(&c.cache, &c.tokens, &last);
    check_error(status, &last);
    return status == ATTN_OK;
}

static int attend(const attn_options *options, unsigned char canary)
{
    memset(&last, 0x55, sizeof last);
    if (canary) blocks_canary(c.blocks + C_OWN, C_BLOCKS - C_OWN, canary);
    const attn_status status = attn_cache_attend(&c.cache, &c.tokens, &c.problem, &c.tensors, options, &last);
    check_error(status, &last);
    if (status != ATTN_OK) blocks_untouched(c.blocks + C_OWN, C_BLOCKS - C_OWN, canary, last.message);
    return status == ATTN_OK;
}

/* Whether all tokens are within the rope's tables. */
static int has_angles(void)
{
    int all = 1;
    for (int64_t b = 0; c.cache.rope && c.rope.table_rows && b < c.cache.batch; b++)
        all &= c.added[b] == 0 || c.lengths[b] + c.added[b] <= c.rope.table_rows;
    return all;
}

/* Restores the lengths from before the step, so that it can be repeated. */
static void take_back(void) { memcpy(c.blocks[C_LENGTHS].memory, c.lengths, c.blocks[C_LENGTHS].bytes); }

/* ---- the same attention over a dense copy ---- */

/* The numbers of C_K, C_V or C_Q. */
static double *of_rows(int which, int64_t entry, int64_t heads, int64_t rows)
{
    const int64_t dim = which == C_V ? c.cache.dim_v : c.cache.dim_qk;
    double *all = malloc((size_t)(heads * rows * dim + 1) * sizeof *all), *to = all;
    if (!all) abort();
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = 0; j < rows; j++) {
            int64_t at[2] = {entry, j};
            if (which != C_Q) cache_where(&c, entry, j, at);
            for (int64_t x = 0; x < dim; x++)
                *to++ = which == C_Q ? block_get(&c.blocks[C_Q], at[0], h, at[1], x) : cache_number(&c, which, at, h, x);
        }
    return all;
}

/* A dense copy of the cache's rows, in the cache's type. */
static void *copy_rows(const block *b, int64_t entry, int64_t rows)
{
    unsigned char *all = malloc((size_t)(b->shape[1] * rows * b->shape[3]) * b->element + 1), *to = all;
    if (!all) abort();
    for (int64_t h = 0; h < b->shape[1]; h++)
        for (int64_t j = 0; j < rows; j++) {
            int64_t at[2];
            cache_where(&c, entry, j, at);
            for (int64_t x = 0; x < b->shape[3]; x++, to += b->element) memcpy(to, block_at(b, at[0], h, at[1], x), b->element);
        }
    return all;
}

/* Error bounds of decoding with integer products of i8 and blocks (docs/numerics.md): for a score, and for channel x of O.  K and V
 * are dequantised. */
static double lost_score(const double *q, const double *k, int64_t total)
{
    const int64_t dim = c.cache.dim_qk;
    double max_q = 0, most = 0;
    if ((c.blocks[C_K].dtype != ATTN_I8 && !format_is_blocks(c.blocks[C_K].dtype)) || dim == 0) return 0;
    for (int64_t x = 0; x < dim; x++) max_q = fmax(max_q, fabs(q[x]));
    for (int64_t j = 0; j < total; j++) {
        double sum = 0;
        for (int64_t x = 0; x < dim; x++) sum += fabs(k[j * dim + x]);
        most = fmax(most, sum);
    }
    return 2.01 * 0x1p-24 / sqrt((double)dim) * max_q * most;
}

static double lost_value(int64_t e, int64_t g, int64_t x, const double *w, const double *v, int64_t total, double score)
{
    const int64_t dim = c.cache.dim_v;
    double most = 0, whole = 0, size = 0;
    for (int64_t j = 0; j < total; j++) {
        int64_t at[2];
        cache_where(&c, e, j, at);
        size += w[j] * fabs(v[j * dim + x]);
        if (c.blocks[C_V].dtype != ATTN_I8) continue;
        most = fmax(most, w[j] * block_get(&c.blocks[C_V_SCALE], at[0], g, at[1], 0));
        whole += fabs(block_get(&c.blocks[C_V], at[0], g, at[1], x));
    }
    return 2 * score * size + 1.01 * 0x1p-24 * most * whole + 64 * (double)total * (double)FLT_TRUE_MIN;
}

/* Checks entry e against ref/. */
static void compare_entry(int64_t e, const double *q, int64_t count, int64_t total)
{
    const attn_cache *k = &c.cache;
    const int64_t heads = c.problem.shape.heads_q, offset = total - count;
    const int wide = c.blocks[C_Q].dtype == ATTN_F64;
    if (heads * count * total > 20000) return;
    double *K = of_rows(C_K, e, k->heads_kv, total), *V = of_rows(C_V, e, k->heads_kv, total);
    const size_t pairs = (size_t)(heads * count * total) + 1, rows = (size_t)(heads * count);
    double *o = calloc(rows * (size_t)k->dim_v + 1, sizeof *o), *lse = calloc(rows + 1, sizeof *lse), *s = calloc(pairs, sizeof *s),
           *w = calloc(pairs, sizeof *w);
    const ref_problem r = {.B = 1,
                           .Hq = heads,
                           .Hkv = k->heads_kv,
                           .Sq = count,
                           .Skv = total,
                           .D = k->dim_qk,
                           .Dv = k->dim_v,
                           .Q = q,
                           .K = K,
                           .V = V,
                           .scale = k->dim_qk > 0 ? 1 / sqrt((double)k->dim_qk) : 1,
                           .causal = 1,
                           .offset = &offset,
                           .window = c.problem.mask.window,
                           .window_left = c.problem.mask.window_left,
                           .window_right = c.problem.mask.window_right,
                           .softcap = c.problem.score.softcap};
    const ref_arithmetic a = {.unit = wide ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2,
                              .normal = wide ? DBL_MIN : (double)FLT_MIN,
                              .denormal = wide ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN,
                              .flushed = wide ? DBL_MIN : (double)FLT_MIN};
    ref_bounds bounds;
    ref_forward(&r, o, lse, s, w);
    if (!ref_bound_forward(&bounds, &r, &a)) abort();
    for (int64_t at = 0; at < heads * count; at++) {
        const int64_t h = at / count, g = h / (heads / k->heads_kv), row = at % count;
        const double *values = V + g * total * k->dim_v, lost = lost_score(q + at * k->dim_qk, K + g * total * k->dim_qk, total);
        for (int64_t x = 0; x < k->dim_v; x++)
            block_check(&c.blocks[C_O], e, h, row, x, o[at * k->dim_v + x],
                        bounds.O[at * k->dim_v + x] + lost_value(e, g, x, w + at * total, values, total, lost));
        if (c.blocks[C_LSE].name) block_check(&c.blocks[C_LSE], e, h, row, 0, lse[at], bounds.lse[at] + lost);
    }
    ref_bounds_free(&bounds);
    free(K), free(V), free(o), free(lse), free(s), free(w);
}

/* Entry e alone over a dense copy must have the same bits; rows past its tokens must be 0. */
static void check_entry(int64_t e)
{
    const attn_cache *k = &c.cache;
    const int64_t heads = c.problem.shape.heads_q, count = c.added[e], total = c.lengths[e] + count;
    const block *o = &c.blocks[C_O];
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = count; t < c.tokens.len; t++)
            for (int64_t x = 0; x < k->dim_v; x++)
                if (block_get(o, e, h, t, x) != 0) finding("o[%d,%d,%d] past the entry's tokens is not 0", (int)e, (int)h, (int)t);
    if (count == 0) return;
    double *q = of_rows(C_Q, e, heads, count);
    unsigned char *queries = malloc((size_t)(heads * count * k->dim_qk) * 8 + 1),
                  *got = malloc((size_t)(heads * count * k->dim_v) * 8 + 1);
    int64_t positions[64];
    if (!queries || !got) abort();
    (void)attn_convert(heads * count * k->dim_qk, q, ATTN_F64, queries, c.blocks[C_Q].dtype, NULL);
    if (k->rope) {
        const int64_t shape[4] = {1, heads, count, k->dim_qk};
        unsigned char *rotated = malloc((size_t)(heads * count * k->dim_qk) * 8 + 1);
        const attn_input from = {queries, c.blocks[C_Q].dtype, {0, 0, 0, 0}}, places = attn_in(positions);
        const attn_output to = {rotated, c.blocks[C_Q].dtype, {0, 0, 0, 0}};
        for (int64_t t = 0; t < count; t++) positions[t] = c.lengths[e] + t;
        if (!rotated || attn_rope_apply(k->rope, shape, &from, &places, &to, &last))
            finding("attn_rope_apply rejects queries: %s", last.message);
        (void)attn_convert(heads * count * k->dim_qk, rotated, c.blocks[C_Q].dtype, q, ATTN_F64, NULL);
        free(queries);
        queries = rotated;
    }
    void *copies[4];
    for (int t = C_K; t <= C_V_SCALE; t++) copies[t] = c.blocks[t].name ? copy_rows(&c.blocks[t], e, total) : NULL;
    attn_problem p = c.problem;
    p.shape = (attn_shape){1, heads, k->heads_kv, count, total, k->dim_qk, k->dim_v};
    p.mask.causal = 1, p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    attn_tensors t = {.struct_size = sizeof t,
                      .q = {k->dim_qk ? queries : ATTN_EMPTY, c.blocks[C_Q].dtype, {0, 0, 0, 0}},
                      .k = {k->dim_qk ? copies[C_K] : ATTN_EMPTY, c.blocks[C_K].dtype, {0, 0, 0, 0}},
                      .v = {k->dim_v ? copies[C_V] : ATTN_EMPTY, c.blocks[C_V].dtype, {0, 0, 0, 0}},
                      .o = {k->dim_v ? got : ATTN_EMPTY, o->dtype, {0, 0, 0, 0}}};
    if (copies[C_K_SCALE]) t.k_scale = attn_in(copies[C_K_SCALE]);
    if (copies[C_V_SCALE]) t.v_scale = attn_in(copies[C_V_SCALE]);
    attn_plan *plan = NULL;
    if (attn_plan_create(&plan, &p, &t, &c.options, &last)) finding("over a dense copy: rejected: %s", last.message);
    const size_t need = attn_plan_workspace_size(plan);
    void *workspace = malloc(need + 1);
    if (!workspace || attn_execute(plan, &t, workspace, need, &last)) finding("over a dense copy: rejected: %s", last.message);
    const unsigned char *was = got;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < count; i++)
            for (int64_t x = 0; x < k->dim_v; x++, was += o->element)
                if (memcmp(block_at(o, e, h, i, x), was, o->element) != 0)
                    finding("o[%d,%d,%d,%d] is %.17g, with other bits over a dense copy", (int)e, (int)h, (int)i, (int)x,
                            block_get(o, e, h, i, x));
    compare_entry(e, q, count, total);
    attn_plan_destroy(plan);
    for (int i = C_K; i <= C_V_SCALE; i++) free(copies[i]);
    free(workspace), free(q), free(queries), free(got);
}

/* The step in two parts, which must have the same bits under options.invariant. */
static void run_in_two_parts(void)
{
    const int64_t len = c.tokens.len, first = draw_below(c.from, len + 1);
    int64_t now[MAX_BATCH] = {0}, then[MAX_BATCH] = {0};
    for (int64_t b = 0; b < c.cache.batch; b++) now[b] = c.added[b] < first ? c.added[b] : first, then[b] = c.added[b] - now[b];
    take_back();
    blocks_canary(c.blocks + C_OWN, C_BLOCKS - C_OWN, 0x42);
    cache_place(&c, 0, first, now);
    if (!attend(&c.options, 0)) finding("the first %d tokens are rejected: %s", (int)first, last.message);
    cache_place(&c, first, len - first, then);
    if (!attend(&c.options, 0)) finding("the tokens after the first %d are rejected: %s", (int)first, last.message);
    cache_place(&c, 0, len, c.added);
    check_cache("in two steps");
    blocks_compare(c.blocks + C_OWN, C_BLOCKS - C_OWN, 0x42, "in two steps");
}

static void run_corrupted(void)
{
    const attn_cache cache = c.cache;
    const attn_cache_tokens tokens = c.tokens;
    const attn_problem problem = c.problem;
    const attn_tensors tensors = c.tensors;
    int only_attend;
    unsigned char lengths[8 * MAX_BATCH], *table = malloc(c.blocks[C_TABLE].bytes + 1);
    if (!table) abort();
    memcpy(lengths, c.blocks[C_LENGTHS].memory, c.blocks[C_LENGTHS].bytes);
    if (c.blocks[C_TABLE].memory) memcpy(table, c.blocks[C_TABLE].memory, c.blocks[C_TABLE].bytes);
    const char *what = cache_corrupt(&c, &only_attend);
    const int64_t heads = c.problem.shape.heads_q;
    unsigned char wrong[8 * MAX_BATCH];
    memcpy(wrong, c.blocks[C_LENGTHS].memory, c.blocks[C_LENGTHS].bytes);
    if (what && !only_attend && append()) finding("%s, but attn_cache_append succeeds", what);
    if (what && attend(&c.options, 0x21)) finding("%s, but attn_cache_attend succeeds (heads %d)", what, (int)heads);
    if (memcmp(wrong, c.blocks[C_LENGTHS].memory, c.blocks[C_LENGTHS].bytes) != 0)
        finding("%s: rejected, but lengths are changed", what);
    c.cache = cache, c.tokens = tokens, c.problem = problem, c.tensors = tensors;
    memcpy(c.blocks[C_LENGTHS].memory, lengths, c.blocks[C_LENGTHS].bytes);
    if (c.blocks[C_TABLE].memory) memcpy(c.blocks[C_TABLE].memory, table, c.blocks[C_TABLE].bytes);
    free(table);
    cache_place(&c, 0, tokens.len, c.added);
    check_cache(what ? what : "nothing");
}

/* The step's tokens of entry 0 to slots; tokens and cache are as before afterwards, but for what is written. */
static void append_to_slots(void)
{
    cache_draw_slots(&c);
    if (draw_one_in(c.from, 3)) {
        const char *what = cache_corrupt_slots(&c);
        if (what && append()) finding("%s, but attn_cache_append succeeds", what);
        if (what) {
            check_cache(what);
            return;
        }
        cache_draw_slots(&c);
    }
    if (attend(&c.options, 0x37)) finding("attn_cache_attend accepts slots");
    cache_expect_slots(&c);
    if (!append()) finding("slots: a valid call is rejected: %s", last.message);
    check_cache("slots");
}

/* A valid step. */
static void run(void)
{
    draws *d = c.from;
    if (draw_one_in(d, 3)) {
        if (!append()) finding("append: a valid call is rejected: %s", last.message);
        check_cache("append");
        return;
    }
    if (!attend(&c.options, 0xA5)) finding("attend: a valid call is rejected: %s", last.message);
    target_ran++;
    check_cache("attend");
    blocks_keep(c.blocks + C_OWN, C_BLOCKS - C_OWN);
    for (int64_t e = 0; e < c.cache.batch; e++) check_entry(e);
    attn_options other = c.options;
    other.threads = c.options.threads % 3 + 1;
    take_back();
    if (!attend(&other, 0x5A)) finding("other threads: rejected: %s", last.message);
    check_cache("other threads");
    blocks_compare(c.blocks + C_OWN, C_BLOCKS - C_OWN, 0x5A, "other threads");
    if (c.options.invariant) run_in_two_parts();
}

static void step(void)
{
    draws *d = c.from;
    if (draw_one_in(d, 3)) cache_rearrange(&c);
    if (draw_one_in(d, 4)) cache_choose(&c);
    cache_draw_step(&c);
    target_drawn();
    if (draw_one_in(d, 4)) {
        append_to_slots();
        cache_place(&c, 0, c.tokens.len, c.added);
    }
    if (!has_angles()) {
        if (append()) finding("a token past the rope's tables is appended");
        if (attend(&c.options, 0x13)) finding("attn_cache_attend accepts a token past the rope's tables");
        check_cache("past the rope's tables");
        target_rejected++;
        return;
    }
    if (draw_one_in(d, 4)) run_corrupted();
    cache_expect(&c);
    unsigned char *const table = cache_hide_pages(&c, c.added);
    run();
    cache_show_pages(&c, table);
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    cache_quantise(from);
    cache_draw(&c);
    for (int64_t steps = 1 + draw_below(from, 5); steps > 0; steps--) step();
    blocks_free(c.blocks, C_BLOCKS);
    for (int t = 0; t < C_OWN; t++) free(c.shadow[t]);
}
