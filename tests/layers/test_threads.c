/* SPDX-License-Identifier: MIT
 * test_threads.c - a layer gives the same bits for any number of threads, forward and backward, at sizes whose products are split
 * into blocks; and an entry of a batch the same bits as on its own. */
#include "test.h"

#include "attn/layers.h"
#include "on_threads.h"
#include "testing/random/random.h"

enum { DIM = 96, HEADS = 6, TOKENS = 75, BATCH = 4, WEIGHTS = DIM * DIM, ROWS = BATCH * TOKENS * DIM, TENSORS = 10 };

/* output, grad_query, four weights, four biases */
typedef struct results {
    float *tensor[TENSORS];
} results;

static size_t count_of(int tensor) { return tensor < 2 ? ROWS : tensor < 6 ? WEIGHTS : DIM; }

static float *drawn(size_t count, uint64_t seed)
{
    random_state random = random_from(seed);
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) x[i] = (float)random_signed(&random) / 8;
    return x;
}

static attn_layer_weights name(float *const *weights, float *const *biases)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query.data = weights[0],
                                .query_bias.data = biases[0],
                                .key.data = weights[1],
                                .key_bias.data = biases[1],
                                .value.data = weights[2],
                                .value_bias.data = biases[2],
                                .output.data = weights[3],
                                .output_bias.data = biases[3]};
}

static results compute(const attn_options *options, int64_t batch)
{
    const attn_layer layer = {.struct_size = sizeof layer, .dim_model = DIM, .heads_q = HEADS};
    float *x = drawn(ROWS, 1), *dy = drawn(ROWS, 2), *w[4], *b[4];
    results r;
    attn_error error;
    for (int i = 0; i < 4; i++) w[i] = drawn(WEIGHTS, 3 + (uint64_t)i), b[i] = drawn(DIM, 7 + (uint64_t)i);
    for (int i = 0; i < TENSORS; i++) r.tensor[i] = calloc(count_of(i), sizeof(float));
    const attn_layer_weights weights = name(w, b), gradients = name(r.tensor + 2, r.tensor + 6);
    attn_layer_counts counts = {.struct_size = sizeof counts};
    assert_int_equal(attn_layer_count(&layer, batch, TOKENS, TOKENS, &weights, &counts, NULL), ATTN_OK);
    void *saved = malloc((size_t)counts.saved_bytes);
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = batch,
                                     .len_q = TOKENS,
                                     .query = attn_in(x),
                                     .output = attn_out(r.tensor[0]),
                                     .saved = saved,
                                     .options = options,
                                     .grad_output = attn_in(dy),
                                     .grad_query = attn_out(r.tensor[1])};
    if (attn_layer_forward(&layer, &weights, &args, &error)) fail_msg("%s", error.message);
    if (attn_layer_backward(&layer, &weights, &args, &gradients, &error)) fail_msg("%s", error.message);
    for (int i = 0; i < 4; i++) free(w[i]), free(b[i]);
    free(x), free(dy), free(saved);
    return r;
}

static void drop(results *r)
{
    for (int i = 0; i < TENSORS; i++) free(r->tensor[i]);
}

static void test_threads(void **state)
{
    static const int threads[] = {2, 3, 8, 0};
    attn_options options = {.struct_size = sizeof options, .threads = 1};
    (void)state;
    results one = compute(&options, BATCH);
    for (size_t t = 0; t <= sizeof threads / sizeof *threads; t++) {
        const int own = t == sizeof threads / sizeof *threads;
        options.threads = own ? 5 : threads[t];
        options.parallel_for = own ? on_threads : NULL;
        results more = compute(&options, BATCH);
        for (int i = 0; i < TENSORS; i++)
            if (memcmp(one.tensor[i], more.tensor[i], count_of(i) * sizeof(float)) != 0)
                fail_msg("tensor %d differs with %d threads", i, options.threads);
        drop(&more);
    }
    drop(&one);
}

/* The first entry of a batch: its output and the gradient of its input. */
static void test_batch(void **state)
{
    (void)state;
    results all = compute(NULL, BATCH), one = compute(NULL, 1);
    assert_memory_equal(all.tensor[0], one.tensor[0], TOKENS * DIM * sizeof(float));
    assert_memory_equal(all.tensor[1], one.tensor[1], TOKENS * DIM * sizeof(float));
    drop(&all), drop(&one);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
