/* SPDX-License-Identifier: MIT
 *
 * test_decode.c - incremental decoding over a cache equals one causal forward over whole sequences (P18): contiguous and paged
 * caches, f32, 16-bit and i8 storage, grouped heads, sequences of different lengths, rotated keys.
 */
#include "test.h"

#include <math.h>

#include "attn/cache.h"
#include "attn_ref.h"
#include "draw.h"

enum { B = 3, HEADS = 6, GROUPS = 2, TOKENS = 45, DIM = 12, DIM_V = 20, PAGE = 8, PAGES = 24 };

typedef struct sequences {
    float q[B][HEADS][TOKENS][DIM], k[B][GROUPS][TOKENS][DIM], v[B][GROUPS][TOKENS][DIM_V], o[B][HEADS][TOKENS][DIM_V];
    double expected[B][HEADS][TOKENS][DIM_V];
    int64_t length[B];
} sequences;

static sequences all;

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = 2 * draw_real();
}

/* y: the f32 rows x after storage in a cache of this type. */
static void as_stored(attn_dtype stored, int64_t rows, int64_t dim, const float *x, double *y)
{
    static uint16_t half[B * GROUPS * TOKENS * DIM_V];
    static double scale[B * GROUPS * TOKENS];
    assert_true(rows <= B * GROUPS * TOKENS && dim <= DIM_V);
    (void)attn_convert(rows * dim, x, ATTN_F32, y, ATTN_F64, NULL);
    if (stored == ATTN_I8) {
        for (int64_t i = 0; i < rows; i++) scale[i] = ref_quantise(dim, y + i * dim, y + i * dim);
        ref_dequantise(rows, dim, y, scale, y);
    } else if (stored != ATTN_F32) {
        (void)attn_convert(rows * dim, x, ATTN_F32, half, stored, NULL);
        (void)attn_convert(rows * dim, half, stored, y, ATTN_F64, NULL);
    }
}

/* ref/ on whole sequences, with keys and values as a cache of this type stores them. */
static void expect(const attn_rope *rope, attn_dtype stored)
{
    static double Q[B * HEADS * TOKENS * DIM], K[B * GROUPS * TOKENS * DIM], V[B * GROUPS * TOKENS * DIM_V];
    static double lse[B * HEADS * TOKENS], S[B * HEADS * TOKENS * TOKENS], P[B * HEADS * TOKENS * TOKENS];
    static float q[B * HEADS * TOKENS * DIM], k[B * GROUPS * TOKENS * DIM];
    const int64_t shape_q[4] = {B, HEADS, TOKENS, DIM}, shape_k[4] = {B, GROUPS, TOKENS, DIM};
    const attn_input from_q = {all.q, ATTN_F32, {0, 0, 0, 0}}, from_k = {all.k, ATTN_F32, {0, 0, 0, 0}};
    const float *keys = &all.k[0][0][0][0];

    memcpy(q, all.q, sizeof q);
    if (rope) {
        const attn_output to_q = {q, ATTN_F32, {0, 0, 0, 0}};
        assert_int_equal(attn_rope_apply(rope, shape_q, &from_q, NULL, &to_q, NULL), ATTN_OK);
        const int whole = stored == ATTN_I8; /* i8 keys are rotated in f32 first, others straight into the cache type */
        const attn_output to_k = {k, whole ? ATTN_F32 : stored, {0, 0, 0, 0}};
        assert_int_equal(attn_rope_apply(rope, shape_k, &from_k, NULL, &to_k, NULL), ATTN_OK);
        if (!whole) (void)attn_convert(B * GROUPS * TOKENS * DIM, k, stored, K, ATTN_F64, NULL);
        keys = whole ? k : NULL;
    }
    (void)attn_convert(B * HEADS * TOKENS * DIM, q, ATTN_F32, Q, ATTN_F64, NULL);
    if (keys) as_stored(stored, B * GROUPS * TOKENS, DIM, keys, K);
    as_stored(stored, B * GROUPS * TOKENS, DIM_V, &all.v[0][0][0][0], V);
    ref_problem p = {.B = B,
                     .Hq = HEADS,
                     .Hkv = GROUPS,
                     .Sq = TOKENS,
                     .Skv = TOKENS,
                     .D = DIM,
                     .Dv = DIM_V,
                     .Q = Q,
                     .K = K,
                     .V = V,
                     .scale = 1 / sqrt((double)DIM),
                     .causal = 1};
    ref_forward(&p, &all.expected[0][0][0][0], lse, S, P);
}

/* Decodes in steps of up to 1 to 5 tokens, a different number for each entry; at_once: all tokens in one step. */
static void decode(int paged, attn_dtype stored, const attn_rope *rope, int at_once, const attn_options *options)
{
    static uint64_t k[PAGES * GROUPS * PAGE * DIM], v[PAGES * GROUPS * PAGE * DIM_V]; /* large enough for 8-byte elements */
    static float scales[2][PAGES * GROUPS * PAGE];
    int64_t lengths[B] = {0}, table[B][(TOKENS + PAGE - 1) / PAGE];
    memset(k, 0xff, sizeof k); /* NaN unless a token is written */
    memset(v, 0xff, sizeof v);
    memset(scales, 0xff, sizeof scales);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < (TOKENS + PAGE - 1) / PAGE; i++) table[b][i] = (b * 7 + i * 3 + 5) % PAGES; /* all different */
    attn_cache cache = {.struct_size = sizeof cache,
                        .batch = B,
                        .heads_kv = GROUPS,
                        .capacity = TOKENS,
                        .dim_qk = DIM,
                        .dim_v = DIM_V,
                        .k = {k, stored, {0, 0, 0, 0}},
                        .v = {v, stored, {0, 0, 0, 0}},
                        .lengths = attn_out(lengths),
                        .rope = rope};
    if (stored == ATTN_I8) cache.k_scale = attn_out(scales[0]), cache.v_scale = attn_out(scales[1]);
    if (paged) cache.page_size = PAGE, cache.pages = PAGES, cache.page_table = attn_in(table);

    memset(all.o, 0xff, sizeof all.o);
    for (int more = 1; more;) {
        int64_t new_tokens[B], len = at_once ? TOKENS : 1 + draw(5);
        static float step_q[B][HEADS][TOKENS][DIM], step_k[B][GROUPS][TOKENS][DIM], step_v[B][GROUPS][TOKENS][DIM_V],
            step_o[B][HEADS][TOKENS][DIM_V];
        int64_t before[B];
        more = 0;
        for (int b = 0; b < B; b++) {
            before[b] = lengths[b];
            new_tokens[b] = at_once ? len : draw((uint32_t)len + 1);
            if (new_tokens[b] > all.length[b] - before[b]) new_tokens[b] = all.length[b] - before[b];
            for (int64_t t = 0; t < new_tokens[b]; t++) {
                for (int h = 0; h < HEADS; h++) memcpy(step_q[b][h][t], all.q[b][h][before[b] + t], sizeof step_q[b][h][t]);
                for (int g = 0; g < GROUPS; g++) memcpy(step_k[b][g][t], all.k[b][g][before[b] + t], sizeof step_k[b][g][t]);
                for (int g = 0; g < GROUPS; g++) memcpy(step_v[b][g][t], all.v[b][g][before[b] + t], sizeof step_v[b][g][t]);
            }
        }
        attn_error error;
        attn_cache_tokens tokens = {.struct_size = sizeof tokens,
                                    .len = len,
                                    .k = {step_k, ATTN_F32, {GROUPS * TOKENS * DIM, TOKENS * DIM, DIM, 1}},
                                    .v = {step_v, ATTN_F32, {GROUPS * TOKENS * DIM_V, TOKENS * DIM_V, DIM_V, 1}},
                                    .lengths = attn_in(new_tokens)};
        attn_problem p = {.struct_size = sizeof p, .shape = {.heads_q = HEADS}};
        attn_tensors a = {.struct_size = sizeof a,
                          .q = {step_q, ATTN_F32, {HEADS * TOKENS * DIM, TOKENS * DIM, DIM, 1}},
                          .o = {step_o, ATTN_F32, {HEADS * TOKENS * DIM_V, TOKENS * DIM_V, DIM_V, 1}}};
        if (attn_cache_attend(&cache, &tokens, &p, &a, options, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int b = 0; b < B; b++) {
            assert_int_equal(lengths[b], before[b] + new_tokens[b]);
            for (int64_t t = 0; t < new_tokens[b]; t++)
                for (int h = 0; h < HEADS; h++) memcpy(all.o[b][h][before[b] + t], step_o[b][h][t], sizeof step_o[b][h][t]);
            more |= lengths[b] < all.length[b];
        }
    }
    for (int b = 0; b < B; b++)
        for (int h = 0; h < HEADS; h++)
            for (int t = 0; t < all.length[b]; t++)
                for (int c = 0; c < DIM_V; c++) {
                    double difference = fabs((double)all.o[b][h][t][c] - all.expected[b][h][t][c]);
                    if (!(difference < 4e-6)) fail_msg("entry %d head %d token %d channel %d: off by %g", b, h, t, c, difference);
                }
}

static void test_decode(void **state)
{
    static const attn_rope interleaved = {.struct_size = sizeof interleaved};
    static const attn_rope partial = {.struct_size = sizeof partial, .pairs = ATTN_ROPE_PAIRS_HALVES, .dim_rotary = 8, .base = 500};
    const attn_rope *ropes[] = {NULL, &interleaved, &partial};
    const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};
    (void)state;
    for (int seed = 1; seed <= 3; seed++)
        for (int r = 0; r < 3; r++)
            for (int t = 0; t < 4; t++) {
                draw_source.state = (uint64_t)seed;
                fill(&all.q[0][0][0][0], sizeof all.q / sizeof(float));
                fill(&all.k[0][0][0][0], sizeof all.k / sizeof(float));
                fill(&all.v[0][0][0][0], sizeof all.v / sizeof(float));
                for (int b = 0; b < B; b++) all.length[b] = b == 0 ? TOKENS : 1 + draw(TOKENS);
                expect(ropes[r], types[t]);
                decode(0, types[t], ropes[r], 0, NULL);
                decode(1, types[t], ropes[r], 0, NULL);
            }
}

/* With options.invariant, a prompt decoded in small steps has the same bits as a prompt in one step, for every kind of cache. */
static void test_prefill(void **state)
{
    const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};
    const attn_options invariant = {.struct_size = sizeof invariant, .invariant = 1};
    static float prefill[B][HEADS][TOKENS][DIM_V];
    (void)state;
    fill(&all.q[0][0][0][0], sizeof all.q / sizeof(float));
    fill(&all.k[0][0][0][0], sizeof all.k / sizeof(float));
    fill(&all.v[0][0][0][0], sizeof all.v / sizeof(float));
    for (int b = 0; b < B; b++) all.length[b] = b == 0 ? TOKENS : 1 + draw(TOKENS);
    for (int t = 0; t < 4; t++) {
        expect(NULL, types[t]);
        for (int paged = 0; paged < 2; paged++) {
            decode(paged, types[t], NULL, 1, &invariant);
            memcpy(prefill, all.o, sizeof prefill);
            decode(!paged, types[t], NULL, 0, &invariant);
            assert_memory_equal(prefill, all.o, sizeof prefill);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode), cmocka_unit_test(test_prefill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
