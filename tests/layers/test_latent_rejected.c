/* SPDX-License-Identifier: MIT
 *
 * test_latent_rejected.c - what multi-head latent attention rejects: with the exact message, and nothing is written. */
#include "bad_files.h"

#include "attn/latent.h"

enum { B = 2, SQ = 4, E = 6, H = 2, OUT = 5 };

static void test_bad_files(void **state)
{
    static const char *const messages[BAD_KINDS] = {
        "layer: no tensor 'o_proj.weight'", "layer: tensor 'o_proj.weight' has shape [5, 7]; the layer has [5, 8]",
        "layer: tensor 'o_proj.weight' is f64; the layer is f32", "layer: tensor 'o_proj.weight' has a NaN at element 2"};
    const attn_latent latent = {
        .struct_size = sizeof latent, .dim_model = E, .dim_output = OUT, .heads = H, .head_dim = 3, .head_dim_v = 4, .rank = 4};
    (void)state;
    for (int fault = 0; fault < BAD_KINDS; fault++) {
        attn_latent_weights weights;
        attn_archive *file = empty_file();
        add_matrix(file, "q_proj.weight", 6, 6, GOOD);
        add_matrix(file, "kv_a_proj_with_mqa.weight", 4, 6, GOOD);
        add_matrix(file, "kv_b_proj.weight", 14, 4, GOOD);
        add_matrix(file, "o_proj.weight", 5, 8, fault);
        LOAD_FAILS(attn_latent_load(&latent, file, "", &weights, &error), messages[fault]);
    }
}

typedef struct good {
    attn_latent latent;
    attn_latent_weights weights, gradients;
    attn_layer_tensors args;
    attn_rope rope;
    attn_cache cache;
    int64_t lengths[B];
    double y[B * SQ * E], numbers[512], saved[1024], k[64];
} good;

static void make_good(good *g)
{
    memset(g, 0, sizeof *g);
    g->latent = (attn_latent){.struct_size = sizeof g->latent,
                              .dtype = ATTN_F64,
                              .dim_model = E,
                              .heads = H,
                              .rank = 2,
                              .rank_query = 2,
                              .dim_rotary = 2};
    g->weights = (attn_latent_weights){.struct_size = sizeof g->weights,
                                       .query_down = attn_out(g->numbers),
                                       .query = attn_out(g->numbers),
                                       .down = attn_out(g->numbers),
                                       .up = attn_out(g->numbers),
                                       .output = attn_out(g->numbers)};
    g->gradients.struct_size = sizeof g->gradients;
    g->rope.struct_size = sizeof g->rope;
    g->args = (attn_layer_tensors){.struct_size = sizeof g->args,
                                   .batch = B,
                                   .len_q = 2,
                                   .query.data = g->numbers,
                                   .output.data = g->y,
                                   .saved = g->saved,
                                   .grad_output.data = g->numbers,
                                   .grad_query.data = g->y};
    g->cache = (attn_cache){.struct_size = sizeof g->cache,
                            .batch = B,
                            .heads_kv = 1,
                            .capacity = 4,
                            .dim_qk = 4,
                            .dim_v = 2,
                            .k = {g->k, ATTN_F64, {0, 0, 0, 0}},
                            .lengths = attn_out(g->lengths)};
    memset(g->y, 0x5a, sizeof g->y);
}

/* Every function rejects the call and writes nothing. */
static void reject(good *g, const char *message, int line)
{
    attn_error error;
    unsigned char before[sizeof g->y];
    memcpy(before, g->y, sizeof before);
    for (int op = 0; op < 3; op++) {
        const attn_status status = op == 0   ? attn_latent_forward(&g->latent, &g->weights, &g->args, &error)
                                   : op == 1 ? attn_latent_backward(&g->latent, &g->weights, &g->args, &g->gradients, &error)
                                             : attn_latent_decode(&g->latent, &g->weights, &g->cache, &g->args, &error);
        if (op == 2 && g->args.only_cached) continue;
        assert_int_not_equal(status, ATTN_OK);
        if (strcmp(error.message, message) != 0) fail_msg("line %d: '%s' instead of '%s'", line, error.message, message);
        assert_memory_equal(g->y, before, sizeof before);
        assert_int_equal(g->lengths[0], 0);
    }
}

static void test_rejected(void **state)
{
    good g;
    (void)state;
#define REJECTED(change, message) (make_good(&g), change, reject(&g, message, __LINE__))
    REJECTED(g.latent.struct_size = 2, "attn_latent.struct_size is 2; set it to sizeof(attn_latent)");
    REJECTED(g.latent.reserved[1] = 3, "latent: reserved[1] is not 0");
    REJECTED(g.latent.norm_epsilon = -1, "latent: norm_epsilon is -1; it must be at least 0 and below 1");
    REJECTED(g.latent.heads = 4, "latent: dim_model (6) is not a multiple of heads (4); set head_dim");
    REJECTED(g.latent.rank = -2, "latent: rank (-2) is not between 1 and 16777216");
    REJECTED(g.latent.dim_rotary = 3, "latent: dim_rotary (3) is odd");
    REJECTED((g.latent.dim_rotary = 0, g.latent.rope = &g.rope), "latent: rope is set, but dim_rotary is 0");
    REJECTED((g.latent.rope = &g.rope, g.rope.dim_rotary = 4),
             "latent: rope.dim_rotary is 4; leave it 0, which means all 2 rotated channels");
    REJECTED((g.latent.heads = 1 << 20, g.latent.head_dim = 1 << 20),
             "latent: 1048576 heads of 2097152 channels are more than 2147483647");
    REJECTED(g.latent.dtype = ATTN_F16, "layer: dtype is f16; it must be f32 or f64");
    REJECTED(g.weights.struct_size = 1, "attn_latent_weights.struct_size is 1; set it to sizeof(attn_latent_weights)");
    REJECTED(g.weights.up.data = NULL, "latent: weights.up is missing");
    REJECTED(g.latent.rank_query = 0, "latent: weights.query_down is set although rank_query is 0");
    REJECTED(g.args.struct_size = 4, "attn_layer_tensors.struct_size is 4; set it to sizeof(attn_layer_tensors)");
    REJECTED(g.args.value.data = g.numbers, "latent: value.data is set; keys and values come from the same latent");
    REJECTED(g.args.query.data = NULL, "layer: query.data is NULL");
    REJECTED(g.args.only_cached = 1, "layer: tensors.only_cached is set; it is only for attn_layer_decode");
}

static void test_rejected_by_some(void **state)
{
    good g;
    attn_layer_counts counts = {.struct_size = 3};
    static float scales[64];
    (void)state;
    make_good(&g);
    FAILS(attn_latent_forward(NULL, &g.weights, &g.args, &error), ATTN_ERR_ARGUMENT, "latent is NULL");
    FAILS(attn_latent_forward(&g.latent, NULL, &g.args, &error), ATTN_ERR_ARGUMENT, "latent: weights is NULL");
    FAILS(attn_latent_forward(&g.latent, &g.weights, NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    FAILS(attn_latent_decode(&g.latent, &g.weights, &g.cache, NULL, &error), ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    g.args.grad_key.data = g.y;
    FAILS(attn_latent_backward(&g.latent, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "latent: grad_key is set, but this input is shared with another: its gradient is added to grad_query");
    g.args.grad_key.data = NULL, g.args.grad_value.data = g.y;
    FAILS(attn_latent_backward(&g.latent, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "latent: grad_value is set, but there is no value input");
    g.args.saved = NULL;
    FAILS(attn_latent_backward(&g.latent, &g.weights, &g.args, &g.gradients, &error), ATTN_ERR_ARGUMENT,
          "latent: tensors.saved is NULL; forward fills it for backward");
    FAILS(attn_latent_decode(&g.latent, &g.weights, NULL, &g.args, &error), ATTN_ERR_ARGUMENT, "cache is NULL");
    g.cache.struct_size = 1;
    FAILS(attn_latent_decode(&g.latent, &g.weights, &g.cache, &g.args, &error), ATTN_ERR_ARGUMENT,
          "attn_cache.struct_size is 1; set it to sizeof(attn_cache)");
    g.cache.struct_size = sizeof g.cache, g.cache.v = attn_out(g.k);
    FAILS(attn_latent_decode(&g.latent, &g.weights, &g.cache, &g.args, &error), ATTN_ERR_ARGUMENT,
          "latent: the cache has v; leave it NULL, the values are the first channels of k");
    g.cache.v = (attn_output){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}}, g.cache.v_scale = attn_out(scales);
    FAILS(attn_latent_decode(&g.latent, &g.weights, &g.cache, &g.args, &error), ATTN_ERR_ARGUMENT,
          "latent: the cache has v_scale; leave it NULL, the scales of the values are those of k");
    g.cache.v_scale = g.cache.v, g.cache.dim_qk = 3;
    FAILS(attn_latent_decode(&g.latent, &g.weights, &g.cache, &g.args, &error), ATTN_ERR_SHAPE,
          "layer: the cache's dim_qk is 3; the layer has 4");

    FAILS(attn_latent_count(&g.latent, 1, 1, 1, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "latent: counts is NULL");
    FAILS(attn_latent_count(&g.latent, 1, 1, 1, NULL, &counts, &error), ATTN_ERR_ARGUMENT,
          "attn_layer_counts.struct_size is 3; set it to sizeof(attn_layer_counts)");
    counts.struct_size = sizeof counts;
    FAILS(attn_latent_count(&g.latent, -1, 1, 1, NULL, &counts, &error), ATTN_ERR_SHAPE,
          "latent: batch (-1), len_q (1) or len_kv (1) is negative");
    FAILS(attn_latent_count(&g.latent, INT64_C(1) << 60, INT64_MAX, 1, NULL, &counts, &error), ATTN_ERR_SHAPE,
          "layer: the bytes of 1152921504606846976 x 9223372036854775807 x 1 numbers overflow 64 bits");
    FAILS(attn_latent_initialise(&g.latent, (attn_init)4, 0, &g.weights, &error), ATTN_ERR_ARGUMENT,
          "latent: init (4) is not an attn_init");
    FAILS(attn_latent_load(&g.latent, NULL, "", &g.weights, &error), ATTN_ERR_ARGUMENT, "latent: tensors is NULL");
    FAILS(attn_latent_store(&g.latent, &g.weights, "", NULL, &error), ATTN_ERR_ARGUMENT, "latent: tensors is NULL");
}

/* Outputs may overlap nothing. */
static void test_overlap(void **state)
{
    good g;
    (void)state;
    make_good(&g);
    g.args.output.data = g.numbers + 3;
    OVERLAPS(attn_latent_forward(&g.latent, &g.weights, &g.args, &error), "latent: output and query");
    OVERLAPS(attn_latent_decode(&g.latent, &g.weights, &g.cache, &g.args, &error), "latent: output and query");
    make_good(&g);
    g.gradients.norm = attn_out(g.y + 1);
    OVERLAPS(attn_latent_backward(&g.latent, &g.weights, &g.args, &g.gradients, &error), "latent: grad_query and gradients.norm");
    make_good(&g);
    OVERLAPS(attn_latent_initialise(&g.latent, ATTN_INIT_SMALL, 0, &g.weights, &error),
             "latent: weights.query_down and weights.query");
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
