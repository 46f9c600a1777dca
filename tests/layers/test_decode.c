/* SPDX-License-Identifier: MIT
 *
 * test_decode.c - decoding over a cache, contiguous or in pages, token by token or in pieces, equals the layer over the whole
 * sequence; and so does cross-attention to a memory that was cached once.
 */
#include "test.h"

#include <math.h>

#include "attn/layers.h"

enum { B = 2, E = 12, LEN = 9, HEADS = 4, HEADS_KV = 2, DIM = 4, DIM_V = 3, PAGE = 4, PAGES = 7, CAPACITY = 12 };

typedef struct numbers {
    double wq[HEADS * DIM * E], wk[HEADS_KV * DIM * E], wv[HEADS_KV * DIM_V * E], wo[E * HEADS * DIM_V], bq[HEADS * DIM],
        bk[HEADS_KV * DIM], bv[HEADS_KV * DIM_V], bo[E], ek[HEADS_KV * DIM], ev[HEADS_KV * DIM_V], x[B * LEN * E],
        memory[B * LEN * E];
} numbers;

static void draw(numbers *n)
{
    double *x = (double *)n;
    for (size_t i = 0; i < sizeof *n / sizeof *x; i++) x[i] = (float)sin(2.1 * (double)i + 0.2 * (double)(i % 7));
}

static attn_layer_weights weights_of(numbers *n, int extra)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query.data = n->wq,
                                .query_bias.data = n->bq,
                                .key.data = n->wk,
                                .key_bias.data = n->bk,
                                .value.data = n->wv,
                                .value_bias.data = n->bv,
                                .output.data = n->wo,
                                .output_bias.data = n->bo,
                                .extra_key.data = extra ? n->ek : NULL,
                                .extra_value.data = extra ? n->ev : NULL};
}

typedef struct setting {
    const char *name;
    int paged, rope, extra, causal;
    int64_t window, chunk; /* 0: none */
    attn_dtype cached;
} setting;

static attn_layer layer_of(const setting *s, attn_problem *options)
{
    static const attn_rope rope = {.struct_size = sizeof rope, .base = 100};
    *options = (attn_problem){.struct_size = sizeof *options};
    options->mask.causal = s->causal;
    options->mask.chunk = s->chunk;
    if (s->window) options->mask.window = 1, options->mask.window_left = s->window, options->mask.window_right = -1;
    return (attn_layer){.struct_size = sizeof(attn_layer),
                        .dtype = ATTN_F64,
                        .dim_model = E,
                        .heads_q = HEADS,
                        .heads_kv = HEADS_KV,
                        .head_dim = DIM,
                        .head_dim_v = DIM_V,
                        .rope = s->rope ? &rope : NULL,
                        .attention = options};
}

typedef struct held {
    double k[PAGES * HEADS_KV * CAPACITY * DIM], v[PAGES * HEADS_KV * CAPACITY * DIM_V];
    int64_t lengths[B];
    attn_cache cache;
} held;

static void hold(held *h, const setting *s)
{
    static const int64_t table[B * 3] = {5, 0, 3, 2, 6, 1}; /* shuffled pages */
    memset(h, 0xa5, sizeof *h);
    memset(h->lengths, 0, sizeof h->lengths);
    h->cache = (attn_cache){.struct_size = sizeof h->cache,
                            .batch = B,
                            .heads_kv = HEADS_KV,
                            .capacity = CAPACITY,
                            .dim_qk = DIM,
                            .dim_v = DIM_V,
                            .k = {h->k, ATTN_F64, {0, 0, 0, 0}},
                            .v = attn_out(h->v),
                            .lengths = attn_out(h->lengths)};
    if (s->paged) h->cache.page_size = PAGE, h->cache.pages = PAGES, h->cache.page_table = attn_in(table);
}

static void expect(const setting *s, const double *got, const double *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++) /* sums of fewer than 100 products below 10, twice */
        if (!(fabs(got[i] - expected[i]) <= 2e3 * 0x1p-53))
            fail_msg("%s: [%d] is %.17g, not %.17g", s->name, (int)i, got[i], expected[i]);
}

/* The tokens of x from `first` on, in an array with LEN tokens per entry. */
static attn_input part(const double *x, int64_t first) { return (attn_input){x + first * E, ATTN_F64, {LEN * E, 0, E, 1}}; }
static attn_output part_out(double *x, int64_t first) { return (attn_output){x + first * E, ATTN_F64, {LEN * E, 0, E, 1}}; }

static void test_pieces(void **state)
{
    static const setting settings[] = {
        {"contiguous", 0, 0, 0, 1, 0, 0, 0}, {"in pages", 1, 0, 0, 1, 0, 0, 0},
        {"rotated", 0, 1, 0, 1, 0, 0, 0},    {"rotated, in pages, with an extra key", 1, 1, 1, 1, 0, 0, 0},
        {"window", 0, 1, 0, 1, 3, 0, 0},     {"chunks, in pages", 1, 1, 0, 1, 0, 4, 0}};
    static const int64_t pieces[][LEN + 1] = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {4, 2, 3, 0}, {LEN, 0}};
    static numbers n;
    (void)state;
    draw(&n);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            const setting *s = &settings[i];
            double whole[B * LEN * E], decoded[B * LEN * E];
            held h;
            attn_problem options;
            attn_error error;
            const attn_layer layer = layer_of(s, &options);
            const attn_layer_weights w = weights_of(&n, s->extra);
            attn_layer_tensors args = {
                .struct_size = sizeof args, .batch = B, .len_q = LEN, .query = part(n.x, 0), .output = part_out(whole, 0)};
            assert_int_equal(attn_layer_forward(&layer, &w, &args, NULL), ATTN_OK);
            hold(&h, s);
            for (int64_t k = 0, first = 0; pieces[p][k]; first += pieces[p][k++]) {
                args.len_q = pieces[p][k];
                args.query = part(n.x, first);
                args.output = part_out(decoded, first);
                if (attn_layer_decode(&layer, &w, &h.cache, &args, &error) != ATTN_OK) fail_msg("%s: %s", s->name, error.message);
            }
            assert_int_equal(h.lengths[0], LEN);
            assert_int_equal(h.lengths[1], LEN);
            expect(s, decoded, whole, B * LEN * E);
        }
}

/* Entries of different lengths: each equals forward over the whole; rows past its end are the output's bias. */
static void test_lengths(void **state)
{
    static const setting s = {"lengths", 0, 1, 0, 1, 0, 0, 0};
    static const int64_t steps[3][B] = {{4, 2}, {1, 3}, {2, 0}};
    static numbers n;
    attn_problem options;
    double whole[B * LEN * E], y[B * 4 * E];
    int64_t done[B] = {0, 0};
    held h;
    const attn_layer layer = layer_of(&s, &options);
    (void)state;
    draw(&n);
    const attn_layer_weights w = weights_of(&n, 0);
    attn_layer_tensors args = {
        .struct_size = sizeof args, .batch = B, .len_q = LEN, .query = part(n.x, 0), .output = part_out(whole, 0)};
    assert_int_equal(attn_layer_forward(&layer, &w, &args, NULL), ATTN_OK);
    hold(&h, &s);
    for (int k = 0; k < 3; k++) {
        double x[B * 4 * E];
        for (int b = 0; b < B; b++)
            for (int64_t t = 0; t < 4; t++)
                memcpy(x + (b * 4 + t) * E, n.x + (b * LEN + (t < steps[k][b] ? done[b] + t : 0)) * E, E * sizeof *x);
        args = (attn_layer_tensors){.struct_size = sizeof args,
                                    .batch = B,
                                    .len_q = 4,
                                    .query = {.data = x},
                                    .output = {.data = y},
                                    .lengths_q = attn_in(steps[k])};
        assert_int_equal(attn_layer_decode(&layer, &w, &h.cache, &args, NULL), ATTN_OK);
        for (int b = 0; b < B; b++) {
            expect(&s, y + b * 4 * E, whole + (b * LEN + done[b]) * E, steps[k][b] * E);
            for (int64_t t = steps[k][b]; t < 4; t++) expect(&s, y + (b * 4 + t) * E, n.bo, E);
            done[b] += steps[k][b];
            assert_int_equal(h.lengths[b], done[b]);
        }
    }
}

/* A memory is appended once, without queries; then queries come one by one and nothing is appended. */
static void test_cross(void **state)
{
    static const setting settings[] = {{"memory", 0, 0, 0, 0, 0, 0, 0}, {"memory in pages", 1, 0, 1, 0, 0, 0, 0}};
    static numbers n;
    (void)state;
    draw(&n);
    for (int i = 0; i < 2; i++) {
        const setting *s = &settings[i];
        double whole[B * LEN * E], decoded[B * LEN * E], mean[B * LEN * (LEN + 1)], mean_of_one[B * (LEN + 1)];
        held h;
        attn_problem options;
        const int64_t columns = LEN + s->extra;
        const attn_layer layer = layer_of(s, &options);
        const attn_layer_weights w = weights_of(&n, s->extra);
        attn_layer_tensors args = {.struct_size = sizeof args,
                                   .batch = B,
                                   .len_q = LEN,
                                   .len_kv = LEN,
                                   .query = part(n.x, 0),
                                   .key = part(n.memory, 0),
                                   .output = part_out(whole, 0),
                                   .weights_mean = attn_out(mean)};
        assert_int_equal(attn_layer_forward(&layer, &w, &args, NULL), ATTN_OK);
        hold(&h, s);
        args = (attn_layer_tensors){.struct_size = sizeof args, .batch = B, .len_kv = LEN, .key = part(n.memory, 0)};
        assert_int_equal(attn_layer_decode(&layer, &w, &h.cache, &args, NULL), ATTN_OK);
        assert_int_equal(h.lengths[1], LEN);
        for (int64_t t = 0; t < LEN; t++) {
            args = (attn_layer_tensors){.struct_size = sizeof args,
                                        .batch = B,
                                        .len_q = 1,
                                        .query = part(n.x, t),
                                        .output = part_out(decoded, t),
                                        .only_cached = 1,
                                        .weights_mean = attn_out(mean_of_one)};
            assert_int_equal(attn_layer_decode(&layer, &w, &h.cache, &args, NULL), ATTN_OK);
            for (int b = 0; b < B; b++) expect(s, mean_of_one + b * columns, mean + (b * LEN + t) * columns, columns);
        }
        assert_int_equal(h.lengths[0], LEN);
        expect(s, decoded, whole, B * LEN * E);
    }
}

/* A cache in 16 bits and a layer in f32: off by the rounding of keys and values. */
static void test_narrow_cache(void **state)
{
    static const setting s = {"bf16 cache", 0, 1, 0, 1, 0, 0, 0};
    static numbers n;
    static float w[4][E * E + 64], x[LEN * E], whole[LEN * E], decoded[LEN * E];
    static uint16_t k[HEADS_KV * CAPACITY * DIM], v[HEADS_KV * CAPACITY * DIM_V];
    int64_t length = 0;
    attn_problem options;
    attn_layer layer = layer_of(&s, &options);
    (void)state;
    draw(&n);
    layer.dtype = ATTN_F32;
    const attn_layer_weights weights = {
        .struct_size = sizeof weights, .query.data = w[0], .key.data = w[1], .value.data = w[2], .output.data = w[3]};
    assert_int_equal(attn_layer_initialise(&layer, ATTN_INIT_XAVIER, 4, &weights, NULL), ATTN_OK);
    (void)attn_convert(LEN * E, n.x, ATTN_F64, x, ATTN_F32, NULL);
    const attn_cache cache = {.struct_size = sizeof cache,
                              .batch = 1,
                              .heads_kv = HEADS_KV,
                              .capacity = CAPACITY,
                              .dim_qk = DIM,
                              .dim_v = DIM_V,
                              .k = {k, ATTN_BF16, {0, 0, 0, 0}},
                              .v = {v, ATTN_F16, {0, 0, 0, 0}},
                              .lengths = attn_out(&length)};
    attn_layer_tensors args = {
        .struct_size = sizeof args, .batch = 1, .len_q = LEN, .query = {.data = x}, .output = {.data = whole}};
    assert_int_equal(attn_layer_forward(&layer, &weights, &args, NULL), ATTN_OK);
    args.len_q = 1;
    double largest = 0;
    for (int t = 0; t < LEN; t++) {
        args.query.data = x + t * E, args.output.data = decoded + t * E;
        assert_int_equal(attn_layer_decode(&layer, &weights, &cache, &args, NULL), ATTN_OK);
    }
    for (int i = 0; i < LEN * E; i++) largest = fmax(largest, fabs((double)decoded[i] - (double)whole[i]));
    assert_true(largest <= 16 * 0x1p-9); /* scores below 8, each with a relative error of 2^-9; outputs below 2 */
    assert_true(largest > 0);
}

static void test_rejected(void **state)
{
    static const setting plain = {"rejected", 0, 0, 0, 1, 0, 0, 0};
    static const attn_rope rope = {.struct_size = sizeof rope};
    static const int64_t too_many[B] = {1, 3};
    static numbers n;
    attn_error error;
    draw(&n);
    (void)state;
    for (int i = 0; i < 21; i++) {
        static const char *const messages[21] = {"cache is NULL",
                                                 "attn_cache.struct_size is 3; set it to sizeof(attn_cache)",
                                                 "layer: the cache's batch is 1; the layer has 2",
                                                 "layer: the cache's heads_kv is 4; the layer has 2",
                                                 "layer: the cache's dim_v is 4; the layer has 3",
                                                 "layer: the cache has a rope; leave it NULL, the layer rotates with its own",
                                                 "cache: lengths is NULL",
                                                 "layer: attention.mask.align is set; attn_layer_decode takes no such option",
                                                 "layer: attention.lengths_kv is set; attn_layer_decode takes no such tensor",
                                                 "layer: lengths_q[1] (3) is not between 0 and 2",
                                                 "cache: entry 0 holds 11 of 12 tokens; 2 more do not fit",
                                                 "layer: attention.paging is set; attn_layer_decode fills it in from its cache",
                                                 "bias is NULL",
                                                 "layer: tensors is NULL",
                                                 "cache: lengths is ATTN_LATER; this call needs its pointer",
                                                 "cache: lengths is i32; it must be i64",
                                                 "layer: the cache is too large: its bytes overflow 64 bits",
                                                 "layer: lengths_q is ATTN_EMPTY and has elements",
                                                 "cache: lengths[1] (13) is not between 0 and 12",
                                                 "cache: lengths[0] (9223372036854775807) is not between 0 and 12",
                                                 "layer: the cache is too large: its bytes overflow 64 bits"};
        double y[B * 2 * E];
        unsigned char before[sizeof y];
        int64_t lengths[B] = {0, 0};
        held h;
        attn_problem options;
        attn_tensors tensors = {.struct_size = sizeof tensors};
        attn_layer layer = layer_of(&plain, &options);
        const attn_layer_weights w = weights_of(&n, 0);
        const attn_cache *cache = &h.cache;
        attn_layer_tensors args = {
            .struct_size = sizeof args, .batch = B, .len_q = 2, .query = part(n.x, 0), .output = {.data = y}};
        hold(&h, &plain);
        memset(y, 0x5a, sizeof y);
        memcpy(before, y, sizeof y);
        if (i == 0) cache = NULL;
        if (i == 1) h.cache.struct_size = 3;
        if (i == 2) h.cache.batch = 1;
        if (i == 3) h.cache.heads_kv = 4;
        if (i == 4) h.cache.dim_v = 4;
        if (i == 14) h.cache.lengths.data = ATTN_LATER;
        if (i == 15) h.cache.lengths.dtype = ATTN_I32, args.only_cached = 1;
        if (i == 16) h.cache.capacity = INT64_MAX;
        if (i == 17) args.lengths_q = attn_in(ATTN_EMPTY);
        if (i == 5) h.cache.rope = &rope;
        if (i == 6) memset(&h.cache.lengths, 0, sizeof h.cache.lengths);
        if (i == 7) options.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (i == 8) tensors.lengths_kv = attn_in(too_many), args.attention = &tensors;
        if (i == 9) args.lengths_q = attn_in(too_many);
        if (i == 18) h.lengths[1] = lengths[1] = 13, args.only_cached = 1; /* more tokens than the cache has memory for */
        if (i == 19) h.lengths[0] = lengths[0] = INT64_MAX;                /* plus 2 overflows */
        if (i == 20) h.cache.batch = args.batch = 0, h.cache.capacity = INT64_MAX / 2; /* strides overflow beside the 0 */
        if (i == 10) h.lengths[0] = lengths[0] = 11;
        if (i == 11) options.paging.pages = 1;
        if (i == 12) tensors.bias = attn_in(NULL), args.attention = &tensors;
        assert_int_not_equal(attn_layer_decode(&layer, &w, cache, i == 13 ? NULL : &args, &error), ATTN_OK);
        if (!strstr(error.message, messages[i])) fail_msg("case %d: '%s' instead of '%s'", i, error.message, messages[i]);
        assert_memory_equal(y, before, sizeof y);
        assert_memory_equal(h.lengths, lengths, sizeof lengths);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_lengths), cmocka_unit_test(test_cross),
                                       cmocka_unit_test(test_narrow_cache), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
