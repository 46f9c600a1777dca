/* SPDX-License-Identifier: MIT
 *
 * test_seq2seq_rejected.c - what attention modules of sequence-to-sequence models reject: with the exact message, and nothing is
 * written. */
#include "bad_files.h"

#include "attn/seq2seq.h"

static void test_bad_files(void **state)
{
    static const char *const messages[BAD_KINDS] = {
        "layer: no tensor 'a.w'", "layer: tensor 'a.w' has shape [3, 4]; the layer has [3, 5]",
        "layer: tensor 'a.w' is f64; the layer is f32", "layer: tensor 'a.w' has a NaN at element 2"};
    const attn_seq2seq module = {.struct_size = sizeof module, .score = ATTN_SCORE_GENERAL, .dim_state = 3, .dim_memory = 5};
    (void)state;
    for (int fault = 0; fault < BAD_KINDS; fault++) {
        attn_seq2seq_weights weights;
        attn_archive *file = empty_file();
        add_matrix(file, "a.w", 3, 5, fault);
        LOAD_FAILS(attn_seq2seq_load(&module, file, "a.", &weights, &error), messages[fault]);
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

static void *allocate(void *context, size_t bytes)
{
    (void)context;
    return malloc(bytes);
}

/* Makes a call that forward accepts. */
static void start(good *g)
{
    make_good(g);
    assert_int_equal(attn_seq2seq_forward(&g->module, &g->weights, &g->args, NULL), ATTN_OK);
    make_good(g);
}

/* Forward and backward reject the call and write nothing. */
static void reject(good *g, const char *message, int line)
{
    attn_error error;
    unsigned char before[sizeof g->y];
    memcpy(before, g->y, sizeof before);
    for (int backward = 0; backward < 2; backward++) {
        const attn_status status = backward ? attn_seq2seq_backward(&g->module, &g->weights, &g->args, &g->gradients, &error)
                                            : attn_seq2seq_forward(&g->module, &g->weights, &g->args, &error);
        assert_int_not_equal(status, ATTN_OK);
        if (strcmp(error.message, message) != 0) fail_msg("line %d: '%s' instead of '%s'", line, error.message, message);
        assert_memory_equal(g->y, before, sizeof before);
    }
}

static void test_rejected(void **state)
{
    good g;
    (void)state;
#define REJECTED(change, message) (start(&g), change, reject(&g, message, __LINE__))
    REJECTED(g.module.struct_size = 2, "attn_seq2seq.struct_size is 2; set it to sizeof(attn_seq2seq)");
    REJECTED(g.module.reserved[3] = 1, "seq2seq: reserved[3] is not 0");
    REJECTED(g.module.score = ATTN_SCORE_COSINE, "seq2seq: score (3) is neither dot, general nor additive");
    REJECTED(g.module.dim_memory = 0, "seq2seq: dim_memory (0) is not between 1 and 16777216");
    REJECTED(g.module.dim_hidden = 3, "seq2seq: dim_hidden (3) is not between 0 and 0");
    REJECTED(g.module.score = ATTN_SCORE_ADDITIVE, "seq2seq: dim_hidden (0) is not between 1 and 16777216");
    REJECTED(g.module.score = ATTN_SCORE_DOT, "seq2seq: dim_state (3) is not dim_memory (4), which a dot product needs");
    REJECTED(g.module.dtype = ATTN_BF16, "layer: dtype is bf16; it must be f32 or f64");
    REJECTED((g.module.attention = &g.attention, g.attention.struct_size = 4),
             "attn_problem.struct_size is 4; set it to sizeof(attn_problem)");
    REJECTED((g.module.attention = &g.attention, g.attention.score.kind = ATTN_SCORE_COSINE),
             "seq2seq: attention.score.kind is set; the module fills it in, leave it 0");
    REJECTED((g.module.attention = &g.attention, g.attention.score.additive_bias = 1),
             "seq2seq: attention.score.additive_bias is set; the module fills it in, leave it 0");
    REJECTED(
        (g.args.attention = &g.pointers, g.pointers.struct_size = sizeof g.pointers, g.pointers.score_matrix = attn_in(g.numbers)),
        "seq2seq: attention.score_matrix is set; the module fills it in");
    REJECTED(
        (g.args.attention = &g.pointers, g.pointers.struct_size = sizeof g.pointers, g.pointers.cu_seqlens_q = attn_in(g.numbers)),
        "seq2seq: attention.cu_seqlens_q is set; states are [batch, token, channel]");
    REJECTED(g.weights.struct_size = 1, "attn_seq2seq_weights.struct_size is 1; set it to sizeof(attn_seq2seq_weights)");
    REJECTED(g.weights.w.data = NULL, "seq2seq: weights.w is missing");
    REJECTED(g.weights.w = attn_out(NULL), "seq2seq: weights.w is NULL");
    REJECTED(g.weights.w.dtype = ATTN_F32, "seq2seq: weights.w is f32; the layer is f64");
    REJECTED((g.weights.w.stride[2] = 5, g.weights.w.stride[3] = 1), "seq2seq: weights.w.stride[2] is 5; it must be dense, 4");
    REJECTED(g.weights.state = attn_out(g.numbers), "seq2seq: weights.state is set although the module has none");
    REJECTED(g.args.struct_size = 1, "attn_layer_tensors.struct_size is 1; set it to sizeof(attn_layer_tensors)");
    REJECTED((g.options = (attn_options){.struct_size = sizeof g.options, .allocator = {.allocate = allocate}},
              g.args.options = &g.options, g.args.saved = NULL),
             "options.allocator has allocate and no release; set both or neither");
    REJECTED(g.args.options = &g.options, "attn_options.struct_size is 0; set it to sizeof(attn_options)");
    REJECTED(g.args.value.data = g.numbers, "seq2seq: value.data is set; the memory is both key and value");
    REJECTED(g.args.attention = &g.pointers, "attn_tensors.struct_size is 0; set it to sizeof(attn_tensors)");
    REJECTED(g.args.query.data = NULL, "layer: query.data is NULL");
    REJECTED(g.args.key.data = NULL, "seq2seq: key.data is NULL; it must hold the memory");
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
    OVERLAPS(attn_seq2seq_forward(&g.module, &g.weights, &g.args, &error), "seq2seq: output and query");
    make_good(&g);
    g.args.grad_key.data = g.y + 11;
    OVERLAPS(attn_seq2seq_backward(&g.module, &g.weights, &g.args, &g.gradients, &error), "seq2seq: grad_query and grad_key");
    make_good(&g);
    g.gradients.combine = attn_out(g.saved + 40);
    OVERLAPS(attn_seq2seq_backward(&g.module, &g.weights, &g.args, &g.gradients, &error), "seq2seq: gradients.combine and saved");
    make_good(&g);
    OVERLAPS(attn_seq2seq_initialise(&g.module, ATTN_INIT_SMALL, 0, &g.weights, &error), "seq2seq: weights.w and weights.combine");
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
