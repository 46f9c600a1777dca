/* SPDX-License-Identifier: MIT
 *
 * test_choose.c - lists of blocks for each key head: bounds, scores and lists as a chain that ends in attention; the same bits
 * whatever pages, sizes of blocks, threads, batch and schedule; calls that are rejected.
 */
#include "fails.h"

#include <math.h>
#include <stdlib.h>

#include "attn/choose.h"
#include "attn/schedule.h"
#include "draw.h"

enum { B = 2, HQ = 4, HKV = 2, CAPACITY = 1056, D = 12, LISTED = 600, BLOCK = 4, COLUMNS = CAPACITY / BLOCK };

static float keys[B][HKV][CAPACITY][D], values[B][HKV][CAPACITY][D], q[B][HQ][D];
static float pages[2][B * HKV * CAPACITY * D];
static int64_t lengths[B] = {CAPACITY - 3, 661}, table[B * CAPACITY];
static const int64_t ones[B + 1] = {0, 1, 2};

/* The tokens in pages of this size, in some order. */
static void lay(int64_t page)
{
    const int64_t each = CAPACITY / page;
    for (int64_t n = 0; n < B * each; n++) table[n] = n * 7 % (B * each); /* 7 divides no number of pages */
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < HKV; h++)
            for (int64_t j = 0; j < CAPACITY; j++) {
                const int64_t row = (table[b * each + j / page] * HKV + h) * page + j % page;
                memcpy(pages[0] + row * D, keys[b][h][j], sizeof keys[b][h][j]);
                memcpy(pages[1] + row * D, values[b][h][j], sizeof values[b][h][j]);
            }
}

/* A list of LISTED keys for each key head, as blocks of four keys or as single keys. */
static int64_t starts[B * HKV + 1], index_of[B * HKV * LISTED];
static void list(int64_t block)
{
    const int64_t each = LISTED / BLOCK;
    for (int64_t n = 0; n < B * HKV; n++)
        for (int64_t k = 0; k < each; k++) {
            const int64_t place = n % 2 + k + (n < HKV ? k / 2 : 0); /* 150 of 264 blocks, or of 166 */
            if (block == BLOCK) index_of[n * each + k] = place;
            for (int64_t i = 0; block == 1 && i < BLOCK; i++) index_of[(n * each + k) * BLOCK + i] = place * BLOCK + i;
        }
    for (int64_t n = 0; n <= B * HKV; n++) starts[n] = n * LISTED / block;
}

/* How the same attention is asked for. */
typedef struct way {
    int64_t page, block;
    int threads, scheduled, first, count; /* entries first .. first+count-1 */
} way;

static void attend(const way *w, const attn_options *more, float o[B][HQ][D])
{
    attn_options options = *more;
    attn_problem p = {.struct_size = sizeof p, .shape = {w->count, HQ, HKV, 1, CAPACITY, D, D}, .mask.causal = 1};
    attn_call call = {.struct_size = sizeof call};
    int64_t of_list[B * HKV + 1];
    attn_error error;
    attn_plan *plan;
    options.threads = w->threads;
    list(w->block);
    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p.mask.block_heads = p.mask.block_q = 1, p.mask.block_kv = w->block;
    p.mask.block_entries = w->count * HKV * LISTED / w->block;
    for (int n = 0; n <= w->count * HKV; n++) of_list[n] = starts[n];
    attn_tensors t = {.struct_size = sizeof t,
                      .call = &call,
                      .q = {q[w->first], ATTN_F32, {0, D, HQ * D, 1}},
                      .o = {o[w->first], ATTN_F32, {0, D, HQ * D, 1}},
                      .k = attn_in(keys[w->first]),
                      .v = attn_in(values[w->first]),
                      .cu_seqlens_q = attn_in(ones),
                      .lengths_kv = attn_in(lengths + w->first),
                      .block_starts = attn_in(of_list),
                      .block_index = attn_in(index_of + w->first * HKV * LISTED / w->block)};
    if (w->page) {
        lay(w->page);
        p.paging = (attn_paging){.page_size = w->page, .pages = B * CAPACITY / w->page};
        t.k = attn_in(pages[0]), t.v = attn_in(pages[1]), t.page_table = attn_in(table + w->first * (CAPACITY / w->page));
    }
    if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    void *memory = malloc(attn_schedule_size(plan) + 1), *workspace = malloc(attn_plan_workspace_size(plan) + 1);
    t.block_index.data = w->scheduled ? ATTN_LATER : t.block_index.data; /* a schedule does not read it */
    if (w->scheduled && attn_schedule_make(&call.schedule, plan, &t, memory, attn_schedule_size(plan), NULL, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    t.block_index.data = index_of + w->first * HKV * LISTED / w->block;
    const size_t size = w->scheduled ? attn_schedule_workspace_size(call.schedule) : attn_plan_workspace_size(plan);
    if (attn_execute(plan, &t, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
    if (w->scheduled) {
        for (int n = 1; n <= w->count * HKV; n++) of_list[n] = LISTED / w->block - 1;
        assert_int_equal(attn_execute(plan, &t, workspace, size, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message,
                            w->block == 1
                                ? "call.schedule was made for lists of up to 600 keys in batch entry 0; now they have 599"
                                : "call.schedule was made for lists of up to 600 keys in batch entry 0; now they have 596");
    }
    free(memory), free(workspace);
    attn_plan_destroy(plan);
}

static void draw_all(void)
{
    float *const arrays[] = {keys[0][0][0], values[0][0][0], q[0][0]};
    const int counts[] = {B * HKV * CAPACITY * D, B * HKV * CAPACITY * D, B * HQ * D};
    for (int a = 0; a < 3; a++)
        for (int i = 0; i < counts[a]; i++) arrays[a][i] = draw_real();
}

static void test_same_bits(void **state)
{
    static const way ways[] = {{1, BLOCK, 1, 0, 0, B},  {4, BLOCK, 3, 1, 0, B},  {16, BLOCK, 2, 0, 0, B},
                               {32, 1, 1, 1, 0, B},     {3, 1, 3, 0, 0, B},      {0, 1, 2, 1, 0, B},
                               {16, BLOCK, 1, 1, 0, 1}, {16, BLOCK, 1, 0, 1, 1}, {0, BLOCK, 1, 0, 1, 1}};
    static float first[B][HQ][D], again[B][HQ][D];
    (void)state;
    draw_all();
    for (int invariant = 0; invariant < 2; invariant++) {
        const attn_options options = {.struct_size = sizeof options, .invariant = invariant};
        attend(&(way){0, BLOCK, 1, 0, 0, B}, &options, first);
        for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
            memcpy(again, first, sizeof first);
            memset(again[ways[n].first], 0xff, sizeof again[0] * (size_t)ways[n].count);
            attend(&ways[n], &options, again);
            if (memcmp(again, first, sizeof first) != 0) fail_msg("way %d, invariant %d: other bits", (int)n, invariant);
        }
    }
}

/* Scores that terms by distance make large: the maxima of tiles, and of decode, follow.  Against a boolean mask of the same keys.
 */
static void test_large_terms(void **state)
{
    enum { SQ = 40, SKV = 64, EVERY = 2 };
    static const float slope = -9;
    static float o[SQ][D], expected[SQ][D];
    static unsigned char mask[SKV];
    int64_t of_list[2] = {0, SKV / BLOCK / EVERY}, blocks[SKV / BLOCK / EVERY];
    (void)state;
    draw_all();
    for (int j = 0; j < SKV; j++) mask[j] = j / BLOCK % EVERY == 0;
    for (int n = 0; n < SKV / BLOCK / EVERY; n++) blocks[n] = n * EVERY;
    for (int64_t count = 1; count <= SQ; count += SQ - 1) {
        attn_error error;
        attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, count, SKV, D, D}};
        attn_tensors t = {.struct_size = sizeof t,
                          .q = attn_in(keys[1][0]),
                          .k = attn_in(keys[0][0]),
                          .v = attn_in(values[0][0]),
                          .o = attn_out(expected),
                          .alibi_slopes = attn_in(&slope),
                          .mask = {mask, ATTN_BOOL, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, 1}}};
        if (attn_compute(&p, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
        p.mask.block_heads = 1, p.mask.block_q = count, p.mask.block_kv = BLOCK, p.mask.block_entries = SKV / BLOCK / EVERY;
        t.mask = (attn_input){0}, t.block_starts = attn_in(of_list), t.block_index = attn_in(blocks), t.o = attn_out(o);
        if (attn_compute(&p, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int64_t i = 0; i < count; i++)
            for (int c = 0; c < D; c++)
                if (!(fabsf(o[i][c] - expected[i][c]) < 1e-5f))
                    fail_msg("query %d: %g, not %g", (int)i, (double)o[i][c], (double)expected[i][c]);
    }
}

/* Without queries there are no lists: block_starts has one element, and no more of it is read. */
static void test_no_queries(void **state)
{
    static const int64_t none[B + 1];
    int64_t *first = calloc(1, sizeof *first);
    attn_problem p = {.struct_size = sizeof p, .shape = {B, HQ, HKV, 0, CAPACITY, D, D}};
    attn_call call = {.struct_size = sizeof call};
    attn_tensors t = {.struct_size = sizeof t,
                      .call = &call,
                      .q = attn_in(q),
                      .k = attn_in(keys),
                      .v = attn_in(values),
                      .o = attn_out(ATTN_EMPTY),
                      .cu_seqlens_q = attn_in(none),
                      .block_starts = attn_in(first),
                      .block_index = attn_in(none)};
    attn_plan *plan;
    (void)state;
    assert_non_null(first);
    p.mask.block_heads = p.mask.block_q = 1, p.mask.block_kv = BLOCK;
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
    void *memory = malloc(attn_schedule_size(plan));
    assert_int_equal(attn_schedule_make(&call.schedule, plan, &t, memory, attn_schedule_size(plan), NULL, NULL), ATTN_OK);
    assert_int_equal(attn_execute(plan, &t, NULL, 0, NULL), ATTN_OK);
    free(memory), free(first);
    attn_plan_destroy(plan);
}

/* Bounds of quantised keys are those of the numbers that they stand for, which are scores of unit vectors. */
static void test_quantised(void **state)
{
    enum { TOKENS = 9, DIM = 64, BOUNDED = (TOKENS + BLOCK - 1) / BLOCK };
    static const attn_dtype types[] = {ATTN_I8, ATTN_F8_E4M3, ATTN_F8_E5M2, ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1};
    static float plain[TOKENS][DIM], unit[DIM][DIM], stored[TOKENS][DIM], v[TOKENS], new_v[TOKENS], o[DIM], score[DIM][TOKENS],
        k_scale[TOKENS];
    static float bounded[BOUNDED][2][DIM];
    (void)state;
    for (int c = 0; c < DIM; c++) unit[c][c] = 1;
    for (int j = 0; j < TOKENS; j++)
        for (int c = 0; c < DIM; c++) plain[j][c] = draw_real();
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        int64_t length = 0;
        attn_error error;
        attn_cache kept = {.struct_size = sizeof kept,
                           .batch = 1,
                           .heads_kv = 1,
                           .capacity = TOKENS,
                           .dim_qk = DIM,
                           .dim_v = 1,
                           .k = {stored, types[n], {0, 0, 0, 0}},
                           .v = {v, ATTN_F32, {0, 0, 0, 0}},
                           .lengths = attn_out(&length)};
        const attn_cache_tokens tokens = {
            .struct_size = sizeof tokens, .len = TOKENS, .k = {plain, ATTN_F32, {0, 0, 0, 0}}, .v = attn_in(new_v)};
        attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, DIM, TOKENS, DIM, 1}};
        attn_tensors t = {.struct_size = sizeof t,
                          .q = attn_in(unit),
                          .k = {stored, types[n], {0, 0, 0, 0}},
                          .v = attn_in(v),
                          .o = attn_out(o),
                          .scores = attn_out(score)};
        const attn_bounds all = {.struct_size = sizeof all, .block = BLOCK, .rows = attn_out(bounded)};
        if (types[n] == ATTN_I8) kept.k_scale = attn_out(k_scale), t.k_scale = attn_in(k_scale);
        p.score.scale_kind = ATTN_SCALE_VALUE, p.score.scale = 1;
        if (attn_cache_append(&kept, &tokens, &error) != ATTN_OK) fail_msg("%s", error.message);
        if (attn_compute(&p, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
        if (attn_page_bounds(&kept, &all, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int b = 0; b < BOUNDED; b++)
            for (int c = 0; c < DIM; c++) {
                float least = score[c][b * BLOCK], greatest = least;
                for (int j = b * BLOCK; j < TOKENS && j < (b + 1) * BLOCK; j++)
                    least = fminf(least, score[c][j]), greatest = fmaxf(greatest, score[c][j]);
                if (bounded[b][0][c] != least || bounded[b][1][c] != greatest)
                    fail_msg("%s, block %d, channel %d: %g and %g", attn_dtype_name(types[n]), b, c, (double)least,
                             (double)greatest);
            }
    }
}

/* ---- pages that entries share ---- */

/* The bounds of a shared page are of all keys that any entry has there, whoever comes first, with any threads. */
static void test_shared_pages(void **state)
{
    enum { ENTRIES = 6, HEADS = 3, TOKENS = 4, PAGES = 2 };
    static float k[PAGES][HEADS][TOKENS], v[PAGES][HEADS][TOKENS], bounded[PAGES][HEADS][2];
    static const int64_t rows_of[ENTRIES][2] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}, held[ENTRIES] = {5, 8, 7, 3, 4, 1};
    attn_error error;
    (void)state;
    for (int p = 0; p < PAGES; p++)
        for (int h = 0; h < HEADS; h++)
            for (int j = 0; j < TOKENS; j++) k[p][h][j] = (float)(100 * p + 10 * h + (j + 2) % TOKENS);
    for (int threads = 1; threads <= 4; threads++) {
        const attn_options options = {.struct_size = sizeof options, .threads = threads};
        int64_t lens[ENTRIES];
        memcpy(lens, held, sizeof lens);
        const attn_cache shared = {.struct_size = sizeof shared,
                                   .batch = ENTRIES,
                                   .heads_kv = HEADS,
                                   .capacity = 2 * TOKENS,
                                   .dim_qk = 1,
                                   .dim_v = 1,
                                   .k = attn_out(k),
                                   .v = attn_out(v),
                                   .lengths = attn_out(lens),
                                   .page_size = TOKENS,
                                   .pages = PAGES,
                                   .page_table = attn_in(rows_of)};
        const attn_bounds all = {.struct_size = sizeof all, .options = &options, .rows = attn_out(bounded)};
        if (attn_page_bounds(&shared, &all, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int p = 0; p < PAGES; p++)
            for (int h = 0; h < HEADS; h++)
                for (int side = 0; side < 2; side++)
                    assert_int_equal((int)bounded[p][h][side], 100 * p + 10 * h + (side ? TOKENS - 1 : 0));
    }
}

/* ---- what is rejected ---- */

static float rows[B * COLUMNS * HKV * 2 * D], scores[B * HKV * COLUMNS];
static int64_t chosen[B * HKV * 3], begins[B * HKV + 1];
static attn_cache cache;
static attn_bounds bounds;
static attn_choice choice;
static attn_input queries, first_new;
static attn_output of_scores;

static void valid(void)
{
    cache = (attn_cache){.struct_size = sizeof cache,
                         .batch = B,
                         .heads_kv = HKV,
                         .capacity = CAPACITY,
                         .dim_qk = D,
                         .dim_v = D,
                         .k = attn_out(keys),
                         .v = attn_out(values),
                         .lengths = attn_out(lengths)};
    bounds = (attn_bounds){.struct_size = sizeof bounds, .block = BLOCK, .rows = attn_out(rows)};
    choice = (attn_choice){.struct_size = sizeof choice,
                           .batch = B,
                           .heads_kv = HKV,
                           .blocks = COLUMNS,
                           .block = BLOCK,
                           .count = 3,
                           .keep_last = 1,
                           .lengths = attn_in(lengths),
                           .scores = attn_in(scores),
                           .block_starts = attn_out(begins),
                           .block_index = attn_out(chosen)};
    queries = attn_in(q), first_new = attn_in(ones), of_scores = attn_out(scores);
}

#define BOUNDS(change, status, text)                                                                                               \
    do {                                                                                                                           \
        valid();                                                                                                                   \
        change;                                                                                                                    \
        FAILS(attn_page_bounds(&cache, &bounds, &first_new, &error), status, text);                                                \
    } while (0)
#define SCORES(change, heads, len, status, text)                                                                                   \
    do {                                                                                                                           \
        valid();                                                                                                                   \
        change;                                                                                                                    \
        FAILS(attn_page_scores(&cache, heads, len, &bounds, &queries, &of_scores, &error), status, text);                          \
    } while (0)
#define CHOICE(change, status, text)                                                                                               \
    do {                                                                                                                           \
        valid();                                                                                                                   \
        change;                                                                                                                    \
        FAILS(attn_choose_blocks(&choice, &error), status, text);                                                                  \
    } while (0)

/* A schedule for whole lists, whose last block is cut short, stays in its memory and within the plan's workspace. */
static void test_last_block(void **state)
{
    enum { ENTRIES = 2, KEYS = 1024, WIDTH = 8, SPARE = 256 };
    static const int64_t blocks[] = {7, 500, 512, 1000};
    static float of_entry[ENTRIES * WIDTH], keys_of[ENTRIES * KEYS * WIDTH], out[ENTRIES * WIDTH];
    static int64_t index[ENTRIES * KEYS];
    const int64_t held[ENTRIES] = {534, 922}, first[] = {0, 1, 2};
    (void)state;
    for (size_t n = 0; n < sizeof blocks / sizeof *blocks; n++) {
        const int64_t listed = (KEYS + blocks[n] - 1) / blocks[n], lists[] = {0, listed, 2 * listed};
        for (int64_t i = 0; i < 2 * listed; i++) index[i] = i % listed;
        const attn_problem p = {.struct_size = sizeof p,
                                .shape = {ENTRIES, 1, 1, 1, KEYS, WIDTH, WIDTH},
                                .mask = {.align = ATTN_ALIGN_BOTTOM_RIGHT,
                                         .block_heads = 1,
                                         .block_q = 1,
                                         .block_kv = blocks[n],
                                         .block_entries = 2 * listed}};
        attn_call call = {.struct_size = sizeof call};
        const attn_tensors t = {.struct_size = sizeof t,
                                .call = &call,
                                .q = attn_in(of_entry),
                                .k = attn_in(keys_of),
                                .v = attn_in(keys_of),
                                .o = attn_out(out),
                                .cu_seqlens_q = attn_in(first),
                                .lengths_kv = attn_in(held),
                                .block_starts = attn_in(lists),
                                .block_index = attn_in(index)};
        const attn_options options = {.struct_size = sizeof options, .threads = 64};
        attn_plan *plan = NULL;
        const attn_schedule *schedule = NULL;
        attn_error error;
        if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
        const size_t size = attn_schedule_size(plan);
        unsigned char *memory = malloc(size + SPARE);
        assert_non_null(memory);
        memset(memory, 0xa5, size + SPARE);
        if (attn_schedule_make(&schedule, plan, &t, memory, size, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (size_t i = size; i < size + SPARE; i++) assert_int_equal(memory[i], 0xa5);
        assert_true(attn_schedule_workspace_size(schedule) <= attn_plan_workspace_size(plan));
        attn_plan_destroy(plan);
        free(memory);
    }
}

static void test_rejected(void **state)
{
    static const int64_t far[B] = {0, 662};
    const size_t sizes[] = {sizeof rows, sizeof scores, sizeof chosen, sizeof begins};
    void *const written[] = {rows, scores, chosen, begins};
    (void)state;
    for (int n = 0; n < 4; n++) memset(written[n], 0x5a, sizes[n]);
    valid();
    FAILS(attn_page_bounds(&cache, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "bounds is NULL");
    FAILS(attn_choose_blocks(NULL, &error), ATTN_ERR_ARGUMENT, "choice is NULL");
    BOUNDS(bounds.block = 0, ATTN_ERR_ARGUMENT, "bounds: block is 0; it must be at least 1, since keys have no pages");
    BOUNDS((cache.page_size = 16, cache.pages = B * CAPACITY / 16, cache.page_table = attn_in(table), lay(16)), ATTN_ERR_ARGUMENT,
           "bounds: block is 4; it must be 0 or page_size");
    BOUNDS((cache.capacity = INT64_MAX, cache.dim_qk = cache.dim_v = 0, bounds.block = 1), ATTN_ERR_SHAPE,
           "bounds: the number of blocks overflows 64 bits");
    BOUNDS(bounds.rows = (attn_output){0}, ATTN_ERR_ARGUMENT, "bounds: rows is NULL");
#define WRONG_PAGE                                                                                                                 \
    (lay(16), table[40] = -1, cache.page_size = 16, cache.pages = B * CAPACITY / 16, cache.page_table = attn_in(table),            \
     cache.k = attn_out(pages[0]), bounds.block = 0)
    BOUNDS((WRONG_PAGE), ATTN_ERR_ARGUMENT, "bounds: page 40 of entry 0 is -1; pages is 132");
    SCORES((WRONG_PAGE), HQ, 1, ATTN_ERR_ARGUMENT, "bounds: page 40 of entry 0 is -1; pages is 132");
    BOUNDS(first_new.data = rows, ATTN_ERR_STRIDE,
           "bounds: bounds.rows and bounds.first share elements; an output must not overlap another tensor");
    BOUNDS(bounds.rows.dtype = ATTN_BF16, ATTN_ERR_UNSUPPORTED, "bounds: rows is bf16; it must be f32, as the keys are f32");
    BOUNDS((bounds.rows.stride[0] = 2 * HKV * D + 2, bounds.rows.stride[1] = 2 * D + 1, bounds.rows.stride[2] = D + 1,
            bounds.rows.stride[3] = 1),
           ATTN_ERR_STRIDE, "bounds: rows.stride is 13 and 1 on the last two axes, which must be contiguous (12 and 1)");
    BOUNDS((bounds.rows.stride[0] = D, bounds.rows.stride[1] = 2 * D, bounds.rows.stride[2] = D, bounds.rows.stride[3] = 1),
           ATTN_ERR_STRIDE, "bounds: rows overlaps itself");
    BOUNDS(bounds.rows.data = keys, ATTN_ERR_STRIDE,
           "bounds: k and bounds.rows share elements; an output must not overlap another tensor");
    BOUNDS(first_new.data = NULL, ATTN_ERR_ARGUMENT, "bounds: first.data is NULL");
    BOUNDS(first_new.data = far, ATTN_ERR_ARGUMENT, "bounds: first[1] (662) is not between 0 and 661, the entry's length");
    SCORES((void)0, -1, 1, ATTN_ERR_SHAPE, "page scores: heads_q (-1) is negative");
    SCORES((void)0, 3, 1, ATTN_ERR_SHAPE, "page scores: heads_q (3) is not a multiple of heads_kv (2)");
    SCORES((cache.dim_qk = 1025, cache.heads_kv = 0), 0, 1, ATTN_ERR_UNSUPPORTED,
           "page scores: dim_qk is 1025; it must be at most 1024");
    SCORES(queries.dtype = ATTN_F64, HQ, 1, ATTN_ERR_UNSUPPORTED, "page scores: q is f64; it must be f32, f16 or bf16");
    SCORES(of_scores.data = rows, HQ, 1, ATTN_ERR_STRIDE,
           "page scores: scores and bounds.rows share elements; an output must not overlap another tensor");
    CHOICE(choice.block = 0, ATTN_ERR_SHAPE, "choice: block (0) is not between 1 and 2^48");
    CHOICE(choice.keep_first = 3, ATTN_ERR_ARGUMENT, "choice: keep_first (3) and keep_last (1) are together more than count (3)");
    CHOICE((choice.batch = choice.heads_kv = INT64_C(1) << 40), ATTN_ERR_SHAPE, "choice: the number of lists overflows 64 bits");
    CHOICE(choice.scores.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "choice: scores is f64; it must be f32");
    CHOICE(choice.lengths.dtype = ATTN_F32, ATTN_ERR_UNSUPPORTED, "choice: lengths is f32; it must be i64 or i32");
    CHOICE((choice.block_index.stride[0] = 2, choice.block_index.stride[3] = 1), ATTN_ERR_STRIDE,
           "choice: block_index.stride[0] is 2; it must be dense (1)");
    CHOICE((choice.count = INT64_C(1) << 30, choice.block_starts.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
           "choice: block_starts is i32, in which 4294967296 entries do not fit");
    CHOICE((choice.blocks = INT64_C(1) << 32, choice.block_index.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
           "choice: block_index is i32, in which block 4294967296 does not fit");
    CHOICE(choice.blocks = 263, ATTN_ERR_ARGUMENT, "choice: lengths[0] is 1053; 263 blocks of 4 keys do not hold them");
    for (int n = 0; n < 4; n++)
        for (size_t i = 0; i < sizes[n]; i++) assert_int_equal(((unsigned char *)written[n])[i], 0x5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_large_terms),
                                       cmocka_unit_test(test_no_queries),   cmocka_unit_test(test_quantised),
                                       cmocka_unit_test(test_shared_pages), cmocka_unit_test(test_last_block),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
