/* SPDX-License-Identifier: MIT
 *
 * test_decode_formats.c - decoding over a cache of 8 or 4 bits equals decoding over an f32 cache of the numbers that it holds, for
 * layers and for latents, dense or in pages, with the scales of i8 and those that f8 may have.
 */
#include "fails.h"

#include <math.h>

#include "attn/choose.h"
#include "attn/latent.h"

enum { B = 2, E = 8, LEN = 6, HEADS = 4, HEADS_KV = 2, DIM = 32, WIDTH = 2 * DIM, PAGE = 4, PAGES = 5, CAPACITY = 8 };
enum { ROWS = PAGES * HEADS_KV * PAGE, SCALES_NONE, SCALES_ROWS, SCALES_HEADS };

static const struct {
    attn_dtype dtype;
    int scales;
} formats[] = {{ATTN_I8, SCALES_ROWS},      {ATTN_F8_E4M3, SCALES_NONE}, {ATTN_F8_E4M3, SCALES_ROWS}, {ATTN_F8_E4M3, SCALES_HEADS},
               {ATTN_F8_E5M2, SCALES_ROWS}, {ATTN_Q8_0, SCALES_NONE},    {ATTN_Q4_0, SCALES_NONE},    {ATTN_Q4_1, SCALES_NONE}};

typedef struct held {
    float k[ROWS * WIDTH], v[ROWS * DIM]; /* the largest type is f32 */
    float k_scale[ROWS], v_scale[ROWS];
    int64_t lengths[B];
    attn_cache cache;
} held;

static float x[B * LEN * E], weight[4][HEADS * WIDTH * WIDTH];

static void hold(held *h, attn_dtype dtype, int scales, int latent, int paged)
{
    static const int64_t table[B * 2] = {4, 0, 3, 1};
    memset(h, 0xff, sizeof *h);
    memset(h->lengths, 0, sizeof h->lengths);
    h->cache = (attn_cache){.struct_size = sizeof h->cache,
                            .batch = B,
                            .heads_kv = latent ? 1 : HEADS_KV,
                            .capacity = CAPACITY,
                            .dim_qk = latent ? WIDTH : DIM,
                            .dim_v = DIM,
                            .k = {h->k, dtype, {0, 0, 0, 0}},
                            .v = {latent ? NULL : h->v, latent ? ATTN_DTYPE_DEFAULT : dtype, {0, 0, 0, 0}},
                            .lengths = attn_out(h->lengths)};
    if (scales == SCALES_ROWS) h->cache.k_scale = attn_out(h->k_scale), h->cache.v_scale = attn_out(h->v_scale);
    if (scales == SCALES_HEADS)
        h->cache.k_scale = (attn_output){h->k_scale, ATTN_F32, {0, 1, 0, 1}},
        h->cache.v_scale = (attn_output){h->v_scale, ATTN_F32, {0, 1, 0, 1}}, h->k_scale[0] = h->v_scale[1] = 0.25F,
        h->k_scale[1] = h->v_scale[0] = 0.125F;
    if (latent) memset(&h->cache.v_scale, 0, sizeof h->cache.v_scale);
    if (paged) h->cache.page_size = PAGE, h->cache.pages = PAGES, h->cache.page_table = attn_in(table);
}

/* The keys of a dense cache as f32, [B, heads, CAPACITY, dim]: the bounds of one token are the token. */
static void numbers_of(const attn_cache *of, float *to)
{
    static float rows[B * CAPACITY * HEADS_KV * 2 * WIDTH];
    const int64_t heads = of->heads_kv, dim = of->dim_qk;
    const attn_bounds bounds = {.struct_size = sizeof bounds, .block = 1, .rows = attn_out(rows)};
    attn_cache keys = *of;
    attn_error error;
    keys.dim_v = 0, keys.v = (attn_output){ATTN_EMPTY, ATTN_F32, {0, 0, 0, 0}}, keys.v_scale = (attn_output){.data = NULL};
    if (attn_page_bounds(&keys, &bounds, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < LEN; j++)
                memcpy(to + ((b * heads + h) * CAPACITY + j) * dim, rows + ((b * CAPACITY + j) * heads + h) * 2 * dim,
                       sizeof(float) * (size_t)dim);
}

/* All tokens into the cache, in two pieces; then their queries over what it holds. */
static void decode(int latent, held *h, int append, float *y)
{
    static const int64_t pieces[] = {LEN - 1, 1};
    static const attn_rope rope = {.struct_size = sizeof rope, .base = 100};
    const attn_layer layer = {
        .struct_size = sizeof layer, .dim_model = E, .heads_q = HEADS, .heads_kv = HEADS_KV, .head_dim = DIM, .rope = &rope};
    const attn_latent latents = {
        .struct_size = sizeof latents, .dim_model = E, .heads = HEADS, .head_dim = DIM, .rank = DIM, .dim_rotary = WIDTH - DIM};
    const attn_layer_weights w = {
        .struct_size = sizeof w, .query.data = weight[0], .key.data = weight[1], .value.data = weight[2], .output.data = weight[3]};
    const attn_latent_weights of_latent = {.struct_size = sizeof of_latent,
                                           .query.data = weight[0],
                                           .down.data = weight[1],
                                           .up.data = weight[2],
                                           .output.data = weight[3]};
    attn_error error;
    for (int64_t p = 0, first = 0; p < (append ? 3 : 1); first += append && p < 2 ? pieces[p] : 0, p++) {
        const int all = !append || p == 2;
        attn_layer_tensors args = {.struct_size = sizeof args, .batch = B, .len_q = all ? LEN : pieces[p], .only_cached = all};
        args.query = (attn_input){x + (all ? 0 : first * E), ATTN_F32, {LEN * E, 0, E, 1}};
        args.output = attn_out(y);
        if ((latent ? attn_latent_decode(&latents, &of_latent, &h->cache, &args, &error)
                    : attn_layer_decode(&layer, &w, &h->cache, &args, &error)) != ATTN_OK)
            fail_msg("%s", error.message);
    }
}

static void test_decoded(void **state)
{
    static held h, exact, paged;
    static float y[B * LEN * E], of_numbers[B * LEN * E], in_pages[B * LEN * E];
    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)sin(2.1 * (double)i);
    for (size_t n = 0; n < sizeof weight / sizeof *weight; n++)
        for (size_t i = 0; i < sizeof *weight / sizeof(float); i++)
            weight[n][i] = (float)sin(2.1 * (double)i + 0.2 * (double)(i % 7) + (double)n) / 4;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int latent = 0; latent < 2; latent++) {
            double most = 0;
            hold(&h, formats[f].dtype, formats[f].scales, latent, 0);
            decode(latent, &h, 1, y);
            hold(&paged, formats[f].dtype, formats[f].scales, latent, 1);
            decode(latent, &paged, 1, in_pages);
            assert_memory_equal(in_pages, y, sizeof y);

            hold(&exact, ATTN_F32, SCALES_NONE, latent, 0);
            attn_cache values = h.cache;
            values.k = h.cache.v, values.k_scale = h.cache.v_scale, values.dim_qk = DIM;

            numbers_of(&h.cache, exact.k);
            if (!latent) numbers_of(&values, exact.v);
            memcpy(exact.lengths, h.lengths, sizeof h.lengths);
            decode(latent, &exact, 0, of_numbers);
            for (size_t i = 0; i < sizeof y / sizeof *y; i++) most = fmax(most, fabs((double)of_numbers[i]));
            assert_true(most > 1);
            for (size_t i = 0; i < sizeof y / sizeof *y; i++) /* sums of fewer than 100 products below 10, twice */
                if (!(fabs((double)y[i] - (double)of_numbers[i]) <= 2e3 * 0x1p-24))
                    fail_msg("%s, scales %d, latent %d: [%d] is %.9g, not %.9g", attn_dtype_name(formats[f].dtype),
                             formats[f].scales, latent, (int)i, (double)y[i], (double)of_numbers[i]);
        }
}

/* Values that are the keys of a cache have the scales of these, given again or not. */
static void test_values_in_keys(void **state)
{
    static held h;
    static float y[B * LEN * E], given[B * LEN * E];
    (void)state;
    hold(&h, ATTN_F8_E4M3, SCALES_ROWS, 0, 0);
    decode(0, &h, 1, y);
    h.cache.v = h.cache.k, h.cache.v_scale = h.cache.k_scale;
    decode(0, &h, 0, given);
    assert_memory_not_equal(y, given, sizeof y);
    h.cache.v_scale = (attn_output){.data = NULL};
    decode(0, &h, 0, y);
    assert_memory_equal(y, given, sizeof y);
}

static void test_by_channel(void **state)
{
    static held h;
    static float y[B * LEN * E];
    const attn_layer layer = {.struct_size = sizeof layer, .dim_model = E, .heads_q = HEADS, .heads_kv = HEADS_KV, .head_dim = DIM};
    const attn_layer_weights w = {
        .struct_size = sizeof w, .query.data = weight[0], .key.data = weight[1], .value.data = weight[2], .output.data = weight[3]};
    const attn_layer_tensors args = {
        .struct_size = sizeof args, .batch = B, .len_q = LEN, .query = attn_in(x), .output = attn_out(y)};
    (void)state;
    hold(&h, ATTN_Q4_1C, SCALES_NONE, 0, 0);
    FAILS(attn_layer_decode(&layer, &w, &h.cache, &args, &error), ATTN_ERR_UNSUPPORTED,
          "layer: the cache's k is q4_1c; keys by channel are not there yet in layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decoded), cmocka_unit_test(test_values_in_keys),
                                       cmocka_unit_test(test_by_channel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
