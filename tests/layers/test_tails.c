/* SPDX-License-Identifier: MIT
 * test_tails.c - every struct of libattn_layers with struct_size (tests/interface/test_tails.c has those of libattn). */
#include "tails.h"

#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"

enum { D = 4, LEN = 3 };

static float w[8][64], input[LEN * D], y[LEN * D], saved[1024];
static attn_layer layer = {.struct_size = sizeof layer, .dim_model = D, .heads_q = 1};
static attn_layer_weights weights;
static attn_layer_tensors tensors;
static attn_latent latent = {.struct_size = sizeof latent, .dim_model = D, .heads = 1};
static attn_latent_weights latent_weights;
static attn_seq2seq module = {.struct_size = sizeof module, .dim_state = D, .dim_memory = D, .score = ATTN_SCORE_GENERAL};
static attn_seq2seq_weights module_weights;
static attn_layer_counts counts = {.struct_size = sizeof counts};
static attn_problem problem = {.struct_size = sizeof problem};
static attn_tensors attention = {.struct_size = sizeof attention};
static attn_rope rope = {.struct_size = sizeof rope};
static attn_call call = {.struct_size = sizeof call};
static attn_options options = {.struct_size = sizeof options};
static attn_cache cache;
static int64_t length;

static void make(void)
{
    weights = (attn_layer_weights){.struct_size = sizeof weights,
                                   .query = attn_out(w[0]),
                                   .key = attn_out(w[1]),
                                   .value = attn_out(w[2]),
                                   .output = attn_out(w[3])};
    latent_weights = (attn_latent_weights){.struct_size = sizeof latent_weights,
                                           .query = attn_out(w[0]),
                                           .down = attn_out(w[1]),
                                           .up = attn_out(w[2]),
                                           .output = attn_out(w[3])};
    module_weights = (attn_seq2seq_weights){.struct_size = sizeof module_weights, .w = attn_out(w[0])};
    tensors = (attn_layer_tensors){.struct_size = sizeof tensors,
                                   .batch = 1,
                                   .len_q = LEN,
                                   .len_kv = LEN,
                                   .query = attn_in(input),
                                   .key = attn_in(w[7]),
                                   .output = attn_out(y),
                                   .saved = saved};
    length = 0;
    cache = (attn_cache){.struct_size = sizeof cache,
                         .batch = 1,
                         .heads_kv = 1,
                         .capacity = LEN,
                         .dim_qk = D,
                         .dim_v = D,
                         .k = attn_out(w[4]),
                         .v = attn_out(w[5]),
                         .lengths = attn_out(&length)};
}

RUN(layer, attn_layer_forward(x, &weights, &tensors, e))
RUN(weights, attn_layer_forward(&layer, x, &tensors, e))
static attn_status run_gradients(const void *x, attn_error *e)
{
    attn_layer_tensors t = tensors;
    t.grad_output = attn_in(input);
    (void)attn_layer_forward(&layer, &weights, &tensors, NULL);
    return attn_layer_backward(&layer, &weights, &t, x, e);
}
RUN(tensors, attn_layer_forward(&layer, &weights, x, e))
RUN(latent_tensors, attn_latent_forward(&latent, &latent_weights, x, e))
RUN(module_tensors, attn_seq2seq_forward(&module, &module_weights, x, e))
RUN(latent, attn_latent_forward(x, &latent_weights, &tensors, e))
RUN(latent_weights, attn_latent_forward(&latent, x, &tensors, e))
RUN(module, attn_seq2seq_forward(x, &module_weights, &tensors, e))
RUN(module_weights, attn_seq2seq_forward(&module, x, &tensors, e))
static attn_status run_cache(const void *x, attn_error *e)
{
    attn_layer_tensors t = tensors;
    t.saved = NULL;
    return length = 0, attn_layer_decode(&layer, &weights, x, &t, e);
}

RUN(counts, attn_layer_count(&layer, 1, 1, 1, &weights, (attn_layer_counts *)(uintptr_t)x, e))

/* Structs to which a layer or its tensors point. */
RUN_AT(attention, attn_layer_tensors, tensors, attention, attn_layer_forward(&layer, &weights, &copy, e))
RUN_AT(module_attention, attn_layer_tensors, tensors, attention, attn_seq2seq_forward(&module, &module_weights, &copy, e))
RUN_AT(call, attn_layer_tensors, tensors, call, attn_layer_forward(&layer, &weights, &copy, e))
RUN_AT(options, attn_layer_tensors, tensors, options, attn_layer_forward(&layer, &weights, &copy, e))
RUN_AT(problem, attn_layer, layer, attention, attn_layer_forward(&copy, &weights, &tensors, e))
RUN_AT(rope, attn_layer, layer, rope, attn_layer_forward(&copy, &weights, &tensors, e))

/* Loading fills in a struct of the caller. */
static attn_status run_load(const void *x, attn_error *e)
{
    static const int64_t square[2] = {D, D};
    attn_archive *file;
    assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    for (int i = 0; i < 4; i++) assert_int_equal(attn_archive_add(file, names[i], ATTN_F32, 2, square, w[i], NULL), ATTN_OK);
    const attn_status status = attn_layer_load(&layer, file, "", (attn_layer_weights *)(uintptr_t)x, e);
    attn_archive_destroy(file);
    return status;
}

static void test_slots(void **state)
{
    (void)state;
    static attn_layer_weights gradients = {.struct_size = sizeof gradients};
    TAILS(attn_layer_weights, weights, 1, run_weights);
    TAILS(attn_layer_weights, gradients, 1, run_gradients);
    TAILS(attn_layer_tensors, tensors, 1, run_tensors);
    TAILS(attn_layer_tensors, tensors, 1, run_latent_tensors);
    TAILS(attn_layer_tensors, tensors, 1, run_module_tensors);
    TAILS(attn_latent_weights, latent_weights, 1, run_latent_weights);
    TAILS(attn_seq2seq_weights, module_weights, 1, run_module_weights);
    TAILS(attn_tensors, attention, 1, run_attention);
    TAILS(attn_tensors, attention, 1, run_module_attention);
    TAILS(attn_cache, cache, 1, run_cache);
}

static void test_fields(void **state)
{
    (void)state;
    TAILS(attn_layer, layer, 0, run_layer);
    TAILS(attn_latent, latent, 0, run_latent);
    TAILS(attn_seq2seq, module, 0, run_module);
    TAILS(attn_problem, problem, 0, run_problem);
    TAILS(attn_rope, rope, 0, run_rope);
    TAILS(attn_call, call, 0, run_call);
    TAILS(attn_options, options, 0, run_options);
}

static void test_filled(void **state)
{
    (void)state;
    FILLED(attn_layer_counts, counts, run_counts);
    size_t given = sizeof weights;
    attn_layer_weights loaded;
    memset(&loaded, 0x5a, sizeof loaded);
    memcpy(&loaded, &given, sizeof given);
    assert_int_equal(run_load(&loaded, NULL), ATTN_OK);
    assert_true(loaded.query.data == (void *)w[0] && !loaded.extra_value.data);
    given += 8; /* not a multiple of the slot size */
    memcpy(&loaded, &given, sizeof given);
    assert_int_equal(run_load(&loaded, NULL), ATTN_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slots), cmocka_unit_test(test_fields), cmocka_unit_test(test_filled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
