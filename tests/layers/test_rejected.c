/* SPDX-License-Identifier: MIT
 * test_rejected.c - every message with which a layer rejects a call; outputs stay unchanged. */
#include "fails.h"

#include <limits.h>

#include "attn/layers.h"

/* A valid call with all arguments; each case invalidates one thing. */
typedef struct good {
    attn_layer layer;
    attn_layer_weights weights, gradients;
    attn_layer_tensors args;
    attn_problem attention;
    attn_tensors options;
    attn_rope rope;
    attn_call call;
    float numbers[10][256];
    float out[64], saved[1024];
    int64_t begin[6];
} good;

static void make(good *g)
{
    memset(g, 0, sizeof *g);
    g->layer = (attn_layer){.struct_size = sizeof g->layer, .dim_model = 8, .heads_q = 4};
    g->weights.struct_size = g->gradients.struct_size = sizeof g->weights;
    g->weights.query.data = g->numbers[0], g->weights.key.data = g->numbers[1];
    g->weights.value.data = g->numbers[2], g->weights.output.data = g->numbers[3];
    g->args = (attn_layer_tensors){
        .struct_size = sizeof g->args, .batch = 2, .len_q = 3, .query = {.data = g->numbers[4]}, .output = {.data = g->out}};
    g->args.saved = g->saved;
    g->args.grad_output.data = g->numbers[5];
    g->args.grad_query.data = g->out;
    g->attention.struct_size = sizeof g->attention;
    g->options.struct_size = sizeof g->options;
    g->rope.struct_size = sizeof g->rope;
    memset(g->out, 0xa5, sizeof g->out);
}

static void packed(good *g) { g->args.attention = &g->options, g->options.cu_seqlens_kv = attn_in(g->begin); }
static void packed_query(good *g) { packed(g), g->options.cu_seqlens_q = attn_in(g->begin); }
static void extra(good *g)
{
    g->layer.attention = &g->attention, g->weights.extra_key.data = g->weights.extra_value.data = g->numbers[6];
}
static void key_strides(good *g, int64_t head, int64_t channel, int64_t model)
{
    g->weights.key = (attn_output){g->numbers[1], ATTN_F32, {0, head, channel, model}};
}

/* Makes a call that forward accepts. */
static void start(good *g)
{
    make(g);
    assert_int_equal(attn_layer_forward(&g->layer, &g->weights, &g->args, NULL), ATTN_OK);
    make(g);
}

/* Forward and backward reject the call and write nothing.  message NULL: with any. */
static void reject(good *g, attn_status expected, const char *message, int line)
{
    attn_error error;
    unsigned char before[sizeof g->out];
    memcpy(before, g->out, sizeof before);
    for (int backward = 0; backward < 2; backward++) {
        const attn_status status = backward ? attn_layer_backward(&g->layer, &g->weights, &g->args, &g->gradients, &error)
                                            : attn_layer_forward(&g->layer, &g->weights, &g->args, &error);
        if (message && strcmp(error.message, message) != 0) fail_msg("line %d: '%s' instead of '%s'", line, error.message, message);
        if (message) assert_int_equal(status, expected);
        assert_int_not_equal(status, ATTN_OK);
        assert_memory_equal(g->out, before, sizeof before);
    }
}

static void test_messages(void **state)
{
    good g;
    (void)state;
#define REJECTED(change, status, message) (start(&g), change, reject(&g, status, message, __LINE__))
    REJECTED(g.layer.struct_size = 1, ATTN_ERR_ARGUMENT, "attn_layer.struct_size is 1; set it to sizeof(attn_layer)");
    REJECTED(g.layer.reserved[2] = 1, ATTN_ERR_ARGUMENT, "layer: reserved[2] is not 0");
    REJECTED(g.layer.dtype = ATTN_BF16, ATTN_ERR_ARGUMENT, "layer: dtype is bf16; it must be f32 or f64");
    REJECTED(g.layer.dim_model = 0, ATTN_ERR_SHAPE, "layer: dim_model (0) is not between 1 and 2147483647");
    REJECTED(g.layer.dim_key = (int64_t)INT_MAX + 1, ATTN_ERR_SHAPE, "layer: dim_key (2147483648) is not between 1 and 2147483647");
    REJECTED(g.layer.heads_kv = 3, ATTN_ERR_SHAPE, "layer: heads_q (4) is not a multiple of heads_kv (3)");
    REJECTED(g.layer.heads_q = 3, ATTN_ERR_SHAPE, "layer: dim_model (8) is not a multiple of heads_q (3); set head_dim");
    REJECTED(g.layer.head_dim = INT_MAX, ATTN_ERR_SHAPE, "layer: 4 heads of 2147483647 channels are more than 2147483647");
    REJECTED((g.layer.no_output = 1, g.layer.dim_output = 9, g.weights.output.data = NULL), ATTN_ERR_SHAPE,
             "layer: dim_output is 9; without an output projection it must be heads_q * head_dim_v (8)");
    REJECTED((g.layer.attention = &g.attention, g.attention.struct_size = 7), ATTN_ERR_ARGUMENT,
             "attn_problem.struct_size is 7; set it to sizeof(attn_problem)");
    REJECTED((g.layer.attention = &g.attention, g.attention.op = ATTN_BACKWARD), ATTN_ERR_ARGUMENT,
             "layer: attention.op is set; the layer fills it in, leave it 0");
    REJECTED((g.layer.attention = &g.attention, g.attention.shape.batch = 1), ATTN_ERR_ARGUMENT,
             "layer: attention.shape is set; the layer fills it in, leave it 0");
    REJECTED((g.args.attention = &g.options, g.options.grad_q = attn_out(g.out)), ATTN_ERR_ARGUMENT,
             "layer: attention.grad_q is set; the layer fills it in");
    REJECTED((g.args.attention = &g.options, g.options.lse = attn_out(g.out), g.options.lse.stride[0] = 12), ATTN_ERR_STRIDE,
             "layer: attention.lse has strides; it must be dense, [batch, heads_q, len_q]");
    REJECTED((g.args.attention = &g.options, g.options.call = &g.call), ATTN_ERR_ARGUMENT,
             "layer: attention.call is set; use the call of attn_layer_tensors");
    REJECTED(packed(&g), ATTN_ERR_ARGUMENT, "layer: attention.cu_seqlens_q is NULL, but the other cu_seqlens is set");
    REJECTED((packed_query(&g), g.options.cu_seqlens_q.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
             "layer: attention.cu_seqlens_q is f32; it must be i32 or i64");
    REJECTED((packed_query(&g), g.begin[2] = -5), ATTN_ERR_ARGUMENT,
             "layer: cu_seqlens_q[2] (-5) minus cu_seqlens_q[1] (0) is not between 0 and len_q (3)");
    REJECTED((packed_query(&g), g.begin[0] = 1, g.begin[2] = 3), ATTN_ERR_ARGUMENT, "layer: cu_seqlens_q[0] (1) is not 0");
    REJECTED((packed_query(&g), g.begin[0] = INT64_C(2) << 32), ATTN_ERR_ARGUMENT,
             "layer: cu_seqlens_q[0] (8589934592) is not 0; the array was read as i64 (set its dtype if it is i32)");
    /* 8 bytes for each of these tokens and as many keys are 0 modulo 2^64. */
    REJECTED((packed_query(&g), g.layer.rope = &g.rope, g.begin[2] = INT64_C(1) << 60), ATTN_ERR_ARGUMENT,
             "layer: cu_seqlens_q[2] (1152921504606846976) minus cu_seqlens_q[1] (0) is not between 0 and len_q (3); the array was "
             "read as i64 (set its dtype if it is i32)");
    REJECTED((packed_query(&g), g.layer.rope = &g.rope, g.begin[1] = INT64_C(1) << 30, g.begin[2] = INT64_C(1) << 31,
              g.args.len_q = g.args.len_kv = INT64_C(1) << 30),
             ATTN_ERR_SHAPE, "layer: cu_seqlens_q ends with 2147483648; it must be at most 2147483647");
    REJECTED((packed_query(&g), g.options.cu_seqlens_kv = attn_in(g.begin + 3), g.begin[2] = 2, g.begin[5] = 3), ATTN_ERR_SHAPE,
             "layer: cu_seqlens_kv ends with 3 and cu_seqlens_q with 2, but the key is the query");
    REJECTED((g.layer.attention = &g.attention, g.attention.paging.pages = 1), ATTN_ERR_UNSUPPORTED,
             "layer: attention.paging is set; attn_layer_decode fills it in from its cache");
    REJECTED(g.weights.extra_key.data = g.numbers[6], ATTN_ERR_ARGUMENT, "layer: weights.extra_key is set and extra_value is not");
    REJECTED((extra(&g), g.attention.score.kind = ATTN_SCORE_COSINE), ATTN_ERR_UNSUPPORTED,
             "layer: an extra key is scored by dot products; attention.score.kind is 3");
    REJECTED((extra(&g), g.attention.mask.empty = ATTN_EMPTY_UNIFORM), ATTN_ERR_ARGUMENT,
             "layer: attention.mask.empty is uniform; with an extra key, every query sees a key");
    REJECTED((extra(&g), g.attention.score.normaliser = ATTN_NORMALISER_SIGMOID), ATTN_ERR_UNSUPPORTED,
             "layer: an extra key joins a softmax; attention.score.normaliser is 2");
    REJECTED((extra(&g), g.args.attention = &g.options, g.options.scores = attn_out(g.saved)), ATTN_ERR_UNSUPPORTED,
             "layer: attention.scores is not available with an extra key");
    REJECTED(
        (extra(&g), g.args.attention = &g.options, g.options.entropy = attn_out(g.saved), g.options.sink = attn_in(g.numbers[7])),
        ATTN_ERR_UNSUPPORTED, "layer: attention.entropy is not available with an extra key and a sink or another normaliser");
    REJECTED((extra(&g), g.args.attention = &g.options, g.options.effective_keys = attn_out(g.saved),
              g.attention.score.normaliser = ATTN_NORMALISER_SOFTMAX_ONE),
             ATTN_ERR_UNSUPPORTED,
             "layer: attention.effective_keys is not available with an extra key and a sink or another normaliser");
    REJECTED(g.layer.no_key = 1, ATTN_ERR_ARGUMENT, "layer: weights.key is set although no_key is set");
    REJECTED((g.layer.no_value = 1, g.layer.dim_value = 9), ATTN_ERR_SHAPE,
             "layer: the value input has 9 channels; without a projection it must be 4 heads of 2");
    REJECTED((g.layer.attention = &g.attention, g.attention.score.dim_k = 5), ATTN_ERR_SHAPE,
             "layer: attention.score.dim_k is 5 and head_dim 2; they may differ only for the general score without a rope");
    REJECTED(g.args.only_cached = 1, ATTN_ERR_ARGUMENT, "layer: tensors.only_cached is set; it is only for attn_layer_decode");
    REJECTED(g.args.lengths_q = attn_in(g.begin), ATTN_ERR_ARGUMENT,
             "layer: tensors.lengths_q is set; it is only for attn_layer_decode");
    REJECTED((g.args.attention = &g.options, g.options.struct_size = 3), ATTN_ERR_ARGUMENT,
             "attn_tensors.struct_size is 3; set it to sizeof(attn_tensors)");
    REJECTED(g.weights.struct_size = 2, ATTN_ERR_ARGUMENT,
             "attn_layer_weights.struct_size is 2; set it to sizeof(attn_layer_weights)");
    REJECTED(g.weights.value.data = NULL, ATTN_ERR_ARGUMENT, "layer: weights.value is missing");
    REJECTED(g.layer.no_output = 1, ATTN_ERR_ARGUMENT, "layer: weights.output is set although no_output is set");
    REJECTED(key_strides(&g, 16, 8, 2), ATTN_ERR_STRIDE,
             "layer: weights.key has a stride of 8 for channels and of 2 for the model; one of them must be 1");
    REJECTED(key_strides(&g, 16, (int64_t)INT_MAX + 1, 1), ATTN_ERR_STRIDE,
             "layer: weights.key.stride[2] is 2147483648; its absolute value must be at most 2147483647");
    REJECTED(g.weights.key = attn_saved(NULL), ATTN_ERR_ARGUMENT, "layer: weights.key is NULL");
    REJECTED(g.weights.key = attn_out(ATTN_LATER), ATTN_ERR_ARGUMENT,
             "layer: weights.key is ATTN_LATER; this call needs its pointer");
    REJECTED(g.weights.key.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "layer: weights.key is f64; the layer is f32");
    REJECTED(g.weights.key.data = (char *)g.numbers[1] + 2, ATTN_ERR_ARGUMENT,
             "layer: weights.key is not aligned to its elements of 4 bytes");
    REJECTED(g.weights.key_bias.dtype = ATTN_F32, ATTN_ERR_ARGUMENT,
             "layer: weights.key_bias is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED((g.weights.key_bias = attn_out(g.numbers[6]), g.weights.key_bias.stride[1] = 2, g.weights.key_bias.stride[2] = 2),
             ATTN_ERR_STRIDE, "layer: weights.key_bias.stride[2] is 2; it must be dense, 1");
    REJECTED(g.args.struct_size = 0, ATTN_ERR_ARGUMENT,
             "attn_layer_tensors.struct_size is 0; set it to sizeof(attn_layer_tensors)");
    REJECTED(g.args.len_q = -1, ATTN_ERR_SHAPE, "layer: len_q (-1) is negative");
    REJECTED(g.args.len_kv = 4, ATTN_ERR_SHAPE, "layer: len_kv (4) is not len_q (3), but the key is the query");
    REJECTED(g.args.query.data = NULL, ATTN_ERR_ARGUMENT, "layer: query.data is NULL");
    REJECTED(g.layer.dim_key = 5, ATTN_ERR_SHAPE, "layer: the key input is the query input, but has 5 channels instead of 8");
    REJECTED((g.args.query.stride[0] = -24, g.args.query.stride[3] = 1), ATTN_ERR_STRIDE,
             "layer: query has strides -24 and 0; that of tokens must be between 0 and 2147483647, the other not negative");
    REJECTED((g.args.query.stride[2] = 7, g.args.query.stride[0] = 100, g.args.query.stride[3] = 1), ATTN_ERR_STRIDE,
             "layer: query: rows of 8 channels overlap with strides 100 and 7");
    REJECTED(g.args.query = attn_in(NULL), ATTN_ERR_ARGUMENT, "layer: query is NULL");
    REJECTED(g.args.query = attn_in(ATTN_LATER), ATTN_ERR_ARGUMENT, "layer: query is ATTN_LATER; this call needs its pointer");
    REJECTED(g.args.query.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "layer: query is f64; the layer is f32");
    REJECTED(g.args.value.dtype = ATTN_F32, ATTN_ERR_ARGUMENT,
             "layer: value is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED((g.args.batch = 1 << 16, g.args.len_q = 1 << 16), ATTN_ERR_SHAPE,
             "layer: 65536 entries of 65536 and 65536 tokens are more than 2147483647 rows");
    REJECTED((g.layer = (attn_layer){.struct_size = sizeof g.layer, .dim_model = 1 << 30, .heads_q = 1 << 30, .head_dim = 1},
              g.layer.attention = &g.attention, g.attention.score.kind = ATTN_SCORE_GENERAL, g.attention.score.dim_k = 1 << 30),
             ATTN_ERR_SHAPE, "layer: 1073741824 key heads of 1073741824 channels are more than 2147483647");
    REJECTED((g.layer.rope = &g.rope, g.rope.dim_rotary = 4), ATTN_ERR_SHAPE, NULL); /* the message is position.h's */
    REJECTED((g.layer.attention = &g.attention, g.attention.score.softcap = -1), ATTN_ERR_ARGUMENT, NULL);
}

/* Messages of single functions. */
static void test_others(void **state)
{
    good g;
    attn_layer_counts counts = {.struct_size = 5};
    (void)state;
    make(&g);
    FAILS(attn_layer_forward(NULL, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT, "layer is NULL");
    FAILS(attn_layer_forward(&g.layer, NULL, &g.args, &error), ATTN_ERR_ARGUMENT, "layer: weights is NULL");
    FAILS(attn_layer_forward(&g.layer, &g.weights, NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    g.args.output.data = NULL;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT, "layer: output.data is NULL");
    FAILS(attn_layer_backward(&g.layer, &g.weights, &g.args, NULL, &error), ATTN_ERR_ARGUMENT, "layer: gradients is NULL");
    g.args.grad_key.data = g.out;
    FAILS(attn_layer_backward(&g.layer, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "layer: grad_key is set, but this input is shared with another: its gradient is added to grad_query");
    g.args.saved = NULL;
    FAILS(attn_layer_backward(&g.layer, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "layer: tensors.saved is NULL; forward fills it for backward");

    FAILS(attn_layer_count(&g.layer, 1, 1, 1, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "layer: counts is NULL");
    FAILS(attn_layer_count(&g.layer, 1, 1, 1, NULL, &counts, &error), ATTN_ERR_ARGUMENT,
          "attn_layer_counts.struct_size is 5; set it to sizeof(attn_layer_counts)");
    counts.struct_size = sizeof counts;
    FAILS(attn_layer_count(&g.layer, 1, -2, 1, NULL, &counts, &error), ATTN_ERR_SHAPE,
          "layer: batch (1), len_q (-2) or len_kv (1) is negative");
    const attn_layer vast = {.struct_size = sizeof vast, .dim_model = INT_MAX, .heads_q = 1, .head_dim = INT_MAX};
    FAILS(attn_layer_count(&vast, 0, 0, 0, NULL, &counts, &error), ATTN_ERR_SHAPE,
          "layer: its parameters are too many: their number overflows 64 bits");
    FAILS(attn_layer_initialise(&g.layer, (attn_init)9, 0, &g.weights, &error), ATTN_ERR_ARGUMENT,
          "layer: init (9) is not an attn_init");
    FAILS(attn_layer_group_heads(&g.layer, 3, &g.weights, &g.gradients, &error), ATTN_ERR_SHAPE,
          "layer: heads_kv (4) is not a multiple of groups (3)");
    FAILS(attn_layer_group_heads(&g.layer, 2, &g.weights, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "layer: grouped.key is missing");
    g.layer.no_key = 1;
    g.weights.key.data = NULL;
    FAILS(attn_layer_group_heads(&g.layer, 2, &g.weights, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "layer: no_key is set; there are no heads to average");
    g.layer.no_key = 0;
    g.weights.key.data = g.numbers[1];
    FAILS(attn_layer_load(&g.layer, NULL, "", &g.weights, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    FAILS(attn_layer_store(&g.layer, &g.weights, "", NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
}

/* Positions of tokens have no use without a rotation. */
static void test_positions(void **state)
{
    static const int64_t places[6];
    good g;
    (void)state;
    make(&g), g.args.positions_q = attn_in(places);
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT,
          "layer: positions_q is set; nothing is rotated without a rope");
    FAILS(attn_layer_backward(&g.layer, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "layer: positions_q is set; nothing is rotated without a rope");
    make(&g), g.args.positions_kv = attn_in(ATTN_LATER);
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT,
          "layer: positions_kv is set; nothing is rotated without a rope");
    make(&g), g.args.positions_q = attn_in(places), g.layer.rope = &g.rope;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_OK, "");
}

/* Strides and sizes beyond the address space. */
static void test_beyond(void **state)
{
    good g;
    (void)state;
    make(&g), g.args.query.stride[0] = INT64_MAX / 4, g.args.query.stride[2] = 8, g.args.query.stride[3] = 1;
    g.args.batch = 2;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: query.stride[0] (2305843009213693951) times its size (2) overflows 64-bit addresses");
    g.args.batch = 5;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: query.stride[0] (2305843009213693951) times its size (5) overflows 64-bit addresses");
    make(&g), g.args.len_q = INT64_MAX / 64;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: len_q (144115188075855871) is more than 2147483647");
    g.args.batch = g.args.len_q = INT_MAX;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: the bytes of 2147483647 x 2147483647 x 2147483647 numbers overflow 64 bits");
    make(&g), g.args.batch = 0, g.args.len_q = INT64_MAX; /* strides would overflow beside the 0 */
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: len_q (9223372036854775807) is more than 2147483647");
}

/* Outputs may overlap neither themselves nor anything else. */
static void test_overlap(void **state)
{
    good g;
    (void)state;
#define FORWARD(change, text)                                                                                                      \
    do {                                                                                                                           \
        make(&g);                                                                                                                  \
        change;                                                                                                                    \
        FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_STRIDE, text);                                   \
    } while (0)
#define BACKWARD(change, text)                                                                                                     \
    do {                                                                                                                           \
        make(&g);                                                                                                                  \
        change;                                                                                                                    \
        FAILS(attn_layer_backward(&g.layer, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_STRIDE, text);                    \
    } while (0)
    FORWARD(g.args.output.data = g.numbers[4], "layer: output and query share elements; an output must not overlap another tensor");
    FORWARD(g.args.output.data = g.numbers[3] + 63,
            "layer: output and weights.output share elements; an output must not overlap another tensor");
    FORWARD(g.args.output.data = g.saved + 3, "layer: saved and output share elements; an output must not overlap another tensor");
    make(&g), g.args.weights_mean = attn_out(ATTN_EMPTY);
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT,
          "layer: weights_mean is ATTN_EMPTY and has elements");
    make(&g), g.args.query.data = (char *)g.numbers[4] + 1;
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT,
          "layer: query is not aligned to its elements of 4 bytes");
    FORWARD(g.args.weights_mean = attn_out(g.out),
            "layer: output and weights_mean share elements; an output must not overlap another tensor");
    BACKWARD(g.args.grad_query.data = g.numbers[5],
             "layer: grad_query and grad_output share elements; an output must not overlap another tensor");
    BACKWARD(g.gradients.key = g.gradients.value = attn_out(g.numbers[6]),
             "layer: gradients.key and gradients.value share elements; an output must not overlap another tensor");
    BACKWARD(g.gradients.key_bias = attn_out(g.numbers[1]),
             "layer: gradients.key_bias and weights.key share elements; an output must not overlap another tensor");
    BACKWARD((g.gradients.key = (attn_output){g.numbers[6], 0, {0, 16, 7, 1}}),
             "layer: gradients.key overlaps itself: stride[2] is 7 and the axes with smaller strides span 8 elements");
    BACKWARD((g.gradients.key = (attn_output){g.numbers[6], 0, {0, 0, 8, 1}}),
             "layer: gradients.key overlaps itself: stride[1] is 0 and the axes with smaller strides span 1 elements");
    make(&g);
    g.weights.value = g.weights.key;
    OVERLAPS(attn_layer_initialise(&g.layer, ATTN_INIT_SMALL, 0, &g.weights, &error), "layer: weights.key and weights.value");
    /* Three gradients in one matrix [D, 3 D] do not overlap; heads of weights that are read may share memory. */
    make(&g);
    g.gradients.query = (attn_output){g.numbers[6], 0, {0, 2, 1, 24}};
    g.gradients.key = (attn_output){g.numbers[6] + 8, 0, {0, 2, 1, 24}};
    g.gradients.value = (attn_output){g.numbers[6] + 16, 0, {0, 2, 1, 24}};
    g.weights.key = (attn_output){g.numbers[1], 0, {0, 0, 8, 1}};
    FAILS(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_OK, "");
    FAILS(attn_layer_backward(&g.layer, &g.weights, &g.args, &g.gradients, &error), ATTN_OK, "");
}

static void test_empty(void **state)
{
    good g;
    attn_error error;
    (void)state;
    make(&g);
    g.args.batch = 0;
    assert_int_equal(attn_layer_forward(&g.layer, &g.weights, &g.args, &error), ATTN_OK);
    g.gradients.query.data = g.numbers[6]; /* over no rows: zeros */
    memset(g.numbers[6], 0xa5, sizeof g.numbers[6]);
    assert_int_equal(attn_layer_backward(&g.layer, &g.weights, &g.args, &g.gradients, &error), ATTN_OK);
    for (int i = 0; i < 64; i++) assert_true(g.numbers[6][i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages), cmocka_unit_test(test_others),
                                       cmocka_unit_test(test_beyond),   cmocka_unit_test(test_positions),
                                       cmocka_unit_test(test_overlap),  cmocka_unit_test(test_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
