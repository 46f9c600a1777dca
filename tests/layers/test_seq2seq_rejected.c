/* SPDX-License-Identifier: MIT
 *
 * test_seq2seq_rejected.c - what attention modules of sequence-to-sequence models reject: with the exact message, and nothing is
 * written. */
#include "fails.h"

#include <math.h>

#include "attn/seq2seq.h"

/* Bad files: a message, and the weights stay unchanged. */
static void test_bad_files(void **state)
{
    static float good[64], nan_inside[64];
    static double wide[64];
    const int64_t right[2] = {3, 5}, wrong[2] = {5, 3};
    const struct {
        const char *message;
        attn_dtype dtype;
        const int64_t *shape;
        const void *data;
    } cases[] = {{"layer: no tensor is named a.w", ATTN_F32, NULL, NULL},
                 {"layer: tensor 'a.w' has shape [5, 3]; the layer has [3, 5]", ATTN_F32, wrong, good},
                 {"layer: tensor 'a.w' is f64; the layer is f32", ATTN_F64, right, wide},
                 {"layer: tensor 'a.w' has a NaN at element 2", ATTN_F32, right, nan_inside}};
    const attn_seq2seq module = {.struct_size = sizeof module, .score = ATTN_SCORE_GENERAL, .dim_state = 3, .dim_memory = 5};
    (void)state;
    nan_inside[2] = NAN;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_seq2seq_weights weights, before;
        attn_archive *file = NULL;
        attn_error error;
        memset(&weights, 0x5a, sizeof weights);
        before = weights;
        assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
        if (cases[i].shape)
            assert_int_equal(attn_archive_add(file, "a.w", cases[i].dtype, 2, cases[i].shape, cases[i].data, NULL), ATTN_OK);
        assert_int_not_equal(attn_seq2seq_load(&module, file, "a.", &weights, &error), ATTN_OK);
        assert_string_equal(error.message, cases[i].message);
        assert_memory_equal(&weights, &before, sizeof weights);
        attn_archive_destroy(file);
    }
}

typedef struct good {
    attn_seq2seq module;
    attn_seq2seq_weights weights, gradients;
    attn_layer_tensors args;
    attn_problem attention;
    attn_tensors pointers;
    attn_options options;
    double y[64], numbers[512], saved[512];
} good;

static void make_good(good *g)
{
    memset(g, 0, sizeof *g);
    g->module = (attn_seq2seq){.struct_size = sizeof g->module,
                               .dtype = ATTN_F64,
                               .score = ATTN_SCORE_GENERAL,
                               .dim_state = 3,
                               .dim_memory = 4,
                               .dim_output = 2};
    g->weights =
        (attn_seq2seq_weights){.struct_size = sizeof g->weights, .w = attn_out(g->numbers), .combine = attn_out(g->numbers)};
    g->gradients.struct_size = sizeof g->gradients;
    g->attention.struct_size = sizeof g->attention;
    g->args = (attn_layer_tensors){.struct_size = sizeof g->args,
                                   .batch = 2,
                                   .len_q = 2,
                                   .len_kv = 3,
                                   .query.data = g->numbers,
                                   .key.data = g->numbers,
                                   .output.data = g->y,
                                   .saved = g->saved,
                                   .grad_output.data = g->numbers,
                                   .grad_query.data = g->y};
    memset(g->y, 0x5a, sizeof g->y);
}

static void struct_size(good *g) { g->module.struct_size = 2; }
static void reserved(good *g) { g->module.reserved[3] = 1; }
static void score(good *g) { g->module.score = ATTN_SCORE_COSINE; }
static void dim_memory(good *g) { g->module.dim_memory = 0; }
static void hidden(good *g) { g->module.dim_hidden = 3; }
static void no_hidden(good *g) { g->module.score = ATTN_SCORE_ADDITIVE; }
static void dot(good *g) { g->module.score = ATTN_SCORE_DOT; }
static void dtype(good *g) { g->module.dtype = ATTN_BF16; }
static void attention_size(good *g) { g->module.attention = &g->attention, g->attention.struct_size = 4; }
static void kind(good *g) { g->module.attention = &g->attention, g->attention.score.kind = ATTN_SCORE_COSINE; }
static void bias(good *g) { g->module.attention = &g->attention, g->attention.score.additive_bias = 1; }
static void matrix(good *g)
{
    g->args.attention = &g->pointers, g->pointers.struct_size = sizeof g->pointers;
    g->pointers.score_matrix = attn_in(g->numbers);
}
static void packed(good *g)
{
    g->args.attention = &g->pointers, g->pointers.struct_size = sizeof g->pointers;
    g->pointers.cu_seqlens_q = attn_in(g->numbers);
}
static void weights_size(good *g) { g->weights.struct_size = 1; }
static void no_weight(good *g) { g->weights.w.data = NULL; }
static void null_weight(good *g) { g->weights.w = attn_out(NULL); }
static void typed_weight(good *g) { g->weights.w.dtype = ATTN_F32; }
static void strides(good *g) { g->weights.w.stride[2] = 5, g->weights.w.stride[3] = 1; }
static void extra_weight(good *g) { g->weights.state = attn_out(g->numbers); }
static void args_size(good *g) { g->args.struct_size = 1; }
static void *allocate(void *context, size_t bytes)
{
    (void)context;
    return malloc(bytes);
}
static void half_an_allocator(good *g)
{
    g->options = (attn_options){.struct_size = sizeof g->options, .allocator = {.allocate = allocate}};
    g->args.options = &g->options, g->args.saved = NULL;
}
static void options_size(good *g) { g->args.options = &g->options; }
static void value(good *g) { g->args.value.data = g->numbers; }
static void pointers(good *g) { g->args.attention = &g->pointers; }
static void no_states(good *g) { g->args.query.data = NULL; }
static void no_memory(good *g) { g->args.key.data = NULL; }

static const struct {
    void (*spoil)(good *);
    const char *message;
} cases[] = {
    {struct_size, "attn_seq2seq.struct_size is 2; set it to sizeof(attn_seq2seq)"},
    {reserved, "seq2seq: reserved[3] is not 0"},
    {score, "seq2seq: score (3) is neither dot, general nor additive"},
    {dim_memory, "seq2seq: dim_memory (0) is not between 1 and 16777216"},
    {hidden, "seq2seq: dim_hidden (3) is not between 0 and 0"},
    {no_hidden, "seq2seq: dim_hidden (0) is not between 1 and 16777216"},
    {dot, "seq2seq: dim_state (3) is not dim_memory (4), which a dot product needs"},
    {dtype, "layer: dtype is bf16; it must be f32 or f64"},
    {attention_size, "attn_problem.struct_size is 4; set it to sizeof(attn_problem)"},
    {kind, "seq2seq: attention.score.kind is set; the module fills it in, leave it 0"},
    {bias, "seq2seq: attention.score.additive_bias is set; the module fills it in, leave it 0"},
    {matrix, "seq2seq: attention.score_matrix is set; the module fills it in"},
    {packed, "seq2seq: attention.cu_seqlens_q is set; states are [batch, token, channel]"},
    {weights_size, "attn_seq2seq_weights.struct_size is 1; set it to sizeof(attn_seq2seq_weights)"},
    {no_weight, "seq2seq: weights.w is missing"},
    {null_weight, "seq2seq: weights.w is NULL"},
    {typed_weight, "seq2seq: weights.w is f32; the layer is f64"},
    {strides, "seq2seq: weights.w.stride[2] is 5; it must be dense, 4"},
    {extra_weight, "seq2seq: weights.state is set although the module has none"},
    {args_size, "attn_layer_tensors.struct_size is 1; set it to sizeof(attn_layer_tensors)"},
    {half_an_allocator, "options.allocator has allocate and no release; set both or neither"},
    {options_size, "attn_options.struct_size is 0; set it to sizeof(attn_options)"},
    {value, "seq2seq: value.data is set; the memory is both key and value"},
    {pointers, "attn_tensors.struct_size is 0; set it to sizeof(attn_tensors)"},
    {no_states, "layer: query.data is NULL"},
    {no_memory, "seq2seq: key.data is NULL; it must hold the memory"},
};

static void test_rejected(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        good g;
        attn_error error;
        unsigned char before[sizeof g.y];
        make_good(&g);
        memcpy(before, g.y, sizeof before);
        assert_int_equal(attn_seq2seq_forward(&g.module, &g.weights, &g.args, &error), ATTN_OK);
        make_good(&g);
        cases[i].spoil(&g);
        for (int backward = 0; backward < 2; backward++) {
            const attn_status status = backward ? attn_seq2seq_backward(&g.module, &g.weights, &g.args, &g.gradients, &error)
                                                : attn_seq2seq_forward(&g.module, &g.weights, &g.args, &error);
            assert_int_not_equal(status, ATTN_OK);
            if (strcmp(error.message, cases[i].message) != 0)
                fail_msg("case %d: '%s' instead of '%s'", (int)i, error.message, cases[i].message);
            assert_memory_equal(g.y, before, sizeof before);
        }
    }
}

static void test_rejected_by_some(void **state)
{
    good g;
    const attn_cache cache = {.struct_size = sizeof cache};
    (void)state;
    make_good(&g);
    FAILS(attn_seq2seq_forward(NULL, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT, "seq2seq: module is NULL");
    FAILS(attn_seq2seq_forward(&g.module, NULL, &g.args, &error), ATTN_ERR_ARGUMENT, "seq2seq: weights is NULL");
    FAILS(attn_seq2seq_forward(&g.module, &g.weights, NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    FAILS(attn_seq2seq_step(&g.module, &g.weights, &cache, NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    FAILS(attn_seq2seq_remember(&g.module, &g.weights, &cache, NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    FAILS(attn_seq2seq_step(&g.module, &g.weights, &cache, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: the cache's batch is 0; the layer has 2");
    FAILS(attn_seq2seq_initialise(&g.module, (attn_init)-1, 0, &g.weights, &error), ATTN_ERR_ARGUMENT,
          "seq2seq: init (-1) is not an attn_init");
    FAILS(attn_seq2seq_load(&g.module, NULL, "", &g.weights, &error), ATTN_ERR_ARGUMENT, "seq2seq: tensors is NULL");
    FAILS(attn_seq2seq_store(&g.module, &g.weights, "", NULL, &error), ATTN_ERR_ARGUMENT, "seq2seq: tensors is NULL");
    g.args.key.data = NULL;
    FAILS(attn_seq2seq_remember(&g.module, &g.weights, &cache, &g.args, &error), ATTN_ERR_ARGUMENT,
          "seq2seq: key.data is NULL; it must hold the memory");
    g.args.key.data = g.numbers, g.args.saved = NULL;
    FAILS(attn_seq2seq_backward(&g.module, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "seq2seq: tensors.saved is NULL; forward fills it for backward");
}

/* Outputs may overlap nothing. */
static void test_overlap(void **state)
{
    good g;
    (void)state;
    make_good(&g);
    g.args.output.data = g.numbers + 11;
    FAILS(attn_seq2seq_forward(&g.module, &g.weights, &g.args, &error), ATTN_ERR_STRIDE,
          "seq2seq: output and query share elements; an output must not overlap another tensor");
    make_good(&g);
    g.args.grad_key.data = g.y + 11;
    FAILS(attn_seq2seq_backward(&g.module, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_STRIDE,
          "seq2seq: grad_query and grad_key share elements; an output must not overlap another tensor");
    make_good(&g);
    g.gradients.combine = attn_out(g.saved + 40);
    FAILS(attn_seq2seq_backward(&g.module, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_STRIDE,
          "seq2seq: gradients.combine and saved share elements; an output must not overlap another tensor");
    make_good(&g);
    FAILS(attn_seq2seq_initialise(&g.module, ATTN_INIT_SMALL, 0, &g.weights, &error), ATTN_ERR_STRIDE,
          "seq2seq: weights.w and weights.combine share elements; an output must not overlap another tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_rejected_by_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
