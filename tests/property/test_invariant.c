/* SPDX-License-Identifier: MIT
 *
 * test_invariant.c - with options.invariant, queries in chunks have the same bits as all at once: prefill equals decode, with any
 * options, however keys are stored, and whether or not a chunk is given the keys after it.
 */
#include "test.h"

#include <math.h>

#include "attn/attn.h"
#include "attn/relative.h"
#include "testing/random/random.h"
#include "testing/random/share.h"

enum { MAX_HEADS = 8, MAX_Q = 200, MAX_KV = 2300, MAX_DIM = 64, TABLE = 50, PAGE = 16, MAX_BATCH = 2 };

typedef enum keys { DENSE, PAGED, INTEGERS, KEYS } keys;

/* The whole problem. */
typedef struct whole {
    attn_problem problem;
    attn_tensors tensors;
    random_state random;
    attn_dtype dtype;
    keys keys;
    int64_t offset[MAX_BATCH]; /* of query 0 */
    int32_t pages[MAX_BATCH * (MAX_KV / PAGE + 1)];
    float slopes[MAX_HEADS], sink[MAX_HEADS];
    char *q, *k, *v, *o, *bias, *mask, *table, *scale, *columns;
    float *k_scale, *v_scale, *lse;
    int64_t *ranges;
} whole;

static void *scratch(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    assert_non_null(memory);
    return memory;
}

static void *numbers(whole *w, int64_t count, attn_dtype dtype, double size)
{
    enum { BLOCK = 64 };
    const int64_t bytes = (int64_t)attn_dtype_size(dtype);
    char *to = scratch(count, (size_t)bytes);
    float block[BLOCK];
    if (dtype == ATTN_I8) {
        for (int64_t n = 0; n < count; n++) to[n] = (char)(signed char)(random_below(&w->random, 255) - 127);
        return to;
    }
    for (int64_t n = 0, filled; n < count; n += filled) {
        filled = count - n < BLOCK ? count - n : BLOCK;
        for (int64_t i = 0; i < filled; i++) block[i] = (float)(random_signed(&w->random) * size);
        (void)attn_convert(filled, block, ATTN_F32, to + n * bytes, dtype, NULL);
    }
    return to;
}

/* ---- options ---- */

static void causal(whole *w)
{
    w->problem.mask.causal = 1;
    w->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
}
static void causal_top(whole *w) { w->problem.mask.causal = 1; }
static void window(whole *w)
{
    w->problem.mask.window = 1;
    w->problem.mask.window_left = 1 + random_below(&w->random, 300);
    w->problem.mask.window_right = random_below(&w->random, 80) - 1;
}
static void chunks(whole *w) { w->problem.mask.chunk = 1 + random_below(&w->random, 500); }
static void softcap(whole *w) { w->problem.score.softcap = 3; }
static void alibi(whole *w)
{
    for (int h = 0; h < MAX_HEADS; h++) w->slopes[h] = (float)random_signed(&w->random) / 16;
    w->tensors.alibi_slopes = attn_in(w->slopes);
}
static void sink(whole *w)
{
    for (int h = 0; h < MAX_HEADS; h++) w->sink[h] = (float)random_signed(&w->random) * 3;
    w->tensors.sink = attn_in(w->sink);
}
static void bias(whole *w)
{
    const attn_shape *s = &w->problem.shape;
    w->bias = numbers(w, s->heads_q * s->len_q * s->len_kv, ATTN_F32, 2);
    w->tensors.bias = (attn_input){w->bias, ATTN_F32, {0, s->len_q * s->len_kv, s->len_kv, 1}};
}
static void mask(whole *w)
{
    const attn_shape *s = &w->problem.shape;
    if (w->mask) return;
    w->mask = scratch(s->len_q * s->len_kv, 1);
    for (int64_t n = 0; n < s->len_q * s->len_kv; n++) w->mask[n] = random_below(&w->random, 4) > 0;
    w->tensors.mask = (attn_input){w->mask, ATTN_BOOL, {0, 0, s->len_kv, 1}};
}
static void ranges(whole *w)
{
    const attn_shape *s = &w->problem.shape;
    w->ranges = scratch(2 * s->len_q, sizeof *w->ranges);
    for (int64_t i = 0; i < s->len_q; i++) {
        w->ranges[2 * i] = random_below(&w->random, s->len_kv);
        w->ranges[2 * i + 1] = w->ranges[2 * i] + random_below(&w->random, 300);
    }
    w->tensors.ranges = (attn_input){w->ranges, ATTN_I64, {0, 0, 2, 1}};
}

static void table(whole *w)
{
    const attn_dtype compute_type = w->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    w->table = numbers(w, w->problem.shape.heads_q * (2 * TABLE + 1), compute_type, 2);
    w->problem.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = TABLE};
    w->tensors.bias_table = (attn_input){w->table, compute_type, {0}};
}
static void scales(whole *w)
{
    const attn_dtype compute_type = w->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    w->scale = numbers(w, w->problem.shape.heads_q, compute_type, 0.5);
    w->tensors.scale = (attn_input){w->scale, compute_type, {0}};
}
static void dilation(whole *w) { w->problem.mask.dilation = 2 + random_below(&w->random, 2); }
/* Sums over the queries of a call, in addition to the outputs of each query. */
static void columns(whole *w)
{
    const attn_shape *s = &w->problem.shape;
    const attn_dtype compute_type = w->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    w->columns = scratch(s->batch * s->heads_q * s->len_kv, attn_dtype_size(compute_type));
    w->tensors.column_sum = (attn_output){w->columns, compute_type, {0}};
}

/* Keys that no query sees, with NaN in their values. */
static void hidden(whole *w)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t of_entry = (s->len_kv + PAGE - 1) / PAGE, bytes = s->dim_v * (int64_t)attn_dtype_size(w->dtype);
    if (w->mask || w->keys == INTEGERS) return;
    w->mask = scratch(s->len_kv, 1);
    w->tensors.mask = (attn_input){w->mask, ATTN_BOOL, {0, 0, 0, 1}};
    for (int64_t j = 0; j < s->len_kv; j++) w->mask[j] = random_below(&w->random, 8) > 0;
    for (int64_t n = 0; n < s->batch * s->heads_kv * s->len_kv; n++) {
        const int64_t j = n % s->len_kv, g = n / s->len_kv % s->heads_kv, b = n / s->len_kv / s->heads_kv;
        const int64_t page = s->batch * of_entry - 1 - (b * of_entry + j / PAGE);
        if (!w->mask[j])
            memset(w->v + (w->keys == PAGED ? (page * s->heads_kv + g) * PAGE + j % PAGE : n) * bytes, 0xff, (size_t)bytes);
    }
}

static void (*const options[])(whole *) = {causal, causal_top, window, chunks, softcap, alibi,    sink,   bias,
                                           mask,   ranges,     table,  scales, hidden,  dilation, columns};
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- the whole ---- */

static void draw_any_sizes(whole *w, uint64_t seed)
{
    static const int64_t heads[][2] = {{4, 1}, {2, 2}, {8, 2}, {1, 1}, {8, 1}}, dims[] = {16, 64, 20, 33};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_F64};
    random_state *r = &w->random;
    const int64_t *h = heads[random_below(r, 5)], long_keys = random_below(r, 3) == 0;
    w->dtype = types[seed % 5];
    w->keys = w->dtype == ATTN_F64 && seed / 5 % KEYS == INTEGERS ? DENSE : (keys)(seed / 5 % KEYS);
    w->problem = (attn_problem){.struct_size = sizeof w->problem,
                                .shape = {1 + random_below(r, MAX_BATCH), h[0], h[1], 1 + random_below(r, MAX_Q),
                                          1 + random_below(r, long_keys ? MAX_KV : 300), dims[random_below(r, 4)],
                                          dims[random_below(r, 4)]}};
}

/* Sizes of heads that are computed at once (small sequences). */
static void draw_short_sizes(whole *w, uint64_t seed)
{
    static const int64_t heads[][2] = {{4, 1}, {2, 2}, {8, 2}, {1, 1}}, dims[] = {16, 32, 48, 64};
    random_state *r = &w->random;
    const int64_t *h = heads[random_below(r, 4)], len_q = 8 + random_below(r, random_below(r, 2) ? 120 : MAX_Q);
    w->dtype = seed / 4 % 4 == 3 ? ATTN_F64 : ATTN_F32;
    w->keys = seed / 16 % 2 ? PAGED : DENSE;
    w->problem = (attn_problem){.struct_size = sizeof w->problem,
                                .shape = {1 + random_below(r, MAX_BATCH), h[0], h[1], len_q, len_q + random_below(r, 40) - 7,
                                          dims[random_below(r, 4)], dims[random_below(r, 4)]}};
}

static void draw_keys(whole *w, double size_of_values)
{
    const attn_shape *s = &w->problem.shape;
    const attn_dtype dtype = w->keys == INTEGERS ? ATTN_I8 : w->dtype;
    const int64_t of_entry = (s->len_kv + PAGE - 1) / PAGE, pages = s->batch * of_entry;
    const int64_t rows = s->heads_kv * (w->keys == PAGED ? pages * PAGE : s->batch * s->len_kv);
    w->k = numbers(w, rows * s->dim_qk, dtype, 2);
    w->v = numbers(w, rows * s->dim_v, dtype, size_of_values);
    w->tensors.k = (attn_input){w->k, dtype, {0}};
    w->tensors.v = (attn_input){w->v, dtype, {0}};
    if (w->keys == INTEGERS) {
        w->k_scale = numbers(w, rows, ATTN_F32, 0.02);
        w->v_scale = numbers(w, rows, ATTN_F32, 0.02);
        w->tensors.k_scale = attn_in(w->k_scale);
        w->tensors.v_scale = attn_in(w->v_scale);
    }
    if (w->keys != PAGED) return;
    w->problem.paging = (attn_paging){.page_size = PAGE, .pages = pages};
    for (int64_t n = 0; n < pages; n++) w->pages[n] = (int32_t)(pages - 1 - n);
    w->tensors.page_table = (attn_input){w->pages, ATTN_I32, {of_entry, 0, 0, 1}};
}

/* A problem without options. */
static whole *draw_plain(uint64_t seed, void (*draw_sizes)(whole *, uint64_t), double size_of_values)
{
    whole *w = scratch(1, sizeof *w);
    w->random = random_from(seed);
    w->tensors.struct_size = sizeof w->tensors;
    draw_sizes(w, seed);
    const attn_shape *s = &w->problem.shape;
    const int64_t rows = s->batch * s->heads_q * s->len_q;
    const attn_dtype compute = w->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    w->q = numbers(w, rows * s->dim_qk, w->dtype, 2);
    w->tensors.q = (attn_input){w->q, w->dtype, {0}};
    draw_keys(w, size_of_values);
    w->o = scratch(rows * s->dim_v, attn_dtype_size(w->dtype));
    w->lse = scratch(rows, attn_dtype_size(compute));
    w->tensors.o = (attn_output){w->o, w->dtype, {0}};
    w->tensors.lse = (attn_output){w->lse, compute, {0}};
    return w;
}

/* Sets the position of query 0 of each entry. */
static void place(whole *w, int64_t most)
{
    const attn_shape *s = &w->problem.shape;
    const int bottom = w->problem.mask.align == ATTN_ALIGN_BOTTOM_RIGHT;
    for (int b = 0; b < MAX_BATCH; b++) w->offset[b] = bottom ? s->len_kv - s->len_q : random_below(&w->random, most) - most / 5;
    if (!bottom) w->tensors.offset_q = attn_in(w->offset);
}

static whole *draw(uint64_t seed)
{
    whole *w = draw_plain(seed, draw_any_sizes, 1);
    const int64_t first = random_below(&w->random, OPTIONS), second = random_below(&w->random, OPTIONS);
    if (seed % 4 > 0) options[first](w);
    if (seed % 4 > 1 && second != first && w->dtype != ATTN_F64) options[second](w);
    if (w->dtype == ATTN_F64) w->tensors.alibi_slopes.data = w->tensors.sink.data = NULL; /* which are of f32 here */
    place(w, 100);
    if (w->tensors.alibi_slopes.data && w->tensors.offset_q.data && seed % 3 == 0) /* distances that f32 has no numbers for */
        for (int b = 0; b < MAX_BATCH; b++) w->offset[b] += INT64_C(1) << 31;
    return w;
}

/* Small sequences, some with values that underflow. */
static whole *draw_short(uint64_t seed)
{
    static void (*const masks[])(whole *) = {NULL, causal, causal_top, causal_top};
    whole *w = draw_plain(seed, draw_short_sizes, seed % 5 == 0 ? 1e-44 : 1);
    if (masks[seed % 4]) masks[seed % 4](w);
    if (random_below(&w->random, 3) == 0) scales(w);
    place(w, 10);
    return w;
}

static void destroy(whole *w)
{
    void *all[] = {w->q,     w->k,       w->v,       w->o,       w->bias, w->mask,  w->table,
                   w->scale, w->columns, w->k_scale, w->v_scale, w->lse,  w->ranges};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    free(w);
}

static void compute(const attn_problem *p, const attn_tensors *t, int threads, char *why)
{
    const attn_options how = {.struct_size = sizeof how, .invariant = 1, .threads = threads};
    attn_plan *plan;
    attn_error error;
    if (attn_plan_create(&plan, p, t, &how, &error) != ATTN_OK) fail_msg("%s", error.message);
    attn_plan_description d = {.struct_size = sizeof d};
    assert_int_equal(attn_plan_describe(plan, &d, NULL), ATTN_OK);
    if (why) (void)snprintf(why, 400, "%s: %s", d.kernel, d.why);
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = scratch((int64_t)size, 1);
    if (attn_execute(plan, t, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
    free(workspace);
    attn_plan_destroy(plan);
}

/* ---- a chunk ---- */

/* The rows from `first` on of a dense tensor of queries. */
static char *rows_of(const whole *w, const char *base, int64_t dim, attn_dtype dtype, int64_t b, int64_t h, int64_t first)
{
    const attn_shape *s = &w->problem.shape;
    return (char *)(uintptr_t)base + ((b * s->heads_q + h) * s->len_q + first) * dim * (int64_t)attn_dtype_size(dtype);
}

static attn_input from(attn_input slot, int64_t elements)
{
    slot.data = (const char *)slot.data + elements * (int64_t)attn_dtype_size(slot.dtype);
    return slot;
}

static void compare(const whole *w, const char *got, const char *all, int64_t dim, attn_dtype dtype, int64_t first, int64_t count,
                    uint64_t seed, const char *name)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t bytes = count * dim * (int64_t)attn_dtype_size(dtype);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads_q; h++)
            if (memcmp(got + (b * s->heads_q + h) * bytes, rows_of(w, all, dim, dtype, b, h, first), (size_t)bytes) != 0)
                fail_msg("seed %d: bits of %s differ for queries %d .. %d of %d", (int)seed, name, (int)first,
                         (int)(first + count - 1), (int)s->len_q);
}

/* Runs only queries first .. first+count-1; short_keys: with keys only up to the last of them, as in decoding. */
static void run_chunk(whole *w, int64_t first, int64_t count, int short_keys, int threads, uint64_t seed)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t *q = (int64_t[]){s->heads_q * s->len_q * s->dim_qk, s->len_q * s->dim_qk, s->dim_qk, 1};
    const attn_dtype compute_type = w->tensors.lse.dtype;
    attn_problem p = w->problem;
    attn_tensors t = w->tensors;
    int64_t offset[MAX_BATCH], lengths[MAX_BATCH];
    char *o = scratch(s->batch * s->heads_q * count * s->dim_v, attn_dtype_size(w->dtype));
    char *lse = scratch(s->batch * s->heads_q * count, attn_dtype_size(compute_type));
    p.shape.len_q = count;
    p.mask.align = ATTN_ALIGN_TOP_LEFT;
    for (int b = 0; b < MAX_BATCH; b++) {
        offset[b] = w->offset[b] + first;
        lengths[b] = offset[b] + count < 0 ? 0 : offset[b] + count > s->len_kv ? s->len_kv : offset[b] + count;
    }
    t.offset_q = attn_in(offset);
    if (short_keys) t.lengths_kv = attn_in(lengths);
    memcpy(t.q.stride, q, sizeof t.q.stride);
    t.q = from(t.q, first * s->dim_qk);
    t.o.data = o;
    t.lse.data = lse;
    if (t.bias.data) t.bias = from(t.bias, first * s->len_kv);
    if (t.mask.data) t.mask = from(t.mask, first * t.mask.stride[2]);
    if (t.ranges.data) t.ranges = from(t.ranges, first * 2);
    compute(&p, &t, threads, NULL);
    compare(w, o, w->o, s->dim_v, w->dtype, first, count, seed, "o");
    compare(w, lse, (const char *)w->lse, 1, compute_type, first, count, seed, "lse");
    free(o);
    free(lse);
}

/* Runs the whole, then chunks of it; destroys w. */
static void run_whole(whole *w, uint64_t seed, char *why)
{
    compute(&w->problem, &w->tensors, 2, why);
    const int64_t len_q = w->problem.shape.len_q;
    for (int64_t first = 0, count; first < len_q; first += count) {
        static const int64_t most[] = {1, 8, 70}; /* the first two are mostly decoded */
        count = 1 + random_below(&w->random, most[random_below(&w->random, 3)]);
        if (count > len_q - first) count = len_q - first;
        const int short_keys = w->problem.mask.causal && random_below(&w->random, 2);
        run_chunk(w, first, count, short_keys, 1 + (int)random_below(&w->random, 3), seed);
    }
    destroy(w);
}

static void test_chunks(void **state)
{
    (void)state;
    const uint64_t seeds = (uint64_t)share_of_cases(CASES(600));
    for (uint64_t seed = 1; seed <= seeds; seed++) run_whole(draw(seed), seed, NULL);
}

/* Heads that are computed at once sum in the order of tiles, too.  (Scalar kernels have no such walk.) */
static void test_short(void **state)
{
    char why[400];
    int found = 0;
    (void)state;
    const uint64_t seeds = (uint64_t)share_of_cases(CASES(300));
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        run_whole(draw_short(seed), seed, why);
        found += strstr(why, "; a whole head at once, since it is short; options.invariant") != NULL;
    }
    if (!strstr(why, "scalar") && (uint64_t)found < seeds / 2) fail_msg("only %d of these problems computed heads at once", found);
}

/* The plan's description states the walk of few queries: decode in the order of tiles. */
static void test_why(void **state)
{
    char why[400];
    (void)state;
    for (uint64_t seed = 1, found = 0; found < 5; seed++) {
        whole *w = draw(seed);
        if (w->problem.shape.len_q == 1) {
            compute(&w->problem, &w->tensors, 1, why);
            assert_non_null(strstr(why, "; options.invariant: walks in the order of tiles"));
            found += strstr(why, "; decode in the order of tiles") != NULL;
        }
        destroy(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks), cmocka_unit_test(test_short), cmocka_unit_test(test_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
