/* SPDX-License-Identifier: MIT
 *
 * test_values_in_keys.c - a cache of latents, whose v is its k: appended to by lengths and by slots, shifted and moved as a cache
 * of the keys alone, and attended to as one whose values are a copy of the keys' first channels.
 */
#include "fails.h"

#include "attn/cache.h"
#include "draw.h"
#include "testing/memory/format.h"

enum { DIM = 64, VALUES = 32, CAPACITY = 8, LEN = 6, HEADS = 4 };

static const struct {
    attn_dtype dtype;
    int scaled;
} types[] = {{ATTN_F32, 0}, {ATTN_BF16, 0}, {ATTN_I8, 1}, {ATTN_F8_E4M3, 0}, {ATTN_F8_E5M2, 1}, {ATTN_Q8_0, 0}, {ATTN_Q4_1, 0}};

typedef struct held {
    unsigned char k[CAPACITY * DIM * 4];
    float scale[CAPACITY];
    int64_t lengths[1];
    attn_cache cache;
} held;

/* values: v is k; else there are no values. */
static void hold(held *h, int n, int values)
{
    const int64_t row = format_elements(types[n].dtype, DIM);
    memset(h, 0xff, sizeof *h);
    h->lengths[0] = 0;
    h->cache = (attn_cache){.struct_size = sizeof h->cache,
                            .batch = 1,
                            .heads_kv = 1,
                            .capacity = CAPACITY,
                            .dim_qk = DIM,
                            .dim_v = values ? VALUES : 0,
                            .k = {h->k, types[n].dtype, {CAPACITY * row, CAPACITY * row, row, 1}},
                            .v = {ATTN_EMPTY, ATTN_F32, {0, 0, 0, 0}},
                            .lengths = attn_out(h->lengths)};
    if (types[n].scaled) h->cache.k_scale = attn_out(h->scale);
    if (values) h->cache.v = h->cache.k;
}

static void fill(held *h, const float *x, int slots)
{
    static const int64_t to[LEN] = {3, -1, 0, 7, 2, 5};
    const int64_t drop[1] = {2}, from[1] = {0}, moved[1] = {6};
    const attn_input less = attn_in(drop), source = attn_in(from), target = attn_in(moved);
    attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = LEN, .k = attn_in(x)};
    static const attn_rope rope = {.struct_size = sizeof rope};
    attn_error error;
    if (!slots && h->cache.k.dtype == ATTN_F32) h->cache.rope = &rope; /* which shifting turns on */
    if (slots) tokens.slots = attn_in(to);
    if (h->cache.dim_v == 0) tokens.v = (attn_input){ATTN_EMPTY, ATTN_F32, {0, 0, 0, 0}};
    if (attn_cache_append(&h->cache, &tokens, &error) != ATTN_OK) fail_msg("%s", error.message);
    if (!slots && attn_cache_shift(&h->cache, 1, &less, &error) != ATTN_OK) fail_msg("%s", error.message);
    if (attn_cache_move(&h->cache, 1, &source, &target, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static void test_written(void **state)
{
    static held both, keys;
    static float x[LEN * DIM];
    (void)state;
    for (int i = 0; i < LEN * DIM; i++)
        x[i] = draw_real() * (i % DIM < VALUES ? 1 : 20); /* scales of the values alone would differ */
    for (int n = 0; n < (int)(sizeof types / sizeof *types); n++)
        for (int slots = 0; slots < 2; slots++) {
            hold(&both, n, 1), hold(&keys, n, 0);
            fill(&both, x, slots), fill(&keys, x, slots);
            assert_memory_equal(both.k, keys.k, sizeof both.k);
            assert_memory_equal(both.scale, keys.scale, sizeof both.scale);
            assert_int_equal(both.lengths[0], keys.lengths[0]);
        }
}

/* Over the cache itself, and over one whose values have memory of their own. */
static void test_attended(void **state)
{
    static held both;
    static unsigned char v[CAPACITY * DIM * 4];
    static float x[LEN * DIM], q[HEADS * DIM], o[HEADS * VALUES], expected[HEADS * VALUES];
    (void)state;
    for (int i = 0; i < LEN * DIM; i++) x[i] = draw_real();
    for (int i = 0; i < HEADS * DIM; i++) q[i] = draw_real();
    for (int n = 0; n < (int)(sizeof types / sizeof *types); n++) {
        const attn_problem p = {.struct_size = sizeof p, .shape = {.heads_q = HEADS}};
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .o = attn_out(o)};
        attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 1, .k = attn_in(x)};
        attn_error error;
        hold(&both, n, 1);
        fill(&both, x, 0);
        both.cache.rope = NULL;
        if (attn_cache_attend(&both.cache, &tokens, &p, &t, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);

        const attn_problem again = {.struct_size = sizeof again, .shape = {1, HEADS, 1, 1, both.lengths[0], DIM, VALUES}};
        attn_tensors of = {.struct_size = sizeof of, .q = attn_in(q), .o = attn_out(expected)};
        memcpy(v, both.k, sizeof v);
        of.k.data = both.k, of.v.data = v, of.k.dtype = of.v.dtype = types[n].dtype;
        memcpy(of.k.stride, both.cache.k.stride, sizeof of.k.stride), memcpy(of.v.stride, both.cache.k.stride, sizeof of.v.stride);
        if (types[n].scaled) of.k_scale = of.v_scale = attn_in(both.scale);
        if (attn_compute(&again, &of, &error) != ATTN_OK) fail_msg("%s", error.message);
        assert_memory_equal(o, expected, sizeof o);
    }
}

static void test_rejected(void **state)
{
    static held h;
    static float x[LEN * DIM], scale[CAPACITY];
    (void)state;
#define CACHE(n, changes, status, text)                                                                                            \
    do {                                                                                                                           \
        hold(&h, n, 1);                                                                                                            \
        attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = LEN, .k = attn_in(x)};                                    \
        changes;                                                                                                                   \
        FAILS(attn_cache_append(&h.cache, &tokens, &error), status, text);                                                         \
        assert_true(h.lengths[0] == 0 && h.k[0] == 0xff);                                                                          \
    } while (0)
    CACHE(0, tokens.v = attn_in(x), ATTN_ERR_ARGUMENT,
          "cache: tokens.v is set and v is k; leave it NULL, the values are the first channels of tokens.k");
    CACHE(2, h.cache.v_scale = attn_out(scale), ATTN_ERR_ARGUMENT,
          "cache: v_scale is set and v is k; leave it NULL, the scales of the values are those of k");
    CACHE(0, h.cache.dim_v = DIM + 1, ATTN_ERR_SHAPE, "cache: v is k, whose 64 channels are fewer than dim_v (65)");
    CACHE(0, (h.cache.v.stride[2] = VALUES, tokens.v = attn_in(x)), ATTN_ERR_STRIDE,
          "cache: k and v share elements; an output must not overlap another tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_written), cmocka_unit_test(test_attended),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
