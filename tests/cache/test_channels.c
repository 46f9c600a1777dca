/* SPDX-License-Identifier: MIT
 *
 * test_channels.c - keys that are quantised by channel: caches hold what ref/ defines, however tokens arrive; attention over them
 * has the bits of attention over the numbers that they stand for; and those are as near as derived.
 */
#include "fails.h"

#include <math.h>
#include <stdio.h>

#include "attn/cache.h"
#include "attn/choose.h"
#include "attn/schedule.h"
#include "attn_ref.h"
#include "draw.h"
#include "testing/random/share.h"

enum { BATCH = 3, GROUPS = 2, HEADS = 8, DIM = 96, CAPACITY = 320, PAGE = 160, PAGES = BATCH * CAPACITY / PAGE, MOST = 40 };
enum { BLOCKS = DIM / ATTN_BLOCK, SIZE = 20 };

/* A cache of q4_1c keys and of f32 values, dense or in pages of [head, token] or [token, head]. */
typedef enum layout { DENSE, HEAD_FIRST, TOKEN_FIRST, LAYOUTS } layout;
typedef struct store {
    unsigned char k[PAGES * GROUPS * PAGE * BLOCKS * SIZE + 1];
    float v[PAGES * GROUPS * PAGE * DIM];
    uint16_t tail[BATCH * GROUPS * ATTN_TAIL * DIM];
    int64_t lengths[BATCH];
    int32_t table[BATCH * CAPACITY / PAGE];
    attn_cache cache;
} store;

static void make_store(store *s, layout way)
{
    const int64_t row = BLOCKS, of_v = DIM;
    memset(s, 0x55, sizeof *s);
    memset(s->lengths, 0, sizeof s->lengths);
    for (int i = 0; i < PAGES; i++) s->table[i] = (i * 7 + 3) % PAGES;
    s->cache = (attn_cache){.struct_size = sizeof s->cache,
                            .batch = BATCH,
                            .heads_kv = GROUPS,
                            .capacity = CAPACITY,
                            .dim_qk = DIM,
                            .dim_v = DIM,
                            .k = {s->k + 1, ATTN_Q4_1C, {0, 0, 0, 0}}, /* blocks need no alignment */
                            .v = {s->v, ATTN_F32, {0, 0, 0, 0}},
                            .k_tail = attn_out(s->tail),
                            .lengths = attn_out(s->lengths)};
    if (way == DENSE) return;
    s->cache.page_size = PAGE, s->cache.pages = PAGES;
    s->cache.page_table = (attn_input){s->table, ATTN_I32, {0, 0, 0, 0}};
    if (way == HEAD_FIRST) return;
    s->cache.k.stride[0] = PAGE * GROUPS * row, s->cache.k.stride[1] = row, s->cache.k.stride[2] = GROUPS * row;
    s->cache.v.stride[0] = PAGE * GROUPS * of_v, s->cache.v.stride[1] = of_v, s->cache.v.stride[2] = GROUPS * of_v;
    s->cache.k_tail.stride[0] = GROUPS * ATTN_TAIL * DIM, s->cache.k_tail.stride[1] = DIM; /* [token, head] too */
    s->cache.k_tail.stride[2] = GROUPS * DIM, s->cache.k_tail.stride[3] = 1;
    s->cache.k.stride[3] = s->cache.v.stride[3] = 1;
}

static double half_at(const void *p)
{
    double x = 0;
    uint16_t half; /* blocks are not aligned */
    memcpy(&half, p, sizeof half);
    (void)attn_convert(1, &half, ATTN_F16, &x, ATTN_F64, NULL);
    return x;
}

/* Channel c of key j of an entry's head, as types.h defines it. */
static double stored_at(const store *s, layout way, int64_t b, int64_t g, int64_t j, int64_t c)
{
    const int64_t first = j - j % ATTN_BLOCK, page = way == DENSE ? b : s->table[b * (CAPACITY / PAGE) + first / PAGE];
    const int64_t each = way == DENSE ? CAPACITY : PAGE, into = (way == DENSE ? first : first % PAGE) + c / BLOCKS;
    const int64_t row = way == TOKEN_FIRST ? (page * each + into) * GROUPS + g : (page * GROUPS + g) * each + into;
    const int64_t t = j % ATTN_BLOCK, last = j % ATTN_TAIL;
    const int64_t tail = way == TOKEN_FIRST ? (b * ATTN_TAIL + last) * GROUPS + g : (b * GROUPS + g) * ATTN_TAIL + last;
    const unsigned char *block = s->k + 1 + (row * BLOCKS + c % BLOCKS) * SIZE;
    if (j >= s->lengths[b] - s->lengths[b] % ATTN_BLOCK) return half_at(s->tail + tail * DIM + c);
    return ref_block_value(REF_Q4_1, half_at(block), half_at(block + 2), t < 16 ? block[4 + t] & 15 : block[4 + t - 16] >> 4);
}

/* Keys of every entry, [batch][head][token][channel]: channels of different sizes, small and large ones, and a NaN. */
static float keys[BATCH * GROUPS * CAPACITY * DIM], values[BATCH * GROUPS * CAPACITY * DIM];
static void draw_keys(int with_nan)
{
    static const float size[] = {1, 30, 0.01F, 6e-8F, 400, 60000, 2};
    for (int64_t i = 0; i < BATCH * GROUPS * CAPACITY * DIM; i++) {
        const int64_t c = i % DIM;
        keys[i] = size[c % (with_nan ? 7 : 3)] * (draw_real() + (c % 5 == 4 ? 3 : 0));
        values[i] = 2 * draw_real();
    }
    if (!with_nan) return;
    keys[5 * DIM + 7] = NAN;
    keys[(CAPACITY + 70) * DIM + 8] = -INFINITY;
    keys[(CAPACITY + 71) * DIM + 5] = 65520; /* beyond f16 */
}

/* Appends the next `count` tokens of each entry: padded to the longest, or packed. */
static void append(store *s, const int64_t *count, int packed, const attn_rope *rope, const attn_options *options)
{
    static float k[BATCH * GROUPS * CAPACITY * DIM], v[BATCH * GROUPS * CAPACITY * DIM];
    int32_t starts[BATCH + 1] = {0};
    int64_t longest = 0;
    attn_error error;
    for (int b = 0; b < BATCH; b++) {
        longest = count[b] > longest ? count[b] : longest;
        starts[b + 1] = starts[b] + (int32_t)count[b];
    }
    const int64_t len = packed ? starts[BATCH] + 1 : longest; /* and one that nobody has */
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t g = 0; g < GROUPS; g++)
            for (int64_t t = 0; t < count[b]; t++) {
                const int64_t from = ((b * GROUPS + g) * CAPACITY + s->lengths[b] + t) * DIM,
                              to = packed ? ((starts[b] + t) * GROUPS + g) * DIM : ((b * GROUPS + g) * len + t) * DIM;
                memcpy(k + to, keys + from, DIM * sizeof *k);
                memcpy(v + to, values + from, DIM * sizeof *v);
            }
    attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = len, .options = options, .k = attn_in(k), .v = attn_in(v)};
    if (packed) {
        tokens.k.stride[1] = tokens.v.stride[1] = DIM;
        tokens.k.stride[2] = tokens.v.stride[2] = GROUPS * DIM;
        tokens.k.stride[3] = tokens.v.stride[3] = 1;
        tokens.cu_seqlens = (attn_input){starts, ATTN_I32, {0, 0, 0, 0}};
    } else {
        tokens.lengths = attn_in(count);
    }
    s->cache.rope = rope;
    if (attn_cache_append(&s->cache, &tokens, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static int same(double x, double y) { return isnan(x) ? isnan(y) : x == y; }

/* Cuts of any kind, with and without a rope, threads and pages, leave what ref/ has for all tokens at once. */
static void test_appended(void **state)
{
    static store s;
    static uint16_t rotated[CAPACITY * DIM];
    static double x[CAPACITY * DIM], expected[CAPACITY * DIM];
    const attn_rope rope = {.struct_size = sizeof rope, .dim_rotary = 32};
    (void)state;
    draw_keys(1);
    for (int run = 0; run < 12; run++) {
        const layout way = (layout)(run % LAYOUTS);
        const int turned = run % 2;
        const attn_options options = {.struct_size = sizeof options, .threads = run % 4 == 3 ? 5 : 1};
        make_store(&s, way);
        for (int step = 0; step < 40; step++) {
            int64_t count[BATCH];
            for (int b = 0; b < BATCH; b++) {
                count[b] = draw(3) ? draw(4) : draw(run < 6 ? 40 : 140);
                if (count[b] > CAPACITY - s.lengths[b]) count[b] = CAPACITY - s.lengths[b];
            }
            append(&s, count, (run + step) % 3 == 0, turned ? &rope : NULL, &options);
            if (step % 13 && step < 39) continue;
            for (int64_t b = 0; b < BATCH; b++)
                for (int64_t g = 0; g < GROUPS; g++) {
                    const int64_t n = s.lengths[b];
                    const float *own = keys + (b * GROUPS + g) * CAPACITY * DIM;
                    const int64_t shape[4] = {1, 1, n, DIM};
                    const attn_input from = attn_in(own);
                    const attn_output to = {rotated, ATTN_F16, {0, 0, 0, 0}};
                    if (turned) assert_int_equal(attn_rope_apply(&rope, shape, &from, NULL, &to, NULL), ATTN_OK);
                    for (int64_t i = 0; i < n * DIM; i++) x[i] = turned ? half_at(rotated + i) : (double)own[i];
                    ref_keys_by_channel(n, DIM, x, expected);
                    for (int64_t i = 0; i < n * DIM; i++) {
                        const double got = stored_at(&s, way, b, g, i / DIM, i % DIM);
                        if (!same(got, expected[i]))
                            fail_msg("run %d, entry %d, head %d, key %d of %d, channel %d: %g, not %g", run, (int)b, (int)g,
                                     (int)(i / DIM), (int)n, (int)(i % DIM), got, expected[i]);
                    }
                }
        }
        assert_int_equal(s.k[0], 0x55);
    }
}

/* A rope's keys are those of attn_rope_apply in f16, quantised by attn_quantise; NaN takes its channel of its group with it. */
static void test_quantised(void **state)
{
    static store s;
    static uint16_t halves[2 * ATTN_BLOCK * DIM];
    static unsigned char expected[2 * ATTN_BLOCK * BLOCKS * SIZE];
    const attn_rope rope = {.struct_size = sizeof rope};
    const int64_t shape[4] = {1, 1, 2 * ATTN_BLOCK, DIM}, count[BATCH] = {2 * ATTN_BLOCK, 0, 0};
    const attn_input from = attn_in(keys), half = {halves, ATTN_F16, {0, 0, 0, 0}};
    const attn_output to_half = {halves, ATTN_F16, {0, 0, 0, 0}}, to = {expected, ATTN_Q4_1C, {0, 0, 0, 0}};
    (void)state;
    draw_keys(1);
    make_store(&s, DENSE);
    append(&s, count, 0, &rope, NULL);
    assert_int_equal(attn_rope_apply(&rope, shape, &from, NULL, &to_half, NULL), ATTN_OK);
    assert_int_equal(attn_quantise(2 * ATTN_BLOCK, DIM, &half, &to, NULL, NULL), ATTN_OK);
    assert_memory_equal(s.k + 1, expected, sizeof expected);
    for (int64_t j = 0; j < 2 * ATTN_BLOCK; j++) {
        assert_int_equal(isnan(stored_at(&s, DENSE, 0, 0, j, 7)) != 0, j < ATTN_BLOCK);
        assert_true(isfinite(stored_at(&s, DENSE, 0, 0, j, 1)));
    }
    FAILS(attn_quantise(ATTN_BLOCK + 1, DIM, &half, &to, NULL, &error), ATTN_ERR_SHAPE,
          "quantise: values is q4_1c and rows is 33; groups need a multiple of 32");
}

/* |stored - x| is at most 1/2 + 15/2048 of a step, the 15th part of the range of the group's channel, but for roundings in f32. */
static void test_bound(void **state)
{
    static double x[ATTN_BLOCK * DIM], stored[ATTN_BLOCK * DIM];
    double nearest = 0;
    (void)state;
    for (int repeat = 0; repeat < 50; repeat++) {
        draw_keys(0);
        for (int i = 0; i < ATTN_BLOCK * DIM; i++) x[i] = ref_f16((double)keys[i]);
        ref_keys_by_channel(ATTN_BLOCK, DIM, x, stored);
        for (int c = 0; c < DIM; c++) {
            double low = INFINITY, high = -INFINITY;
            for (int t = 0; t < ATTN_BLOCK; t++) low = fmin(low, x[t * DIM + c]), high = fmax(high, x[t * DIM + c]);
            const double step = (high - low) / 15, most = fmax(fabs(low), fabs(high));
            const double bound = step * (0.5 + 15.0 / 2048 + 1e-5) + 0x1p-24 * most + 0x1p-21;
            for (int t = 0; t < ATTN_BLOCK; t++) {
                const double off = fabs(stored[t * DIM + c] - x[t * DIM + c]);
                if (!(off <= bound)) fail_msg("channel %d: %g is %g off, %g allowed", c, x[t * DIM + c], off, bound);
                nearest = fmax(nearest, off / bound);
            }
        }
    }
    assert_true(nearest > 0.9);
}

/* ---- attention ---- */

static float q[BATCH * HEADS * MOST * DIM];
/* The numbers that the cache stands for, dense. */
static float plain[BATCH * GROUPS * CAPACITY * DIM];

static void fill(store *s, layout way, const int64_t *lengths)
{
    make_store(s, way);
    append(s, lengths, 0, NULL, NULL);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t g = 0; g < GROUPS; g++)
            for (int64_t i = 0; i < lengths[b] * DIM; i++)
                plain[(b * GROUPS + g) * CAPACITY * DIM + i] = (float)stored_at(s, way, b, g, i / DIM, i % DIM);
}

typedef struct call {
    int64_t queries;
    attn_options options;
    int64_t window; /* 0: none */
    int lists, softcap;
} call;

/* o of `queries` of each entry, over the cache, or over the same numbers in f32 (s NULL).  Returns 0 without the instruction set.
 */
static int attend(const call *c, const store *s, const int64_t *lengths, float *o)
{
    static int64_t starts[BATCH * GROUPS + 1], chosen[BATCH * GROUPS * CAPACITY / 8];
    attn_error error;
    attn_plan *plan;
    attn_problem p = {.struct_size = sizeof p, .shape = {BATCH, HEADS, GROUPS, c->queries, CAPACITY, DIM, DIM}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(plain), .v = attn_in(values), .o = attn_out(o)};
    p.mask.causal = 1;
    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p.mask.window = c->window > 0;
    p.mask.window_left = c->window;
    if (c->softcap) p.score.softcap = 3;
    t.lengths_kv = attn_in(lengths);
    if (s) {
        t.k = (attn_input){s->cache.k.data, ATTN_Q4_1C, {0, 0, 0, 0}};
        t.v = attn_in(s->v);
        t.k_tail = attn_in(s->tail);
        memcpy(t.k.stride, s->cache.k.stride, sizeof t.k.stride);
        memcpy(t.v.stride, s->cache.v.stride, sizeof t.v.stride);
        memcpy(t.k_tail.stride, s->cache.k_tail.stride, sizeof t.v.stride);
        t.page_table = s->cache.page_table;
        p.paging.page_size = s->cache.page_size, p.paging.pages = s->cache.pages;
    }
    if (c->lists) { /* every third block of 8 keys: some begin within groups, the last ones in the tail */
        int64_t n = 0;
        p.mask.block_heads = 1, p.mask.block_q = MOST, p.mask.block_kv = 8;
        for (int list = 0; list < BATCH * GROUPS; list++) {
            for (int64_t block = list % 3; block < CAPACITY / 8; block += 3) chosen[n++] = block;
            starts[list + 1] = n;
        }
        p.mask.block_entries = n;
        t.block_starts = attn_in(starts), t.block_index = attn_in(chosen);
    }
    const attn_status status = attn_plan_create(&plan, &p, &t, &c->options, &error);
    if (status == ATTN_ERR_UNSUPPORTED && c->options.isa) return 0;
    if (status != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_plan_workspace_size(plan);
    void *const workspace = malloc(size + 1);
    assert_non_null(workspace);
    if (attn_execute(plan, &t, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
    free(workspace);
    attn_plan_destroy(plan);
    return 1;
}

/* Few queries, rows of several heads and tiles; whole and partly seen groups; any layout, threads and instruction set. */
static void test_attention(void **state)
{
    static store s;
    static float o[BATCH * HEADS * MOST * DIM], expected[BATCH * HEADS * MOST * DIM];
    static const attn_isa isas[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON, ATTN_ISA_WASM128};
    static const int64_t queries[] = {1, 3, MOST}, all_lengths[][BATCH] = {{315, 96, 0}, {63, 320, 31}};
    int number = 0;
    (void)state;
    draw_keys(0);
    for (int64_t i = 0; i < BATCH * HEADS * MOST * DIM; i++) q[i] = 0.2F * draw_real();
    for (int run = 0; run < 2 * LAYOUTS; run++) {
        const int64_t *lengths = all_lengths[run / LAYOUTS];
        fill(&s, (layout)(run % LAYOUTS), lengths);
        for (size_t isa = 0; isa < 4; isa++)
            for (size_t n = 0; n < 3; n++)
                for (int more = 0; more < 4; more++) {
                    if (isas[isa] == ATTN_ISA_SCALAR && (run % 4 || more % 3)) continue; /* slow */
                    if (!share_has(number++)) continue;
                    call c = {.queries = queries[n],
                              .options = {.struct_size = sizeof c.options,
                                          .isa = isas[isa],
                                          .invariant = more & 1,
                                          .threads = 1 + run % 2},
                              .window = more == 3 ? 45 : 0,
                              .lists = more == 2,
                              .softcap = run == 1};
                    /* Otherwise f32 keys go to other walks, and decode has scores in another order. */
                    const int exact = more & 1;
                    if (!attend(&c, NULL, lengths, expected)) continue;
                    assert_true(attend(&c, &s, lengths, o));
                    for (int64_t i = 0; i < BATCH * HEADS * queries[n] * DIM; i++) {
                        const double off = fabs((double)o[i] - (double)expected[i]);
                        if (exact ? off != 0 : !(off < 1e-5))
                            fail_msg("layout %d, isa %d, %d queries, case %d, number %d: %g, not %g", run % LAYOUTS, (int)isas[isa],
                                     (int)queries[n], more, (int)i, (double)o[i], (double)expected[i]);
                    }
                }
    }
}

/* A step of a ragged batch with a schedule has the bits of each sequence alone, dense. */
static void test_scheduled(void **state)
{
    static store s;
    static float packed[BATCH * HEADS * MOST * DIM], alone[BATCH * HEADS * MOST * DIM];
    static const int64_t lengths[BATCH] = {315, 97, 64}, counts[BATCH] = {1, 33, 2};
    int64_t starts[BATCH + 1] = {0};
    attn_error error;
    attn_plan *plan;
    const attn_schedule *schedule;
    (void)state;
    draw_keys(0);
    fill(&s, TOKEN_FIRST, lengths);
    for (int b = 0; b < BATCH; b++) starts[b + 1] = starts[b] + counts[b];
    for (int64_t i = 0; i < BATCH * HEADS * MOST * DIM; i++) q[i] = 0.2F * draw_real(); /* [token, head] */
    attn_problem p = {.struct_size = sizeof p,
                      .shape = {BATCH, HEADS, GROUPS, MOST, CAPACITY, DIM, DIM},
                      .mask = {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT},
                      .paging = {.page_size = PAGE, .pages = PAGES}};
    attn_call with = {.struct_size = sizeof with};
    attn_tensors t = {.struct_size = sizeof t, .call = &with, .q = attn_in(q), .o = attn_out(packed)};
    t.k = (attn_input){s.cache.k.data, ATTN_Q4_1C, {0, 0, 0, 0}}, t.v = attn_in(s.v), t.k_tail = attn_in(s.tail);
    memcpy(t.k.stride, s.cache.k.stride, sizeof t.k.stride);
    memcpy(t.v.stride, s.cache.v.stride, sizeof t.v.stride);
    memcpy(t.k_tail.stride, s.cache.k_tail.stride, sizeof t.v.stride);
    t.page_table = s.cache.page_table;
    t.cu_seqlens_q = attn_in(starts), t.lengths_kv = attn_in(lengths);
    if (attn_plan_create(&plan, &p, &t, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t bytes = attn_schedule_size(plan);
    void *const memory = malloc(bytes);
    if (attn_schedule_make(&schedule, plan, &t, memory, bytes, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_schedule_workspace_size(schedule);
    void *const workspace = malloc(size + 1);
    with.schedule = schedule;
    if (attn_execute(plan, &t, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
    for (int b = 0; b < BATCH; b++) {
        attn_problem one = {.struct_size = sizeof one, .shape = {1, HEADS, GROUPS, counts[b], lengths[b], DIM, DIM}};
        one.mask = p.mask;
        attn_tensors u = {.struct_size = sizeof u, .v = attn_in(values + (int64_t)b * GROUPS * CAPACITY * DIM)};
        u.q = (attn_input){q + starts[b] * HEADS * DIM, ATTN_F32, {0, DIM, HEADS * DIM, 1}};
        u.o = (attn_output){alone + starts[b] * HEADS * DIM, ATTN_F32, {0, DIM, HEADS * DIM, 1}};
        u.v.stride[0] = u.v.stride[1] = CAPACITY * DIM, u.v.stride[2] = DIM, u.v.stride[3] = 1;
        static store dense;
        make_store(&dense, DENSE);
        append(&dense, lengths, 1, NULL, NULL);
        u.k = (attn_input){
            dense.k + 1 + (int64_t)b * GROUPS * CAPACITY * BLOCKS * SIZE, ATTN_Q4_1C, {0, CAPACITY * BLOCKS, BLOCKS, 1}};
        u.k_tail = attn_in(dense.tail + (int64_t)b * GROUPS * ATTN_TAIL * DIM);
        if (attn_compute(&one, &u, &error) != ATTN_OK) fail_msg("%s", error.message);
    }
    assert_memory_equal(packed, alone, sizeof(float) * (size_t)(starts[BATCH] * HEADS * DIM));
    free(workspace);
    free(memory);
    attn_plan_destroy(plan);
}

/* attn_cache_attend appends, and its queries see the new keys in the tail and in the groups that they have filled. */
static void test_attended(void **state)
{
    static store s, other;
    static float o[BATCH * HEADS * 5 * DIM], expected[BATCH * HEADS * 5 * DIM], k[BATCH * GROUPS * 5 * DIM],
        v[BATCH * GROUPS * 5 * DIM];
    const int64_t before[BATCH] = {30, 59, 0}, more[BATCH] = {5, 5, 5}, after[BATCH] = {35, 64, 5};
    (void)state;
    draw_keys(0);
    fill(&s, HEAD_FIRST, before);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t g = 0; g < GROUPS; g++) {
            const int64_t from = ((b * GROUPS + g) * CAPACITY + before[b]) * DIM, to = (b * GROUPS + g) * 5 * DIM;
            memcpy(k + to, keys + from, sizeof(float) * 5 * DIM);
            memcpy(v + to, values + from, sizeof(float) * 5 * DIM);
        }
    const attn_cache_tokens tokens = {
        .struct_size = sizeof tokens, .len = 5, .k = attn_in(k), .v = attn_in(v), .lengths = attn_in(more)};
    attn_problem p = {.struct_size = sizeof p, .shape = {0, HEADS, 0, 0, 0, 0, 0}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .o = attn_out(o)};
    assert_int_equal(attn_cache_attend(&s.cache, &tokens, &p, &t, NULL, NULL), ATTN_OK);
    fill(&other, HEAD_FIRST, after);
    const call c = {.queries = 5, .options = {.struct_size = sizeof c.options}};
    assert_true(attend(&c, &other, after, expected));
    assert_memory_equal(o, expected, sizeof o);
    t.k_tail = attn_in(s.tail);
    FAILS(attn_cache_attend(&s.cache, &tokens, &p, &t, NULL, &error), ATTN_ERR_ARGUMENT,
          "k_tail is set; attn_cache_attend does not use it");
    t.k_tail = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    const int32_t starts[BATCH + 1] = {0, 1, 2, 3};
    attn_cache_tokens ragged = tokens;
    ragged.lengths = t.k_tail, ragged.cu_seqlens = (attn_input){starts, ATTN_I32, {0, 0, 0, 0}};
    FAILS(attn_cache_attend(&s.cache, &ragged, &p, &t, NULL, &error), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens is set; attending has queries of [batch, heads_q, len, dim]: append, then compute");
}

/* ---- bad input ---- */

static void test_rejected(void **state)
{
    static store s, before;
    const int64_t slots[1] = {0}, positions[1] = {0}, drop[BATCH] = {0};
    int32_t starts[BATCH + 1] = {0, 1, 1, 1};
    (void)state;
#define CACHE(changes, status, text)                                                                                               \
    do {                                                                                                                           \
        make_store(&s, HEAD_FIRST);                                                                                                \
        attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 1, .k = attn_in(keys), .v = attn_in(values)};             \
        changes;                                                                                                                   \
        before = s;                                                                                                                \
        FAILS(attn_cache_append(&s.cache, &tokens, &error), status, text);                                                         \
        assert_memory_equal(&s, &before, sizeof s);                                                                                \
    } while (0)
    CACHE(s.cache.v.dtype = ATTN_Q4_1C, ATTN_ERR_UNSUPPORTED, "cache: v is q4_1c; only keys are quantised by channel");
    CACHE(s.cache.k.dtype = ATTN_Q4_1, ATTN_ERR_ARGUMENT, "cache: k_tail is set and k is q4_1; only keys of q4_1c have a tail");
    CACHE(s.cache.k_tail.data = NULL, ATTN_ERR_ARGUMENT, "cache: k is q4_1c and k_tail is NULL");
    CACHE(s.cache.k_tail.dtype = ATTN_BF16, ATTN_ERR_UNSUPPORTED, "cache: k_tail is bf16; it must be f16");
    CACHE(s.cache.page_size = 48, ATTN_ERR_SHAPE, "cache: k is q4_1c and page_size is 48; it must be a multiple of 32");
    CACHE((s.cache.k_tail.stride[0] = s.cache.k_tail.stride[1] = DIM, s.cache.k_tail.stride[2] = DIM, s.cache.k_tail.stride[3] = 1),
          ATTN_ERR_STRIDE, "cache: k_tail.stride[1] is 96; its elements overlap");
    CACHE(s.cache.k_tail.data = s.k + 3, ATTN_ERR_ARGUMENT, "cache: k_tail is not aligned to its elements of 2 bytes");
    CACHE(s.cache.k_tail.data = s.v, ATTN_ERR_STRIDE,
          "cache: v and k_tail share elements; an output must not overlap another tensor");
    CACHE(
        tokens.slots = attn_in(slots), ATTN_ERR_UNSUPPORTED,
        "cache: k is q4_1c and tokens.slots is set; the last keys of an entry are in its tail, so append by lengths or cu_seqlens");
    CACHE((tokens.cu_seqlens = (attn_input){starts, ATTN_I32, {0, 0, 0, 0}}, tokens.slots = attn_in(slots)), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens and tokens.slots are both set; set only one of them");
    CACHE((tokens.cu_seqlens = (attn_input){starts, ATTN_I32, {0, 0, 0, 0}}, tokens.lengths = attn_in(drop)), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens and tokens.lengths are both set; set only one of them");
    starts[0] = 1;
    CACHE((tokens.cu_seqlens = (attn_input){starts, ATTN_I32, {0, 0, 0, 0}}), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens[0] (1) is not 0");
    starts[0] = 0, starts[2] = 2;
    CACHE((tokens.cu_seqlens = (attn_input){starts, ATTN_I32, {0, 0, 0, 0}}), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens[2] (2) is not between its predecessor (1) and len (1)");
    const attn_input from = attn_in(slots), to = attn_in(positions), dropped = attn_in(drop);
    make_store(&s, HEAD_FIRST);
    FAILS(attn_cache_shift(&s.cache, 0, &dropped, &error), ATTN_ERR_UNSUPPORTED,
          "cache: k is q4_1c; a shift would move keys out of their groups");
    FAILS(attn_cache_move(&s.cache, 1, &from, &to, &error), ATTN_ERR_UNSUPPORTED,
          "cache: k is q4_1c; its keys are in groups, not in slots");
    const attn_bounds bounds = {.struct_size = sizeof bounds, .rows = attn_out(s.v)};
    FAILS(attn_page_bounds(&s.cache, &bounds, NULL, &error), ATTN_ERR_UNSUPPORTED,
          "bounds: k is q4_1c; bounds of keys by channel are not there yet");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_appended),  cmocka_unit_test(test_quantised),
                                       cmocka_unit_test(test_bound),     cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_scheduled), cmocka_unit_test(test_attended),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
