/* SPDX-License-Identifier: MIT
 * test_apart.c - outputs that overlap another tensor of a layer's call (such as decode's cache and output) are rejected, and
 * nothing is written. */
#include "fails.h"

#include "attn/latent.h"
#include "attn/seq2seq.h"

enum { N = 256 };

typedef struct memory {
    float x[N], key[N], w[6][N], k[N], v[N], y[N], bias[N];
    int64_t lengths[2], positions[8], real[2];
} memory;

static memory m;
static attn_cache cache;
static attn_tensors attention;
static attn_layer_tensors args;

/* Two entries of three tokens of eight channels, and a cache for twelve. */
static void make(int64_t heads_kv, int64_t dim_qk, int64_t dim_v)
{
    memset(&m, 0, sizeof m);
    for (int i = 0; i < N; i++) m.x[i] = m.key[i] = (float)(i % 7) / 4, m.y[i] = 9;
    m.real[0] = m.real[1] = 3;
    attention = (attn_tensors){.struct_size = sizeof attention, .bias = {m.bias, ATTN_F32, {0, 0, 0, 1}}};
    cache = (attn_cache){.struct_size = sizeof cache,
                         .batch = 2,
                         .heads_kv = heads_kv,
                         .capacity = 12,
                         .dim_qk = dim_qk,
                         .dim_v = dim_v,
                         .k = attn_out(m.k),
                         .lengths = attn_out(m.lengths)};
    args = (attn_layer_tensors){.struct_size = sizeof args,
                                .batch = 2,
                                .len_q = 3,
                                .query = attn_in(m.x),
                                .output = attn_out(m.y),
                                .attention = &attention};
}

#define OVERLAP(make_it, change, call, text)                                                                                       \
    do {                                                                                                                           \
        make_it;                                                                                                                   \
        FAILS(call, ATTN_OK, "");                                                                                                  \
        make_it;                                                                                                                   \
        change;                                                                                                                    \
        const memory before = m;                                                                                                   \
        FAILS(call, ATTN_ERR_STRIDE, text "; an output must not overlap another tensor");                                          \
        assert_memory_equal(&m, &before, sizeof m);                                                                                \
    } while (0)

static attn_layer layer;
static attn_layer_weights weights;
static attn_rope rope;

static void make_layer(void)
{
    make(2, 2, 2);
    cache.v = attn_out(m.v);
    layer = (attn_layer){.struct_size = sizeof layer, .dim_model = 8, .heads_q = 4, .heads_kv = 2, .rope = &rope};
    weights = (attn_layer_weights){.struct_size = sizeof weights,
                                   .query = attn_out(m.w[0]),
                                   .key = attn_out(m.w[1]),
                                   .value = attn_out(m.w[2]),
                                   .output = attn_out(m.w[3])};
    rope = (attn_rope){.struct_size = sizeof rope};
    args.positions_q = attn_in(m.positions);
    args.lengths_q = attn_in(m.real);
}

static void test_layer(void **state)
{
    (void)state;
#define LAYER(change, text)                                                                                                        \
    OVERLAP(make_layer(), change, attn_layer_decode(&layer, &weights, &cache, &args, &error), "layer: " text " share elements")
    LAYER(cache.k.data = m.x, "cache.k and query");
    LAYER(cache.v.data = m.w[1] + 3, "cache.v and weights.key");
    LAYER(cache.v.data = m.k + 5, "cache.k and cache.v");
    LAYER(args.output.data = m.k + N / 8, "cache.k and output");
    LAYER(args.output.data = m.lengths, "cache.lengths and output");
    LAYER(args.output.data = m.positions, "output and positions_q");
    LAYER(cache.lengths.data = m.real, "cache.lengths and lengths_q");
    LAYER(attention.bias.data = m.k + 5, "cache.k and attention.bias");
    LAYER(attention.bias.data = m.y + 5, "output and attention.bias");
    LAYER(attention.lse = attn_out(m.x), "attention.lse and query");
    LAYER((rope.frequencies = (double *)(void *)m.k), "cache.k and rope.frequencies");
    LAYER((args.only_cached = 1, args.output.data = m.v), "output and cache.v");
}

/* Tensors of the attention, in forward and backward. */
static void test_attention(void **state)
{
    static float saved[1024];
    (void)state;
#define FORWARD(change, text)                                                                                                      \
    OVERLAP((make_layer(), args.lengths_q.data = NULL), change, attn_layer_forward(&layer, &weights, &args, &error),               \
            "layer: " text " share elements")
    FORWARD(attention.bias.data = m.y + 5, "output and attention.bias");
    FORWARD(attention.lse = attn_out(m.w[2]), "attention.lse and weights.value");
    make_layer(), args.lengths_q.data = NULL, args.saved = saved;
    FAILS(attn_layer_forward(&layer, &weights, &args, &error), ATTN_OK, "");
    attn_layer_weights gradients = {.struct_size = sizeof gradients, .query = attn_out(m.w[4])};
    args.grad_output = attn_in(m.y), attention.grad_bias = (attn_output){m.w[4], ATTN_F32, {0, 0, 0, 1}};
    OVERLAPS(attn_layer_backward(&layer, &weights, &args, &gradients, &error), "layer: gradients.query and attention.grad_bias");
    attention.grad_bias.data = m.w[5];
    FAILS(attn_layer_backward(&layer, &weights, &args, &gradients, &error), ATTN_OK, "");
}

static attn_latent latent;
static attn_latent_weights latent_weights;

static void make_latent(void)
{
    make(1, 5, 3);
    latent = (attn_latent){
        .struct_size = sizeof latent, .dim_model = 8, .heads = 2, .head_dim = 4, .rank = 3, .dim_rotary = 2, .rope = &rope};
    rope = (attn_rope){.struct_size = sizeof rope};
    latent_weights = (attn_latent_weights){.struct_size = sizeof latent_weights,
                                           .query = attn_out(m.w[0]),
                                           .down = attn_out(m.w[1]),
                                           .up = attn_out(m.w[2]),
                                           .output = attn_out(m.w[3])};
}

static void test_latent(void **state)
{
    (void)state;
#define LATENT(change, text)                                                                                                       \
    OVERLAP(make_latent(), change, attn_latent_decode(&latent, &latent_weights, &cache, &args, &error),                            \
            "latent: " text " share elements")
    LATENT(cache.k.data = m.x, "cache.k and query");
    LATENT(cache.k.data = m.w[2] + 3, "cache.k and weights.up");
    LATENT(args.output.data = m.k + 5, "cache.k and output");
    LATENT(args.output.data = m.lengths, "cache.lengths and output");
    LATENT(attention.bias.data = m.k + 5, "cache.k and attention.bias");
    LATENT((rope.frequencies = (double *)(void *)m.y), "output and rope.frequencies");
}

static attn_seq2seq module;
static attn_seq2seq_weights module_weights;

static void make_module(int step)
{
    make(1, 8, 8);
    cache.v = attn_out(m.v);
    module =
        (attn_seq2seq){.struct_size = sizeof module, .score = ATTN_SCORE_GENERAL, .dim_state = 8, .dim_memory = 8, .dim_output = 4};
    module_weights =
        (attn_seq2seq_weights){.struct_size = sizeof module_weights, .w = attn_out(m.w[0]), .combine = attn_out(m.w[1])};
    if (!step) args.key = attn_in(m.key), args.len_kv = 3, args.len_q = 0;
    else m.lengths[0] = m.lengths[1] = 2;
}

static void test_seq2seq(void **state)
{
    (void)state;
#define REMEMBER(change, text)                                                                                                     \
    OVERLAP(make_module(0), change, attn_seq2seq_remember(&module, &module_weights, &cache, &args, &error),                        \
            "seq2seq: " text " share elements")
#define STEP(change, text)                                                                                                         \
    OVERLAP(make_module(1), change, attn_seq2seq_step(&module, &module_weights, &cache, &args, &error),                            \
            "seq2seq: " text " share elements")
    REMEMBER(cache.k.data = m.key, "cache.k and key");
    REMEMBER(cache.v.data = m.w[1], "cache.v and weights.combine");
    STEP(args.output.data = m.k, "output and cache.k");
    STEP(args.output.data = m.lengths, "output and cache.lengths");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layer), cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_latent), cmocka_unit_test(test_seq2seq)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
